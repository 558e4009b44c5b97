// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/offsets_exact.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/plan/detail/offset_problem.hpp"
#include "holdfast/plan/detail/offset_search.hpp"
#include "holdfast/plan/stop.hpp"
#include "holdfast/plan/validate.hpp"
#include "support/intervals.hpp"
#include "support/shared.hpp"

using namespace holdfast;

namespace {

// Case 20's above_the_load in units of 1024: the load is 8, the optimum 9.
constexpr std::array<LiveRange, 9> above_the_load{
    LiveRange{2, 3, 3, 1, 0}, LiveRange{5, 6, 1, 1, 1}, LiveRange{1, 2, 5, 1, 2},
    LiveRange{5, 6, 5, 1, 3}, LiveRange{4, 5, 3, 1, 4}, LiveRange{1, 4, 2, 1, 5},
    LiveRange{3, 6, 2, 1, 6}, LiveRange{2, 5, 2, 1, 7}, LiveRange{3, 4, 2, 1, 8}};

// The temporaries of spmd_pipeline of 128 KiB and more, in units of those; the module needs 21758272 bytes, its load is 21627201.
const std::vector<LiveRange> spmd_pipeline{
    {2, 64, 8, 1, 0}, {3, 64, 8, 1, 1}, {4, 50, 1, 1, 2}, {60, 65, 1, 1, 2}, {5, 42, 16, 1, 3}, {6, 64, 23, 1,
    4}, {12, 29, 1, 1, 5}, {34, 40, 1, 1, 5}, {13, 64, 23, 1, 6}, {14, 64, 23, 1, 7}, {15, 64, 23, 1, 8}, {16,
    64, 23, 1, 9}, {27, 33, 1, 1, 10}, {30, 38, 1, 1, 11}, {41, 49, 16, 1, 12}, {54, 65, 16, 1, 12}, {48, 55,
    16, 1, 13}, {49, 58, 1, 1, 14}, {52, 58, 1, 1, 15}, {55, 60, 1, 1, 16}, {56, 61, 1, 1, 17}, {57, 62, 8, 1,
    18}, {59, 62, 8, 1, 19}};

std::vector<LiveRange> shared_intervals(const std::string& relative) {
  const std::string path = testing::shared_path(relative);
  return path.empty() ? std::vector<LiveRange>{} : testing::parse_intervals(testing::read_file(path));
}

Result<OffsetPlan> solve(const std::vector<LiveRange>& ranges, Bytes capacity = max_bytes, std::int64_t nodes = 1 << 20) {
  std::vector<Bytes> offsets(ranges.size(), -1);
  const OffsetProblem problem{ranges, static_cast<std::uint32_t>(ranges.size()), {}, capacity};
  auto plan = ExactPlanner<>{nodes}(problem, offsets);
  if (plan.ok()) CHECK(validate_offsets(problem, offsets).ok());
  return plan;
}

}  // namespace

TEST_CASE("offsets_exact: case 20 every known optimum is reached and proven") {
  struct Row {
    const char* file;
    Bytes optimum;
  };
  for (const Row& row : {Row{"leading_gap", 236}, Row{"person_detection", 64512}, Row{"above_the_load", 9216},
                         Row{"perfect_30", 1048576}, Row{"minimalloc_A.1048576", 1048576},
                         Row{"minimalloc_B.1048576", 1048576}}) {
    CAPTURE(row.file);
    const auto ranges = shared_intervals(std::string("cases/20-planner-optimum/") + row.file + ".csv");
    if (ranges.empty()) return;
    const auto plan = solve(ranges);
    REQUIRE(plan.ok());
    CHECK(plan->peak == row.optimum);
    CHECK(plan->lower_bound == row.optimum);
    CHECK(plan->proven_optimal);
  }
}

TEST_CASE("offsets_exact: case 20 a capacity above the load and below the optimum is infeasible with proof") {
  const auto ranges = shared_intervals("cases/20-planner-optimum/above_the_load.csv");
  if (ranges.empty()) return;
  const auto tight = solve(ranges, 8192);
  REQUIRE(!tight.ok());
  CHECK(tight.error().code == Errc::infeasible);
  CHECK(std::string_view(tight.error().what).starts_with("no plan fits"));
  CHECK(solve(ranges, 9216).ok());
  // Without a search nothing is proven, and the text says so.
  const auto unproven = solve(ranges, 8192, 0);
  REQUIRE(!unproven.ok());
  CHECK(std::string_view(unproven.error().what).ends_with("one may exist"));
}

