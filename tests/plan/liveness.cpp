// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/liveness.hpp"

#include <doctest/doctest.h>

#include "support/planned.hpp"

using namespace holdfast;
using holdfast::testing::Planned;

namespace {

constexpr std::string_view loop = R"(HloModule m, is_scheduled=true
cond {
  c = (s32[], f32[256]{0}) parameter(0)
  ci = s32[] get-tuple-element(c), index=0
  n = s32[] constant(4)
  ROOT lt = pred[] compare(ci, n), direction=LT
}
body {
  b = (s32[], f32[256]{0}) parameter(0)
  bi = s32[] get-tuple-element(b), index=0
  bx = f32[256]{0} get-tuple-element(b), index=1
  one = s32[] constant(1)
  bn = s32[] add(bi, one)
  nx = f32[256]{0} negate(bx)
  ROOT bt = (s32[], f32[256]{0}) tuple(bn, nx)
}
ENTRY e {
  x = f32[256]{0} parameter(0)
  i0 = s32[] parameter(1)
  y = f32[256]{0} exponential(x)
  i = s32[] copy(i0)
  init = (s32[], f32[256]{0}) tuple(i, y)
  w = (s32[], f32[256]{0}) while(init), condition=cond, body=body
  g = f32[256]{0} get-tuple-element(w), index=1
  ROOT r = f32[256]{0} cosine(g)
})";

}  // namespace

TEST_CASE("liveness: a loop is laid out as condition, body, end, and its initial value ends where it begins (T8.10)") {
  const Planned p(loop);
  const std::uint32_t enter = p.step_of("w", StepKind::loop_enter);
  CHECK(p.life("y").second == enter);
  CHECK(p.life("bx").first == enter);
  CHECK(p.step_of("lt") < p.step_of("w", StepKind::loop_test));
  CHECK(p.step_of("w", StepKind::loop_test) < p.step_of("nx"));
  CHECK(p.step_of("nx") < p.step_of("w", StepKind::loop_back));
  CHECK(p.life("w", 2).first == p.step_of("w", StepKind::loop_exit));
  CHECK(p.heap() <= 1024 + 8 + 1);  // one array, a counter, a predicate
}

TEST_CASE("liveness: what a loop only reads is needed until its last round") {
  const Planned p(R"(HloModule m, is_scheduled=true
cond { c = (f32[8]{0}, f32[8]{0}) parameter(0)
 ROOT t = pred[] custom-call(), custom_call_target="more" }
body {
  b = (f32[8]{0}, f32[8]{0}) parameter(0)
  u = f32[8]{0} get-tuple-element(b), index=0
  k = f32[8]{0} get-tuple-element(b), index=1
  s = f32[8]{0} add(u, k)
  q = f32[8]{0} dot(s, s)
  ROOT bt = (f32[8]{0}, f32[8]{0}) tuple(q, k)
}
ENTRY e {
  x = f32[8]{0} parameter(0)
  a = f32[8]{0} exponential(x)
  k0 = f32[8]{0} cosine(x)
  i = (f32[8]{0}, f32[8]{0}) tuple(a, k0)
  w = (f32[8]{0}, f32[8]{0}) while(i), condition=cond, body=body
  ROOT r = f32[8]{0} get-tuple-element(w), index=0
})");
  CHECK(p.life("k0").second == p.step_of("w", StepKind::loop_back));
}

TEST_CASE("liveness: a swap in a loop goes through one spare place, and a rotation of three as well") {
  const auto rotate = [](int n) {
    std::string shape = "(";
    std::string init;
    std::string root;
    std::string elements;
    for (int k = 0; k < n; ++k) {
      const std::string s = std::to_string(k);
      shape += (k ? ", " : "") + std::string("f32[8]{0}");
      init += "  a" + s + " = f32[8]{0} " + (k ? "cosine" : "exponential") + "(x)\n";
      elements += "  el" + s + " = f32[8]{0} get-tuple-element(b), index=" + s + "\n";
      root += (k ? ", el" : "el") + std::to_string((k + 1) % n);
    }
    shape += ")";
    std::string names;
    for (int k = 0; k < n; ++k) names += (k ? ", a" : "a") + std::to_string(k);
    return "HloModule m, is_scheduled=true\ncond { c = " + shape + " parameter(0)\n ROOT t = pred[] custom-call(), custom_call_target=\"more\" }\nbody {\n  b = " +
           shape + " parameter(0)\n" + elements + "  ROOT bt = " + shape + " tuple(" + root + ")\n}\nENTRY e {\n  x = f32[8]{0} parameter(0)\n" + init +
           "  i = " + shape + " tuple(" + names + ")\n  ROOT w = " + shape + " while(i), condition=cond, body=body\n}\n";
  };
  for (const int n : {2, 3}) {
    const Planned p(rotate(n));
    int spares = 0;
    for (const Place& place : p.live.places) spares += place.kind == PlaceKind::spare;
    CHECK(spares == 1);
    const Step& back = p.live.steps[p.live.frames.back().steps.begin + p.step_of("w", StepKind::loop_back)];
    CHECK(p.live.moves_of(back).size() == static_cast<std::size_t>(n) + 1);
  }
}

TEST_CASE("liveness: a call's argument is needed until its last use inside the callee (T8.11)") {
  const Planned p(R"(HloModule m, is_scheduled=true
f {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} dot(x, x)
  z = f32[8]{0} dot(y, y)
  ROOT q = f32[8]{0} dot(z, z)
}
ENTRY e {
  a = f32[8]{0} parameter(0)
  b = f32[8]{0} exponential(a)
  ROOT c = f32[8]{0} call(b), to_apply=f
})");
  CHECK(p.value("b") == p.value("x"));
  CHECK(p.life("b").second == p.step_of("y"));
}

