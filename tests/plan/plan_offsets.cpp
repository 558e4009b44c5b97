// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/plan_offsets.hpp"

#include <array>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/plan/validate.hpp"
#include "support/intervals.hpp"
#include "support/shared.hpp"

using namespace holdfast;

namespace {

std::vector<LiveRange> shared_intervals(const std::string& relative) {
  const std::string path = testing::shared_path(relative);
  return path.empty() ? std::vector<LiveRange>{} : testing::parse_intervals(testing::read_file(path));
}

template <class Planner>
Bytes peak_of(const Planner& planner, const OffsetProblem& problem) {
  std::vector<Bytes> offsets(problem.group_count, -1);
  const auto plan = planner(problem, offsets);
  REQUIRE(plan.ok());
  CHECK(validate_offsets(problem, offsets).ok());
  return plan->peak;
}

}  // namespace

TEST_CASE("plan_offsets: is never worse than any planner that it chooses among") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const auto p = testing::random_problem(seed, 30, seed % 4);
    const Bytes peak = peak_of(PlanOffsets<>{2000}, p.view());
    CHECK(peak <= peak_of(FastPlanner{}, p.view()));
    CHECK(peak <= peak_of(ExactPlanner<>{2000}, p.view()));
    for (const PlacementOrder order : {PlacementOrder::size, PlacementOrder::lifetime, PlacementOrder::area,
                                       PlacementOrder::conflicts, PlacementOrder::start, PlacementOrder::end})
      for (const Fit fit : {Fit::best, Fit::lowest}) CHECK(peak <= peak_of(GreedyPlanner{order, fit}, p.view()));
  }
}

TEST_CASE("plan_offsets: with 64 nodes a group it tries every greedy order, however many groups there are") {
  // T8.3 over and over, on a fixed block that lives throughout: too many ranges for the search, and the size order needs more.
  const std::vector<FixedOffset> fixed{{0, 0}};
  std::vector<LiveRange> ranges{{0, 1, 1, 1, 0}};
  while (ranges.size() <= detail::OffsetSearch::most_ranges)
    for (LiveRange r : {LiveRange{1, 3, 24, 1, 0}, LiveRange{2, 5, 24, 1, 0}, LiveRange{0, 3, 8, 1, 0}, LiveRange{1, 3, 24, 1, 0},
                        LiveRange{3, 5, 40, 1, 0}}) {
      const auto count = static_cast<std::uint32_t>(ranges.size());
      r.begin += (count - 1) / 5 * 5;
      r.end += (count - 1) / 5 * 5;
      r.group = count;
      ranges[0].end = std::max(ranges[0].end, r.end);
      ranges.push_back(r);
    }
  const OffsetProblem problem{ranges, static_cast<std::uint32_t>(ranges.size()), fixed};
  Bytes least = max_bytes;
  for (const PlacementOrder order : {PlacementOrder::size, PlacementOrder::lifetime, PlacementOrder::area,
                                     PlacementOrder::conflicts, PlacementOrder::start, PlacementOrder::end})
    for (const Fit fit : {Fit::best, Fit::lowest}) least = std::min(least, peak_of(GreedyPlanner{order, fit}, problem));
  CHECK(peak_of(PlanOffsets<>{64 * problem.group_count, 0, 0}, problem) <= least);
  CHECK(peak_of(PlanOffsets<>{0, 0, 0}, problem) > least);
}

