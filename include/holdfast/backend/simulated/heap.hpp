// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/core/block.hpp"
#include "holdfast/core/types.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// The bookkeeping of one finite piece of memory: the lowest place that fits, exact sizes, neighbours merged.
///
/// Threads: as any container. Cost: linear in the free ranges, logarithmic in the blocks.
class SimulatedHeap {
 public:
  SimulatedHeap() noexcept = default;
  explicit SimulatedHeap(Block arena) noexcept : arena_(arena) { free_.push_back(arena); }

  /// Takes the lowest place that is free and touches none of `avoid`; the empty block if there is none.
  [[nodiscard]] Block take(Bytes size, Alignment alignment, std::span<const Block> avoid, Tag tag) noexcept {
    for (std::size_t i = 0; i < free_.size(); ++i) {
      const Bytes skip = place_in(free_[i], size, alignment, avoid);
      if (skip < 0) continue;
      const Block was = free_[i], taken{was.data + skip, size};
      const Block rest{taken.data + size, was.size - skip - size};
      free_[i].size = skip;
      if (rest.size > 0) free_.insert(free_.begin() + static_cast<std::ptrdiff_t>(i + 1), rest);
      if (skip == 0) free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
      used_.insert(std::lower_bound(used_.begin(), used_.end(), taken.data, starts_before_block), {taken, tag});
      return taken;
    }
    return {};
  }
  /// Takes a block back; false, and nothing changed, if it is none of those taken.
  [[nodiscard]] bool give(Block block) noexcept {
    auto used = std::lower_bound(used_.begin(), used_.end(), block.data, starts_before_block);
    if (used == used_.end() || !(used->block == block)) return false;
    used_.erase(used);
    auto next = std::lower_bound(free_.begin(), free_.end(), block.data,
                                 [](const Block& b, const std::byte* at) noexcept { return b.data < at; });
    if (next != free_.begin() && end_of(*(next - 1)) == block.data) {
      (--next)->size += block.size;
    } else {
      next = free_.insert(next, block);
    }
    if (next + 1 != free_.end() && end_of(*next) == (next + 1)->data) {
      next->size += (next + 1)->size;
      free_.erase(next + 1);
    }
    return true;
  }

  [[nodiscard]] Block arena() const noexcept { return arena_; }
  [[nodiscard]] Bytes available() const noexcept {
    Bytes sum = 0;
    for (const Block& b : free_) sum += b.size;
    return sum;
  }
  [[nodiscard]] Bytes largest_free() const noexcept {
    Bytes largest = 0;
    for (const Block& b : free_) largest = std::max(largest, b.size);
    return largest;
  }
  /// Calls `visitor(Block, Tag)` for each block taken, in the order of addresses.
  template <class Visitor>
  void visit_blocks(Visitor visitor) const noexcept {
    for (const Used& used : used_) visitor(used.block, used.tag);
  }

 private:
  struct Used {
    Block block;
    Tag tag;
  };
  static bool starts_before_block(const Used& used, const std::byte* at) noexcept { return used.block.data < at; }
  [[nodiscard]] static std::byte* end_of(Block b) noexcept { return b.data + b.size; }

  // How far into a free range the block can begin; -1: nowhere. Every step passes one of `avoid`, so it ends.
  [[nodiscard]] static Bytes place_in(Block range, Bytes size, Alignment alignment, std::span<const Block> avoid) noexcept {
    const auto base = static_cast<Bytes>(reinterpret_cast<std::uintptr_t>(range.data));
    for (Bytes skip = 0;;) {
      Bytes place = 0;
      if (!checked_align_up(base + skip, alignment.value(), place)) return -1;
      skip = place - base;
      if (skip > range.size || size > range.size - skip) return -1;
      const Block* hit = nullptr;
      for (const Block& b : avoid)
        if (b.data < range.data + skip + size && range.data + skip < end_of(b)) hit = &b;
      if (hit == nullptr) return skip;
      skip = end_of(*hit) - range.data;
    }
  }

  Block arena_;
  std::vector<Block> free_;  // by address, never adjacent
  std::vector<Used> used_;   // by address
};

}  // namespace holdfast
