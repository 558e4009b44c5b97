// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/module_graph.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/hlo/parser.hpp"

using namespace holdfast;

namespace {

/// A module with its values, and the graph of one of its computations.
struct Case {
  Module module;
  ValueTable values;

  explicit Case(std::string_view text) {
    Result<Module> m = parse_hlo_text(text);
    REQUIRE(m.ok());
    module = std::move(*m);
    Result<ValueTable> v = analyze_values(module);
    REQUIRE(v.ok());
    values = std::move(*v);
  }
  [[nodiscard]] ComputationId computation(std::string_view name) const {
    for (std::uint32_t c = 0; c < module.computations.size(); ++c)
      if (module.computations[c].name == name) return ComputationId{c};
    return no_id<ComputationId>;
  }
  [[nodiscard]] Graph graph(std::string_view name, const ModuleGraphOptions& options = {},
                            std::vector<CalleeMemory> needs = {}) const {
    needs.resize(module.computations.size(), CalleeMemory{});
    Result<Graph> g = ModuleGraphs<>(module, values, options).make(computation(name), needs);
    REQUIRE(g.ok());
    return std::move(*g);
  }
};
NodeId node(const Graph& g, std::string_view name) {
  for (std::uint32_t n = 0; n < g.size(); ++n)
    if (g.nodes[n].name == name) return NodeId{n};
  return no_id<NodeId>;
}
Bytes defined(const Graph& g, std::string_view name) {
  Bytes sum = 0;
  const IndexRange r = g[node(g, name)].values;
  for (std::uint32_t v = r.begin; v < r.end(); ++v) sum += g.values[v].size;
  return sum;
}
ValueId only_value(const Graph& g, std::string_view name) {
  REQUIRE(g[node(g, name)].values.count == 1);
  return ValueId{g[node(g, name)].values.begin};
}

constexpr std::string_view t7_1 = R"(HloModule t7_1
ENTRY main {
  x = f32[64] parameter(0)
  u = f32[64] abs(x)
  v = f32[64] exponential(x)
  s = f32[64] add(u, v)
  t = f32[64] negate(v)
  ROOT r = f32[64] subtract(s, t)
}
)";

constexpr std::string_view loop = R"(HloModule loop
sum {
  s.a = f32[] parameter(0)
  s.b = f32[] parameter(1)
  ROOT s.add = f32[] add(s.a, s.b)
}
cond {
  c.p = (s32[], f32[256]) parameter(0)
  c.i = s32[] get-tuple-element(c.p), index=0
  c.n = s32[] constant(10)
  ROOT c.lt = pred[] compare(c.i, c.n), direction=LT
}
body {
  b.p = (s32[], f32[256]) parameter(0)
  b.i = s32[] get-tuple-element(b.p), index=0
  b.x = f32[256] get-tuple-element(b.p), index=1
  b.one = s32[] constant(1)
  b.next = s32[] add(b.i, b.one)
  b.y = f32[256] negate(b.x)
  b.z = f32[256] multiply(b.y, b.y)
  ROOT b.r = (s32[], f32[256]) tuple(b.next, b.z)
}
ENTRY main {
  n = s32[] parameter(0)
  x = f32[256] parameter(1)
  y = f32[256] negate(x)
  init = (s32[], f32[256]) tuple(n, y)
  w = (s32[], f32[256]) while(init), condition=cond, body=body
  z = f32[256] get-tuple-element(w), index=1
  zero = f32[] constant(0)
  ROOT out = f32[] reduce(z, zero), dimensions={0}, to_apply=sum
}
)";

}  // namespace

TEST_CASE("module_graph: values, readers and overwriting of T7.1 come from the module") {
  const Graph g = Case(t7_1).graph("main");
  CHECK(g.held_bytes == 512);  // the argument and the result
  CHECK(g[only_value(g, "x")].lifetime == Lifetime::held);
  CHECK(g[only_value(g, "r")].lifetime == Lifetime::held);
  CHECK(g[only_value(g, "u")].lifetime == Lifetime::temporary);
  CHECK(g.reuses(only_value(g, "s")).size() == 2);
  CHECK(g.root == node(g, "r"));
  CHECK(Case(t7_1).graph("main", {.outputs_held = false}).held_bytes == 256);
}

TEST_CASE("module_graph: sizes are rounded up to the alignment, or a user's own") {
  const Case c(
      "HloModule m\nENTRY main {\n x = f32[3] parameter(0)\n y = f32[3] negate(x)\n ROOT z = "
      "f32[3] exponential(y)\n}\n");
  CHECK(defined(c.graph("main"), "y") == 64);
  CHECK(defined(c.graph("main", {.alignment = 1}), "y") == 12);
  const auto triple = [](const ShapeTable& t, ShapeId s) { return t.byte_size(s) * 3; };
  ModuleGraphs graphs(c.module, c.values, {.alignment = 1}, triple);
  const std::vector<CalleeMemory> needs(c.module.computations.size());
  CHECK(defined(*graphs.make(c.module.entry, needs), "y") == 36);
}