TEST_CASE("offsets_exact: the challenging set fits its capacity within a stated number of nodes") {
  for (const char name : std::string_view("ABCDEFGHIJK")) {
    CAPTURE(name);
    const auto ranges = shared_intervals(std::string("data/dsa/minimalloc/") + name + ".1048576.csv");
    if (ranges.empty()) return;
    const auto plan = solve(ranges, 1048576, 200'000);
    REQUIRE(plan.ok());
    CHECK(plan->peak <= 1048576);
  }
}

TEST_CASE("offsets_exact: rectangles cut into 200 and 400 pieces are put together again without waste") {
  for (const char* name : {"cut_200_a1", "cut_400_a1"}) {
    CAPTURE(name);
    const auto ranges = shared_intervals(std::string("data/dsa/synth/") + name + ".csv");
    if (ranges.empty()) return;
    const auto plan = solve(ranges, max_bytes, 200'000);
    REQUIRE(plan.ok());
    CHECK(plan->peak == 1048576);
  }
}

TEST_CASE("offsets_exact: equals brute force on 2000 random problems of at most 8 blocks") {
  const std::uint64_t count = testing::quick() ? 200 : 2000;
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    CAPTURE(seed);
    const auto p = testing::random_problem(seed, 8, seed % 4);
    std::vector<Bytes> offsets(p.groups, -1);
    const auto plan = ExactPlanner<>{}(p.view(), offsets);
    REQUIRE(plan.ok());
    REQUIRE(validate_offsets(p.view(), offsets).ok());
    CHECK(plan->proven_optimal);
    CHECK(plan->peak == testing::BruteForce(p)(plan->peak + 1));
  }
}

TEST_CASE("offsets_exact: what is forgotten on the way down is found again on the way back") {
  const auto check = [](const std::vector<LiveRange>& ranges, std::uint32_t groups) {
    const OffsetProblem problem{ranges, groups};
    std::vector<Bytes> offsets(groups, -1);
    const auto plan = ExactPlanner<>{}(problem, offsets);
    REQUIRE(plan.ok());
    REQUIRE(plan->proven_optimal);
    detail::OffsetInput in;
    REQUIRE(detail::prepare_offsets(problem, groups, in).ok());
    for (const std::size_t kept : {1u, 2u, 1000u}) {
      CAPTURE(kept);
      detail::OffsetSearch search(in, kept);
      std::int64_t nodes = 1 << 20;
      unsigned round = 0;
      CHECK(search.run(plan->peak - 1, nodes, round, NeverStop{}, offsets) == detail::SearchEnd::impossible);
      round = 0;
      std::fill(offsets.begin(), offsets.end(), Bytes{-1});
      REQUIRE(search.run(plan->peak, nodes, round, NeverStop{}, offsets) == detail::SearchEnd::found);
      CHECK(validate_offsets(problem, offsets).ok());
      CHECK(detail::highest_end(in, offsets) == plan->peak);
    }
  };
  check(spmd_pipeline, 20);
  // Sizes of few values; some with gaps, and stretches that fall apart.
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    testing::Random random(seed);
    std::vector<LiveRange> ranges;
    const std::uint32_t count = seed % 4 == 0 ? 14 : 30;
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto begin = static_cast<std::int64_t>(random(24));
      const auto end = begin + 1 + static_cast<std::int64_t>(random(8));
      ranges.push_back({begin, end, 2 + static_cast<Bytes>(random(4)), 1, i});
      if (seed % 4 == 0 && i % 5 == 0) ranges.push_back({end + 2, end + 4, 3, 1, i});
    }
    check(ranges, count);
  }
}

