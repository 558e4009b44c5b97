// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/core/units.hpp"
#include "holdfast/plan/detail/offset_problem.hpp"

namespace holdfast::detail {

/// Which of the groups that fit into a valley is laid on its floor first: the one of the largest
/// width^w * size^s * (largest load met)^l, where the width is the time that it spans.
struct FillRule {
  std::int32_t w = 1;
  std::int32_t s = 1;
  std::int32_t l = 0;
};

/// The rules that proved themselves, the best ones first: those up to `good_rule_count` are worth their time on long programs.
inline constexpr FillRule fill_rules[] = {{5, 4, 64}, {1, 1, 64}, {3, 2, 256}, {1, 1, 0}, {3, 1, 512}, {16, 1, 0}, {0, 1, 0}, {1, 2, 0}, {2, 1, 0}};
inline constexpr std::uint32_t good_rule_count = 6;
inline constexpr std::uint32_t fill_rule_count = sizeof fill_rules / sizeof fill_rules[0];

/// Builds a plan from the ground up: the floor of time is a chain of segments, and a segment lower than both
/// neighbours, a valley, is filled by what lives only within it, or lifted to the lower neighbour when nothing does.
///
/// Valleys do not touch each other, so they are taken in the order in which a walk meets them.
/// Fixed offsets are not served. Threads: a value. Cost: O(n log n) in practice, 40 bytes a block.
class ValleyFill {
 public:
  constexpr explicit ValleyFill(const OffsetInput& in) : in_(in), unit_(in.unit) {
    section_count_ = make_sections(in, left_, right_);
    // Groups by first section, by counting.
    first_.assign(static_cast<std::size_t>(section_count_) + 1, 0);
    for (std::uint32_t g = 0; g < in.group_count(); ++g)
      if (const auto m = in.members(g); !m.empty()) ++first_[left_[m.front()] + 1];
    for (std::size_t s = 1; s < first_.size(); ++s) first_[s] += first_[s - 1];
    const std::uint32_t count = first_.back();
    groups_.assign(count, Group{});
    mirrored_ = true;
    {
      std::vector<std::uint32_t> at(first_.begin(), first_.end() - 1);
      for (std::uint32_t g = 0; g < in.group_count(); ++g) {
        const std::span<const std::uint32_t> m = in.members(g);
        if (m.empty()) continue;
        const Bytes size = in.size(g);
        groups_[at[left_[m.front()]]++] = {g, right_[m.back()], align_up(size, unit_)};
        mirrored_ = mirrored_ && in.alignment(g) == unit_;
        for (const std::uint32_t r : m) mirrored_ = mirrored_ && in.ranges[r].size == size;
      }
    }
    leaves_ = count;
    key_.assign(2 * leaves_, 0u);
    end_.assign(2 * leaves_, 0xFFFFFFFFu);
  }

  [[nodiscard]] constexpr std::size_t group_count() const noexcept { return groups_.size(); }

  /// Fills by a rule, its keys blurred differently for each `blur` but 0; writes offsets and gives their peak.
  constexpr Bytes run(FillRule rule, std::uint32_t blur, std::span<Bytes> offsets) {
    if (groups_.empty()) return 0;
    make_keys(rule, blur);
    fill(offsets);
    const Bytes peak = highest_end(in_, offsets);
    if (!mirrored_ || unit_ == 1) return peak;
    // Upside down, other blocks are topmost and save what rounding added to them.
    Bytes height = 0;
    for (const Group& g : groups_) height = std::max(height, offsets[g.id] + g.size);
    Bytes other = 0;
    for (const Group& g : groups_) other = std::max(other, height - offsets[g.id] - g.size + in_.size(g.id));
    if (other >= peak) return peak;
    for (const Group& g : groups_) offsets[g.id] = height - offsets[g.id] - g.size;
    return other;
  }

 private:
  struct Group {
    std::uint32_t id;
    std::uint32_t right;  // past its last section
    Bytes size;           // rounded
  };
  static constexpr std::uint32_t none = 0xFFFFFFFFu;

