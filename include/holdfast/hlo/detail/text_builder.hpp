// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace holdfast::detail {

/// Builds the text of an attribute; usable in constant expressions, which `std::string` is not.
struct TextBuilder {
  std::vector<char> text;

  constexpr void clear() noexcept { text.clear(); }
  [[nodiscard]] constexpr std::string_view view() const noexcept { return {text.data(), text.size()}; }
  constexpr void put(char c) { text.push_back(c); }
  constexpr void put(std::string_view s) { text.insert(text.end(), s.begin(), s.end()); }
  constexpr void number(std::int64_t value) {
    if (value < 0) put('-');
    unsigned_number(value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value));
  }
  constexpr void unsigned_number(std::uint64_t value) {
    char digits[20] = {};
    std::size_t at = sizeof digits;
    do digits[--at] = static_cast<char>('0' + value % 10);
    while ((value /= 10) != 0);
    put(std::string_view(digits + at, sizeof digits - at));
  }
  /// Numbers with a separator between them.
  constexpr void numbers(std::span<const std::int64_t> values, std::string_view separator = ",") {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i != 0) put(separator);
      number(values[i]);
    }
  }
  /// Numbers in braces, as `{1,0}`.
  constexpr void braced(std::span<const std::int64_t> values) { put('{'), numbers(values), put('}'); }
  /// A string with quotes and C escapes, as XLA writes them.
  constexpr void quoted(std::string_view s) {
    put('"');
    for (std::size_t from = 0, i = 0; i <= s.size(); ++i) {
      if (i != s.size() && !needs_escape(s[i])) continue;
      put(s.substr(from, i - from));
      if (i != s.size()) escape(s[i]);
      from = i + 1;
    }
    put('"');
  }

 private:
  static constexpr bool needs_escape(char c) noexcept {
    return c < 0x20 || c >= 0x7F || c == '"' || c == '\'' || c == '\\';
  }
  constexpr void escape(char c) {
    const auto u = static_cast<unsigned char>(c);
    put('\\');
    switch (c) {
      case '\n': return put('n');
      case '\r': return put('r');
      case '\t': return put('t');
      case '"':
      case '\'':
      case '\\': return put(c);
      default: break;
    }
    put(static_cast<char>('0' + (u >> 6))), put(static_cast<char>('0' + ((u >> 3) & 7))), put(static_cast<char>('0' + (u & 7)));
  }
};

}  // namespace holdfast::detail
