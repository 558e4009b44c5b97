// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"
#include "holdfast/plan/detail/first_offsets.hpp"
#include "holdfast/plan/detail/offset_problem.hpp"
#include "holdfast/plan/live_range.hpp"
#include "holdfast/plan/offset_planner.hpp"
#include "holdfast/plan/offsets_exact.hpp"

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
    detail::OffsetInput in;
    if (Error e = detail::prepare_offsets(problem, offsets.size(), in); !e.ok()) return e;
    Bytes peak = max_bytes;
    const auto greedy = static_cast<std::uint32_t>(std::clamp<std::int64_t>(nodes / 64, greedy_groups, 0xFFFFFFFF));
    if (Error e = detail::first_offsets(in, fills, greedy, stop, offsets, peak); !e.ok()) return e;
    if (peak > in.lower_bound && nodes > 0)
      detail::improve_offsets(in, problem.capacity, nodes, stop, offsets, peak, in.lower_bound);
    return detail::finish_offsets(problem, in.lower_bound, offsets);
  }
};
static_assert(offset_planner<PlanOffsets<>>);

}  // namespace holdfast
