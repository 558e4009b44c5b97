// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/schedule_bfs.hpp"

#include <string>

#include <doctest/doctest.h>

#include "plan/graphs.hpp"

using namespace holdfast;
using namespace holdfast::testing;

TEST_CASE("schedule_bfs: T7.12 independent chains run level by level") {
  GraphBuilder b;
  const NodeId x = b.add_argument(4, "x");
  for (int k = 0; k < 3; ++k) {
    const NodeId wide = b.add({x}, 256, "broadcast");
    const NodeId sum = b.add({wide, wide}, 256, "add");
    b.add({sum}, 4, "reduce");
  }
  const Graph g = *b.finish();
  CHECK(names(g, ScheduleBfs{}(g)->order) ==
        "x broadcast broadcast broadcast add add add reduce reduce reduce");
}

TEST_CASE("schedule_bfs: control successors wait for their predecessors") {
  GraphBuilder b;
  const NodeId m = b.add({}, 1, "m"), n = b.add({}, 1, "n");
  b.control(n, m);
  const Graph g = *b.finish();
  CHECK(names(g, ScheduleBfs{}(g)->order) == "n m");
}
