// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/offsets_greedy.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/plan/plan_arenas.hpp"
#include "holdfast/plan/plan_offsets.hpp"
#include "holdfast/plan/validate.hpp"
#include "support/intervals.hpp"
#include "support/shared.hpp"

using namespace holdfast;

namespace {

/// A range of the catalogue, whose ends are both inclusive.
constexpr LiveRange inclusive(std::int64_t start, std::int64_t end, Bytes size, std::uint32_t group, Bytes alignment = 1) {
  return {start, end + 1, size, alignment, group};
}

struct Planned {
  OffsetPlan plan;
  std::vector<Bytes> offsets;
};

template <class Planner>
Planned solve(const std::vector<LiveRange>& ranges, std::uint32_t groups, const Planner& planner) {
  Planned result;
  result.offsets.assign(groups, -1);
  const OffsetProblem problem{ranges, groups};
  const auto plan = planner(problem, result.offsets);
  REQUIRE(plan.ok());
  CHECK(validate_offsets(problem, result.offsets).ok());
  result.plan = *plan;
  return result;
}

using Offsets = std::vector<Bytes>;

/// The rule by its definition: each group in turn looks at everything placed, from low to high.
Offsets by_definition(const testing::OwnedProblem& p, std::span<const std::uint32_t> order, Fit fit) {
  Offsets offsets(p.groups, 0);
  std::vector<Bytes> alignment(p.groups, 1);
  for (const LiveRange& r : p.ranges) alignment[r.group] = std::lcm(alignment[r.group], r.alignment);
  struct Block {
    Bytes low, high;
    const LiveRange* range;
  };
  std::vector<Block> placed;
  const auto place = [&](std::uint32_t g, Bytes offset) {
    offsets[g] = offset;
    for (const LiveRange& r : p.ranges)
      if (r.group == g) placed.push_back({offset, offset + r.size, &r});
    std::sort(placed.begin(), placed.end(), [](const Block& a, const Block& b) { return a.low < b.low; });
  };
  for (const FixedOffset& f : p.fixed)
    if (std::any_of(p.ranges.begin(), p.ranges.end(), [&](const LiveRange& r) { return r.group == f.group; }))
      place(f.group, f.offset);
  for (const std::uint32_t g : order) {
    Bytes size = 0, start = 0, best = -1, length = max_bytes;
    std::vector<const LiveRange*> lives;
    for (const LiveRange& r : p.ranges)
      if (r.group == g) size = std::max(size, r.size), lives.push_back(&r);
    for (const Block& b : placed) {
      if (std::none_of(lives.begin(), lives.end(),
                       [&](const LiveRange* r) { return r->begin < b.range->end && b.range->begin < r->end; }))
        continue;
      if (b.low - start >= size && b.low - start < length && (fit == Fit::best || best < 0)) best = start, length = b.low - start;
      start = std::max(start, align_up(b.high, alignment[g]));
    }
    place(g, best >= 0 ? best : start);
  }
  return offsets;
}

}  // namespace

TEST_CASE("offsets_greedy: T8.1 four blocks in size order meet the lower bound") {
  const std::vector<LiveRange> r{inclusive(0, 3, 40, 0), inclusive(1, 5, 60, 1), inclusive(4, 7, 30, 2), inclusive(6, 9, 70, 3)};
  const auto [plan, offsets] = solve(r, 4, GreedyPlanner{});
  CHECK(offsets == Offsets{60, 0, 70, 0});
  CHECK(plan.peak == 100);
  CHECK(plan.lower_bound == 100);
  CHECK(plan.proven_optimal);
}

TEST_CASE("offsets_greedy: T8.2 alignment rounds starts up and leaves the peak unrounded") {
  const auto ranges = [](Bytes alignment) {
    return std::vector<LiveRange>{inclusive(0, 4, 10, 0, alignment), inclusive(1, 5, 30, 1, alignment),
                                  inclusive(2, 6, 20, 2, alignment), inclusive(3, 7, 40, 3, alignment)};
  };
  const auto plain = solve(ranges(1), 4, GreedyPlanner{});
  CHECK(plain.offsets == Offsets{90, 40, 70, 0});
  CHECK(plain.plan.peak == 100);
  const auto aligned = solve(ranges(16), 4, GreedyPlanner{});
  CHECK(aligned.offsets == Offsets{112, 48, 80, 0});
  CHECK(aligned.plan.peak == 122);
  // 48 + 32 + 32 + 10: all but one block are rounded up.
  CHECK(aligned.plan.lower_bound == 116);
}

