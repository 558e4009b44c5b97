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

/// Where requests are placed: free chunks in an index for each end, between them the gap; cut, joined, and queued while stamped.
///
/// A stamped chunk is one freed while time counts: it is joined with nothing before its stamp is safe. Of two-ended space the
/// free chunk at the border of the ends is always the gap, never a hole, so that neither end's offsets depend on the other.
template <class Index, class Split, bool TwoEnded>
class BfcSpace {
 public:
  explicit BfcSpace(Split split) noexcept : split_(split) {}

  [[nodiscard]] BfcChunks& chunks() noexcept { return chunks_; }
  [[nodiscard]] const BfcChunks& chunks() const noexcept { return chunks_; }
  [[nodiscard]] const Split& split() const noexcept { return split_; }
  /// The largest free chunk that an end may take.
  [[nodiscard]] Bytes largest(BfcEnd end) const noexcept {
    const Bytes own = free_[number(end)].largest(chunks_);
    return TwoEnded ? std::max(own, gap_size()) : own;
  }
  [[nodiscard]] Bytes gap_size() const noexcept { return gap_ == 0 ? 0 : chunks_[gap_].size; }

  /// Takes a free chunk of at most `most` bytes and cuts it, for which two records are spare; 0: none fits.
  std::uint32_t place(const BfcRequest& request, Bytes most) noexcept {
    Index& own = free_[number(request.end)];
    const std::uint32_t c =
        own.find(chunks_, request.rounded, most, [&](const BfcChunk& x) { return request.fits(x); });
    if (c != 0) {
      own.erase(chunks_, c);
      return cut(c, request, false);
    }
    if constexpr (TwoEnded)
      if (gap_ != 0 && request.fits(chunks_[gap_])) return cut(std::exchange(gap_, 0), request, true);
    return 0;
  }
  /// Takes a chunk back, or a new one; a stamp other than 0 keeps it apart until then.
  void free(std::uint32_t c, std::uint64_t stamp) noexcept {
    chunks_[c].id = 0;
    chunks_[c].freed_at = stamp;
    if (stamp == 0) return settle(c);
    queue_behind(c, newest_);
    free_[number(chunks_[c].owner)].insert(chunks_, c);
  }
  /// Joins what was stamped before `frontier`.
  void set_safe_frontier(std::uint64_t frontier) noexcept {
    while (oldest_ != 0 && chunks_[oldest_].freed_at < frontier) {
      const std::uint32_t c = oldest_;
      unqueue(c);
      free_[number(chunks_[c].owner)].erase(chunks_, c);
      chunks_[c].freed_at = 0;
      settle(c);
    }
  }
  /// Joins stamped chunks with their neighbours, the oldest first, until one holds the request.
  void join_stamped(const BfcRequest& request) noexcept {
    for (std::uint32_t c = oldest_; c != 0;) {
      std::uint32_t after = chunks_[c].queue.newer;
      while (after != 0 && (after == chunks_[c].next || after == chunks_[c].prev) && chunks_[after].owner == chunks_[c].owner)
        after = chunks_[after].queue.newer;
      free_[number(chunks_[c].owner)].erase(chunks_, c);
      c = join(c, true);
      free_[number(chunks_[c].owner)].insert(chunks_, c);
      if (request.fits(chunks_[c])) return;
      c = after;
    }
  }
  /// Forgets the chunks of a region, none of which is in use, from its first on.
  void drop(std::uint32_t c) noexcept {
    while (c != 0) {
      const std::uint32_t next = chunks_[c].next;
      if (c == gap_)
        gap_ = 0;
      else
        free_[number(chunks_[c].owner)].erase(chunks_, c);
      if (chunks_[c].freed_at != 0) unqueue(c);
      chunks_.drop(c);
      c = next;
    }
  }

 private:
  [[nodiscard]] static constexpr std::size_t number(BfcEnd end) noexcept { return TwoEnded && end == BfcEnd::upper ? 1 : 0; }

