// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/graph_builder.hpp"

#include <vector>

#include <doctest/doctest.h>

using namespace holdfast;

namespace {

std::vector<std::uint32_t> numbers(std::span<const NodeId> run) {
  std::vector<std::uint32_t> out;
  for (const NodeId n : run) out.push_back(index_of(n));
  return out;
}
using Numbers = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("graph_builder: a view defines nothing, and who reads it reads what it shows") {
  GraphBuilder b;
  const NodeId a = b.add({}, 100);
  const NodeId view = b.add_view(a);
  const NodeId reader = b.add({view}, 10);
  const Graph g = *b.finish();
  CHECK(g[view].values.count == 0);
  CHECK(g.reads(view).empty());
  REQUIRE(g.reads(reader).size() == 1);
  CHECK(g.reads(reader)[0] == ValueId{0});
}

TEST_CASE("graph_builder: other readers of a value come before it is overwritten in place") {
  GraphBuilder b;
  const NodeId a = b.add({}, 100);
  const NodeId over = b.add_in_place({a});
  const NodeId late = b.add({a}, 10);
  const Graph g = *b.finish();
  CHECK(g[ValueId{1}].buffer == g[ValueId{0}].buffer);
  CHECK(numbers(g.controls(over)) == Numbers{index_of(late)});
  CHECK(g.hazards == 0);
}

TEST_CASE("graph_builder: a reader that needs the overwriting node is counted as a hazard") {
  GraphBuilder b;
  const NodeId a = b.add({}, 100);
  const NodeId over = b.add_in_place({a});
  b.add({a, over}, 10);
  const Graph g = *b.finish();
  CHECK(g.hazards == 1);
  CHECK(g.controls(over).empty());
}

TEST_CASE("graph_builder: only values of the same size that the node reads may be overwritten") {
  GraphBuilder b;
  const NodeId a = b.add({}, 100), c = b.add({}, 50), d = b.add({}, 100);
  const NodeId n = b.add({a, c}, 100);
  b.may_reuse(n, a), b.may_reuse(n, c), b.may_reuse(n, d);
  const Graph g = *b.finish();
  REQUIRE(g.reuses(ValueId{3}).size() == 1);
  CHECK(g.reuses(ValueId{3})[0] == ValueId{0});
}

TEST_CASE("graph_builder: values of one buffer count once, as large as the largest") {
  GraphBuilder b;
  const std::uint32_t buffer = b.make_buffer();
  b.node({});
  b.define(100, Lifetime::temporary, buffer);
  b.node(std::vector{NodeId{0}});
  b.read(ValueId{0});
  b.define(60, Lifetime::held, buffer);
  const Graph g = *b.finish();
  CHECK(g.buffers[0].size == 100);
  CHECK(g.buffers[0].members == 2);
  CHECK_FALSE(g.counted(ValueId{0}));
  CHECK(g.held_bytes == 100);
}

TEST_CASE("graph_builder: mistakes are errors, not crashes") {
  const auto code = [](auto make) {
    GraphBuilder b;
    make(b);
    return b.finish().error().code;
  };
  CHECK(code([](GraphBuilder& b) { b.add({NodeId{7}}, 1); }) == Errc::invalid_argument);
  CHECK(code([](GraphBuilder& b) { b.add({NodeId{0}}, 1); }) == Errc::invalid_argument);
  CHECK(code([](GraphBuilder& b) { b.add_view(NodeId{3}); }) == Errc::invalid_argument);
  CHECK(code([](GraphBuilder& b) { b.add_in_place({}); }) == Errc::invalid_argument);
  CHECK(code([](GraphBuilder& b) { b.keep(NodeId{3}); }) == Errc::invalid_argument);
  CHECK(code([](GraphBuilder& b) { b.add({}, -1); }) == Errc::invalid_argument);
  CHECK(code([](GraphBuilder& b) { b.add({}, 1), b.control(NodeId{0}, NodeId{9}); }) ==
        Errc::invalid_argument);
  CHECK(code([](GraphBuilder& b) { b.add({}, 1), b.control(NodeId{0}, NodeId{0}); }) ==
        Errc::invalid_argument);
  CHECK(code([](GraphBuilder& b) {
          b.add({}, 1), b.add({NodeId{0}}, 1), b.control(NodeId{1}, NodeId{0});
        }) == Errc::invalid_argument);
  CHECK(code([](GraphBuilder& b) { b.node({}), b.read(ValueId{4}); }) == Errc::invalid_argument);
  CHECK(code([](GraphBuilder& b) { b.node({}), b.define(1, Lifetime::temporary, 12); }) ==
        Errc::invalid_argument);
  CHECK(code([](GraphBuilder& b) { b.add({}, 1), b.back().transient = -1; }) ==
        Errc::invalid_argument);
  CHECK(code([](GraphBuilder& b) { b.add({}, 1), b.set_root(NodeId{5}); }) ==
        Errc::invalid_argument);
  CHECK(code([](GraphBuilder& b) { b.add({}, max_bytes), b.add({}, max_bytes); }) ==
        Errc::over_budget);
  CHECK(code([](GraphBuilder& b) { b.add({}, 1); }) == Errc::ok);
}

TEST_CASE("graph_builder: nodes and values may be named before they are added") {
  GraphBuilder b;
  b.node(std::vector{NodeId{1}});
  b.read(ValueId{1});
  b.define(8);
  b.node({});
  b.define(16);
  const Result<Graph> g = b.finish();
  REQUIRE(g.ok());
  CHECK(numbers(g->users(NodeId{1})) == Numbers{0});
  CHECK(numbers(g->readers(ValueId{1})) == Numbers{0});
}
