// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/static_vector.hpp"

#include <algorithm>
#include <array>

#include <doctest/doctest.h>

#include "support/death.hpp"

using namespace holdfast;

namespace {

constexpr auto squares() {
  StaticVector<int, 4> v;
  for (int i = 1; v.try_push_back(i * i); ++i) {
  }
  return v;
}
constexpr auto four = squares();  // outlives the constant evaluation that made it
static_assert(four.size() == 4 && four[3] == 16 && four.capacity() == 4);

}  // namespace

TEST_CASE("static_vector: it takes as many elements as its capacity and refuses the next unchanged") {
  StaticVector<int, 3> v;
  CHECK(v.empty());
  for (int i = 0; i < 3; ++i) CHECK(v.try_push_back(i));
  CHECK_FALSE(v.try_push_back(9));
  CHECK(v.size() == 3);
  CHECK(v.back() == 2);
  CHECK(std::equal(v.begin(), v.end(), std::array<int, 3>{0, 1, 2}.begin()));
  v.pop_back();
  CHECK(v.size() == 2);
  CHECK(v.try_push_back(9));
  CHECK(v[2] == 9);
  v.clear();
  CHECK(v.empty());
  CHECK(v.begin() == v.end());
}

TEST_CASE("static_vector: of no capacity, it is always full") {
  StaticVector<int, 0> v;
  CHECK_FALSE(v.try_push_back(1));
  CHECK(v.empty());
  CHECK(v.capacity() == 0);
}

TEST_CASE("static_vector: pushing on a full one, popping and reading past the end are broken preconditions") {
  CHECK(testing::aborts([] {
    StaticVector<int, 1> v;
    v.push_back(1);
    v.push_back(2);
  }));
  CHECK(testing::aborts([] { StaticVector<int, 1>().pop_back(); }));
  CHECK(testing::aborts([] { return StaticVector<int, 1>()[0]; }));
  CHECK(testing::aborts([] { return four[4]; }));
}
