// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "holdfast/backend/simulated/watch.hpp"
#include "holdfast/core/types.hpp"

namespace holdfast {

/// How many operations of each actor have been seen; actors not mentioned: none.
///
/// Threads: a value. Cost: linear in the actors. Source: Fidge and Mattern, vector time.
class VectorClock {
 public:
  /// Operations of an actor that lie before this moment. Units: count.
  [[nodiscard]] std::uint64_t at(ActorId actor) const noexcept {
    const std::size_t i = index_of(actor);
    return i < times_.size() ? times_[i] : 0;
  }
  /// Counts one more operation of an actor.
  void advance(ActorId actor) noexcept {
    const std::size_t i = index_of(actor);
    if (i >= times_.size()) times_.resize(i + 1, 0);
    ++times_[i];
  }
  /// Adds all that another clock has seen.
  void join(const VectorClock& other) noexcept {
    if (times_.size() < other.times_.size()) times_.resize(other.times_.size(), 0);
    for (std::size_t i = 0; i < other.times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
  }

 private:
  std::vector<std::uint64_t> times_;
};

}  // namespace holdfast