  // Cuts a chunk that is in no index: what is before and behind the block becomes holes, but the gap keeps its middle.
  std::uint32_t cut(const std::uint32_t from, const BfcRequest& request, bool gap) noexcept {
    const bool upper = TwoEnded && request.end == BfcEnd::upper;
    const std::uint64_t stamp = chunks_[from].freed_at, begin = bfc_address(chunks_[from].data);
    std::uint64_t at = (begin + request.alignment - 1) & ~(request.alignment - 1);
    const auto rest = static_cast<Bytes>(begin - at) + chunks_[from].size;
    const bool whole = !gap && !split_.cuts(rest, request.rounded, request.end);
    if (upper && !whole) at = bfc_address(chunks_[from].end() - request.rounded) & ~(request.alignment - 1);
    const auto leave = [&](std::uint32_t part, bool in_gap) {
      chunks_[part].owner = in_gap ? BfcEnd::gap : request.end;
      chunks_[part].freed_at = stamp;
      if (in_gap)
        gap_ = part;
      else
        free_[number(request.end)].insert(chunks_, part);
    };
    std::uint32_t c = from;
    if (at != begin) {
      c = chunks_.cut(from, static_cast<Bytes>(at - begin));
      leave(from, gap && upper);
    }
    if (!whole && chunks_[c].size > request.rounded) {
      const std::uint32_t behind = chunks_.cut(c, request.rounded);
      if (stamp != 0) queue_behind(behind, from);
      leave(behind, gap && !upper);
    }
    if (stamp != 0 && c == from) unqueue(c);
    chunks_[c].owner = request.end;
    return c;
  }

  // Joins a free chunk, which is in no index, with free neighbours of its owner; `any`: with those stamped too.
  std::uint32_t join(std::uint32_t c, bool any) noexcept {
    const auto joins = [&](std::uint32_t n) {
      return n != 0 && !chunks_[n].used() && (!TwoEnded || chunks_[n].owner == chunks_[c].owner) && (any || chunks_[n].freed_at == 0);
    };
    if (const std::uint32_t n = chunks_[c].next; joins(n)) {
      free_[number(chunks_[n].owner)].erase(chunks_, n);
      inherit(c, n);
      chunks_.join_next(c);
    }
    if (const std::uint32_t p = chunks_[c].prev; joins(p)) {
      free_[number(chunks_[p].owner)].erase(chunks_, p);
      inherit(p, c);
      chunks_.join_next(p);
      c = p;
    }
    return c;
  }
  // `kept` takes the newest stamp of the two, and its place in the queue.
  void inherit(std::uint32_t kept, std::uint32_t gone) noexcept {
    const std::uint64_t mine = chunks_[kept].freed_at, other = chunks_[gone].freed_at;
    if (other == 0) return;
    if (mine < other) {
      if (mine != 0) unqueue(kept);
      queue_behind(kept, gone);
      chunks_[kept].freed_at = other;
    }
    unqueue(gone);
  }
  // Joins a free chunk and files it.
  void settle(std::uint32_t c) noexcept {
    c = join(c, false);
    if constexpr (TwoEnded) {
      const BfcEnd owner = chunks_[c].owner;
      const std::uint32_t inner = owner == BfcEnd::lower ? chunks_[c].next : chunks_[c].prev;
      if (inner == 0 || chunks_[inner].owner != owner) return widen_gap(c);
    }
    free_[number(chunks_[c].owner)].insert(chunks_, c);
  }
  // Makes a hole at the border the gap, or part of it.
  void widen_gap(std::uint32_t c) noexcept {
    for (const bool behind : {true, false}) {
      const std::uint32_t n = behind ? chunks_[c].next : chunks_[c].prev;
      if (n == 0 || chunks_[n].used() || chunks_[n].freed_at != 0) continue;
      if (n != gap_) free_[number(chunks_[n].owner)].erase(chunks_, n);
      const std::uint32_t first = behind ? c : n;
      chunks_.join_next(first);
      c = first;
    }
    chunks_[c].owner = BfcEnd::gap;
    gap_ = c;
  }

  void queue_behind(std::uint32_t c, std::uint32_t older) noexcept {
    const std::uint32_t newer = older != 0 ? chunks_[older].queue.newer : oldest_;
    chunks_[c].queue = {older, newer};
    (older != 0 ? chunks_[older].queue.newer : oldest_) = c;
    (newer != 0 ? chunks_[newer].queue.older : newest_) = c;
  }
  void unqueue(std::uint32_t c) noexcept {
    const BfcChunk::Queue q = chunks_[c].queue;
    (q.older != 0 ? chunks_[q.older].queue.newer : oldest_) = q.newer;
    (q.newer != 0 ? chunks_[q.newer].queue.older : newest_) = q.older;
  }

  BfcChunks chunks_;
  std::uint32_t gap_ = 0, oldest_ = 0, newest_ = 0;
  HOLDFAST_NO_UNIQUE_ADDRESS Split split_;
  Index free_[TwoEnded ? 2 : 1];
};

}  // namespace detail
}  // namespace holdfast
