// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "holdfast/backend/bfc/detail/free_index.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

// --- fit: which free chunk is taken; all are deterministic ----------------------------------------------------------------

/// The smallest chunk that fits, the lowest among equals. Cost: logarithmic in the free chunks of about that size.
struct BestFit {
  using index = detail::BfcTree<detail::BfcBySize>;
};
/// The lowest chunk that fits. Cost: linear in the free chunks below it.
struct FirstFit {
  using index = detail::BfcTree<detail::BfcByAddress>;
};
/// The largest chunk, the lowest among equals. Cost: logarithmic in the free chunks of about that size.
struct WorstFit {
  using index = detail::BfcTree<detail::BfcByFallingSize>;
};
/// The chunk freed last of the next size class (a sixteenth of a power of two) that surely fits. Cost: O(1) unless only the
/// request's own class has one.
struct TwoLevelFit {
  using index = detail::BfcLists;
};

// --- split: what is cut from a chunk larger than the request --------------------------------------------------------------

/// Cuts when half would be wasted, or `cap` bytes: few small remainders, at up to almost twice the size.
struct BfcSplit {
  Bytes cap = Bytes{128} << 20;  ///< a waste of that much is always cut off

  [[nodiscard]] constexpr bool cuts(Bytes chunk, Bytes rounded, BfcEnd) const noexcept {
    return chunk - rounded >= rounded || chunk - rounded >= cap;
  }
  [[nodiscard]] constexpr Bytes largest(Bytes) const noexcept { return max_bytes; }
};

/// Cuts always: nothing is wasted but the rounding.
struct ExactSplit {
  [[nodiscard]] constexpr bool cuts(Bytes, Bytes, BfcEnd) const noexcept { return true; }
  [[nodiscard]] constexpr Bytes largest(Bytes) const noexcept { return max_bytes; }
};

/// Cuts when more than `percent` of the request would be wasted.
struct BoundedWaste {
  int percent = 12;  ///< Units: hundredths of the rounded request

  [[nodiscard]] constexpr bool cuts(Bytes chunk, Bytes rounded, BfcEnd) const noexcept {
    return chunk - rounded > rounded / 100 * percent + rounded % 100 * percent / 100;
  }
  [[nodiscard]] constexpr Bytes largest(Bytes) const noexcept { return max_bytes; }
};

/// Keeps chunks above `block` for requests of at least `request`, while the pool can grow; cuts as `Then` does.
///
/// So that a giant that is freed and asked for again is not cut up by small blocks that live long.
template <class Then = BfcSplit>
struct KeepLarge {
  Bytes block = Bytes{4} << 20;
  Bytes request = Bytes{1} << 20;
  Then then{};

  [[nodiscard]] constexpr bool cuts(Bytes chunk, Bytes rounded, BfcEnd end) const noexcept { return then.cuts(chunk, rounded, end); }
  [[nodiscard]] constexpr Bytes largest(Bytes rounded) const noexcept {
    return rounded < request ? std::max(block, rounded) : max_bytes;
  }
};

/// One way to cut for each end of a `TwoEnded` pool.
template <class Lower = BfcSplit, class Upper = ExactSplit>
struct SplitByEnd {
  Lower lower{};
  Upper upper{};

  [[nodiscard]] constexpr bool cuts(Bytes chunk, Bytes rounded, BfcEnd end) const noexcept {
    return end == BfcEnd::upper ? upper.cuts(chunk, rounded, end) : lower.cuts(chunk, rounded, end);
  }
  [[nodiscard]] constexpr Bytes largest(Bytes) const noexcept { return max_bytes; }
};

// --- growth: how much is asked of the upstream ----------------------------------------------------------------------------

namespace detail {

// 10 % less, rounded up to whole granules, at least one granule less.
[[nodiscard]] constexpr Bytes bfc_back_off(Bytes size) noexcept {
  const Bytes less = align_up(size / 10 * 9 + size % 10 * 9 / 10, bfc_granule);
  return std::min(less, size - bfc_granule);
}

}  // namespace detail

/// Regions of doubling size; 10 % less after each refusal until below the request: the original's way.
struct DoublingGrowth {
  static constexpr bool two_ended = false;
  /// What to ask first; `target` is the pool's region size, doubled after every region that needed no more.
  [[nodiscard]] constexpr Bytes first(Bytes target, Bytes rounded) const noexcept {
    while (target < rounded) target = saturating_add(target, target);
    return target;
  }
  /// What to ask after `size` was refused in the `calls`-th call; 0: nothing more.
  [[nodiscard]] constexpr Bytes next(Bytes size, Bytes rounded, int) const noexcept {
    const Bytes less = detail::bfc_back_off(size);
    return less < rounded ? 0 : less;
  }
};

/// As `DoublingGrowth`, but at most 64 calls a request, the last for exactly the request: the default.
struct BoundedGrowth : DoublingGrowth {
  static constexpr int calls_limit = 64;
  [[nodiscard]] constexpr Bytes next(Bytes size, Bytes rounded, int calls) const noexcept {
    if (size <= rounded) return 0;
    return calls + 1 >= calls_limit ? rounded : std::max(rounded, detail::bfc_back_off(size));
  }
};

/// Asks for the request, or `least` where it is smaller; one more call, for just the request, after a refusal.
struct ExactGrowth {
  static constexpr bool two_ended = false;
  Bytes least = Bytes{2} << 20;
  [[nodiscard]] constexpr Bytes first(Bytes, Bytes rounded) const noexcept {
    return std::max(rounded, least / detail::bfc_granule * detail::bfc_granule);
  }
  [[nodiscard]] constexpr Bytes next(Bytes size, Bytes rounded, int) const noexcept { return size > rounded ? rounded : 0; }
};

/// One region of the whole limit, from whose two ends requests grow towards each other.
///
/// The offsets at one end depend on the requests at that end alone, so that ranks that agree on those agree on addresses; the
/// limit is asked for whole or not at all.
struct TwoEnded {
  static constexpr bool two_ended = true;
  [[nodiscard]] constexpr Bytes first(Bytes, Bytes) const noexcept { return max_bytes; }
  [[nodiscard]] constexpr Bytes next(Bytes, Bytes, int) const noexcept { return 0; }
};

}  // namespace holdfast
