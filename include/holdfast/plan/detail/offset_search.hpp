// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "holdfast/core/units.hpp"
#include "holdfast/plan/detail/choice_order.hpp"
#include "holdfast/plan/detail/dead_ends.hpp"
#include "holdfast/plan/detail/offset_problem.hpp"
#include "holdfast/plan/detail/search_floors.hpp"
#include "holdfast/plan/detail/search_groups.hpp"
#include "holdfast/plan/stop.hpp"

namespace holdfast::detail {

/// How a search for a plan within a capacity ended.
enum class SearchEnd : std::uint8_t { found, impossible, gave_up };

/// A backtracking search for offsets within a capacity, over independent stretches of time.
///
/// Time is cut into sections, one for each largest set of ranges alive together. The floor of a section is the lowest level that
/// what is unplaced could reach there. A maximal stretch of equal floors between higher ones is a valley: pushed down as far as
/// they go, the remaining groups leave something on any section of a valley's floor, or waste a known height there, which the
/// section's slack must allow. A branch places one group or takes the waste; what no longer overlaps is searched apart, and
/// sets of groups over floors that were found dead are remembered.
/// Threads: a value. Cost: exponential in the worst case, bounded by nodes; a node costs O(groups and sections of its stretch).
/// Memory: 64 MiB and 1 KiB a block at most: what would need more is given up.
class OffsetSearch {
 public:
  /// The most ranges of one stretch of time that it serves.
  static constexpr std::size_t most_ranges = 8192;

  [[nodiscard]] static constexpr bool serves(const OffsetInput& in) noexcept {
    std::size_t count = 0;
    std::int64_t reach = 0;
    for (const std::uint32_t r : in.by_begin) {
      count = count == 0 || in.ranges[r].begin >= reach ? 1 : count + 1;
      reach = count == 1 ? in.ranges[r].end : std::max(reach, in.ranges[r].end);
      if (count > most_ranges) return false;
    }
    return true;
  }

  constexpr explicit OffsetSearch(const OffsetInput& in) : set_(in), floors_(set_) {
    count_.assign(static_cast<std::size_t>(set_.section_count) + 1, 0);
    valley_.assign(set_.section_count, 0);
    least_.assign(set_.section_count, 0);
  }

  [[nodiscard]] constexpr const SearchGroups& groups() const noexcept { return set_; }

  /// What it takes to place everything once without a wrong choice.
  [[nodiscard]] constexpr std::int64_t descent() const noexcept { return descent(set_.groups.size()); }

  /// Looks for offsets whose highest end is at most `capacity`; on success they are in `offsets`.
  ///
  /// Restarts with another order of choices until `nodes` are used up or `stop` says so; `round` is the number of restarts
  /// made for this capacity and goes on from there. Units: `nodes` counts branches, those of long stretches several times,
  /// and is lowered by those used.
  template <class Stop>
  constexpr SearchEnd run(Bytes capacity, std::int64_t& nodes, unsigned& round, const Stop& stop, std::span<Bytes> offsets) {
    if (capacity != capacity_) {
      capacity_ = capacity;
      set_.set_capacity(capacity);
      dead_.reset(set_.groups.size());
    }
    used_nodes_ = 0;
    const unsigned first_round = round;
    const std::size_t all = set_.groups.size();
    // What never overlaps is searched one stretch after the other, each with its own restarts.
    std::size_t from = 0;
    while (from < all) {
      std::size_t to = from;
      std::uint32_t reach = 0;
      do reach = std::max(reach, set_.groups[to++].right);
      while (to < all && set_.groups[to].left < reach);
      SearchEnd end = SearchEnd::gave_up;
      double budget = 4.0 * static_cast<double>(descent(to - from));
      for (unsigned r = ChoiceOrder::rule_count; r <= first_round && budget < 1e15; r += ChoiceOrder::rule_count) budget *= 1.3;
      for (round = first_round; end == SearchEnd::gave_up; ++round) {
        if (nodes <= 0 || stop()) return SearchEnd::gave_up;
        choices_.clear();
        stretches_.clear();
        frames_.clear();
        order_.start(set_, round);
        std::int64_t allowed = std::min(nodes, static_cast<std::int64_t>(budget));
        const std::int64_t before = allowed;
        end = search(static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to), allowed, stop);
        nodes -= before - allowed;
        if (round % ChoiceOrder::rule_count == ChoiceOrder::rule_count - 1) budget *= 1.3;
      }
      if (end == SearchEnd::impossible) return end;
      from = to;
    }
    for (const Group& g : set_.groups) {
      const Bytes level = set_.mirrored ? set_.limit - g.level - g.size : g.level;
      offsets[g.id] = level * set_.unit;
    }
    return SearchEnd::found;
  }

