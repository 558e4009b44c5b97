// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "holdfast/graph/graph.hpp"
#include "holdfast/plan/detail/min_cut.hpp"
#include "holdfast/plan/simulate.hpp"

namespace holdfast::detail {

/// Improves an order by cutting it at its peaks.
///
/// Whatever the order, when a node runs all its ancestors have run and none of its descendants;
/// which of the others have run is a choice, and the choice with the least bytes alive is a minimum
/// cut. At the node of a peak the order is rearranged to that cut; then each half has a peak of its
/// own, and so on, until all are at most the target.
class CutSearch {
 public:
  constexpr CutSearch(const Graph& graph, std::vector<NodeId> order)
      : g_(graph),
        live_(graph),
        place_(graph.size(), 0),
        side_(graph.size(), after),
        number_(graph.size(), 0),
        seen_(graph.values.size(), 0) {
    start_from(std::move(order));
  }

  constexpr void start_from(std::vector<NodeId> order) {
    if (!order_.empty()) move_to(0);
    order_ = std::move(order);
    for (std::uint32_t i = 0; i < order_.size(); ++i) place_[index_of(order_[i])] = i;
    before_.assign(order_.size() + 1, 0);
    during_.assign(order_.size(), 0);
    most_.assign(order_.size() / block + 1, 0);
    scan(0, order_.size());
  }
  [[nodiscard]] constexpr const std::vector<NodeId>& order() const noexcept { return order_; }
  [[nodiscard]] constexpr Bytes peak() const noexcept {
    return during_.empty() ? 0 : *std::max_element(during_.begin(), during_.end());
  }
  [[nodiscard]] constexpr std::uint64_t work() const noexcept { return work_; }

  /// Rearranges until no node needs more than `target`, where cuts can do that; the order may get
  /// worse elsewhere.
  ///
  /// `late()` says whether to take the cut nearest to the end. Stops early, in between, when
  /// `stop()` says so.
  template <class Late, class Stop>
  constexpr void lower(Bytes target, Late&& late, Stop&& stop) {
    std::vector<std::pair<std::size_t, std::size_t>> ranges{{0, order_.size()}};
    while (!ranges.empty() && !stop()) {
      const auto [a, b] = ranges.back();
      ranges.pop_back();
      const std::size_t worst = worst_of(a, b);
      if (worst == b || during_[worst] <= target) continue;
      const NodeId n = order_[worst];
      const bool near_end = late();
      // A long range is left alone far from the peak as long as a cut of its middle does.
      for (std::size_t at = worst,
                       reach = order_.size() > most_at_once ? first_reach : most_at_once;
           ; at = place_[index_of(n)], reach *= 4) {
        const std::size_t from = at - a > reach ? at - reach : a;
        const std::size_t to = b - at > reach ? at + reach : b;
        cut(from, to, n, near_end);
        rearrange(from, to, n);
        if ((from == a && to == b) || during_[place_[index_of(n)]] <= target) break;
      }
      const std::size_t at = place_[index_of(n)];
      ranges.push_back({at + 1, b});
      ranges.push_back({a, at});
    }
  }

  /// The least bytes that a node needs in any order: a lower bound of every order's peak.
  constexpr Bytes least(NodeId n) {
    const std::size_t size = order_.size();
    cut(0, size, n, false);
    move_to(0);
    LiveBytes live(g_);
    for (const NodeId o : order_)
      if (side_[index_of(o)] == before) live.run(o);
    work_ += size;
    return live.look(n).during;
  }

 private:
  static constexpr char before = 0, after = 1, open = 2;
  static constexpr std::size_t block = 256;
  // Orders of more nodes are cut within a stretch around the peak first: this far to both sides.
  static constexpr std::size_t most_at_once = 8192;
  static constexpr std::size_t first_reach = 512;

  const Graph& g_;
  LiveBytes live_;
  std::vector<NodeId> order_;
  std::vector<std::uint32_t> place_;
  std::vector<Bytes> before_;  // bytes alive before a position, up to the cursor
  std::vector<Bytes> during_;
  std::vector<Bytes> most_;  // of each block of `during_`
  std::size_t cursor_ = 0;
  std::uint64_t work_ = 0;
  MinCut flow_;
  std::vector<char> side_;
  std::vector<std::uint32_t> number_;  // node of the network, of open nodes
  std::vector<std::uint32_t> seen_;    // values: the cut that looked at them last
  std::uint32_t cuts_ = 0;
  std::vector<NodeId> open_, stack_, later_;

  constexpr void move_to(std::size_t position) {
    while (cursor_ > position) --cursor_, live_.undo(order_[cursor_], before_[cursor_]), ++work_;
    while (cursor_ < position) step();
  }
  constexpr void step() {
    before_[cursor_] = live_.live();
    during_[cursor_] = live_.run(order_[cursor_]).during;
    ++cursor_, ++work_;
  }
  constexpr void scan(std::size_t a, std::size_t b) {
    move_to(a);
    while (cursor_ < b) step();
    for (std::size_t k = a / block; k * block < b; ++k) {
      const auto first = during_.begin() + static_cast<std::ptrdiff_t>(k * block);
      const auto last =
          during_.begin() + static_cast<std::ptrdiff_t>(std::min(during_.size(), (k + 1) * block));
      most_[k] = *std::max_element(first, last);
    }
  }
  // The first position of [a, b) that needs most; b when there is none.
  [[nodiscard]] constexpr std::size_t worst_of(std::size_t a, std::size_t b) const noexcept {
    std::size_t worst = b;
    Bytes most = -1;
    for (std::size_t i = a; i < b;) {
      if (i % block == 0 && i + block <= b && most_[i / block] <= most) {
        i += block;
        continue;
      }
      if (during_[i] > most) most = during_[i], worst = i;
      ++i;
    }
    return worst;
  }

