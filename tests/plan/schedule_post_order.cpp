// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/schedule_post_order.hpp"

#include <doctest/doctest.h>

#include "plan/graphs.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

std::string order(const Graph& g) { return names(g, SchedulePostOrder{}(g)->order); }

}  // namespace

TEST_CASE("schedule_post_order: T7.1 to T7.6 give XLA's orders and peaks") {
  CHECK(order(t7_1()) == "x u v s t r");
  CHECK(total(t7_1(), *SchedulePostOrder{}(t7_1())) == 768);
  CHECK(order(t7_3()) == "p a b c d z");
  CHECK(total(t7_3(), *SchedulePostOrder{}(t7_3())) == 3840);
  CHECK(order(t7_4()) == "p c a b d");
  CHECK(total(t7_4(), *SchedulePostOrder{}(t7_4())) == 4352);
  CHECK(order(t7_5()) == "p a c b d z");
  CHECK(total(t7_5(), *SchedulePostOrder{}(t7_5())) == 2560);
  CHECK(total(t7_6(), *SchedulePostOrder{}(t7_6())) == 1536);
}

TEST_CASE("schedule_post_order: T1.1 operands come in operand order, not in insertion order") {
  GraphBuilder b;
  const NodeId a = b.add_argument(1, "a"), c = b.add_argument(1, "b");
  b.add({c, a}, 1, "z");
  CHECK(order(*b.finish()) == "b a z");
}

TEST_CASE(
    "schedule_post_order: T1.2 a control predecessor comes first though it is declared later") {
  GraphBuilder b;
  const NodeId x = b.add_argument(1, "x");
  const NodeId n = b.add({x}, 1, "n"), m = b.add({x}, 1, "m");
  b.control(m, n);
  CHECK(order(*b.finish()) == "x m n");
}

TEST_CASE("schedule_post_order: T1.3 a userless node stands where the scan finds it") {
  GraphBuilder b;
  const NodeId x = b.add_argument(1, "x");
  b.add({x}, 1, "dead");
  const NodeId y = b.add({x}, 1, "y");
  b.set_root(y);
  CHECK(order(*b.finish()) == "x dead y");
}
