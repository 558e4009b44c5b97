// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "holdfast/core/block.hpp"

namespace holdfast {

/// Which bytes of a value are written and tested: all, or the words at both ends of it and of each
/// of its 4 KiB.
enum class PatternCheck : std::uint8_t { full, page };

/// The bytes that stand for one write of a value: words that depend on a stamp and on their place
/// in the value.
///
/// Threads: a value.
class BytePattern {
 public:
  static constexpr Bytes page = 4096;

  explicit constexpr BytePattern(std::uint64_t stamp) noexcept : seed_(mix(stamp)) {}

  /// The first word and what is added from word to word, for who writes them elsewhere.
  [[nodiscard]] constexpr std::uint64_t first_word() const noexcept { return seed_; }
  static constexpr std::uint64_t step = 0x9E3779B97F4A7C15u;

  /// Writes the bytes.
  void write(Block to, PatternCheck check) const noexcept {
    each_part(to.size, check, [&](Bytes from, Bytes words) {
      std::byte* const at = to.data + from;
      const std::uint64_t first = seed_ + static_cast<std::uint64_t>(from / word) * step;
      for (Bytes i = 0; i < words; ++i) {
        const std::uint64_t w = first + static_cast<std::uint64_t>(i) * step;
        std::memcpy(at + i * word, &w, word);
      }
      return true;
    });
    if (const Bytes rest = to.size % word; rest != 0) {
      const std::uint64_t w = word_at(to.size - rest);
      std::memcpy(to.data + to.size - rest, &w, static_cast<std::size_t>(rest));
    }
  }
  /// The offset of the first byte that is another one; the size when there is none.
  [[nodiscard]] Bytes compare(Block with, PatternCheck check) const noexcept {
    Bytes at = with.size;
    each_part(with.size, check, [&](Bytes from, Bytes words) {
      if (same(with.data + from, from, words)) return true;
      while (same(with.data + from, from, 1)) from += word;
      at = from + first_byte(with.data + from, word_at(from), word);
      return false;
    });
    const Bytes rest = with.size % word;
    if (at != with.size || rest == 0) return at;
    const Bytes k = first_byte(with.data + with.size - rest, word_at(with.size - rest), rest);
    return k == rest ? with.size : with.size - rest + k;
  }

 private:
  static constexpr Bytes word = 8;

  static constexpr std::uint64_t mix(std::uint64_t x) noexcept {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }
  [[nodiscard]] constexpr std::uint64_t word_at(Bytes offset) const noexcept {
    return seed_ + static_cast<std::uint64_t>(offset / word) * step;
  }

  /// Calls `f(offset, words)` for the parts that are looked at until it gives false; what is left
  /// of the last word is not in one.
  template <class F>
  static void each_part(Bytes size, PatternCheck check, F&& f) noexcept {
    const Bytes whole = size / word * word;
    if (check == PatternCheck::full) {
      for (Bytes from = 0; from < whole; from += page)
        if (!f(from, std::min(page, whole - from) / word)) return;
      return;
    }
    for (Bytes from = 0; from < whole; from += page) {
      const Bytes last = std::min(page, whole - from) - word;
      if (!f(from, Bytes{1}) || (last > 0 && !f(from + last, Bytes{1}))) return;
    }
  }
  [[nodiscard]] bool same(const std::byte* at, Bytes from, Bytes words) const noexcept {
    const std::uint64_t first = word_at(from);
    std::uint64_t wrong = 0;
    for (Bytes i = 0; i < words; ++i) {
      std::uint64_t w = 0;
      std::memcpy(&w, at + i * word, word);
      wrong |= w ^ (first + static_cast<std::uint64_t>(i) * step);
    }
    return wrong == 0;
  }
  static Bytes first_byte(const std::byte* at, std::uint64_t expected, Bytes count) noexcept {
    std::byte bytes[word];
    std::memcpy(bytes, &expected, word);
    Bytes k = 0;
    while (k < count && at[k] == bytes[k]) ++k;
    return k;
  }

  std::uint64_t seed_;
};

}  // namespace holdfast
