// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "holdfast/core/hash.hpp"

namespace holdfast {

/// Finds the number of a word in a fixed list: a hash table made at compile time.
///
/// `Slots` is a power of two of at least twice the words. Cost: a few characters and about one
/// comparison.
template <std::size_t Slots>
class WordTable {
  static_assert((Slots & (Slots - 1)) == 0);

 public:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  template <std::size_t N>
  constexpr explicit WordTable(const std::string_view (&words)[N]) noexcept {
    static_assert(N * 2 <= Slots);
    for (std::size_t i = 0; i < N; ++i) {
      std::size_t at = slot_of(words[i]);
      while (numbers_[at] != 0) at = (at + 1) & (Slots - 1);
      words_[at] = words[i];
      numbers_[at] = static_cast<std::uint16_t>(i + 1);
    }
  }

  /// The place of a word in the list; `none` for another word.
  [[nodiscard]] constexpr std::size_t find(std::string_view word) const noexcept {
    if (word.empty()) return none;
    for (std::size_t at = slot_of(word); numbers_[at] != 0; at = (at + 1) & (Slots - 1))
      if (same_text(word, words_[at])) return numbers_[at] - 1u;
    return none;
  }

 private:
  static constexpr std::size_t slot_of(std::string_view word) noexcept {
    const auto at = [word](std::size_t i) {
      return static_cast<std::uint32_t>(static_cast<unsigned char>(word[i]));
    };
    const std::size_t n = word.size();
    std::uint32_t h = static_cast<std::uint32_t>(n) + (at(0) << 6) + (at(n / 2) << 12) +
                      (at(n - 1) << 18) + (at(n / 3) << 3);
    h *= 0x9E3779B1u;
    return (h >> 16) & (Slots - 1);
  }

  std::array<std::string_view, Slots> words_{};
  std::array<std::uint16_t, Slots> numbers_{};
};

}  // namespace holdfast
