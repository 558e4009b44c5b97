// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/graph/instruction_checker.hpp"
#include "holdfast/hlo/detail/infer_shape.hpp"
#include "holdfast/hlo/detail/text_state.hpp"

namespace holdfast::detail {

/// Where the scratch lists of `TextState` began for one instruction.
struct ScratchMarks {
  std::size_t operands, controls, called, attributes;
  constexpr explicit ScratchMarks(const TextState& st) noexcept
      : operands(st.operands.size()),
        controls(st.controls.size()),
        called(st.called.size()),
        attributes(st.attributes.size()) {}
};

/// Moves the scratch tail from `mark` on into a pool.
template <class T>
constexpr IndexRange move_tail(TextState& st, std::vector<T>& scratch, std::size_t mark,
                               std::vector<T>& pool) {
  const IndexRange out{static_cast<std::uint32_t>(pool.size()),
                       static_cast<std::uint32_t>(scratch.size() - mark)};
  if (out.count == 0) return out;
  st.make_room(pool, out.count);
  pool.insert(pool.end(), scratch.begin() + static_cast<std::ptrdiff_t>(mark), scratch.end());
  scratch.resize(mark);
  return out;
}

/// Turns the paths that `read_operand_aliases` kept into node numbers, and checks them.
constexpr bool resolve_aliases(TextState& st, Instruction& ins,
                               const std::vector<std::int64_t>& raw) {
  ins.aliases.begin = static_cast<std::uint32_t>(st.module.operand_aliases.size());
  const ShapeTable& shapes = st.module.shapes;
  const auto operands = st.module.operands(ins);
  for (std::size_t i = 0; i < raw.size();) {
    const auto from = static_cast<std::size_t>(raw[i]);
    const auto out_size = static_cast<std::size_t>(raw[i + 1]);
    const std::span<const std::int64_t> out(raw.data() + i + 2, out_size);
    i += 2 + out_size;
    const auto operand = static_cast<std::uint32_t>(raw[i]);
    const auto in_size = static_cast<std::size_t>(raw[i + 1]);
    const std::span<const std::int64_t> in(raw.data() + i + 2, in_size);
    i += 2 + in_size;
    if (operand >= operands.size())
      return st.in.fail_at(from, "alias names an operand that does not exist");
    OperandAlias alias;
    alias.operand = operand;
    alias.output_node = shapes.node_of_path(ins.shape, out);
    alias.operand_node = shapes.node_of_path(st.module[operands[operand]].shape, in);
    if (alias.output_node >= shapes.node_count(ins.shape) ||
        alias.operand_node >= shapes.node_count(st.module[operands[operand]].shape))
      return st.in.fail_at(from, "alias names a shape index that does not exist");
    st.module.operand_aliases.push_back(alias);
  }
  ins.aliases.count =
      static_cast<std::uint32_t>(st.module.operand_aliases.size()) - ins.aliases.begin;
  return true;
}

/// Notes who calls what: the computation of a fusion has one caller.
constexpr bool note_callers(TextState& st, const Instruction& ins) {
  if (ins.opcode == Opcode::async_done || ins.opcode == Opcode::async_update)
    return true;  // they repeat their start's
  for (const ComputationId id : st.module.called(ins)) {
    std::uint8_t& by = st.callers[index_of(id)];
    const bool fusion = ins.opcode == Opcode::fusion;
    if (by == 2 || (fusion && by != 0))
      return st.in.fail_at(ins.where, "the computation of a fusion has another caller");
    by = fusion ? 2 : 1;
    if (fusion) st.module[id].is_fusion = true;
  }
  return true;
}

/// Ends an instruction: its lists move to the module, its shape is found or checked, it gets its
/// id.
constexpr bool finish_instruction(TextState& st, Instruction& ins, const ScratchMarks& marks,
                                  InstructionId& id,
                                  const std::vector<std::int64_t>& raw_aliases = {}) {
  Module& m = st.module;
  if (m.instructions.size() >= st.options.limits.instructions)
    return st.in.fail_at(ins.where, "more instructions than the limit", Errc::over_budget);
  ins.operands = move_tail(st, st.operands, marks.operands, m.operand_ids);
  ins.controls = move_tail(st, st.controls, marks.controls, m.control_ids);
  ins.called = move_tail(st, st.called, marks.called, m.called_ids);
  ins.attributes = move_tail(st, st.attributes, marks.attributes, m.attributes);
  ins.computation = static_cast<ComputationId>(m.computations.size());
  if (ins.shape == no_id<ShapeId>) {
    const Result<ShapeId> shape = infer_shape(m, ins);
    if (!shape) return st.fail(ins.where, shape.error());
    ins.shape = *shape;
  }
  if (!raw_aliases.empty() && !resolve_aliases(st, ins, raw_aliases)) return false;
  if (const Error e = InstructionChecker(m, ins, st.effort).check(); !e.ok())
    return st.fail(ins.where, e);
  if (ins.called.count != 0 && !note_callers(st, ins)) return false;
  id = static_cast<InstructionId>(m.instructions.size());
  st.make_room(m.instructions);
  m.instructions.push_back(ins);
  TextScope& scope = st.scope();
  st.make_room(scope.list);
  scope.list.push_back(id);
  if (ins.opcode == Opcode::parameter) scope.parameters.push_back(id);
  return true;
}

}  // namespace holdfast::detail
