// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"
#include "holdfast/plan/detail/offset_problem.hpp"
#include "holdfast/plan/detail/online_fit.hpp"
#include "holdfast/plan/detail/valley_fill.hpp"
#include "holdfast/plan/live_range.hpp"
#include "holdfast/plan/offset_planner.hpp"
#include "holdfast/plan/offsets_greedy.hpp"

namespace holdfast {

namespace detail {

/// Serves what an online allocator could serve to a thousandth of the bound, forwards or backwards in time; false otherwise.
///
/// Writes the better of both into `offsets`, whose former content is lost in any case.
constexpr bool place_online(const OffsetInput& in, std::span<Bytes> offsets, std::span<Bytes> trial) {
  const Bytes close = in.lower_bound + in.lower_bound / 1024;
  const Bytes forwards = fit_online(in, false, close, offsets);
  if (forwards == in.lower_bound) return true;
  const Bytes backwards = fit_online(in, true, std::min(close, forwards - 1), trial);
  if (backwards <= close) std::copy(trial.begin(), trial.end(), offsets.begin());
  return std::min(forwards, backwards) <= close;
}

/// Programs shorter than this are filled from the start.
inline constexpr std::size_t long_program = 512;

}  // namespace detail

/// Plans in about the time of an online allocator, by one pass over time where that is enough, else by filling time from
/// the ground up.
///
/// Where offsets are fixed it places by size instead. Errors: as `offset_planner` lists them. Threads: a value.
/// Cost: O(n log n) in practice; below 100 bytes a block.
struct FastPlanner {
  constexpr Result<OffsetPlan> operator()(const OffsetProblem& problem, std::span<Bytes> offsets) const {
    detail::OffsetInput in;
    if (Error e = detail::prepare_offsets(problem, offsets.size(), in); !e.ok()) return e;
    std::fill(offsets.begin(), offsets.end(), Bytes{0});
    if (in.any_fixed) {
      const std::vector<std::uint32_t> groups = detail::greedy_order(in, PlacementOrder::size);
      if (Error e = detail::place_in_order(in, groups, Fit::lowest, {}, offsets); !e.ok()) return e;
      return detail::finish_offsets(problem, in.lower_bound, offsets);
    }
    bool placed = false;
    if (in.member.size() >= detail::long_program) {
      std::vector<Bytes> trial(offsets.size(), 0);
      placed = detail::place_online(in, offsets, trial);
    }
    if (!placed) detail::ValleyFill(in).run(detail::fill_rules[0], 0, offsets);
    return detail::finish_offsets(problem, in.lower_bound, offsets);
  }
};
static_assert(offset_planner<FastPlanner>);

}  // namespace holdfast
