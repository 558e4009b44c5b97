// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"
#include "holdfast/graph/graph.hpp"

namespace holdfast {

/// An order of all nodes of a graph and what it costs.
struct Schedule {
  std::vector<NodeId> order;
  Bytes peak =
      0;  ///< most bytes that come and go, alive at one time; `Graph::held_bytes` is beside it
  Bytes lower_bound = 0;        ///< no order of the graph has a lower peak
  bool proven_optimal = false;  ///< `peak` is known to be the least possible
};

/// Something that chooses an order; effort is a member of the scheduler.
///
/// The sizes are in the graph: an engine has its own graph anyway, and a size function that is
/// asked per value while the order is searched would make every scheduler a template. Errors:
/// unsupported (the order asked for does not exist). Threads: as its members. Source: XLA's
/// ModuleSchedulerAlgorithm.
template <class S>
concept memory_scheduler = requires(const S& scheduler, const Graph& graph) {
  { scheduler(graph) } -> std::same_as<Result<Schedule>>;
};

/// Checks that an order has every node once, after all its operands and control predecessors.
///
/// Errors: invalid_argument, with the position in the order. Cost: O(V + E).
[[nodiscard]] constexpr Error verify_schedule(const Graph& graph, std::span<const NodeId> order) {
  const auto bad = [](const char* what, std::size_t position) {
    Error e = make_error(Errc::invalid_argument, what);
    e.stage = Stage::verify;
    e.at_kind = AtKind::count;
    e.at = position;
    return e;
  };
  if (order.size() != graph.size())
    return bad("a schedule has more or fewer nodes than its graph", order.size());
  std::vector<std::uint32_t> place(graph.size(), 0xFFFFFFFFu);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (index_of(order[i]) >= graph.size()) return bad("a schedule names no node of its graph", i);
    if (place[index_of(order[i])] != 0xFFFFFFFFu) return bad("a schedule has a node twice", i);
    place[index_of(order[i])] = static_cast<std::uint32_t>(i);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const NodeId u : graph.users(order[i]))
      if (place[index_of(u)] < i) return bad("a schedule has a node after its user", i);
    for (const NodeId f : graph.followers(order[i]))
      if (place[index_of(f)] < i)
        return bad("a schedule has a node after its control successor", i);
  }
  return {};
}

}  // namespace holdfast
