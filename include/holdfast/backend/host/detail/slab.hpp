// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace holdfast::detail {

inline constexpr std::uint32_t page_shift = 12, no_page = 0xFFFF'FFFF;
inline constexpr std::uint64_t page_bytes = 1u << page_shift;

// Small blocks: a class every 64 bytes up to 1 KiB, then every 128 up to 2 KiB. They lie 64 bytes past multiples of their size, and
// none on a page boundary: there, a block that a thread gives back is a run of pages, whatever its size.
inline constexpr std::uint32_t small_limit = 2048, small_classes = 24, slab_offset = 64;
[[nodiscard]] constexpr std::uint32_t class_bytes(std::uint32_t c) noexcept { return c < 16 ? (c + 1) * 64 : 1024 + (c - 15) * 128; }

// Near sizes have a stack each in a thread's cache: the classes of small blocks, then 1 to 16 pages.
inline constexpr std::uint32_t near_pages = 16, near_limit = near_pages * 4096, near_stacks = small_classes + near_pages;
inline constexpr std::array<std::uint8_t, near_limit / 64 + 1> near_of_units = [] {
  std::array<std::uint8_t, near_limit / 64 + 1> table{};
  std::uint32_t c = 0;
  for (std::uint32_t units = 1; units < table.size(); ++units) {
    if (units * 64 > (c < small_classes ? class_bytes(c) : (c - small_classes + 1) * 4096)) ++c;
    table[units] = static_cast<std::uint8_t>(c);
  }
  return table;
}();
/// The stack of a block of 1 to `near_limit` bytes; of one up to `small_limit` it is also its class.
[[nodiscard]] constexpr std::uint32_t near_of(std::uint64_t bytes) noexcept { return near_of_units[(bytes + 63) / 64]; }
[[nodiscard]] constexpr std::uint32_t pages_of(std::uint64_t bytes) noexcept {
  return static_cast<std::uint32_t>((bytes + page_bytes - 1) >> page_shift);
}

/// Tells whether a block begins on a page boundary.
[[nodiscard]] inline bool on_page(const std::byte* p) noexcept { return reinterpret_cast<std::uintptr_t>(p) % page_bytes == 0; }

inline constexpr std::uint32_t slab_pages = 8, slab_bytes = slab_pages * 4096;

/// What is known of a run of pages that is cut into blocks of one class. Its free blocks carry the list of them.
struct Slab {
  Slab *next, *prev;
  std::uint32_t free;    // the first free block, counted from 1
  std::uint16_t used;    // blocks given out
  std::uint16_t carved;  // places that were ever looked at
  std::uint32_t size_class;
  bool listed;           // among those that may have a free block

  [[nodiscard]] std::uint32_t capacity() const noexcept { return (slab_bytes - slab_offset) / class_bytes(size_class); }
  [[nodiscard]] bool empty() const noexcept { return used == 0; }

  /// Gives a block; null when all are out.
  std::byte* take(std::byte* data) noexcept {
    std::byte* p = nullptr;
    if (free != 0) {
      p = place(data, free);
      std::memcpy(&free, p, sizeof free);
    } else {
      do {
        if (carved == capacity()) return nullptr;
        p = place(data, ++carved);
      } while (static_cast<std::uint64_t>(p - data) % page_bytes == 0);
    }
    ++used;
    return p;
  }
  void give(std::byte* data, std::byte* p) noexcept {
    std::memcpy(p, &free, sizeof free);
    free = static_cast<std::uint32_t>(p - data - slab_offset) / class_bytes(size_class) + 1;
    --used;
  }

 private:
  [[nodiscard]] std::byte* place(std::byte* data, std::uint32_t at) const noexcept {
    return data + slab_offset + (at - 1) * class_bytes(size_class);
  }
};

}  // namespace holdfast::detail
