// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "holdfast/graph/graph.hpp"
#include "holdfast/plan/memory_scheduler.hpp"
#include "holdfast/plan/simulate.hpp"

namespace holdfast {

/// Keeps the order in which the nodes were added.
///
/// Errors: invalid_argument (that order has a node after its user, or a value read after it is
/// overwritten in place). Threads: any. Cost: O(V + E).
struct ScheduleAsGiven {
  [[nodiscard]] constexpr Result<Schedule> operator()(const Graph& graph) const {
    std::vector<NodeId> order(graph.size(), NodeId{});
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = static_cast<NodeId>(i);
    if (!verify_schedule(graph, order).ok())
      return make_error(
          Errc::invalid_argument,
          "the given order has a node after its user, or a value read after it is overwritten");
    return detail::measured(graph, std::move(order));
  }
};
static_assert(memory_scheduler<ScheduleAsGiven>);

}  // namespace holdfast
