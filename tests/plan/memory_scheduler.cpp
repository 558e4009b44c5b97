// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/memory_scheduler.hpp"

#include <vector>

#include <doctest/doctest.h>

#include "holdfast/plan/simulate.hpp"
#include "plan/graphs.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

struct NoScheduler {
  int operator()(const Graph&) const { return 0; }
};
static_assert(!memory_scheduler<NoScheduler> && !memory_scheduler<int>);

}  // namespace

TEST_CASE("memory_scheduler: an order that is none is refused, with the place") {
  const Graph g = t7_1();
  const auto fails_at = [&](std::initializer_list<std::uint32_t> numbers) {
    const Error e = verify_schedule(g, order(numbers));
    CHECK(e.code == Errc::invalid_argument);
    return e.at;
  };
  CHECK(fails_at({0, 1}) == 2);
  CHECK(fails_at({0, 1, 1, 3, 4, 5}) == 2);
  CHECK(fails_at({0, 1, 9, 3, 4, 5}) == 2);
  CHECK(fails_at({1, 0, 2, 3, 4, 5}) == 1);
  CHECK(verify_schedule(g, order({0, 1, 2, 3, 4, 5})).ok());
  CHECK_FALSE(simulate(g, order({5, 4, 3, 2, 1, 0})).ok());
  CHECK_FALSE(make_schedule(g, order({5, 4, 3, 2, 1, 0})).ok());
}

TEST_CASE("memory_scheduler: control predecessors come first too") {
  GraphBuilder b;
  b.add({}, 1), b.add({}, 1);
  b.control(NodeId{1}, NodeId{0});
  const Graph g = *b.finish();
  CHECK_FALSE(verify_schedule(g, order({0, 1})).ok());
  CHECK(verify_schedule(g, order({1, 0})).ok());
}
