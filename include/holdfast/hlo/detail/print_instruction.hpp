// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "holdfast/graph/module.hpp"
#include "holdfast/hlo/detail/attribute_words.hpp"
#include "holdfast/hlo/detail/shape_text.hpp"
#include "holdfast/hlo/detail/text_builder.hpp"
#include "holdfast/hlo/print_options.hpp"

namespace holdfast::detail {

/// Writes instructions, one a line.
class InstructionPrinter {
 public:
  constexpr InstructionPrinter(const Module& module, TextBuilder& out, const PrintOptions& options)
      : m_(module), out_(out), options_(options), inside_(module.computations.size(), 0) {
    for (const Instruction& i : m_.instructions)
      if (i.opcode == Opcode::async_start && i.called.count == 1) {
        std::uint8_t& state = inside_[index_of(m_.called(i)[0])];
        state = state == 0 && is_short(i) ? 1 : 2;
      }
  }

  /// Tells whether a computation is written as part of its `x-start`.
  [[nodiscard]] constexpr bool is_written_inside(ComputationId id) const noexcept {
    return inside_[index_of(id)] == 1;
  }

  constexpr void name(std::string_view text) {
    if (options_.percent || is_keyword(text)) out_.put('%');
    out_.put(text);
  }

  constexpr void instruction(InstructionId id, bool is_root) {
    const Instruction& i = m_[id];
    out_.put(is_root ? "  ROOT " : "  ");
    name(i.name), out_.put(" = ");
    put_shape(out_, m_.shapes, i.shape);
    out_.put(' ');
    const bool async = i.opcode == Opcode::async_start || i.opcode == Opcode::async_update ||
                       i.opcode == Opcode::async_done;
    const bool is_inside = async && i.called.count == 1 && is_written_inside(m_.called(i)[0]);
    const Instruction& shown = is_inside ? m_[m_[m_.called(i)[0]].root] : i;
    out_.put(m_.opcode_word_of(shown));
    if (is_inside)
      out_.put(i.opcode == Opcode::async_start    ? "-start"
               : i.opcode == Opcode::async_update ? "-update"
                                                  : "-done");
    out_.put('('), arguments(i), out_.put(')');
    const bool start = i.opcode == Opcode::async_start;
    attributes(is_inside && start ? shown : i, i);
    out_.put('\n');
  }

 private:
  // The computation holds parameters in the order of the operands, and one more; both carry the
  // same common attributes.
  constexpr bool is_short(const Instruction& start) const noexcept {
    const ComputationId id = m_.called(start)[0];
    const Computation& c = m_[id];
    if (!c.is_async_wrapper || c.instructions.count != start.operands.count + 1) return false;
    const auto parameters = m_.parameters_of(id);
    const Instruction& inner = m_[c.root];
    if (inner.opcode == Opcode::parameter || start.aliases.count != 0 || inner.controls.count != 0)
      return false;
    const auto used = m_.operands(inner);
    if (parameters.size() != start.operands.count || used.size() != parameters.size()) return false;
    for (std::size_t k = 0; k < used.size(); ++k)
      if (used[k] != parameters[k] || m_[used[k]].attributes.count != 0) return false;
    for (const std::string_view key :
         {std::string_view("metadata"), std::string_view("backend_config"),
          std::string_view("frontend_attributes")})
      if (m_.attribute(start, key) != m_.attribute(inner, key)) return false;
    for (const Attribute& a : m_.attributes_of(start))
      if (a.key != "async_execution_thread" && m_.attribute(inner, a.key) != a.value) return false;
    return true;
  }

  constexpr void arguments(const Instruction& i) {
    if (i.opcode == Opcode::parameter) return out_.number(i.number);
    if (i.opcode == Opcode::constant) return literal(i);
    const auto operands = m_.operands(i);
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (k != 0) out_.put(", ");
      if (k != 0 && k % 5 == 0)
        out_.put("/*index="), out_.number(static_cast<std::int64_t>(k)), out_.put("*/");
      if (options_.operand_shapes) put_shape(out_, m_.shapes, m_[operands[k]].shape), out_.put(' ');
      name(m_[operands[k]].name);
    }
  }
  constexpr void literal(const Instruction& i) {
    if (options_.elide_above >= 0 && is_array(m_.shapes[i.shape].type)) {
      std::int64_t count = 1;
      for (const std::int64_t d : m_.shapes.dimensions(i.shape))
        if (d < 0 || !checked_multiply(count, d, count)) count = max_bytes;
      if (count > options_.elide_above) return out_.put("{...}");
    }
    out_.put(m_.attribute(i, {}));
  }

