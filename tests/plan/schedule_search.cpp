// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/schedule_search.hpp"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "plan/graphs.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

std::uint64_t next(std::uint64_t& state) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}

/// A random graph: operands mostly from nearby, now and then several results, overwriting,
/// workspace, control edges.
Graph random_graph(std::uint64_t seed, std::uint32_t nodes, std::uint64_t output_every = 8) {
  std::uint64_t r = seed * 0x9E3779B97F4A7C15u + 1;
  GraphBuilder b;
  for (std::uint32_t i = 0; i < nodes; ++i) {
    std::vector<NodeId> operands;
    for (std::uint64_t k = i == 0 ? 0 : next(r) % 4; k > 0; --k)
      operands.push_back(
          NodeId{i - 1 - static_cast<std::uint32_t>(next(r) % std::min<std::uint64_t>(i, 7))});
    const Bytes size = static_cast<Bytes>(next(r) % 8) * 100;
    const NodeId n = b.add(operands, next(r) % 3 == 0 ? 400 : size);
    for (const NodeId o : operands)
      if (next(r) % 2 == 0) b.may_reuse(n, o);
    if (next(r) % 5 == 0) b.back().transient = static_cast<Bytes>(next(r) % 500);
    if (next(r) % 6 == 0) b.define(300);
    if (next(r) % output_every == 0) b.keep(n);
    if (i > 3 && next(r) % 9 == 0)
      b.control(NodeId{static_cast<std::uint32_t>(next(r) % (i - 1))}, n);
  }
  return *b.finish();
}

/// The least peak of any order, from the definition: over all sets of nodes that can have run.
/// Shares no code with the library.
Bytes optimum(const Graph& g) {
  const auto count = static_cast<std::uint32_t>(g.size());
  std::vector<std::uint32_t> needs(count, 0);
  for (std::uint32_t n = 0; n < count; ++n) {
    for (const NodeId o : g.operands(NodeId{n})) needs[n] |= 1u << index_of(o);
    for (const NodeId c : g.controls(NodeId{n})) needs[n] |= 1u << index_of(c);
  }
  std::vector<std::uint32_t> readers(g.values.size(), 0);
  for (std::uint32_t v = 0; v < g.values.size(); ++v)
    for (const NodeId r : g.readers(ValueId{v})) readers[v] |= 1u << index_of(r);
  const auto alive = [&](std::uint32_t v, std::uint32_t set) {
    return (set >> index_of(g.values[v].definer) & 1u) != 0 &&
           (g.values[v].lifetime == Lifetime::output || (readers[v] & ~set) != 0);
  };
  const auto live = [&](std::uint32_t set) {
    Bytes sum = 0;
    for (std::uint32_t v = 0; v < g.values.size(); ++v) sum += alive(v, set) ? g.values[v].size : 0;
    return sum;
  };
  const auto during = [&](std::uint32_t set, std::uint32_t n) {
    Bytes sum = live(set) + g.nodes[n].transient;
    std::vector<ValueId> taken;
    for (std::uint32_t v = g.nodes[n].values.begin; v < g.nodes[n].values.end(); ++v) {
      bool over = false;
      for (const ValueId w : g.reuses(ValueId{v})) {
        const std::uint32_t left = readers[index_of(w)] & ~set;
        if (left != 1u << n || g[w].lifetime == Lifetime::output ||
            std::find(taken.begin(), taken.end(), w) != taken.end())
          continue;
        taken.push_back(w);
        over = true;
        break;
      }
      if (!over) sum += g.values[v].size;
    }
    return sum;
  };
  std::unordered_map<std::uint32_t, Bytes> least{{0, 0}};
  for (std::uint32_t k = 0; k < count; ++k) {
    std::unordered_map<std::uint32_t, Bytes> after;
    for (const auto& [set, peak] : least)
      for (std::uint32_t n = 0; n < count; ++n) {
        if ((set >> n & 1u) != 0 || (needs[n] & ~set) != 0) continue;
        const Bytes with = std::max(peak, during(set, n));
        const auto [at, fresh] = after.try_emplace(set | 1u << n, with);
        if (!fresh) at->second = std::min(at->second, with);
      }
    least = std::move(after);
  }
  return least.begin()->second;
}