TEST_CASE("offsets_greedy: T8.3 size order needs 88 where lifetime order needs 80") {
  const std::vector<LiveRange> r{inclusive(1, 2, 24, 0), inclusive(2, 4, 24, 1), inclusive(0, 2, 8, 2), inclusive(1, 2, 24, 3),
                                 inclusive(3, 4, 40, 4)};
  CHECK(solve(r, 5, GreedyPlanner{}).plan.peak == 88);
  CHECK(solve(r, 5, GreedyPlanner{PlacementOrder::lifetime}).plan.peak == 80);
  CHECK(solve(r, 5, GreedyPlanner{}).plan.lower_bound == 80);
  CHECK(solve(r, 5, PlanOffsets<>{}).plan.peak == 80);
}

TEST_CASE("offsets_greedy: T8.4 no greedy order finds the 72 that exists") {
  const std::vector<LiveRange> r{inclusive(1, 4, 32, 0), inclusive(4, 7, 24, 1), inclusive(6, 8, 40, 2), inclusive(1, 4, 16, 3)};
  const auto size = solve(r, 4, GreedyPlanner{});
  CHECK(size.plan.peak == 80);
  CHECK(size.plan.lower_bound == 72);
  CHECK(solve(r, 4, GreedyPlanner{PlacementOrder::lifetime}).plan.peak == 96);
  CHECK(solve(r, 4, GreedyPlanner{PlacementOrder::area}).plan.peak == 80);
  CHECK(solve(r, 4, ExactPlanner<>{}).plan.peak == 72);
  CHECK(solve(r, 4, PlanOffsets<>{}).plan.peak == 72);
}

TEST_CASE("offsets_greedy: T8.5 a limit on one arena opens further ones") {
  const std::vector<LiveRange> r{inclusive(0, 6, 50, 0), inclusive(1, 6, 50, 1), inclusive(2, 3, 30, 2), inclusive(4, 5, 20, 3)};
  std::array<Bytes, 4> offsets{};
  std::array<std::uint32_t, 4> arenas{};
  const auto hundred = plan_arenas({r, 4}, 100, offsets, arenas);
  REQUIRE(hundred.ok());
  CHECK(hundred->sizes == std::vector<Bytes>{100, 30});
  CHECK(hundred->total == 130);
  CHECK(offsets == std::array<Bytes, 4>{0, 50, 0, 0});
  CHECK(arenas == std::array<std::uint32_t, 4>{0, 0, 1, 1});
  const auto forty = plan_arenas({r, 4}, 40, offsets, arenas);
  REQUIRE(forty.ok());
  CHECK(forty->sizes == std::vector<Bytes>{50, 50, 30});
}

TEST_CASE("offsets_greedy: groups of different colours share no arena") {
  const std::vector<LiveRange> r{{0, 4, 8, 1, 0}, {0, 4, 8, 1, 1}, {4, 8, 8, 1, 2}};
  std::array<Bytes, 3> offsets{};
  std::array<std::uint32_t, 3> arenas{};
  const std::array<std::uint32_t, 3> colours{7, 7, 9};
  const auto plan = plan_arenas({r, 3}, max_bytes, offsets, arenas, colours);
  REQUIRE(plan.ok());
  CHECK(plan->sizes == std::vector<Bytes>{16, 8});
  CHECK(arenas == std::array<std::uint32_t, 3>{0, 0, 1});
}

TEST_CASE("offsets_greedy: T8.6 a group shares one offset and the hole in its life is reused") {
  const std::vector<LiveRange> r{inclusive(0, 1, 40, 0), inclusive(4, 6, 40, 0), inclusive(2, 3, 30, 1), inclusive(1, 5, 50, 2)};
  const auto [plan, offsets] = solve(r, 3, GreedyPlanner{});
  CHECK(offsets == Offsets{50, 50, 0});
  CHECK(plan.peak == 90);
}