  constexpr void attribute(std::string_view key) { out_.put(", "), out_.put(key), out_.put('='); }
  constexpr void attribute(std::string_view key, std::string_view value) {
    attribute(key), out_.put(value);
  }
  constexpr void callee(std::string_view key, ComputationId id) {
    attribute(key), name(m_[id].name);
  }

  // `i` says what is done; `outer`, the same but for an `x-start`, when.
  constexpr void attributes(const Instruction& i, const Instruction& outer) {
    if (i.fusion_kind != FusionKind::none) {
      constexpr std::string_view kinds[] = {"", "kLoop", "kInput", "kOutput", "kCustom"};
      attribute("kind", kinds[static_cast<std::size_t>(i.fusion_kind)]);
    }
    if (i.opcode == Opcode::get_tuple_element) attribute("index"), out_.number(i.number);
    for (const Attribute& a : m_.attributes_of(i))
      if (!a.key.empty() && rank_of(a.key) == 0) attribute(a.key, a.value);
    if (&i != &outer)
      if (const std::string_view thread = m_.attribute(outer, "async_execution_thread");
          !thread.empty())
        attribute("async_execution_thread", thread);
    if (i.has_side_effect) attribute("custom_call_has_side_effect", "true");
    aliases(i);
    with_rank(i, -1);
    if (i.called.count != 0) called(i);
    with_rank(i, 1);
    if (outer.controls.count != 0) {
      attribute("control-predecessors"), out_.put('{');
      const auto controls = m_.controls(outer);
      for (std::size_t k = 0; k < controls.size(); ++k) {
        if (k != 0) out_.put(", ");
        name(m_[controls[k]].name);
      }
      out_.put('}');
    }
    for (int rank = 2; rank <= 4; ++rank) with_rank(i, rank);
  }
  // Where an attribute stands, as XLA has it: 0 first, -1 behind the aliases, 0 and -1 before the
  // called computations, the others behind them.
  static constexpr int rank_of(std::string_view key) noexcept {
    return key == "api_version" || key == "schedule" ? -1
           : key == "sharding"                       ? 1
           : key == "frontend_attributes"            ? 2
           : key == "metadata"                       ? 3
           : key == "backend_config"                 ? 4
                                                     : 0;
  }
  constexpr void with_rank(const Instruction& i, int rank) {
    for (const Attribute& a : m_.attributes_of(i))
      if (rank_of(a.key) == rank) attribute(a.key, a.value);
  }
  constexpr void aliases(const Instruction& i) {
    if (i.aliases.count == 0) return;
    attribute("output_to_operand_aliasing"), out_.put('{');
    bool first = true;
    for (const OperandAlias& a : m_.aliases(i)) {
      if (!first) out_.put(", ");
      first = false;
      index(i.shape, a.output_node);
      out_.put(": ("), out_.number(a.operand), out_.put(", ");
      index(m_[m_.operands(i)[a.operand]].shape, a.operand_node);
      out_.put(')');
    }
    out_.put('}');
  }
  constexpr void index(ShapeId shape, std::uint32_t node) {
    path_.clear();
    m_.shapes.path_of_node(shape, node, path_);
    out_.braced(path_);
  }
  constexpr void called(const Instruction& i) {
    const auto ids = m_.called(i);
    switch (i.opcode) {
      case Opcode::async_update:
      case Opcode::async_done:
        return;
      case Opcode::while_:
        return callee("condition", ids[1]), callee("body", ids[0]);
      case Opcode::select_and_scatter:
        return callee("select", ids[0]), callee("scatter", ids[1]);
      case Opcode::fusion:
      case Opcode::async_start:
        return callee("calls", ids[0]);
      case Opcode::conditional:
        if (m_.shapes[m_[m_.operands(i)[0]].shape].type == ElementType::pred)
          return callee("true_computation", ids[0]), callee("false_computation", ids[1]);
        return list("branch_computations", ids);
      case Opcode::custom_call:
        return list("called_computations", ids);
      default:
        return ids.size() == 1 ? callee("to_apply", ids[0]) : list("called_computations", ids);
    }
  }
  constexpr void list(std::string_view key, std::span<const ComputationId> ids) {
    attribute(key), out_.put('{');
    for (std::size_t k = 0; k < ids.size(); ++k) {
      if (k != 0) out_.put(", ");
      name(m_[ids[k]].name);
    }
    out_.put('}');
  }

  const Module& m_;
  TextBuilder& out_;
  const PrintOptions& options_;
  std::vector<std::uint8_t> inside_;  // by computation: 1 when every caller writes it inside itself
  std::vector<std::int64_t> path_;
};

}  // namespace holdfast::detail