constexpr ScheduleSearch<> search{};
static_assert(search(t7_6())->peak == 1280 - 256 && search(t7_6())->proven_optimal);

}  // namespace

TEST_CASE("schedule_search: T7.6 it finds the optimum that the three heuristics miss") {
  const Schedule s = *search(t7_6());
  CHECK(total(t7_6(), s) == 1280);
  CHECK(s.proven_optimal);
}

TEST_CASE("schedule_search: case 19 it reaches the best peak of all three graphs and proves it") {
  const std::pair<Graph, Bytes> known[] = {
      {ten_nodes(), 31000}, {weight_gradients(), 55000}, {concat_underflow(), 18432}};
  for (const auto& [g, best] : known) {
    const Schedule s = *search(g);
    CHECK(s.peak == best);
    CHECK(s.lower_bound == best);
    CHECK(s.proven_optimal);
    CHECK(simulate(g, s.order)->peak == s.peak);
  }
}

TEST_CASE("schedule_search: on 1,000 random graphs of up to 24 nodes it equals exhaustive search") {
  int proven = 0;
  const std::uint64_t count = quick() ? 100 : 1000;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    const Graph g = random_graph(seed, 3 + static_cast<std::uint32_t>(seed % 22));
    const Bytes best = optimum(g);
    const Schedule s = *search(g);
    REQUIRE_MESSAGE(simulate(g, s.order).ok(), "seed ", seed);
    CHECK_MESSAGE(simulate(g, s.order)->peak == s.peak, "seed ", seed);
    CHECK_MESSAGE(s.peak == best, "seed ", seed);
    CHECK_MESSAGE(s.lower_bound <= best, "seed ", seed);
    CHECK_MESSAGE(s.proven_optimal == (s.lower_bound == best), "seed ", seed);
    proven += s.proven_optimal ? 1 : 0;
  }
  CHECK(proven == static_cast<int>(count));
}

TEST_CASE("schedule_search: it is never worse than the best of the classic schedulers") {
  int better = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Graph g = random_graph(seed, 300, 100);
    const Schedule s = *ScheduleSearch<>{4000}(g);
    const Bytes classic = ScheduleBest{}(g)->peak;
    CHECK(simulate(g, s.order)->peak == s.peak);
    CHECK(s.peak <= classic);
    CHECK(s.lower_bound <= s.peak);
    better += s.peak < classic ? 1 : 0;
  }
  CHECK(better >= 15);
}

TEST_CASE("schedule_search: the same effort gives the same order") {
  const Graph g = random_graph(5, 200);
  CHECK(ScheduleSearch<>{500}(g)->order == ScheduleSearch<>{500}(g)->order);
  CHECK(ScheduleSearch<>{500}(g)->peak >= ScheduleSearch<>{5000}(g)->peak);
}

TEST_CASE("schedule_search: it stops when it is told to, with a valid order") {
  struct Count {
    int* asked;
    bool operator()() const { return ++*asked > 10; }
  };
  int asked = 0;
  const Graph g = random_graph(7, 400);
  const Schedule s = *ScheduleSearch<Count>{20000, 1, {&asked}}(g);
  CHECK(asked > 10);
  CHECK(asked < 200);
  CHECK(simulate(g, s.order)->peak == s.peak);
}

TEST_CASE("schedule_search: transient bytes that a callee might save keep an optimum unproven") {
  GraphBuilder b;
  const NodeId a = b.add({}, 100);
  b.add({a}, 10);
  b.back().transient = 1000;
  b.back().slack = 300;
  const Schedule s = *search(*b.finish());
  CHECK(s.peak == 1110);
  CHECK(s.lower_bound == 810);
  CHECK_FALSE(s.proven_optimal);
}

TEST_CASE("schedule_search: graphs without nodes or bytes are done at once") {
  CHECK(search(*GraphBuilder{}.finish())->proven_optimal);
  GraphBuilder b;
  b.add({}, 0);
  CHECK(search(*b.finish())->peak == 0);
}
