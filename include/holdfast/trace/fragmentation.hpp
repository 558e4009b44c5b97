// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "holdfast/core/units.hpp"

namespace holdfast {

/// `part / whole`, and 0 where there is no whole: full and empty pools have figures too.
[[nodiscard]] constexpr double share_of(Bytes part, Bytes whole) noexcept {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// The share of the free bytes that the largest free block has not. Units: 0 to 1. Source: XLA's
/// BFC statistics, which give NaN where nothing is free.
[[nodiscard]] constexpr double external_fragmentation(Bytes largest_free, Bytes free) noexcept {
  return share_of(free - largest_free, free);
}

/// The share of the free bytes in which no block of `size` fits. Units: 0 to 1.
[[nodiscard]] constexpr double unusable_for(std::span<const Bytes> free, Bytes size) noexcept {
  Bytes all = 0;
  Bytes lost = 0;
  for (const Bytes b : free) {
    all = saturating_add(all, b);
    if (size > 0) lost = saturating_add(lost, b % size);
  }
  return share_of(lost, all);
}

/// The class of a free block's size: 0 below 512 bytes, one more at each doubling, 20 from 256 MiB.
[[nodiscard]] constexpr std::size_t free_size_bin(Bytes size) noexcept {
  const auto granules = static_cast<std::uint64_t>(std::max<Bytes>(size, 256) / 256);
  return std::min<std::size_t>(20, static_cast<std::size_t>(std::bit_width(granules)) - 1);
}

namespace detail {

/// Base-2 logarithm of what is at least 1, the same at compile time and at run time.
[[nodiscard]] constexpr double log2_of(Bytes value) noexcept {
  const auto whole = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(value))) - 1;
  const double m = static_cast<double>(value) / static_cast<double>(std::uint64_t{1} << whole);
  // ln m = 2 artanh((m - 1) / (m + 1)), whose argument is at most 1/3.
  const double z = (m - 1) / (m + 1);
  double sum = 0;
  double power = z;
  for (int k = 1; k < 40; k += 2, power *= z * z) sum += power / k;
  return whole + sum * 2.885390081777926814719849362;  // 2 / ln 2
}

}  // namespace detail

/// The free blocks of an arena in sums; those of several arenas add up to a domain's and the total.
struct FreeBlocks {
  Bytes bytes = 0;
  Bytes largest = 0;
  std::int64_t count = 0;
  std::array<std::int64_t, 21> histogram{};  ///< by `free_size_bin`
  double weighted_log = 0;                   ///< sum of size times its base-2 logarithm

  constexpr void add(Bytes size) noexcept {
    if (size <= 0) return;
    bytes = saturating_add(bytes, size);
    largest = std::max(largest, size);
    ++count;
    ++histogram[free_size_bin(size)];
    weighted_log += static_cast<double>(size) * detail::log2_of(size);
  }
  constexpr FreeBlocks& operator+=(const FreeBlocks& other) noexcept {
    bytes = saturating_add(bytes, other.bytes);
    largest = std::max(largest, other.largest);
    count += other.count;
    for (std::size_t b = 0; b < histogram.size(); ++b) histogram[b] += other.histogram[b];
    weighted_log += other.weighted_log;
    return *this;
  }

  [[nodiscard]] constexpr double external_fragmentation() const noexcept {
    return holdfast::external_fragmentation(largest, bytes);
  }
  [[nodiscard]] constexpr double mean() const noexcept { return share_of(bytes, count); }
  /// How scattered the free bytes are: 0 for one block, log2 n for n equal ones. Units: bits.
  [[nodiscard]] constexpr double entropy() const noexcept {
    if (count <= 1) return 0;
    return std::max(0.0, detail::log2_of(bytes) - weighted_log / static_cast<double>(bytes));
  }
};

/// The live blocks of an arena in sums: what users asked for, what alignment made of it, what the
/// chunks take.
struct UsedBlocks {
  Bytes requested = 0;
  Bytes aligned = 0;
  Bytes chunks = 0;
  std::int64_t count = 0;

  constexpr void add(Bytes requested_size, Bytes aligned_size, Bytes chunk_size) noexcept {
    requested = saturating_add(requested, requested_size);
    aligned = saturating_add(aligned, aligned_size);
    chunks = saturating_add(chunks, chunk_size);
    ++count;
  }
  constexpr UsedBlocks& operator+=(const UsedBlocks& other) noexcept {
    requested = saturating_add(requested, other.requested);
    aligned = saturating_add(aligned, other.aligned);
    chunks = saturating_add(chunks, other.chunks);
    count += other.count;
    return *this;
  }

  /// The share of the chunks that nobody asked for. Units: 0 to 1.
  [[nodiscard]] constexpr double internal_fragmentation() const noexcept {
    return share_of(chunks - requested, chunks);
  }
  /// Bytes added to round sizes up; with `split_waste` all that is lost inside chunks.
  [[nodiscard]] constexpr Bytes alignment_waste() const noexcept { return aligned - requested; }
  /// Bytes of chunks that were not cut to size.
  [[nodiscard]] constexpr Bytes split_waste() const noexcept { return chunks - aligned; }
};

