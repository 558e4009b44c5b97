// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/plan/detail/search_groups.hpp"

namespace holdfast::detail {

/// The floor of each section, which is the lowest level that what is unplaced could reach there, and how it got there.
///
/// Threads: a value. Cost: O(items and sections touched) a change.
class SearchFloors {
 public:
  using Level = SearchGroups::Level;

  /// A group that is to be placed.
  struct Item {
    std::uint32_t group;
    Level floor;  // the lowest level that it could have now
  };
  /// What the last step did.
  struct Change {
    std::uint32_t left = 0;
    std::uint32_t right = 0;
    Level top = 0;
    bool exact = false;  // one part: floors of what overlaps rise to `top` at least
  };

  constexpr explicit SearchFloors(const SearchGroups& set) {
    floor_.assign(set.section_count, 0);
    rest_.assign(set.section_count, 0);
    lowest_.assign(set.section_count, 0);
  }

  constexpr void reset(const SearchGroups& set, std::size_t from, std::size_t to) {
    undo_.clear();
    for (std::size_t i = from; i < to; ++i)
      for (std::uint32_t s = set.groups[i].left; s < set.groups[i].right; ++s) {
        floor_[s] = 0;
        rest_[s] = set.load[s];
      }
  }

  [[nodiscard]] constexpr Level operator[](std::uint32_t s) const noexcept { return floor_[s]; }
  /// What a section may waste in all.
  [[nodiscard]] constexpr Level slack(const SearchGroups& set, std::uint32_t s) const noexcept {
    return set.limit - floor_[s] - rest_[s];
  }

  constexpr Change place(const SearchGroups& set, std::uint32_t group, Level level) {
    const SearchGroups::Group& g = set.groups[group];
    for (const SearchGroups::Part& p : set.parts_of(g))
      for (std::uint32_t s = p.left; s < p.right; ++s) put(s, level + p.size, rest_[s] - p.size);
    return {g.left, g.right, level + g.size, g.part_count == 1};
  }
  constexpr Change raise(std::uint32_t s, Level level) {
    put(s, level, rest_[s]);
    return {s, s + 1, level, true};
  }

  /// Brings the floors below some items up to date after a change; false when something no longer fits.
  constexpr bool update(const SearchGroups& set, std::span<Item> items, const Change& change) {
    std::uint32_t from = set.section_count;
    std::uint32_t to = 0;
    std::uint32_t first = set.section_count;
    std::uint32_t last = 0;
    for (Item& item : items) {
      const SearchGroups::Group& g = set.groups[item.group];
      first = std::min(first, g.left);
      last = std::max(last, g.right);
      if (!SearchGroups::overlaps(g, change.left, change.right)) continue;
      const bool simple = change.exact && g.part_count == 1;
      const Level floor = set.settle(item.group, std::max(item.floor, simple ? change.top : highest(set, g)));
      if (floor == item.floor) continue;
      item.floor = floor;
      if (floor > g.highest) return false;
      from = std::min(from, g.left);
      to = std::max(to, g.right);
    }
    from = std::min(from, std::max(first, change.left));
    to = std::max(to, std::min(last, change.right));
    for (std::uint32_t s = from; s < to; ++s) lowest_[s] = SearchGroups::never;
    for (const Item& item : items) {
      if (!SearchGroups::overlaps(set.groups[item.group], from, to)) continue;
      for (const SearchGroups::Part& p : set.parts_of(set.groups[item.group])) {
        const std::uint32_t end = std::min(p.right, to);
        for (std::uint32_t s = std::max(p.left, from); s < end; ++s) lowest_[s] = std::min(lowest_[s], item.floor);
      }
    }
    for (std::uint32_t s = from; s < to; ++s) {
      if (lowest_[s] == SearchGroups::never) continue;
      if (lowest_[s] > floor_[s]) put(s, lowest_[s], rest_[s]);
      if (floor_[s] + rest_[s] > set.limit) return false;
    }
    return true;
  }

  /// A point in time to come back to.
  [[nodiscard]] constexpr std::size_t mark() const noexcept { return undo_.size(); }
  constexpr void undo_to(std::size_t mark) {
    while (undo_.size() > mark) {
      floor_[undo_.back().section] = undo_.back().floor;
      rest_[undo_.back().section] = undo_.back().rest;
      undo_.pop_back();
    }
  }

 private:
  struct Undo {
    std::uint32_t section;
    Level floor;
    Level rest;
  };

  constexpr void put(std::uint32_t s, Level floor, Level rest) {
    undo_.push_back({s, floor_[s], rest_[s]});
    floor_[s] = floor;
    rest_[s] = rest;
  }
  [[nodiscard]] constexpr Level highest(const SearchGroups& set, const SearchGroups::Group& g) const noexcept {
    Level most = 0;
    for (const SearchGroups::Part& p : set.parts_of(g))
      for (std::uint32_t s = p.left; s < p.right; ++s) most = std::max(most, floor_[s]);
    return most;
  }

  std::vector<Level> floor_;
  std::vector<Level> rest_;    // what is unplaced needs there
  std::vector<Level> lowest_;  // scratch of `update`
  std::vector<Undo> undo_;
};

}  // namespace holdfast::detail
