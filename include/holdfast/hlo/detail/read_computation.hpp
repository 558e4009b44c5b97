// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/hlo/detail/read_instruction.hpp"
#include "holdfast/hlo/detail/text_state.hpp"

namespace holdfast::detail {

constexpr void open_scope(TextState& st) {
  if (st.open_scopes == st.scopes.size())
    st.scopes.emplace_back(st.in.text_at(0, st.in.offset() + st.in.remaining()));
  TextScope& scope = st.scopes[st.open_scopes++];
  scope.names.clear();
  scope.list.clear();
  scope.parameters.clear();
  scope.unnamed.clear();
  scope.root = no_id<InstructionId>;
  scope.implicit_parameters = false;
}

/// Gives nested operands names that no other instruction of the computation has.
constexpr void name_nested(TextState& st) {
  const TextScope& scope = st.scope();
  std::uint32_t number = 0;
  std::vector<char> prefix;
  for (const InstructionId id : scope.unnamed) {
    const std::string_view word = st.module.opcode_word_of(st.module[id]);
    prefix.assign(word.begin(), word.end());
    prefix.push_back('.');
    std::string_view name;
    do name = own_numbered(st.module, {prefix.data(), prefix.size()}, ++number);
    while (scope.names.find(name) != NameTable::none);
    st.module[id].name = name;
  }
}

/// Numbers the parameters: 0 to n-1, each once.
constexpr bool place_parameters(TextState& st, Computation& c) {
  Module& m = st.module;
  c.parameters.begin = static_cast<std::uint32_t>(m.parameter_ids.size());
  const auto count = static_cast<std::uint32_t>(st.scope().parameters.size());
  c.parameters.count = count;
  st.make_room(m.parameter_ids, count);
  m.parameter_ids.resize(c.parameters.begin + count, no_id<InstructionId>);
  for (const InstructionId id : st.scope().parameters) {
    const Instruction& p = m[id];
    if (p.number >= count)
      return st.in.fail_at(p.where, "parameter numbers have to be 0 to n-1 without a gap");
    InstructionId& to = m.parameter_ids[c.parameters.begin + p.number];
    if (to != no_id<InstructionId>)
      return st.in.fail_at(p.where, "parameter number is given twice");
    to = id;
  }
  return true;
}

/// Ends the computation of the innermost scope; `out` is its id.
constexpr bool close_scope(TextState& st, Computation& c, std::size_t from, ComputationId& out) {
  Module& m = st.module;
  TextScope& scope = st.scope();
  if (scope.list.empty()) return st.in.fail_at(from, "computation has no instruction");
  c.root = scope.root != no_id<InstructionId> ? scope.root : scope.list.back();
  if (!place_parameters(st, c)) return false;
  name_nested(st);
  out = static_cast<ComputationId>(m.computations.size());
  // Computations that were made inside this one have taken numbers meanwhile.
  if (m[scope.list.front()].computation != out)
    for (const InstructionId id : scope.list) m[id].computation = out;
  c.instructions = {static_cast<std::uint32_t>(m.instruction_ids.size()),
                    static_cast<std::uint32_t>(scope.list.size())};
  st.make_room(m.instruction_ids, scope.list.size());
  m.instruction_ids.insert(m.instruction_ids.end(), scope.list.begin(), scope.list.end());
  st.make_room(m.computations);
  m.computations.push_back(c);
  st.callers.push_back(0);
  --st.open_scopes;
  return true;
}

/// Reads instructions up to the closing brace, and the thread behind it; `{` was taken.
constexpr bool read_body(TextState& st, Computation& c, std::size_t from, ComputationId& out) {
  Lexer& in = st.in;
  open_scope(st);
  for (;;) {
    in.skip_space();
    if (in.take('}')) break;
    if (in.at_end()) return in.fail("computation is not closed");
    if (!read_instruction(st)) return false;
  }
  return close_scope(st, c, from, out);
}

constexpr bool read_inline_computation(TextState& st, ComputationId& out) {
  if (st.in.too_deep(++st.depth)) return false;
  const std::size_t from = st.in.offset();
  st.in.skip(1);
  Computation c;
  if (!read_body(st, c, from, out)) return false;
  st.unnamed.push_back(out);
  --st.depth;
  return true;
}

/// Reads `(name: shape, ...) -> shape`; only the result matters.
constexpr bool read_signature(TextState& st, ShapeId& result) {
  Lexer& in = st.in;
  in.skip(1);
  in.skip_space();
  if (!in.take(')'))
    for (;;) {
      in.take('%');
      if (in.word().empty()) return in.fail("expected the name of a parameter");
      in.take(':');
      in.skip_space();
      ShapeId shape{};
      if (!st.shapes.shape(shape)) return false;
      in.skip_space();
      if (in.take(')')) break;
      if (!in.take(',')) return in.fail("expected , or ) in a signature");
      in.skip_space();
    }
  in.skip_space();
  if (!in.take("->")) return in.fail("expected -> after the parameters of a signature");
  in.skip_space();
  return st.shapes.shape(result);
}

/// Reads `[ENTRY] name [signature] { instructions } [, execution_thread="x"]`.
constexpr bool read_computation(TextState& st, bool& is_entry) {
  Lexer& in = st.in;
  is_entry = in.peek_word() == "ENTRY";
  if (is_entry) {
    in.skip(5);
    in.skip_space();
  }
  Computation c;
  const std::size_t from = in.offset();
  if (!st.name(c.name, "expected a computation")) return false;
  in.skip_space();
  ShapeId result = no_id<ShapeId>;
  const std::size_t signature_from = in.offset();
  if (in.peek() == '(' && !read_signature(st, result)) return false;
  if (!in.expect('{', "expected { before the instructions of a computation")) return false;
  ComputationId id{};
  if (!read_body(st, c, from, id)) return false;
  if (result != no_id<ShapeId> && !st.same_shape(result, st.module[c.root].shape, signature_from,
                                                 "signature gives another shape than the root"))
    return false;
  if (st.computations.insert(c.name, index_of(id)) != NameTable::none)
    return in.fail_at(from, "computation is defined twice");
  in.skip_space();
  if (!in.take(',')) return true;
  in.skip_space();
  if (!in.take("execution_thread="))
    return in.fail("expected execution_thread= after a computation");
  in.skip_space();
  const std::size_t thread_from = in.offset();
  if (!in.quoted()) return false;
  st.module[id].thread = thread_of(in.since(thread_from));
  return true;
}

/// Reads one instruction that stands alone: it becomes an entry computation, its unknown operands
/// parameters.
constexpr bool read_single_instruction(TextState& st) {
  Lexer& in = st.in;
  const std::size_t from = in.offset();
  open_scope(st);
  st.scope().implicit_parameters = true;
  {
    Lexer ahead = in;
    if (ahead.peek_word() == "ROOT") ahead.skip(4), ahead.skip_space();
    ahead.take('%');
    const bool named = !ahead.word().empty() && (ahead.skip_space(), ahead.peek() == '=');
    if (named) {
      if (!read_instruction(st)) return false;
    } else {
      if (in.peek_word() == "ROOT") in.skip(4);
      Instruction ins;
      ins.where = static_cast<std::uint32_t>(from);
      if (!read_definition(st, ins, true)) return false;
    }
  }
  in.skip_space();
  if (!in.at_end()) return in.fail("expected nothing after a single instruction");
  Computation c;
  c.name = "entry";
  ComputationId id{};
  return close_scope(st, c, from, id);
}

}  // namespace holdfast::detail
