// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "holdfast/core/units.hpp"
#include "holdfast/plan/detail/offset_problem.hpp"

namespace holdfast::detail {

/// What a search for offsets places: groups over sections of time, all sizes and offsets in units.
///
/// The unit is the largest that divides every offset of a plan that is pushed down as far as it goes.
/// Threads: a value. Cost: O(groups * sections).
struct SearchGroups {
  using Level = std::int64_t;  ///< in units
  static constexpr Level never = max_bytes / 4;

  struct Part {
    std::uint32_t left;
    std::uint32_t right;
    Level size;
  };
  struct Group {
    std::uint32_t id = 0;
    std::uint32_t left = 0;   ///< first section of any part
    std::uint32_t right = 0;  ///< past the last one
    std::uint32_t first_part = 0;
    std::uint32_t part_count = 0;
    bool fixed = false;
    Level size = 0;   ///< of the largest part
    Level least = 0;  ///< of the smallest part
    Level alignment = 1;
    Level release = 0;  ///< no level below
    Level highest = 0;  ///< no level above
    Bytes bytes = 0;    ///< the largest part, not rounded
    Level level = 0;    ///< where it is placed
  };

  Bytes unit = 1;
  std::uint32_t section_count = 0;
  bool ordered = false;   ///< groups with gaps or fixed offsets leave holes: a branch must take the lowest floor
  bool any_loss = false;  ///< some size is no multiple of the unit
  bool mirrored = false;  ///< levels count down from the capacity
  Level limit = 0;        ///< the capacity, rounded up
  std::vector<Part> parts;
  std::vector<Group> groups;         ///< by first section
  std::vector<std::uint32_t> fixed;  ///< groups whose offset is decided
  std::vector<Level> load;           ///< of each section
  std::vector<Level> most;           ///< of each group: the largest load that it meets

  constexpr explicit SearchGroups(const OffsetInput& in) {
    make_units(in);
    std::vector<std::uint32_t> left, right;
    section_count = make_sections(in, left, right);
    make_groups(in, left, right);
  }

  /// The largest peak up to `capacity` that pushed-down offsets can have.
  [[nodiscard]] constexpr Bytes round_down(Bytes capacity) const noexcept {
    return any_loss ? capacity : capacity - capacity % unit;
  }
  /// The least peak from `bound` on that pushed-down offsets can have.
  [[nodiscard]] constexpr Bytes round_up(Bytes bound) const noexcept {
    return any_loss ? bound : align_up(bound, unit);
  }

  constexpr void set_capacity(Bytes capacity) {
    limit = capacity / unit + (capacity % unit != 0 ? 1 : 0);
    for (Group& g : groups) {
      g.highest = g.bytes <= capacity ? (capacity - g.bytes) / unit : -1;
      if (!mirrored) continue;
      g.release = limit - g.size - g.highest;
      g.highest = limit - g.size;
    }
  }

  [[nodiscard]] constexpr std::span<const Part> parts_of(const Group& g) const noexcept {
    return {parts.data() + g.first_part, g.part_count};
  }
  /// Tells whether a group spans any section of [left, right).
  [[nodiscard]] static constexpr bool overlaps(const Group& a, std::uint32_t left, std::uint32_t right) noexcept {
    return a.left < right && left < a.right;
  }

  /// Tells whether a group is alive in a section.
  [[nodiscard]] constexpr bool covers(const Group& g, std::uint32_t s) const noexcept {
    if (s < g.left || s >= g.right) return false;
    if (g.part_count == 1) return true;
    for (const Part& p : parts_of(g))
      if (p.left <= s && s < p.right) return true;
    return false;
  }

  /// Tells whether two groups may change places.
  [[nodiscard]] static constexpr bool same(const Group& a, const Group& b) noexcept {
    return a.part_count == 1 && b.part_count == 1 && a.left == b.left && a.right == b.right && a.size == b.size &&
           a.alignment == b.alignment && a.release == b.release && a.highest == b.highest && a.fixed == b.fixed;
  }

