// hlo: reads and writes HLO text, HLO protos and XLA's dumps.
// In the flow: first; text or bytes become a Module, a Module becomes text again.
// Everything read is untrusted: bounded in depth, count and bytes, in time linear in its size.
// It decides nothing about memory and changes no program.
// All of it works in a constant expression.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "holdfast/core/reader.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast::detail {

inline constexpr std::uint8_t is_ident = 1;  // A-Z a-z 0-9 _ . -
inline constexpr std::uint8_t is_ident_start = 2;
inline constexpr std::uint8_t is_digit = 4;
inline constexpr std::uint8_t is_space = 8;
inline constexpr std::uint8_t is_run = 16;        // what an unquoted attribute value is made of
inline constexpr std::uint8_t is_dimension = 32;  // inside the brackets of a plainly written shape
inline constexpr std::uint8_t is_balance = 64;  // where a scan for the closing bracket has to look
inline constexpr std::uint8_t is_layout = 128;  // inside the braces of a plainly written layout

inline constexpr CharTable hlo_chars = [] {
  CharTable t{};
  const auto set = [&t](std::string_view chars, int bit) {
    for (const char c : chars) {
      std::uint8_t& to = t[static_cast<unsigned char>(c)];
      to = static_cast<std::uint8_t>(to | bit);
    }
  };
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
  constexpr std::string_view digits = "0123456789";
  set(letters, is_ident | is_ident_start | is_run | is_layout);
  set(digits, is_ident | is_digit | is_run | is_dimension | is_layout);
  set(".-", is_ident | is_run);
  set("+<>?*#%=|:;@!&^~$", is_run);
  set(" \t\r\n", is_space);
  set(",<=?", is_dimension);
  set(",:()*#+~", is_layout);
  set("(){}[]\"'/", is_balance);
  return t;
}();

/// Reads the words, names, numbers and groups of HLO text. The first failure stays; after it
/// nothing is of use.
class Lexer : public Reader {
 public:
  constexpr Lexer(std::string_view text, std::uint32_t depth_limit) noexcept
      : Reader(text), depth_limit_(depth_limit) {}

  Error failure;  ///< with a byte offset

  /// Records the first failure; always false.
  HOLDFAST_COLD constexpr bool fail_at(std::size_t offset, const char* what,
                                       Errc code = Errc::corrupt) noexcept {
    if (failure.ok()) failure = make_error_at(code, what, offset);
    return false;
  }
  HOLDFAST_COLD constexpr bool fail(const char* what, Errc code = Errc::corrupt) noexcept {
    return fail_at(offset(), what, code);
  }
  HOLDFAST_COLD constexpr bool fail_depth() noexcept {
    if (failure.ok()) {
      failure = make_error_at(Errc::corrupt, "nested more deeply than the depth limit", offset());
      failure.available = depth_limit_;
    }
    return false;
  }
  [[nodiscard]] constexpr bool too_deep(std::size_t depth) noexcept {
    return depth > depth_limit_ && !fail_depth();
  }

