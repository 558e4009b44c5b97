// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "holdfast/buffer/bounds.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// Where a buffer of bounded-dynamic shape keeps its sizes: one int32 a dimension, before or behind the payload.
///
/// Source: runtime.md 5.4.
struct DynamicLayout {
  enum class Kind : std::uint8_t { none, suffix, prefix };
  Kind kind = Kind::none;
  Bytes payload = 0;  ///< bytes of the shape with its bounds
  Bytes prefix = 0;   ///< bytes declared before the payload; only of `prefix`

  [[nodiscard]] constexpr Bytes metadata_offset() const noexcept { return kind == Kind::suffix ? payload : 0; }
  [[nodiscard]] constexpr Bytes payload_offset() const noexcept { return kind == Kind::prefix ? prefix : 0; }
  [[nodiscard]] constexpr Bytes metadata_size(std::size_t rank) const noexcept {
    return kind == Kind::suffix ? static_cast<Bytes>(4 * rank) : kind == Kind::prefix ? prefix : 0;
  }
};

/// The most dimensions whose sizes are read at once.
inline constexpr std::size_t max_dynamic_rank = 64;

/// Reads the sizes of a buffer's dimensions into `sizes`, each between 0 and its bound.
///
/// Waits for nothing: the caller has waited for the contents; copies just the sizes. Units: elements. Errors:
/// invalid_argument (no metadata, too little of it, a size that is negative or over its bound); the copy's own.
template <class Raw>
[[nodiscard]] Error read_dynamic_shape(const Raw& raw, const DynamicLayout& layout, std::span<const std::int64_t> bounds,
                                       std::span<std::int64_t> sizes) noexcept {
  if (layout.kind == DynamicLayout::Kind::none) return make_error(Errc::invalid_argument, "No dynamic metadata found");
  if (bounds.size() != sizes.size() || bounds.size() > max_dynamic_rank)
    return make_error(Errc::invalid_argument, "the rank is not that of the bounds, or too large");
  const auto need = static_cast<Bytes>(4 * bounds.size());
  if (layout.metadata_size(bounds.size()) < need) return make_error(Errc::invalid_argument, "the dynamic metadata is too short");
  if (Error e = check_bounds(raw.size(), layout.metadata_offset(), need); !e.ok()) return e;
  // Through bytes: the sizes need not lie at an address that suits an int32.
  std::array<std::byte, 4 * max_dynamic_rank> bytes{};
  auto copied = raw.copy_out(layout.metadata_offset(), std::span(bytes).first(static_cast<std::size_t>(need)));
  if (!copied.ok()) return copied.error();
  if (Error e = copied->wait(); !e.ok()) return e;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    std::int32_t size = 0;
    std::memcpy(&size, bytes.data() + 4 * i, 4);
    if (size < 0 || size > bounds[i]) {
      Error e = make_error(Errc::invalid_argument, "a dynamic size is negative or over its bound");
      e.at_kind = AtKind::argument;
      e.at = i;
      e.available = bounds[i];
      return e;
    }
    sizes[i] = size;
  }
  return {};
}

/// The payload alone: the buffer itself where it has no metadata. `payload`: bytes of the actual shape.
/// Errors: invalid_argument (range).
template <class Raw>
[[nodiscard]] Result<Raw> without_dynamic_metadata(const Raw& raw, const DynamicLayout& layout, Bytes payload) noexcept {
  if (layout.kind == DynamicLayout::Kind::none) return Raw(raw);
  return raw.slice(layout.payload_offset(), payload);
}

}  // namespace holdfast
