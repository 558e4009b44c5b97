// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/graph.hpp"

#include <vector>

#include <doctest/doctest.h>

#include "holdfast/graph/graph_builder.hpp"

using namespace holdfast;

namespace {

std::vector<std::uint32_t> numbers(std::span<const NodeId> run) {
  std::vector<std::uint32_t> out;
  for (const NodeId n : run) out.push_back(index_of(n));
  return out;
}
using Numbers = std::vector<std::uint32_t>;

constexpr Graph diamond() {
  GraphBuilder b;
  const NodeId x = b.add_argument(256, "x");
  const NodeId l = b.add({x, x}, 100, "l");
  const NodeId r = b.add({x}, 50, "r");
  const NodeId z = b.add({l, r}, 10, "z");
  b.keep(z);
  return *b.finish();
}
static_assert(diamond().size() == 4 && diamond().held_bytes == 256);
static_assert(diamond()[NodeId{0}].users.count == 2);

}  // namespace

TEST_CASE("graph: users are distinct and ascending, operands keep their repeats") {
  const Graph g = diamond();
  CHECK(numbers(g.users(NodeId{0})) == Numbers{1, 2});
  CHECK(numbers(g.operands(NodeId{1})) == Numbers{0, 0});
  CHECK(g.pending() == Numbers{0, 1, 1, 2});
  CHECK(g.reads(NodeId{1}).size() == 1);
  CHECK(numbers(g.readers(ValueId{1})) == Numbers{3});
  CHECK(g[ValueId{3}].lifetime == Lifetime::output);
  CHECK_FALSE(g.counted(ValueId{0}));
  CHECK(g.counted(ValueId{1}));
}

TEST_CASE("graph: results are what a node defines, then what it forwards") {
  GraphBuilder b;
  const NodeId x = b.add({}, 1);
  b.node(std::vector{x});
  b.define(8), b.define(16), b.forward(ValueId{0});
  const Graph g = *b.finish();
  std::vector<std::uint32_t> seen;
  g.each_result(NodeId{1}, [&](ValueId v) { seen.push_back(index_of(v)); });
  CHECK(seen == Numbers{1, 2, 0});
}
