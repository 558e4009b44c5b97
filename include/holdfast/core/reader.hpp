// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "holdfast/core/config.hpp"

namespace holdfast {

/// A set of bits for each character: what a reader may skip, or must stop at.
using CharTable = std::array<std::uint8_t, 256>;

/// Finds a character at run time as fast as the machine can, in a constant expression at all.
[[nodiscard]] constexpr std::size_t find_char(std::string_view text, char c) noexcept {
  if (std::is_constant_evaluated() || text.empty()) {
    for (std::size_t i = 0; i < text.size(); ++i)
      if (text[i] == c) return i;
    return text.size();
  }
  const void* at = std::memchr(text.data(), c, text.size());
  return at == nullptr ? text.size()
                       : static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
}

/// Gives the line and column of an offset, both counted from 1; one past the end is the place after
/// the last word.
///
/// Cost: O(offset).
[[nodiscard]] constexpr std::uint64_t place_of(std::string_view text, std::size_t offset) noexcept;

/// A cursor over untrusted text or bytes: no call leaves them, whatever they hold.
///
/// `peek` gives 0 at the end, so that scanners need one test a character. Threads: as a pointer.
class Reader {
 public:
  constexpr explicit Reader(std::string_view text) noexcept
      : begin_(text.data()), at_(text.data()), end_(text.data() + text.size()) {}

  [[nodiscard]] constexpr bool at_end() const noexcept { return at_ == end_; }
  [[nodiscard]] constexpr std::size_t offset() const noexcept {
    return static_cast<std::size_t>(at_ - begin_);
  }
  [[nodiscard]] constexpr std::size_t remaining() const noexcept {
    return static_cast<std::size_t>(end_ - at_);
  }
  /// All that is still unread.
  [[nodiscard]] constexpr std::string_view rest() const noexcept { return {at_, remaining()}; }
  /// What was read since an earlier offset.
  [[nodiscard]] constexpr std::string_view since(std::size_t offset) const noexcept {
    return {begin_ + offset, static_cast<std::size_t>(at_ - begin_) - offset};
  }
  /// A part of the whole text.
  [[nodiscard]] constexpr std::string_view text_at(std::size_t offset,
                                                   std::size_t size) const noexcept {
    return {begin_ + offset, size};
  }
  [[nodiscard]] constexpr char peek() const noexcept { return at_ != end_ ? *at_ : '\0'; }
  [[nodiscard]] constexpr char peek(std::size_t ahead) const noexcept {
    return ahead < remaining() ? at_[ahead] : '\0';
  }
  /// Moves forward, at most to the end.
  constexpr void skip(std::size_t count) noexcept {
    at_ += count < remaining() ? count : remaining();
  }
  /// Moves to an offset that was read before, or to the end.
  constexpr void seek(std::size_t offset) noexcept {
    at_ = offset <= static_cast<std::size_t>(end_ - begin_) ? begin_ + offset : end_;
  }
  /// Takes one character if it is the next one.
  constexpr bool take(char c) noexcept {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  /// Takes a text if it comes next.
  constexpr bool take(std::string_view word) noexcept {
    if (!rest().starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  /// Skips characters that have a bit of `mask`; gives what was skipped. Cost: a table look-up a
  /// character.
  constexpr std::string_view take_while(const CharTable& table, std::uint8_t mask) noexcept {
    const char* const from = at_;
    const char* p = at_;
    while (p != end_ && (table[static_cast<unsigned char>(*p)] & mask) != 0) ++p;
    at_ = p;
    return {from, static_cast<std::size_t>(p - from)};
  }
  /// Skips to the next character that has a bit of `mask`, or to the end.
  constexpr void skip_until(const CharTable& table, std::uint8_t mask) noexcept {
    const char* p = at_;
    while (p != end_ && (table[static_cast<unsigned char>(*p)] & mask) == 0) ++p;
    at_ = p;
  }
  /// Skips to the next such character, or to the end. Cost: as `memchr`.
  constexpr void skip_to(char c) noexcept { at_ += find_char(rest(), c); }

 private:
  const char* begin_;
  const char* at_;
  const char* end_;
};

constexpr std::uint64_t place_of(std::string_view text, std::size_t offset) noexcept {
  if (offset >= text.size()) {
    offset = text.size();
    // What is missing at the end belongs to the last line that has something, not to the empty one
    // after it.
    while (offset > 0 && (text[offset - 1] == '\n' || text[offset - 1] == '\r' ||
                          text[offset - 1] == ' ' || text[offset - 1] == '\t'))
      --offset;
  }
  std::uint64_t line = 1;
  std::size_t start = 0;
  for (std::size_t i = 0; i < offset; ++i)
    if (text[i] == '\n') ++line, start = i + 1;
  const std::uint64_t column = offset - start + 1;
  return (line << 32) | (column & 0xFFFFFFFFu);
}

}  // namespace holdfast
