// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/simulate.hpp"

#include <vector>

#include <doctest/doctest.h>

#include "plan/graphs.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

std::vector<NodeId> as_added(const Graph& g) {
  std::vector<NodeId> out;
  for (std::uint32_t i = 0; i < g.size(); ++i) out.push_back(NodeId{i});
  return out;
}

/// x of 1 MiB, updated in place twice (T8.13).
Graph updates() {
  GraphBuilder b;
  const NodeId x = b.add({}, 1 << 20, "x");
  const NodeId u1 = b.add_in_place({x}, "u1");
  const NodeId u2 = b.add_in_place({u1}, "u2");
  b.keep(u2);
  return *b.finish();
}

static_assert(simulate(t7_1(), std::vector{NodeId{0}, NodeId{2}, NodeId{1}, NodeId{3}, NodeId{4},
                                           NodeId{5}})
                  ->peak == 512);

}  // namespace

TEST_CASE("simulate: T8.9 the order x v u s t r of T7.1 peaks at 768 with its argument") {
  const Graph g = t7_1();
  const Result<Simulation> s = simulate(g, order({0, 2, 1, 3, 4, 5}));
  REQUIRE(s.ok());
  CHECK(s->peak + g.held_bytes == 768);
  CHECK(s->position == 2);
  CHECK(simulate(g, order({0, 2, 4, 1, 3, 5}))->peak + g.held_bytes == 1024);
}

TEST_CASE(
    "simulate: T8.13 a chain of updates in place counts once, and twice only in XLA's figure") {
  const Graph g = updates();
  CHECK(simulate(g, as_added(g))->peak == 1 << 20);
  CHECK(simulate(g, as_added(g), HandOver::twice)->peak == 2 << 20);
}

TEST_CASE("simulate: overwriting a dying operand counts once in both figures") {
  const Graph g = t7_1();
  CHECK(simulate(g, order({0, 2, 1, 3, 4, 5}), HandOver::twice)->peak ==
        simulate(g, order({0, 2, 1, 3, 4, 5}))->peak);
}

TEST_CASE("simulate: case 19 replays the order in each file") {
  CHECK(simulate(ten_nodes(), as_added(ten_nodes()))->peak == 53000);
  CHECK(simulate(weight_gradients(), as_added(weight_gradients()))->peak == 71000);
  CHECK(simulate(concat_underflow(), as_added(concat_underflow()))->peak == 25600);
  CHECK(simulate(ten_nodes(), order({0, 1, 2, 6, 3, 8, 7, 4, 9, 5, 10}))->peak == 31000);
  CHECK(simulate(concat_underflow(), order({0, 1, 2, 4, 5, 3, 6}))->peak == 18432);
}

TEST_CASE("simulate: transient bytes are alive while their node runs") {
  GraphBuilder b;
  const NodeId a = b.add({}, 100);
  const NodeId c = b.add({a}, 10);
  b.back().transient = 1000;
  b.keep(c);
  const Graph g = *b.finish();
  const Result<Simulation> s = simulate(g, as_added(g));
  CHECK(s->peak == 1110);
  CHECK(s->position == 1);
}

TEST_CASE("simulate: who holds the peak is told value by value") {
  const Graph g = t7_1();
  const std::vector<NodeId> o = order({0, 2, 1, 3, 4, 5});
  const Result<std::vector<ValueId>> held = live_at(g, o, 2);
  REQUIRE(held.ok());
  CHECK(*held == std::vector{ValueId{1}, ValueId{2}});
  // s writes over u: both are the same bytes.
  CHECK(*live_at(g, o, 3) == std::vector{ValueId{2}, ValueId{3}});
  CHECK(live_at(g, o, 9).error().code == Errc::invalid_argument);
}

TEST_CASE("simulate: looking and undoing leave nothing behind") {
  for (const Graph& g : {t7_1(), t7_2(), ten_nodes(), updates()}) {
    LiveBytes live(g);
    std::vector<Bytes> before;
    for (const NodeId n : as_added(g)) {
      before.push_back(live.live());
      const LiveBytes::Step look = live.look(n);
      CHECK(live.live() == before.back());
      const LiveBytes::Step step = live.run(n);
      CHECK(look.during == step.during);
      CHECK(look.after == step.after);
    }
    for (std::size_t i = g.size(); i-- > 0;)
      live.undo(NodeId{static_cast<std::uint32_t>(i)}, before[i]);
    LiveBytes fresh(g);
    for (std::uint32_t v = 0; v < g.values.size(); ++v)
      CHECK(live.left(ValueId{v}) == fresh.left(ValueId{v}));
    for (const NodeId n : as_added(g)) CHECK(live.run(n).during == fresh.run(n).during);
  }
}