 private:
  using Level = SearchGroups::Level;
  using Part = SearchGroups::Part;
  using Group = SearchGroups::Group;
  using Change = SearchFloors::Change;
  static constexpr Level never = SearchGroups::never;
  static constexpr std::int64_t stop_every = 64;
  static constexpr std::size_t most_noted = (1 << 20) - (1 << 16);  // of what is to be undone, 24 bytes each
  static constexpr std::uint32_t skip = 0xFFFFFFFFu;

  struct Stretch {  // of items_
    std::uint32_t begin;
    std::uint32_t end;
  };
  struct Frame {
    Stretch items{};
    std::size_t choices = 0;      // choices_[choices .. choices_end)
    std::size_t choices_end = 0;
    std::size_t next_choice = 0;
    std::size_t children = 0;     // stretches_[children .. children_end)
    std::size_t children_end = 0;
    std::size_t next_child = 0;
    std::size_t entered = 0;      // what was changed before it
    std::size_t raised = 0;       // and before its choice
    std::uint32_t section = 0;
    std::uint32_t taken = skip;   // where its choice stood
    Level level = 0;
    Level waste = 0;
    DeadEnds::Key key{};
    Change change{};
  };

  // A branch looks at every group of its stretch.
  [[nodiscard]] static constexpr std::int64_t cost(std::size_t groups) noexcept {
    return 1 + static_cast<std::int64_t>(groups / 128);
  }
  [[nodiscard]] static constexpr std::int64_t descent(std::size_t groups) noexcept {
    return (static_cast<std::int64_t>(groups) + 4) * cost(groups / 2);
  }

