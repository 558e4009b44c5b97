// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "holdfast/backend/bfc/detail/chunk.hpp"

namespace holdfast {

/// A request's stamp: any chunk will do, whenever it was freed.
inline constexpr std::uint64_t bfc_any_time = ~std::uint64_t{0};

namespace detail {

struct BfcRequest {
  Bytes size, rounded;
  std::uint64_t alignment;     ///< at least a granule
  std::uint64_t freed_before;  ///< the newest stamp that a chunk may have
  BfcEnd end;

  /// Tells whether a piece of memory holds the block.
  [[nodiscard]] bool fits(const std::byte* data, Bytes room) const noexcept {
    const std::uint64_t padding = (0 - bfc_address(data)) & (alignment - 1);
    return room >= rounded && padding <= static_cast<std::uint64_t>(room - rounded);
  }
  [[nodiscard]] bool fits(const BfcChunk& c) const noexcept { return c.freed_at <= freed_before && fits(c.data, c.size); }
};

/// Chunks freed at rising stamps, the first and the last; 0: none.
struct BfcQueue {
  std::uint32_t oldest = 0, newest = 0;
};

/// The stamps of a pool in which one time counts for all: a stamped chunk is joined with nothing before its stamp is safe.
class BfcStamps {
 public:
  static constexpr bool join_at_once = false;
  [[nodiscard]] static constexpr std::uint64_t number(std::uint64_t stamp) noexcept { return stamp; }
  [[nodiscard]] BfcQueue& queue(std::uint64_t) noexcept { return queue_; }
  [[nodiscard]] static bool joins(std::uint64_t, std::uint64_t neighbour) noexcept { return neighbour == 0; }

 private:
  BfcQueue queue_;
};

/// Where requests are placed: free chunks in an index for each end, between them the gap; cut, joined, and queued while stamped.
///
/// `Stamps` says which queue a stamp belongs to and which neighbours are joined at once. Of two-ended space the free chunk at
/// the border of the ends is always the gap, never a hole, so that neither end's offsets depend on the other.
template <class Index, class Split, bool TwoEnded, class Stamps = BfcStamps>
class BfcSpace {
 public:
  explicit BfcSpace(Split split) noexcept : split_(split) {}

  [[nodiscard]] Stamps& stamps() noexcept { return stamps_; }

  [[nodiscard]] BfcChunks& chunks() noexcept { return chunks_; }
  [[nodiscard]] const BfcChunks& chunks() const noexcept { return chunks_; }
  [[nodiscard]] const Split& split() const noexcept { return split_; }
  /// The largest free chunk that an end may take.
  [[nodiscard]] Bytes largest(BfcEnd end) const noexcept {
    const Bytes own = free_[number(end)].largest(chunks_.all());
    return TwoEnded ? std::max(own, gap_size()) : own;
  }
  [[nodiscard]] Bytes gap_size() const noexcept { return gap_ == 0 ? 0 : chunks_[gap_].size; }

