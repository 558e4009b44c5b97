// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/hlo/detail/async_sugar.hpp"
#include "holdfast/hlo/detail/finish_instruction.hpp"
#include "holdfast/hlo/detail/literal_text.hpp"
#include "holdfast/hlo/detail/read_attributes.hpp"
#include "holdfast/hlo/detail/text_state.hpp"

namespace holdfast::detail {

constexpr bool read_arguments(TextState& st, Instruction& ins);

/// Reads a shape if one comes next, then the word of the operation; its `(` is taken too.
constexpr bool read_shape_and_word(TextState& st, ShapeId& shape, std::string_view& word) {
  Lexer& in = st.in;
  if (!st.shapes.known_shape(shape)) {
    const std::size_t from = in.offset();
    if (in.peek() != '(') {
      word = in.word();
      if (word.empty()) return in.fail("expected a shape or an operation");
      in.skip_space();
      if (in.take('(') && word != "b") return true;
      in.seek(from);
    }
    if (!st.shapes.shape(shape)) return false;
  }
  in.skip_space();
  word = in.word();
  if (word.empty()) return in.fail("expected an operation");
  return in.take('(') || in.expect('(', "expected ( after an operation");
}

/// How many different words of unknown operations a text may hold: `Opcode` has 16 bits.
inline constexpr std::size_t most_unknown_operations = 60000;

/// Finds the operation of a word; one that nobody knows is kept as a word.
constexpr bool find_operation(TextState& st, std::string_view word, Instruction& ins,
                              Opcode& wrapped) {
  ins.opcode = find_opcode(word);
  if (static_cast<std::size_t>(ins.opcode) != opcode_count) return true;
  if (split_async_word(word, ins.opcode, wrapped)) return true;
  const auto at = static_cast<std::size_t>(word.data() - st.in.text_at(0, 0).data());
  if (st.options.strict) return st.in.fail_at(at, "unknown operation");
  std::vector<std::string_view>& words = st.module.opcode_words;
  std::size_t n = st.operations.insert(word, static_cast<std::uint32_t>(words.size()));
  if (n == NameTable::none) {
    n = words.size();
    if (n == most_unknown_operations)
      return st.in.fail_at(at, "too many different unknown operations", Errc::over_budget);
    words.push_back(word);
    st.warnings.add(at, "unknown operation", word);
  }
  ins.opcode = static_cast<Opcode>(opcode_count + n);
  return true;
}

/// An operand that stands in a single instruction without a computation: it becomes a parameter.
constexpr bool add_implicit_parameter(TextState& st, std::string_view name, ShapeId shape,
                                      std::size_t from) {
  Instruction p;
  p.name = name;
  p.shape = shape;
  p.opcode = Opcode::parameter;
  p.where = static_cast<std::uint32_t>(from);
  p.number = st.scope().implicit_count++;
  InstructionId id{};
  if (!finish_instruction(st, p, ScratchMarks(st), id)) return false;
  st.scope().names.insert(name, index_of(id));
  st.operands.push_back(id);
  return true;
}

/// Reads `[shape] name` or a nested operation; pushes its id.
constexpr bool read_operand(TextState& st) {
  Lexer& in = st.in;
  const std::size_t start = in.offset();
  ShapeId shape = no_id<ShapeId>;
  std::string_view name;
  std::size_t from = start;
  if (in.peek() != '%') {
    if (in.peek() == '(') {
      if (!st.shapes.shape(shape)) return false;
      in.skip_space();
    } else {
      name = in.word();
      if (name.empty()) return in.fail("expected an operand");
      in.skip_space();
      if (in.peek() == '[' || (in.peek() == '(' && name == "b")) {
        in.seek(start);
        if (!st.shapes.shape(shape)) return false;
        in.skip_space();
        name = {};
      }
    }
    if (name.empty()) {
      from = in.offset();
      if (in.peek() != '%') {
        name = in.word();
        if (name.empty()) return in.fail("expected the name of an operand");
        in.skip_space();
      }
    }
    if (!name.empty() && in.take('(')) {
      if (st.in.too_deep(++st.depth)) return false;
      Instruction ins;
      Opcode wrapped{};
      ins.shape = shape;
      ins.where = static_cast<std::uint32_t>(start);
      const ScratchMarks marks(st);
      if (!find_operation(st, name, ins, wrapped)) return false;
      if (ins.opcode == Opcode::async_start || ins.opcode == Opcode::async_update ||
          ins.opcode == Opcode::async_done)
        return in.fail_at(from, "an asynchronous operation cannot be nested");
      InstructionId id{};
      if (!read_arguments(st, ins) || !finish_instruction(st, ins, marks, id)) return false;
      st.scope().unnamed.push_back(id);
      st.operands.push_back(id);
      --st.depth;
      return true;
    }
  }
  if (name.empty()) {
    in.take('%');
    if (!in.percent_name(name)) return false;
  }
  const std::uint32_t number = st.scope().names.find(name);
  if (number == NameTable::none) {
    if (st.scope().implicit_parameters && shape != no_id<ShapeId>)
      return add_implicit_parameter(st, name, shape, from);
    return in.fail_at(from, "operand is not defined before its use");
  }
  const auto id = static_cast<InstructionId>(number);
  st.operands.push_back(id);
  return shape == no_id<ShapeId> ||
         st.same_shape(shape, st.module[id].shape, start, "operand has another shape than written");
}

/// Reads the literal of a constant without looking at its values, and leaves its text as an
/// attribute without a key.
constexpr bool read_literal(TextState& st, const Instruction& ins) {
  Lexer& in = st.in;
  if (ins.shape == no_id<ShapeId>)
    return in.fail_at(ins.where, "the result shape has to be written for this operation");
  const std::size_t open = in.offset() - 1;
  in.skip_space();
  const std::size_t from = in.offset();
  in.seek(open);
  if (!in.group()) return false;
  std::string_view text = in.text_at(from, in.offset() - from - 1);
  while (!text.empty() && (hlo_chars[static_cast<unsigned char>(text.back())] & is_space) != 0)
    text.remove_suffix(1);
  if (text.empty()) return in.fail_at(from, "constant has no value");
  if (const char* wrong = check_literal(text, st.module.shapes, ins.shape); wrong != nullptr)
    return in.fail_at(from, wrong);
  st.attributes.push_back({{}, text});
  return true;
}

/// Reads what stands between the parentheses of an operation, and the closing one.
constexpr bool read_arguments(TextState& st, Instruction& ins) {
  Lexer& in = st.in;
  if (ins.opcode == Opcode::constant) return read_literal(st, ins);
  in.skip_space();
  if (ins.opcode == Opcode::parameter)
    return in.index(ins.number) && in.expect(')', "expected ) after a parameter's number");
  if (in.take(')')) return true;
  for (;;) {
    if (!read_operand(st)) return false;
    in.skip_space();
    if (in.take(','))
      in.skip_space();
    else
      return in.take(')') || in.fail("expected , or ) in the operands");
  }
}

/// Puts the callees in their order: body before condition, true before false.
constexpr bool order_called(TextState& st, const AttributeParts& parts, std::size_t mark,
                            std::size_t at) {
  const auto both = [&](ComputationId a, ComputationId b, const char* what) {
    if (a == no_id<ComputationId> && b == no_id<ComputationId>) return true;
    if (a == no_id<ComputationId> || b == no_id<ComputationId> || st.called.size() != mark)
      return st.in.fail_at(at, what);
    st.called.push_back(a);
    st.called.push_back(b);
    return true;
  };
  return both(parts.body, parts.condition, "while needs condition= and body=") &&
         both(parts.on_true, parts.on_false,
              "conditional needs both true_computation= and false_computation=") &&
         both(parts.select, parts.scatter, "select= and scatter= are needed");
}

/// Reads the right side of an instruction and defines its name.
constexpr bool read_definition(TextState& st, Instruction& ins, bool is_root) {
  Lexer& in = st.in;
  in.skip_space();
  ins.shape = no_id<ShapeId>;
  std::string_view word;
  Opcode wrapped = static_cast<Opcode>(opcode_count);
  if (!read_shape_and_word(st, ins.shape, word) || !find_operation(st, word, ins, wrapped))
    return false;
  const ScratchMarks marks(st);
  AttributeParts parts;
  std::vector<std::int64_t> raw_aliases;
  const bool is_short = static_cast<std::size_t>(wrapped) != opcode_count;
  if (!read_arguments(st, ins) ||
      !read_attributes(st, ins, is_short ? wrapped : ins.opcode, parts, raw_aliases))
    return false;
  if (parts.any && !order_called(st, parts, marks.called, ins.where)) return false;
  if ((is_short ? wrapped : ins.opcode) == Opcode::get_tuple_element && !parts.has_number)
    return in.fail_at(ins.where, "get-tuple-element needs index=");
  InstructionId id{};
  if (ins.opcode == Opcode::async_start || ins.opcode == Opcode::async_update ||
      ins.opcode == Opcode::async_done) {
    if (!finish_async(st, ins, marks, wrapped, id, raw_aliases)) return false;
  } else if (!finish_instruction(st, ins, marks, id, raw_aliases)) {
    return false;
  }
  TextScope& scope = st.scope();
  if (ins.name.empty())
    scope.unnamed.push_back(id);
  else if (scope.names.insert(ins.name, index_of(id)) != NameTable::none)
    return in.fail_at(ins.where, "instruction's name is defined twice");
  if (is_root) {
    if (scope.root != no_id<InstructionId>)
      return in.fail_at(ins.where, "computation has two ROOTs");
    scope.root = id;
  }
  return true;
}

/// Reads `[ROOT] name = [shape] operation(operands), attributes`.
constexpr bool read_instruction(TextState& st) {
  Lexer& in = st.in;
  Instruction ins;
  bool is_root = false;
  std::size_t from = in.offset();
  if (in.peek() != '%' && in.peek_word() == "ROOT") {
    is_root = true;
    in.skip(4);
    in.skip_space();
    from = in.offset();
  }
  const bool bare = in.peek() != '%';
  if (!st.name(ins.name, "expected an instruction or }")) return false;
  if (bare && (in.peek() == '=' || in.peek() == ':'))
    return in.fail_at(from, "a space has to stand between a name without % and =");
  st.scope().names.prepare(ins.name);
  ins.where = static_cast<std::uint32_t>(from);
  if (!in.expect('=', "expected = after an instruction's name")) return false;
  return read_definition(st, ins, is_root);
}

}  // namespace holdfast::detail
