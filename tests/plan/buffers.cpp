// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/buffers.hpp"

#include <doctest/doctest.h>

#include "support/planned.hpp"

using namespace holdfast;
using holdfast::testing::Planned;

TEST_CASE("buffers: a product never takes an operand's place, a sum does") {
  const Planned p(R"(HloModule m, is_scheduled=true
ENTRY e {
  x = f32[8]{0} parameter(0)
  a = f32[8]{0} exponential(x)
  b = f32[8]{0} dot(a, x)
  c = f32[8]{0} add(b, x)
  ROOT d = f32[8]{0} dot(c, c)
})");
  CHECK_FALSE(p.same("a", "b"));
  CHECK(p.same("b", "c"));
  CHECK_FALSE(p.same("c", "d"));
}

TEST_CASE("buffers: a value that is read again is not overwritten") {
  const Planned p(R"(HloModule m, is_scheduled=true
ENTRY e {
  x = f32[8]{0} parameter(0)
  a = f32[8]{0} exponential(x)
  b = f32[8]{0} negate(a)
  c = f32[8]{0} dot(a, b)
  ROOT d = f32[8]{0} dot(c, x)
})");
  CHECK_FALSE(p.same("a", "b"));
}

TEST_CASE("buffers: an unaliased parameter is never written, not even where an output is another parameter") {
  const Planned p(R"(HloModule m, is_scheduled=true
ENTRY e {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} parameter(1)
  a = f32[8]{0} negate(x)
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(a, y)
})");
  CHECK_FALSE(p.same("a", "x"));
  CHECK_FALSE(p.same("a", "y"));
  CHECK_FALSE(p.buffers->is_written(p.buffers->root(p.value("x"))));
  CHECK(p.location("a").base == Location::Base::result);
  CHECK(p.location("y").base == Location::Base::parameter);
}

TEST_CASE("buffers: one value returned twice is copied to the second output") {
  const Planned p(R"(HloModule m, is_scheduled=true
ENTRY e {
  x = f32[8]{0} parameter(0)
  a = f32[8]{0} negate(x)
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(a, a)
})");
  const Frame& f = p.live.frames.back();
  REQUIRE(f.results.count == 2);
  const ValueId first = static_cast<ValueId>(f.results.begin);
  const ValueId second = static_cast<ValueId>(f.results.begin + 1);
  CHECK(p.buffers->root(first) != p.buffers->root(second));
  CHECK((p.buffers->root(p.value("a")) == p.buffers->root(first)) != (p.buffers->root(p.value("a")) == p.buffers->root(second)));
}

TEST_CASE("buffers: an elementwise fusion through a bitcast may overwrite, one that moves elements may not") {
  const auto text = [](std::string_view op) {
    return R"(HloModule m, is_scheduled=true
f {
  p = f32[2,8]{1,0} parameter(0)
  q = f32[4,4]{1,0} )" + std::string(op) + R"(
  ROOT n = f32[4,4]{1,0} negate(q)
}
ENTRY e {
  x = f32[2,8]{1,0} parameter(0)
  a = f32[2,8]{1,0} exponential(x)
  b = f32[4,4]{1,0} fusion(a), kind=kLoop, calls=f
  ROOT r = f32[4,4]{1,0} dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})";
  };
  CHECK(Planned(text("bitcast(p)")).same("a", "b"));
  CHECK_FALSE(Planned(text("reshape(p)")).same("a", "b"));
}

TEST_CASE("buffers: an update that a branch makes in place does not disturb the branch that passes the value on") {
  const Planned p(R"(HloModule m, is_scheduled=true, input_output_alias={ {}: (1, {}, must-alias) }
keep { k = f32[64]{0} parameter(0)
 ROOT same = f32[64]{0} bitcast(k) }
change { c = f32[64]{0} parameter(0)
 ROOT n = f32[64]{0} negate(c) }
ENTRY e {
  q = pred[] parameter(0)
  x = f32[64]{0} parameter(1)
  ROOT r = f32[64]{0} conditional(q, x, x), true_computation=keep, false_computation=change
})");
  CHECK(p.same("n", "x"));
  CHECK(p.same("r", "x"));
  CHECK(p.heap() == 0);
}

TEST_CASE("buffers: what an all-reduce cannot reduce in place it needs until it is done") {
  const Planned p(R"(HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, must-alias) }
add { a0 = f32[] parameter(0)
 a1 = f32[] parameter(1)
 ROOT s = f32[] add(a0, a1) }
ENTRY e {
  x = f32[64]{0} parameter(0)
  y = f32[64]{0} exponential(x)
  a = f32[64]{0} all-reduce-start(y), replica_groups={}, to_apply=add
  k = f32[64]{0} dot(x, y)
  z = f32[64]{0} custom-call(k), custom_call_target="z"
  d = f32[64]{0} all-reduce-done(a)
  ROOT t = (f32[64]{0}, f32[64]{0}, f32[64]{0}) tuple(z, d, k)
})");
  CHECK_FALSE(p.same("y", "a"));
  const auto life = p.buffers->pieces(p.buffers->root(p.value("y")));
  CHECK(life.back().end == p.step_of("d") + 1);
}

namespace {

/// An update of `b` in the background, with another reader or another update in its middle.
std::string background(std::string_view middle, std::string_view update = "u") {
  return R"(HloModule m, is_scheduled=true
ENTRY e {
  x = f32[64]{0} parameter(0)
  i = s32[] parameter(1)
  b = f32[64]{0} custom-call(x), custom_call_target="C"
  u = f32[64]{0} custom-call(x), custom_call_target="C"
  s = ((f32[64]{0}, f32[64]{0}, s32[]), f32[64]{0}, u32[]) dynamic-update-slice-start(b, )" +
         std::string(update) + ", i)\n  k = f32[64]{0} custom-call(" + std::string(middle) +
         R"(), custom_call_target="C"
  d = f32[64]{0} dynamic-update-slice-done(s)
  ROOT r = f32[64]{0} custom-call(k, d), custom_call_target="C"
})";
}

}  // namespace

TEST_CASE("buffers: an asynchronous update works in its base's place, and keeps the update until it ends") {
  const Planned p(background("x"));
  CHECK(p.same("b", "d"));
  CHECK_FALSE(p.same("u", "d"));
  CHECK(p.life("u").second == p.step_of("d"));
  CHECK(p.heap() == 4 + 2 * 256);  // context, b with d, u; k waits where the result will be
}

TEST_CASE("buffers: an asynchronous update whose base is read elsewhere has a place of its own") {
  for (const auto& text : {background("b"), background("x", "b")}) {
    const Planned p(text);
    CHECK_FALSE(p.same("b", "d"));
    const auto life = p.buffers->pieces(p.buffers->root(p.value("b")));
    CHECK(life.back().end == p.step_of("d") + 1);
  }
}

TEST_CASE("buffers: of two results of one kernel only one takes an operand's place, though one is dead at once") {
  const Planned p(R"(HloModule m, is_scheduled=true
two { q = f32[64] parameter(0)  n = f32[64] negate(q)  e = f32[64] exponential(q)  ROOT t = (f32[64], f32[64]) tuple(n, e) }
ENTRY e {
  p = f32[64] parameter(0)  a = f32[64] custom-call(p), custom_call_target="C"
  f = (f32[64], f32[64]) fusion(a), kind=kLoop, calls=two  g = f32[64] get-tuple-element(f), index=1
  ROOT z = f32[64] custom-call(g), custom_call_target="C"
})");
  CHECK_FALSE(p.same("f", "f", 1, 2));
}
