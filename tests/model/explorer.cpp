// SPDX-License-Identifier: Apache-2.0
#include "model/explorer.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <unordered_map>
#include <vector>

#include "support/shared.hpp"

namespace model {

namespace {

// --- the arena: operator new of this program while a run is on ---------------------------------------------------------------

struct Header {
  std::size_t size;
  std::uint64_t state;  // live or freed
};
constexpr std::uint64_t live = 0x11FE11FE11FE11FE, freed = 0xF4EEDF4EEDF4EED0;
constexpr std::size_t arena_size = std::size_t{1} << 20;
alignas(64) std::byte arena[arena_size];
std::size_t arena_used = 0;
int arena_live = 0;
bool arena_on = false;

bool in_arena(const void* p) { return p >= arena && p < arena + arena_size; }

void* arena_allocate(std::size_t size) {
  const std::size_t room = 64 + (size + 63) / 64 * 64;
  if (arena_used + room > arena_size) return nullptr;
  auto* header = reinterpret_cast<Header*>(arena + arena_used);
  *header = {size, live};
  arena_used += room;
  ++arena_live;
  return reinterpret_cast<std::byte*>(header) + 64;
}

void arena_free(void* p) {
  auto* header = reinterpret_cast<Header*>(static_cast<std::byte*>(p) - 64);
  if (header->state != live) return fail("memory is freed twice");
  header->state = freed;
  --arena_live;
}

// --- threads -----------------------------------------------------------------------------------------------------------------

struct Hash {
  std::uint64_t a = 0, b = 0;
  friend bool operator==(const Hash&, const Hash&) = default;
  void add(std::uint64_t v) {
    a = mix(a ^ v);
    b = mix(b + v * 0x9E3779B97F4A7C15u + 1);
  }
  void add(const void* begin, const void* end) {
    const auto* p = static_cast<const std::byte*>(begin);
    for (; p < end; p += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, p, 8);
      a = (a ^ word) * 0x9FB21C651E98DF25u;
      a ^= a >> 29;
      b = (b + word) * 0xD6E8FEB86659FD93u;
      b ^= b >> 32;
    }
  }
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }
};
struct HashOfHash {
  std::size_t operator()(const Hash& h) const { return h.a; }
};

constexpr std::size_t stack_size = 8 * 1024;
struct Thread {
  alignas(64) std::byte stack[stack_size];
  ucontext_t begin;
  jmp_buf resume;
  Step next;
  std::byte* top;  // the lowest byte in use
  bool started, finished, parked;
};
Thread threads[max_threads];
Clock clocks[max_threads + 1];
jmp_buf explorer_resume;
ucontext_t explorer_context;
int running = max_threads;  // the harness
const Scenario* current = nullptr;
void* state = nullptr;
std::string fault;

void enter(int t) {
  running = t;
  if (_setjmp(explorer_resume) == 0) {
    if (threads[t].started) _longjmp(threads[t].resume, 1);
    threads[t].started = true;
    setcontext(&threads[t].begin);
  }
  running = max_threads;
}

// Notes how far the stack is in use, registers saved by this call included: a state is hashed from there.
[[gnu::noinline]] void leave() {
#if defined(__x86_64__)
  asm volatile("mov %%rsp, %0" : "=r"(threads[running].top));
#elif defined(__aarch64__)
  asm volatile("mov %0, sp" : "=r"(threads[running].top));
#else
  threads[running].top = threads[running].stack;
#endif
  if (_setjmp(threads[running].resume) == 0) _longjmp(explorer_resume, 1);
}

void thread_main(int t) {
  current->run(state, t);
  threads[t].finished = true;
  leave();
}

// --- the search --------------------------------------------------------------------------------------------------------------

using Set = unsigned;  // of threads
struct Node {
  Set enabled, done;
  int chosen;
  Hash hash;
  double interleavings;  // below the choices that are done
  Step next;             // of the chosen thread
};

Set enabled_now() {
  Set set = 0;
  for (int t = 0; t < current->threads; ++t)
    if (!threads[t].finished && !threads[t].parked) set |= 1u << t;
  return set;
}

int first_of(Set set) {
  for (int t = 0; t < max_threads; ++t)
    if ((set >> t & 1u) != 0) return t;
  return -1;
}

void begin_run() {
  std::memset(arena, 0, arena_used);
  arena_used = 0;
  arena_live = 0;
  for (Clock& c : clocks) c = Clock{};
  for (int t = 0; t <= max_threads; ++t) clocks[t].at[t] = 1;
  arena_on = true;
  state = current->make();
  for (int t = 0; t < current->threads; ++t) {
    Thread& thread = threads[t];
    clocks[t].join(clocks[max_threads]);
    std::memset(thread.stack, 0, stack_size);  // what earlier runs left must not tell states apart
    getcontext(&thread.begin);
#if defined(__x86_64__)
    for (const int r : {REG_RBX, REG_RBP, REG_R12, REG_R13, REG_R14, REG_R15}) thread.begin.uc_mcontext.gregs[r] = 0;
#endif
    thread.begin.uc_stack.ss_sp = thread.stack;
    thread.begin.uc_stack.ss_size = stack_size;
    thread.begin.uc_link = &explorer_context;
    makecontext(&thread.begin, reinterpret_cast<void (*)()>(thread_main), 1, t);
    thread.started = thread.finished = thread.parked = false;

  }
  ++clocks[max_threads].at[max_threads];
  for (int t = 0; t < current->threads; ++t) enter(t);  // to its first step
}