  // Chooses the section to branch on and lists what may lie on its floor; false when the stretch is dead.
  constexpr bool open(Frame& frame) {
    const Stretch stretch = frame.items;
    std::uint32_t left = set_.section_count;
    std::uint32_t right = 0;
    for (std::size_t i = stretch.begin; i < stretch.end; ++i) {
      left = std::min(left, set_.groups[items_[i]].left);
      right = std::max(right, set_.groups[items_[i]].right);
    }
    for (std::size_t i = stretch.begin; i < stretch.end; ++i) frame.key.add_group(items_[i]);
    for (std::uint32_t s = left; s < right; ++s) frame.key.add_floor(floors_[s]);
    if (dead_.contains(frame.key)) return false;

    // A valley is numbered by its first section; others get no number.
    Level lowest = never;
    for (std::uint32_t s = left; s < right; ++s) lowest = std::min(lowest, floors_[s]);
    for (std::uint32_t a = left; a < right;) {
      std::uint32_t z = a + 1;
      while (z < right && floors_[z] == floors_[a]) ++z;
      const bool low = (a == left || floors_[a - 1] > floors_[a]) && (z == right || floors_[z] > floors_[a]);
      Level wall = never;
      if (a > left) wall = std::min(wall, floors_[a - 1]);
      if (z < right) wall = std::min(wall, floors_[z]);
      least_[a] = wall - floors_[a];
      const std::uint32_t number = low && (!set_.ordered || floors_[a] == lowest) ? a : skip;
      for (; a < z; ++a) {
        valley_[a] = number;
        count_[a] = 0;
      }
    }
    count_[right] = 0;
    for (std::size_t i = stretch.begin; i < stretch.end; ++i) {
      const Group& g = set_.groups[items_[i]];
      const Level floor = floors_.of(items_[i]);
      if (set_.ordered) {
        if (floor != lowest) continue;
        for (const Part& p : set_.parts_of(g)) {
          ++count_[p.left];
          --count_[p.right];
        }
        continue;
      }
      const std::uint32_t v = valley_[g.left];
      if (v == skip || valley_[g.right - 1] != v) continue;
      least_[v] = std::min(least_[v], g.least);
      if (floor != floors_[v]) {
        least_[v] = std::min(least_[v], floor - floors_[v]);
        continue;
      }
      ++count_[g.left];
      --count_[g.right];
    }
    std::uint64_t best = ~0ull;
    std::int32_t running = 0;
    for (std::uint32_t s = left; s < right; ++s) {
      running += count_[s];
      if (valley_[s] == skip) continue;
      const Level slack = floors_.slack(set_, s);
      const bool loose = slack > 0 && (set_.ordered || least_[valley_[s]] <= slack);
      const bool edge = s == valley_[s] || s + 1 == right || valley_[s + 1] != valley_[s];
      const std::uint64_t cost = (loose ? 1ull << 40 : 0) + (static_cast<std::uint64_t>(running) << 1) + (edge ? 0 : 1);
      if (cost >= best) continue;
      best = cost;
      frame.section = s;
    }
    const std::uint32_t s = frame.section;
    frame.level = floors_[s];
    std::uint32_t a = s;
    std::uint32_t z = s + 1;
    while (a > left && valley_[a - 1] == valley_[s]) --a;
    while (z < right && valley_[z] == valley_[s]) ++z;

    frame.choices = choices_.size();
    frame.waste = never;
    for (std::size_t i = stretch.begin; i < stretch.end; ++i) {
      const Group& g = set_.groups[items_[i]];
      const Level floor = floors_.of(items_[i]);
      if (!set_.ordered && !SearchGroups::overlaps(g, a, z)) continue;
      if (!set_.covers(g, s)) {
        frame.waste = std::min(frame.waste, floor + g.least - frame.level);
        continue;
      }
      if (floor != frame.level) {
        frame.waste = std::min(frame.waste, floor - frame.level);
        continue;
      }
      bool twin = false;
      for (std::size_t c = frame.choices; c < choices_.size() && !twin; ++c) twin = SearchGroups::same(set_.groups[choices_[c]], g);
      if (!twin) choices_.push_back(items_[i]);
    }
    std::sort(choices_.begin() + static_cast<std::ptrdiff_t>(frame.choices), choices_.end(),
              [&](std::uint32_t x, std::uint32_t y) {
                if (order_.fills_first()) {
                  const bool fx = set_.groups[x].left == a && set_.groups[x].right == z;
                  const bool fy = set_.groups[y].left == a && set_.groups[y].right == z;
                  if (fx != fy) return fx;
                }
                return order_.before(x, y);
              });
    if (frame.waste <= floors_.slack(set_, s)) choices_.push_back(skip);
    frame.choices_end = choices_.size();
    frame.next_choice = frame.choices;
    return true;
  }

  // Makes the frame's next choice and the stretches that are left of it.
  constexpr void choose(Frame& frame) {
    const std::uint32_t x = choices_[frame.next_choice++];
    frame.children = stretches_.size();
    frame.taken = skip;
    if (x == skip) {
      frame.change = floors_.raise(frame.section, frame.level + frame.waste);
      stretches_.push_back(frame.items);
    } else {
      set_.groups[x].level = frame.level;
      frame.change = floors_.place(set_, x, frame.level);
      // What is placed goes to the front; the rest keeps its order.
      const auto first = items_.begin() + frame.items.begin;
      const auto at = std::lower_bound(first, items_.begin() + frame.items.end, x);
      frame.taken = static_cast<std::uint32_t>(at - items_.begin());
      std::rotate(first, at, at + 1);
      std::uint32_t reach = 0;
      Stretch child{frame.items.begin + 1, frame.items.begin + 1};
      for (; child.end < frame.items.end; ++child.end) {
        const Group& g = set_.groups[items_[child.end]];
        if (g.left >= reach && child.end != child.begin) {
          stretches_.push_back(child);
          child.begin = child.end;
        }
        reach = std::max(reach, g.right);
      }
      if (child.end != child.begin) stretches_.push_back(child);
      // What is small fails or succeeds soon.
      std::sort(stretches_.begin() + static_cast<std::ptrdiff_t>(frame.children), stretches_.end(),
                [](const Stretch& p, const Stretch& q) {
                  return p.end - p.begin != q.end - q.begin ? p.end - p.begin < q.end - q.begin : p.begin < q.begin;
                });
    }
    frame.children_end = stretches_.size();
    frame.next_child = frame.children;
  }

