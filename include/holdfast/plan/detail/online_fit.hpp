// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/core/units.hpp"
#include "holdfast/plan/detail/offset_problem.hpp"

namespace holdfast::detail {

/// What an allocator does that sees each group only when its life begins: the lowest free chunk that holds it, or else
/// the top grows. A group is alive from its first begin to its last end.
///
/// `backwards` runs time from its end. Returns the peak, or `max_bytes` once it exceeds `limit` or the free list is walked too
/// long. Fixed offsets are not served. Cost: O(n) times the free chunks walked, at most 64 a group.
[[nodiscard]] constexpr Bytes fit_online(const OffsetInput& in, bool backwards, Bytes limit, std::span<Bytes> offsets) {
  struct Chunk {
    Bytes low;
    Bytes high;
  };
  const Bytes unit = in.unit;
  bool aligned = true;  // by sizes alone
  for (const Bytes a : in.alignments) aligned = aligned && (a == unit || a == 0);
  std::vector<Chunk> free;  // by address, never touching each other
  Bytes top = 0;
  Bytes peak = 0;
  std::size_t steps = 64 * in.member.size();
  const auto release = [&](Bytes low, Bytes high) {
    auto at = std::lower_bound(free.begin(), free.end(), low, [](const Chunk& c, Bytes l) { return c.low < l; });
    const bool joins_next = at != free.end() && at->low == high;
    if (at != free.begin() && (at - 1)->high == low) {
      (at - 1)->high = joins_next ? at->high : high;
      if (joins_next) free.erase(at);
    } else if (joins_next) {
      at->low = low;
    } else {
      free.insert(at, Chunk{low, high});
    }
  };
  const std::size_t count = in.by_begin.size();
  std::vector<std::uint32_t> latest_first;  // what ends together stays in the order of its numbers
  if (backwards) {
    latest_first.assign(in.by_end.rbegin(), in.by_end.rend());
    for (auto run = latest_first.begin(); run != latest_first.end();) {
      const auto next = std::find_if(run, latest_first.end(), [&](std::uint32_t r) {
        return in.ranges[r].end != in.ranges[*run].end;
      });
      std::reverse(run, next);
      run = next;
    }
  }
  const std::vector<std::uint32_t>& opening = backwards ? latest_first : in.by_begin;
  const auto closing = [&](std::size_t i) { return backwards ? in.by_begin[count - 1 - i] : in.by_end[i]; };
  const auto is_over = [&](std::uint32_t r, const LiveRange& now) {
    return backwards ? in.ranges[r].begin >= now.end : in.ranges[r].end <= now.begin;
  };
  const auto bounds_group = [&](std::uint32_t r, std::uint32_t g, bool last) {
    return in.member[last ? in.first[g + 1] - 1 : in.first[g]] == r;
  };
  std::size_t over = 0;
  for (std::size_t n = 0; n < count; ++n) {
    const std::uint32_t r = opening[n];
    for (; over < count && is_over(closing(over), in.ranges[r]); ++over) {
      const std::uint32_t g = in.ranges[closing(over)].group;
      if (bounds_group(closing(over), g, !backwards)) release(offsets[g], offsets[g] + align_up(in.size(g), unit));
    }
    const std::uint32_t g = in.ranges[r].group;
    if (!bounds_group(r, g, backwards)) continue;
    const Bytes raw = in.size(g);
    const Bytes size = align_up(raw, unit);
    std::size_t i = 0;
    Bytes start = 0;
    for (; i < free.size(); ++i) {
      start = aligned ? free[i].low : align_up(free[i].low, in.alignment(g));
      if (free[i].high - start >= size) break;
    }
    if (i >= steps) return max_bytes;
    steps -= i;
    if (i == free.size()) {
      const bool at_top = !free.empty() && free.back().high == top;
      if (at_top) --i;
      const Bytes low = at_top ? free.back().low : top;
      start = align_up(low, in.alignment(g));
      top = start + size;
      if (at_top)
        free[i].high = top;
      else
        free.push_back(Chunk{low, top});
    }
    offsets[g] = start;
    peak = std::max(peak, start + raw);
    if (peak > limit) return max_bytes;
    const Chunk chunk = free[i];
    if (chunk.low < start && start + size < chunk.high) {
      free[i].low = start + size;
      free.insert(free.begin() + static_cast<std::ptrdiff_t>(i), Chunk{chunk.low, start});
    } else if (chunk.low < start) {
      free[i].high = start;
    } else if (start + size < chunk.high) {
      free[i].low = start + size;
    } else {
      free.erase(free.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return peak;
}

}  // namespace holdfast::detail
