// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// Addresses that an online allocator would give, which sees one request at a time: the baseline for planners, which see all.
///
/// A block takes the smallest free chunk that holds it; one that fits nowhere, and cannot grow the chunk at the end of the heap,
/// waits, and is put at the end when it is released. Threads: a value. Cost: O(log chunks) comparisons, O(chunks) moves a call;
/// memory for the highest `id`.
/// Source: XLA LazyBestFitHeap.
class LazyBestFit {
 public:
  /// Gives block `id` room. Errors: invalid_argument (negative size, alignment below 1), already_exists (it is alive),
  /// over_budget (the heap could pass 2^63 bytes).
  constexpr Error allocate(std::uint32_t id, Bytes size, Bytes alignment = 1) {
    if (size < 0 || alignment < 1) return fault(Errc::invalid_argument, "a block needs a size and an alignment", id);
    if (id < blocks_.size() && blocks_[id].alive) return fault(Errc::already_exists, "the block is alive", id);
    Bytes most = 0;
    if (!checked_add(most_, size, most) || !checked_add(most, alignment - 1, most))
      return fault(Errc::over_budget, "the sizes of all blocks together pass 2^63 bytes", id);
    most_ = most;
    if (id >= blocks_.size()) blocks_.resize(static_cast<std::size_t>(id) + 1, Block{});
    Block& b = blocks_[id];
    b = {size, alignment, size == 0 ? Bytes{0} : waiting, true};
    if (size == 0) return {};
    for (auto at = place_of({0, size}); at != by_size_.end(); ++at) {
      const Chunk chunk = *at;
      const Bytes start = align_up(chunk.low, alignment);
      if (start > chunk.high - size) continue;
      take(chunk);
      b.offset = start;
      give({chunk.low, start});
      give({start + size, chunk.high});
      return {};
    }
    if (by_low_.empty() || by_low_.back().high != size_) return {};
    const Chunk last = by_low_.back();
    const Bytes start = align_up(last.low, alignment);
    if (start >= size_) return {};
    take(last);
    b.offset = start;
    size_ = start + size;
    give({last.low, start});
    return {};
  }

  /// Takes block `id` back; a block that waits is put at the end of the heap now. Errors: not_found (it is not alive).
  constexpr Error release(std::uint32_t id) {
    if (id >= blocks_.size() || !blocks_[id].alive) return fault(Errc::not_found, "the block is not alive", id);
    Block& b = blocks_[id];
    b.alive = false;
    if (b.size == 0) return {};
    if (b.offset == waiting) {
      b.offset = align_up(size_, b.alignment);
      give({size_, b.offset});
      size_ = b.offset + b.size;
    }
    give({b.offset, b.offset + b.size});
    return {};
  }

  /// Where a block was put at last; `waiting` while that is not decided.
  [[nodiscard]] constexpr Bytes offset(std::uint32_t id) const noexcept {
    return id < blocks_.size() ? blocks_[id].offset : waiting;
  }
  /// The bytes of the heap so far.
  [[nodiscard]] constexpr Bytes size() const noexcept { return size_; }
  /// Tells whether nothing is alive and all of the heap is one free chunk again.
  [[nodiscard]] constexpr bool all_free() const noexcept {
    return size_ == 0 || (by_low_.size() == 1 && by_low_[0].low == 0 && by_low_[0].high == size_);
  }

  static constexpr Bytes waiting = -1;

 private:
  struct Chunk {
    Bytes low;
    Bytes high;
  };
  struct Block {
    Bytes size = 0;
    Bytes alignment = 1;
    Bytes offset = waiting;
    bool alive = false;
  };

  [[nodiscard]] static constexpr Error fault(Errc code, const char* what, std::uint32_t id) {
    Error e = make_error(code, what);
    e.stage = Stage::plan;
    e.at_kind = AtKind::argument;
    e.at = id;
    return e;
  }
  [[nodiscard]] constexpr std::vector<Chunk>::iterator place_of(const Chunk& chunk) {
    return std::lower_bound(by_size_.begin(), by_size_.end(), chunk, [](const Chunk& a, const Chunk& b) {
      return a.high - a.low != b.high - b.low ? a.high - a.low < b.high - b.low : a.low < b.low;
    });
  }
  [[nodiscard]] constexpr std::vector<Chunk>::iterator from_low(Bytes low) {
    return std::lower_bound(by_low_.begin(), by_low_.end(), low, [](const Chunk& c, Bytes l) { return c.low < l; });
  }
  constexpr void take(const Chunk& chunk) {
    by_size_.erase(place_of(chunk));
    by_low_.erase(from_low(chunk.low));
  }
  // Frees a chunk, which may be empty, and joins it with its neighbours.
  constexpr void give(Chunk chunk) {
    if (chunk.low == chunk.high) return;
    if (const auto next = from_low(chunk.low); next != by_low_.end() && next->low == chunk.high) {
      const Chunk joined = *next;
      take(joined);
      chunk.high = joined.high;
    }
    if (const auto next = from_low(chunk.low); next != by_low_.begin() && (next - 1)->high == chunk.low) {
      const Chunk joined = *(next - 1);
      take(joined);
      chunk.low = joined.low;
    }
    by_size_.insert(place_of(chunk), chunk);
    by_low_.insert(from_low(chunk.low), chunk);
  }

  std::vector<Block> blocks_;
  std::vector<Chunk> by_low_;   // free, never touching each other
  std::vector<Chunk> by_size_;  // the same, the smallest first, then the lowest
  Bytes size_ = 0;
  Bytes most_ = 0;  // no heap of what was asked for can be larger
};

}  // namespace holdfast