TEST_CASE("liveness: results live to the end, aliased parameters end at their last use (T8.12)") {
  const Planned p(R"(HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY e {
  a = f32[8]{0} parameter(0)
  k = f32[8]{0} parameter(1)
  n = f32[8]{0} dot(a, k)
  m = f32[8]{0} dot(n, n)
  o = f32[8]{0} dot(m, m)
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(o, n)
})");
  const std::uint32_t last = static_cast<std::uint32_t>(p.live.steps_of(p.live.frames.back()).size()) - 1;
  CHECK(p.life("o").second == last);
  CHECK(p.life("n").second == last);
  CHECK(p.life("a").second == p.step_of("n"));
  CHECK(p.same("o", "a"));
}

TEST_CASE("liveness: a chain of in-place updates needs its base once (T8.13)") {
  const Planned p(R"(HloModule m, is_scheduled=true
ENTRY e {
  x = f32[262144]{0} parameter(0)
  u = f32[2]{0} parameter(1)
  i = s32[] parameter(2)
  b = f32[262144]{0} exponential(x)
  upd1 = f32[262144]{0} dynamic-update-slice(b, u, i)
  upd2 = f32[262144]{0} dynamic-update-slice(upd1, u, i)
  ROOT r = f32[] custom-call(upd2), custom_call_target="sum"
})");
  CHECK(p.heap() == 1 << 20);
  CHECK(p.same("b", "upd2"));
}

TEST_CASE("liveness: aliased outputs that cross swap their parameters through one spare (case 23 crossing)") {
  const Planned p(R"(HloModule crossing, input_output_alias={ {0}: (0, {0}, may-alias), {1}: (0, {1}, may-alias) }
ENTRY %main (p: (f32[8], f32[8])) -> (f32[8], f32[8]) {
  %p = (f32[8]{0}, f32[8]{0}) parameter(0)
  %second = f32[8]{0} get-tuple-element(%p), index=1
  %first = f32[8]{0} get-tuple-element(%p), index=0
  ROOT %t = (f32[8]{0}, f32[8]{0}) tuple(%second, %first)
})");
  CHECK(p.heap() == 32);
  CHECK(p.live.moves_of(p.live.steps.back()).size() == 3);
}

TEST_CASE("liveness: a value read by a loop is still updated in the donated memory (T9.11, case 23 loop_between)") {
  const Planned p(R"(HloModule loop_between, is_scheduled=true, input_output_alias={ {0}: (0, {}, must-alias) }
%cond (c: (s32[], f32[], f32[1024])) -> pred[] {
  %c = (s32[], f32[], f32[1024]{0}) parameter(0)
  %ci = s32[] get-tuple-element(%c), index=0
  %lim = s32[] constant(4)
  ROOT %lt = pred[] compare(%ci, %lim), direction=LT
}
%body (b: (s32[], f32[], f32[1024])) -> (s32[], f32[], f32[1024]) {
  %b = (s32[], f32[], f32[1024]{0}) parameter(0)
  %bi = s32[] get-tuple-element(%b), index=0
  %one = s32[] constant(1)
  %bn = s32[] add(%bi, %one)
  %bs = f32[] get-tuple-element(%b), index=1
  %bx = f32[1024]{0} get-tuple-element(%b), index=2
  %w = f32[1]{0} dynamic-slice(%bx, %bi), dynamic_slice_sizes={1}
  %ws = f32[] reshape(%w)
  %ns = f32[] add(%bs, %ws)
  ROOT %bt = (s32[], f32[], f32[1024]{0}) tuple(%bn, %ns, %bx)
}
ENTRY %main (x: f32[1024]) -> (f32[1024]) {
  %x = f32[1024]{0} parameter(0)
  %mid = f32[1024]{0} exponential(%x)
  %zero = s32[] constant(0)
  %fz = f32[] constant(0)
  %init = (s32[], f32[], f32[1024]{0}) tuple(%zero, %fz, %mid)
  %loop = (s32[], f32[], f32[1024]{0}) while(%init), condition=%cond, body=%body
  %sum = f32[] get-tuple-element(%loop), index=1
  %same = f32[1024]{0} get-tuple-element(%loop), index=2
  %bc = f32[1024]{0} broadcast(%sum), dimensions={}
  %fin = f32[1024]{0} add(%same, %bc)
  ROOT %t = (f32[1024]{0}) tuple(%fin)
})");
  CHECK(p.same("mid", "x"));
  CHECK(p.same("fin", "x"));
  CHECK(p.heap() <= 4096 + 64);  // the broadcast, which is not fused here, and scalars
}

TEST_CASE("liveness: branches of a conditional may use the same memory for their results") {
  const Planned p(R"(HloModule m, is_scheduled=true
f { x = f32[64]{0} parameter(0)
 ROOT y = f32[64]{0} dot(x, x) }
g { u = f32[64]{0} parameter(0)
 v = f32[64]{0} dot(u, u)
 ROOT z = f32[64]{0} dot(v, v) }
ENTRY e {
  q = pred[] parameter(0)
  a = f32[64]{0} parameter(1)
  b = f32[64]{0} exponential(a)
  c = f32[64]{0} conditional(q, b, b), true_computation=f, false_computation=g
  ROOT r = f32[64]{0} dot(c, c)
})");
  CHECK(p.same("y", "c"));
  CHECK(p.same("z", "c"));
  CHECK(p.heap() == 2 * 256);  // b and v, or v and the result
}
