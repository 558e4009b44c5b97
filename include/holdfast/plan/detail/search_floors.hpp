// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/plan/detail/search_groups.hpp"

namespace holdfast::detail {

/// The floor of each section, which is the lowest level that what is unplaced could reach there, the lowest level that each
/// unplaced group could have, and how they got there.
///
/// Threads: a value. Cost: O(groups and sections touched) a change, 24 bytes for each that changes.
class SearchFloors {
 public:
  using Level = SearchGroups::Level;

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
    group_.assign(set.groups.size(), 0);
  }

  /// Begins anew with groups [from, to); false when one of them fits nowhere.
  constexpr bool reset(const SearchGroups& set, std::uint32_t from, std::uint32_t to) {
    undo_.clear();
    for (std::uint32_t i = from; i < to; ++i) {
      group_[i] = set.settle(i, 0);
      if (group_[i] > set.groups[i].highest) return false;
    }
    for (std::uint32_t i = from; i < to; ++i)
      for (std::uint32_t s = set.groups[i].left; s < set.groups[i].right; ++s) {
        floor_[s] = 0;
        rest_[s] = set.load[s];
      }
    return true;
  }

  [[nodiscard]] constexpr Level operator[](std::uint32_t s) const noexcept { return floor_[s]; }
  /// The lowest level that a group could have now.
  [[nodiscard]] constexpr Level of(std::uint32_t group) const noexcept { return group_[group]; }
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

  /// Brings the floors below some groups up to date after a change; false when something no longer fits.
  constexpr bool update(const SearchGroups& set, std::span<const std::uint32_t> groups, const Change& change) {
    std::uint32_t from = set.section_count;
    std::uint32_t to = 0;
    std::uint32_t first = set.section_count;
    std::uint32_t last = 0;
    for (const std::uint32_t i : groups) {
      const SearchGroups::Group& g = set.groups[i];
      first = std::min(first, g.left);
      last = std::max(last, g.right);
      if (!SearchGroups::overlaps(g, change.left, change.right)) continue;
      const bool simple = change.exact && g.part_count == 1;
      const Level floor = set.settle(i, std::max(group_[i], simple ? change.top : highest(set, g)));
      if (floor == group_[i]) continue;
      undo_.push_back({i + set.section_count, group_[i], 0});
      group_[i] = floor;
      if (floor > g.highest) return false;
      from = std::min(from, g.left);
      to = std::max(to, g.right);
    }
    from = std::min(from, std::max(first, change.left));
    to = std::max(to, std::min(last, change.right));
    for (std::uint32_t s = from; s < to; ++s) lowest_[s] = SearchGroups::never;
    for (const std::uint32_t i : groups) {
      if (!SearchGroups::overlaps(set.groups[i], from, to)) continue;
      for (const SearchGroups::Part& p : set.parts_of(set.groups[i])) {
        const std::uint32_t end = std::min(p.right, to);
        for (std::uint32_t s = std::max(p.left, from); s < end; ++s) lowest_[s] = std::min(lowest_[s], group_[i]);
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
      const Undo& u = undo_.back();
      if (u.index < floor_.size()) {
        floor_[u.index] = u.floor;
        rest_[u.index] = u.rest;
      } else {
        group_[u.index - floor_.size()] = u.floor;
      }
      undo_.pop_back();
    }
  }

 private:
  struct Undo {
    std::uint32_t index;  // a section, or a group behind all sections
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
  std::vector<Level> group_;
  std::vector<Undo> undo_;
};

}  // namespace holdfast::detail
