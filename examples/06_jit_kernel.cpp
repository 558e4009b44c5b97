// SPDX-License-Identifier: Apache-2.0
// LLVM 19 compiles a kernel into holdfast's code memory: no page is ever writable and executable, and the map list has its name.
#include <llvm/AsmParser/Parser.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "holdfast/backend/jit/mapper_registry.hpp"
#include "holdfast/interop/llvm_memory.hpp"

using namespace holdfast;

constexpr const char* kernel = R"(
define void @axpy(float %a, ptr %x, ptr %y, i64 %n) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %next, %loop ]
  %px = getelementptr float, ptr %x, i64 %i
  %py = getelementptr float, ptr %y, i64 %i
  %vx = load float, ptr %px
  %vy = load float, ptr %py
  %ax = fmul float %a, %vx
  %sum = fadd float %ax, %vy
  store float %sum, ptr %py
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
})";

// How the map list calls the page of an address: access and name.
std::string mapped_as(std::uintptr_t address) {
  std::FILE* maps = std::fopen("/proc/self/maps", "r");
  char line[512], access[8] = {};
  std::string found;
  while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line, "%lx-%lx %7s", &begin, &end, access) != 3 || address < begin || address >= end) continue;
    const char* name = std::strpbrk(line, "/[\n");
    found = std::string(access) + " " + std::string(name, std::strcspn(name, "\n"));
  }
  if (maps != nullptr) std::fclose(maps);
  return found;
}

int main() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  Result<MapperHandle<>> mapper = mapper_registry().mapper("axpy");
  if (!mapper.ok()) return std::puts(mapper.error().what), EXIT_FAILURE;
  JitLinkMemory<> memory(**mapper);
  llvm::ExitOnError check("06_jit_kernel: ");
  const auto jit = check(llvm::orc::LLJITBuilder()
                             .setObjectLinkingLayerCreator([&](llvm::orc::ExecutionSession& session, const llvm::Triple&) {
                               return std::make_unique<llvm::orc::ObjectLinkingLayer>(session, memory);
                             })
                             .create());
  auto context = std::make_unique<llvm::LLVMContext>();
  llvm::SMDiagnostic problem;
  auto module = llvm::parseAssemblyString(kernel, problem, *context);
  check(jit->addIRModule(llvm::orc::ThreadSafeModule(std::move(module), std::move(context))));
  const auto axpy = check(jit->lookup("axpy")).toPtr<void (*)(float, const float*, float*, std::uint64_t)>();
  float x[] = {1, 2, 3, 4}, y[] = {10, 20, 30, 40};
  axpy(2, x, y, 4);
  std::printf("y = %g %g %g %g from %s\n", static_cast<double>(y[0]), static_cast<double>(y[1]), static_cast<double>(y[2]),
              static_cast<double>(y[3]), mapped_as(reinterpret_cast<std::uintptr_t>(axpy)).c_str());
  return y[0] == 12 && y[3] == 48 ? EXIT_SUCCESS : EXIT_FAILURE;
}
