// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "holdfast/graph/graph.hpp"
#include "holdfast/plan/memory_scheduler.hpp"
#include "holdfast/plan/simulate.hpp"

namespace holdfast {

namespace detail {

/// How much a list scheduler wants a node; the larger one runs first.
struct Priority {
  Bytes first = 0;
  Bytes second = 0;
  friend constexpr bool operator==(const Priority&, const Priority&) noexcept = default;
};

/// Ready nodes by priority; among equals the one put in last. A node put in again replaces its
/// entry.
class ReadyQueue {
 public:
  constexpr explicit ReadyQueue(std::size_t nodes) : newest_(nodes, 0), priority_(nodes) {}

  [[nodiscard]] constexpr bool has(NodeId n) const noexcept { return newest_[index_of(n)] != 0; }
  constexpr void put(NodeId n, Priority p) {
    newest_[index_of(n)] = ++count_;
    priority_[index_of(n)] = p;
    heap_.push_back({p, count_, n});
    std::push_heap(heap_.begin(), heap_.end(), less);
  }
  /// Puts a node in again if its priority is another one now.
  constexpr void refresh(NodeId n, Priority p) {
    if (!(priority_[index_of(n)] == p)) put(n, p);
  }
  /// Takes the best node out; `no_id` when there is none.
  constexpr NodeId take() {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), less);
      const Entry e = heap_.back();
      heap_.pop_back();
      if (newest_[index_of(e.node)] != e.number) continue;
      newest_[index_of(e.node)] = 0;
      return e.node;
    }
    return no_id<NodeId>;
  }

 private:
  struct Entry {
    Priority priority;
    std::uint64_t number = 0;
    NodeId node{};
  };
  static constexpr bool less(const Entry& a, const Entry& b) noexcept {
    return std::tie(a.priority.first, a.priority.second, a.number) <
           std::tie(b.priority.first, b.priority.second, b.number);
  }
  std::vector<Entry> heap_;
  std::vector<std::uint64_t> newest_;  // number of the valid entry; 0: not in the queue
  std::vector<Priority> priority_;
  std::uint64_t count_ = 0;
};

/// Runs a list schedule: `rule` has `priority(node)`, and `ran(node, queue)`, which refreshes what
/// a run changed.
template <class Rule>
constexpr std::vector<NodeId> list_order(const Graph& graph, Rule& rule) {
  std::vector<std::uint32_t> pending = graph.pending();
  ReadyQueue ready(graph.size());
  std::vector<NodeId> order;
  order.reserve(graph.size());
  for (std::uint32_t i = 0; i < pending.size(); ++i)
    if (const auto n = static_cast<NodeId>(i); pending[i] == 0) ready.put(n, rule.priority(n));
  for (NodeId n = ready.take(); n != no_id<NodeId>; n = ready.take()) {
    order.push_back(n);
    rule.run(n);
    for (const NodeId u : graph.users(n))
      if (--pending[index_of(u)] == 0) ready.put(u, rule.priority(u));
    for (const NodeId f : graph.followers(n))
      if (--pending[index_of(f)] == 0) ready.put(f, rule.priority(f));
    rule.refresh(n, ready);
  }
  return order;
}

constexpr bool urgent(const Graph::Node& n, Priority& p) noexcept {
  constexpr auto top = std::numeric_limits<std::int32_t>::max();
  switch (n.urgency) {
    case Urgency::normal:
      return false;
    case Urgency::first:
      p = {max_bytes, max_bytes};
      break;
    case Urgency::early:
      p.first = top;
      break;
    case Urgency::late:
      p.first = -Bytes{top} - 1;
      break;
  }
  return true;
}

/// The rules of XLA's list scheduler to the letter: what an operand's tuple holds counts as used,
/// priorities go stale where XLA's do. Where that would cost more than `budget` looks at values,
/// plain reads are used.
class XlaListRule {
  static constexpr std::uint64_t budget = std::uint64_t{1} << 22;
  static constexpr std::size_t most_stale = 4096;
  static constexpr std::uint32_t nobody = 0xFFFFFFFFu;

  const Graph& graph_;
  std::vector<std::uint32_t> count_;
  std::vector<std::uint32_t> last_user_;  // all users still to run, xor-ed: one left is the one
  std::vector<std::uint32_t> value_stamp_, node_stamp_, rank_;
  std::vector<NodeId> stale_;
  std::uint32_t stamp_ = 0, value_round_ = 0;
  bool flat_ = true, changed_ = false;

  template <class F>
  constexpr void each_use(NodeId n, F f) {
    if (!flat_) {
      for (const ValueId v : graph_.reads(n)) f(v);
      return;
    }
    ++value_round_;
    const auto once = [&](ValueId v) {
      if (std::exchange(value_stamp_[index_of(v)], value_round_) != value_round_) f(v);
    };
    for (const NodeId o : graph_.operands(n)) graph_.each_result(o, once);
  }

