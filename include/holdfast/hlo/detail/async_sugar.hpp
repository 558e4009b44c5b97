// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/graph/opcode.hpp"
#include "holdfast/hlo/detail/finish_instruction.hpp"
#include "holdfast/hlo/detail/text_state.hpp"

namespace holdfast::detail {

/// Splits `dynamic-slice-start` and the like: which asynchronous operation, and the one it wraps.
[[nodiscard]] constexpr bool split_async_word(std::string_view word, Opcode& opcode,
                                              Opcode& wrapped) noexcept {
  constexpr struct {
    std::string_view suffix;
    Opcode opcode;
  } forms[] = {{"-start", Opcode::async_start},
               {"-update", Opcode::async_update},
               {"-done", Opcode::async_done}};
  for (const auto& form : forms) {
    if (!word.ends_with(form.suffix)) continue;
    const Opcode base = find_opcode(word.substr(0, word.size() - form.suffix.size()));
    if (static_cast<std::size_t>(base) == opcode_count) return false;
    opcode = form.opcode;
    wrapped = base;
    return true;
  }
  return false;
}

/// The execution thread of an asynchronous instruction, without its quotes; empty for the main one.
[[nodiscard]] constexpr std::string_view thread_of(std::string_view quoted) noexcept {
  if (quoted.size() < 2) return {};
  const std::string_view name = quoted.substr(1, quoted.size() - 2);
  return name == "main" ? std::string_view{} : name;
}

/// Writes `prefix` and a number into text that lives as long as the module.
constexpr std::string_view own_numbered(Module& m, std::string_view prefix, std::uint32_t number) {
  std::vector<char> text(prefix.begin(), prefix.end());
  char digits[10] = {};
  std::size_t at = sizeof digits;
  do digits[--at] = static_cast<char>('0' + number % 10);
  while ((number /= 10) != 0);
  text.insert(text.end(), digits + at, digits + sizeof digits);
  return m.own({text.data(), text.size()});
}

/// Makes the computation that `x-start` leaves unwritten: parameters in the order of the operands,
/// and one `x`.
///
/// The attributes of `x`, all that were read but the thread, go to it; `ins` keeps those that
/// belong to both.
constexpr bool wrap_start(TextState& st, Instruction& ins, const ScratchMarks& marks,
                          Opcode wrapped, std::vector<std::int64_t>& raw_aliases) {
  Module& m = st.module;
  const auto parts = ins.shape != no_id<ShapeId> && m.shapes.is_tuple(ins.shape)
                         ? m.shapes.children_of(ins.shape)
                         : std::span<const ShapeId>{};
  if (parts.size() < 2 || !m.shapes.is_tuple(parts[0]))
    return st.in.fail_at(ins.where, "async-start's shape has to be ((operands), result, ...)");
  const std::size_t count = st.operands.size() - marks.operands;
  if (m.shapes.children_of(parts[0]).size() != count)
    return st.in.fail_at(ins.where, "async-start's shape lists another number of operands");
  const std::vector<InstructionId> outer(
      st.operands.begin() + static_cast<std::ptrdiff_t>(marks.operands), st.operands.end());
  const std::vector<Attribute> given(
      st.attributes.begin() + static_cast<std::ptrdiff_t>(marks.attributes), st.attributes.end());
  const std::vector<InstructionId> controls(
      st.controls.begin() + static_cast<std::ptrdiff_t>(marks.controls), st.controls.end());
  const ShapeId sources = parts[0];
  const ShapeId result = parts[1];
  st.operands.resize(marks.operands);
  st.attributes.resize(marks.attributes);
  st.controls.resize(marks.controls);

  Computation made;
  made.is_async_wrapper = true;
  for (const Attribute& a : given)
    if (a.key == "async_execution_thread") made.thread = thread_of(a.value);
  std::vector<InstructionId> list;
  const auto keep = [&](Instruction& i, const ScratchMarks& at,
                        const std::vector<std::int64_t>& aliases) {
    InstructionId id{};
    if (!finish_instruction(st, i, at, id, aliases)) return false;
    st.scope().list.pop_back();
    if (i.opcode == Opcode::parameter) st.scope().parameters.pop_back();
    list.push_back(id);
    return true;
  };
  made.parameters.begin = static_cast<std::uint32_t>(m.parameter_ids.size());
  made.parameters.count = static_cast<std::uint32_t>(count);
  for (std::uint32_t k = 0; k < count; ++k) {
    Instruction p;
    p.opcode = Opcode::parameter;
    p.name = own_numbered(m, "param_", k);
    p.shape = m.shapes.children_of(sources)[k];
    p.number = k;
    p.where = ins.where;
    if (!st.same_shape(p.shape, m[outer[k]].shape, ins.where,
                       "async-start's shape lists an operand with another shape"))
      return false;
    if (!keep(p, ScratchMarks(st), {})) return false;
  }
  m.parameter_ids.insert(m.parameter_ids.end(), list.begin(), list.end());
  Instruction inner;
  inner.opcode = wrapped;
  inner.name = m.own("wrapped");
  inner.shape = result;
  inner.number = ins.number;
  inner.fusion_kind = ins.fusion_kind;
  inner.has_side_effect = ins.has_side_effect;
  inner.where = ins.where;
  st.operands.insert(st.operands.end(), list.begin(), list.end());
  for (const Attribute& a : given)
    if (a.key != "async_execution_thread") st.attributes.push_back(a);
  ScratchMarks inner_marks = marks;
  inner_marks.controls = st.controls.size();
  if (!keep(inner, inner_marks, raw_aliases)) return false;
  made.root = list.back();
  made.instructions = {static_cast<std::uint32_t>(m.instruction_ids.size()),
                       static_cast<std::uint32_t>(list.size())};
  m.instruction_ids.insert(m.instruction_ids.end(), list.begin(), list.end());

  const auto id = static_cast<ComputationId>(m.computations.size());
  m.computations.push_back(made);
  st.callers.push_back(0);
  st.unnamed.push_back(id);
  raw_aliases.clear();
  ins.number = 0;
  ins.fusion_kind = FusionKind::none;
  ins.has_side_effect = false;
  st.operands.insert(st.operands.end(), outer.begin(), outer.end());
  st.controls.insert(st.controls.end(), controls.begin(), controls.end());
  st.called.push_back(id);
  for (const Attribute& a : given)
    if (a.key == "async_execution_thread" || a.key == "metadata" || a.key == "backend_config" ||
        a.key == "frontend_attributes")
      st.attributes.push_back(a);
  return true;
}

/// Ends an async-start, -update or -done. `wrapped` is the operation of the short form, or
/// `opcode_count`.
constexpr bool finish_async(TextState& st, Instruction& ins, const ScratchMarks& marks,
                            Opcode wrapped, InstructionId& id,
                            std::vector<std::int64_t>& raw_aliases) {
  Module& m = st.module;
  const bool is_short = static_cast<std::size_t>(wrapped) != opcode_count;
  if (ins.opcode == Opcode::async_start) {
    if (is_short && !wrap_start(st, ins, marks, wrapped, raw_aliases)) return false;
    return finish_instruction(st, ins, marks, id, raw_aliases);
  }
  if (st.operands.size() - marks.operands != 1)
    return st.in.fail_at(ins.where, "async-update and async-done take one operand");
  const Instruction start = m[st.operands.back()];
  if (start.opcode != Opcode::async_start && start.opcode != Opcode::async_update)
    return st.in.fail_at(ins.where,
                         "async-update and async-done have to take an async-start or async-update");
  const ComputationId callee = m.called(start)[0];
  if (is_short && m[m[callee].root].opcode != wrapped)
    return st.in.fail_at(ins.where, "the start wraps another operation");
  if (st.called.size() > marks.called &&
      (st.called.size() - marks.called != 1 || st.called.back() != callee))
    return st.in.fail_at(ins.where, "the start calls another computation");
  for (std::size_t k = marks.attributes; k < st.attributes.size(); ++k) {
    if (st.attributes[k].key != "async_execution_thread") continue;
    const std::string_view stated = m.attribute(start, "async_execution_thread");
    if (thread_of(st.attributes[k].value) !=
        (stated.empty() ? m[callee].thread : thread_of(stated)))
      return st.in.fail_at(ins.where, "the start runs on another thread");
  }
  st.called.resize(marks.called);
  st.called.push_back(callee);
  return finish_instruction(st, ins, marks, id, raw_aliases);
}

}  // namespace holdfast::detail