  // The binary logarithm in steps of 2^-23, near enough: a float's exponent and mantissa read as one number.
  [[nodiscard]] static constexpr std::int64_t logarithm(float x) noexcept {
    return static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(x)) - (127ll << 23);
  }

  constexpr void make_keys(FillRule rule, std::uint32_t blur) {
    std::uint64_t random = 0x9E3779B97F4A7C15ull * (blur + 1ull);
    if (rule.l != 0 && load_.empty()) find_loads();
    for (std::uint32_t s = 0; s < section_count_; ++s)
      for (std::uint32_t i = first_[s]; i < first_[s + 1]; ++i) {
        std::int64_t key = rule.w * logarithm(static_cast<float>(groups_[i].right - s)) +
                           rule.s * logarithm(static_cast<float>(groups_[i].size));
        if (rule.l != 0) key += std::int64_t{rule.l} * load_[i];
        if (blur != 0) {
          random ^= random << 13;
          random ^= random >> 7;
          random ^= random << 17;
          key += static_cast<std::int64_t>(random >> 40) * (rule.w + rule.s) / 32;
        }
        // 0 is kept for what is placed.
        key_[leaves_ + i] = static_cast<std::uint32_t>(std::clamp<std::int64_t>((key >> 4) + (1ll << 31), 1, 0xFFFFFFFF));
        end_[leaves_ + i] = groups_[i].right;
      }
    for (std::size_t n = leaves_ - 1; n > 0; --n) lift(n);
  }

  // For each group the logarithm of the largest load that it meets, relative to the largest of all: at most 0.
  constexpr void find_loads() {
    const std::size_t leaf = section_count_;
    std::vector<Bytes> most(2 * leaf, 0);
    for (const std::uint32_t r : in_.member) {
      most[leaf + left_[r]] += in_.ranges[r].size;
      if (right_[r] < section_count_) most[leaf + right_[r]] -= in_.ranges[r].size;
    }
    for (std::size_t n = leaf + 1; n < 2 * leaf; ++n) most[n] += most[n - 1];
    for (std::size_t n = leaf - 1; n > 0; --n) most[n] = std::max(most[2 * n], most[2 * n + 1]);
    load_.assign(groups_.size(), 0);
    const std::int64_t top = logarithm(static_cast<float>(*std::max_element(most.begin(), most.end())));
    for (std::uint32_t s = 0; s < section_count_; ++s)
      for (std::uint32_t i = first_[s]; i < first_[s + 1]; ++i) {
        Bytes met = 0;
        for (std::size_t l = leaf + s, r = leaf + groups_[i].right; l < r; l /= 2, r /= 2) {
          if (l & 1) met = std::max(met, most[l++]);
          if (r & 1) met = std::max(met, most[--r]);
        }
        load_[i] = static_cast<std::int32_t>(logarithm(static_cast<float>(met)) - top);
      }
  }

  constexpr void lift(std::size_t n) noexcept {
    key_[n] = std::max(key_[2 * n], key_[2 * n + 1]);
    end_[n] = std::min(end_[2 * n], end_[2 * n + 1]);
  }

  constexpr void remove(std::uint32_t i) noexcept {
    std::size_t n = leaves_ + i;
    key_[n] = 0;
    end_[n] = none;
    while ((n /= 2) != 0) {
      const std::uint32_t key = key_[n];
      const std::uint32_t end = end_[n];
      lift(n);
      if (key == key_[n] && end == end_[n]) break;
    }
  }

  // The unplaced group of the largest key that begins in [a, z) and ends by z.
  [[nodiscard]] constexpr std::uint32_t best_within(std::uint32_t a, std::uint32_t z) const noexcept {
    const std::size_t from = leaves_ + first_[a];
    const std::size_t to = leaves_ + first_[z];
    std::uint32_t best = 0;
    std::size_t found = 0;
    if (to - from <= 24) {
      for (std::size_t n = from; n < to; ++n)
        if (end_[n] <= z && key_[n] >= best) {
          best = key_[n];
          found = n;
        }
      return found == 0 ? none : static_cast<std::uint32_t>(found - leaves_);
    }
    // From right to left, so that of equal keys the last begun is found.
    std::uint32_t later[32] = {};
    std::size_t waiting = 0;
    for (std::size_t l = from, r = to; l < r; l /= 2, r /= 2) {
      if (l & 1) later[waiting++] = static_cast<std::uint32_t>(l++);
      if (r & 1) descend(--r, z, best, found);
    }
    while (waiting != 0) descend(later[--waiting], z, best, found);
    return found == 0 ? none : static_cast<std::uint32_t>(found - leaves_);
  }