Hash state_hash() {
  Hash h;
  h.add(arena, arena + arena_used);
  h.add(clocks, clocks + max_threads + 1);
  for (int t = 0; t < current->threads; ++t) {
    const Thread& thread = threads[t];
    h.add((thread.finished ? 2u : 0u) + (thread.parked ? 1u : 0u));
    if (thread.finished) continue;
    h.add(thread.top, thread.stack + stack_size);
    h.add(thread.resume[0].__jmpbuf, thread.resume[0].__jmpbuf + 8);
  }
  h.a = Hash::mix(h.a);
  return h;
}

void end_run() {
  for (int t = 0; t < current->threads; ++t) clocks[max_threads].join(clocks[t]);
  current->finish(state);
  arena_on = false;
  if (arena_live != 0) fail("memory is leaked");
}

const char* word(Kind kind) {
  switch (kind) {
    case Kind::start: return "start";
    case Kind::read: return "read";
    case Kind::write: return "write";
    case Kind::wait: return "wait";
    case Kind::notify: return "notify";
  }
  return "?";
}

std::string describe(const std::vector<Node>& path) {
  std::string text = std::string(current->name) + ": " + fault + "\n  interleaving:";
  for (const Node& n : path) {
    const Step& s = n.next;
    char line[64];
    std::snprintf(line, sizeof line, " %d:%s@%zx", n.chosen, word(s.kind),
                  in_arena(s.address) ? static_cast<std::size_t>(static_cast<const std::byte*>(s.address) - arena) : 0);
    text += line;
  }
  return text;
}

}  // namespace

int self() { return running; }
Clock& clock_of(int thread) { return clocks[thread]; }

void fail(const char* what) {
  if (fault.empty()) {
    const bool on = arena_on;
    arena_on = false;  // the text outlives the run
    fault = what;
    arena_on = on;
  }
}

void step(const void* address, Kind kind) {
  if (running == max_threads) return;
  threads[running].next = {address, kind};
  leave();
}

void park(const void* address) {
  if (running == max_threads) return fail("the harness would wait for ever");
  threads[running].parked = true;
  threads[running].next = {address, Kind::wait};
  leave();
}

void wake_all(const void* address) {
  for (int t = 0; t < current->threads; ++t)
    if (threads[t].parked && threads[t].next.address == address) threads[t].parked = false;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#elif defined(__has_feature)
constexpr bool sanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool sanitized = false;
#endif

Report explore(const Scenario& scenario, std::uint64_t bound) {
  Report report;
  if (sanitized) {
    holdfast::testing::skip_case("the explorer switches stacks in ways that this sanitizer does not follow");
    report.interleavings = 2;
    report.exhausted = true;
    return report;
  }
  current = &scenario;
  fault.clear();
  std::vector<Node> path;
  std::unordered_map<Hash, double, HashOfHash> known;  // the interleavings from a state on
  for (;;) {
    begin_run();
    ++report.runs;
    double below = 1;  // interleavings of what this run adds at its end
    std::size_t depth = 0;
    bool met = false;
    for (; fault.empty(); ++depth) {
      const Set enabled = enabled_now();
      if (enabled == 0) break;
      if (depth == path.size()) {
        arena_on = false;  // the search outlives the run
        const Hash hash = state_hash();
        const auto found = known.find(hash);
        met = found != known.end();
        if (met) below = found->second;
        else path.push_back({enabled, 0, first_of(enabled), hash, 0, {}});
        arena_on = true;
        if (met) break;
      }
      path[depth].next = threads[path[depth].chosen].next;
      enter(path[depth].chosen);
      scenario.invariant(state);
    }
    if (depth > report.deepest) report.deepest = depth;
    bool all_ended = true;
    for (int t = 0; t < scenario.threads; ++t) all_ended = all_ended && threads[t].finished;
    if (fault.empty() && !met && !all_ended) fail("nobody can go on: a lost wake-up or a deadlock");
    if (fault.empty() && !met) end_run();
    arena_on = false;
    if (!fault.empty()) {
      if (depth < path.size()) path.resize(depth + 1);
      report.fault = describe(path);
      return report;
    }

    // Back to the deepest choice that is not made yet; a state whose choices are all made is known.
    while (!path.empty()) {
      Node& last = path.back();
      last.interleavings += below;
      last.done |= 1u << last.chosen;
      last.chosen = first_of(last.enabled & ~last.done);
      if (last.chosen >= 0) break;
      below = last.interleavings;
      known.emplace(last.hash, below);
      path.pop_back();
    }
    report.exhausted = path.empty();
    if (report.exhausted) report.interleavings = below;
    if (report.exhausted || report.runs >= bound) break;
  }
  report.states = known.size();
  std::printf("[model] %-62s %12.6g interleavings%s (%llu states, %llu runs, depth %zu)\n", scenario.name, report.interleavings,
              report.exhausted ? ", all run" : ", CUT BY THE BOUND", static_cast<unsigned long long>(report.states),
              static_cast<unsigned long long>(report.runs), report.deepest);
  std::fflush(stdout);
  return report;
}

}  // namespace model

// While a run is on, all memory of this program comes from the arena.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return model::arena_on ? model::arena_allocate(size) : std::malloc(size);
}
void* operator new(std::size_t size) {
  void* p = operator new(size, std::nothrow);
  if (p == nullptr) std::abort();
  return p;
}
void* operator new(std::size_t size, std::align_val_t, const std::nothrow_t&) noexcept { return operator new(size, std::nothrow); }
void* operator new(std::size_t size, std::align_val_t) { return operator new(size); }
void operator delete(void* p) noexcept {
  if (p == nullptr) return;
  if (model::in_arena(p)) model::arena_free(p);
  else std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
void operator delete(void* p, std::align_val_t) noexcept { operator delete(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { operator delete(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { operator delete(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { operator delete(p); }
