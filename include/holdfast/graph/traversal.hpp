// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/graph/module.hpp"

namespace holdfast {

/// Orders the instructions of computations so that each follows its operands and control
/// predecessors.
///
/// Instructions without users are taken as they stand; before each come its control predecessors,
/// then operand 0, 1, and so on. Threads: as a vector. Cost: linear, over all computations
/// together. Source: passes.md 1.3.
class InstructionPostOrder {
 public:
  explicit constexpr InstructionPostOrder(const Module& module)
      : module_(module), state_(module.instructions.size(), 0) {}

  /// The order of one computation; it lives until the next call.
  constexpr std::span<const InstructionId> operator()(ComputationId computation) {
    order_.clear();
    const auto list = module_.instructions_of(computation);
    for (const InstructionId id : list) {
      state_[index_of(id)] = new_node;
      for (const InstructionId operand : module_.operands(module_[id]))
        state_[index_of(operand)] = new_node;
    }
    // An operand may stand behind its user in a schedule that is still to be checked, so users are
    // marked apart.
    for (const InstructionId id : list)
      for (const InstructionId operand : module_.operands(module_[id]))
        state_[index_of(operand)] = has_users;
    for (const InstructionId id : list)
      if (state_[index_of(id)] == new_node) visit(id);
    return order_;
  }

 private:
  static constexpr std::uint8_t new_node = 0;
  static constexpr std::uint8_t has_users = 1;
  static constexpr std::uint8_t opened = 2;
  static constexpr std::uint8_t done = 3;

  constexpr void visit(InstructionId from) {
    stack_.push_back(from);
    while (!stack_.empty()) {
      const InstructionId id = stack_.back();
      std::uint8_t& state = state_[index_of(id)];
      if (state >= opened) {
        stack_.pop_back();
        if (state == opened) order_.push_back(id);
        state = done;
        continue;
      }
      state = opened;
      const auto operands = module_.operands(module_[id]);
      for (std::size_t k = operands.size(); k-- > 0;) push(operands[k]);
      for (const InstructionId control : module_.controls(module_[id])) push(control);
    }
  }
  constexpr void push(InstructionId id) {
    if (state_[index_of(id)] < opened) stack_.push_back(id);
  }

  const Module& module_;
  std::vector<std::uint8_t> state_;
  std::vector<InstructionId> stack_;
  std::vector<InstructionId> order_;
};

/// The instructions of one computation in post-order.
[[nodiscard]] constexpr std::vector<InstructionId> instruction_post_order(
    const Module& module, ComputationId computation) {
  InstructionPostOrder order(module);
  const auto out = order(computation);
  return {out.begin(), out.end()};
}

/// All computations, callees before callers, in the order of their first call; those that nobody
/// calls come as they stand, the entry last.
///
/// Cost: linear. Source: passes.md 1.3.
[[nodiscard]] constexpr std::vector<ComputationId> computation_post_order(const Module& module) {
  struct Visit {
    ComputationId computation;
    std::uint32_t instruction;
    std::uint32_t callee;
  };
  const std::size_t count = module.computations.size();
  std::vector<ComputationId> order;
  order.reserve(count);
  std::vector<std::uint8_t> called(count, 0);
  std::vector<std::uint8_t> seen(count, 0);
  for (const ComputationId id : module.called_ids) called[index_of(id)] = 1;
  std::vector<Visit> stack;
  const auto visit = [&](ComputationId root) {
    if (seen[index_of(root)] != 0) return;
    seen[index_of(root)] = 1;
    stack.push_back({root, 0, 0});
    while (!stack.empty()) {
      const Visit at = stack.back();
      const auto list = module.instructions_of(at.computation);
      if (at.instruction == list.size()) {
        order.push_back(at.computation);
        stack.pop_back();
        continue;
      }
      const auto callees = module.called(module[list[at.instruction]]);
      if (at.callee == callees.size()) {
        ++stack.back().instruction;
        stack.back().callee = 0;
        continue;
      }
      ++stack.back().callee;
      const ComputationId next = callees[at.callee];
      if (seen[index_of(next)] != 0) continue;
      seen[index_of(next)] = 1;
      stack.push_back({next, 0, 0});
    }
  };
  for (std::size_t c = 0; c < count; ++c)
    if (called[c] == 0 && static_cast<ComputationId>(c) != module.entry)
      visit(static_cast<ComputationId>(c));
  if (count != 0) visit(module.entry);
  for (std::size_t c = 0; c < count; ++c) visit(static_cast<ComputationId>(c));
  return order;
}

}  // namespace holdfast
