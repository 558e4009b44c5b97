// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "holdfast/core/config.hpp"

namespace holdfast {

/// A size or offset in bytes; signed, so that a difference or a hostile negative number is representable.
using Bytes = std::int64_t;

/// The largest size; sums that would pass it fail.
inline constexpr Bytes max_bytes = std::numeric_limits<Bytes>::max();

/// Tells whether `value` is a power of two.
[[nodiscard]] constexpr bool is_power_of_two(Bytes value) noexcept {
  return value > 0 && (value & (value - 1)) == 0;
}

/// A power-of-two alignment of an address.
///
/// Errors: a value that is no power of two is a broken precondition (`HOLDFAST_ASSERT`).
class Alignment {
 public:
  constexpr Alignment() noexcept = default;
  constexpr explicit Alignment(Bytes value) noexcept : value_(value) {
    HOLDFAST_ASSERT(is_power_of_two(value));
  }
  [[nodiscard]] constexpr Bytes value() const noexcept { return value_; }
  friend constexpr bool operator==(Alignment, Alignment) noexcept = default;

 private:
  Bytes value_ = 1;
};

/// Adds two sizes into `out`; false when either is negative or the sum does not fit.
[[nodiscard]] constexpr bool checked_add(Bytes a, Bytes b, Bytes& out) noexcept {
  if (a < 0 || b < 0 || a > max_bytes - b) return false;
  out = a + b;
  return true;
}

/// Multiplies two sizes into `out`; false when either is negative or the product does not fit.
[[nodiscard]] constexpr bool checked_multiply(Bytes a, Bytes b, Bytes& out) noexcept {
  if (a < 0 || b < 0 || (b != 0 && a > max_bytes / b)) return false;
  out = a * b;
  return true;
}

/// Rounds `value` up to a multiple of `alignment` (any positive number) into `out`; false when it does not fit.
[[nodiscard]] constexpr bool checked_align_up(Bytes value, Bytes alignment, Bytes& out) noexcept {
  if (value < 0 || alignment <= 0) return false;
  const Bytes rest = value % alignment;
  return rest == 0 ? (out = value, true) : checked_add(value, alignment - rest, out);
}

/// Rounds `value` up to a multiple of `alignment`, saturating at `max_bytes`.
[[nodiscard]] constexpr Bytes align_up(Bytes value, Bytes alignment) noexcept {
  Bytes out = max_bytes;
  return checked_align_up(value, alignment, out) ? out : max_bytes;
}

/// Adds two sizes, saturating at `max_bytes`: for figures that are only compared or printed.
[[nodiscard]] constexpr Bytes saturating_add(Bytes a, Bytes b) noexcept {
  Bytes out = max_bytes;
  return checked_add(a, b, out) ? out : max_bytes;
}

namespace literals {
constexpr Bytes operator""_KiB(unsigned long long n) noexcept { return static_cast<Bytes>(n << 10); }
constexpr Bytes operator""_MiB(unsigned long long n) noexcept { return static_cast<Bytes>(n << 20); }
constexpr Bytes operator""_GiB(unsigned long long n) noexcept { return static_cast<Bytes>(n << 30); }
}  // namespace literals

}  // namespace holdfast
