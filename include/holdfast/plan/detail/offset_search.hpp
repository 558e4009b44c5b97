// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "holdfast/core/units.hpp"
#include "holdfast/plan/detail/branch_choice.hpp"
#include "holdfast/plan/detail/choice_order.hpp"
#include "holdfast/plan/detail/dead_ends.hpp"
#include "holdfast/plan/detail/offset_problem.hpp"
#include "holdfast/plan/detail/search_floors.hpp"
#include "holdfast/plan/detail/search_groups.hpp"
#include "holdfast/plan/stop.hpp"

namespace holdfast::detail {

/// How a search for a plan within a capacity ended.
enum class SearchEnd : std::uint8_t { found, impossible, gave_up };

/// Adds to a list that grows by a quarter: doubling takes three times the memory while it copies.
template <class T>
constexpr void push_tight(std::vector<T>& list, const T& value) {
  if (list.size() == list.capacity()) list.reserve(list.size() + list.size() / 4 + 16);
  list.push_back(value);
}

/// A backtracking search for offsets within a capacity, over independent stretches of time.
///
/// Time is cut into sections, one for each largest set of ranges alive together. The floor of a section is the lowest level that
/// what is unplaced could reach there. A maximal stretch of equal floors between higher ones is a valley: pushed down as far as
/// they go, the remaining groups leave something on any section of a valley's floor, or waste a known height there, which the
/// section's slack must allow. A branch places one group or takes the waste; what no longer overlaps is searched apart, and
/// sets of groups over floors that were found dead are remembered. What is needed to go back far is found again instead of kept.
/// Threads: a value. Cost: exponential in the worst case, bounded by nodes; a node costs O(groups and sections of its stretch).
/// Memory: at most 640 bytes a block and 192 KiB; a branch that wastes more often than it places is given up.
class OffsetSearch {
 public:
  /// The most ranges of one stretch of time that it serves.
  static constexpr std::size_t most_ranges = SearchFloors::most_items;

  /// Tells whether it can search for plans below `peak`.
  [[nodiscard]] static constexpr bool serves(const OffsetInput& in, Bytes peak) noexcept {
    if (peak > SearchFloors::most_level) return false;
    std::size_t count = 0;
    std::int64_t reach = 0;
    for (const std::uint32_t r : in.by_begin) {
      count = count == 0 || in.ranges[r].begin >= reach ? 1 : count + 1;
      const std::int64_t end = in.ranges[in.members(in.ranges[r].group).back()].end;
      reach = count == 1 ? end : std::max(reach, end);
      if (count > most_ranges) return false;
    }
    return true;
  }

  /// Units: `kept` is the changes and the choices for each group that need not be found again; one at least.
  constexpr explicit OffsetSearch(const OffsetInput& in, std::size_t kept = 8) 
      : set_(in), floors_(set_, kept), branch_(set_), kept_(kept) {}

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
        forgotten_choices_ = 0;
        stretches_.clear();
        frames_.clear();
        order_.start(set_, round);
        std::int64_t allowed = std::min(nodes, static_cast<std::int64_t>(budget));
        const std::int64_t before = allowed;
        end = search(static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to), allowed, stop);
        nodes -= before - allowed;
        if (round % ChoiceOrder::rule_count == ChoiceOrder::rule_count - 1) budget = std::min(1.3 * budget, 1e15);
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
  using Group = SearchGroups::Group;
  using Change = SearchFloors::Change;
  static constexpr std::int64_t stop_every = 64;
  static constexpr std::uint32_t skip = BranchChoice::skip;

  struct Stretch {  // of items_
    std::uint32_t begin;
    std::uint32_t end;
  };
  struct Frame {
    Stretch items{};
    std::uint32_t choices = 0;      // [choices, choices_end) of all choices so far
    std::uint32_t choices_end = 0;
    std::uint32_t next_choice = 0;
    std::uint32_t children = 0;     // stretches_[children ..) while it is the last frame
    std::uint32_t next_child = 0;
    std::uint32_t section = 0;
    std::uint32_t taken = skip;     // where its choice stood
    std::size_t raised = 0;         // what was changed before its choice
    Level waste = 0;
    DeadEnds::Key key{};
  };
  // A branch looks at every group of its stretch.
  [[nodiscard]] static constexpr std::int64_t cost(std::size_t groups) noexcept {
    return 1 + static_cast<std::int64_t>(groups / 128);
  }
  [[nodiscard]] static constexpr std::int64_t descent(std::size_t groups) noexcept {
    return (static_cast<std::int64_t>(groups) + 4) * cost(groups / 2);
  }