  constexpr void descend(std::size_t n, std::uint32_t z, std::uint32_t& best, std::size_t& found) const noexcept {
    if (end_[n] > z || key_[n] <= best) return;
    if (n >= leaves_) {
      best = key_[n];
      found = n;
      return;
    }
    const std::size_t first = key_[2 * n] > key_[2 * n + 1] ? 2 * n : 2 * n + 1;
    descend(first, z, best, found);
    descend(first ^ 1, z, best, found);
  }

  // A segment is known by its first section: `next_` is where it ends, `before_` the first section of the one before.
  constexpr void set_segment(std::uint32_t a, std::uint32_t z, Bytes level) noexcept {
    level_[a] = level;
    next_[a] = z;
    if (z < section_count_) before_[z] = a;
  }

  constexpr void fill(std::span<Bytes> offsets) {
    // Not sooner: what finds loads is gone by now.
    level_.resize(section_count_, 0);
    next_.resize(section_count_, 0u);
    before_.resize(section_count_, 0u);
    before_[0] = none;
    set_segment(0, section_count_, 0);
    std::size_t left = groups_.size();
    std::uint32_t a = 0;
    while (left != 0) {
      const std::uint32_t z = next_[a];
      const Bytes level = level_[a];
      const Bytes wall_left = a == 0 ? max_bytes : level_[before_[a]];
      const Bytes wall_right = z == section_count_ ? max_bytes : level_[z];
      if (wall_left == level) {
        a = before_[a];
        set_segment(a, z, level);
        continue;
      }
      if (wall_right == level) {
        set_segment(a, next_[z], level);
        continue;
      }
      if (wall_left < level) {
        a = before_[a];
        continue;
      }
      if (wall_right < level) {
        a = z;
        continue;
      }
      const std::uint32_t i = best_within(a, z);
      if (i == none) {
        level_[a] = std::min(wall_left, wall_right);
        continue;
      }
      remove(i);
      --left;
      a = lay(i, a, z, level, offsets);
    }
  }

  // Lays a group on the floor of a valley; gives the leftmost segment of what was the valley.
  constexpr std::uint32_t lay(std::uint32_t i, std::uint32_t a, std::uint32_t z, Bytes level, std::span<Bytes> offsets) {
    const Group& g = groups_[i];
    const Bytes offset = align_up(level, in_.alignment(g.id));
    offsets[g.id] = offset;
    std::uint32_t at = a;
    const std::span<const std::uint32_t> members = in_.members(g.id);
    for (const std::uint32_t r : members) {
      if (left_[r] > at) {
        set_segment(at, left_[r], level);
        at = left_[r];
      }
      set_segment(at, right_[r], offset + align_up(in_.ranges[r].size, unit_));
      at = right_[r];
    }
    if (at < z) set_segment(at, z, level);
    return a;
  }

  const OffsetInput& in_;
  Bytes unit_;
  bool mirrored_ = false;  // every offset may be counted from the top as well
  std::uint32_t section_count_ = 0;
  std::size_t leaves_ = 0;
  std::vector<std::uint32_t> left_, right_;  // sections of each range
  std::vector<std::uint32_t> first_;         // groups that begin in section s: first_[s] .. first_[s + 1]
  std::vector<Group> groups_;
  std::vector<std::int32_t> load_;
  std::vector<std::uint32_t> key_, end_;  // a tree over groups: largest key, least right end
  std::vector<Bytes> level_;
  std::vector<std::uint32_t> next_, before_;
};

}  // namespace holdfast::detail