  // Marks what must be before and after `n`, and the others as open, within positions [a, b).
  constexpr void mark(std::size_t a, std::size_t b, NodeId n) {
    for (std::size_t i = a; i < b; ++i) side_[index_of(order_[i])] = open;
    const auto inside = [&](NodeId x) {
      return place_[index_of(x)] >= a && place_[index_of(x)] < b;
    };
    const auto reach = [&](char side, auto next) {
      stack_.assign(1, n);
      while (!stack_.empty()) {
        const NodeId x = stack_.back();
        stack_.pop_back();
        next(x, [&](NodeId y) {
          ++work_;
          if (!inside(y) || side_[index_of(y)] != open) return;
          side_[index_of(y)] = side;
          stack_.push_back(y);
        });
      }
    };
    side_[index_of(n)] = after;
    reach(before, [&](NodeId x, auto f) {
      for (const NodeId o : g_.operands(x)) f(o);
      for (const NodeId c : g_.controls(x)) f(c);
    });
    reach(after, [&](NodeId x, auto f) {
      for (const NodeId u : g_.users(x)) f(u);
      for (const NodeId s : g_.followers(x)) f(s);
    });
    work_ += b - a;
  }

  // Decides the open nodes.
  constexpr void cut(std::size_t a, std::size_t b, NodeId n, bool late) {
    mark(a, b, n);
    ++cuts_;
    flow_.reset();
    open_.clear();
    for (std::size_t i = a; i < b; ++i)
      if (side_[index_of(order_[i])] == open) {
        number_[index_of(order_[i])] = flow_.add_node();
        open_.push_back(order_[i]);
      }
    if (open_.empty()) return;
    const auto side = [&](NodeId x) {
      const std::size_t at = place_[index_of(x)];
      return at < a ? before : at >= b ? after : side_[index_of(x)];
    };
    const auto value = [&](ValueId v) {
      if (std::exchange(seen_[index_of(v)], cuts_) == cuts_ || !g_.counted(v) || g_[v].size == 0)
        return;
      const char from = side(g_[v].definer);
      const std::uint32_t tail = from == open ? number_[index_of(g_[v].definer)] : 0;
      bool needed = g_[v].lifetime == Lifetime::output;
      std::uint32_t readers = 0;
      NodeId reader{};
      for (const NodeId r : g_.readers(v)) {
        ++work_;
        const char s = side(r);
        needed = needed || s == after;
        if (s == open) ++readers, reader = r;
      }
      if (needed) {
        if (from == open) flow_.add_arc(tail, 1, g_[v].size);
      } else if (readers == 1) {
        flow_.add_arc(tail, number_[index_of(reader)], g_[v].size);
      } else if (readers > 1) {
        const std::uint32_t all = flow_.add_node();
        flow_.add_arc(tail, all, g_[v].size);
        for (const NodeId r : g_.readers(v))
          if (side(r) == open) flow_.add_arc(all, number_[index_of(r)], MinCut::unlimited);
      }
    };
    for (const NodeId x : open_) {
      for (std::uint32_t v = g_[x].values.begin; v < g_[x].values.end(); ++v)
        value(static_cast<ValueId>(v));
      for (const ValueId v : g_.reads(x)) value(v);
      const auto precede = [&](NodeId p) {
        if (side(p) == open)
          flow_.add_arc(number_[index_of(x)], number_[index_of(p)], MinCut::unlimited);
      };
      for (const NodeId o : g_.operands(x)) precede(o);
      for (const NodeId c : g_.controls(x)) precede(c);
    }
    // A result overwrites an operand only if the operand's other readers have run.
    for (std::uint32_t v = g_[n].values.begin; v < g_[n].values.end(); ++v)
      for (const ValueId w : g_.reuses(static_cast<ValueId>(v))) {
        bool possible = g_.counted(static_cast<ValueId>(v)) && g_.counted(w) &&
                        g_[w].lifetime != Lifetime::output;
        for (const NodeId r : g_.readers(w)) possible = possible && (r == n || side(r) != after);
        if (!possible) continue;
        const std::uint32_t all = flow_.add_node();
        flow_.add_arc(0, all, g_.values[v].size);
        for (const NodeId r : g_.readers(w))
          if (side(r) == open) flow_.add_arc(all, number_[index_of(r)], MinCut::unlimited);
        break;
      }
    flow_.solve(work_);
    if (late) {
      const std::vector<char> sink = flow_.near_sink();
      for (const NodeId x : open_)
        side_[index_of(x)] = sink[number_[index_of(x)]] != 0 ? after : before;
    } else {
      for (const NodeId x : open_)
        side_[index_of(x)] = flow_.near_source(number_[index_of(x)]) ? before : after;
    }
  }

  // Puts what is to be before the cut first, then `n`, then the rest, and keeps the order within
  // both sides.
  constexpr void rearrange(std::size_t a, std::size_t b, NodeId n) {
    move_to(a);
    later_.assign(1, n);
    std::size_t to = a;
    for (std::size_t i = a; i < b; ++i) {
      if (side_[index_of(order_[i])] == before)
        order_[to++] = order_[i];
      else if (order_[i] != n)
        later_.push_back(order_[i]);
    }
    std::copy(later_.begin(), later_.end(), order_.begin() + static_cast<std::ptrdiff_t>(to));
    for (std::size_t i = a; i < b; ++i) place_[index_of(order_[i])] = static_cast<std::uint32_t>(i);
    scan(a, b);
  }
};

}  // namespace holdfast::detail
