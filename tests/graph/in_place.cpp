// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/in_place.hpp"

#include <doctest/doctest.h>

#include "support/planned.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using holdfast::testing::Planned;

namespace {

std::vector<std::array<std::uint32_t, 3>> pairs(const Planned& p, std::string_view name) {
  std::vector<std::array<std::uint32_t, 3>> out;
  InPlaceRules(p.module).for_each_pair(p.find(name), [&](std::uint32_t o, std::uint32_t on, std::uint32_t n) { out.push_back({o, on, n}); });
  return out;
}

}  // namespace

TEST_CASE("in_place: a dynamic-update-slice of a read-only parameter gets memory of its own (T3.4)") {
  const Planned p(R"(HloModule m, is_scheduled=true
ENTRY e {
  x = f32[8]{0} parameter(0)
  y = f32[2]{0} parameter(1)
  i = s32[] parameter(2)
  ROOT u = f32[8]{0} dynamic-update-slice(x, y, i)
})");
  CHECK(pairs(p, "u").size() == 1);
  CHECK_FALSE(p.same("u", "x"));
  CHECK(p.location("u").base == Location::Base::result);
}

TEST_CASE("in_place: a fusion that updates a parameter through a bitcast gives the derived pair (T3.5)") {
  const Planned p(R"(HloModule m, is_scheduled=true
f1 {
  p0 = f32[8]{0} parameter(0)
  p1 = f32[2]{0} parameter(1)
  p2 = s32[] parameter(2)
  d = f32[8]{0} dynamic-update-slice(p0, p1, p2)
  ROOT b = f32[4,2]{1,0} bitcast(d)
}
f2 {
  q0 = f32[8]{0} parameter(0)
  q1 = f32[8]{0} parameter(1)
  q2 = f32[2]{0} parameter(2)
  q3 = s32[] parameter(3)
  d2 = f32[8]{0} dynamic-update-slice(q1, q2, q3)
  n2 = f32[8]{0} negate(q0)
  ROOT t2 = (f32[8]{0}, f32[8]{0}) tuple(d2, n2)
}
ENTRY e {
  x = f32[8]{0} parameter(0)
  y = f32[2]{0} parameter(1)
  i = s32[] parameter(2)
  a = f32[8]{0} exponential(x)
  f = f32[4,2]{1,0} fusion(a, y, i), kind=kLoop, calls=f1
  c = f32[8]{0} cosine(x)
  g = (f32[8]{0}, f32[8]{0}) fusion(c, c, y, i), kind=kLoop, calls=f2
  ROOT r = (f32[4,2]{1,0}, (f32[8]{0}, f32[8]{0})) tuple(f, g)
})");
  CHECK(pairs(p, "f") == std::vector<std::array<std::uint32_t, 3>>{{0, 0, 0}});
  CHECK(pairs(p, "g") == std::vector<std::array<std::uint32_t, 3>>{{1, 0, 1}});
  CHECK(p.same("f", "a"));
}

TEST_CASE("in_place: elementwise operations may share, products never, sort only its own operand (T3.9)") {
  const Planned p(R"(HloModule m, is_scheduled=true
less {
  a0 = f32[] parameter(0)
  a1 = f32[] parameter(1)
  b0 = f32[] parameter(2)
  b1 = f32[] parameter(3)
  ROOT l = pred[] compare(a0, a1), direction=LT
}
ENTRY e {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} exponential(x)
  s = f32[8]{0} add(y, y)
  k = f32[8]{0} cosine(x)
  o = (f32[8]{0}, f32[8]{0}) sort(s, k), dimensions={0}, to_apply=less
  ROOT d = f32[] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
})");
  InPlaceRules rules(p.module);
  CHECK(rules.may_overwrite(p.find("s"), 0, 0));
  CHECK(p.same("y", "s"));
  CHECK(rules.may_overwrite(p.find("o"), 0, 1));
  CHECK(rules.may_overwrite(p.find("o"), 1, 2));
  CHECK_FALSE(rules.may_overwrite(p.find("o"), 0, 2));
  CHECK_FALSE(rules.may_overwrite(p.find("o"), 1, 1));
  CHECK_FALSE(rules.may_overwrite(p.find("d"), 0, 0));
}

TEST_CASE("in_place: an all-reduce-start is in place unless it is nvshmem's (passes.md 3.4)") {
  const auto text = [](std::string_view config) {
    return std::string(R"(HloModule m, is_scheduled=true
add { a0 = f32[] parameter(0)
 a1 = f32[] parameter(1)
 ROOT s = f32[] add(a0, a1) }
ENTRY e {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} exponential(x)
  a = f32[8]{0} all-reduce-start(y), replica_groups={}, to_apply=add)") + std::string(config) + R"(
  ROOT r = f32[8]{0} all-reduce-done(a)
})";
  };
  CHECK(pairs(Planned(text("")), "a").size() == 1);
  CHECK(pairs(Planned(text(R"(, backend_config={"backend":"NVSHMEM"})")), "a").empty());
}

TEST_CASE("in_place: updates that would read what they wrote get their own memory (case 22)") {
  const std::string path = holdfast::testing::shared_path("cases/22-in-place-alias");
  if (path.empty()) return;
  const auto shares = [&](const char* file) {
    const Planned p(holdfast::testing::read_file(path + "/" + file));
    return p.same("f", "b");
  };
  CHECK_FALSE(shares("alias_shift.hlo"));
  CHECK_FALSE(shares("alias_transpose.hlo"));
  CHECK(shares("alias_bitcast.hlo"));
  const Planned two(holdfast::testing::read_file(path + "/alias_two.hlo"));
  const int reused = two.same("f", "b", 1) + two.same("f", "b", 2);
  CHECK(reused <= 1);
  CHECK_FALSE(two.same("f", "f", 1, 2));
}
