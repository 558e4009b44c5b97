// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "holdfast/backend/bfc/detail/space.hpp"
#include "holdfast/backend/bfc/snapshot.hpp"
#include "holdfast/concepts/sink.hpp"

namespace holdfast {

/// What would become of a request.
enum class BfcReason : std::uint8_t {
  fits,        ///< a free chunk holds it
  grows,       ///< the upstream will be asked
  reclaims,    ///< joining stamped chunks, or giving idle regions back, makes room
  invalid,     ///< no size
  no_free,     ///< nothing is free and the limit is reached
  limit,       ///< more than all that is free and the limit leaves
  fragmented,  ///< enough is free, but in pieces
  other_end,   ///< the other end's holes would hold it
  refused,     ///< the limit leaves room, but the upstream has refused as much
};

/// Why a request would fail, and what would help.
struct BfcExplanation {
  BfcReason reason = BfcReason::invalid;
  Bytes requested = 0;
  Bytes rounded = 0;
  Bytes free = 0;             ///< in the pool, whoever may use it
  Bytes largest = 0;          ///< of the free chunks that the request's end may use
  Bytes largest_other = 0;    ///< of the other end's holes
  Bytes room = 0;             ///< between the pool and its limit
  Bytes short_by = 0;         ///< how much more would have to be free in one piece, or in room; 0: none
  Bytes idle = 0;             ///< in regions without a block: what collecting them gives back
  Bytes joined = 0;           ///< the largest free chunk once stamped ones are joined
  Block window;               ///< where moving or freeing the fewest live bytes makes a hole that fits; empty: nowhere
  Bytes window_live = 0;      ///< those bytes
  std::uint32_t window_blocks = 0;   ///< in so many blocks
  std::uint32_t window_choices = 0;  ///< places as good as it
};

namespace detail {

/// A run of chunks that would hold a request, were none in use: the shortest that ends there.
struct BfcWindow {
  std::size_t begin, end;  ///< its chunks, half-open
  Block hole;              ///< what it would be, with the free chunks beside it
  Bytes live;  ///< bytes of chunks in use
  std::uint32_t blocks;
};

// Calls `visitor(window)` for windows among which is one of the fewest live bytes.
template <class Visitor>
void bfc_each_window(const BfcSnapshot& s, const BfcRequest& wanted, Visitor visitor) {
  const auto& all = s.chunks;
  const auto stop = [&](std::size_t i) { return all[i].block.data + all[i].block.size; };
  Bytes live = 0;
  std::uint32_t blocks = 0;
  for (std::size_t first = 0, last = 0; last < all.size(); ++last) {
    if (last > 0 && all[last].region != all[last - 1].region) first = last, live = 0, blocks = 0;
    if (all[last].used()) live += all[last].block.size, ++blocks;
    const auto holds = [&](std::size_t from) { return wanted.fits(all[from].block.data, stop(last) - all[from].block.data); };
    if (!holds(first)) continue;
    for (; first < last && holds(first + 1); ++first)
      if (all[first].used()) live -= all[first].block.size, --blocks;
    std::size_t begin = first, end = last + 1;
    while (begin > 0 && !all[begin - 1].used() && all[begin - 1].region == all[first].region) --begin;
    while (end < all.size() && !all[end].used() && all[end].region == all[first].region) ++end;
    visitor(BfcWindow{first, last + 1, {all[begin].block.data, stop(end - 1) - all[begin].block.data}, live, blocks});
  }
}

// The hole that costs the fewest live bytes; of these the largest, then the lowest.
inline void bfc_find_window(const BfcSnapshot& s, const BfcRequest& wanted, BfcExplanation& e) noexcept {
  const std::byte* counted = nullptr;
  bfc_each_window(s, wanted, [&](const BfcWindow& w) {
    if (e.window.size == 0 || w.live < e.window_live || (w.live == e.window_live && w.hole.size > e.window.size)) {
      e.window = w.hole;
      e.window_live = w.live;
      e.window_blocks = w.blocks;
      e.window_choices = 0;
    }
    if (w.live == e.window_live && w.hole.size == e.window.size && (e.window_choices == 0 || w.hole.data != counted)) {
      ++e.window_choices;
      counted = w.hole.data;
    }
  });
}

// The largest runs that are free: as they are, and with stamped chunks joined; and the bytes of idle regions.
inline void bfc_find_free(const BfcSnapshot& s, const BfcRequest& wanted, BfcExplanation& e, bool& fits, bool& would_fit) noexcept {
  const auto& all = s.chunks;
  for (std::size_t i = 0, end = 0; i < all.size(); i = end) {
    end = i + 1;
    if (all[i].used()) continue;
    const bool own = !s.two_ended || all[i].owner == wanted.end || all[i].owner == BfcEnd::gap;
    const bool first = i == 0 || all[i - 1].region != all[i].region;
    Bytes run = 0;
    for (end = i; end < all.size() && !all[end].used() && all[end].region == all[i].region && all[end].owner == all[i].owner; ++end) {
      const Block& b = all[end].block;
      run += b.size;
      if (!own) e.largest_other = std::max(e.largest_other, b.size);
      if (!own || all[end].freed_at > wanted.freed_before) continue;
      e.largest = std::max(e.largest, b.size);
      fits = fits || wanted.fits(b.data, b.size);
    }
    if (own && wanted.freed_before == bfc_any_time) {
      e.joined = std::max(e.joined, run);
      would_fit = would_fit || wanted.fits(all[i].block.data, run);
    }
    if (first && run == s.regions[all[i].region].size) e.idle += run;
  }
}

}  // namespace detail

/// Says what would become of a request, and what would make it succeed. Cost: linear in the chunks.
[[nodiscard]] inline BfcExplanation explain_bfc(const BfcSnapshot& s, Bytes size, Alignment alignment = Alignment(1),
                                                BfcEnd end = BfcEnd::lower, std::uint64_t freed_before = bfc_any_time) noexcept {
  BfcExplanation e;
  e.requested = size;
  if (size <= 0 || !checked_align_up(size, detail::bfc_granule, e.rounded)) return e;
  const detail::BfcRequest wanted{size, e.rounded, static_cast<std::uint64_t>(std::max(alignment.value(), detail::bfc_granule)),
                                  freed_before, end};
  bool fits = false, would_fit = false;
  detail::bfc_find_free(s, wanted, e, fits, would_fit);
  e.free = s.statistics.free;
  e.room = s.room;
  const Bytes best = std::max(e.largest, e.room);
  e.short_by = best < e.rounded ? e.rounded - best : 0;
  if (fits) return e.reason = BfcReason::fits, e;
  detail::bfc_find_window(s, wanted, e);
  const bool refused = s.refused != 0 && s.refused <= e.rounded;
  const bool collects = s.options.garbage_collection && freed_before == bfc_any_time && e.idle != 0 && !s.two_ended &&
                        saturating_add(e.room, e.idle) >= e.rounded;
  if (e.room >= e.rounded && !refused)
    e.reason = BfcReason::grows;
  else if (would_fit || collects)
    e.reason = BfcReason::reclaims;
  else if (e.room >= e.rounded)
    e.reason = BfcReason::refused;
  else if (e.free == 0)
    e.reason = BfcReason::no_free;
  else if (saturating_add(e.free, e.room) < e.rounded)
    e.reason = BfcReason::limit;
  else
    e.reason = e.largest_other >= e.rounded ? BfcReason::other_end : BfcReason::fragmented;
  return e;
}

/// Writes an explanation as sentences for people. Errors: the first failure of the sink.
template <sink S>
Error write_explanation(S& out, const BfcExplanation& e) noexcept {
  Error failure;
  const auto put = [&](std::string_view text) {
    if (failure.ok()) failure = out.write(text);
  };
  const auto put_number = [&](Bytes n, std::string_view text) {
    if (failure.ok()) failure = write_number(out, n);
    put(text);
  };
  put_number(e.requested, " bytes, ");
  put_number(e.rounded, " with rounding: ");
  switch (e.reason) {
    case BfcReason::fits: put("a free chunk holds them."); break;
    case BfcReason::grows: put("the pool will grow."); break;
    case BfcReason::reclaims: put("joining what was freed lately, or giving idle regions back, makes room."); break;
    case BfcReason::invalid: put("not a size."); break;
    case BfcReason::no_free: put("nothing is free, and the pool is at its limit."); break;
    case BfcReason::limit: put("more than what is free and the limit leaves."); break;
    case BfcReason::fragmented: put("enough is free, but in pieces."); break;
    case BfcReason::other_end: put("what is free in one piece belongs to the other end."); break;
    case BfcReason::refused: put("the upstream has refused as much, though the limit leaves room."); break;
  }
  put(" Free "), put_number(e.free, ", largest usable "), put_number(e.largest, ", below the limit "), put_number(e.room, ".");
  if (e.short_by > 0) put(" Short by "), put_number(e.short_by, " in one piece.");
  if (e.idle > 0) put(" Idle regions hold "), put_number(e.idle, ".");
  if (e.joined > e.largest) put(" Joining what was freed lately gives "), put_number(e.joined, ".");
  if (e.reason >= BfcReason::no_free && e.window_blocks > 0) {
    put(" It is enough to move or free "), put_number(e.window_live, " bytes in ");
    put_number(e.window_blocks, e.window_blocks == 1 ? " block" : " blocks");
    put(", which gives "), put_number(e.window.size, "");
    if (e.window_choices > 1) put("; there are "), put_number(e.window_choices, " such places");
    put(".");
  }
  return failure;
}

}  // namespace holdfast
