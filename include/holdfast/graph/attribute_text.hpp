// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/core/units.hpp"

namespace holdfast {

/// Walks the numbers of an attribute's value such as `{0,2}` or `7`.
///
/// `for (std::int64_t d = 0; list.next(d);)`, then `ok` tells whether the text was a list of
/// numbers at all.
class NumberList {
 public:
  constexpr explicit NumberList(std::string_view text) noexcept : rest_(text) {
    if (!rest_.empty() && rest_.front() == '{') {
      if (rest_.back() == '}' && rest_.size() > 1)
        rest_ = rest_.substr(1, rest_.size() - 2);
      else
        ok_ = false;
    }
    skip();
  }
  /// Takes the next number; false at the end, or where none is.
  constexpr bool next(std::int64_t& out) noexcept {
    if (!ok_ || rest_.empty()) return false;
    const bool negative = rest_.front() == '-';
    std::size_t i = negative ? 1 : 0;
    std::int64_t value = 0;
    const std::size_t first = i;
    for (; i < rest_.size() && rest_[i] >= '0' && rest_[i] <= '9'; ++i)
      if (!checked_multiply(value, 10, value) || !checked_add(value, rest_[i] - '0', value))
        return ok_ = false;
    if (i == first) return ok_ = false;
    rest_.remove_prefix(i);
    skip();
    if (!rest_.empty()) {
      if (rest_.front() != ',') return ok_ = false;
      rest_.remove_prefix(1);
      skip();
    }
    out = negative ? -value : value;
    return true;
  }
  [[nodiscard]] constexpr bool ok() const noexcept { return ok_; }

 private:
  constexpr void skip() noexcept {
    for (;;) {
      while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t' ||
                                rest_.front() == '\n' || rest_.front() == '\r'))
        rest_.remove_prefix(1);
      if (!rest_.starts_with("/*")) return;
      const std::size_t end = rest_.find("*/", 2);
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 2);
    }
  }
  std::string_view rest_;
  bool ok_ = true;
};

/// Walks the fields of a value in braces such as metadata or frontend_attributes: `{op_name="a/b"
/// source_line=7}`.
///
/// Fields stand apart by blanks or commas; values are given as written, a string with its quotes.
class FieldList {
 public:
  constexpr explicit FieldList(std::string_view braces) noexcept : rest_(braces) {
    if (rest_.size() >= 2 && rest_.front() == '{') rest_ = rest_.substr(1, rest_.size() - 2);
  }
  /// Takes the next field; false at the end, or where none is.
  constexpr bool next(std::string_view& key, std::string_view& value) noexcept {
    while (!rest_.empty() && is_separator(rest_.front())) rest_.remove_prefix(1);
    const std::size_t equals = rest_.find('=');
    if (equals == std::string_view::npos) return false;
    key = rest_.substr(0, equals);
    rest_.remove_prefix(equals + 1);
    const std::size_t size = value_size();
    value = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

 private:
  static constexpr bool is_separator(char c) noexcept {
    return c == ' ' || c == ',' || c == '\n' || c == '\t' || c == '\r';
  }
  constexpr std::size_t value_size() const noexcept {
    std::size_t depth = 0;
    char quote = 0;
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      const char c = rest_[i];
      if (quote != 0) {
        if (c == '\\')
          ++i;
        else if (c == quote)
          quote = 0;
        continue;
      }
      if (depth == 0 && is_separator(c)) return i;
      if (c == '"' || c == '\'') quote = c;
      if (c == '{' || c == '(' || c == '[') ++depth;
      if ((c == '}' || c == ')' || c == ']') && depth > 0) --depth;
    }
    return rest_.size();
  }
  std::string_view rest_;
};

/// The value of one field of a value in braces, as written; empty when there is none.
[[nodiscard]] constexpr std::string_view field_of(std::string_view braces,
                                                  std::string_view key) noexcept {
  FieldList fields(braces);
  for (std::string_view name, value; fields.next(name, value);)
    if (name == key) return value;
  return {};
}

/// Appends what a quoted string means: without its quotes and C escapes; other texts go as they
/// are.
constexpr void append_unquoted(std::string_view written, std::vector<char>& out) {
  if (written.size() < 2 || (written.front() != '"' && written.front() != '\'')) {
    out.insert(out.end(), written.begin(), written.end());
    return;
  }
  const std::string_view s = written.substr(1, written.size() - 2);
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  const auto hex = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '\\' || i + 1 == s.size()) {
      out.push_back(s[i]);
      continue;
    }
    const char c = s[++i];
    constexpr std::string_view names = "abfnrtv";
    constexpr std::string_view codes = "\a\b\f\n\r\t\v";
    int value = 0;
    if (const std::size_t k = names.find(c); k != std::string_view::npos) {
      out.push_back(codes[k]);
    } else if (c == 'x' && i + 1 < s.size() && hex(s[i + 1]) >= 0) {
      for (int n = 0; n < 2 && i + 1 < s.size() && hex(s[i + 1]) >= 0; ++n)
        value = value * 16 + hex(s[++i]);
      out.push_back(static_cast<char>(value));
    } else if (octal(c)) {
      value = c - '0';
      for (int n = 0; n < 2 && i + 1 < s.size() && octal(s[i + 1]); ++n)
        value = value * 8 + (s[++i] - '0');
      out.push_back(static_cast<char>(value & 0xFF));
    } else {
      out.push_back(c);
    }
  }
}

}  // namespace holdfast