  // Takes a frame's choice back. Stretches that were placed whole have lost their order.
  constexpr void take_back(Frame& frame) {
    floors_.undo_to(frame.raised);
    if (frame.next_child > frame.children + 1) std::sort(items_.begin() + frame.items.begin + 1, items_.begin() + frame.items.end);
    if (frame.taken != skip) {
      const auto first = items_.begin() + frame.items.begin;
      std::rotate(first, first + 1, items_.begin() + frame.taken + 1);
    }
    stretches_.resize(frame.children, Stretch{});
  }

  template <class Stop>
  constexpr SearchEnd search(std::uint32_t from, std::uint32_t to, std::int64_t& nodes, const Stop& stop) {
    if (!floors_.reset(set_, from, to)) return SearchEnd::impossible;
    items_.resize(to - from, 0u);
    std::iota(items_.begin(), items_.end(), from);
    Stretch next{0, to - from};
    Change change{0, set_.section_count, 0, true};
    for (;;) {
      nodes -= cost(next.end - next.begin);
      if (nodes < 0 || (++used_nodes_ % stop_every == 0 && stop())) return SearchEnd::gave_up;
      if (floors_.mark() + choices_.size() + 8 * frames_.size() > most_noted) return SearchEnd::gave_up;
      Frame frame;
      frame.items = next;
      frame.entered = floors_.mark();
      bool failed = !floors_.update(set_, std::span(items_).subspan(next.begin, next.end - next.begin), change) || !open(frame);
      if (failed) {
        floors_.undo_to(frame.entered);
      } else {
        frame.raised = floors_.mark();
        frames_.push_back(frame);
      }
      // Climb until a frame has something left to search.
      for (;;) {
        if (frames_.empty()) return failed ? SearchEnd::impossible : SearchEnd::found;
        Frame& top = frames_.back();
        const bool fresh = top.next_choice == top.choices;
        if (!failed && !fresh && top.next_child == top.children_end) {
          close(top);
          continue;
        }
        if (failed && !fresh) take_back(top);
        if ((failed || fresh) && top.next_choice == top.choices_end) {
          dead_.add(top.key);
          floors_.undo_to(top.entered);
          choices_.resize(top.choices, 0u);
          frames_.pop_back();
          failed = true;
          continue;
        }
        if (failed || fresh) choose(top);
        failed = false;
        if (top.next_child == top.children_end) continue;
        next = stretches_[top.next_child++];
        change = top.change;
        break;
      }
    }
  }

  // Drops a frame all of whose stretches are placed.
  constexpr void close(const Frame& frame) {
    choices_.resize(frame.choices, 0u);
    stretches_.resize(frame.children, Stretch{});
    frames_.pop_back();
  }

  SearchGroups set_;
  SearchFloors floors_;
  ChoiceOrder order_;
  DeadEnds dead_;
  Bytes capacity_ = -1;
  std::int64_t used_nodes_ = 0;
  std::vector<Level> least_;
  std::vector<std::int32_t> count_;
  std::vector<std::uint32_t> valley_;
  std::vector<std::uint32_t> items_;  // groups; those of a stretch that is not placed are in order
  std::vector<std::uint32_t> choices_;
  std::vector<Stretch> stretches_;
  std::vector<Frame> frames_;
};

}  // namespace holdfast::detail