  /// The lowest level from `base` on that a group could have, given its alignment and the fixed groups.
  [[nodiscard]] constexpr Level settle(std::uint32_t index, Level base) const noexcept {
    const Group& g = groups[index];
    Level level = std::max(base, g.release);
    if (g.fixed) return level == g.release ? level : never;
    if (g.alignment != 1) level = align_up(level, g.alignment);
    for (bool moved = !fixed.empty(); moved;) {
      moved = false;
      for (const std::uint32_t f : fixed)
        for (const Part& p : parts_of(groups[f]))
          for (const Part& q : parts_of(g))
            if (p.left < q.right && q.left < p.right && groups[f].release < level + q.size &&
                level < groups[f].release + p.size) {
              level = align_up(groups[f].release + p.size, g.alignment);
              moved = true;
            }
    }
    return level;
  }

 private:
  constexpr void make_units(const OffsetInput& in) {
    unit = 0;
    for (const std::uint32_t r : in.member) unit = std::gcd(unit, align_up(in.ranges[r].size, in.unit));
    for (const Bytes f : in.fixed)
      if (f > 0) unit = std::gcd(unit, f);
    if (unit == 0) unit = 1;
    // An alignment that the unit keeps anyway is none; one that it does not keep makes the unit smaller.
    if (unit % in.unit != 0) unit = std::gcd(unit, in.unit);
    for (const Bytes a : in.alignments)
      if (a > 0 && unit % a != 0) unit = std::gcd(unit, a);
  }

  constexpr void make_groups(const OffsetInput& in, std::span<const std::uint32_t> left, std::span<const std::uint32_t> right) {
    groups.reserve(in.group_count());
    parts.reserve(in.member.size());
    bool aligned = true;
    bool same_sizes = true;
    for (std::uint32_t id = 0; id < in.group_count(); ++id) {
      const std::span<const std::uint32_t> members = in.members(id);
      if (members.empty()) continue;
      Group g;
      g.id = id;
      g.left = left[members.front()];
      g.right = right[members.back()];
      g.first_part = static_cast<std::uint32_t>(parts.size());
      g.least = never;
      for (const std::uint32_t r : members) {
        const Level size = (in.ranges[r].size - 1) / unit + 1;
        g.size = std::max(g.size, size);
        g.least = std::min(g.least, size);
        g.bytes = std::max(g.bytes, in.ranges[r].size);
        any_loss = any_loss || size * unit != in.ranges[r].size;
        if (g.part_count > 0 && parts.back().right == left[r] && parts.back().size == size) {
          parts.back().right = right[r];
        } else {
          parts.push_back({left[r], right[r], size});
          ++g.part_count;
        }
      }
      g.alignment = unit % in.alignment(id) == 0 ? 1 : in.alignment(id) / unit;
      g.fixed = in.is_fixed(id);
      if (g.fixed) g.release = in.fixed[id] / unit;
      aligned = aligned && g.alignment == 1;
      same_sizes = same_sizes && g.size == g.least;
      ordered = ordered || g.part_count > 1 || g.fixed;
      groups.push_back(g);
    }
    // Upside down the topmost block, which alone keeps its unrounded size, is the first to be placed.
    mirrored = aligned && same_sizes && !in.any_fixed;
    std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
      return a.left != b.left ? a.left < b.left : a.id < b.id;
    });
    if (in.any_fixed)
      for (std::uint32_t i = 0; i < groups.size(); ++i)
        if (groups[i].fixed) fixed.push_back(i);
    load.assign(section_count, 0);
    for (const Part& p : parts)
      for (std::uint32_t s = p.left; s < p.right; ++s) load[s] += p.size;
    most.assign(groups.size(), 0);
    for (std::uint32_t i = 0; i < groups.size(); ++i)
      for (const Part& p : parts_of(groups[i]))
        for (std::uint32_t s = p.left; s < p.right; ++s) most[i] = std::max(most[i], load[s]);
  }
};

}  // namespace holdfast::detail
