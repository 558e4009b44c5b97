// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "holdfast/core/result.hpp"
#include "holdfast/core/shape.hpp"
#include "holdfast/core/static_vector.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// What one array is, without a table of shapes: element type, dimensions, and how its elements lie in memory.
///
/// Row major where `minor_to_major` is empty. With a tile, a dimension is rounded up to the tile's and the tiles follow each
/// other; the last of `tile` is for the most minor dimension. A dynamic dimension's size is its bound.
/// Threads: a value. Source: XLA Shape and Layout.
struct ArrayShape {
  static constexpr std::size_t max_rank = 16;
  static constexpr std::size_t max_tile_rank = 8;

  ElementType type = ElementType::invalid;
  std::uint8_t element_bits = 0;  ///< 0: whole bytes an element; else packed, low bits first
  std::uint16_t dynamic = 0;      ///< bit d: dimension d is dynamic
  StaticVector<std::int64_t, max_rank> dimensions;
  StaticVector<std::uint8_t, max_rank> minor_to_major;
  StaticVector<std::int64_t, max_tile_rank> tile;

  /// Makes a row-major array. Errors: invalid_argument (no array type, a negative dimension), over_budget (rank, size).
  [[nodiscard]] static constexpr Result<ArrayShape> make(ElementType type, std::span<const std::int64_t> dimensions) noexcept {
    ArrayShape shape;
    shape.type = type;
    for (const std::int64_t d : dimensions)
      if (!shape.dimensions.try_push_back(d)) return make_error(Errc::over_budget, "an array of too many dimensions");
    if (Error e = shape.check(); !e.ok()) return e;
    return shape;
  }
  /// What is wrong with it: a shape that passes has sizes. Errors: invalid_argument, over_budget.
  [[nodiscard]] constexpr Error check() const noexcept {
    if (!is_array(type)) return make_error(Errc::invalid_argument, "the shape is no array");
    for (const std::int64_t d : dimensions)
      if (d < 0) return make_error(Errc::invalid_argument, "a dimension is negative or has no bound");
    for (const std::int64_t t : tile)
      if (t <= 0) return make_error(Errc::invalid_argument, "a tile's dimension must be positive");
    if (!minor_to_major.empty() && !is_permutation())
      return make_error(Errc::invalid_argument, "the layout does not name each dimension once");
    if (element_bits != 0 && (element_bits > 8 || 8 % element_bits != 0 || element_bits < bit_width(type)))
      return make_error(Errc::invalid_argument, "packed elements have 1, 2, 4 or 8 bits and hold their type");
    Bytes bytes = 0;
    if (!sizes(false, bytes) || !sizes(true, bytes)) return make_error(Errc::over_budget, "the array's size does not fit");
    return {};
  }

  [[nodiscard]] constexpr std::size_t rank() const noexcept { return dimensions.size(); }
  [[nodiscard]] constexpr bool is_static() const noexcept { return dynamic == 0; }
  /// The dimension that is the k-th most minor.
  [[nodiscard]] constexpr std::size_t minor(std::size_t k) const noexcept {
    return minor_to_major.empty() ? rank() - 1 - k : minor_to_major[k];
  }
  /// Tells whether its elements lie in the order of their indices, the last dimension fastest, without tiles.
  [[nodiscard]] constexpr bool is_row_major() const noexcept {
    for (std::size_t k = 0; k < rank(); ++k)
      if (minor(k) != rank() - 1 - k) return false;
    return tile.empty();
  }
  /// The number of its elements, without padding. Units: elements.
  [[nodiscard]] constexpr std::int64_t count() const noexcept {
    std::int64_t n = 1;
    for (const std::int64_t d : dimensions) n *= d;
    return n;
  }
  /// What a host must provide for its values: no padding, whole bytes an element.
  [[nodiscard]] constexpr Bytes host_size() const noexcept { return count() * ((bit_width(type) + 7) / 8); }
  /// What it takes in its layout, tiles and packing counted; dynamic sizes not (see `DynamicLayout`).
  [[nodiscard]] constexpr Bytes device_size() const noexcept {
    Bytes bytes = 0;
    static_cast<void>(sizes(true, bytes));
    return bytes;
  }
  /// Where an element lies in its layout. Units: elements. Cost: the rank.
  [[nodiscard]] constexpr std::int64_t element_offset(std::span<const std::int64_t> index) const noexcept {
    std::int64_t tiles = 0, inside = 0, tile_stride = 1, inside_stride = 1;
    for (std::size_t k = 0; k < levels(); ++k) {
      const std::int64_t at = k < rank() ? index[minor(k)] : 0, unit = tile_unit(k);
      tiles += at / unit * tile_stride;
      inside += at % unit * inside_stride;
      tile_stride *= (level_size(k) + unit - 1) / unit;
      inside_stride *= unit;
    }
    return tiles * inside_stride + inside;
  }

  /// The same type and dimensions, however they lie in memory.
  [[nodiscard]] constexpr bool same_array(const ArrayShape& other) const noexcept {
    if (type != other.type || rank() != other.rank()) return false;
    for (std::size_t d = 0; d < rank(); ++d)
      if (dimensions[d] != other.dimensions[d]) return false;
    return true;
  }
  /// The same array in the same layout.
  friend constexpr bool operator==(const ArrayShape& a, const ArrayShape& b) noexcept {
    if (!a.same_array(b) || a.element_bits != b.element_bits || a.dynamic != b.dynamic || a.tile.size() != b.tile.size())
      return false;
    for (std::size_t k = 0; k < a.rank(); ++k)
      if (a.minor(k) != b.minor(k)) return false;
    for (std::size_t k = 0; k < a.tile.size(); ++k)
      if (a.tile[k] != b.tile[k]) return false;
    return true;
  }

 private:
  // Dimensions by how minor they are; a tile may have more of them than the array.
  [[nodiscard]] constexpr std::size_t levels() const noexcept { return rank() > tile.size() ? rank() : tile.size(); }
  [[nodiscard]] constexpr std::int64_t level_size(std::size_t k) const noexcept { return k < rank() ? dimensions[minor(k)] : 1; }
  [[nodiscard]] constexpr std::int64_t tile_unit(std::size_t k) const noexcept {
    return k < tile.size() ? tile[tile.size() - 1 - k] : 1;
  }
  [[nodiscard]] constexpr bool is_permutation() const noexcept {
    if (minor_to_major.size() != rank()) return false;
    std::uint32_t seen = 0;
    for (const std::uint8_t d : minor_to_major) {
      if (d >= rank()) return false;
      seen |= std::uint32_t{1} << d;
    }
    return seen == (std::uint32_t{1} << rank()) - 1;
  }
  // The bytes, of whole elements without padding or in the layout. A dimension of 0 does not hide others that do not fit.
  [[nodiscard]] constexpr bool sizes(bool padded, Bytes& bytes) const noexcept {
    Bytes elements = 1;
    bool empty = false;
    for (std::size_t k = 0; k < levels(); ++k) {
      Bytes size = level_size(k);
      if (padded && !checked_align_up(size, tile_unit(k), size)) return false;
      empty = empty || size == 0;
      if (!checked_multiply(elements, size == 0 ? 1 : size, elements)) return false;
    }
    if (!elements_to_bytes(type, elements, padded ? element_bits : 0, bytes)) return false;
    if (empty) bytes = 0;
    return true;
  }
};

}  // namespace holdfast
