// SPDX-License-Identifier: Apache-2.0
// Compares two modules by what they say, not by their numbers: the first difference as a sentence.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/graph/module.hpp"
#include "holdfast/hlo/detail/shape_text.hpp"

namespace holdfast::testing {

namespace detail {

inline std::string text_of(const Module& m, ShapeId id) {
  holdfast::detail::TextBuilder text;
  put_shape(text, m.shapes, id);
  return std::string(text.view());
}
// The short form of an async-start writes three attributes once, for itself and for what it wraps.
inline std::vector<std::pair<std::string, std::string>> sorted(
    std::span<const Attribute> attributes, bool wrapped) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const Attribute& a : attributes)
    if (!wrapped ||
        (a.key != "metadata" && a.key != "backend_config" && a.key != "frontend_attributes"))
      out.emplace_back(a.key, a.value);
  std::sort(out.begin(), out.end());
  return out;
}
inline std::string shown(const std::vector<std::pair<std::string, std::string>>& attributes) {
  std::string out;
  for (const auto& [key, value] : attributes) out += ", " + key + "=" + value;
  return out;
}
template <class Id>
std::string names_of(const Module& m, std::span<const Id> ids) {
  std::string out;
  for (const Id id : ids) out += std::string(m[id].name) + " ";
  return out;
}

}  // namespace detail

/// The first difference of two modules; empty when they say the same. Computations may stand in
/// another order, and what the short form of an async-start leaves unnamed is compared without its
/// names.
inline std::string difference(const Module& a, const Module& b) {
  using namespace detail;
  const auto differ = [](std::string_view what, std::string_view x, std::string_view y) {
    return std::string(what) + ": '" + std::string(x) + "' against '" + std::string(y) + "'";
  };
  const auto same_tables = [&] {
    return std::ranges::equal(a.parameter_aliases, b.parameter_aliases,
                              [](const ParameterAlias& x, const ParameterAlias& y) {
                                return x.output_node == y.output_node &&
                                       x.parameter == y.parameter &&
                                       x.parameter_node == y.parameter_node && x.must == y.must;
                              }) &&
           std::ranges::equal(a.donors, b.donors, [](const BufferDonor& x, const BufferDonor& y) {
             return x.parameter == y.parameter && x.parameter_node == y.parameter_node;
           });
  };
  if (a.name != b.name) return differ("module", a.name, b.name);
  if (a.is_scheduled != b.is_scheduled) return "one is scheduled, the other not";
  if (!same_tables()) return "alias or donor tables differ";
  if (a.computations.size() != b.computations.size()) return "number of computations differs";
  if (a.frame_index != b.frame_index) return differ("frame index", a.frame_index, b.frame_index);

  // Wrappers are paired through the instructions that call them.
  std::map<std::string, ComputationId> by_name;
  for (std::uint32_t c = 0; c < b.computations.size(); ++c)
    by_name[std::string(b.computations[c].name)] = static_cast<ComputationId>(c);
  std::vector<ComputationId> pair(a.computations.size(), no_id<ComputationId>);
  for (std::uint32_t c = 0; c < a.computations.size(); ++c)
    if (const auto at = by_name.find(std::string(a.computations[c].name)); at != by_name.end())
      pair[c] = at->second;
  if (pair[index_of(a.entry)] != b.entry) return differ("entry", a[a.entry].name, b[b.entry].name);

  for (std::uint32_t n = static_cast<std::uint32_t>(a.computations.size());
       n-- > 0;) {  // callers first
    const auto ca = static_cast<ComputationId>(n);
    const ComputationId cb = pair[n];
    const std::string where = "in " + std::string(a[ca].name);
    if (cb == no_id<ComputationId>) return "no computation " + std::string(a[ca].name);
    if (a[ca].is_fusion != b[cb].is_fusion || a[ca].is_async_wrapper != b[cb].is_async_wrapper ||
        a[ca].thread != b[cb].thread)
      return where + ": kind or thread differs";
    const auto ia = a.instructions_of(ca);
    const auto ib = b.instructions_of(cb);
    if (ia.size() != ib.size()) return where + ": number of instructions differs";
    std::map<InstructionId, InstructionId> partner;
    const bool wrapper = a[ca].is_async_wrapper;
    for (std::size_t k = 0; k < ia.size(); ++k) partner[ia[k]] = ib[k];
    if (wrapper) {  // the short form says nothing about the parameters, nor where they stand
      partner.clear();
      if (a.parameters_of(ca).size() != b.parameters_of(cb).size())
        return where + ": number of parameters differs";
      for (std::size_t k = 0; k < a.parameters_of(ca).size(); ++k)
        partner[a.parameters_of(ca)[k]] = b.parameters_of(cb)[k];
      partner[a[ca].root] = b[cb].root;
    }
    const auto partners = [&](std::span<const InstructionId> x, std::span<const InstructionId> y) {
      return std::ranges::equal(x, y, [&](InstructionId p, InstructionId q) {
        return partner.contains(p) && partner[p] == q;
      });
    };
    if (partner[a[ca].root] != b[cb].root || !partners(a.parameters_of(ca), b.parameters_of(cb)))
      return where + ": root or parameters differ";
    for (std::size_t k = 0; k < ia.size(); ++k) {
      const Instruction& x = a[ia[k]];
      const Instruction& y = b[partner[ia[k]]];
      const std::string at = where + " at " + std::string(x.name);
      if (x.name != y.name && !wrapper) return differ(at, x.name, y.name);
      if (a.opcode_word_of(x) != b.opcode_word_of(y))
        return differ(at, a.opcode_word_of(x), b.opcode_word_of(y));
      if (text_of(a, x.shape) != text_of(b, y.shape))
        return differ(at, text_of(a, x.shape), text_of(b, y.shape));
      if (!partners(a.operands(x), b.operands(y)))
        return differ(at + ": operands", names_of(a, a.operands(x)), names_of(b, b.operands(y)));
      if (!partners(a.controls(x), b.controls(y)))
        return differ(at + ": controls", names_of(a, a.controls(x)), names_of(b, b.controls(y)));
      if (x.fusion_kind != y.fusion_kind || x.number != y.number ||
          x.has_side_effect != y.has_side_effect)
        return at + ": fields differ";
      if (!std::ranges::equal(a.aliases(x), b.aliases(y),
                              [](const OperandAlias& p, const OperandAlias& q) {
                                return p.output_node == q.output_node && p.operand == q.operand &&
                                       p.operand_node == q.operand_node;
                              }))
        return at + ": aliases differ";
      const auto xa = sorted(a.attributes_of(x), wrapper);
      const auto ya = sorted(b.attributes_of(y), wrapper);
      if (xa != ya) return differ(at + ": attributes", shown(xa), shown(ya));
      const auto called = a.called(x);
      if (called.size() != b.called(y).size())
        return at + ": number of called computations differs";
      for (std::size_t c = 0; c < called.size(); ++c) {
        ComputationId& known = pair[index_of(called[c])];
        if (a[called[c]].is_async_wrapper && b[b.called(y)[c]].is_async_wrapper)
          known = b.called(y)[c];
        if (known != b.called(y)[c])
          return differ(at + ": called", names_of(a, called), names_of(b, b.called(y)));
      }
    }
  }
  return {};
}

}  // namespace holdfast::testing
