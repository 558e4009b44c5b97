// SPDX-License-Identifier: Apache-2.0
// A program planned for a test, and a backend that counts and fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/execute/pattern_kernel.hpp"
#include "holdfast/execute/plan_executor.hpp"
#include "holdfast/hlo/parser.hpp"
#include "holdfast/plan/buffer_assignment.hpp"
#include "holdfast/plan/buffers.hpp"
#include "holdfast/plan/liveness.hpp"
#include "holdfast/plan/plan_offsets.hpp"
#include "support/texts.hpp"

namespace holdfast::testing {

/// All stages of a program; a test may damage one before it makes the next.
struct PlannedText {
  Module module;
  ValueTable values;
  Liveness live;
  std::optional<BufferSet> buffers;
  BufferAssignment plan;

  explicit PlannedText(std::string_view text) {
    Result<Module> m = parse_hlo_text(text);
    if (!m.ok()) FAIL(testing::sentence(m.error()), " at ", m.error().line(), ":", m.error().column());
    module = std::move(*m);
    values = std::move(*analyze_values(module));
    live = std::move(*analyze_liveness(module, values));
    place();
  }
  PlannedText(PlannedText&&) = delete;
  /// Plans again what the earlier stages say now.
  void place(BufferSet::Sharing sharing = BufferSet::Sharing::all) {
    buffers.emplace(module, values, live, sharing);
    plan = std::move(*assign_buffers(module, live, *buffers, PlanOffsets{}));
  }
  [[nodiscard]] PlannedProgram program() const { return {&module, &values, &live, &plan}; }
  [[nodiscard]] InstructionId find(std::string_view name) const {
    for (std::uint32_t k = 0; k < module.instructions.size(); ++k)
      if (module.instructions[k].name == name) return static_cast<InstructionId>(k);
    FAIL("no instruction ", name);
    return {};
  }
  [[nodiscard]] Step& step(std::string_view name, StepKind kind = StepKind::execute) {
    for (Step& s : live.steps)
      if (s.kind == kind && s.instruction == find(name)) return s;
    FAIL("no step of ", name);
    return live.steps[0];
  }
};

/// What a `CountingMemory` has given, and when it fails.
struct Counts {
  std::atomic<int> allocations{0};
  std::atomic<int> alive{0};  // streams of the host free as well
  int fail_at = -1;  ///< the number of the allocation that fails; -1: none
};

/// Memory of the C library that counts; its state is the test's.
struct CountingMemory {
  static constexpr MemorySpace space = MemorySpace::host;
  Counts* counts = nullptr;

  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    if (counts->allocations++ == counts->fail_at)
      return make_error(Errc::out_of_memory, "the test says so");
    Result<Block> block = SystemMemory{}.allocate(size, alignment);
    if (block.ok() && block->data != nullptr) ++counts->alive;
    return block;
  }
  void deallocate(Block block) noexcept {
    if (block.data != nullptr) --counts->alive;
    SystemMemory{}.deallocate(block);
  }
};
static_assert(memory_backend<CountingMemory>);

/// Carries a program out once: arguments with the kernel's patterns, the run, a look at the results.
///
/// `seen` is called with each argument's block when it is written. Errors: those of the run and of the look.
template <class Executor, class Memory, class Kernel, class F, class... Streams>
Error run_once(const PlannedText& p, Executor& executor, Memory memory, Kernel& kernel,
               std::vector<typename Executor::buffer_type>& results, F seen, Streams&... streams) {
  using Buffer = typename Executor::buffer_type;
  std::vector<Buffer> arguments;
  std::vector<Buffer*> pointers;
  for (const ProgramLeaf& a : executor.arguments()) {
    arguments.push_back(std::move(*Buffer::allocate(memory, a.size)));
    const Block block = arguments.back().hold(HoldKind::usage)->raw().block();
    REQUIRE(kernel.write({a.instruction, 0, a.node, a.shape, block}).ok());
    seen(block);
  }
  for (Buffer& a : arguments) pointers.push_back(&a);
  results = std::vector<Buffer>(executor.results().size());
  if (Error e = executor.execute(pointers, results, kernel, streams...); !e.ok()) return e;
  for (std::size_t k = 0; k < results.size(); ++k) {
    if (Error e = results[k].block_for_operations(); !e.ok()) return e;
    const ProgramLeaf& r = executor.results()[k];
    const Block block = results[k].hold(HoldKind::usage)->raw().block();
    if (Error e = kernel.check({r.instruction, 0, r.node, r.shape, block}, p.module[p.module.entry].root); !e.ok()) return e;
  }
  return {};
}

/// Runs a program under the checking kernel until every branch was taken; the fault, `none` when
/// all is well.
struct CheckedRun {
  std::unique_ptr<PatternKernel> kernel;
  Error error;
  bool results_good = true;
  // What an earlier run left in memory that is used again must not pass for this run's.
  static inline std::uint64_t next_stamp = 1;

  explicit CheckedRun(const PlannedText& p, std::uint32_t streams = 1,
                      PatternCheck check = PatternCheck::full)
      : kernel(std::make_unique<PatternKernel>(p.program(), check, 2, next_stamp)) {
    next_stamp += std::uint64_t{1} << 32;
    using Executor = PlanExecutor<SystemMemory, HostEvent>;
    Result<Executor> executor = Executor::make(p.program(), SystemMemory{}, *kernel);
    REQUIRE(executor.ok());
    HostStreams threads;
    if (streams > 1) REQUIRE(threads.start(streams).ok());
    const auto run = [&](auto&... on) {
      std::vector<Executor::buffer_type> results;
      return run_once(p, *executor, SystemMemory{}, *kernel, results, [](Block) {}, on...);
    };
    do error = streams > 1 ? run(threads) : run();
    while (error.ok() && !kernel->has_taken_all_branches());
  }
  [[nodiscard]] bool clean() const {
    return error.ok() && kernel->fault().kind == PatternFault::Kind::none;
  }
  [[nodiscard]] std::string sentence(const PlannedText& p) const {
    StringSink out;
    static_cast<void>(write_fault(out, p.module, kernel->fault()));
    return out.text;
  }
};

}  // namespace holdfast::testing
