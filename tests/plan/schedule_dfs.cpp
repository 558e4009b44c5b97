// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/schedule_dfs.hpp"

#include <doctest/doctest.h>

#include "plan/graphs.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

std::string order(const Graph& g) { return names(g, ScheduleDfs{}(g)->order); }

}  // namespace

TEST_CASE("schedule_dfs: T7.1 to T7.6 give XLA's orders and peaks") {
  CHECK(order(t7_1()) == "x v u s t r");
  CHECK(total(t7_1(), *ScheduleDfs{}(t7_1())) == 768);
  CHECK(order(t7_3()) == "p a b c d z");
  CHECK(total(t7_3(), *ScheduleDfs{}(t7_3())) == 3840);
  CHECK(order(t7_4()) == "p a b c d");
  CHECK(total(t7_4(), *ScheduleDfs{}(t7_4())) == 3840);
  CHECK(order(t7_5()) == "p b d a c z");
  CHECK(total(t7_5(), *ScheduleDfs{}(t7_5())) == 3072);
  CHECK(total(t7_6(), *ScheduleDfs{}(t7_6())) == 1536);
}

TEST_CASE("schedule_dfs: dead nodes come first, equal children by name") {
  GraphBuilder b;
  const NodeId c = b.add({}, 8, "c"), a = b.add({}, 8, "a");
  const NodeId z = b.add({c, a}, 8, "z");
  b.add({}, 8, "dead");
  b.set_root(z);
  CHECK(order(*b.finish()) == "dead a c z");
}

TEST_CASE("schedule_dfs: what lies behind the root is not forgotten") {
  GraphBuilder b;
  const NodeId a = b.add({}, 8, "a");
  b.add({a}, 8, "user");
  const NodeId last = b.add({}, 8, "last"), next = b.add({}, 8, "next");
  b.control(last, next);
  b.set_root(a);
  const Graph g = *b.finish();
  CHECK(verify_schedule(g, ScheduleDfs{}(g)->order).ok());
}