TEST_CASE("offsets_greedy: T8.7 sizes of zero and empty lifetimes get offset 0 and take no room") {
  const std::vector<LiveRange> r{{0, 4, 0, 1, 0}, {0, 4, 8, 1, 1}, {2, 2, 100, 1, 2}};
  const auto [plan, offsets] = solve(r, 4, GreedyPlanner{});
  CHECK(offsets == Offsets{0, 0, 0, 0});
  CHECK(plan.peak == 8);
}

TEST_CASE("offsets_greedy: T8.8 a preferred offset is taken where it is free and else best fit decides") {
  const std::vector<LiveRange> r{{0, 4, 100, 1, 0}, {0, 4, 20, 1, 1}, {0, 4, 10, 1, 2}};
  const std::array<FixedOffset, 2> preferred{FixedOffset{1, 200}, FixedOffset{2, 50}};
  GreedyPlanner planner;
  planner.preferred = preferred;
  const auto [plan, offsets] = solve(r, 3, planner);
  CHECK(offsets == Offsets{0, 200, 100});
  CHECK(plan.peak == 220);
}

TEST_CASE("offsets_greedy: case 20 the published figures of greedy by size and by start are reproduced") {
  struct Row {
    const char* file;
    Bytes load, by_size, by_start;
  };
  for (const Row& row : {Row{"leading_gap", 236, 306, 236}, Row{"person_detection", 64512, 64512, 82944},
                         Row{"above_the_load", 8192, 9216, 9216}, Row{"perfect_30", 1048576, 1239424, 1100288},
                         Row{"minimalloc_A.1048576", 1048576, 1352704, 1789952},
                         Row{"minimalloc_B.1048576", 1048576, 1420288, 1681408}}) {
    CAPTURE(row.file);
    const std::string path = testing::shared_path(std::string("cases/20-planner-optimum/") + row.file + ".csv");
    if (path.empty()) return;
    std::vector<LiveRange> ranges = testing::parse_intervals(testing::read_file(path));
    const auto groups = static_cast<std::uint32_t>(ranges.size());
    // The figures break ties by file order alone.
    std::vector<LiveRange> sorted = ranges;
    std::stable_sort(sorted.begin(), sorted.end(), [](const LiveRange& a, const LiveRange& b) { return a.size > b.size; });
    const auto by_start = solve(ranges, groups, GreedyPlanner{PlacementOrder::start, Fit::lowest});
    CHECK(by_start.plan.lower_bound == row.load);
    CHECK(by_start.plan.peak == row.by_start);
    detail::OffsetInput in;
    std::vector<Bytes> offsets(groups, 0);
    REQUIRE(detail::prepare_offsets({ranges, groups}, groups, in).ok());
    std::vector<std::uint32_t> order;
    for (const LiveRange& r : sorted) order.push_back(r.group);
    REQUIRE(detail::place_in_order(in, order, Fit::lowest, {}, offsets).ok());
    CHECK(detail::highest_end(in, offsets) == row.by_size);
  }
}

TEST_CASE("offsets_greedy: what is wrong with a problem is an error value") {
  std::vector<LiveRange> r{{0, 4, 8, 1, 0}, {2, 6, 8, 1, 1}};
  std::array<Bytes, 2> offsets{};
  const auto code = [&](const OffsetProblem& problem) { return GreedyPlanner{}(problem, offsets).error().code; };
  CHECK(code({r, 2}) == Errc::ok);
  CHECK(code({r, 3}) == Errc::invalid_argument);
  CHECK(code({r, 1}) == Errc::invalid_argument);
  r[1].group = 0;
  CHECK(code({r, 2}) == Errc::invalid_argument);
  r[1] = {2, 6, -1, 1, 1};
  CHECK(code({r, 2}) == Errc::invalid_argument);
  r[1] = {2, 6, 8, 0, 1};
  CHECK(code({r, 2}) == Errc::invalid_argument);
  r[1] = {6, 2, 8, 1, 1};
  CHECK(code({r, 2}) == Errc::invalid_argument);
  r[1] = {2, 6, max_bytes, 1, 1};
  CHECK(code({r, 2}) == Errc::over_budget);
  r[1] = {2, 6, 8, max_bytes, 1};
  r[0].alignment = max_bytes - 1;
  CHECK(code({r, 2}) == Errc::over_budget);
}

