// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace holdfast::detail {

inline constexpr std::uint32_t page_shift = 12, no_page = 0xFFFF'FFFF;
inline constexpr std::uint64_t page_bytes = 1u << page_shift;

// Small blocks: a class every 64 bytes up to 1 KiB, then every 128 up to 2 KiB; 64 is the alignment that a block always has.
inline constexpr std::uint32_t small_limit = 2048, small_classes = 24;
[[nodiscard]] constexpr std::uint32_t class_bytes(std::uint32_t c) noexcept { return c < 16 ? (c + 1) * 64 : 1024 + (c - 15) * 128; }
inline constexpr std::array<std::uint8_t, small_limit / 64 + 1> class_of_units = [] {
  std::array<std::uint8_t, small_limit / 64 + 1> table{};
  for (std::uint32_t units = 1, c = 0; units < table.size(); ++units) {
    if (units * 64 > class_bytes(c)) ++c;
    table[units] = static_cast<std::uint8_t>(c);
  }
  return table;
}();
/// The class of a block of 1 to `small_limit` bytes.
[[nodiscard]] constexpr std::uint32_t class_of(std::uint64_t bytes) noexcept { return class_of_units[(bytes + 63) / 64]; }
/// The alignment that every block of a class has.
[[nodiscard]] constexpr std::uint32_t class_alignment(std::uint32_t c) noexcept { return class_bytes(c) & (~class_bytes(c) + 1); }

inline constexpr std::uint32_t slab_pages = 8, slab_bytes = slab_pages * 4096;

/// What is known of a run of pages that is cut into blocks of one class. Its free blocks carry the list of them.
struct Slab {
  Slab *next, *prev;
  std::uint32_t free;    // the first free block, counted from 1
  std::uint16_t used;    // blocks given out
  std::uint16_t carved;  // blocks that were ever given out
  std::uint32_t size_class;

  [[nodiscard]] std::uint32_t capacity() const noexcept { return slab_bytes / class_bytes(size_class); }
  [[nodiscard]] bool full() const noexcept { return used == capacity(); }

  /// Gives a block of a slab that is not full.
  std::byte* take(std::byte* data) noexcept {
    std::uint32_t at = free;
    if (at == 0)
      at = ++carved;
    else
      std::memcpy(&free, data + (at - 1) * class_bytes(size_class), sizeof free);
    ++used;
    return data + (at - 1) * class_bytes(size_class);
  }
  void give(std::byte* data, std::byte* p) noexcept {
    std::memcpy(p, &free, sizeof free);
    free = static_cast<std::uint32_t>(p - data) / class_bytes(size_class) + 1;
    --used;
  }
};

}  // namespace holdfast::detail
