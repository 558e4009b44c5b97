// SPDX-License-Identifier: Apache-2.0
// Any bytes as an offset problem: every planner answers with an error of the contract or with a plan that the checker accepts,
// and the exact one is as good as brute force where that is feasible. Buckets of time change nothing.
//
// Bytes: groups, ranges, fixed, flags; then 5 bytes a range (group, begin, length, size, alignment and scale), 2 bytes a fixed offset.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "holdfast/plan/detail/placed_ranges.hpp"
#include "holdfast/plan/offsets_exact.hpp"
#include "holdfast/plan/offsets_fast.hpp"
#include "holdfast/plan/offsets_greedy.hpp"
#include "holdfast/plan/plan_arenas.hpp"
#include "holdfast/plan/plan_offsets.hpp"
#include "holdfast/plan/validate.hpp"
#include "support/demand.hpp"
#include "support/intervals.hpp"

using namespace holdfast;
using testing::demand;

namespace {

struct Input {
  testing::OwnedProblem problem;
  Bytes capacity = max_bytes;
  bool tame = true;  // small numbers only
};

Input read(const std::uint8_t* data, std::size_t size) {
  std::size_t at = 0;
  const auto next = [&]() -> std::uint8_t { return at < size ? data[at++] : 0; };
  Input in;
  in.problem.groups = next() % 48u;
  const unsigned ranges = next() % 64u;
  const unsigned fixed = next() % 8u;
  const std::uint8_t flags = next();
  if (flags & 1) in.capacity = next() * 4;
  for (unsigned i = 0; i < ranges && at < size; ++i) {
    LiveRange r;
    // Mostly a group that exists, now and then one that does not.
    const std::uint8_t g = next();
    r.group = in.problem.groups != 0 && g < 250 ? g % in.problem.groups : g;
    r.begin = static_cast<std::int8_t>(next());
    const std::uint8_t length = next();
    r.end = length < 250 ? r.begin + length % 16 : r.begin - length;
    r.size = next();
    const std::uint8_t rest = next();
    r.alignment = (flags & 2) ? 1 + rest % 8 : 1;
    if ((flags & 4) && rest >= 224) {
      constexpr std::array<Bytes, 8> odd{-1, 0, max_bytes, max_bytes / 2, max_bytes - 255, 1ll << 62, 1ll << 40, 1ll << 32};
      (rest & 8 ? r.alignment : r.size) = odd[rest % 8];
      in.tame = false;
    }
    in.problem.ranges.push_back(r);
  }
  for (unsigned i = 0; i < fixed && at < size; ++i) {
    FixedOffset f;
    f.group = next() % std::max(1u, in.problem.groups + (flags & 8 ? 1u : 0u));
    f.offset = static_cast<std::int8_t>(next());
    in.problem.fixed.push_back(f);
  }
  return in;
}

template <class Planner>
Bytes check(const Input& in, const Planner& planner) {
  OffsetProblem problem = in.problem.view();
  problem.capacity = in.capacity;
  std::vector<Bytes> offsets(problem.group_count, -1);
  const auto plan = planner(problem, offsets);
  if (!plan.ok()) {
    const Errc code = plan.error().code;
    demand(code == Errc::invalid_argument || code == Errc::over_budget || code == Errc::infeasible);
    if (code != Errc::infeasible) return -1;
    // The plan that did not fit is a plan all the same.
    demand(plan.error().available == in.capacity && plan.error().requested > in.capacity);
    return -2;
  }
  demand(validate_offsets(problem, offsets).ok());
  Bytes peak = 0;
  for (const LiveRange& r : problem.ranges)
    if (r.size > 0 && r.begin < r.end) peak = std::max(peak, offsets[r.group] + r.size);
  demand(plan->peak == peak && plan->lower_bound <= peak && peak <= problem.capacity);
  demand(!plan->proven_optimal || plan->lower_bound == peak);
  return peak;
}

/// Placing through many buckets of time, of which there are fewer and fewer, finds the same as looking at everything placed.
void check_buckets(const Input& in) {
  detail::OffsetInput input;
  if (!detail::prepare_offsets(in.problem.view(), in.problem.groups, input).ok()) return;
  detail::PlacedRanges<Bytes> one(input, 1u << 20), many(input, 1);
  for (std::uint32_t g = 0; g < input.group_count(); ++g) {
    if (!input.is_fixed(g)) continue;
    const bool free = one.is_free(g, input.fixed[g]);
    demand(free == many.is_free(g, input.fixed[g]));
    if (!free) return;
    one.insert(g, input.fixed[g]);
    many.insert(g, input.fixed[g]);
  }
  const std::vector<std::uint32_t> order = detail::greedy_order(input, PlacementOrder::area);
  std::vector<Bytes> offsets(in.problem.groups, -1);
  std::size_t placed = 0;
  for (const std::uint32_t g : order) {
    if (placed % 5 == 4) {
      many.take_fewer_buckets();
      for (std::uint32_t f = 0; f < input.group_count(); ++f)
        if (input.is_fixed(f)) many.insert(f, input.fixed[f]);
      for (std::size_t i = 0; i < placed; ++i) many.insert(order[i], offsets[order[i]]);
    }
    ++placed;
    const Bytes lowest = one.find(g, input.size(g), false);
    demand(lowest == many.find(g, input.size(g), false));
    const Bytes smallest = one.find(g, input.size(g), true);
    demand(smallest == many.find(g, input.size(g), true));
    offsets[g] = g % 2 == 0 ? lowest : smallest;
    one.insert(g, offsets[g]);
    many.insert(g, offsets[g]);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Input in = read(data, size);
  check_buckets(in);
  const Bytes size_order = check(in, GreedyPlanner{});
  const Bytes conflicts = check(in, GreedyPlanner{PlacementOrder::conflicts, Fit::lowest});
  const Bytes fast = check(in, FastPlanner{});
  const Bytes exact = check(in, ExactPlanner<>{3000});
  const Bytes best = check(in, PlanOffsets<>{1000, 2});
  // A bad problem is bad for all.
  for (const Bytes b : {conflicts, fast, exact, best}) demand((b == -1) == (size_order == -1));
  if (size_order >= 0 && in.capacity == max_bytes) demand(best <= std::min({size_order, conflicts, fast}));
  if (exact > 0 && in.tame && in.capacity == max_bytes && in.problem.groups <= 6 && in.problem.ranges.size() <= 8) {
    std::vector<LiveRange> used;
    for (const LiveRange& r : in.problem.ranges)
      if (r.size > 0 && r.begin < r.end) used.push_back(r);
    testing::OwnedProblem solid{used, {}, in.problem.groups};
    for (const FixedOffset& f : in.problem.fixed)
      if (std::any_of(used.begin(), used.end(), [&](const LiveRange& r) { return r.group == f.group; }))
        solid.fixed.push_back(f);
    demand(exact == testing::BruteForce(solid)(exact + 1));
  }
  if (size_order != -1 && in.problem.fixed.empty()) {
    std::vector<Bytes> offsets(in.problem.groups, -1);
    std::vector<std::uint32_t> arenas(in.problem.groups, 0);
    const auto plan = plan_arenas(in.problem.view(), 300, offsets, arenas);
    demand(plan.ok());
    for (std::uint32_t a = 0; a < plan->sizes.size(); ++a) {
      std::vector<LiveRange> inside;
      for (const LiveRange& r : in.problem.ranges)
        if (arenas[r.group] == a) inside.push_back(r);
      demand(validate_offsets({inside, in.problem.groups, {}, plan->sizes[a]}, offsets).ok());
    }
  }
  return 0;
}
