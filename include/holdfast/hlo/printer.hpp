// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "holdfast/concepts/sink.hpp"
#include "holdfast/graph/module.hpp"
#include "holdfast/graph/traversal.hpp"
#include "holdfast/hlo/detail/print_instruction.hpp"
#include "holdfast/hlo/detail/text_builder.hpp"
#include "holdfast/hlo/print_options.hpp"

namespace holdfast {

namespace detail {

/// Writes a module piece by piece, so that its text never has to be held as a whole.
template <sink S>
class ModulePrinter {
 public:
  constexpr ModulePrinter(const Module& module, S& out, const PrintOptions& options)
      : m_(module), sink_(out), options_(options), lines_(module, text_, options) {}

  constexpr Error print() {
    header();
    InstructionPostOrder post_order(m_);
    for (std::uint32_t c = 0; c < m_.computations.size(); ++c)
      if (static_cast<ComputationId>(c) != m_.entry || is_called(m_.entry))
        computation(static_cast<ComputationId>(c), post_order);
    if (!m_.computations.empty() && !is_called(m_.entry)) computation(m_.entry, post_order);
    flush();
    return failure_;
  }

 private:
  constexpr void flush() {
    if (failure_.ok() && !text_.text.empty()) failure_ = sink_.write(text_.view());
    text_.clear();
  }
  constexpr bool is_called(ComputationId id) const noexcept {
    for (const ComputationId called : m_.called_ids)
      if (called == id) return true;
    return false;
  }
  constexpr void index(ShapeId shape, std::uint32_t node) {
    path_.clear();
    m_.shapes.path_of_node(shape, node, path_);
    text_.braced(path_);
  }
  constexpr ShapeId parameter_shape(std::uint32_t number) const noexcept {
    return m_[m_.parameters_of(m_.entry)[number]].shape;
  }
  constexpr void kept(std::string_view key) {
    for (const Attribute& a : m_.header_attributes)
      if (a.key == key) text_.put(", "), text_.put(key), text_.put('='), text_.put(a.value);
  }

  constexpr void header() {
    text_.put("HloModule "), text_.put(m_.name);
    if (m_.is_scheduled) text_.put(", is_scheduled=true");
    if (!m_.parameter_aliases.empty()) {
      text_.put(", input_output_alias={ ");
      for (std::size_t i = 0; i < m_.parameter_aliases.size(); ++i) {
        const ParameterAlias& a = m_.parameter_aliases[i];
        if (i != 0) text_.put(", ");
        index(m_[m_[m_.entry].root].shape, a.output_node);
        text_.put(": ("), text_.number(a.parameter), text_.put(", ");
        index(parameter_shape(a.parameter), a.parameter_node);
        text_.put(a.must ? ", must-alias)" : ", may-alias)");
      }
      text_.put(" }");
    }
    if (!m_.donors.empty()) {
      text_.put(", buffer_donor={ ");
      for (std::size_t i = 0; i < m_.donors.size(); ++i) {
        text_.put(i != 0 ? ", (" : "("), text_.number(m_.donors[i].parameter), text_.put(", ");
        index(parameter_shape(m_.donors[i].parameter), m_.donors[i].parameter_node);
        text_.put(')');
      }
      text_.put(" }");
    }
    constexpr std::string_view before[] = {"alias_passthrough_params", "entry_computation_layout",
                                           "allow_spmd_sharding_propagation_to_parameters",
                                           "allow_spmd_sharding_propagation_to_output"};
    for (const std::string_view key : before) kept(key);
    if (m_.replica_count != 1) text_.put(", replica_count="), text_.number(m_.replica_count);
    if (m_.num_partitions != 1) text_.put(", num_partitions="), text_.number(m_.num_partitions);
    kept("frontend_attributes");
    for (const Attribute& a : m_.header_attributes) {
      bool written = a.key == "frontend_attributes";
      for (const std::string_view key : before) written = written || a.key == key;
      if (!written) text_.put(", "), text_.put(a.key), text_.put('='), text_.put(a.value);
    }
    text_.put("\n\n");
    if (!m_.frame_index.empty()) text_.put(m_.frame_index), text_.put("\n\n\n");
  }

  constexpr void computation(ComputationId id, InstructionPostOrder& post_order) {
    if (lines_.is_written_inside(id)) return;
    const Computation& c = m_[id];
    if (id == m_.entry) text_.put("ENTRY ");
    lines_.name(c.name);
    if (options_.signature) {
      text_.put(" (");
      const auto parameters = m_.parameters_of(id);
      for (std::size_t k = 0; k < parameters.size(); ++k) {
        if (k != 0) text_.put(", ");
        // Without %: the colon makes it a name, whatever the word.
        text_.put(m_[parameters[k]].name), text_.put(": ");
        put_shape(text_, m_.shapes, m_[parameters[k]].shape, false);
      }
      text_.put(") -> ");
      put_shape(text_, m_.shapes, m_[c.root].shape, false);
    }
    text_.put(" {\n");
    const auto order = m_.is_scheduled ? m_.instructions_of(id) : post_order(id);
    for (const InstructionId i : order) {
      lines_.instruction(i, i == c.root);
      if (text_.text.size() > most_held) flush();
    }
    text_.put('}');
    if (!c.thread.empty()) {
      // As written between its quotes; a bare " in it says that those were '.
      bool single = false;
      for (std::size_t i = 0; i < c.thread.size(); ++i) {
        if (c.thread[i] == '\\')
          ++i;
        else
          single = single || c.thread[i] == '"';
      }
      const char quote = single ? '\'' : '"';
      text_.put(", execution_thread="), text_.put(quote), text_.put(c.thread), text_.put(quote);
    }
    text_.put("\n\n");
  }

  static constexpr std::size_t most_held = 1 << 15;
  const Module& m_;
  S& sink_;
  PrintOptions options_;
  TextBuilder text_;
  InstructionPrinter lines_;
  std::vector<std::int64_t> path_;
  Error failure_;
};

}  // namespace detail

/// Writes a module as HLO text that XLA reads: schedule order when scheduled, else post-order.
///
/// Errors: the first failure of the sink. Cost: linear. Source: hlo-format.md G.
template <sink S>
constexpr Error print_hlo_text(const Module& module, S& out, const PrintOptions& options = {}) {
  return detail::ModulePrinter<S>(module, out, options).print();
}

}  // namespace holdfast
