// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "holdfast/core/units.hpp"

namespace holdfast {

/// The element types of HLO, numbered as in its protos.
enum class ElementType : std::uint8_t {
  invalid = 0, pred = 1, s8 = 2, s16 = 3, s32 = 4, s64 = 5, u8 = 6, u16 = 7, u32 = 8, u64 = 9, f16 = 10, f32 = 11, f64 = 12,
  tuple = 13, opaque = 14, c64 = 15, bf16 = 16, token = 17, c128 = 18, f8e5m2 = 19, f8e4m3fn = 20, s4 = 21, u4 = 22,
  f8e4m3b11fnuz = 23, f8e5m2fnuz = 24, f8e4m3fnuz = 25, s2 = 26, u2 = 27, f8e4m3 = 28, f8e3m4 = 29, s1 = 30, u1 = 31,
  f4e2m1fn = 32, f8e8m0fnu = 33, buffer = 34,
};

/// How many element types there are, `invalid` included.
inline constexpr std::size_t element_type_count = 35;

/// A dimension without a bound.
inline constexpr std::int64_t unbounded_dimension = std::numeric_limits<std::int64_t>::min();

namespace detail {

struct ElementTypeEntry {
  std::string_view name;
  std::uint8_t bits;
};

inline constexpr std::array<ElementTypeEntry, element_type_count> element_types{{
    {"invalid", 0}, {"pred", 8}, {"s8", 8}, {"s16", 16}, {"s32", 32}, {"s64", 64}, {"u8", 8},
    {"u16", 16}, {"u32", 32}, {"u64", 64}, {"f16", 16}, {"f32", 32}, {"f64", 64}, {"tuple", 0},
    {"opaque", 0}, {"c64", 64}, {"bf16", 16}, {"token", 0}, {"c128", 128}, {"f8e5m2", 8}, {"f8e4m3fn", 8},
    {"s4", 4}, {"u4", 4}, {"f8e4m3b11fnuz", 8}, {"f8e5m2fnuz", 8}, {"f8e4m3fnuz", 8}, {"s2", 2}, {"u2", 2},
    {"f8e4m3", 8}, {"f8e3m4", 8}, {"s1", 1}, {"u1", 1}, {"f4e2m1fn", 4}, {"f8e8m0fnu", 8}, {"buffer", 0},
}};

}  // namespace detail

/// Gives the word of a type as HLO text writes it.
[[nodiscard]] constexpr std::string_view element_name(ElementType type) noexcept {
  return detail::element_types[static_cast<std::size_t>(type)].name;
}

/// Finds the type that a word names; `invalid` for none. `tuple` and `buffer` are no words of the text.
///
/// Cost: one comparison a type.
[[nodiscard]] constexpr ElementType element_type(std::string_view word) noexcept {
  for (std::size_t i = 1; i < element_type_count; ++i)
    if (detail::element_types[i].name == word) {
      const auto type = static_cast<ElementType>(i);
      return type == ElementType::tuple || type == ElementType::buffer ? ElementType::invalid : type;
    }
  return ElementType::invalid;
}

/// Gives the width of one element. Units: bits; 0 for types that are no arrays.
[[nodiscard]] constexpr int bit_width(ElementType type) noexcept {
  return detail::element_types[static_cast<std::size_t>(type)].bits;
}

/// Tells whether values of the type are arrays of elements (not a tuple, token, opaque or buffer).
[[nodiscard]] constexpr bool is_array(ElementType type) noexcept { return bit_width(type) != 0; }

/// Gives the bytes of `count` elements: packed when `element_bits` is set, one or more whole bytes each otherwise.
///
/// Units: `element_bits` is the layout's element size, 0 for the natural one. False when it does not fit.
[[nodiscard]] constexpr bool elements_to_bytes(ElementType type, std::int64_t count, std::int64_t element_bits,
                                               Bytes& out) noexcept {
  if (element_bits == 0) return checked_multiply(count, (bit_width(type) + 7) / 8, out);
  Bytes bits = 0;
  if (!checked_multiply(count, element_bits, bits)) return false;
  out = bits / 8 + (bits % 8 != 0);
  return true;
}

}  // namespace holdfast