  /// Takes a free chunk of at most `most` bytes and cuts it, for which two records are spare; 0: none fits.
  std::uint32_t place(const BfcRequest& request, Bytes most) noexcept {
    const std::uint32_t c = find(request, most, [&](const BfcChunk& x) { return request.fits(x); });
    if (c != 0) return cut(c, request);
    if constexpr (TwoEnded)
      if (gap_ != 0 && request.fits(chunks_[gap_])) return cut(gap_, request);
    return 0;
  }
  /// The first hole of at most `most` bytes, in the index's order, that `fits`; 0: none.
  template <class Fits>
  [[nodiscard]] std::uint32_t find(const BfcRequest& request, Bytes most, Fits fits) noexcept {
    return holes(request.end).find(chunks_.all(), request.rounded, most, fits);
  }
  /// Cuts a hole that fits, for which two records are spare.
  std::uint32_t take(std::uint32_t hole, const BfcRequest& request) noexcept { return cut(hole, request); }
  /// Makes one block of holes side by side, from a place in `first` to one in a later one; what it does not take keeps its stamp.
  /// One record is spare.
  std::uint32_t place_over(std::uint32_t first, std::byte* at, Bytes size) noexcept {
    std::byte* const stop = at + size;
    Index& index = holes(chunks_[first].owner);
    std::uint32_t prev = chunks_[first].prev, next = first;
    if (at != chunks_[first].data) {
      prev = first;
      next = chunks_[first].next;
      index.move(chunks_.all(), first, chunks_[first].data, at - chunks_[first].data);
    }
    while (next != 0 && chunks_[next].data < stop) {
      const std::uint32_t c = next;
      if (stop < chunks_[c].end()) {
        index.move(chunks_.all(), c, stop, chunks_[c].end() - stop);
        break;
      }
      next = chunks_[c].next;
      index.erase(chunks_.all(), c);
      if (chunks_[c].freed_at != 0) unqueue(c);
      chunks_.drop(c);
    }
    return chunks_.make(at, size, BfcEnd::lower, prev, next);
  }
  /// Cuts a block of an end out of one of its holes, at a place within, for which two records are spare.
  std::uint32_t place_at(std::uint32_t hole, std::byte* at, Bytes size) noexcept { return cut(hole, at, size, chunks_[hole].owner); }
  /// Takes a chunk back, or a new one; a stamp other than 0 keeps it apart until it is safe, or from others than its like.
  void free(std::uint32_t c, std::uint64_t stamp) noexcept {
    chunks_[c].id = 0;
    chunks_[c].freed_at = stamp;
    if (stamp == 0) return settle(c);
    queue_behind(c, stamps_.queue(stamp).newest);
    if constexpr (Stamps::join_at_once)
      settle(c);
    else
      holes(chunks_[c].owner).insert(chunks_.all(), c);
  }
  /// Joins what was stamped before `frontier`, in the frontier's queue.
  void set_safe_frontier(std::uint64_t frontier) noexcept {
    const BfcQueue& queue = stamps_.queue(frontier);
    while (queue.oldest != 0 && chunks_[queue.oldest].freed_at < frontier) {
      const std::uint32_t c = queue.oldest;
      unqueue(c);
      holes(chunks_[c].owner).erase(chunks_.all(), c);
      chunks_[c].freed_at = 0;
      settle(c);
    }
  }
  /// Joins stamped chunks with their neighbours, the oldest first, until one holds the request.
  void join_stamped(const BfcRequest& request) noexcept {
    for (std::uint32_t c = stamps_.queue(0).oldest; c != 0;) {
      std::uint32_t after = chunks_[c].queue.newer;
      if (after != 0 && after == chunks_[c].next && chunks_[after].owner == chunks_[c].owner) after = chunks_[after].queue.newer;
      holes(chunks_[c].owner).erase(chunks_.all(), c);
      if (request.fits(chunks_[join(c, true)])) return;
      c = after;
    }
  }
  /// Forgets the chunks of a region, none of which is in use, from `head` before its first on.
  void drop(std::uint32_t head) noexcept {
    while (chunks_[head].next != 0) {
      const std::uint32_t c = chunks_[head].next;
      if (c == gap_)
        gap_ = 0;
      else
        holes(chunks_[c].owner).erase(chunks_.all(), c);
      if (chunks_[c].freed_at != 0) unqueue(c);
      chunks_.drop(c);
    }
    chunks_.drop(head);
  }

 private:
  [[nodiscard]] static constexpr std::size_t number(BfcEnd end) noexcept { return TwoEnded && end == BfcEnd::upper ? 1 : 0; }
  [[nodiscard]] Index& holes(BfcEnd end) noexcept { return free_[number(end)]; }

  // Chooses where in a free chunk the block lies, and cuts it there.
  std::uint32_t cut(std::uint32_t from, const BfcRequest& request) noexcept {
    std::byte* const begin = chunks_[from].data;
    std::byte* const end = chunks_[from].end();
    std::byte* at = begin + ((0 - bfc_address(begin)) & (request.alignment - 1));
    Bytes size = request.rounded;
    if (!(TwoEnded && from == gap_) && !split_.cuts(end - at, size, request.end))
      size = end - at;  // the aligned part whole
    else if (TwoEnded && request.end == BfcEnd::upper)
      at = end - size - (bfc_address(end - size) & (request.alignment - 1));
    return cut(from, at, size, request.end);
  }
  // What is before and behind the block becomes holes of its end, but the gap keeps its middle. The chunk's record stays that of
  // what remains, so that it seldom has to move in the index.
  std::uint32_t cut(const std::uint32_t from, std::byte* const at, const Bytes size, const BfcEnd owner) noexcept {
    const bool gap = TwoEnded && from == gap_, upper = TwoEnded && owner == BfcEnd::upper;
    std::byte* const begin = chunks_[from].data;
    std::byte* const end = chunks_[from].end();
    std::byte* const stop = at + size;
    std::uint32_t c = from, low = 0, high = 0;
    if (at != begin) {
      low = from;
      c = chunks_.make(at, size, owner, from, chunks_[from].next);
      if (stop != end) high = chunks_.make(stop, end - stop, owner, c, chunks_[c].next);
    } else if (stop != end) {
      high = from;
      c = chunks_.make(at, size, owner, chunks_[from].prev, from);
    }
    std::byte* const rest = low != 0 ? begin : stop;
    const Bytes rest_size = low != 0 ? at - begin : end - stop;
    if (gap) {
      chunks_[from].owner = owner;
      if (c != from) chunks_[from].data = rest, chunks_[from].size = rest_size;
      const std::uint32_t hole = upper ? high : low;
      gap_ = upper ? low : high;
      if (gap_ != 0) chunks_[gap_].owner = BfcEnd::gap;
      if (hole != 0) holes(owner).insert(chunks_.all(), hole);
      return c;
    }
    if (c == from)
      holes(owner).erase(chunks_.all(), from);
    else
      holes(owner).move(chunks_.all(), from, rest, rest_size);
    const std::uint64_t stamp = chunks_[from].freed_at;
    if (low != 0 && high != 0) {
      holes(owner).insert(chunks_.all(), high);
      if (stamp != 0) chunks_[high].freed_at = stamp, queue_behind(high, from);
    }
    if (c == from && stamp != 0) unqueue(from);
    return c;
  }