 public:
  constexpr explicit XlaListRule(const Graph& graph)
      : graph_(graph),
        count_(graph.values.size(), 0),
        last_user_(graph.values.size(), 0),
        value_stamp_(graph.values.size(), 0),
        node_stamp_(graph.size(), 0),
        rank_(graph.size(), 0) {
    std::uint64_t looks = 0;
    for (std::uint32_t i = 0; i < graph.size(); ++i)
      for (const NodeId o : graph.operands(static_cast<NodeId>(i)))
        looks += graph[o].values.count + graph[o].forwards.count;
    flat_ = looks <= budget + 4 * (graph.value_ids.size() + graph.size());
    for (std::uint32_t i = 0; i < graph.size(); ++i)
      each_use(static_cast<NodeId>(i),
               [&](ValueId v) { ++count_[index_of(v)], last_user_[index_of(v)] ^= i; });
    for (std::size_t v = 0; v < count_.size(); ++v)
      if (graph.values[v].lifetime == Lifetime::output) ++count_[v], last_user_[v] ^= nobody;
  }

  constexpr Priority priority(NodeId n) {
    Priority p{0, static_cast<Bytes>(graph_[n].users.count)};
    if (urgent(graph_[n], p)) return p;
    each_use(n, [&](ValueId v) {
      if (count_[index_of(v)] == 1) p.first += bytes(v);
    });
    for (std::uint32_t v = graph_[n].values.begin; v < graph_[n].values.end(); ++v)
      p.first -= bytes(static_cast<ValueId>(v));
    return p;
  }
  constexpr void run(NodeId n) {
    changed_ = false;
    each_use(n, [&](ValueId v) {
      last_user_[index_of(v)] ^= index_of(n);
      if (--count_[index_of(v)] != 1) return;
      changed_ = true;
      if (last_user_[index_of(v)] != nobody)
        stale_.push_back(static_cast<NodeId>(last_user_[index_of(v)]));
    });
  }
  // Only users of an operand of `n` are looked at again, in the order of the operands and of their
  // users.
  constexpr void refresh(NodeId n, ReadyQueue& ready) {
    if (!changed_) return;
    const std::span<const NodeId> operands = graph_.operands(n);
    ++stamp_;
    for (std::size_t k = operands.size(); k-- > 0;)
      node_stamp_[index_of(operands[k])] = stamp_,
      rank_[index_of(operands[k])] = static_cast<std::uint32_t>(k);
    std::vector<std::pair<std::uint32_t, NodeId>> again;
    std::size_t kept = 0;
    for (const NodeId s : stale_) {
      if (!ready.has(s)) continue;  // it has run, or its priority is still to be asked for
      std::uint32_t first = nobody;
      for (const NodeId o : graph_.operands(s))
        if (node_stamp_[index_of(o)] == stamp_) first = std::min(first, rank_[index_of(o)]);
      if (first == nobody && stale_.size() < most_stale)
        stale_[kept++] = s;
      else
        again.push_back({first, s});
    }
    stale_.resize(kept, NodeId{});
    std::sort(again.begin(), again.end());
    for (const auto& [rank, s] : again) ready.refresh(s, priority(s));
  }

 private:
  [[nodiscard]] constexpr Bytes bytes(ValueId v) const noexcept {
    const Graph::Value& value = graph_[v];
    const bool ignored = value.lifetime == Lifetime::held || value.lifetime == Lifetime::ignored ||
                         graph_[value.definer].source;
    return ignored ? 0 : value.size;
  }
};

/// Runs what lowers the bytes alive most (raises them least), its transient bytes deciding among
/// equals. Priorities are never stale: a value with one reader left is looked at again through that
/// reader.
class PeakDeltaRule {
 public:
  constexpr explicit PeakDeltaRule(const Graph& graph)
      : graph_(graph), live_(graph), last_reader_(graph.values.size(), 0) {
    for (std::uint32_t i = 0; i < graph.size(); ++i)
      for (const ValueId v : graph.reads(static_cast<NodeId>(i))) last_reader_[index_of(v)] ^= i;
  }

  constexpr Priority priority(NodeId n) {
    Priority p{0, 0};
    if (urgent(graph_[n], p)) return p;
    const LiveBytes::Step step = live_.look(n);
    return {live_.live() - step.after, live_.live() - step.during};
  }
  constexpr void run(NodeId n) { live_.run(n); }
  constexpr void refresh(NodeId n, ReadyQueue& ready) {
    for (const ValueId v : graph_.reads(n)) {
      last_reader_[index_of(v)] ^= index_of(n);
      const auto last = static_cast<NodeId>(last_reader_[index_of(v)]);
      if (live_.left(v) == 1 && graph_[v].lifetime != Lifetime::output && ready.has(last))
        ready.refresh(last, priority(last));
    }
  }

 private:
  const Graph& graph_;
  LiveBytes live_;
  std::vector<std::uint32_t> last_reader_;  // all readers still to run, xor-ed
};

}  // namespace detail

/// Takes again and again the ready node that frees most.
///
/// `compat` follows XLA's ListScheduler exactly (passes.md 7.2); otherwise a node's worth is the
/// change of the bytes alive, with what it overwrites and its transient bytes. Errors: none.
/// Threads: any. Cost: O((V + E) log V).
struct ScheduleList {
  bool compat = false;

  [[nodiscard]] constexpr Result<Schedule> operator()(const Graph& graph) const {
    if (compat) {
      detail::XlaListRule rule(graph);
      return detail::measured(graph, detail::list_order(graph, rule));
    }
    detail::PeakDeltaRule rule(graph);
    return detail::measured(graph, detail::list_order(graph, rule));
  }
};
static_assert(memory_scheduler<ScheduleList>);

}  // namespace holdfast
