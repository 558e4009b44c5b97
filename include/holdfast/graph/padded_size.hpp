// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "holdfast/graph/shape_table.hpp"

namespace holdfast {

/// The bytes of an array on a backend that materialises tiles: only the first tile counts, a split
/// dimension has the size of its largest piece, and the product is rounded up to the tail padding.
///
/// Errors: unsupported (no array, an unbounded dimension, a tile that merges dimensions), over_budget.
/// Source: passes.md 2.3.
[[nodiscard]] constexpr Result<Bytes> padded_size(const ShapeTable& table, ShapeId id) {
  const Shape& shape = table[id];
  if (!is_array(shape.type)) return make_error(Errc::unsupported, "only arrays have tiles");
  const Layout* const layout = table.layout(id);
  const std::span<const std::int64_t> dimensions = table.dimensions(id);
  const auto run = [&](IndexRange r) { return std::span<const std::int64_t>(table.numbers.data() + r.begin, r.count); };
  const auto tile = layout == nullptr || layout->tiles.empty() ? std::span<const std::int64_t>{} : run(layout->tiles);
  const std::uint32_t tile_rank = tile.empty() ? 0 : static_cast<std::uint32_t>(tile[0]);
  Bytes count = 1;
  const auto multiply = [&](Bytes by) { return checked_multiply(count, by, count); };
  for (std::uint32_t d = 0; d < std::max(tile_rank, static_cast<std::uint32_t>(dimensions.size())); ++d) {
    Bytes size = 1;
    if (d < dimensions.size()) {
      const std::uint32_t number = layout != nullptr && layout->minor_to_major.count == dimensions.size()
                                       ? static_cast<std::uint32_t>(run(layout->minor_to_major)[d])
                                       : static_cast<std::uint32_t>(dimensions.size()) - 1 - d;
      size = dimensions[number];
      if (size < 0) return make_error(Errc::unsupported, "an unbounded dimension has no size");
      if (layout != nullptr) {
        const auto splits = run(layout->splits);
        for (std::size_t at = 0; at < splits.size(); at += 2 + static_cast<std::size_t>(splits[at + 1])) {
          if (splits[at] != number) continue;
          Bytes from = 0;
          Bytes largest = 0;
          for (std::int64_t k = 0; k < splits[at + 1]; ++k) {
            const Bytes cut = splits[at + 2 + static_cast<std::size_t>(k)];
            largest = std::max(largest, cut - from);
            from = cut;
          }
          size = std::max(largest, size - from);
        }
      }
    }
    if (d < tile_rank) {
      const Bytes unit = tile[tile_rank - d];
      if (unit <= 0) return make_error(Errc::unsupported, "a tile that merges dimensions has no size here");
      if (!checked_align_up(size, unit, size)) return make_error(Errc::over_budget, "the padded size does not fit");
    }
    if (!multiply(size)) return make_error(Errc::over_budget, "the padded size does not fit");
  }
  if (layout != nullptr && layout->tail_padding > 1 && !checked_align_up(count, layout->tail_padding, count))
    return make_error(Errc::over_budget, "the padded size does not fit");
  Bytes bytes = 0;
  if (!elements_to_bytes(shape.type, count, layout != nullptr ? layout->element_bits : 0, bytes))
    return make_error(Errc::over_budget, "the padded size does not fit");
  return bytes;
}

}  // namespace holdfast
