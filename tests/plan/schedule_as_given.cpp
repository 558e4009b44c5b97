// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/schedule_as_given.hpp"

#include <doctest/doctest.h>

#include "plan/graphs.hpp"

using namespace holdfast;
using namespace holdfast::testing;

TEST_CASE("schedule_as_given: nodes keep the order in which they were added") {
  CHECK(names(t7_1(), ScheduleAsGiven{}(t7_1())->order) == "x u v s t r");
  CHECK(ScheduleAsGiven{}(weight_gradients())->peak == 71000);
}

TEST_CASE("schedule_as_given: an insertion order that is no order is an error") {
  GraphBuilder b;
  const NodeId x = b.add({}, 1), y = b.add({}, 1);
  b.control(y, x);
  CHECK(ScheduleAsGiven{}(*b.finish()).error().code == Errc::invalid_argument);
}
