// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "holdfast/core/config.hpp"
#include "holdfast/graph/graph.hpp"
#include "holdfast/plan/detail/cut_search.hpp"
#include "holdfast/plan/detail/ideal_search.hpp"
#include "holdfast/plan/memory_scheduler.hpp"
#include "holdfast/plan/schedule_best.hpp"
#include "holdfast/plan/schedule_post_order.hpp"
#include "holdfast/plan/stop.hpp"

namespace holdfast {

namespace detail {

/// One search for a better order of one graph.
template <class Stop>
class OrderSearch {
 public:
  constexpr OrderSearch(const Graph& graph, std::uint64_t effort, std::uint64_t seed,
                        const Stop& stop)
      : g_(graph),
        stop_(stop),
        random_(seed * 2 + 1),
        limit_(effort * (graph.size() + 16)),
        bounded_(graph.size(), 0) {}

  constexpr Schedule run() {
    Comparison classic = ScheduleBest{}.compare(g_);
    best_ = classic.schedules[classic.chosen];
    if (g_.size() == 0) return finish();
    CutSearch cuts(g_, best_.order);
    raise_bound(cuts, std::min(1000 * g_.size(), limit_ / 8));
    // The given order comes first: it is often a layered one, which cuts find their way through
    // most quickly.
    std::vector<std::size_t> starts(classic.schedules.size(), 0);
    for (std::size_t k = 0; k < starts.size(); ++k) starts[k] = k;
    std::sort(starts.begin(), starts.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(classic.schedules[a].peak, a) < std::pair(classic.schedules[b].peak, b);
    });
    if (const auto given = std::find(starts.begin(), starts.end(), ScheduleBest::as_given);
        given != starts.end())
      std::rotate(starts.begin(), given, given + 1);
    for (const std::size_t k : starts)
      for (const bool late : {true, false}) descend(cuts, classic.schedules[k].order, late);
    go_through_all();
    while (!over()) {
      raise_bound(cuts, std::min(1000 * g_.size(), limit_ / 8));
      polish();
      for (int round = 0; round < 8 && !over(); ++round) restart(cuts, classic, round);
    }
    return finish();
  }

 private:
  const Graph& g_;
  const Stop& stop_;
  std::uint64_t random_;
  std::uint64_t limit_;
  std::uint64_t spent_ = 0;
  Schedule best_;
  Bytes bound_ = 0;            // as `best_.lower_bound`, for the transient bytes that the graph has
  std::vector<char> bounded_;  // nodes whose least need is in the bound
  Bytes polished_ = -1;

  [[nodiscard]] constexpr bool over() const {
    return best_.peak <= bound_ || spent_ > limit_ || stop_();
  }
  [[nodiscard]] constexpr std::uint64_t random(std::uint64_t below) noexcept {
    random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
    return random_ % below;
  }
  constexpr Schedule finish() {
    best_.proven_optimal = best_.peak == best_.lower_bound;
    return std::move(best_);
  }
  constexpr void offer(std::vector<NodeId> order) {
    if (const Bytes peak = simulate_once(g_, order).peak; peak < best_.peak)
      best_.peak = peak, best_.order = std::move(order);
  }

  // What the nodes at the best order's peaks need in any order. Only those can raise the bound.
  constexpr void raise_bound(CutSearch& cuts, std::uint64_t most_work) {
    raise_bound(
        cuts, most_work, [](const Graph::Node&) { return Bytes{0}; }, bound_);
    raise_bound(
        cuts, most_work, [](const Graph::Node& n) { return n.slack; }, best_.lower_bound);
  }
  template <class Less>
  constexpr void raise_bound(CutSearch& cuts, std::uint64_t most_work, Less less,
                             const Bytes& bound) {
    std::vector<std::pair<Bytes, NodeId>> needy;
    LiveBytes live(g_);
    for (const NodeId n : best_.order)
      if (const Bytes most = live.run(n).during - less(g_[n]);
          most > bound && bounded_[index_of(n)] == 0)
        needy.push_back({most, n});
    std::sort(needy.begin(), needy.end(),
              [](const auto& a, const auto& b) { return a.first > b.first; });
    const std::uint64_t start = cuts.work();
    for (const auto& [most, n] : needy) {
      if (most <= bound || cuts.work() - start > most_work || spent_ > limit_ || stop_()) break;
      const Bytes least = cuts.least(n);
      bound_ = std::max(bound_, least);
      best_.lower_bound = std::max(best_.lower_bound, least - g_[n].slack);
      bounded_[index_of(n)] = 1;
    }
    spent_ += cuts.work() - start + g_.size();
  }

  template <class Late>
  constexpr void try_from(CutSearch& cuts, std::vector<NodeId> order, Bytes target, Late&& late) {
    if (over()) return;
    const std::uint64_t start = cuts.work();
    cuts.start_from(std::move(order));
    cuts.lower(target, late, [&] { return spent_ + (cuts.work() - start) > limit_ || stop_(); });
    spent_ += cuts.work() - start;
    if (cuts.peak() < best_.peak) best_.peak = cuts.peak(), best_.order = cuts.order();
  }

