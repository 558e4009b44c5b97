// SPDX-License-Identifier: Apache-2.0
// What every offset planner keeps; a new one adds a line to the list.
#include "holdfast/plan/offset_planner.hpp"

#include <array>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/plan/offsets_exact.hpp"
#include "holdfast/plan/offsets_fast.hpp"
#include "holdfast/plan/offsets_greedy.hpp"
#include "holdfast/plan/plan_offsets.hpp"
#include "holdfast/plan/validate.hpp"
#include "support/intervals.hpp"

using namespace holdfast;

namespace {

struct GreedyLowest : GreedyPlanner {
  constexpr GreedyLowest() : GreedyPlanner{PlacementOrder::area, Fit::lowest} {}
};
struct NotAPlanner {
  void operator()(const OffsetProblem&, std::span<Bytes>) const;
};
static_assert(!offset_planner<NotAPlanner>);

}  // namespace

#define HOLDFAST_OFFSET_PLANNERS GreedyPlanner, GreedyLowest, FastPlanner, ExactPlanner<>, PlanOffsets<>

TEST_CASE_TEMPLATE("offset_planner: plans are valid, honest about their peak and not below the bound", Planner,
                   HOLDFAST_OFFSET_PLANNERS) {
  static_assert(offset_planner<Planner>);
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    const auto p = testing::random_problem(seed, 16, seed % 4);
    std::vector<Bytes> offsets(p.groups, -1);
    const auto plan = Planner{}(p.view(), offsets);
    REQUIRE(plan.ok());
    REQUIRE(validate_offsets(p.view(), offsets).ok());
    Bytes peak = 0;
    for (const LiveRange& r : p.ranges) peak = std::max(peak, offsets[r.group] + r.size);
    CHECK(plan->peak == peak);
    CHECK(plan->lower_bound <= plan->peak);
    if (plan->proven_optimal) CHECK(plan->lower_bound == plan->peak);
  }
}

TEST_CASE_TEMPLATE("offset_planner: the same problem always gives the same plan", Planner, HOLDFAST_OFFSET_PLANNERS) {
  const auto p = testing::random_problem(7, 30, 0);
  std::vector<Bytes> first(p.groups, -1);
  std::vector<Bytes> second(p.groups, -1);
  REQUIRE(Planner{}(p.view(), first).ok());
  REQUIRE(Planner{}(p.view(), second).ok());
  CHECK(first == second);
}

TEST_CASE_TEMPLATE("offset_planner: an empty problem and groups without bytes need nothing", Planner,
                   HOLDFAST_OFFSET_PLANNERS) {
  const auto nothing = Planner{}(OffsetProblem{}, {});
  REQUIRE(nothing.ok());
  CHECK(nothing->peak == 0);
  std::array<Bytes, 3> offsets{-1, -1, -1};
  const std::array<LiveRange, 2> r{LiveRange{0, 0, 8, 1, 0}, LiveRange{0, 9, 0, 1, 1}};
  const auto plan = Planner{}({r, 3}, offsets);
  REQUIRE(plan.ok());
  CHECK(offsets == std::array<Bytes, 3>{0, 0, 0});
}

TEST_CASE_TEMPLATE("offset_planner: bad problems are errors, never plans", Planner, HOLDFAST_OFFSET_PLANNERS) {
  std::array<Bytes, 2> offsets{};
  const auto code = [&](std::array<LiveRange, 2> r, std::vector<FixedOffset> fixed = {}, Bytes capacity = max_bytes) {
    return Planner{}(OffsetProblem{r, 2, fixed, capacity}, offsets).error().code;
  };
  CHECK(code({LiveRange{0, 4, 8, 1, 0}, LiveRange{2, 6, 8, 1, 1}}) == Errc::ok);
  CHECK(code({LiveRange{0, 4, 8, 1, 0}, LiveRange{2, 6, 8, 1, 2}}) == Errc::invalid_argument);
  CHECK(code({LiveRange{0, 4, 8, 1, 0}, LiveRange{2, 6, 8, 1, 0}}) == Errc::invalid_argument);
  CHECK(code({LiveRange{0, 4, 8, 1, 0}, LiveRange{2, 6, -8, 1, 1}}) == Errc::invalid_argument);
  CHECK(code({LiveRange{0, 4, 8, 1, 0}, LiveRange{2, 6, 8, 0, 1}}) == Errc::invalid_argument);
  CHECK(code({LiveRange{0, 4, 8, 1, 0}, LiveRange{2, 6, max_bytes, 1, 1}}) == Errc::over_budget);
  CHECK(code({LiveRange{0, 4, 8, 1, 0}, LiveRange{2, 6, 8, 1, 1}}, {{0, 0}, {1, 4}}) == Errc::invalid_argument);
  CHECK(code({LiveRange{0, 4, 8, 1, 0}, LiveRange{2, 6, 8, 1, 1}}, {}, 15) == Errc::infeasible);
}

TEST_CASE_TEMPLATE("offset_planner: any time and any size that fits is taken", Planner, HOLDFAST_OFFSET_PLANNERS) {
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const std::array<LiveRange, 3> r{LiveRange{least, most, max_bytes / 2, 1, 0}, LiveRange{least, 0, max_bytes / 4, 1, 1},
                                   LiveRange{0, most, max_bytes / 4, 1, 2}};
  std::array<Bytes, 3> offsets{};
  const auto plan = Planner{}({r, 3}, offsets);
  REQUIRE(plan.ok());
  CHECK(validate_offsets({r, 3}, offsets).ok());
  CHECK(plan->peak == max_bytes / 2 + max_bytes / 4);
}
