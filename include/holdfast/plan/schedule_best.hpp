// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "holdfast/graph/graph.hpp"
#include "holdfast/plan/memory_scheduler.hpp"
#include "holdfast/plan/schedule_as_given.hpp"
#include "holdfast/plan/schedule_bfs.hpp"
#include "holdfast/plan/schedule_dfs.hpp"
#include "holdfast/plan/schedule_list.hpp"
#include "holdfast/plan/schedule_post_order.hpp"

namespace holdfast {

/// Several schedules of one graph and which of them is best.
struct Comparison {
  std::vector<Schedule> schedules;
  std::size_t chosen = 0;  ///< the first with the least peak
};

/// Tries the classic schedulers and keeps the order with the least peak.
///
/// Without `compat` it is never worse than any of them, nor than the given order where that is one.
/// With `compat`: XLA's list, depth-first and post-order, in this order of preference.
/// Errors: none. Threads: any. Cost: O((V + E) log V). Source: XLA's DefaultMemoryScheduler,
/// passes.md 7.5.
struct ScheduleBest {
  bool compat = false;

  /// Where the order as given stands in a comparison without `compat`, if it is an order at all.
  static constexpr std::size_t as_given = 5;

  /// Gives all that were tried; compat: list, depth-first, post-order.
  [[nodiscard]] constexpr Comparison compare(const Graph& graph) const {
    Comparison out;
    const auto add = [&](Result<Schedule> s) {
      if (s.ok()) out.schedules.push_back(std::move(s).value());
    };
    add(ScheduleList{true}(graph));
    add(ScheduleDfs{}(graph));
    add(SchedulePostOrder{}(graph));
    if (!compat) {
      add(ScheduleList{}(graph));
      add(ScheduleBfs{}(graph));
      add(ScheduleAsGiven{}(graph));
    }
    for (std::size_t i = 1; i < out.schedules.size(); ++i)
      if (out.schedules[i].peak < out.schedules[out.chosen].peak) out.chosen = i;
    return out;
  }
  [[nodiscard]] constexpr Result<Schedule> operator()(const Graph& graph) const {
    Comparison all = compare(graph);
    return std::move(all.schedules[all.chosen]);
  }
};
static_assert(memory_scheduler<ScheduleBest>);

}  // namespace holdfast
