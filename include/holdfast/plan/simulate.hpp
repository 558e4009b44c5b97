// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "holdfast/graph/graph.hpp"
#include "holdfast/plan/memory_scheduler.hpp"

namespace holdfast {

/// The bytes alive after some nodes of a graph have run, and what the next one would do to them.
///
/// A buffer counts once while any of its values is alive. A value that may reuse an operand takes
/// its memory over when its node is the operand's last reader. What is alive depends on which nodes
/// have run, not on their order. Threads: one object, one thread, looks included. Cost: O(V) to
/// make.
class LiveBytes {
 public:
  /// What one node costs.
  struct Step {
    Bytes during = 0;  ///< alive while it runs, its transient bytes included
    Bytes after = 0;   ///< alive when it has run
  };

  constexpr explicit LiveBytes(const Graph& graph)
      : graph_(&graph),
        left_(graph.values.size(), 0),
        alive_(graph.buffers.size(), 0),
        taken_(graph.values.size(), 0) {
    for (std::size_t v = 0; v < left_.size(); ++v)
      left_[v] =
          graph.values[v].readers.count + (graph.values[v].lifetime == Lifetime::output ? 1 : 0);
  }

  [[nodiscard]] constexpr Bytes live() const noexcept { return live_; }
  /// How many readers of a value are still to run; an output has one more.
  [[nodiscard]] constexpr std::uint32_t left(ValueId v) const noexcept {
    return left_[index_of(v)];
  }
  /// Whether a node that has run took the memory of a value over.
  [[nodiscard]] constexpr bool taken(ValueId v) const noexcept { return taken_[index_of(v)] != 0; }
  /// Tells what a node whose operands have run would cost. Cost: O(its reads and results).
  [[nodiscard]] constexpr Step look(NodeId n) noexcept {
    const Step step = enter(n);
    leave(n);
    return step;
  }
  /// Runs a node.
  constexpr Step run(NodeId n) noexcept {
    const Step step = enter(n);
    live_ = step.after;
    return step;
  }
  /// Takes back the node that ran last.
  constexpr void undo(NodeId n, Bytes live_before) noexcept {
    leave(n);
    live_ = live_before;
  }

 private:
  const Graph* graph_;
  std::vector<std::uint32_t> left_;
  std::vector<std::uint32_t> alive_;
  std::vector<char> taken_;
  Bytes live_ = 0;

  [[nodiscard]] constexpr bool take_over(const Graph::Value& v) noexcept {
    if (graph_->buffers[v.buffer].members != 1) return false;
    for (const ValueId w : graph_->reuses(static_cast<ValueId>(&v - graph_->values.data()))) {
      const Graph::Value& old = (*graph_)[w];
      const Graph::Buffer& b = graph_->buffers[old.buffer];
      if (left_[index_of(w)] != 1 || !b.counted || b.members != 1 || taken_[index_of(w)] != 0)
        continue;
      taken_[index_of(w)] = 1;
      return true;
    }
    return false;
  }
  constexpr Step enter(NodeId n) noexcept {
    const Graph::Node& node = (*graph_)[n];
    Bytes fresh = 0, kept = 0, freed = 0;
    for (std::uint32_t i = node.values.begin; i < node.values.end(); ++i) {
      const Graph::Value& v = graph_->values[i];
      const Graph::Buffer& b = graph_->buffers[v.buffer];
      if (!b.counted || alive_[v.buffer]++ != 0) continue;
      (take_over(v) ? kept : fresh) += b.size;
    }
    for (const ValueId r : graph_->reads(n)) {
      const Graph::Value& v = (*graph_)[r];
      const Graph::Buffer& b = graph_->buffers[v.buffer];
      if (--left_[index_of(r)] == 0 && b.counted && --alive_[v.buffer] == 0) freed += b.size;
    }
    for (std::uint32_t i = node.values.begin; i < node.values.end(); ++i) {
      const Graph::Value& v = graph_->values[i];
      const Graph::Buffer& b = graph_->buffers[v.buffer];
      if (left_[i] == 0 && b.counted && --alive_[v.buffer] == 0) freed += b.size;
    }
    return {live_ + fresh + node.transient, live_ + fresh + kept - freed};
  }
  constexpr void leave(NodeId n) noexcept {
    const Graph::Node& node = (*graph_)[n];
    for (const ValueId r : graph_->reads(n)) {
      const std::uint32_t buffer = (*graph_)[r].buffer;
      taken_[index_of(r)] = 0;
      if (left_[index_of(r)]++ == 0 && graph_->buffers[buffer].counted) ++alive_[buffer];
    }
    for (std::uint32_t i = node.values.begin; i < node.values.end(); ++i) {
      const std::uint32_t buffer = graph_->values[i].buffer;
      if (left_[i] != 0 && graph_->buffers[buffer].counted) --alive_[buffer];
    }
  }
};

/// How values of one buffer count where one follows the other.
enum class HandOver : std::uint8_t {
  once,   ///< the buffer counts once
  twice,  ///< both count while both are alive: XLA's own figure, which is no bound
};

/// What an order costs.
struct Simulation {
  Bytes peak = 0;            ///< without `Graph::held_bytes`
  std::size_t position = 0;  ///< in the order, of the first node that runs at the peak
};

namespace detail {

constexpr Simulation simulate_once(const Graph& graph, std::span<const NodeId> order) {
  LiveBytes live(graph);
  Simulation out;
  for (std::size_t i = 0; i < order.size(); ++i)
    if (const Bytes during = live.run(order[i]).during; during > out.peak) out = {during, i};
  return out;
}

constexpr Simulation simulate_twice(const Graph& graph, std::span<const NodeId> order) {
  std::vector<std::uint32_t> left(graph.values.size(), 0);
  std::vector<char> taken(graph.values.size(), 0);
  for (std::size_t v = 0; v < left.size(); ++v)
    left[v] =
        graph.values[v].readers.count + (graph.values[v].lifetime == Lifetime::output ? 1 : 0);
  const auto counts = [&](ValueId v) {
    return graph.counted(v) ? graph.buffers[graph[v].buffer].size : 0;
  };
  const auto alone = [&](ValueId v) { return graph.buffers[graph[v].buffer].members == 1; };
  Simulation out;
  Bytes live = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Graph::Node& node = graph[order[i]];
    for (std::uint32_t k = node.values.begin; k < node.values.end(); ++k) {
      const auto v = static_cast<ValueId>(k);
      bool reused = false;
      if (alone(v) && graph.counted(v))
        for (const ValueId w : graph.reuses(v)) {
          if (left[index_of(w)] != 1 || !graph.counted(w) || !alone(w) || taken[index_of(w)] != 0)
            continue;
          reused = true;
          taken[index_of(w)] = 1;
          break;
        }
      if (!reused) live += counts(v);
    }
    if (live + node.transient > out.peak) out = {live + node.transient, i};
    for (const ValueId r : graph.reads(order[i]))
      if (--left[index_of(r)] == 0 && taken[index_of(r)] == 0) live -= counts(r);
    for (std::uint32_t k = node.values.begin; k < node.values.end(); ++k)
      if (left[k] == 0) live -= counts(static_cast<ValueId>(k));
  }
  return out;
}

/// A schedule of an order that is known to be valid.
constexpr Schedule measured(const Graph& graph, std::vector<NodeId> order) {
  Schedule out;
  out.peak = simulate_once(graph, order).peak;
  out.order = std::move(order);
  return out;
}

}  // namespace detail

