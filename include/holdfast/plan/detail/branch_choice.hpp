// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/plan/detail/choice_order.hpp"
#include "holdfast/plan/detail/search_floors.hpp"
#include "holdfast/plan/detail/search_groups.hpp"

namespace holdfast::detail {

/// Chooses the section of a valley to branch on, where least may lie on the floor.
///
/// Threads: a value. Cost: O(groups and sections of a stretch); memory for 16 bytes a section.
class BranchChoice {
 public:
  using Level = SearchGroups::Level;
  static constexpr std::uint32_t skip = 0xFFFFFFFFu;  ///< the choice that takes the waste

  struct Branch {
    std::uint32_t section = 0;
    Level waste = SearchGroups::never;  ///< the least that stays unused there if nothing lies on its floor
  };
  struct Sections {
    std::uint32_t left;
    std::uint32_t right;
  };

  constexpr explicit BranchChoice(const SearchGroups& set) {
    count_.assign(static_cast<std::size_t>(set.section_count) + 1, 0);
    valley_.assign(set.section_count, 0);
    least_.assign(set.section_count, 0);
  }

  /// The sections that groups span.
  [[nodiscard]] static constexpr Sections sections_of(const SearchGroups& set, std::span<const std::uint32_t> items) noexcept {
    Sections sections{set.section_count, 0};
    for (const std::uint32_t i : items) {
      sections.left = std::min(sections.left, set.groups[i].left);
      sections.right = std::max(sections.right, set.groups[i].right);
    }
    return sections;
  }

  /// Finds it for the groups `items`, and adds what may lie on its floor to `choices`, what is tried first to the front.
  constexpr Branch find(const SearchGroups& set, const SearchFloors& floors, const ChoiceOrder& order,
                        std::span<const std::uint32_t> items, std::vector<std::uint32_t>& choices) {
    const auto [left, right] = sections_of(set, items);
    Branch branch;
    // A valley is numbered by its first section; others get no number.
    Level lowest = SearchGroups::never;
    for (std::uint32_t s = left; s < right; ++s) lowest = std::min(lowest, floors[s]);
    for (std::uint32_t a = left; a < right;) {
      std::uint32_t z = a + 1;
      while (z < right && floors[z] == floors[a]) ++z;
      const bool low = (a == left || floors[a - 1] > floors[a]) && (z == right || floors[z] > floors[a]);
      Level wall = SearchGroups::never;
      if (a > left) wall = std::min(wall, floors[a - 1]);
      if (z < right) wall = std::min(wall, floors[z]);
      least_[a] = wall - floors[a];
      const std::uint32_t number = low && (!set.ordered || floors[a] == lowest) ? a : skip;
      for (; a < z; ++a) {
        valley_[a] = number;
        count_[a] = 0;
      }
    }
    count_[right] = 0;
    for (const std::uint32_t i : items) {
      const Group& g = set.groups[i];
      const Level floor = floors.of(i);
      if (set.ordered) {
        if (floor != lowest) continue;
        for (const Part& p : set.parts_of(g)) {
          ++count_[p.left];
          --count_[p.right];
        }
        continue;
      }
      const std::uint32_t v = valley_[g.left];
      if (v == skip || valley_[g.right - 1] != v) continue;
      least_[v] = std::min(least_[v], g.least);
      if (floor != floors[v]) {
        least_[v] = std::min(least_[v], floor - floors[v]);
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
      const Level slack = floors.slack(set, s);
      const bool loose = slack > 0 && (set.ordered || least_[valley_[s]] <= slack);
      const bool edge = s == valley_[s] || s + 1 == right || valley_[s + 1] != valley_[s];
      const std::uint64_t cost = (loose ? 1ull << 40 : 0) + (static_cast<std::uint64_t>(running) << 1) + (edge ? 0 : 1);
      if (cost >= best) continue;
      best = cost;
      branch.section = s;
    }
    const std::uint32_t s = branch.section;
    const Level level = floors[s];
    std::uint32_t a = s;
    std::uint32_t z = s + 1;
    while (a > left && valley_[a - 1] == valley_[s]) --a;
    while (z < right && valley_[z] == valley_[s]) ++z;

    const std::size_t first = choices.size();
    for (const std::uint32_t i : items) {
      const Group& g = set.groups[i];
      const Level floor = floors.of(i);
      if (!set.ordered && !SearchGroups::overlaps(g, a, z)) continue;
      if (!set.covers(g, s)) {
        branch.waste = std::min(branch.waste, floor + g.least - level);
        continue;
      }
      if (floor != level) {
        branch.waste = std::min(branch.waste, floor - level);
        continue;
      }
      bool twin = false;
      for (std::size_t c = first; c < choices.size() && !twin; ++c) twin = SearchGroups::same(set.groups[choices[c]], g);
      if (!twin) choices.push_back(i);
    }
    std::sort(choices.begin() + static_cast<std::ptrdiff_t>(first), choices.end(),
              [&](std::uint32_t x, std::uint32_t y) {
                if (order.fills_first()) {
                  const bool fx = set.groups[x].left == a && set.groups[x].right == z;
                  const bool fy = set.groups[y].left == a && set.groups[y].right == z;
                  if (fx != fy) return fx;
                }
                return order.before(x, y);
              });
    if (branch.waste <= floors.slack(set, s)) choices.push_back(skip);
    return branch;
  }

 private:
  using Part = SearchGroups::Part;
  using Group = SearchGroups::Group;

  std::vector<Level> least_;
  std::vector<std::int32_t> count_;
  std::vector<std::uint32_t> valley_;
};

}  // namespace holdfast::detail
