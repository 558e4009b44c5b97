// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "holdfast/core/units.hpp"

namespace holdfast::detail {

/// Bytes over time: adds to a run of moments, finds the largest sum of a run.
///
/// Threads: as a vector. Cost: O(log n) a call.
class LoadTree {
 public:
  explicit constexpr LoadTree(std::uint32_t moments) {
    while (leaves_ < moments) leaves_ *= 2;
    add_.resize(2 * std::size_t{leaves_}, 0);
    most_.resize(2 * std::size_t{leaves_}, 0);
  }
  /// Adds to the moments of `[begin, end)`.
  constexpr void add(std::uint32_t begin, std::uint32_t end, Bytes bytes) {
    if (begin < end) add(1, 0, leaves_, begin, end, bytes);
  }
  /// The largest sum in `[begin, end)`; 0 for none.
  [[nodiscard]] constexpr Bytes most(std::uint32_t begin, std::uint32_t end) const {
    return begin < end ? most(1, 0, leaves_, begin, end) : 0;
  }
  [[nodiscard]] constexpr Bytes most() const noexcept { return most_[1]; }
  /// The first moment with the largest sum.
  [[nodiscard]] constexpr std::uint32_t peak() const noexcept {
    std::uint32_t n = 1;
    while (n < leaves_) n = 2 * n + (most_[2 * n] >= most_[2 * n + 1] ? 0 : 1);
    return n - leaves_;
  }

 private:
  std::uint32_t leaves_ = 1;
  std::vector<Bytes> add_;   // by node: added to all below it
  std::vector<Bytes> most_;  // by node: the largest sum below it, its own addition included

  constexpr void add(std::uint32_t n, std::uint32_t low, std::uint32_t high, std::uint32_t begin,
                     std::uint32_t end, Bytes bytes) {
    if (end <= low || high <= begin) return;
    if (begin <= low && high <= end) {
      add_[n] += bytes;
      most_[n] += bytes;
      return;
    }
    const std::uint32_t middle = low + (high - low) / 2;
    add(2 * n, low, middle, begin, end, bytes);
    add(2 * n + 1, middle, high, begin, end, bytes);
    most_[n] = std::max(most_[2 * n], most_[2 * n + 1]) + add_[n];
  }
  [[nodiscard]] constexpr Bytes most(std::uint32_t n, std::uint32_t low, std::uint32_t high,
                                     std::uint32_t begin, std::uint32_t end) const {
    if (begin <= low && high <= end) return most_[n];
    const std::uint32_t middle = low + (high - low) / 2;
    if (end <= middle) return add_[n] + most(2 * n, low, middle, begin, end);
    if (middle <= begin) return add_[n] + most(2 * n + 1, middle, high, begin, end);
    return add_[n] + std::max(most(2 * n, low, middle, begin, end),
                              most(2 * n + 1, middle, high, begin, end));
  }
};

}  // namespace holdfast::detail
