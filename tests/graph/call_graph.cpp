// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/call_graph.hpp"

#include <doctest/doctest.h>

#include <string>

#include "holdfast/hlo/parser.hpp"

using namespace holdfast;

namespace {

CallContext context_of(const Module& m, const CallGraph& g, std::string_view name) {
  for (std::uint32_t c = 0; c < m.computations.size(); ++c)
    if (m.computations[c].name == name) return g.context[c];
  FAIL("no computation " << std::string(name));
  return CallContext::dead;
}

}  // namespace

TEST_CASE("call_graph: contexts are dead, frame, flat and embedded (passes.md 3.1, 9.1)") {
  const std::string text = R"(HloModule m
unused { a = f32[] parameter(0) }
sum { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
once { x = f32[4]{0} parameter(0)
 ROOT y = f32[4]{0} negate(x) }
twice { x = f32[4]{0} parameter(0)
 ROOT y = f32[4]{0} negate(x) }
ENTRY e {
  p = f32[4]{0} parameter(0)
  z = f32[] constant(0)
  q = f32[4]{0} call(p), to_apply=once
  r = f32[4]{0} call(q), to_apply=twice
  t = f32[4]{0} call(r), to_apply=twice
  ROOT u = f32[] reduce(t, z), dimensions={0}, to_apply=sum
})";
  const Result<Module> m = parse_hlo_text(text);
  if (!m.ok()) FAIL(m.error().what);
  const Result<CallGraph> g = make_call_graph(*m);
  REQUIRE(g.ok());
  CHECK(context_of(*m, *g, "unused") == CallContext::dead);
  CHECK(context_of(*m, *g, "sum") == CallContext::embedded);
  CHECK(context_of(*m, *g, "once") == CallContext::flat);
  CHECK(context_of(*m, *g, "twice") == CallContext::frame);
  CHECK(context_of(*m, *g, "e") == CallContext::frame);
  CHECK(g->is_planned(m->entry));
}

TEST_CASE("call_graph: a computation that is both called and embedded is refused") {
  const std::string text = R"(HloModule m
f { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
  p = f32[4]{0} parameter(0)
  z = f32[] constant(0)
  u = f32[] reduce(p, z), dimensions={0}, to_apply=f
  ROOT v = f32[] call(u, z), to_apply=f
})";
  const Result<Module> m = parse_hlo_text(text);
  if (!m.ok()) FAIL(m.error().what);
  const Result<CallGraph> g = make_call_graph(*m);
  REQUIRE_FALSE(g.ok());
  CHECK(g.error().code == Errc::unsupported);
}
