// SPDX-License-Identifier: Apache-2.0
// What offset planners hold on the heap at most, beyond the problem and the offsets.
#define HOLDFAST_COUNT_ALLOCATIONS
#include "support/allocations.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/plan/plan_offsets.hpp"
#include "holdfast/plan/validate.hpp"
#include "support/intervals.hpp"

using namespace holdfast;

namespace {

/// Lives that begin and end anywhere, so that a third of all blocks is alive at once, or short ones.
std::vector<LiveRange> blocks(std::uint32_t count, bool lasting, Bytes scale = 1) {
  testing::Random random(count + lasting);
  std::vector<LiveRange> ranges;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto a = static_cast<std::int64_t>(random(count));
    const auto b = lasting ? static_cast<std::int64_t>(random(count)) : a + static_cast<std::int64_t>(random(1ull << random(10)));
    ranges.push_back({std::min(a, b), std::max(a, b) + 1, scale * (64 + static_cast<Bytes>(random(1ull << (6 + random(14))))), 1, i});
  }
  return ranges;
}

template <class Planner>
std::size_t most_held(const Planner& planner, const std::vector<LiveRange>& ranges) {
  std::vector<Bytes> offsets(ranges.size(), -1);
  const OffsetProblem problem{ranges, static_cast<std::uint32_t>(ranges.size())};
  const testing::AllocationPeak peak;
  const auto plan = planner(problem, offsets);
  const std::size_t held = peak.highest();
  REQUIRE(plan.ok());
  REQUIRE(validate_offsets(problem, offsets).ok());
  return held;
}

}  // namespace

TEST_CASE("offset_memory: fast, greedy and default planner hold at most 100 bytes a block beside what they read and write") {
  for (const std::uint32_t count : {1000u, 4000u, 10'000u, 20'000u})
    for (const bool lasting : {false, true})
      // With the larger ones offsets do not fit 32 bits.
      for (const Bytes scale : {Bytes{1}, Bytes{1000}}) {
        CAPTURE(count);
        CAPTURE(lasting);
        CAPTURE(scale);
        const auto ranges = blocks(count, lasting, scale);
        CHECK(most_held(FastPlanner{}, ranges) <= 100 * count);
        CHECK(most_held(GreedyPlanner{PlacementOrder::size, Fit::lowest}, ranges) <= 100 * count);
        CHECK(most_held(GreedyPlanner{PlacementOrder::area, Fit::lowest}, ranges) <= 100 * count);
        CHECK(most_held(PlanOffsets<>{.nodes = 0}, ranges) <= 100 * count);
      }
}

TEST_CASE("offset_memory: the search holds at most 640 bytes a block and 192 KiB, however deep it goes") {
  for (const std::uint32_t count : {200u, 1000u, 5000u})
    for (const bool lasting : {false, true}) {
      CAPTURE(count);
      CAPTURE(lasting);
      const auto ranges = blocks(count, lasting);
      CHECK(most_held(ExactPlanner<>{26 * count, 0, 0}, ranges) <= 640 * count + (192u << 10));
    }
}
