// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "holdfast/concepts/sink.hpp"

namespace holdfast::detail {

/// Writes parts of a text to a sink until that fails. Threads: one.
template <sink S>
struct ReportText {
  S& out;
  Error failure{};

  ReportText& operator<<(std::string_view text) noexcept {
    if (failure.ok()) failure = out.write(text);
    return *this;
  }
  ReportText& operator<<(std::int64_t n) noexcept {
    if (failure.ok()) failure = write_number(out, n);
    return *this;
  }
  /// A number with at most two decimals.
  ReportText& operator<<(double value) noexcept {
    const bool negative = value < 0;
    const auto hundredths = static_cast<std::int64_t>((negative ? -value : value) * 100 + 0.5);
    *this << (negative ? "-" : "") << hundredths / 100;
    if (hundredths % 100 != 0) {
      const char digits[] = {'.', static_cast<char>('0' + hundredths / 10 % 10),
                             static_cast<char>('0' + hundredths % 10)};
      *this << std::string_view(digits, hundredths % 10 != 0 ? 3 : 2);
    }
    return *this;
  }
  /// A number as `0x1f`.
  ReportText& hex(std::uint64_t n) noexcept {
    char digits[18];
    std::size_t at = sizeof digits;
    do digits[--at] = "0123456789abcdef"[n % 16];
    while ((n /= 16) != 0);
    digits[--at] = 'x', digits[--at] = '0';
    return *this << std::string_view(digits + at, sizeof digits - at);
  }
};

}  // namespace holdfast::detail
