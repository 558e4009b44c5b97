// execute: carries a memory plan out: arenas, tracked buffers, host streams, a kernel for each
// instruction. In the flow: after plan; it meets a backend only as the user's template argument. It
// is a small machine that runs the steps of `plan/time_line.hpp`; what an instruction computes is
// its user's business. Every byte that a kernel sees lies where the plan put it; nothing is
// allocated between the first step and the last. Nothing here chooses an order or an offset.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "holdfast/core/block.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/graph/module.hpp"
#include "holdfast/plan/time_line.hpp"

namespace holdfast {

/// One array that a kernel reads or writes: a leaf of an instruction's result, and where it lies.
struct KernelArray {
  InstructionId instruction{};  ///< whose result it is a part of
  std::uint32_t operand = 0;    ///< which operand of the call that is; 0 for results
  std::uint32_t node = 0;       ///< node of the instruction's shape
  ShapeId shape{};
  Block memory;  ///< empty for tokens and arrays without elements

  /// The elements, as the type they are of.
  template <class T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {reinterpret_cast<T*>(memory.data), static_cast<std::size_t>(memory.size) / sizeof(T)};
  }
};

/// What a kernel is asked to do: one instruction, with all the memory it may touch.
///
/// A result may lie exactly on an operand where the operation allows it (`InPlaceRules`); otherwise
/// nothing overlaps.
struct KernelCall {
  const Module* module = nullptr;
  InstructionId instruction{};
  std::span<const KernelArray> operands;  ///< leaves, operand by operand, in node order
  std::span<const KernelArray>
      results;  ///< leaves that the instruction makes (not what it passes on)

  [[nodiscard]] const Instruction& what() const noexcept { return (*module)[instruction]; }
  /// The first leaf of an operand. A number that there is not is a broken precondition.
  [[nodiscard]] const KernelArray& operand(std::uint32_t number) const noexcept {
    const KernelArray* a = operands.data();
    while (a != operands.data() + operands.size() && a->operand != number) ++a;
    HOLDFAST_ASSERT(a != operands.data() + operands.size());
    return *a;
  }
};

/// What carries instructions out.
///
/// `run` does one instruction; the pieces of an operation in two halves (`x-start`, `x-done`) are
/// calls of their own, the computation that an async-start wraps runs before it. `fill_constant`
/// writes a constant's bytes, once. `test_loop` is asked after a loop's condition with the
/// condition's result as operand; `choose_branch` before a conditional, with its index as operand,
/// for the number of a branch. With more than one stream `run` is called on several threads at
/// once.
template <class K>
concept plan_kernel = requires(K& kernel, const KernelCall& call, const KernelArray& array) {
  { kernel.run(call) }
  noexcept->std::same_as<Error>;
  { kernel.fill_constant(array) }
  noexcept->std::same_as<Error>;
  { kernel.test_loop(call) }
  noexcept->std::same_as<Result<bool>>;
  { kernel.choose_branch(call) }
  noexcept->std::same_as<Result<std::uint32_t>>;
};

/// A kernel for memory that the host cannot touch: it also makes the copies that the plan asks for.
///
/// As a call of `run`, a copy is done when it returns.
template <class K>
concept copying_kernel = plan_kernel<K> && requires(K& kernel, Block to, const std::byte* from) {
  { kernel.copy(to, from) }
  noexcept->std::same_as<Error>;
};

/// Control flow that does what the program's own predicates and indices say; base of kernels that
/// compute them.
struct ProgramControl {
  [[nodiscard]] static Result<bool> test_loop(const KernelCall& call) noexcept {
    const Block b = call.operand(0).memory;
    return b.size > 0 && *b.data != std::byte{0};
  }
  /// A predicate chooses branch 0 when true; an index out of range the last branch.
  [[nodiscard]] static Result<std::uint32_t> choose_branch(const KernelCall& call) noexcept {
    const KernelArray& index = call.operand(0);
    const std::uint32_t branches = call.what().called.count;
    if (index.memory.size < 4)
      return index.memory.size > 0 && *index.memory.data != std::byte{0} ? 0u
             : branches > 1                                              ? 1u
                                                                         : 0u;
    std::int32_t number = 0;
    std::memcpy(&number, index.memory.data, sizeof number);
    return number < 0 || static_cast<std::uint32_t>(number) >= branches
               ? branches - 1
               : static_cast<std::uint32_t>(number);
  }
};

/// A control step, with nothing in flight.
struct ControlPoint {
  StepKind kind = StepKind::finish;
  InstructionId instruction{};  ///< of the step; of a finish, the root
  std::uint32_t branch = 0;     ///< of branch_begin and branch_end
  InstructionId caller =
      no_id<InstructionId>;  ///< of a finish: the call that goes on, if the frame has one
};

/// A kernel that also watches: it is told where a run's arenas are, of control steps and of copies
/// that the plan makes.
template <class K>
concept watching_kernel = plan_kernel<K> &&
    requires(K& kernel, std::span<const Block> arenas, const ControlPoint& point, const Move& move,
             Block to) {
  { kernel.on_start(arenas) }
  noexcept->std::same_as<void>;
  { kernel.on_control(point) }
  noexcept->std::same_as<Error>;
  { kernel.on_move(move, to) }
  noexcept->std::same_as<void>;
};

namespace detail {

/// Copies with the kernel where it does that, else with the host.
template <plan_kernel Kernel>
[[nodiscard]] Error copy_with(Kernel& kernel, Block to, const std::byte* from) noexcept {
  if constexpr (copying_kernel<Kernel>) {
    return kernel.copy(to, from);
  } else {
    static_cast<void>(kernel);
    std::memmove(to.data, from, static_cast<std::size_t>(to.size));
    return {};
  }
}

}  // namespace detail
}  // namespace holdfast
