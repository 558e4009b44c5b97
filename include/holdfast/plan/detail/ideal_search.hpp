// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "holdfast/graph/graph.hpp"
#include "holdfast/plan/simulate.hpp"

namespace holdfast::detail {

/// Finds the best order of a stretch of a schedule by going through the sets of nodes that can have
/// run.
///
/// What is alive depends on that set alone, so each set is visited once, the cheapest way in first:
/// the least peak at which the full set is reached is the optimum. A ready node, or a chain that it
/// starts, which does not raise the bytes alive and stays within the peak already reached is run at
/// once: no order gains by waiting with it, because what it frees can only grow later.
class IdealSearch {
 public:
  /// Looks at positions [begin, end) of a valid order.
  constexpr IdealSearch(const Graph& graph, std::span<const NodeId> order, std::size_t begin,
                        std::size_t end)
      : g_(graph), live_(graph), pending_(graph.size(), never), bit_(graph.size(), 0) {
    for (std::size_t i = 0; i < begin; ++i) live_.run(order[i]);
    nodes_.assign(order.begin() + static_cast<std::ptrdiff_t>(begin),
                  order.begin() + static_cast<std::ptrdiff_t>(end));
    words_ = (nodes_.size() + 63) / 64;
    done_.assign(words_, 0);
    for (std::uint32_t i = 0; i < nodes_.size(); ++i)
      pending_[index_of(nodes_[i])] = 0, bit_[index_of(nodes_[i])] = i;
    for (const NodeId n : nodes_) each_next(n, [this](NodeId u) { ++pending_[index_of(u)]; });
  }

  /// Searches for an order of the stretch that needs less than `below`; what needs at most `from`
  /// is taken as it comes.
  ///
  /// True when it is found; then `order()` has it. False: there is none when `complete()`, else
  /// `most_states` or `most_work` was not enough, or `stop()` ended it.
  template <class Stop>
  constexpr bool run(Bytes from, Bytes below, std::size_t most_states, std::uint64_t most_work,
                     Stop&& stop) {
    target_ = from;
    below_ = below;
    const std::uint64_t end_of_work = work_ + most_work;
    visit();
    while (!full_) {
      if (open_.empty() && !raise()) {
        complete_ = true;
        return false;
      }
      if (states_.size() > most_states || work_ > end_of_work || stop()) return false;
      const Try next = open_.back();
      open_.pop_back();
      go_to(next.state);
      apply(next.node);
      visit();
    }
    return true;
  }
  [[nodiscard]] constexpr bool complete() const noexcept { return complete_; }
  [[nodiscard]] constexpr std::uint64_t work() const noexcept { return work_; }
  [[nodiscard]] constexpr const std::vector<NodeId>& order() const noexcept { return path_; }

 private:
  struct State {
    std::uint32_t parent = 0;
    std::uint32_t length = 0;  // of the path to it
    IndexRange moves;          // from the parent, in `moves_`
  };
  struct Try {
    Bytes cost = 0;
    std::uint32_t state = 0;
    NodeId node{};
  };
  static constexpr std::uint32_t none = 0xFFFFFFFFu;
  static constexpr std::uint32_t never = 0xFFFFFFFFu;

  const Graph& g_;
  LiveBytes live_;
  std::vector<NodeId> nodes_;
  std::vector<std::uint32_t> pending_;  // `never` outside the stretch
  std::vector<std::uint32_t> bit_;
  std::size_t words_ = 0;
  std::vector<std::uint64_t> done_;  // the set that has run
  std::vector<NodeId> path_;         // in which order
  std::vector<Bytes> before_;        // bytes alive before each of the path
  std::vector<State> states_;
  std::vector<std::uint64_t> sets_;  // by state
  std::vector<NodeId> moves_;
  std::vector<std::uint32_t> table_;  // open addressing: state + 1
  std::vector<Try> open_, blocked_, ready_;
  std::uint32_t at_ = none;  // state that `path_` leads to
  Bytes target_ = 0;
  std::uint64_t work_ = 0;
  Bytes below_ = 0;
  bool full_ = false, complete_ = false;

  static constexpr bool cheaper(const Try& a, const Try& b) noexcept {
    return std::tie(a.cost, a.state, a.node) < std::tie(b.cost, b.state, b.node);
  }
  static constexpr bool dearer(const Try& a, const Try& b) noexcept { return cheaper(b, a); }
  template <class F>
  constexpr void each_next(NodeId n, F f) const {
    for (const NodeId u : g_.users(n))
      if (pending_[index_of(u)] != never) f(u);
    for (const NodeId u : g_.followers(n))
      if (pending_[index_of(u)] != never) f(u);
  }
  [[nodiscard]] constexpr bool ran(NodeId n) const noexcept {
    const std::uint32_t b = bit_[index_of(n)];
    return (done_[b / 64] >> (b % 64) & 1u) != 0;
  }
  constexpr void flip(NodeId n) noexcept {
    const std::uint32_t b = bit_[index_of(n)];
    done_[b / 64] ^= std::uint64_t{1} << (b % 64);
  }
  constexpr void apply(NodeId n) {
    before_.push_back(live_.live());
    path_.push_back(n);
    live_.run(n);
    flip(n);
    each_next(n, [this](NodeId u) { --pending_[index_of(u)]; });
    ++work_;
  }
  constexpr void revert(std::size_t length) {
    while (path_.size() > length) {
      const NodeId n = path_.back();
      each_next(n, [this](NodeId u) { ++pending_[index_of(u)]; });
      flip(n);
      live_.undo(n, before_.back());
      path_.pop_back();
      before_.pop_back();
      ++work_;
    }
  }
  constexpr void go_to(std::uint32_t state) {
    std::uint32_t from = at_;
    std::vector<std::uint32_t> way;
    for (std::uint32_t to = state; from != to;) {
      if (states_[from].length > states_[to].length)
        from = states_[from].parent;
      else
        way.push_back(to), to = states_[to].parent;
    }
    revert(states_[from].length);
    for (; !way.empty(); way.pop_back())
      for (std::uint32_t i = states_[way.back()].moves.begin; i < states_[way.back()].moves.end();
           ++i)
        apply(moves_[i]);
    at_ = state;
  }

