// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "holdfast/graph/graph.hpp"
#include "holdfast/plan/memory_scheduler.hpp"
#include "holdfast/plan/simulate.hpp"

namespace holdfast {

namespace detail {

/// Depth-first orders: `children(node, stack)` pushes what must run before a node, the first to
/// visit last.
class DepthFirst {
 public:
  constexpr explicit DepthFirst(const Graph& graph) : state_(graph.size(), 0) {
    order_.reserve(graph.size());
  }

  template <class Children>
  constexpr void visit(NodeId from, const Children& children) {
    stack_.push_back(from);
    while (!stack_.empty()) {
      const NodeId n = stack_.back();
      char& state = state_[index_of(n)];
      if (state == 0) {
        state = 1;
        children(n, stack_);
        continue;
      }
      stack_.pop_back();
      if (std::exchange(state, 2) == 1) order_.push_back(n);
    }
  }
  [[nodiscard]] constexpr std::vector<NodeId>& order() noexcept { return order_; }
  [[nodiscard]] constexpr bool seen(NodeId n) const noexcept { return state_[index_of(n)] != 0; }

 private:
  std::vector<char> state_;  // 0: new, 1: on the stack, 2: in the order
  std::vector<NodeId> stack_;
  std::vector<NodeId> order_;
};

constexpr std::vector<NodeId> post_order(const Graph& graph) {
  DepthFirst search(graph);
  for (std::uint32_t i = 0; i < graph.size(); ++i) {
    if (!graph.users(static_cast<NodeId>(i)).empty()) continue;
    search.visit(static_cast<NodeId>(i), [&](NodeId n, std::vector<NodeId>& stack) {
      const std::span<const NodeId> operands = graph.operands(n), controls = graph.controls(n);
      for (std::size_t k = operands.size(); k-- > 0;)
        if (!search.seen(operands[k])) stack.push_back(operands[k]);
      for (const NodeId c : controls)
        if (!search.seen(c)) stack.push_back(c);
    });
  }
  return std::move(search.order());
}

}  // namespace detail

/// Orders by depth-first search from the nodes without users, in insertion order; control
/// predecessors first.
///
/// Errors: none. Threads: any. Cost: O(V + E). Source: XLA's PostOrderScheduler, passes.md 1.3.
struct SchedulePostOrder {
  [[nodiscard]] constexpr Result<Schedule> operator()(const Graph& graph) const {
    return detail::measured(graph, detail::post_order(graph));
  }
};
static_assert(memory_scheduler<SchedulePostOrder>);

}  // namespace holdfast
