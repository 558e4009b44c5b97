// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/alias.hpp"

#include <doctest/doctest.h>

#include "support/planned.hpp"

using namespace holdfast;
using holdfast::testing::Planned;

TEST_CASE("alias: a tuple element keeps its value through tuple and get-tuple-element (T3.1)") {
  const Planned p(R"(HloModule m
ENTRY e {
  a = f32[4]{0} parameter(0)
  b = f32[4]{0} parameter(1)
  t = (f32[4]{0}, f32[4]{0}) tuple(a, b)
  g = f32[4]{0} get-tuple-element(t), index=1
  ROOT r = f32[4]{0} negate(g)
})");
  CHECK(p.value("b") == p.value("g"));
  CHECK(p.value("b") == p.value("t", 2));
  CHECK(p.value("a") == p.value("t", 1));
  CHECK(p.values[p.value("t")].instruction == p.find("t"));
  CHECK(p.value("t") != p.value("b"));
}

constexpr std::string_view loop_text = R"(HloModule m, is_scheduled=true
cond {
  c = (s32[], f32[8]{0}) parameter(0)
  ci = s32[] get-tuple-element(c), index=0
  n = s32[] constant(4)
  ROOT lt = pred[] compare(ci, n), direction=LT
}
body {
  b = (s32[], f32[8]{0}) parameter(0)
  bi = s32[] get-tuple-element(b), index=0
  bx = f32[8]{0} get-tuple-element(b), index=1
  one = s32[] constant(1)
  bn = s32[] add(bi, one)
  NEXT
  ROOT bt = (s32[], f32[8]{0}) tuple(bn, LAST)
}
ENTRY e {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} exponential(x)
  i0 = s32[] constant(0)
  i = s32[] copy(i0)
  init = (s32[], f32[8]{0}) tuple(i, y)
  w = (s32[], f32[8]{0}) while(init), condition=cond, body=body
  ROOT r = f32[8]{0} get-tuple-element(w), index=1
})";

std::string loop_with(std::string_view next, std::string_view last) {
  std::string text(loop_text);
  text.replace(text.find("NEXT"), 4, next);
  text.replace(text.find("LAST"), 4, last);
  return text;
}

TEST_CASE("alias: what a loop passes through unchanged is one value all along (T3.2)") {
  const Planned p(loop_with("", "bx"));
  CHECK(p.value("w", 2) == p.value("y"));
  CHECK(p.value("b", 2) == p.value("y"));
  CHECK(p.value("c", 2) == p.value("y"));
  CHECK(p.value("r") == p.value("y"));
}

TEST_CASE("alias: initial value, carried value, next value and result of a loop share one buffer (T3.3)") {
  const Planned p(loop_with("nx = f32[8]{0} negate(bx)", "nx"));
  CHECK(p.values[p.value("bx")].kind == ValueKind::loop);
  CHECK(p.value("c", 2) == p.value("b", 2));
  CHECK(p.same("y", "bx"));
  CHECK(p.same("nx", "bx"));
  CHECK(p.same("w", "bx", 2));
}

TEST_CASE("alias: copy-start's source is its operand and copy-done is its destination (T3.6)") {
  const Planned p(R"(HloModule m, is_scheduled=true
ENTRY e {
  a = f32[4]{0} parameter(0)
  b = f32[4]{0} negate(a)
  s = (f32[4]{0:S(5)}, f32[4]{0}, u32[]) copy-start(b)
  k = f32[4]{0} negate(a)
  d = f32[4]{0:S(5)} copy-done(s)
  ROOT r = f32[4]{0} negate(k)
})");
  CHECK(p.value("s", 2) == p.value("b"));
  CHECK(p.value("d") == p.value("s", 1));
  CHECK(p.life("b").second == p.step_of("d"));
}

TEST_CASE("alias: an asynchronous slice passes its operand in and its result out (T3.7, T8.14)") {
  const Planned p(R"(HloModule m, is_scheduled=true
ENTRY e {
  v = f32[9]{0} parameter(0)
  i = s32[] parameter(1)
  x = f32[9]{0} negate(v)
  s = ((f32[9]{0}, s32[]), f32[3]{0}, u32[]) dynamic-slice-start(x, i), dynamic_slice_sizes={3}
  k = f32[9]{0} exponential(v)
  d = f32[3]{0} dynamic-slice-done(s)
  ROOT t = (f32[9]{0}, f32[3]{0}) tuple(k, d)
})");
  CHECK(p.value("s", 2) == p.value("x"));
  CHECK(p.life("x").second == p.step_of("d"));
  CHECK(p.value("d") == p.value("s", 4));
  CHECK(p.module[p.values[p.value("d")].instruction].opcode == Opcode::dynamic_slice);
}

TEST_CASE("alias: an aliased output lives in its parameter's memory (T3.8)") {
  const Planned p(R"(HloModule m, is_scheduled=true, input_output_alias={ {0}: (1, {}, must-alias) }
ENTRY e {
  a = f32[4]{0} parameter(0)
  b = f32[4]{0} parameter(1)
  n = f32[4]{0} add(a, b)
  m = f32[4]{0} negate(a)
  ROOT t = (f32[4]{0}, f32[4]{0}) tuple(n, m)
})");
  CHECK(p.same("n", "b"));
  CHECK_FALSE(p.same("m", "a"));
  CHECK(p.location("n").base == Location::Base::parameter);
  CHECK(p.location("m").base == Location::Base::result);
}

TEST_CASE("alias: a body called by two loops is refused as not flat") {
  const std::string text = R"(HloModule m
cond { c = (s32[]) parameter(0)
 ROOT t = pred[] constant(false) }
body { ROOT b = (s32[]) parameter(0) }
ENTRY e {
  a = (s32[]) parameter(0)
  w = (s32[]) while(a), condition=cond, body=body
  ROOT v = (s32[]) while(w), condition=cond, body=body
})";
  const Result<Module> m = parse_hlo_text(text);
  REQUIRE(m.ok());
  const Result<ValueTable> v = analyze_values(*m);
  REQUIRE_FALSE(v.ok());
  CHECK(v.error().code == Errc::unsupported);
}

TEST_CASE("alias: a computation shared by several calls is a frame of its own") {
  const Planned p(R"(HloModule m, is_scheduled=true
f {
  x = f32[64]{0} parameter(0)
  y = f32[64]{0} exponential(x)
  z = f32[64]{0} dot(y, x)
  ROOT q = f32[64]{0} dot(z, y)
}
ENTRY e {
  a = f32[64]{0} parameter(0)
  b = f32[64]{0} call(a), to_apply=f
  ROOT c = f32[64]{0} call(b), to_apply=f
})");
  CHECK(p.live.frames.size() == 2);
  CHECK(p.values.calls[p.module[p.find("y")].computation] == CallContext::frame);
  CHECK(p.heap() == 256 + 512);  // b, and y with z inside the frame; q is written where the caller wants it
}
