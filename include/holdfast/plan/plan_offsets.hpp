// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"
#include "holdfast/plan/live_range.hpp"
#include "holdfast/plan/offset_planner.hpp"
#include "holdfast/plan/offsets_exact.hpp"
#include "holdfast/plan/stop.hpp"

namespace holdfast {

/// The default planner: fills, greedy orders, then search, the best of all; stops once the lower bound is met.
///
/// With a capacity, the first plan that fits ends the search. `nodes` bounds the effort the same on every machine;
/// `stop()` may end it sooner, after the first plan. Up to `greedy_groups` groups, or one for each 64 `nodes` where that is more,
/// it is never worse than any of the planners that it chooses among; beyond, the greedy orders would take longer than all else,
/// so of what has no fixed offsets only the fills that do best are tried.
/// Units: `nodes` counts branches of the search, `fills` passes that differ by chance (0: one pass in all).
/// Errors: as `offset_planner` lists them. Threads: a value. Cost: at most 100 bytes a block without the search, which takes up
/// to 640 bytes a block and 192 KiB, for stretches of time of at most 8192 ranges.
template <class Stop = NeverStop>
struct PlanOffsets {
  std::int64_t nodes = 1 << 18;
  std::uint32_t fills = 16;
  std::uint32_t greedy_groups = 4096;
  HOLDFAST_NO_UNIQUE_ADDRESS Stop stop = {};

  constexpr Result<OffsetPlan> operator()(const OffsetProblem& problem, std::span<Bytes> offsets) const {
    const auto greedy = static_cast<std::uint32_t>(std::clamp<std::int64_t>(nodes / 64, greedy_groups, 0xFFFFFFFF));
    return ExactPlanner<Stop>{nodes, fills, greedy, stop}(problem, offsets);
  }
};
static_assert(offset_planner<PlanOffsets<>>);

}  // namespace holdfast