  // Joins a free chunk, which is in no index, with free neighbours of its owner, and files it; `any`: with those stamped too.
  std::uint32_t join(std::uint32_t c, bool any) noexcept {
    const auto joins = [&](std::uint32_t n) {
      return n != 0 && !chunks_[n].used() && (!TwoEnded || chunks_[n].owner == chunks_[c].owner) &&
             (any || stamps_.joins(chunks_[c].freed_at, chunks_[n].freed_at));
    };
    Index& index = holes(chunks_[c].owner);
    const std::uint32_t prev = chunks_[c].prev, next = chunks_[c].next;
    Bytes size = chunks_[c].size;
    if (joins(prev)) {
      if (joins(next)) {
        index.erase(chunks_.all(), next);
        size += chunks_[next].size;
        inherit(prev, next);
        chunks_.drop(next);
      }
      inherit(prev, c);
      chunks_.drop(c);
      index.move(chunks_.all(), prev, chunks_[prev].data, chunks_[prev].size + size);
      return prev;
    }
    if (joins(next)) {
      inherit(next, c);
      std::byte* const data = chunks_[c].data;
      chunks_.drop(c);
      index.move(chunks_.all(), next, data, size + chunks_[next].size);
      return next;
    }
    index.insert(chunks_.all(), c);
    return c;
  }
  // `kept` takes the newest stamp of the two, and its place in the queue.
  void inherit(std::uint32_t kept, std::uint32_t gone) noexcept {
    const std::uint64_t mine = chunks_[kept].freed_at, other = chunks_[gone].freed_at;
    if (other == 0) return;
    if (mine < other) {
      if (mine != 0) unqueue(kept);
      chunks_[kept].freed_at = other;
      queue_behind(kept, gone);
    }
    unqueue(gone);
  }
  // Joins a free chunk; at the border it becomes the gap.
  void settle(std::uint32_t c) noexcept {
    c = join(c, false);
    if constexpr (TwoEnded) {
      const BfcEnd owner = chunks_[c].owner;
      const std::uint32_t inner = owner == BfcEnd::lower ? chunks_[c].next : chunks_[c].prev;
      if (inner == 0 || chunks_[inner].owner != owner) {
        holes(owner).erase(chunks_.all(), c);
        widen_gap(c);
      }
    }
  }
  // Makes a hole at the border, in no index now, the gap, or joins it to that; and the other end's hole there, should there be one.
  void widen_gap(std::uint32_t c) noexcept {
    for (const std::uint32_t n : {chunks_[c].next, chunks_[c].prev}) {
      if (n == 0 || chunks_[n].used() || chunks_[n].freed_at != 0) continue;
      if (n != gap_) holes(chunks_[n].owner).erase(chunks_.all(), n);
      if (n == chunks_[c].prev) chunks_[c].data = chunks_[n].data;
      chunks_[c].size += chunks_[n].size;
      chunks_.drop(n);
    }
    chunks_[c].owner = BfcEnd::gap;
    gap_ = c;
  }

  // Of the chunk's stamp.
  void queue_behind(std::uint32_t c, std::uint32_t older) noexcept {
    BfcQueue& queue = stamps_.queue(chunks_[c].freed_at);
    const std::uint32_t newer = older != 0 ? chunks_[older].queue.newer : queue.oldest;
    chunks_[c].queue = {older, newer};
    (older != 0 ? chunks_[older].queue.newer : queue.oldest) = c;
    (newer != 0 ? chunks_[newer].queue.older : queue.newest) = c;
  }
  void unqueue(std::uint32_t c) noexcept {
    BfcQueue& queue = stamps_.queue(chunks_[c].freed_at);
    const BfcChunk::Queue q = chunks_[c].queue;
    (q.older != 0 ? chunks_[q.older].queue.newer : queue.oldest) = q.newer;
    (q.newer != 0 ? chunks_[q.newer].queue.older : queue.newest) = q.older;
  }

  BfcChunks chunks_;
  std::uint32_t gap_ = 0;
  Stamps stamps_;
  HOLDFAST_NO_UNIQUE_ADDRESS Split split_;
  Index free_[TwoEnded ? 2 : 1];
};

}  // namespace detail
}  // namespace holdfast
