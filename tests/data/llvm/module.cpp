// SPDX-License-Identifier: Apache-2.0
// Compiled to an object when tests/llvm/llvm_memory.cpp runs: ten functions whose calls and data need each relocation.
extern "C" {
int host_twice(int x);
[[gnu::noplt]] int host_thrice(int x);
void host_throw(int x);
extern int host_value;

int counter = 5;

int first(int x) { return x + 1; }
int doubled(int x) { return host_twice(x); }                      // PLT32 to the program
int tripled(int x) { return host_thrice(x) + 1; }                 // GOTPCRELX
int counted(int x) { return counter += x; }                       // REX_GOTPCRELX
int looked_up(int x) {                                            // PC32 to read-only data
  static const int table[] = {10, 20, 30, 40, 50};
  return const_cast<const volatile int*>(table)[x % 5];
}
typedef int (*function)(int);
const function functions[] = {first, doubled, tripled, counted, looked_up};  // 64
int chosen(int x) { return functions[x % 5](x); }
int through(int x) {                                              // an exception passes, a destructor runs
  struct Guard {
    ~Guard() { ++counter; }
  } guard;
  host_throw(x);
  return 0;
}
int caught(int x) {                                               // an exception is thrown and caught inside
  try {
    if (x > 100) throw 1L;
    through(x);
  } catch (int e) {
    return 10 * e;
  } catch (long) {
    return -2;
  }
  return -1;
}
int pushed(int x) {                                               // GOTPCREL
  int* p;
  asm volatile("pushq host_value@GOTPCREL(%%rip)\n\tpopq %0" : "=r"(p));
  return *p + host_twice(x);
}
int all(int x) {
  return first(x) + doubled(x) + tripled(x) + looked_up(x) + chosen(x) + caught(x) + pushed(x);
}
}
