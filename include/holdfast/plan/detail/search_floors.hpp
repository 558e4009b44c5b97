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
/// unplaced group could have, and how they got there lately.
///
/// Threads: a value. Cost: O(groups and sections touched) a change; 24 bytes a section,
/// 8 a group and for each change that can be undone.
class SearchFloors {
 public:
  using Level = SearchGroups::Level;
  static constexpr std::size_t most_items = 8192;             ///< groups, and sections, of a search
  static constexpr Level most_level = (Level{1} << 50) - 1;  ///< of a limit

  /// What the last step did.
  struct Change {
    std::uint32_t left = 0;
    std::uint32_t right = 0;
    Level top = 0;
    bool exact = false;  // one part: floors of what overlaps rise to `top` at least
  };

  /// Units: `kept` is the changes for each group that can be undone.
  constexpr SearchFloors(const SearchGroups& set, std::size_t kept) : kept_(kept) {
    floor_.assign(set.section_count, 0);
    rest_.assign(set.section_count, 0);
    lowest_.assign(set.section_count, 0);
    group_.assign(set.groups.size(), 0);
  }

  /// Begins anew with groups [from, to); false when one of them fits nowhere.
  constexpr bool reset(const SearchGroups& set, std::uint32_t from, std::uint32_t to) {
    first_group_ = from;
    first_section_ = set.groups[from].left;
    undo_.resize(kept_ * (to - from), 0u);
    next_ = 0;
    mark_ = 0;
    oldest_ = 0;
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
      for (std::uint32_t s = p.left; s < p.right; ++s) put(s, level + p.size);
    count_placed(set, group, 1);
    return {g.left, g.right, level + g.size, g.part_count == 1};
  }
  /// Counts a group as placed (1) or not any more (-1), whatever the floors are.
  constexpr void count_placed(const SearchGroups& set, std::uint32_t group, Level times) noexcept {
    for (const SearchGroups::Part& p : set.parts_of(set.groups[group]))
      for (std::uint32_t s = p.left; s < p.right; ++s) rest_[s] -= times * p.size;
  }
  constexpr Change raise(std::uint32_t s, Level level) {
    put(s, level);
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
      note(most_items + i - first_group_, group_[i]);
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
      if (lowest_[s] > floor_[s]) put(s, lowest_[s]);
      if (floor_[s] + rest_[s] > set.limit) return false;
    }
    return true;
  }

  /// A point in time to come back to.
  [[nodiscard]] constexpr std::size_t mark() const noexcept { return mark_; }
  /// Takes floors back to where they were at a mark; false where too much has changed since to know.
  constexpr bool undo_to(std::size_t mark) {
    if (mark < oldest_) return false;
    for (; mark_ > mark; --mark_) {
      next_ = (next_ == 0 ? undo_.size() : next_) - 1;
      const std::size_t index = undo_[next_] % (2 * most_items);
      const auto level = static_cast<Level>(undo_[next_] / (2 * most_items));
      if (index < most_items) {
        floor_[first_section_ + index] = level;
      } else {
        group_[first_group_ + index - most_items] = level;
      }
    }
    return true;
  }

 private:
  constexpr void put(std::uint32_t s, Level floor) {
    note(s - first_section_, floor_[s]);
    floor_[s] = floor;
  }
  // `index`: a section, or a group behind all sections.
  constexpr void note(std::size_t index, Level level) {
    undo_[next_] = static_cast<std::uint64_t>(level) * (2 * most_items) + index;
    next_ = next_ + 1 == undo_.size() ? 0 : next_ + 1;
    ++mark_;
    oldest_ = std::max(oldest_, mark_ - std::min(mark_, undo_.size()));
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
  std::size_t kept_;
  std::uint32_t first_group_ = 0;
  std::uint32_t first_section_ = 0;
  std::vector<std::uint64_t> undo_;  // a ring
  std::size_t next_ = 0;
  std::size_t mark_ = 0;    // changes so far
  std::size_t oldest_ = 0;  // of those that the ring holds
};

}  // namespace holdfast::detail
