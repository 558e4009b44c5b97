// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "holdfast/graph/alias.hpp"
#include "holdfast/graph/module.hpp"

namespace holdfast {

/// An update in place that is all that an asynchronous operation does: what it works on and gives.
struct BackgroundUpdate {
  ValueId base = no_id<ValueId>;  ///< none: the operation does something else
  ValueId result = no_id<ValueId>;
  bool alone = true;  ///< no other operand is the same value
};

/// Finds what an async-start, -update or -done updates in place: the base is not needed until the
/// end, as the result takes its place.
///
/// Cost: O(operands), along a chain of async-updates.
[[nodiscard]] constexpr BackgroundUpdate background_update(const Module& m,
                                                           const ValueTable& values,
                                                           InstructionId id) {
  BackgroundUpdate out;
  if (m[id].opcode != Opcode::async_start && m[id].opcode != Opcode::async_update &&
      m[id].opcode != Opcode::async_done)
    return out;
  while (m[id].opcode != Opcode::async_start) {
    if (m[id].operands.count == 0) return out;
    id = m.operands(m[id])[0];
  }
  const std::span<const InstructionId> operands = m.operands(m[id]);
  const Computation& wrapped = m[m.called(m[id])[0]];
  const Instruction& root = m[wrapped.root];
  if (root.opcode != Opcode::dynamic_update_slice || wrapped.parameters.count != operands.size() ||
      wrapped.instructions.count != operands.size() + 1 || !values.has(wrapped.root))
    return out;
  const Instruction& base = m[m.operands(root)[0]];  // a parameter, as all but the root are
  out.base = values.value(operands[base.number]);
  out.result = values.value(wrapped.root);
  std::size_t count = 0;
  for (const InstructionId o : operands) count += values.value(o) == out.base ? 1u : 0u;
  out.alone = count == 1;
  return out;
}

}  // namespace holdfast
