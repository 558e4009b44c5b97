// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/make_shape.hpp"

#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "support/hlo.hpp"

using namespace holdfast;
using testing::parse;
using testing::shape_text;

namespace {

constexpr std::string_view text = R"(
ENTRY e { a = f32[3,5]{0,1:T(2,128)S(1)SC(0:1)} parameter(0)
  b = (f32[2]{0}, (s32[], token[]), f32[2]{0:S(5)}) parameter(1)
  c = f32[2]{0:S(5)} get-tuple-element(b), index=2
  ROOT r = f32[2]{0} copy(c) })";

ShapeId shape_named(const Module& m, std::string_view name) {
  return m[testing::find_instruction(m, name)].shape;
}

}  // namespace

TEST_CASE(
    "make_shape: a space is changed and nothing else, and the shape of before is found again") {
  Module m = parse(text);
  const ShapeId a = shape_named(m, "a");
  const Result<ShapeId> moved = with_space(m.shapes, a, MemorySpace::host);
  REQUIRE(moved.ok());
  CHECK(shape_text(m, *moved) == "f32[3,5]{0,1:T(2,128)S(5)SC(0:1)}");
  CHECK(*with_space(m.shapes, *moved, MemorySpace::fast) == a);
  CHECK(*with_placement(m.shapes, a, {}) != a);
  CHECK(shape_text(m, *with_placement(m.shapes, a, {})) == "f32[3,5]{0,1:T(2,128)}");
  CHECK(same_placement(m.shapes, placement_of(m.shapes, a),
                       {MemorySpace::fast, placement_of(m.shapes, *moved).splits}));
  CHECK(!same_placement(m.shapes, placement_of(m.shapes, a), placement_of(m.shapes, *moved)));
  CHECK(!same_placement(m.shapes, placement_of(m.shapes, a), {MemorySpace::fast, {}}));
  CHECK(*with_space(m.shapes, shape_named(m, "r"), MemorySpace::host) == shape_named(m, "c"));
}

TEST_CASE("make_shape: an array without a layout gets the row-major one") {
  ParseOptions options;
  options.default_layouts = false;
  constexpr std::string_view bare = "ENTRY e { ROOT a = f32[3,5] parameter(0) }";
  Module m = parse(bare, options);
  CHECK(placement_of(m.shapes, m.instructions[0].shape).space == MemorySpace::device);
  CHECK(shape_text(m, *with_space(m.shapes, m.instructions[0].shape, MemorySpace::host)) ==
        "f32[3,5]{1,0:S(5)}");
}

TEST_CASE("make_shape: tuples and scalars are those that the text has") {
  Module m = parse(text);
  const ShapeId b = shape_named(m, "b");
  CHECK(*make_tuple_shape(m.shapes, m.shapes.children_of(b)) == b);
  const ShapeId pair = m.shapes.node(b, 2);
  CHECK(m.shapes.is_tuple(pair));
  CHECK(*make_scalar(m.shapes, ElementType::s32) == m.shapes.children_of(pair)[0]);
  CHECK(shape_text(m, *make_tuple_shape(m.shapes, {})) == "()");
}

TEST_CASE("make_shape: leaves are made anew where they are, tokens too, and errors come through") {
  Module m = parse(text);
  const ShapeId b = shape_named(m, "b");
  std::vector<std::uint32_t> nodes;
  const Result<ShapeId> made =
      map_leaves(m.shapes, b, [&](std::uint32_t n, ShapeId leaf) -> Result<ShapeId> {
        nodes.push_back(n);
        if (m.shapes[leaf].type != ElementType::f32) return leaf;
        return with_space(m.shapes, leaf, MemorySpace::fast);
      });
  REQUIRE(made.ok());
  CHECK(shape_text(m, *made) == "(f32[2]{0:S(1)}, (s32[], token[]), f32[2]{0:S(1)})");
  CHECK(nodes == std::vector<std::uint32_t>{5, 4, 3, 1});
  CHECK(*map_leaves(m.shapes, b,
                    [](std::uint32_t, ShapeId leaf) -> Result<ShapeId> { return leaf; }) == b);
  CHECK(map_leaves(m.shapes, b,
                   [](std::uint32_t, ShapeId) -> Result<ShapeId> {
                     return make_error(Errc::unsupported, "no");
                   })
            .error()
            .code == Errc::unsupported);
}

namespace {

constexpr bool moves_in_a_constant_expression() {
  Result<Module> m = parse_hlo_text(text);
  const Result<ShapeId> moved = with_space(m->shapes, m->instructions[0].shape, MemorySpace::host);
  return m->shapes.space(*moved) == MemorySpace::host;
}
static_assert(moves_in_a_constant_expression());

}  // namespace