TEST_CASE("offsets_greedy: fixed offsets are kept, and clash, misalignment and doubling are errors") {
  const std::vector<LiveRange> r{{0, 4, 8, 4, 0}, {2, 6, 8, 4, 1}, {3, 5, 4, 4, 2}};
  std::array<Bytes, 3> offsets{};
  std::vector<FixedOffset> fixed{{1, 4}};
  const auto plan = GreedyPlanner{}({r, 3, fixed}, offsets);
  REQUIRE(plan.ok());
  CHECK(offsets == std::array<Bytes, 3>{12, 4, 0});
  CHECK(plan->peak == 20);
  for (const FixedOffset bad : {FixedOffset{0, 8}, FixedOffset{0, 2}, FixedOffset{1, 8}, FixedOffset{0, -4}, FixedOffset{9, 0}}) {
    fixed = {{1, 4}, bad};
    CHECK(GreedyPlanner{}({r, 3, fixed}, offsets).error().code == Errc::invalid_argument);
  }
}

TEST_CASE("offsets_greedy: a capacity that is too small names the least peak and whether that is proven") {
  const std::vector<LiveRange> r{{0, 4, 8, 1, 0}, {2, 6, 8, 1, 1}};
  std::array<Bytes, 2> offsets{};
  const auto plan = GreedyPlanner{}({r, 2, {}, 15}, offsets);
  REQUIRE(!plan.ok());
  CHECK(plan.error().code == Errc::infeasible);
  CHECK(plan.error().requested == 16);
  CHECK(plan.error().available == 15);
  CHECK(GreedyPlanner{}({r, 2, {}, 16}, offsets).ok());
}

TEST_CASE("offsets_greedy: many blocks, long lives and gaps are placed as the rule's definition says") {
  for (std::uint64_t seed = 0; seed < (testing::quick() ? 8u : 40u); ++seed) {
    CAPTURE(seed);
    // From 257 ranges on, time is cut into buckets.
    testing::OwnedProblem p = testing::random_problem(seed, 1000, seed % 4);
    testing::Random random(seed + 9);
    if (seed % 4 < 2)
      for (LiveRange& r : p.ranges) {
        if (random(2) == 0) r.end = r.begin + 1 + static_cast<std::int64_t>(random(600));
        if (seed % 3 == 0) r.size = 1 + static_cast<Bytes>(random(1000));
      }
    detail::OffsetInput in;
    REQUIRE(detail::prepare_offsets(p.view(), p.groups, in).ok());
    for (const PlacementOrder order : {PlacementOrder::size, PlacementOrder::lifetime, PlacementOrder::start})
      for (const Fit fit : {Fit::best, Fit::lowest}) {
        const auto groups = detail::greedy_order(in, order);
        Offsets offsets(p.groups, -1);
        REQUIRE(detail::place_in_order(in, groups, fit, {}, offsets).ok());
        REQUIRE(offsets == by_definition(p, groups, fit));
      }
  }
}

TEST_CASE("offsets_greedy: offsets that fit 32 bits at first, but not to the end, are the same as in small") {
  int outgrown = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    testing::OwnedProblem p = testing::random_problem(seed, 400, 0);
    for (LiveRange& r : p.ranges) r.alignment = 1;
    const GreedyPlanner planner{PlacementOrder::start};
    const Planned small = solve(p.ranges, p.groups, planner);
    const Bytes scale = 0xFFFFFFFF / small.plan.lower_bound;
    if (small.plan.peak * scale > 0xFFFFFFFF) ++outgrown;
    for (LiveRange& r : p.ranges) r.size *= scale;
    const Planned large = solve(p.ranges, p.groups, planner);
    for (std::uint32_t g = 0; g < p.groups; ++g) REQUIRE(large.offsets[g] == scale * small.offsets[g]);
  }
  CHECK(outgrown > 0);
}

