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
#include "holdfast/plan/offsets_greedy.hpp"

namespace holdfast {

/// What several arenas need together.
struct ArenaPlan {
  std::vector<Bytes> sizes;  ///< of each arena, in the order of their making
  Bytes total = 0;
};

/// Places groups into as many arenas as a soft limit on the size of one asks for.
///
/// A group that does not fit below `limit` in an arena waits for the next one; one that is larger than the limit gets an
/// arena that is. Groups of different `colours` (one a group, or none at all) never share an arena.
/// Errors: as `offset_planner` lists them; invalid_argument for fixed offsets, which name no arena. Cost: as greedy, times arenas.
/// Source: XLA ConstrainedGlobalDecreasingSizeBestFitHeap.
[[nodiscard]] constexpr Result<ArenaPlan> plan_arenas(const OffsetProblem& problem, Bytes limit, std::span<Bytes> offsets,
                                                      std::span<std::uint32_t> arenas,
                                                      std::span<const std::uint32_t> colours = {},
                                                      GreedyPlanner rule = {}) {
  const auto wrong = [](const char* what) {
    Error e = make_error(Errc::invalid_argument, what);
    e.stage = Stage::plan;
    return e;
  };
  if (!problem.fixed.empty()) return wrong("a fixed offset names no arena");
  if (arenas.size() != problem.group_count) return wrong("one arena number a group is needed");
  if (!colours.empty() && colours.size() != problem.group_count) return wrong("one colour a group is needed, or none");
  detail::OffsetInput in;
  if (Error e = detail::prepare_offsets(problem, offsets.size(), in); !e.ok()) return e;
  for (std::uint32_t g = 0; g < problem.group_count; ++g) {
    offsets[g] = 0;
    arenas[g] = 0;
  }
  ArenaPlan plan;
  std::vector<std::uint32_t> waiting = detail::greedy_order(in, rule.order);
  std::vector<std::uint32_t> later;
  detail::PlacedRanges<Bytes> placed(in);
  while (!waiting.empty()) {
    placed.clear();
    const std::uint32_t first = waiting.front();
    Bytes size = 0;
    later.clear();
    for (const std::uint32_t g : waiting) {
      const Bytes offset = placed.find(g, in.size(g), rule.fit == Fit::best);
      const bool same_colour = colours.empty() || colours[g] == colours[first];
      if (!same_colour || (g != first && offset + in.size(g) > limit)) {
        later.push_back(g);
        continue;
      }
      offsets[g] = offset;
      arenas[g] = static_cast<std::uint32_t>(plan.sizes.size());
      placed.insert(g, offset);
      size = std::max(size, offset + in.size(g));
    }
    plan.sizes.push_back(size);
    plan.total += size;
    waiting.swap(later);
  }
  return plan;
}

}  // namespace holdfast
