// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "holdfast/graph/shape_table.hpp"
#include "holdfast/hlo/detail/text_builder.hpp"

namespace holdfast::detail {

/// Writes the layout of an array in braces; nothing when it has none, or a default one of rank 0.
constexpr void put_layout(TextBuilder& out, const ShapeTable& shapes, ShapeId id) {
  const Layout* l = shapes.layout(id);
  if (l == nullptr) return;
  const auto number = [&](std::uint32_t i) { return shapes.numbers[i]; };
  const std::size_t from = out.text.size();
  out.put('{');
  out.numbers({shapes.numbers.data() + l->minor_to_major.begin, l->minor_to_major.count});
  const std::size_t plain = out.text.size();
  const auto suffix = [&](std::string_view word, std::int64_t value) {
    out.put(word), out.put('('), out.number(value), out.put(')');
  };
  if (!l->levels.empty()) out.put("D("), out.put(l->levels), out.put(')');
  for (std::uint32_t i = l->tiles.begin; i < l->tiles.end(); i += 1 + static_cast<std::uint32_t>(number(i))) {
    out.put(i == l->tiles.begin ? "T(" : "(");
    for (std::uint32_t k = 0; k < static_cast<std::uint32_t>(number(i)); ++k) {
      if (k != 0) out.put(',');
      const std::int64_t d = number(i + 1 + k);
      if (d == unbounded_dimension) out.put('*');
      else out.number(d);
    }
    out.put(')');
  }
  if (l->tail_padding != 1) suffix("L", l->tail_padding);
  if (l->index_type != ElementType::invalid) out.put("#("), out.put(element_name(l->index_type)), out.put(')');
  if (l->pointer_type != ElementType::invalid) out.put("*("), out.put(element_name(l->pointer_type)), out.put(')');
  if (l->element_bits != 0) suffix("E", l->element_bits);
  if (l->space != MemorySpace::device) suffix("S", static_cast<std::int64_t>(l->space));
  for (std::uint32_t i = l->splits.begin; i < l->splits.end(); i += 2 + static_cast<std::uint32_t>(number(i + 1))) {
    out.put(i == l->splits.begin ? "SC(" : "("), out.number(number(i)), out.put(':');
    out.numbers({shapes.numbers.data() + i + 2, static_cast<std::size_t>(number(i + 1))});
    out.put(')');
  }
  if (!l->physical.empty()) out.put("P("), out.put(l->physical), out.put(')');
  if (l->prefix_bytes != 0) suffix("M", l->prefix_bytes);
  if (out.text.size() != plain) out.text.insert(out.text.begin() + static_cast<std::ptrdiff_t>(plain), ':');
  else if (l->minor_to_major.count == 0) return out.text.resize(from, 0);
  out.put('}');
}

/// Writes a shape as HLO text does, with every fifth element of a tuple numbered.
///
/// Errors: none; the depth is that of the table, which its reader bounds. Cost: linear.
constexpr void put_shape(TextBuilder& out, const ShapeTable& shapes, ShapeId id, bool layouts = true) {
  const Shape& s = shapes[id];
  if (s.type == ElementType::tuple || s.type == ElementType::buffer) {
    out.put(s.type == ElementType::tuple ? "(" : "b(");
    for (std::uint32_t k = 0; k < s.children.count; ++k) {
      if (k != 0) out.put(", ");
      if (k != 0 && k % 5 == 0) out.put("/*index="), out.number(k), out.put("*/");
      put_shape(out, shapes, shapes.children_of(id)[k], layouts);
    }
    return out.put(')');
  }
  out.put(element_name(s.type)), out.put('[');
  for (std::uint32_t i = 0; i < s.dimensions.count; ++i) {
    if (i != 0) out.put(',');
    const std::int64_t d = shapes.numbers[s.dimensions.begin + i];
    if (d == unbounded_dimension) {
      out.put('?');
    } else {
      if (((s.dynamic >> i) & 1) != 0) out.put("<=");
      out.number(d);
    }
  }
  out.put(']');
  if (layouts) put_layout(out, shapes, id);
}

}  // namespace holdfast::detail