TEST_CASE("plan_offsets: at default effort nothing beats it on data/dsa, of thousands of blocks either") {
  for (const char* file :
       {"minimalloc/A.1048576.csv", "minimalloc/D.1048576.csv", "minimalloc/J.1048576.csv", "mindspore/resnet50.csv",
        "iopddl/G_1.csv", "xla/xla_train_12.csv", "synth/cut_1000_a1.csv", "synth/convnet_1000_a256.csv",
        "synth/infer_10000_a64.csv.gz", "synth/pipeline_10000_a256.csv.gz", "synth/random_10000_a1.csv.gz",
        "synth/transformer_10000_a256.csv.gz", "mindspore/pangu_2.6B.csv.gz"}) {
    CAPTURE(file);
    const auto ranges = shared_intervals(std::string("data/dsa/") + file);
    if (ranges.empty()) return;
    const OffsetProblem problem{ranges, static_cast<std::uint32_t>(ranges.size())};
    const Bytes peak = peak_of(PlanOffsets<>{}, problem);
    CHECK(peak <= peak_of(FastPlanner{}, problem));
    for (const PlacementOrder order : {PlacementOrder::size, PlacementOrder::lifetime, PlacementOrder::area,
                                       PlacementOrder::conflicts, PlacementOrder::start, PlacementOrder::end})
      for (const Fit fit : {Fit::best, Fit::lowest}) CHECK(peak <= peak_of(GreedyPlanner{order, fit}, problem));
  }
}

TEST_CASE("plan_offsets: the real instances and those of a thousand blocks are placed at their lower bound") {
  for (const char* file :
       {"mindspore/resnet50.csv", "iopddl/G_1.csv", "iopddl/B_max.csv", "xla/xla_train_4.csv", "xla/xla_train_12.csv",
        "xla/xla_trinf_16.csv", "xla/xla_conv_12.csv", "xla/xla_conv_24.csv", "synth/moe_1000_a64.csv",
        "synth/infer_1000_a64.csv", "synth/transformer_1000_a256.csv", "synth/random_1000_a1.csv",
        "synth/convnet_1000_a256.csv", "synth/pipeline_1000_a256.csv", "mindspore/pangu_2.6B.csv.gz"}) {
    CAPTURE(file);
    const auto ranges = shared_intervals(std::string("data/dsa/") + file);
    if (ranges.empty()) return;
    std::vector<Bytes> offsets(ranges.size(), -1);
    const OffsetProblem problem{ranges, static_cast<std::uint32_t>(ranges.size())};
    const auto plan = PlanOffsets<>{}(problem, offsets);
    REQUIRE(plan.ok());
    CHECK(validate_offsets(problem, offsets).ok());
    CHECK(plan->peak == plan->lower_bound);
    CHECK(plan->proven_optimal);
  }
}

TEST_CASE("plan_offsets: case 20 the sum of all sizes would mean that nothing was shared") {
  const auto ranges = shared_intervals("cases/20-planner-optimum/person_detection.csv");
  if (ranges.empty()) return;
  Bytes sum = 0;
  for (const LiveRange& r : ranges) sum += r.size;
  CHECK(sum == 241027);
  CHECK(peak_of(PlanOffsets<>{}, {ranges, static_cast<std::uint32_t>(ranges.size())}) == 64512);
}

TEST_CASE("plan_offsets: case 20 empty rows take no room and a row given twice gets a place of its own") {
  std::vector<LiveRange> ranges{{0, 4, 100, 1, 0}, {0, 4, 0, 1, 1}, {2, 2, 70, 1, 2}, {0, 4, 100, 1, 3}};
  CHECK(peak_of(PlanOffsets<>{}, {ranges, 4}) == 200);
}

TEST_CASE("plan_offsets: with a capacity it fits or says that nothing does") {
  const std::vector<LiveRange> r{{1, 5, 32, 1, 0}, {4, 8, 24, 1, 1}, {6, 9, 40, 1, 2}, {1, 5, 16, 1, 3}};
  std::vector<Bytes> offsets(4, -1);
  CHECK(PlanOffsets<>{}({r, 4, {}, 72}, offsets).ok());
  const auto refused = PlanOffsets<>{}({r, 4, {}, 71}, offsets);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  CHECK(refused.error().requested == 72);
  CHECK(std::string_view(refused.error().what).starts_with("no plan fits"));
}

TEST_CASE("plan_offsets: nothing at all is a plan of no bytes") {
  const auto plan = PlanOffsets<>{}({}, {});
  REQUIRE(plan.ok());
  CHECK(plan->peak == 0);
  CHECK(plan->proven_optimal);
}
