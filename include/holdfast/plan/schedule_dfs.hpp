// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "holdfast/graph/graph.hpp"
#include "holdfast/plan/memory_scheduler.hpp"
#include "holdfast/plan/schedule_post_order.hpp"
#include "holdfast/plan/simulate.hpp"

namespace holdfast {

namespace detail {

/// What lies above a node: users beyond the first, and bytes defined.
struct Ancestry {
  Bytes extra = 0;
  Bytes total = 0;
};

constexpr std::vector<Ancestry> ancestry(const Graph& graph) {
  std::vector<Ancestry> out(graph.size());
  std::vector<std::uint32_t> stamp(graph.size(), 0xFFFFFFFFu);
  Bytes sum = 0;
  for (const NodeId n : post_order(graph)) {
    const Graph::Node& node = graph[n];
    if (node.source) continue;
    Ancestry a{std::max<Bytes>(0, static_cast<Bytes>(node.users.count) - 1), 0};
    for (std::uint32_t v = node.values.begin; v < node.values.end(); ++v)
      a.total += graph.values[v].size;
    sum += a.total;
    for (const NodeId o : graph.operands(n)) {
      if (std::exchange(stamp[index_of(o)], index_of(n)) == index_of(n)) continue;
      a.extra = saturating_add(a.extra, out[index_of(o)].extra);
      a.total = saturating_add(a.total, out[index_of(o)].total);
    }
    out[index_of(n)] = {std::min(a.extra, static_cast<Bytes>(graph.size())),
                        std::min(a.total, sum)};
  }
  return out;
}

}  // namespace detail

/// Orders by depth-first search that visits first the operands with most users and bytes above
/// them.
///
/// Errors: none. Threads: any. Cost: O(V + E log E). Source: XLA's DFSMemoryScheduler,
/// passes.md 7.3.
struct ScheduleDfs {
  [[nodiscard]] constexpr Result<Schedule> operator()(const Graph& graph) const {
    const std::vector<detail::Ancestry> above = detail::ancestry(graph);
    detail::DepthFirst search(graph);
    // The stack is visited from its end, so what goes first stands last.
    const auto later = [&](NodeId a, NodeId b) {
      const detail::Ancestry &x = above[index_of(a)], &y = above[index_of(b)];
      if (x.extra != y.extra) return x.extra < y.extra;
      if (x.total != y.total) return x.total < y.total;
      if (graph[a].name != graph[b].name) return graph[a].name > graph[b].name;
      return a > b;
    };
    const auto children = [&](NodeId n, std::vector<NodeId>& stack) {
      const auto mark = static_cast<std::ptrdiff_t>(stack.size());
      for (const NodeId o : graph.operands(n))
        if (!search.seen(o)) stack.push_back(o);
      for (const NodeId c : graph.controls(n))
        if (!search.seen(c)) stack.push_back(c);
      std::sort(stack.begin() + mark, stack.end(), later);
    };
    const auto visit_ends = [&](auto wanted) {
      for (std::uint32_t i = 0; i < graph.size(); ++i)
        if (const auto n = static_cast<NodeId>(i); wanted(n)) search.visit(n, children);
    };
    visit_ends([&](NodeId n) {
      return graph.users(n).empty() && graph.followers(n).empty() && n != graph.root;
    });
    if (graph.root != no_id<NodeId>) search.visit(graph.root, children);
    // Whatever leads only into control edges was reached through these; a root with users may leave
    // some behind.
    visit_ends([](NodeId) { return true; });
    return detail::measured(graph, std::move(search.order()));
  }
};
static_assert(memory_scheduler<ScheduleDfs>);

}  // namespace holdfast
