// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/schedule_best.hpp"

#include <doctest/doctest.h>

#include "plan/graphs.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

constexpr ScheduleBest xla{true};

std::size_t chosen(const Graph& g) { return xla.compare(g).chosen; }
Bytes peak(const Graph& g) { return total(g, *xla(g)); }

static_assert(xla(t7_5())->peak == 2560 - 256);

}  // namespace

TEST_CASE("schedule_best: T7.1 to T7.6 XLA's choice and its peak") {
  CHECK(chosen(t7_1()) == 1);
  CHECK(peak(t7_1()) == 768);
  CHECK(names(t7_1(), xla(t7_1())->order) == "x v u s t r");
  CHECK(chosen(t7_2()) == 0);
  CHECK(chosen(t7_3()) == 0);
  CHECK(peak(t7_3()) == 3584);
  CHECK(chosen(t7_4()) == 1);
  CHECK(peak(t7_4()) == 3840);
  CHECK(chosen(t7_5()) == 2);
  CHECK(peak(t7_5()) == 2560);
  CHECK(chosen(t7_6()) == 0);
  CHECK(peak(t7_6()) == 1536);
}

TEST_CASE(
    "schedule_best: case 19 it is never worse than depth-first, greedy, or the order in the file") {
  for (const Graph& g : {ten_nodes(), weight_gradients(), concat_underflow(), t7_1(), t7_2(),
                         t7_3(), t7_4(), t7_5(), t7_6()}) {
    const Comparison all = ScheduleBest{}.compare(g);
    REQUIRE(all.schedules.size() == 6);
    for (const Schedule& s : all.schedules) {
      CHECK(all.schedules[all.chosen].peak <= s.peak);
      CHECK(verify_schedule(g, s.order).ok());
    }
    CHECK(all.schedules[ScheduleBest::as_given].peak == ScheduleAsGiven{}(g)->peak);
  }
  CHECK(ScheduleBest{}(weight_gradients())->peak < 60000);  // the case's limit
}

TEST_CASE("schedule_best: an insertion order that is no order is left out") {
  GraphBuilder b;
  const NodeId x = b.add({}, 1), y = b.add({}, 1);
  b.control(y, x);
  CHECK(ScheduleBest{}.compare(*b.finish()).schedules.size() == 5);
}
