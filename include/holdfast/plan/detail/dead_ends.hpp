// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace holdfast::detail {

/// What a search found to be without a solution: a fixed-size memory that forgets what is in the way of something new.
///
/// Threads: a value. Cost: O(1); at most 192 KiB or 48 bytes a group.
class DeadEnds {
 public:
  /// A 64-bit sum of what is searched: compared with one other a look-up, a false match is out of reach.
  class Key {
   public:
    constexpr void add(std::uint64_t what) noexcept {
      sum_ += what + 1;
      sum_ ^= sum_ >> 32;
      sum_ *= 0x9E3779B97F4A7C15ull;
      sum_ ^= sum_ >> 29;
    }

   private:
    friend class DeadEnds;
    std::uint64_t sum_ = 0x243F6A8885A308D3ull;
  };

  /// Forgets everything; `groups` is the size of the problem.
  constexpr void reset(std::size_t groups) {
    most_slots_ = least_slots;
    while (most_slots_ < 2 * groups) most_slots_ *= 2;
    slots_.assign(std::min<std::size_t>(64, most_slots_), 0u);
    used_ = 0;
  }
  [[nodiscard]] constexpr bool contains(const Key& key) const noexcept { return slots_[place(slots_, key.sum_)] == key.sum_; }
  constexpr void add(const Key& key) {
    if (++used_ * 2 > slots_.size() && slots_.size() < most_slots_) {
      std::vector<std::uint64_t> larger(slots_.size() * 2, 0u);
      for (const std::uint64_t s : slots_) larger[place(larger, s)] = s;
      slots_.swap(larger);
    }
    slots_[place(slots_, key.sum_)] = key.sum_;
  }

 private:
  static constexpr std::size_t least_slots = 1 << 14;
  [[nodiscard]] static constexpr std::size_t place(const std::vector<std::uint64_t>& slots, std::uint64_t sum) noexcept {
    return static_cast<std::size_t>(sum) & (slots.size() - 1);
  }

  std::size_t used_ = 0;
  std::size_t most_slots_ = least_slots;
  std::vector<std::uint64_t> slots_;
};

}  // namespace holdfast::detail
