// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/graph/shape_table.hpp"

namespace holdfast {

/// Gives the shape of one element of a type.
[[nodiscard]] constexpr Result<ShapeId> make_scalar(ShapeTable& table, ElementType type) {
  Shape s;
  s.type = type;
  const Layout layout;
  return table.intern(s, static_cast<std::uint32_t>(table.numbers.size()), &layout);
}

/// Gives the tuple of some shapes. Errors: over_budget (see `ShapeTable::intern`).
[[nodiscard]] constexpr Result<ShapeId> make_tuple_shape(ShapeTable& table,
                                                         std::span<const ShapeId> parts) {
  const auto mark = static_cast<std::uint32_t>(table.children.size());
  const std::vector<ShapeId> kept(parts.begin(), parts.end());  // they may lie in the table
  table.children.insert(table.children.end(), kept.begin(), kept.end());
  return table.intern_tuple(mark);
}

/// Where an array lies: its memory space and how it is split among memories.
struct Placement {
  MemorySpace space = MemorySpace::device;
  IndexRange splits;  ///< as `Layout::splits`
};

/// The placement of an array; that of the device when it has no layout.
[[nodiscard]] constexpr Placement placement_of(const ShapeTable& table, ShapeId array) noexcept {
  const Layout* const l = table.layout(array);
  return l != nullptr ? Placement{l->space, l->splits} : Placement{};
}

/// Tells whether two placements are the same.
[[nodiscard]] constexpr bool same_placement(const ShapeTable& table, Placement a,
                                            Placement b) noexcept {
  const auto from = [&](IndexRange r) { return table.numbers.begin() + r.begin; };
  return a.space == b.space && a.splits.count == b.splits.count &&
         std::equal(from(a.splits), from(a.splits) + a.splits.count, from(b.splits));
}

/// Gives an array with another placement; one without a layout gets the row-major one.
[[nodiscard]] constexpr Result<ShapeId> with_placement(ShapeTable& table, ShapeId array,
                                                       Placement placement) {
  const Shape s = table[array];
  const auto mark = static_cast<std::uint32_t>(table.numbers.size());
  Layout layout;
  if (const Layout* const given = table.layout(array); given != nullptr) {
    layout = *given;
  } else {
    for (std::uint32_t d = s.dimensions.count; d-- > 0;) table.numbers.push_back(d);
    layout.minor_to_major = {mark, s.dimensions.count};
  }
  layout.space = placement.space;
  layout.splits = placement.splits;
  return table.intern(s, mark, &layout);
}

/// Gives an array in another memory space; all else of its layout stays.
[[nodiscard]] constexpr Result<ShapeId> with_space(ShapeTable& table, ShapeId array,
                                                   MemorySpace space) {
  return with_placement(table, array, {space, placement_of(table, array).splits});
}

/// Gives a shape whose leaves a function makes anew, `Result<ShapeId> f(node, leaf)`.
///
/// Errors: the first of `f`, over_budget. Cost: O(size), times the depth where tuples are nested.
template <class F>
[[nodiscard]] constexpr Result<ShapeId> map_leaves(ShapeTable& table, ShapeId shape, F&& f) {
  const std::uint32_t count = table.node_count(shape);
  std::vector<ShapeId> made(count, shape);
  std::vector<ShapeId> parts;
  for (std::uint32_t n = count; n-- > 0;) {  // children before their tuple
    const ShapeId old = table.node(shape, n);
    if (table.is_tuple(old)) {
      parts.clear();
      for (std::uint32_t k = 0; k < table[old].children.count; ++k)
        parts.push_back(made[n + table.child_node(old, k)]);
    }
    const Result<ShapeId> id = table.is_tuple(old) ? make_tuple_shape(table, parts) : f(n, old);
    if (!id.ok()) return id.error();
    made[n] = *id;
  }
  return made[0];
}

}  // namespace holdfast