  [[nodiscard]] constexpr std::span<const std::uint32_t> items_of(const Stretch& stretch) const noexcept {
    return std::span(items_).subspan(stretch.begin, stretch.end - stretch.begin);
  }

  // Tells whether a stretch was found dead before.
  [[nodiscard]] constexpr bool is_dead(Frame& frame) const noexcept {
    const auto [left, right] = BranchChoice::sections_of(set_, items_of(frame.items));
    for (const std::uint32_t i : items_of(frame.items)) frame.key.add(i);
    for (std::uint32_t s = left; s < right; ++s) frame.key.add(static_cast<std::uint64_t>(floors_[s]));
    return dead_.contains(frame.key);
  }

  // Chooses where to branch and lists what may be done there; of other lists the older half is forgotten where they grow long.
  constexpr void open(Frame& frame) {
    if (choices_.size() > (kept_ - 1) * items_.size()) {
      const std::size_t half = choices_.size() / 2;
      choices_.erase(choices_.begin(), choices_.begin() + static_cast<std::ptrdiff_t>(half));
      forgotten_choices_ += half;
    }
    frame.choices = static_cast<std::uint32_t>(forgotten_choices_ + choices_.size());
    const BranchChoice::Branch branch = branch_.find(set_, floors_, order_, items_of(frame.items), choices_);
    frame.section = branch.section;
    frame.waste = branch.waste;
    frame.choices_end = static_cast<std::uint32_t>(forgotten_choices_ + choices_.size());
  }

  // Drops choices from one on.
  constexpr void drop_choices(std::uint32_t from) {
    choices_.resize(std::max<std::size_t>(from, forgotten_choices_) - forgotten_choices_, 0u);
    forgotten_choices_ = std::min<std::size_t>(from, forgotten_choices_);
  }