  // Small graphs are cut to the bound at once, large ones step by step as long as it helps.
  constexpr void descend(CutSearch& cuts, const std::vector<NodeId>& order, bool late) {
    const auto side = [late] { return late; };
    if (g_.size() <= most_at_once) return try_from(cuts, order, bound_, side);
    const Bytes step = (best_.peak - bound_) / 4;
    std::vector<NodeId> from = order;
    for (Bytes target = best_.peak - step - 1; !over() && target > bound_; target -= step + 1) {
      try_from(cuts, std::move(from), target, side);
      if (cuts.peak() > best_.peak) return;
      from = cuts.order();
    }
  }

  // All sets of nodes that can have run, where that is possible: an optimum, or the proof of one.
  constexpr void go_through_all() {
    Bytes most_slack = 0;
    for (const Graph::Node& n : g_.nodes) most_slack = std::max(most_slack, n.slack);
    while (!over()) {
      IdealSearch ideals(g_, best_.order, 0, g_.size());
      const bool small = g_.size() <= always_exact;
      const bool found =
          ideals.run(best_.peak - 1, best_.peak, small ? most_sets : most_sets / g_.size(),
                     small ? ~std::uint64_t{0} / 2 : limit_ / 4, stop_);
      spent_ += ideals.work();
      if (found) offer(ideals.order());
      if (ideals.complete()) {
        bound_ = best_.peak;
        best_.lower_bound = std::max(best_.lower_bound, best_.peak - most_slack);
      }
      if (!found) return;
    }
  }
  // The same for stretches around the peak.
  constexpr void polish() {
    if (polished_ == best_.peak) return;
    for (std::size_t reach = 8; reach <= 64 && !over(); reach *= 2) {
      const std::size_t at = simulate_once(g_, best_.order).position;
      const std::size_t from = at - std::min(at, reach);
      const std::size_t to = std::min(best_.order.size(), at + reach);
      IdealSearch ideals(g_, best_.order, from, to);
      const bool found = ideals.run(best_.peak - 1, best_.peak, 4096, limit_ / 64, stop_);
      spent_ += ideals.work() + 2 * g_.size();
      if (!found) continue;
      std::vector<NodeId> order = best_.order;
      std::copy(ideals.order().begin(), ideals.order().end(),
                order.begin() + static_cast<std::ptrdiff_t>(from));
      const Bytes before = best_.peak;
      offer(std::move(order));
      if (best_.peak < before) reach = 4;
    }
    polished_ = best_.peak;
  }

  constexpr void restart(CutSearch& cuts, const Comparison& classic, int round) {
    const Bytes gap = best_.peak - bound_;
    const Bytes target = bound_ + gap / 8 * static_cast<Bytes>(random(8));
    const std::uint64_t kind = random(4);
    std::vector<NodeId> order = round == 0 ? best_.order
                                : round % 2 == 0
                                    ? classic.schedules[random(classic.schedules.size())].order
                                    : shuffled();
    try_from(cuts, std::move(order), target, [&] { return kind < 2 ? kind == 1 : random(2) == 1; });
  }
  // A depth-first order with children in any order.
  constexpr std::vector<NodeId> shuffled() {
    DepthFirst search(g_);
    const auto children = [&](NodeId n, std::vector<NodeId>& stack) {
      const std::size_t mark = stack.size();
      for (const NodeId o : g_.operands(n))
        if (!search.seen(o)) stack.push_back(o);
      for (const NodeId c : g_.controls(n))
        if (!search.seen(c)) stack.push_back(c);
      for (std::size_t i = stack.size(); i > mark + 1; --i)
        std::swap(stack[i - 1], stack[mark + random(i - mark)]);
    };
    std::vector<NodeId> ends;
    for (std::uint32_t i = 0; i < g_.size(); ++i)
      if (g_.users(static_cast<NodeId>(i)).empty()) ends.push_back(static_cast<NodeId>(i));
    for (std::size_t i = ends.size(); i > 1; --i) std::swap(ends[i - 1], ends[random(i)]);
    for (const NodeId n : ends) search.visit(n, children);
    spent_ += g_.size();
    return std::move(search.order());
  }

  static constexpr std::size_t always_exact = 32;                 // nodes
  static constexpr std::size_t most_at_once = 8192;               // nodes
  static constexpr std::size_t most_sets = std::size_t{1} << 25;  // times nodes
};

}  // namespace detail

/// Searches below the classic schedulers: cuts at the peaks, all sets of nodes where these are few,
/// restarts.
///
/// Never worse than `ScheduleBest`; the same for the same effort, if `stop` never ends it. It ends
/// at once when the lower bound is met. Graphs of up to 32 nodes always get their optimum. Units:
/// `effort` counts looks at a node, for each node of the graph (20000: about a second for 5000
/// nodes). Errors: none. Threads: any. Cost: by effort, and that of `ScheduleBest`.
template <class Stop = NeverStop>
struct ScheduleSearch {
  std::uint64_t effort = 20000;
  std::uint64_t seed = 1;
  HOLDFAST_NO_UNIQUE_ADDRESS Stop stop = {};

  [[nodiscard]] constexpr Result<Schedule> operator()(const Graph& graph) const {
    return detail::OrderSearch<Stop>(graph, effort, seed, stop).run();
  }
};
static_assert(memory_scheduler<ScheduleSearch<>>);

}  // namespace holdfast
