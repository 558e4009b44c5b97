// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/config.hpp"

#include <doctest/doctest.h>

#include "support/death.hpp"

namespace {

struct Empty {};
struct WithPolicy {
  HOLDFAST_NO_UNIQUE_ADDRESS Empty policy;
  int value;
};
static_assert(sizeof(WithPolicy) == sizeof(int), "an empty policy takes no room");
static_assert(HOLDFAST_VERSION_MAJOR >= 0 && HOLDFAST_VERSION_MINOR >= 0 && HOLDFAST_VERSION_PATCH >= 0);
static_assert(HOLDFAST_HAS_EXCEPTIONS == 1, "this file is compiled with exceptions");

constexpr int asserted(int n) {
  HOLDFAST_ASSERT(n > 0);
  return n;
}
static_assert(asserted(1) == 1, "an assertion that holds is a constant expression");

}  // namespace

TEST_CASE("config: an assertion that fails ends the process, one that holds does nothing") {
  CHECK(holdfast::testing::aborts([] { return asserted(0); }));
  CHECK_FALSE(holdfast::testing::aborts([] { return asserted(1); }));
}

TEST_CASE("config: an assertion reads its condition once") {
  int reads = 0;
  HOLDFAST_ASSERT(++reads == 1);
  CHECK(reads == 1);
}

TEST_CASE("config: HOLDFAST_THROW throws where there are exceptions") {
  CHECK_THROWS_AS(HOLDFAST_THROW(7), int);
}
