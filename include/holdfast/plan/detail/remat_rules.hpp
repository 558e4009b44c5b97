// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "holdfast/graph/alias.hpp"
#include "holdfast/graph/module.hpp"

namespace holdfast::detail {

/// Decides which instructions may run a second time, and whose results may be moved.
///
/// Threads: as a vector. Cost: linear to make. Source: passes.md 11.2.
class RematRules {
 public:
  explicit constexpr RematRules(const Module& module)
      : pure_(module.instructions.size(), 0), ordered_(module.instructions.size(), 0) {
    for (const InstructionId id : module.control_ids) ordered_[index_of(id)] = 1;
    std::vector<char> clean(module.computations.size(), 1);
    for (std::size_t c = 0; c < module.computations.size(); ++c)
      for (const InstructionId id : module.instructions_of(static_cast<ComputationId>(c))) {
        const Instruction& i = module[id];
        if (i.controls.count != 0) ordered_[index_of(id)] = 1;
        bool callees = true;
        for (const ComputationId callee : module.called(i))
          callees = callees && clean[index_of(callee)] != 0;
        const bool harmless = repeats(i.opcode) && !i.has_side_effect && callees;
        pure_[index_of(id)] = harmless && ordered_[index_of(id)] == 0 && !copies_alike(module, i);
        const bool source = i.opcode == Opcode::parameter || i.opcode == Opcode::constant;
        if (!harmless && !source && !is_forwarding(i.opcode)) clean[c] = 0;
      }
    // A successor may stand behind what it orders.
    for (std::size_t k = 0; k < pure_.size(); ++k)
      if (ordered_[k] != 0) pure_[k] = 0;
  }

  /// Tells whether an instruction may be computed again from its operands.
  [[nodiscard]] constexpr bool may_repeat(InstructionId i) const noexcept {
    return pure_[index_of(i)] != 0;
  }
  /// Tells whether control edges tie an instruction to its place.
  [[nodiscard]] constexpr bool is_ordered(InstructionId i) const noexcept {
    return ordered_[index_of(i)] != 0;
  }
  /// Tells whether elements of what an operation gives may be kept elsewhere for a while.
  [[nodiscard]] static constexpr bool may_move(Opcode opcode) noexcept {
    switch (opcode) {
      case Opcode::call:
      case Opcode::conditional:
      case Opcode::while_:
      case Opcode::custom_call:
      case Opcode::copy:
      case Opcode::rng:
      case Opcode::rng_bit_generator:
      case Opcode::all_gather:
      case Opcode::all_reduce:
      case Opcode::all_to_all:
      case Opcode::collective_permute:
      case Opcode::reduce_scatter:
        return true;
      default:
        return repeats(opcode);
    }
  }

 private:
  std::vector<char> pure_;
  std::vector<char> ordered_;

  static constexpr bool repeats(Opcode opcode) noexcept {
    if (static_cast<std::size_t>(opcode) >= opcode_count || is_forwarding(opcode)) return false;
    switch (opcode) {
      case Opcode::all_gather:
      case Opcode::all_gather_done:
      case Opcode::all_gather_start:
      case Opcode::all_reduce:
      case Opcode::all_reduce_done:
      case Opcode::all_reduce_start:
      case Opcode::all_to_all:
      case Opcode::async_done:
      case Opcode::async_start:
      case Opcode::async_update:
      case Opcode::call:
      case Opcode::collective_broadcast:
      case Opcode::collective_permute:
      case Opcode::collective_permute_done:
      case Opcode::collective_permute_start:
      case Opcode::conditional:
      case Opcode::constant:
      case Opcode::copy_done:
      case Opcode::copy_start:
      case Opcode::custom_call:
      case Opcode::infeed:
      case Opcode::outfeed:
      case Opcode::parameter:
      case Opcode::ragged_all_to_all:
      case Opcode::recv:
      case Opcode::recv_done:
      case Opcode::reduce_scatter:
      case Opcode::rng:
      case Opcode::rng_bit_generator:
      case Opcode::rng_get_and_update_state:
      case Opcode::send:
      case Opcode::send_done:
      case Opcode::stochastic_convert:
      case Opcode::while_:
        return false;
      default:
        return true;
    }
  }
  /// A copy that changes nothing is there to be a copy.
  static constexpr bool copies_alike(const Module& m, const Instruction& i) noexcept {
    return i.opcode == Opcode::copy && !m.operands(i).empty() &&
           m[m.operands(i)[0]].shape == i.shape;
  }
};

}  // namespace holdfast::detail