  /// Skips blanks and comments.
  [[gnu::always_inline]] constexpr void skip_space() noexcept {
    if (peek() == ' ') skip(1);
    if (peek() <= ' ' || peek() == '/') skip_long_space();
  }
  constexpr bool expect(char c, const char* what) noexcept {
    skip_space();
    return take(c) || fail(what);
  }
  /// A word of letters, digits, `_ . -`; empty when there is none.
  constexpr std::string_view word() noexcept {
    return (hlo_chars[static_cast<unsigned char>(peek())] & is_ident_start) != 0
               ? take_while(hlo_chars, is_ident)
               : std::string_view{};
  }
  /// The word that comes next, left unread.
  constexpr std::string_view peek_word() noexcept {
    const std::size_t from = offset();
    const std::string_view w = word();
    seek(from);
    return w;
  }
  /// A name after `%`, which was taken.
  constexpr bool percent_name(std::string_view& out) noexcept {
    out = word();
    return !out.empty() || fail("a name has to follow %");
  }
  /// A number that may be negative.
  constexpr bool integer(std::int64_t& out) noexcept {
    const std::size_t from = offset();
    const bool negative = take('-');
    const std::string_view digits = take_while(hlo_chars, is_digit);
    if (digits.empty()) return fail_at(from, "expected a number");
    std::int64_t value = 0;
    for (const char c : digits) {
      const std::int64_t digit = c - '0';
      constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
      if (value > (most - digit) / 10) return fail_at(from, "number is too large");
      value = value * 10 + digit;
    }
    out = negative ? -value : value;
    return true;
  }
  /// A number from 0 to the largest of 32 bits but one, which means "none" to ids.
  constexpr bool index(std::uint32_t& out) noexcept {
    const std::size_t from = offset();
    std::int64_t value = 0;
    if (!integer(value)) return false;
    if (value < 0) return fail_at(from, "number is negative");
    if (value >= 0xFFFFFFFF) return fail_at(from, "number is too large");
    out = static_cast<std::uint32_t>(value);
    return true;
  }
  constexpr bool boolean(bool& out) noexcept {
    const std::size_t from = offset();
    const std::string_view w = word();
    if (w != "true" && w != "false") return fail_at(from, "expected true or false");
    out = w == "true";
    return true;
  }
  /// A quoted string; what is read goes from quote to quote.
  constexpr bool quoted() noexcept {
    const std::size_t from = offset();
    const char quote = peek();
    if (quote != '"' && quote != '\'') return fail("expected a string");
    skip(1);
    for (;;) {
      const std::string_view left = rest();
      const std::size_t end = find_char(left, quote);
      if (end == left.size()) {
        skip(end);
        return fail_at(from, "string is not closed");
      }
      std::size_t slashes = 0;
      while (slashes < end && left[end - slashes - 1] == '\\') ++slashes;
      skip(end + 1);
      if (slashes % 2 == 0) return true;
    }
  }
  /// A group `{...}`, `(...)` or `[...]`: only its own kind of bracket is counted, strings and
  /// comments are honoured.
  constexpr bool group() noexcept { return balanced(false); }
  /// The braces of a raw backend_config: only double-quoted strings are honoured.
  constexpr bool raw_json() noexcept { return balanced(true); }

  /// An attribute's value of unknown meaning: strings, groups and runs of characters, glued
  /// together.
  constexpr bool value() noexcept {
    const std::size_t from = offset();
    for (;;) {
      const char c = peek();
      if (c == '"' || c == '\'') {
        if (!quoted()) return false;
      } else if (c == '{' || c == '(' || c == '[') {
        if (!group()) return false;
      } else if (take_while(hlo_chars, is_run).empty()) {
        return offset() != from || fail("expected a value");
      }
    }
  }

 private:
  constexpr void skip_long_space() noexcept {
    for (;;) {
      take_while(hlo_chars, is_space);
      if (peek() != '/') return;
      if (!skip_comment()) return;
    }
  }
  HOLDFAST_COLD constexpr bool skip_comment() noexcept {
    const std::size_t from = offset();
    if (peek(1) == '/') {
      skip_to('\n');
      return true;
    }
    if (peek(1) != '*') return fail("/ begins no comment here");
    skip(2);
    for (;;) {
      skip_to('*');
      if (at_end()) return fail_at(from, "comment is not closed");
      skip(1);
      if (take('/')) return true;
    }
  }
  constexpr bool balanced(bool json) noexcept {
    const std::size_t from = offset();
    const char open = peek();
    const char close = open == '(' ? ')' : open == '[' ? ']' : '}';
    std::size_t depth = 0;
    for (;;) {
      skip_until(hlo_chars, is_balance);
      const char c = peek();
      if (c == '"' || (c == '\'' && !json)) {
        if (!quoted()) return false;
      } else if (c == '/' && !json && (peek(1) == '*' || peek(1) == '/')) {
        if (!skip_comment()) return false;
      } else if (at_end()) {
        return fail_at(from, "bracket is not closed");
      } else {
        skip(1);
        if (c == open) ++depth;
        if (c == close && --depth == 0) return true;
      }
    }
  }

  std::uint32_t depth_limit_;
};

}  // namespace holdfast::detail
