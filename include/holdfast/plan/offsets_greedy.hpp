// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"
#include "holdfast/plan/detail/offset_problem.hpp"
#include "holdfast/plan/detail/placed_ranges.hpp"
#include "holdfast/plan/live_range.hpp"
#include "holdfast/plan/offset_planner.hpp"

namespace holdfast {

/// Which group a greedy planner places first.
enum class PlacementOrder : std::uint8_t {
  size,       ///< largest first, then longest (XLA: spatial)
  lifetime,   ///< longest from first begin to last end first, then largest (XLA: temporal)
  area,       ///< largest size times time alive first (XLA: spatial-temporal)
  conflicts,  ///< most overlapping ranges first, then largest (TVM: by conflicts)
  start,      ///< earliest begin first, then largest
  end,        ///< earliest end first, then largest
};

/// Which of the gaps that hold a group a greedy planner takes.
enum class Fit : std::uint8_t {
  best,    ///< the smallest, then the lowest
  lowest,  ///< the lowest
};

namespace detail {

/// A product of two non-negative sizes that keeps all bits.
struct WideProduct {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  constexpr WideProduct() noexcept = default;
  constexpr WideProduct(std::uint64_t a, std::uint64_t b) noexcept {
    const std::uint64_t mask = 0xFFFFFFFFu;
    const std::uint64_t mid = (a >> 32) * (b & mask) + ((a & mask) * (b & mask) >> 32);
    const std::uint64_t mid2 = (a & mask) * (b >> 32) + (mid & mask);
    high = (a >> 32) * (b >> 32) + (mid >> 32) + (mid2 >> 32);
    low = a * b;
  }
  friend constexpr auto operator<=>(const WideProduct&, const WideProduct&) noexcept = default;
  friend constexpr bool operator==(const WideProduct&, const WideProduct&) noexcept = default;  // nvcc 13.0 loses an implicit one
};

/// The groups that need bytes and are not fixed, in the order of a rule; ties by size, then number.
[[nodiscard]] constexpr std::vector<std::uint32_t> greedy_order(const OffsetInput& in, PlacementOrder order) {
  struct Key {
    WideProduct rule;
    Bytes size;
    std::uint32_t group;
  };
  std::vector<Key> keys;
  keys.reserve(in.group_count());
  for (std::uint32_t g = 0; g < in.group_count(); ++g) {
    const std::span<const std::uint32_t> members = in.members(g);
    if (members.empty() || in.is_fixed(g)) continue;
    const Bytes size = in.size(g);
    // Times are compared as distances, so that the whole range of the type is usable.
    const std::uint64_t begin = static_cast<std::uint64_t>(in.ranges[members.front()].begin) ^ (1ull << 63);
    const std::uint64_t end = static_cast<std::uint64_t>(in.ranges[members.back()].end) ^ (1ull << 63);
    WideProduct rule;
    switch (order) {
      case PlacementOrder::size:
        rule.high = static_cast<std::uint64_t>(size);
        rule.low = end - begin;
        break;
      case PlacementOrder::lifetime: rule.high = end - begin; break;
      case PlacementOrder::area: {
        std::uint64_t alive = 0;
        for (const std::uint32_t r : members)
          alive += static_cast<std::uint64_t>(in.ranges[r].end) - static_cast<std::uint64_t>(in.ranges[r].begin);
        rule = WideProduct(static_cast<std::uint64_t>(size), alive);
        break;
      }
      case PlacementOrder::conflicts:
        for (const std::uint32_t r : members) {
          const LiveRange& range = in.ranges[r];
          const auto begun = std::lower_bound(in.by_begin.begin(), in.by_begin.end(), range.end,
                                              [&](std::uint32_t a, std::int64_t t) { return in.ranges[a].begin < t; });
          const auto ended = std::upper_bound(in.by_end.begin(), in.by_end.end(), range.begin,
                                              [&](std::int64_t t, std::uint32_t a) { return t < in.ranges[a].end; });
          rule.high += static_cast<std::uint64_t>((begun - in.by_begin.begin()) - (ended - in.by_end.begin()));
        }
        break;
      case PlacementOrder::start: rule.high = ~begin; break;
      case PlacementOrder::end: rule.high = ~end; break;
    }
    keys.push_back({rule, size, g});
  }
  std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    if (a.rule != b.rule) return a.rule > b.rule;
    return a.size != b.size ? a.size > b.size : a.group < b.group;
  });
  std::vector<std::uint32_t> groups(keys.size(), 0);
  for (std::size_t i = 0; i < keys.size(); ++i) groups[i] = keys[i].group;
  return groups;
}