TEST_CASE("offsets_greedy: however few ends of ranges a bucket of time has, the same gaps are found") {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    testing::OwnedProblem p = testing::random_problem(seed, 30, seed % 4);
    p.fixed.clear();
    testing::Random random(seed + 3);
    if (seed % 4 < 2)
      for (LiveRange& r : p.ranges) r.end += static_cast<std::int64_t>(random(12));
    detail::OffsetInput in;
    REQUIRE(detail::prepare_offsets(p.view(), p.groups, in).ok());
    const auto order = detail::greedy_order(in, PlacementOrder::area);
    for (const Fit fit : {Fit::best, Fit::lowest}) {
      const Offsets expected = by_definition(p, order, fit);
      for (const std::size_t ends : {1u, 4u}) {
        detail::PlacedRanges<std::uint32_t> placed(in, ends);
        // Twice, so that nothing is left behind by what is forgotten.
        for (int round = 0; round < 2; ++round, placed.clear())
          for (const std::uint32_t g : order) {
            REQUIRE(placed.find(g, in.size(g), fit == Fit::best) == expected[g]);
            REQUIRE(placed.is_free(g, expected[g]));
            placed.insert(g, expected[g]);
            REQUIRE(!placed.is_free(g, expected[g]));
          }
      }
    }
  }
}

TEST_CASE("offsets_greedy: hundreds of fixed and preferred offsets are kept, refused and taken as a look at every pair says") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    testing::OwnedProblem p = testing::random_problem(seed, 800, 1);
    std::vector<Bytes> offsets(p.groups, -1);
    REQUIRE(GreedyPlanner{}(p.view(), offsets).ok());
    // All decided as planned, one of them moved a little: free there, or a clash.
    testing::Random random(seed);
    const auto moved = static_cast<std::uint32_t>(random(p.groups));
    const Bytes to = offsets[moved] + p.ranges[moved].alignment * static_cast<Bytes>(random(9));
    bool free = true;
    for (std::uint32_t g = 0; g < p.groups; ++g) {
      if (g != moved) free = free && !testing::clash(p, moved, to, g, offsets[g]);
      p.fixed.push_back({g, g == moved ? to : offsets[g]});
    }
    std::vector<Bytes> again(p.groups, -1);
    CHECK(GreedyPlanner{}(p.view(), again).error().code == (free ? Errc::ok : Errc::invalid_argument));
    const std::vector<FixedOffset> preferred = std::exchange(p.fixed, {});
    GreedyPlanner planner;
    planner.preferred = preferred;
    REQUIRE(planner(p.view(), again).ok());
    CHECK(validate_offsets(p.view(), again).ok());
    if (free) CHECK(again[moved] == to);
  }
}

TEST_CASE("offsets_greedy: a preferred offset from which the sizes could pass 2^63 is not taken") {
  const std::vector<LiveRange> r{{0, 9, max_bytes / 2 - 1, 1, 0}, {0, 4, max_bytes / 2 + 1, 1, 1}};
  const std::array<FixedOffset, 1> preferred{FixedOffset{0, max_bytes / 2 - 1}};
  GreedyPlanner planner{PlacementOrder::lifetime};
  planner.preferred = preferred;
  const auto [plan, offsets] = solve(r, 2, planner);
  CHECK(offsets == Offsets{0, max_bytes / 2 - 1});
}

TEST_CASE("offsets_greedy: every order and fit gives a plan that an independent checker accepts") {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    const auto p = testing::random_problem(seed, 40, seed % 4);
    std::vector<Bytes> offsets(p.groups, -1);
    for (const PlacementOrder order : {PlacementOrder::size, PlacementOrder::lifetime, PlacementOrder::area,
                                       PlacementOrder::conflicts, PlacementOrder::start, PlacementOrder::end})
      for (const Fit fit : {Fit::best, Fit::lowest}) {
        const auto plan = GreedyPlanner{order, fit}(p.view(), offsets);
        REQUIRE(plan.ok());
        REQUIRE(validate_offsets(p.view(), offsets).ok());
        CHECK(plan->peak >= plan->lower_bound);
      }
  }
}
