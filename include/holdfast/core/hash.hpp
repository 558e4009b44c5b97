// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace holdfast {

/// Mixes a word into a hash: every bit of either reaches every bit of the result.
[[nodiscard]] constexpr std::uint64_t mix_hash(std::uint64_t h, std::uint64_t word) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(h ^ 0xA0761D6478BD642Fu) * (word ^ 0xE7037ED1A0B428DBu);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

namespace detail {

inline std::uint64_t load_eight(const char* p) noexcept {
  std::uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}
inline std::uint32_t load_four(const char* p) noexcept {
  std::uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

}  // namespace detail

/// Hashes a text for a table in memory; the value differs between compile time and run time.
///
/// Another `seed` gives an unrelated function, for tables that must survive hostile keys.
[[nodiscard]] constexpr std::uint64_t hash_text(std::string_view text,
                                                std::uint64_t seed = 0) noexcept {
  std::uint64_t h = seed ^ (text.size() * 0x9E3779B97F4A7C15u);
  if (std::is_constant_evaluated()) {
    for (const char c : text) h = mix_hash(h, static_cast<unsigned char>(c));
    return h;
  }
  const char* p = text.data();
  std::size_t n = text.size();
  for (; n > 16; n -= 8, p += 8) h = mix_hash(h, detail::load_eight(p));
  if (n >= 8)
    return mix_hash(h ^ detail::load_eight(p), detail::load_eight(p + n - 8));  // they may overlap
  if (n >= 4) return mix_hash(h ^ detail::load_four(p), detail::load_four(p + n - 4));
  std::uint64_t tail = 0;
  for (std::size_t i = 0; i < n; ++i) tail = (tail << 8) | static_cast<unsigned char>(p[i]);
  return mix_hash(h, tail);
}

/// Compares two texts, short ones without a call.
[[nodiscard]] constexpr bool same_text(std::string_view a, std::string_view b) noexcept {
  if (std::is_constant_evaluated() || a.size() > 16 || a.size() < 4) return a == b;
  if (a.size() != b.size()) return false;
  const std::size_t n = a.size();
  const char* const p = a.data();
  const char* const q = b.data();
  if (n >= 8)
    return detail::load_eight(p) == detail::load_eight(q) &&
           detail::load_eight(p + n - 8) == detail::load_eight(q + n - 8);
  return detail::load_four(p) == detail::load_four(q) &&
         detail::load_four(p + n - 4) == detail::load_four(q + n - 4);
}

}  // namespace holdfast