/// An arena, a domain of arenas or all of them: what it holds, and what of it is used and free.
struct ArenaFigures {
  UsedBlocks used;
  FreeBlocks free;
  Bytes held = 0;      ///< bytes of the pool
  Bytes limit = 0;     ///< 0: none
  Bytes stranded = 0;  ///< free bytes in regions that cannot be given back
  Bytes peak_held = 0;
  Bytes peak_chunks = 0;  ///< of live chunks

  /// Adds another arena; a sum of peaks bounds the peak of the sum.
  constexpr ArenaFigures& operator+=(const ArenaFigures& other) noexcept {
    used += other.used;
    free += other.free;
    held = saturating_add(held, other.held);
    limit = saturating_add(limit, other.limit);
    stranded = saturating_add(stranded, other.stranded);
    peak_held = saturating_add(peak_held, other.peak_held);
    peak_chunks = saturating_add(peak_chunks, other.peak_chunks);
    return *this;
  }

  /// Held bytes for each live one.
  [[nodiscard]] constexpr double holding_ratio() const noexcept {
    return share_of(held, used.chunks);
  }
  /// How near the limit is. Units: 0 to 1.
  [[nodiscard]] constexpr double committed() const noexcept { return share_of(held, limit); }
  /// The share of the free bytes that cannot be given back. Units: 0 to 1.
  [[nodiscard]] constexpr double stranded_share() const noexcept {
    return share_of(stranded, free.bytes);
  }
  /// What fragmentation costs at the peak.
  [[nodiscard]] constexpr Bytes peak_gap() const noexcept { return peak_held - peak_chunks; }
};

/// Sizes to ask `unusable_for` about.
struct SizeQuantiles {
  Bytes p50 = 0, p90 = 0, p99 = 0, max = 0;
  friend constexpr bool operator==(const SizeQuantiles&, const SizeQuantiles&) noexcept = default;
};

/// Gives quantiles by nearest rank; all 0 of nothing. Sorts its argument. Cost: n log n.
[[nodiscard]] constexpr SizeQuantiles size_quantiles(std::span<Bytes> sizes) noexcept {
  if (sizes.empty()) return {};
  std::sort(sizes.begin(), sizes.end());
  const auto rank = [&](std::size_t percent) {
    return sizes[(sizes.size() * percent + 99) / 100 - 1];
  };
  return {rank(50), rank(90), rank(99), sizes.back()};
}

/// The last `Count` sizes that were asked for. Threads: one.
template <std::size_t Count>
class RecentSizes {
 public:
  constexpr void add(Bytes size) noexcept { sizes_[next_++ % Count] = size; }
  [[nodiscard]] constexpr SizeQuantiles quantiles() const noexcept {
    std::array<Bytes, Count> copy = sizes_;
    return size_quantiles({copy.data(), std::min(next_, Count)});
  }

 private:
  std::array<Bytes, Count> sizes_{};
  std::size_t next_ = 0;
};

/// A block of an arena in address order: it begins where the one before ends; no two free ones
/// meet.
struct Extent {
  Bytes offset = 0;
  Bytes size = 0;
  bool free = false;
};

/// Live blocks that stand between a request and a hole that would hold it.
struct Blockers {
  std::size_t begin =
      0;  ///< indices of the arena's extents; both ends are live, free ones may lie between
  std::size_t end = 0;
  Bytes live = 0;  ///< bytes to move or release
  Bytes hole = 0;  ///< what that makes, with the free neighbours
  friend constexpr bool operator==(const Blockers&, const Blockers&) noexcept = default;
};

/// Calls `visitor(const Blockers&)` for each of the cheapest ways to make room for `size` bytes:
/// those with the fewest live bytes, of these those with the largest hole. No call where such a
/// hole is there already or cannot be made. Cost: linear.
template <class Visitor>
constexpr void find_blockers(std::span<const Extent> arena, Bytes size,
                             Visitor&& visitor) noexcept {
  const auto live_bytes = [&](std::size_t i) { return arena[i].free ? 0 : arena[i].size; };
  const auto hole = [&](std::size_t i, std::size_t j) {
    const Extent& last = j < arena.size() && arena[j].free ? arena[j] : arena[j - 1];
    return last.offset + last.size - arena[i > 0 && arena[i - 1].free ? i - 1 : i].offset;
  };
  Blockers best{0, 0, max_bytes, 0};
  for (const bool report : {false, true}) {
    Bytes live = 0;  // of the extents i to j, which are as few as will do
    for (std::size_t i = 0, j = 0; i < arena.size(); live -= live_bytes(i++)) {
      if (arena[i].free && arena[i].size >= size) return;
      while (j <= i || (j < arena.size() && hole(i, j) < size)) live += live_bytes(j++);
      if (arena[i].free || hole(i, j) < size) continue;
      const Blockers b{i, j, live, hole(i, j)};
      if (report && b.live == best.live && b.hole == best.hole) visitor(b);
      if (b.live < best.live || (b.live == best.live && b.hole > best.hole)) best = b;
    }
    if (best.end == 0) return;
  }
}

}  // namespace holdfast
