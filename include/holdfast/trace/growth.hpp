// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/core/hash_table.hpp"
#include "holdfast/trace/checkpoint.hpp"

namespace holdfast {

/// The straight line nearest to points, by least squares; points come one at a time.
///
/// Sums are taken about the running means, so that large numbers lose nothing. Threads: a value.
class LeastSquares {
 public:
  constexpr void add(double x, double y) noexcept {
    ++count_;
    const double n = static_cast<double>(count_);
    const double dx = x - mean_x_;
    const double dy = y - mean_y_;
    mean_x_ += dx / n;
    mean_y_ += dy / n;
    xx_ += dx * (x - mean_x_);
    xy_ += dx * (y - mean_y_);
    yy_ += dy * (y - mean_y_);
  }

  [[nodiscard]] constexpr std::size_t count() const noexcept { return count_; }
  /// Units of y for each one of x; 0 where all x are the same.
  [[nodiscard]] constexpr double slope() const noexcept { return xx_ == 0 ? 0 : xy_ / xx_; }
  /// How much of y's variance the line explains, 0 to 1; 0 where y or x does not vary.
  [[nodiscard]] constexpr double r2() const noexcept {
    return xx_ == 0 || yy_ == 0 ? 0 : xy_ * xy_ / (xx_ * yy_);
  }

 private:
  std::size_t count_ = 0;
  double mean_x_ = 0, mean_y_ = 0, xx_ = 0, xy_ = 0, yy_ = 0;
};

/// When growth is suspicious.
struct GrowthRules {
  std::size_t checkpoints = 5;  ///< in a row without a fall
  double r2 = 0.8;              ///< of the line through them
  std::uint32_t age = 1;        ///< steps that the oldest block must be older than
};

/// How one group has changed over the last checkpoints, since it last fell.
struct Growth {
  LiveGroupKey key;
  LeastSquares bytes;  ///< over steps
  LeastSquares blocks;
  double last = 0;  ///< bytes
  std::uint32_t round = 0;

  [[nodiscard]] bool is_used() const noexcept { return round != 0; }
  [[nodiscard]] bool is_same(const Growth& other) const noexcept { return key == other.key; }
  [[nodiscard]] std::uint64_t hash() const noexcept { return key.hash(); }
};

/// Looks at one checkpoint after the other and tells what grows steadily. Threads: one.
template <memory_backend Backend>
class GrowthWatch {
  static_assert(host_accessible<Backend>, "the host reads and writes what a table holds");

 public:
  explicit GrowthWatch(Backend backend = {}) noexcept : groups_(std::move(backend)) {}

  /// Takes the next checkpoint, at a later step than the last. Errors: out_of_memory (some groups
  /// are not watched). Cost: linear in the groups.
  template <class Point>
  Error note(const Point& point) noexcept {
    ++round_;
    bool complete = true;
    point.visit([&](const LiveGroup& g) {
      Growth* known = groups_.find({g.key, {}, {}, 0, 0});
      if (known == nullptr) known = groups_.insert({g.key, {}, {}, 0, round_});
      if (known == nullptr) return void(complete = false);
      if (g.bytes < known->last) known->bytes = known->blocks = {};
      known->bytes.add(point.step(), g.bytes);
      known->blocks.add(point.step(), g.blocks);
      known->last = g.bytes;
      known->round = round_;
    });
    groups_.erase_if([&](const Growth& g) { return g.round != round_; });  // nothing of it is left
    return complete ? Error{} : make_error(Errc::out_of_memory, "no memory to watch a group");
  }

  /// What is known of a group, or null.
  [[nodiscard]] const Growth* find(const LiveGroupKey& key) const noexcept {
    return groups_.find({key, {}, {}, 0, 0});
  }
  /// Tells whether a group of the last checkpoint grows steadily and is old enough.
  [[nodiscard]] bool is_suspicious(const LiveGroup& group, std::uint32_t step,
                                   const GrowthRules& rules = {}) const noexcept {
    const Growth* const g = find(group.key);
    return g != nullptr && g->bytes.count() >= rules.checkpoints && g->bytes.slope() > 0 &&
           g->bytes.r2() >= rules.r2 && step > group.first_step &&
           step - group.first_step > rules.age;
  }

 private:
  HashTable<Growth, Backend> groups_;
  std::uint32_t round_ = 0;
};

}  // namespace holdfast
