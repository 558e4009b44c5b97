// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"
#include "holdfast/plan/detail/first_offsets.hpp"
#include "holdfast/plan/detail/offset_problem.hpp"
#include "holdfast/plan/detail/offset_search.hpp"
#include "holdfast/plan/live_range.hpp"
#include "holdfast/plan/offset_planner.hpp"
#include "holdfast/plan/stop.hpp"

namespace holdfast {

namespace detail {

/// Lowers the peak of a plan until it is proven least, fits a wanted capacity, or the effort is used up.
///
/// Reads and writes `offsets` and `peak`, raises `bound`; `nodes` is lowered by those used.
/// Units: `nodes` counts branches of the search.
template <class Stop>
constexpr void improve_offsets(const OffsetInput& in, Bytes wanted, std::int64_t nodes, const Stop& stop,
                               std::span<Bytes> offsets, Bytes& peak, Bytes& bound) {
  if (!OffsetSearch::serves(in, peak)) return;
  OffsetSearch search(in);
  std::vector<Bytes> trial(offsets.begin(), offsets.end());
  bound = std::max(bound, std::min(search.groups().round_up(bound), peak));
  const auto probe = [&](Bytes capacity, std::int64_t budget, unsigned& round) {
    budget = std::min(budget, nodes);
    const std::int64_t before = budget;
    const SearchEnd end = search.run(capacity, budget, round, stop, trial);
    nodes -= 1 + before - std::max<std::int64_t>(budget, 0);  // one at least, so that every effort ends
    if (end == SearchEnd::impossible) bound = std::min(search.groups().round_up(capacity + 1), peak);
    if (end != SearchEnd::found) return end;
    std::copy(trial.begin(), trial.end(), offsets.begin());
    peak = highest_end(in, offsets);
    return end;
  };
  const bool any_will_do = wanted < max_bytes;
  std::int64_t budget = any_will_do ? 4 * search.descent() : (1 << 14) + 64 * search.descent();
  unsigned bound_round = 0;
  unsigned wanted_round = 0;
  Bytes step = 0;
  while (nodes > 0 && bound < peak && !(any_will_do && (peak <= wanted || bound > wanted)) && !stop()) {
    // The bound is asked first: where it can be met, it is easier to meet than a little more.
    const Bytes asked = std::max(search.groups().round_down(bound + std::min(step, (peak - bound) / 2)), bound);
    const Bytes old_bound = bound;
    unsigned fresh = 0;
    const bool all = any_will_do && bound == wanted;
    const SearchEnd end = probe(asked, all ? nodes : budget, asked == bound ? bound_round : fresh);
    if (end == SearchEnd::impossible) step = 2 * std::min(step, peak / 4) + 1 + (peak - bound) / 256;
    if (end == SearchEnd::found) step /= 2;
    if (bound != old_bound) bound_round = 0;
    if (end != SearchEnd::gave_up) continue;
    step = 0;
    if (any_will_do) {
      probe(wanted, 4 * budget, wanted_round);
    } else {
      // Halving on what is likely, where nothing is proven.
      for (Bytes low = asked; peak - low > std::max<Bytes>(1, peak / 1024) && nodes > 0 && !stop();) {
        const Bytes middle = std::max(search.groups().round_down(low + (peak - low) / 2), bound);
        if (middle <= low || middle >= peak) break;
        fresh = 0;
        if (probe(middle, budget, fresh) != SearchEnd::found) low = std::max(bound, middle);
      }
      fresh = 0;
      if (bound < peak && nodes > 0) probe(std::max(search.groups().round_down(peak - 1), bound), budget, fresh);
    }
    budget = std::min(2 * budget, nodes);
  }
}

}  // namespace detail

/// Finds the least peak by search, from the lower bound up; the best plan so far when the effort is used up.
///
/// With a capacity, the first plan that fits ends it. Units: `nodes` counts branches of the search, so that it bounds the
/// effort the same on every machine; `stop()` is asked every few hundred of them and may end it sooner. `fills` and
/// `greedy_groups` are the effort for the first plan, as in `PlanOffsets`: 0 for the least, where a compiler counts steps.
/// Errors: as `offset_planner` lists them. Threads: a value. Cost: up to `nodes` times the blocks of one stretch of time; memory
/// for at most 640 bytes a block and 192 KiB.
template <class Stop = NeverStop>
struct ExactPlanner {
  std::int64_t nodes = 1 << 20;
  std::uint32_t fills = 16;
  std::uint32_t greedy_groups = 4096;
  HOLDFAST_NO_UNIQUE_ADDRESS Stop stop = {};

  constexpr Result<OffsetPlan> operator()(const OffsetProblem& problem, std::span<Bytes> offsets) const {
    detail::OffsetInput in;
    if (Error e = detail::prepare_offsets(problem, offsets.size(), in); !e.ok()) return e;
    Bytes peak = max_bytes;
    if (Error e = detail::first_offsets(in, fills, greedy_groups, stop, offsets, peak); !e.ok()) return e;
    if (peak > in.lower_bound && nodes > 0)
      detail::improve_offsets(in, problem.capacity, nodes, stop, offsets, peak, in.lower_bound);
    return detail::finish_offsets(problem, in.lower_bound, offsets);
  }
};
static_assert(offset_planner<ExactPlanner<>>);

}  // namespace holdfast
