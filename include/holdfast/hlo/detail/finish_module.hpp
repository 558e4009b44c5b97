// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/hlo/detail/async_sugar.hpp"
#include "holdfast/hlo/detail/read_header.hpp"
#include "holdfast/hlo/detail/text_state.hpp"

namespace holdfast::detail {

/// Gives computations that were written without a name one that no other has.
constexpr void name_computations(TextState& st) {
  std::uint32_t number = 0;
  for (const ComputationId id : st.unnamed) {
    Computation& c = st.module[id];
    const std::string_view base = c.is_async_wrapper ? "async_computation" : "_";
    std::string_view name = base;
    if (number == 0 && st.computations.find(name) == NameTable::none) {
      number = 1;
      c.name = st.module.own(name);
      continue;
    }
    const std::string_view prefix = c.is_async_wrapper ? "async_computation." : "_.";
    do name = own_numbered(st.module, prefix, number++);
    while (st.computations.find(name) != NameTable::none);
    c.name = name;
  }
}

/// One half of an alias or donor: which node of which parameter.
constexpr bool resolve_parameter(TextState& st, const HeaderParts& parts,
                                 const HeaderParts::Alias& alias, std::uint32_t& node) {
  const Module& m = st.module;
  const auto parameters = m.parameters_of(m.entry);
  if (alias.number >= parameters.size()) {
    Error e = make_error(Errc::corrupt, "alias or donor names a parameter that does not exist");
    e.requested = alias.number;
    e.available = static_cast<std::int64_t>(parameters.size());
    return st.fail(alias.at, e);
  }
  const ShapeId shape = m[parameters[alias.number]].shape;
  node = m.shapes.node_of_path(
      shape, {parts.numbers.data() + alias.parameter.begin, alias.parameter.count});
  return node < m.shapes.node_count(shape) ||
         st.in.fail_at(alias.at, "alias or donor names a shape index that the parameter has not");
}

/// A pair of numbers as one key, and where it was written.
struct TakenPlace {
  std::uint64_t key = 0;
  std::size_t at = 0;
};

/// Finds a key that stands twice; false with an error at the later one.
constexpr bool all_different(TextState& st, std::vector<TakenPlace>& places, const char* what) {
  std::sort(places.begin(), places.end(), [](const TakenPlace& a, const TakenPlace& b) {
    return a.key != b.key ? a.key < b.key : a.at < b.at;
  });
  for (std::size_t i = 1; i < places.size(); ++i)
    if (places[i].key == places[i - 1].key) return st.in.fail_at(places[i].at, what);
  return true;
}

constexpr std::uint64_t place_key(std::uint32_t a, std::uint32_t b) noexcept {
  return (static_cast<std::uint64_t>(a) << 32) | b;
}

/// Checks the alias and donor tables against the entry computation and makes them fields.
///
/// Source: hlo-format.md B.1, H.2, H.7.
constexpr bool resolve_tables(TextState& st, const HeaderParts& parts) {
  Module& m = st.module;
  const ShapeId result = m[m[m.entry].root].shape;
  std::vector<TakenPlace> outputs;
  std::vector<TakenPlace> inputs;
  for (const HeaderParts::Alias& alias : parts.aliases) {
    ParameterAlias made;
    made.parameter = alias.number;
    made.must = alias.must;
    made.output_node = m.shapes.node_of_path(
        result, {parts.numbers.data() + alias.output.begin, alias.output.count});
    if (made.output_node >= m.shapes.node_count(result))
      return st.in.fail_at(alias.at, "alias names an output index that does not exist");
    if (!resolve_parameter(st, parts, alias, made.parameter_node)) return false;
    const Bytes out = m.shapes.byte_size(m.shapes.node(result, made.output_node));
    const Bytes in = m.shapes.byte_size(
        m.shapes.node(m[m.parameters_of(m.entry)[alias.number]].shape, made.parameter_node));
    if (out != in) {
      Error e = make_error(Errc::corrupt, "aliased output and parameter have different sizes");
      e.requested = out;
      e.available = in;
      return st.fail(alias.at, e);
    }
    m.parameter_aliases.push_back(made);
    outputs.push_back({made.output_node, alias.at});
    inputs.push_back({place_key(made.parameter, made.parameter_node), alias.at});
  }
  if (!all_different(st, outputs, "output is aliased twice") ||
      !all_different(st, inputs, "parameter is aliased twice"))
    return false;
  for (const HeaderParts::Alias& donor : parts.donors) {
    BufferDonor made;
    made.parameter = donor.number;
    if (!resolve_parameter(st, parts, donor, made.parameter_node)) return false;
    m.donors.push_back(made);
    inputs.push_back({place_key(made.parameter, made.parameter_node), donor.at});
  }
  return all_different(st, inputs, "parameter is a donor twice, or a donor and aliased");
}

/// Checks `entry_computation_layout` against the entry computation.
constexpr bool check_entry_layout(TextState& st, const HeaderParts& parts) {
  if (parts.layout_result == no_id<ShapeId>) return true;
  const Module& m = st.module;
  const auto parameters = m.parameters_of(m.entry);
  if (parameters.size() != parts.layout_parameters.size())
    return st.in.fail_at(
        parts.layout_at,
        "entry_computation_layout has another number of parameters than the entry");
  for (std::size_t k = 0; k < parameters.size(); ++k)
    if (!st.same_shape(parts.layout_parameters[k], m[parameters[k]].shape, parts.layout_at,
                       "entry_computation_layout gives another shape than a parameter has"))
      return false;
  return st.same_shape(parts.layout_result, m[m[m.entry].root].shape, parts.layout_at,
                       "entry_computation_layout gives another shape than the root has");
}

}  // namespace holdfast::detail