/// Gives the peak of an order.
///
/// Errors: invalid_argument (no valid order of the graph). Cost: O(V + E). Source: XLA's
/// HeapSimulator with NoFragmentationStatsHeap; counting a buffer once is the rule of its peak
/// memory.
[[nodiscard]] constexpr Result<Simulation> simulate(const Graph& graph,
                                                    std::span<const NodeId> order,
                                                    HandOver hand_over = HandOver::once) {
  if (const Error e = verify_schedule(graph, order); !e.ok()) return e;
  return hand_over == HandOver::once ? detail::simulate_once(graph, order)
                                     : detail::simulate_twice(graph, order);
}

/// Makes a schedule of an order that somebody chose.
///
/// Errors: as `simulate`. Cost: O(V + E).
[[nodiscard]] constexpr Result<Schedule> make_schedule(const Graph& graph,
                                                       std::vector<NodeId> order) {
  if (const Error e = verify_schedule(graph, order); !e.ok()) return e;
  return detail::measured(graph, std::move(order));
}

/// Gives the values whose bytes are alive while the node at a position runs: who holds the peak.
///
/// Of one buffer, the value defined last. Errors: invalid_argument (no valid order, no such
/// position). Cost: O(V + E).
[[nodiscard]] constexpr Result<std::vector<ValueId>> live_at(const Graph& graph,
                                                             std::span<const NodeId> order,
                                                             std::size_t position) {
  if (const Error e = verify_schedule(graph, order); !e.ok()) return e;
  if (position >= order.size())
    return make_error(Errc::invalid_argument, "no such position in the schedule");
  std::vector<ValueId> newest(graph.buffers.size(), no_id<ValueId>);
  std::vector<ValueId> out;
  LiveBytes live(graph);
  for (std::size_t i = 0; i < position; ++i) live.run(order[i]);
  for (std::size_t i = 0; i <= position; ++i) {
    if (i == position) live.run(order[i]);
    const Graph::Node& n = graph[order[i]];
    for (std::uint32_t k = n.values.begin; k < n.values.end(); ++k) {
      const auto v = static_cast<ValueId>(k);
      if (graph.counted(v) && (i == position || live.left(v) != 0)) newest[graph[v].buffer] = v;
    }
  }
  for (const ValueId v : newest)
    if (v != no_id<ValueId> && !live.taken(v)) out.push_back(v);
  return out;
}

}  // namespace holdfast