TEST_CASE("offsets_exact: stretches of time that groups with gaps join count as one where it says what it serves") {
  std::vector<LiveRange> ranges;
  const auto most = static_cast<std::uint32_t>(detail::OffsetSearch::most_ranges);
  for (std::uint32_t i = 0; i < most; ++i) ranges.push_back({2 * i, 2 * i + 1, 1, 1, i});
  const auto served = [&] {
    detail::OffsetInput in;
    REQUIRE(detail::prepare_offsets({ranges, most}, most, in).ok());
    return detail::OffsetSearch::serves(in, 1);
  };
  ranges.push_back({2 * most, 2 * most + 1, 1, 1, most - 1});
  CHECK(served());
  ranges.back().group = 0;
  CHECK(!served());
}

TEST_CASE("offsets_exact: spmd_pipeline of data/hlo cannot be placed at its load, even without its small blocks") {
  std::vector<Bytes> offsets(20, -1);
  const auto plan = ExactPlanner<>{}({spmd_pipeline, 20}, offsets);
  REQUIRE(plan.ok());
  CHECK(plan->proven_optimal);
  CHECK(plan->peak == 166);
  CHECK(plan->peak * 131072 == 21757952);
  const auto refused = ExactPlanner<>{}({spmd_pipeline, 20, {}, 165}, offsets);
  REQUIRE(!refused.ok());
  CHECK(std::string_view(refused.error().what).starts_with("no plan fits"));
}

TEST_CASE("offsets_exact: the same nodes give the same plan, and more of them never a worse one") {
  Bytes last = max_bytes;
  for (const std::int64_t nodes : {0, 300, 3000, 60000}) {
    const auto ranges = shared_intervals("data/dsa/minimalloc/D.1048576.csv");
    if (ranges.empty()) return;
    const auto plan = solve(ranges, max_bytes, nodes);
    const auto again = solve(ranges, max_bytes, nodes);
    REQUIRE(plan.ok());
    CHECK(plan->peak == again->peak);
    CHECK(plan->peak <= last);
    CHECK(plan->lower_bound >= 986112);
    last = plan->peak;
  }
  CHECK(last < 1048576);
}

TEST_CASE("offsets_exact: a stop that says yes ends it with the best plan so far") {
  struct Stop {
    constexpr bool operator()() const noexcept { return true; }
  };
  const std::vector<LiveRange> ranges(above_the_load.begin(), above_the_load.end());
  std::vector<Bytes> offsets(9, -1);
  const auto plan = ExactPlanner<Stop>{}({ranges, 9}, offsets);
  REQUIRE(plan.ok());
  CHECK(plan->peak >= 9);
  CHECK(plan->lower_bound == 8);
  CHECK(!plan->proven_optimal);
}

TEST_CASE("offsets_exact: the bound counts that only the topmost block keeps its unrounded size") {
  // Two blocks of 10 at alignment 64: 64 + 10.
  const std::vector<LiveRange> ranges{{0, 2, 10, 64, 0}, {0, 2, 60, 64, 1}};
  const auto plan = solve(ranges);
  REQUIRE(plan.ok());
  CHECK(plan->peak == 74);
  CHECK(plan->proven_optimal);
}

namespace {

constexpr Bytes peak_at_compile_time() {
  std::array<Bytes, 9> offsets{};
  const auto plan = ExactPlanner<>{}({above_the_load, 9}, offsets);
  return plan.ok() && plan->proven_optimal ? plan->peak : -1;
}

/// Sixty blocks in pairs that fit only one way round.
constexpr bool sixty_at_compile_time(const ExactPlanner<>& planner) {
  std::array<LiveRange, 60> ranges{};
  for (std::uint32_t i = 0; i < 60; ++i)
    ranges[i] = {i / 2, i / 2 + 2, i % 2 == 0 ? 3 + i / 2 % 3 : 8 - i / 2 % 3, 1, i};
  std::array<Bytes, 60> offsets{};
  const auto plan = planner({ranges, 60}, offsets);
  return plan.ok() && validate_offsets({ranges, 60}, offsets).ok() && plan->peak >= plan->lower_bound;
}

}  // namespace

TEST_CASE("offsets_exact: works in constant expressions within the compilers' default limits") {
  static_assert(peak_at_compile_time() == 9);
  // The least effort for the first plan keeps within a million steps, which is clang's limit.
  static_assert(sixty_at_compile_time({2000, 0, 0}));
#if !defined(__clang__) && !defined(__CUDACC__)
  static_assert(sixty_at_compile_time({2000}));
#endif
  CHECK(sixty_at_compile_time({}));
}