TEST_CASE(
    "module_graph: forwarding operations read nothing, XLA's rule reads what stands in a tuple") {
  const Case c(
      "HloModule m\nENTRY main {\n x = f32[64] parameter(0)\n y = f32[64] negate(x)\n t = "
      "(f32[64], f32[64]) tuple(x, y)\n"
      " g = f32[64] get-tuple-element(t), index=1\n ROOT z = f32[64] exponential(g)\n}\n");
  const Graph ours = c.graph("main");
  CHECK(ours.reads(node(ours, "t")).empty());
  CHECK(ours.reads(node(ours, "z")).size() == 1);
  CHECK(defined(ours, "t") == 0);
  const Graph xla = c.graph("main", {.alignment = 1, .compat = true});
  CHECK(xla.reads(node(xla, "t")).size() == 2);
  CHECK(xla.reads(node(xla, "g")).size() == 2);
  CHECK(defined(xla, "t") == 16);
}

TEST_CASE(
    "module_graph: a loop's body shares buffers with what is carried, its peak is transient for "
    "the while") {
  const Case c(loop);
  const Graph body = c.graph("body");
  const IndexRange carried = body[node(body, "b.p")].values;
  REQUIRE(carried.count == 2);
  CHECK(body.values[carried.begin + 1].buffer == body[only_value(body, "b.z")].buffer);
  CHECK(body.values[carried.begin + 1].lifetime == Lifetime::temporary);
  CHECK(body[only_value(body, "b.z")].lifetime == Lifetime::output);
  CHECK(body.hazards == 0);
  const Graph condition = c.graph("cond");
  CHECK(condition.values[condition[node(condition, "c.p")].values.begin].lifetime ==
        Lifetime::held);
  std::vector<CalleeMemory> needs(c.module.computations.size());
  needs[index_of(c.computation("body"))] = {64 + 1024 + 4096, 64 + 1024 + 1024};
  needs[index_of(c.computation("cond"))] = {64, 64};
  const Graph entry = c.graph("main", {}, needs);
  CHECK(entry[node(entry, "w")].transient == 4096);
  CHECK(entry[node(entry, "w")].slack == 3072);
  CHECK(defined(entry, "w") == 64 + 1024);
  const ValueId result{entry[node(entry, "w")].values.begin + 1};
  REQUIRE(entry.reuses(result).size() == 1);
  CHECK(entry.reuses(result)[0] == only_value(entry, "y"));
}

TEST_CASE("module_graph: readers of a donated parameter come before its memory is written") {
  const Case c(
      "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }\nENTRY main {\n x = f32[64] "
      "parameter(0)\n y = f32[64] negate(x)\n"
      " z = f32[64] exponential(x)\n w = f32[64] add(y, z)\n ROOT r = f32[64] add(w, y)\n}\n");
  const Graph g = c.graph("main");
  CHECK(g[only_value(g, "r")].buffer == g[only_value(g, "x")].buffer);
  REQUIRE(g.controls(node(g, "r")).size() == 2);
  CHECK(g.held_bytes == 256);
  CHECK(c.graph("main", {.outputs_held = false})[only_value(g, "x")].lifetime ==
        Lifetime::temporary);
}

TEST_CASE("module_graph: a call defines what its callee returns and may write over its operand") {
  const Case c(R"(HloModule m
callee {
  p = f32[64] parameter(0)
  ROOT n = f32[64] negate(p)
}
ENTRY main {
  x = f32[64] parameter(0)
  y = f32[64] exponential(x)
  z = f32[64] call(y), to_apply=callee
  ROOT r = f32[64] exponential(z)
}
)");
  const Graph callee = c.graph("callee");
  CHECK(callee[only_value(callee, "p")].lifetime == Lifetime::held);
  CHECK(callee[only_value(callee, "n")].lifetime == Lifetime::output);
  std::vector<CalleeMemory> needs(c.module.computations.size());
  needs[index_of(c.computation("callee"))] = {256 + 700, 256};
  const Graph g = c.graph("main", {}, needs);
  CHECK(defined(g, "z") == 256);
  CHECK(g[node(g, "z")].transient == 700);
  REQUIRE(g.reuses(only_value(g, "z")).size() == 1);
  CHECK(g.reuses(only_value(g, "z"))[0] == only_value(g, "y"));
}

TEST_CASE("module_graph: scalars come first, configured feeds early and late") {
  const Case c(R"(HloModule m
ENTRY main {
  x = f32[64] parameter(0)
  s = f32[1,1] slice(x), slice={[0:1]}
  k = token[] after-all()
  in = ((f32[64]), token[]) infeed(k), infeed_config="late"
  out = token[] outfeed(x, k), outfeed_config="early"
  ROOT r = f32[64] negate(x)
}
)");
  const Graph g = c.graph("main");
  CHECK(g[node(g, "s")].urgency == Urgency::first);
  CHECK(g[node(g, "in")].urgency == Urgency::late);
  CHECK(g[node(g, "out")].urgency == Urgency::early);
  CHECK(g[node(g, "r")].urgency == Urgency::normal);
}
