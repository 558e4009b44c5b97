// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "holdfast/plan/detail/search_groups.hpp"

namespace holdfast::detail {

/// Which group a branch tries first: four rules in turn, blurred more and more differently after the first four rounds.
///
/// Threads: a value. Cost: O(groups) a round.
class ChoiceOrder {
 public:
  static constexpr unsigned rule_count = 4;

  constexpr void start(const SearchGroups& set, unsigned round) {
    random_ = 88172645463325252ull + round;
    fill_first_ = round % rule_count == 0;
    keys_.resize(set.groups.size(), 0.0);
    SearchGroups::Level largest = 1;
    for (const auto& g : set.groups) largest = std::max(largest, g.size);
    for (std::size_t i = 0; i < set.groups.size(); ++i) {
      const double width = set.groups[i].right - set.groups[i].left;
      const double size = static_cast<double>(set.groups[i].size);
      double key = 0;
      switch (round % rule_count) {
        case 0: key = width * size; break;
        case 1: key = width + size / static_cast<double>(largest + 1); break;
        case 2: key = size + width / (set.section_count + 1.0); break;
        default: key = static_cast<double>(set.most[i]) * (set.section_count + 1.0) + width; break;
      }
      if (round >= rule_count) key *= 0.4 + 2.3 * static_cast<double>(random() >> 40) / 16777216.0;
      keys_[i] = key;
    }
  }

  /// Tells whether a group that fills its valley from wall to wall goes before all others.
  [[nodiscard]] constexpr bool fills_first() const noexcept { return fill_first_; }
  [[nodiscard]] constexpr bool before(std::uint32_t x, std::uint32_t y) const noexcept {
    return keys_[x] != keys_[y] ? keys_[x] > keys_[y] : x < y;
  }

 private:
  [[nodiscard]] constexpr std::uint64_t random() noexcept {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_;
  }

  bool fill_first_ = false;
  std::uint64_t random_ = 0;
  std::vector<double> keys_;
};

}  // namespace holdfast::detail