  // Makes the frame's next choice and the stretches that are left of it.
  constexpr void choose(Frame& frame) {
    if (frame.choices < forgotten_choices_) {
      drop_choices(frame.choices);
      open(frame);
    }
    const std::uint32_t x = choices_[frame.next_choice++ - forgotten_choices_];
    frame.children = static_cast<std::uint32_t>(stretches_.size());
    frame.next_child = frame.children;
    frame.taken = skip;
    if (x == skip) {
      floors_.raise(frame.section, floors_[frame.section] + frame.waste);
      push_tight(stretches_, frame.items);
    } else {
      set_.groups[x].level = floors_[frame.section];
      floors_.place(set_, x, floors_[frame.section]);
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
          push_tight(stretches_, child);
          child.begin = child.end;
        }
        reach = std::max(reach, g.right);
      }
      if (child.end != child.begin) push_tight(stretches_, child);
      // What is small fails or succeeds soon.
      std::sort(stretches_.begin() + static_cast<std::ptrdiff_t>(frame.children), stretches_.end(),
                [](const Stretch& p, const Stretch& q) {
                  return p.end - p.begin != q.end - q.begin ? p.end - p.begin < q.end - q.begin : p.begin < q.begin;
                });
    }
  }

  // What a frame's choice changed, before any of its children.
  [[nodiscard]] constexpr Change change_of(const Frame& frame) const noexcept {
    if (frame.taken == skip) return {frame.section, frame.section + 1, floors_[frame.section], true};
    const Group& g = set_.groups[items_[frame.items.begin]];
    return {g.left, g.right, g.level + g.size, g.part_count == 1};
  }

  // Counts what lies in stretches of a frame that are placed whole as placed (1) or not any more (-1).
  constexpr void count_closed(const Frame& frame, Level times) noexcept {
    for (std::uint32_t c = frame.children; c + 1 < frame.next_child; ++c)
      for (const std::uint32_t i : items_of(stretches_[c])) floors_.count_placed(set_, i, times);
  }

  // Takes the last frame's choice back. Stretches that were placed whole have lost their order.
  constexpr void take_back(std::int64_t& nodes) {
    Frame& frame = frames_.back();
    if (frame.taken != skip) floors_.count_placed(set_, items_[frame.items.begin], -1);
    count_closed(frame, -1);
    if (!floors_.undo_to(frame.raised)) replay(nodes);
    if (frame.next_child > frame.children + 1)
      std::sort(items_.begin() + frame.items.begin + 1, items_.begin() + frame.items.end);
    if (frame.taken != skip) {
      const auto first = items_.begin() + frame.items.begin;
      std::rotate(first, first + 1, items_.begin() + frame.taken + 1);
    }
    stretches_.resize(frame.children, Stretch{});
  }

  // Comes to where the last frame was before its choice by making all choices below it again.
  constexpr void replay(std::int64_t& nodes) {
    floors_.reset(set_, first_group_, first_group_ + static_cast<std::uint32_t>(items_.size()));
    Change change = everything();
    for (Frame& frame : frames_) {
      nodes -= cost(frame.items.end - frame.items.begin);
      update(frame.items, change);
      frame.raised = floors_.mark();
      if (&frame == &frames_.back()) return;
      if (frame.taken == skip) {
        change = floors_.raise(frame.section, floors_[frame.section] + frame.waste);
      } else {
        change = floors_.place(set_, items_[frame.items.begin], floors_[frame.section]);
      }
      count_closed(frame, 1);
    }
  }

  [[nodiscard]] constexpr Change everything() const noexcept { return {0, set_.section_count, 0, true}; }
  constexpr bool update(const Stretch& items, const Change& change) {
    return floors_.update(set_, items_of(items), change);
  }

  template <class Stop>
  constexpr SearchEnd search(std::uint32_t from, std::uint32_t to, std::int64_t& nodes, const Stop& stop) {
    if (!floors_.reset(set_, from, to)) return SearchEnd::impossible;
    items_.resize(to - from, 0u);
    std::iota(items_.begin(), items_.end(), from);
    Stretch next{0, to - from};
    first_group_ = from;
    choices_.reserve(kept_ * items_.size());
    Change change = everything();
    for (;;) {
      nodes -= cost(next.end - next.begin);
      if (nodes < 0 || (++used_nodes_ % stop_every == 0 && stop())) return SearchEnd::gave_up;
      if (frames_.size() > 2 * items_.size() + 64) return SearchEnd::gave_up;
      Frame frame;
      frame.items = next;
      bool failed = !update(next, change) || is_dead(frame);
      if (!failed) {
        open(frame);
        frame.next_choice = frame.choices;
        frame.raised = floors_.mark();
        push_tight(frames_, frame);
      }
      // Climb until a frame has something left to search.
      for (;;) {
        if (frames_.empty()) return failed ? SearchEnd::impossible : SearchEnd::found;
        Frame& top = frames_.back();
        const bool fresh = top.next_choice == top.choices;
        if (!failed && !fresh && top.next_child == stretches_.size()) {
          close(top);
          continue;
        }
        if (failed && !fresh) take_back(nodes);
        if ((failed || fresh) && top.next_choice == top.choices_end) {
          dead_.add(top.key);
          drop_choices(top.choices);
          frames_.pop_back();
          failed = true;
          continue;
        }
        if (failed || fresh) choose(top);
        failed = false;
        if (top.next_child == stretches_.size()) continue;
        next = stretches_[top.next_child++];
        change = change_of(top);
        break;
      }
    }
  }

  // Drops a frame all of whose stretches are placed.
  constexpr void close(const Frame& frame) {
    drop_choices(frame.choices);
    stretches_.resize(frame.children, Stretch{});
    frames_.pop_back();
  }

  SearchGroups set_;
  SearchFloors floors_;
  BranchChoice branch_;
  std::size_t kept_;
  ChoiceOrder order_;
  DeadEnds dead_;
  Bytes capacity_ = -1;
  std::int64_t used_nodes_ = 0;
  std::uint32_t first_group_ = 0;
  std::vector<std::uint32_t> items_;  // groups; those of a stretch that is not placed are in order
  std::vector<std::uint32_t> choices_;  // without the first `forgotten_choices_`
  std::size_t forgotten_choices_ = 0;
  std::vector<Stretch> stretches_;
  std::vector<Frame> frames_;
};

}  // namespace holdfast::detail
