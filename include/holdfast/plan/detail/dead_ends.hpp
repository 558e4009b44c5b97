// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace holdfast::detail {

/// What a search found to be without a solution: a fixed-size memory that forgets what is in the way of something new.
///
/// Threads: a value. Cost: O(1); at most 16 MiB.
class DeadEnds {
 public:
  /// Two independent 64-bit sums of what is searched: a false match is out of reach.
  class Key {
   public:
    constexpr void add_group(std::uint32_t group) noexcept {
      a_ = mix(a_ + group + 1);
      b_ = (b_ ^ group) * 0xD6E8FEB86659FD93ull;
    }
    constexpr void add_floor(std::int64_t floor) noexcept {
      const std::uint64_t f = static_cast<std::uint64_t>(floor) + 1;
      a_ = mix(a_ + f);
      b_ = (b_ ^ (f * 0xA0761D6478BD642Full)) * 0xD6E8FEB86659FD93ull;
      b_ ^= b_ >> 31;
    }
    friend constexpr bool operator==(const Key&, const Key&) noexcept = default;

   private:
    friend class DeadEnds;
    [[nodiscard]] static constexpr std::uint64_t mix(std::uint64_t x) noexcept {
      x ^= x >> 32;
      x *= 0x9E3779B97F4A7C15ull;
      x ^= x >> 29;
      return x;
    }
    std::uint64_t a_ = 0x243F6A8885A308D3ull;
    std::uint64_t b_ = 0x13198A2E03707344ull;
  };

  /// Forgets everything; `groups` is the size of the problem.
  constexpr void reset(std::size_t groups) {
    std::size_t slots = 64;
    while (slots < 8 * groups && slots < most_slots) slots *= 2;
    slots_.assign(slots, Slot{});
    used_ = 0;
  }
  [[nodiscard]] constexpr bool contains(const Key& key) const noexcept {
    const Slot& s = slots_[place(slots_, key.a_)];
    return s.a == (key.a_ | 1) && s.b == key.b_;
  }
  constexpr void add(const Key& key) {
    if (++used_ * 2 > slots_.size() && slots_.size() < most_slots) {
      std::vector<Slot> larger(slots_.size() * 4, Slot{});
      for (const Slot& s : slots_) larger[place(larger, s.a)] = s;
      slots_.swap(larger);
    }
    slots_[place(slots_, key.a_)] = {key.a_ | 1, key.b_};
  }

 private:
  static constexpr std::size_t most_slots = 1u << 20;
  struct Slot {
    std::uint64_t a = 0;  // odd where there is something
    std::uint64_t b = 0;
  };
  [[nodiscard]] static constexpr std::size_t place(const std::vector<Slot>& slots, std::uint64_t a) noexcept {
    return static_cast<std::size_t>(a >> 1) & (slots.size() - 1);
  }

  std::size_t used_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace holdfast::detail
