// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/shape_table.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/module_generator.hpp"

using namespace holdfast;
using testing::ModuleBuilder;
using testing::Placing;

TEST_CASE("shape_table: equal shapes have one id, and a known one leaves no run behind") {
  ModuleBuilder b;
  const ShapeId a = b.array(ElementType::f32, {2, 3});
  const std::size_t numbers = b.module.shapes.numbers.size();
  CHECK(b.array(ElementType::f32, {2, 3}) == a);
  CHECK(b.module.shapes.numbers.size() == numbers);
  const ShapeId t = b.tuple({a, a});
  const std::size_t children = b.module.shapes.children.size();
  CHECK(b.tuple({a, a}) == t);
  CHECK(b.module.shapes.children.size() == children);
  std::vector<ShapeId> different{
      a,
      t,
      b.array(ElementType::f32, {3, 2}),
      b.array(ElementType::f32, {2, 3}, {{0, 1}}),
      b.array(ElementType::bf16, {2, 3}),
      b.array(ElementType::f32, {2, 3}, {{}, MemorySpace::host}),
      b.array(ElementType::f32, {2, 3}, {{}, MemorySpace::device, {1, 128}}),
      b.array(ElementType::f32, {2, 3}, {{}, MemorySpace::device, {}, 16}),
      b.array(ElementType::f32, {2, 3}, {}, 1),
      b.tuple({}),
      b.tuple({a}),
      b.scalar(ElementType::f32),
      b.token()};
  std::sort(different.begin(), different.end());
  CHECK(std::unique(different.begin(), different.end()) == different.end());
}

TEST_CASE("shape_table: T2.2 a tuple has a pointer table, its leaves their bytes") {
  ModuleBuilder b;
  const ShapeTable& t = b.module.shapes;
  const ShapeId s =
      b.tuple({b.array(ElementType::f32, {3}), b.scalar(ElementType::s8),
               b.tuple({b.array(ElementType::bf16, {2}), b.scalar(ElementType::f32)})});
  CHECK(t.byte_size(s) == 24);
  REQUIRE(t.node_count(s) == 6);
  const Bytes sizes[] = {24, 12, 1, 16, 4, 4};
  for (std::uint32_t n = 0; n < 6; ++n) CHECK(t.byte_size(t.node(s, n)) == sizes[n]);
}

TEST_CASE("shape_table: T2.3 tokens and empty shapes have no bytes, opaque ones a pointer") {
  ModuleBuilder b;
  const ShapeTable& t = b.module.shapes;
  CHECK(t.byte_size(b.token()) == 0);
  CHECK(t.byte_size(b.scalar(ElementType::opaque), 4) == 4);
  CHECK(t.byte_size(b.tuple({})) == 0);
  CHECK(t.byte_size(b.array(ElementType::f32, {0, 9})) == 0);
  CHECK(t.byte_size(b.array(ElementType::f32, {max_bytes, 0, max_bytes})) == 0);
}

TEST_CASE("shape_table: T2.5 a bound counts, an unbounded dimension has no size") {
  ModuleBuilder b;
  const ShapeTable& t = b.module.shapes;
  CHECK(t.byte_size(b.array(ElementType::f32, {12}, {}, 1)) == 48);
  CHECK(t.byte_size(b.array(ElementType::f32, {unbounded_dimension}, {}, 1)) == -1);
  CHECK(t.byte_size(b.array(ElementType::f32, {max_bytes, 2})) == -1);
  CHECK(t.byte_size(b.array(ElementType::f64, {max_bytes / 4})) == -1);
}

TEST_CASE("shape_table: nodes and shape indices are two names of one thing") {
  ModuleBuilder b;
  const ShapeTable& t = b.module.shapes;
  const ShapeId f = b.scalar(ElementType::f32), u = b.scalar(ElementType::u8);
  const ShapeId inner = b.tuple({u, b.tuple({}), f});
  const ShapeId s = b.tuple({f, inner, b.tuple({inner, u})});
  REQUIRE(t.node_count(s) == 12);
  for (std::uint32_t n = 0; n < t.node_count(s); ++n) {
    std::vector<std::int64_t> path;
    t.path_of_node(s, n, path);
    CHECK(t.node_of_path(s, path) == n);
    ShapeId at = s;
    for (const std::int64_t k : path) at = t.children_of(at)[static_cast<std::size_t>(k)];
    CHECK(at == t.node(s, n));
  }
  for (const std::vector<std::int64_t>& wrong :
       {std::vector<std::int64_t>{3}, {0, 0}, {-1}, {1, 3}, {2, 0, 1, 0}})
    CHECK(t.node_of_path(s, wrong) == t.node_count(s));
}

TEST_CASE("shape_table: compatible shapes differ in layouts and dynamic flags only") {
  ModuleBuilder b;
  const ShapeTable& t = b.module.shapes;
  const ShapeId a = b.array(ElementType::f32, {2, 3}),
                c = b.array(ElementType::f32, {2, 3}, {{0, 1}, MemorySpace::host});
  CHECK(t.compatible(a, c));
  CHECK(t.compatible(b.tuple({a, c}), b.tuple({c, a})));
  CHECK_FALSE(t.compatible(a, b.array(ElementType::f32, {3, 2})));
  CHECK(t.compatible(a, b.array(ElementType::f32, {2, 3}, {}, 1)));
  CHECK_FALSE(t.compatible(a, b.array(ElementType::f32, {unbounded_dimension, 3}, {}, 1)));
  CHECK_FALSE(t.compatible(a, b.array(ElementType::s32, {2, 3})));
  CHECK_FALSE(t.compatible(b.tuple({a}), b.tuple({a, a})));
  CHECK_FALSE(t.compatible(b.tuple({a, b.tuple({a})}), b.tuple({b.tuple({a}), a})));
}

TEST_CASE("shape_table: ranks above 64 and tuples beyond the limit of nodes are over budget") {
  ModuleBuilder b;
  ShapeTable& t = b.module.shapes;
  const auto mark = static_cast<std::uint32_t>(t.numbers.size());
  t.numbers.resize(mark + 65, 1);
  Shape s;
  s.type = ElementType::f32;
  s.dimensions = {mark, 65};
  CHECK(t.intern(s, mark).error().code == Errc::over_budget);
  t.node_limit = t.nodes.size() + 3;
  const ShapeId u = b.scalar(ElementType::u8);
  CHECK(index_of(b.tuple({u, u})) > 0);
  t.children.push_back(u);
  CHECK(t.intern_tuple(static_cast<std::uint32_t>(t.children.size() - 1)).error().code ==
        Errc::over_budget);
}

TEST_CASE(
    "shape_table: shapes that differ in any one part of the layout have different hashes, so a "
    "table of them stays fast") {
  ModuleBuilder b;
  ShapeTable& t = b.module.shapes;
  for (std::int64_t i = 0; i < 20000; ++i) {
    const auto mark = static_cast<std::uint32_t>(t.numbers.size());
    t.numbers.push_back(8);
    Shape s;
    s.type = ElementType::f32;
    s.dimensions = {mark, 1};
    Layout l;
    if (i % 2 == 0)
      l.prefix_bytes = i;
    else
      l.tail_padding = i + 1;
    CHECK(t.intern(s, mark, &l).ok());
  }
  CHECK(t.shapes.size() == 20000);
}