  [[nodiscard]] constexpr LiveBytes::Step look(NodeId n) noexcept { return ++work_, live_.look(n); }
  [[nodiscard]] constexpr bool free_of_charge(NodeId n) noexcept {
    const LiveBytes::Step s = look(n);
    return s.during <= target_ && s.after <= live_.live();
  }
  // Runs what becomes ready behind `n` and lowers the bytes alive; true when they end no higher
  // than before `n`.
  constexpr bool chain(NodeId n) {
    const std::size_t mark = path_.size();
    const Bytes start = live_.live();
    apply(n);
    for (std::size_t i = mark; i < path_.size() && live_.live() > start; ++i)
      for (bool again = true; again && live_.live() > start;) {
        again = false;
        each_next(path_[i], [&](NodeId u) {
          if (pending_[index_of(u)] != 0 || ran(u) || live_.live() <= start || !free_of_charge(u))
            return;
          apply(u);
          again = true;
        });
      }
    if (live_.live() <= start) return true;
    revert(mark);
    return false;
  }
  constexpr void close() {
    for (bool again = true; again;) {
      again = false;
      ready_.clear();
      for (const NodeId n : nodes_)
        if (pending_[index_of(n)] == 0 && !ran(n)) ready_.push_back({0, 0, n});
      for (Try& t : ready_)
        if (free_of_charge(t.node)) apply(t.node), again = true;
      for (std::size_t i = 0; !again && i < ready_.size(); ++i)
        again = look(ready_[i].node).during <= target_ && chain(ready_[i].node);
    }
  }

  constexpr void visit() {
    close();
    if (path_.size() == nodes_.size()) {
      full_ = true;
      return;
    }
    if (!add_state()) return;
    for (Try& t : ready_) {
      const LiveBytes::Step s = look(t.node);
      t.state = at_;
      t.cost = s.during > target_ ? s.during : s.after;
      if (s.during <= target_)
        open_.push_back(t);
      else if (s.during < below_)
        blocked_.push_back(t), std::push_heap(blocked_.begin(), blocked_.end(), dearer);
    }
    std::size_t first = open_.size();
    while (first > 0 && open_[first - 1].state == at_) --first;
    std::sort(open_.begin() + static_cast<std::ptrdiff_t>(first), open_.end(), dearer);
  }
  constexpr bool raise() {
    if (blocked_.empty()) return false;
    target_ = std::max(target_, blocked_.front().cost);
    while (!blocked_.empty() && blocked_.front().cost <= target_) {
      std::pop_heap(blocked_.begin(), blocked_.end(), dearer);
      open_.push_back(blocked_.back());
      blocked_.pop_back();
    }
    return true;
  }
  // False when the set has been there before.
  constexpr bool add_state() {
    if (2 * (states_.size() + 1) > table_.size()) {
      table_.assign(std::max<std::size_t>(64, 2 * table_.size()), 0);
      for (std::uint32_t i = 0; i < states_.size(); ++i) table_[slot(&sets_[i * words_])] = i + 1;
    }
    std::uint32_t& entry = table_[slot(done_.data())];
    if (entry != 0) return false;
    const std::size_t begin = states_.empty() ? 0 : states_[at_].length;
    const auto length = static_cast<std::uint32_t>(path_.size());
    states_.push_back(
        {at_,
         length,
         {static_cast<std::uint32_t>(moves_.size()), length - static_cast<std::uint32_t>(begin)}});
    moves_.insert(moves_.end(), path_.begin() + static_cast<std::ptrdiff_t>(begin), path_.end());
    sets_.insert(sets_.end(), done_.begin(), done_.end());
    at_ = static_cast<std::uint32_t>(states_.size() - 1);
    entry = at_ + 1;
    return true;
  }
  // Where a set is in the table, or would be.
  [[nodiscard]] constexpr std::size_t slot(const std::uint64_t* set) const noexcept {
    std::uint64_t hash = 0;
    for (std::size_t w = 0; w < words_; ++w)
      hash = (hash ^ set[w]) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
    std::size_t at = hash & (table_.size() - 1);
    while (table_[at] != 0 && !std::equal(set, set + words_, &sets_[(table_[at] - 1) * words_]))
      at = (at + 1) & (table_.size() - 1);
    return at;
  }
};

}  // namespace holdfast::detail
