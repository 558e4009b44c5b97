// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/plan_arenas.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>

using namespace holdfast;

// XLA combines the heaps of its temporaries; here each is a group that is alive throughout.
TEST_CASE("plan_arenas: T9.9 heaps of 30 and 20 are one of 52, or two where 40 is the limit") {
  const std::array heaps = {LiveRange{0, 1, 30, 16, 0}, LiveRange{0, 1, 20, 16, 1}};
  std::array<Bytes, 2> offsets = {};
  std::array<std::uint32_t, 2> arenas = {};
  const Result<ArenaPlan> one = plan_arenas({heaps, 2}, max_bytes, offsets, arenas);
  REQUIRE(one.ok());
  CHECK(one->sizes == std::vector<Bytes>{52});
  CHECK(offsets == std::array<Bytes, 2>{0, 32});
  const Result<ArenaPlan> two = plan_arenas({heaps, 2}, 40, offsets, arenas);
  REQUIRE(two.ok());
  CHECK(two->sizes == std::vector<Bytes>{30, 20});
  CHECK(offsets == std::array<Bytes, 2>{0, 0});
  CHECK(arenas == std::array<std::uint32_t, 2>{0, 1});
}

TEST_CASE("plan_arenas: wrong tables are refused, and nothing is written") {
  const std::array ranges = {LiveRange{0, 1, 30, 16, 0}, LiveRange{0, 1, 20, 16, 1}};
  std::array<Bytes, 2> offsets = {-7, -7};
  std::array<std::uint32_t, 2> arenas = {};
  const std::array<std::uint32_t, 1> colours = {};
  const std::array fixed = {FixedOffset{}};
  const auto refused = [&](const Result<ArenaPlan>& r) {
    return r.error().code == Errc::invalid_argument;
  };
  CHECK(refused(plan_arenas({ranges, 2, fixed}, max_bytes, offsets, arenas)));
  CHECK(refused(plan_arenas({ranges, 2}, max_bytes, offsets, std::span(arenas).first(1))));
  CHECK(refused(plan_arenas({ranges, 2}, max_bytes, std::span(offsets).first(1), arenas)));
  CHECK(refused(plan_arenas({ranges, 2}, max_bytes, offsets, arenas, colours)));
  CHECK(offsets == std::array<Bytes, 2>{-7, -7});
}
