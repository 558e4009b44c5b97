// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "holdfast/graph/graph.hpp"
#include "holdfast/plan/memory_scheduler.hpp"
#include "holdfast/plan/simulate.hpp"

namespace holdfast {

/// Runs first what is ready first: the most concurrency, not the least memory.
///
/// Errors: none. Threads: any. Cost: O(V + E). Source: XLA's BFScheduler, passes.md 7.4.
struct ScheduleBfs {
  [[nodiscard]] constexpr Result<Schedule> operator()(const Graph& graph) const {
    std::vector<std::uint32_t> pending = graph.pending();
    std::vector<NodeId> order;
    order.reserve(graph.size());
    for (std::uint32_t i = 0; i < pending.size(); ++i)
      if (pending[i] == 0) order.push_back(static_cast<NodeId>(i));
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (const NodeId u : graph.users(order[i]))
        if (--pending[index_of(u)] == 0) order.push_back(u);
      for (const NodeId f : graph.followers(order[i]))
        if (--pending[index_of(f)] == 0) order.push_back(f);
    }
    return detail::measured(graph, std::move(order));
  }
};
static_assert(memory_scheduler<ScheduleBfs>);

}  // namespace holdfast
