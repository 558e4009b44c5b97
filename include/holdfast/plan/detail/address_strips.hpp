// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/core/units.hpp"

namespace holdfast::detail {

/// Addresses from `low` to `high`.
struct Strip {
  Bytes low;
  Bytes high;
};

/// Rounds up without a division where nothing is to be rounded.
[[nodiscard]] constexpr Bytes settle(Bytes low, Bytes alignment) noexcept {
  return alignment == 1 ? low : align_up(low, alignment);
}

/// A set of addresses: the strips that it consists of, in chunks, so that runs without a gap worth a look are passed at once.
///
/// `Address` is what keeps one: all of them must fit. Threads: a value. Cost: adding O(chunks + strips of a chunk), small
/// constants.
template <class Address>
class AddressStrips {
 public:
  /// Where a walk from low to high stands.
  struct Cursor {
    std::uint32_t chunk = 0;
    std::uint32_t strip = 0;
  };
  static constexpr Strip no_more{max_bytes, max_bytes};

  [[nodiscard]] constexpr bool empty() const noexcept { return chunks_.empty(); }
  constexpr void clear() noexcept { std::vector<Chunk>().swap(chunks_); }

  template <class Visit>
  constexpr void each(const Visit& visit) const {
    for (const Chunk& c : chunks_)
      for (const Kept& s : c.strips) visit(Strip{Bytes{s.low}, Bytes{s.high}});
  }

  /// What it keeps on the heap, without what the heap itself needs. Cost: O(chunks).
  [[nodiscard]] constexpr std::size_t bytes() const noexcept {
    std::size_t sum = chunks_.capacity() * sizeof(Chunk);
    for (const Chunk& c : chunks_) sum += c.strips.capacity() * sizeof(Kept);
    return sum;
  }

  /// Adds a strip and closes what gaps it leaves that are smaller than `least_gap`.
  constexpr void add(Strip added, Bytes least_gap) {
    const auto below = [&](Bytes high) { return high < added.low && added.low - high >= least_gap; };
    std::size_t at = static_cast<std::size_t>(
        std::partition_point(chunks_.begin(), chunks_.end(), [&](const Chunk& c) { return below(c.high); }) -
        chunks_.begin());
    if (at == chunks_.size()) {
      if (at == 0 || chunks_.back().strips.size() >= most_strips / 2) add_chunk(at);
      at = chunks_.size() - 1;
    }
    std::vector<Kept>& strips = chunks_[at].strips;
    const auto first =
        std::partition_point(strips.begin(), strips.end(), [&](const Kept& s) { return below(s.high); });
    if (first != strips.end() && first->low <= added.low && added.high <= first->high) return;
    Bytes top = first != strips.begin() ? Bytes{(first - 1)->high} : at != 0 ? chunks_[at - 1].high : 0;
    const Bytes new_gap = std::max<Bytes>(added.low - top, 0);
    Bytes narrowed = 0;  // the widest gap that gets smaller
    const auto joins = [&](const Kept& s) {
      narrowed = std::max(narrowed, Bytes{s.low} - top);
      top = s.high;
      if (s.low > added.high && s.low - added.high >= least_gap) return false;
      added.low = std::min(added.low, Bytes{s.low});
      added.high = std::max(added.high, Bytes{s.high});
      return true;
    };
    auto last = first;
    while (last != strips.end() && joins(*last)) ++last;
    if (last == strips.end()) {
      // The chunk ends with the strip, and so may some of the next ones.
      std::size_t next = at + 1;
      for (; next < chunks_.size(); ++next) {
        std::vector<Kept>& more = chunks_[next].strips;
        auto gone = more.begin();
        while (gone != more.end() && joins(*gone)) ++gone;
        if (gone == more.end()) continue;
        more.erase(more.begin(), gone);
        break;
      }
      chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                    chunks_.begin() + static_cast<std::ptrdiff_t>(next));
    }
    Chunk& chunk = chunks_[at];
    const Kept kept{static_cast<Address>(added.low), static_cast<Address>(added.high)};
    if (first == last) {
      const auto before = first - strips.begin();
      if (strips.size() == strips.capacity()) strips.reserve(strips.size() + growth);
      chunk.strips.insert(strips.begin() + before, kept);
    } else {
      *first = kept;
      chunk.strips.erase(first + 1, last);
    }
    chunk.high = chunk.strips.back().high;
    if (chunk.strips.size() > most_strips) {
      add_chunk(at + 1);
      std::vector<Kept>& all = chunks_[at].strips;
      const auto middle = all.begin() + static_cast<std::ptrdiff_t>(most_strips / 2);
      chunks_[at + 1].strips.assign(middle, all.end());
      std::vector<Kept>(all.begin(), middle).swap(all);
      measure(at);
      measure(at + 1);
      return;
    }
    if (narrowed < chunk.widest) {
      chunk.widest = std::max(chunk.widest, new_gap);
    } else {
      measure(at);
    }
    if (at + 1 < chunks_.size() && narrowed >= chunks_[at + 1].widest) measure(at + 1);
  }

  /// Raises `start` to where `size` bytes are free of the set, and gives the strip above them or `no_more`.
  ///
  /// `start` only rises over one walk, and is a multiple of `alignment`.
  constexpr Strip rise(Cursor& cursor, Bytes& start, Bytes size, Bytes alignment) const noexcept {
    for (; cursor.chunk < chunks_.size(); ++cursor.chunk, cursor.strip = 0) {
      const Chunk& c = chunks_[cursor.chunk];
      if (c.high <= start) continue;
      if (c.widest < size) {
        start = settle(c.high, alignment);
        continue;
      }
      for (; cursor.strip < c.strips.size(); ++cursor.strip) {
        const Strip s{Bytes{c.strips[cursor.strip].low}, Bytes{c.strips[cursor.strip].high}};
        if (s.high <= start) continue;
        if (s.low > start && s.low - start >= size) return s;
        start = settle(s.high, alignment);
      }
    }
    return no_more;
  }

 private:
  static constexpr std::size_t most_strips = 64;
  static constexpr std::size_t growth = 8;
  struct Kept {
    Address low;
    Address high;
  };
  struct Chunk {
    std::vector<Kept> strips;
    Bytes high = 0;    // of the last one
    Bytes widest = 0;  // gap below any of them
  };

  constexpr void add_chunk(std::size_t at) {
    if (chunks_.size() == chunks_.capacity()) chunks_.reserve(chunks_.size() + 1 + chunks_.size() / 4);
    chunks_.insert(chunks_.begin() + static_cast<std::ptrdiff_t>(at), Chunk{});
  }
  constexpr void measure(std::size_t at) noexcept {
    Chunk& c = chunks_[at];
    Bytes top = at == 0 ? 0 : chunks_[at - 1].high;
    c.widest = 0;
    for (const Kept& s : c.strips) {
      c.widest = std::max(c.widest, s.low - top);
      top = s.high;
    }
    c.high = top;
  }

  std::vector<Chunk> chunks_;
};

}  // namespace holdfast::detail
