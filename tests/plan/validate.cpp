// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/validate.hpp"

#include <array>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/plan/offsets_exact.hpp"
#include "support/intervals.hpp"
#include "support/shared.hpp"

using namespace holdfast;

namespace {

// Input A of case 21: both ends inclusive there, `b` may take the very slice of `a`.
constexpr std::array<LiveRange, 3> touching{LiveRange{2, 6, 4096, 1024, 0}, LiveRange{5, 9, 4096, 1024, 1},
                                            LiveRange{6, 9, 1024, 1024, 2}};

constexpr Error verdict(std::array<Bytes, 3> offsets, TouchRule rule = TouchRule::same_slice_ok) {
  return validate_offsets({touching, 3}, offsets, rule);
}

/// The answer by looking at every pair of ranges.
bool valid_by_pairs(const OffsetProblem& p, std::span<const Bytes> offsets) {
  for (const LiveRange& a : p.ranges) {
    if (a.size == 0 || a.begin == a.end) continue;
    if (offsets[a.group] < 0 || offsets[a.group] % a.alignment != 0) return false;
    for (const LiveRange& b : p.ranges)
      if (&a != &b && b.size > 0 && a.begin < b.end && b.begin < a.end && offsets[a.group] < offsets[b.group] + b.size &&
          offsets[b.group] < offsets[a.group] + a.size)
        return false;
  }
  for (const FixedOffset& f : p.fixed)
    for (const LiveRange& a : p.ranges)
      if (a.group == f.group && offsets[f.group] != f.offset) return false;
  return true;
}

}  // namespace

TEST_CASE("validate: case 21 the four verdicts on an operand and a result that touch") {
  CHECK(verdict({0, 0, 4096}).ok());
  CHECK(verdict({0, 1024, 0}).code == Errc::invalid_argument);
  CHECK(verdict({0, 4096, 0}).ok());
  CHECK(verdict({0, 4096, 4096}).code == Errc::invalid_argument);
  // With sharing off the same slice is an overlap in step 5 like any other.
  CHECK(verdict({0, 0, 4096}, TouchRule::apart).code == Errc::invalid_argument);
  CHECK(verdict({0, 4096, 0}, TouchRule::apart).ok());
}

TEST_CASE("validate: case 21 the planner returns 5120 with sharing and 8192 without") {
  std::array<Bytes, 3> offsets{};
  const auto apart = ExactPlanner<>{}({touching, 3}, offsets);
  REQUIRE(apart.ok());
  CHECK(apart->peak == 8192);
  CHECK(validate_offsets({touching, 3}, offsets).ok());
  // Sharing: one group whose first range gives its last step to the second.
  std::array<LiveRange, 3> shared = touching;
  shared[0].end = shared[1].begin;
  shared[1].group = 0;
  shared[2].group = 1;
  std::array<Bytes, 2> places{};
  const auto together = ExactPlanner<>{}({shared, 2}, places);
  REQUIRE(together.ok());
  CHECK(together->peak == 5120);
  CHECK(verdict({places[0], places[0], places[1]}).ok());
}

TEST_CASE("validate: a value of one step is no operand of what begins with it") {
  const std::array<LiveRange, 2> r{LiveRange{5, 6, 64, 1, 0}, LiveRange{5, 9, 64, 1, 1}};
  CHECK(!validate_offsets({r, 2}, std::array<Bytes, 2>{0, 0}, TouchRule::same_slice_ok).ok());
  const std::array<LiveRange, 2> sizes{LiveRange{2, 6, 64, 1, 0}, LiveRange{5, 9, 32, 1, 1}};
  CHECK(!validate_offsets({sizes, 2}, std::array<Bytes, 2>{0, 0}, TouchRule::same_slice_ok).ok());
}

TEST_CASE("validate: each fault has its code, its text and the group at fault") {
  const std::array<LiveRange, 2> r{LiveRange{0, 4, 8, 4, 0}, LiveRange{3, 6, 8, 4, 1}};
  const auto check = [&](const OffsetProblem& p, std::array<Bytes, 2> offsets, Errc code, std::uint64_t at) {
    const Error e = validate_offsets(p, offsets);
    CHECK(e.code == code);
    if (!e.ok()) CHECK(e.at == at);
  };
  check({r, 2}, {0, 8}, Errc::ok, 0);
  check({r, 2}, {0, 4}, Errc::invalid_argument, 1);
  check({r, 2}, {0, 9}, Errc::invalid_argument, 1);
  check({r, 2}, {-4, 8}, Errc::invalid_argument, 0);
  check({r, 2, {}, 15}, {0, 8}, Errc::over_budget, 1);
  const std::array<FixedOffset, 1> fixed{FixedOffset{1, 16}};
  check({r, 2, fixed}, {0, 8}, Errc::invalid_argument, 1);
  check({r, 2, fixed}, {0, 16}, Errc::ok, 0);
  CHECK(validate_offsets({r, 3}, std::array<Bytes, 2>{0, 8}).code == Errc::invalid_argument);
  CHECK(validate_offsets({r, 2}, std::array<Bytes, 2>{max_bytes - 3, 8}).code == Errc::over_budget);
}

TEST_CASE("validate: blocks that meet in time or in address overlap nothing") {
  const std::array<LiveRange, 3> r{LiveRange{0, 4, 8, 1, 0}, LiveRange{4, 6, 8, 1, 1}, LiveRange{0, 6, 8, 1, 2}};
  CHECK(validate_offsets({r, 3}, std::array<Bytes, 3>{0, 0, 8}).ok());
}

TEST_CASE("validate: agrees with a look at every pair on random plans") {
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    CAPTURE(seed);
    const auto p = testing::random_problem(seed, 10, seed % 4);
    testing::Random random(seed + 77);
    std::vector<Bytes> offsets(p.groups, 0);
    for (Bytes& o : offsets) o = static_cast<Bytes>(random(40)) - (random(50) == 0 ? 41 : 0);
    const bool expected = valid_by_pairs(p.view(), offsets);
    accepted += expected;
    REQUIRE(validate_offsets(p.view(), offsets).ok() == expected);
  }
  CHECK(accepted > 300);
}

TEST_CASE("validate: works in constant expressions") {
  static_assert(verdict({0, 0, 4096}).ok());
  static_assert(!verdict({0, 1024, 0}).ok());
}
