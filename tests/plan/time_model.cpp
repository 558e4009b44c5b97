// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/time_model.hpp"

#include <string_view>

#include <doctest/doctest.h>

#include "support/hlo.hpp"

using namespace holdfast;
using testing::find_instruction;
using testing::parse;

namespace {

/// One operation and one byte take a second each; a launch nothing.
constexpr MachineSpeed slow{.operations = 1, .memory = 1e30, .host_link = 2, .launch = 0};
constexpr MachineSpeed bytes_only{.operations = 1e30, .memory = 1, .host_link = 2, .launch = 0};

constexpr std::string_view text = R"(HloModule m
more { s = (s32[], f32[4]) parameter(0)  n = s32[] get-tuple-element(s), index=0  l = s32[] constant(5)  ROOT go = pred[] compare(n, l), direction=LT }
round { s = (s32[], f32[4]) parameter(0)  n = s32[] get-tuple-element(s), index=0  v = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)  next = s32[] add(n, one)  grown = f32[4] negate(v)  ROOT t = (s32[], f32[4]) tuple(next, grown) }
fused { a = f32[8,16] parameter(0)  b = f32[8,16] exponential(a)  ROOT c = f32[8,16] add(b, a) }
sum { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT xy = f32[] add(x, y) }
ENTRY e {
  p = f32[8,16] parameter(0)  q = f32[16,4] parameter(1)  i = f32[1,10,10,3] parameter(2)  k = f32[3,3,3,7] parameter(3)
  zero = f32[] constant(0)  start = s32[] constant(0)  v0 = f32[4] parameter(4)
  d = f32[8,4] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  conv = f32[1,8,8,7] convolution(i, k), window={size=3x3}, dim_labels=b01f_01io->b01f
  neg = f32[8,16] negate(p)  tan = f32[8,16] tanh(p)
  r = f32[8] reduce(p, zero), dimensions={1}, to_apply=sum
  f = f32[8,16] fusion(p), kind=kLoop, calls=fused
  w = f32[4,4] reduce-window(q, zero), window={size=4x1 stride=4x1}, to_apply=sum
  out = (f32[8,16]{1,0:S(5)}, f32[8,16]{1,0}, u32[]) copy-start(p)
  away = f32[8,16]{1,0:S(5)} copy-done(out)
  init = (s32[], f32[4]) tuple(start, v0)
  loop = (s32[], f32[4]) while(init), condition=more, body=round, backend_config={"known_trip_count":{"n":"5"}}
  ROOT all = (f32[8,4], f32[8,16]) tuple(d, f)
})";

}  // namespace

TEST_CASE("time_model: operations follow the shapes of each opcode") {
  const Module m = parse(text);
  const TimeModel time(m, slow);
  const auto seconds = [&](std::string_view name) {
    return time.seconds(find_instruction(m, name));
  };
  CHECK(seconds("d") == 2 * 8 * 4 * 16);
  CHECK(seconds("conv") == 2 * 8 * 8 * 7 * (3 * 3 * 3));
  CHECK(seconds("neg") == 8 * 16);
  CHECK(seconds("tan") == 8 * 8 * 16);
  CHECK(seconds("r") == 8 * 16 + 1);
  CHECK(seconds("f") == 9 * 8 * 16);  // exponential and add
  CHECK(seconds("w") == 4 * 4 * 4);
  CHECK(seconds("p") == 0);
  CHECK(seconds("all") == 0);
}

TEST_CASE(
    "time_model: bytes are read and written once, inside a fusion none; a loop runs as often as it "
    "says") {
  const Module m = parse(text);
  const TimeModel time(m, bytes_only);
  const auto seconds = [&](std::string_view name) {
    return time.seconds(find_instruction(m, name));
  };
  CHECK(seconds("neg") == 2 * 512);
  CHECK(seconds("f") == 2 * 512);
  CHECK(seconds("out") == 512 / 2);  // over the link
  CHECK(seconds("away") == 0);
  CHECK(time.copy_seconds(512) == 256);
  const double round = seconds("go") + seconds("next") + seconds("grown");
  CHECK(seconds("loop") == 5 * round);
  CHECK(time.runs(m[find_instruction(m, "grown")].computation) == 5);
  CHECK(time.runs(m.entry) == 1);
  CHECK(time.total() > seconds("loop"));
}