/// Places what is fixed, then `order`; gives the error of fixed groups that clash.
///
/// `too_high` tells that an offset does not fit an `Address`, and that not all is placed.
template <class Address>
[[nodiscard]] constexpr Error place_in_order(const OffsetInput& in, std::span<const std::uint32_t> order, Fit fit,
                                             std::span<const FixedOffset> preferred, std::span<Bytes> offsets, bool& too_high) {
  PlacedRanges<Address> placed(in);
  too_high = true;
  for (std::uint32_t g = 0; g < in.group_count(); ++g) {
    offsets[g] = in.is_fixed(g) ? in.fixed[g] : 0;
    if (!in.is_fixed(g)) continue;
    if (!placed.serves(g, in.fixed[g])) return {};
    if (!placed.is_free(g, in.fixed[g])) {
      Error e = make_error(Errc::invalid_argument, "two fixed offsets overlap");
      e.stage = Stage::plan;
      e.at_kind = AtKind::argument;
      e.at = g;
      return e;
    }
    placed.insert(g, in.fixed[g]);
  }
  std::vector<Bytes> wanted;
  if (!preferred.empty()) wanted.assign(in.group_count(), -1);
  for (const FixedOffset& p : preferred)
    if (p.group < in.group_count() && p.offset <= in.room) wanted[p.group] = p.offset;
  const std::size_t rest = order.size() / 64 + 16;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::uint32_t g = order[i];
    const bool takes_wanted =
        !wanted.empty() && wanted[g] >= 0 && wanted[g] % in.alignment(g) == 0 && placed.is_free(g, wanted[g]);
    offsets[g] = takes_wanted ? wanted[g] : placed.find(g, in.size(g), fit == Fit::best);
    if (!placed.serves(g, offsets[g])) return {};
    placed.insert(g, offsets[g]);
    while (i % rest == 0 && placed.crowded()) {
      placed.take_fewer_buckets();
      for (std::uint32_t f = 0; f < in.group_count(); ++f)
        if (in.is_fixed(f)) placed.insert(f, in.fixed[f]);
      for (std::size_t k = 0; k <= i; ++k) placed.insert(order[k], offsets[order[k]]);
    }
  }
  too_high = false;
  return {};
}

/// The same for all offsets: in 32-bit units as long as they do.
[[nodiscard]] constexpr Error place_in_order(const OffsetInput& in, std::span<const std::uint32_t> order, Fit fit,
                                             std::span<const FixedOffset> preferred, std::span<Bytes> offsets) {
  bool too_high = in.lower_bound / in.unit >= PlacedRanges<std::uint32_t>::most;
  if (!too_high)
    if (const Error e = place_in_order<std::uint32_t>(in, order, fit, preferred, offsets, too_high); !e.ok()) return e;
  return too_high ? place_in_order<Bytes>(in, order, fit, preferred, offsets, too_high) : Error{};
}

}  // namespace detail

/// Places groups one by one in a fixed order, each in a gap that is free during its life.
///
/// Errors: as `offset_planner` lists them. Threads: a value. Cost: O(n log n) times the strips that what lives together leaves
/// of the addresses; `Fit::best` looks at every gap that would do. At most 100 bytes a block: where tens of thousands live at
/// once, it looks at more of them one by one instead of keeping more strips.
/// Source: XLA GlobalDecreasingSizeBestFit; TFLite Micro and TVM USMP (lowest fit).
struct GreedyPlanner {
  PlacementOrder order = PlacementOrder::size;
  Fit fit = Fit::best;
  std::span<const FixedOffset> preferred = {};  ///< taken where aligned and free when the group's turn comes

  constexpr Result<OffsetPlan> operator()(const OffsetProblem& problem, std::span<Bytes> offsets) const {
    detail::OffsetInput in;
    if (Error e = detail::prepare_offsets(problem, offsets.size(), in); !e.ok()) return e;
    const std::vector<std::uint32_t> groups = detail::greedy_order(in, order);
    if (Error e = detail::place_in_order(in, groups, fit, preferred, offsets); !e.ok()) return e;
    return detail::finish_offsets(problem, in.lower_bound, offsets);
  }
};
static_assert(offset_planner<GreedyPlanner>);

}  // namespace holdfast
