// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/padded_size.hpp"

#include <doctest/doctest.h>

#include "holdfast/hlo/parser.hpp"

using namespace holdfast;

namespace {

struct Sizes {
  Bytes natural = -2;
  Bytes padded = -2;
};

Sizes sizes_of(std::string_view shape) {
  const std::string text = "HloModule m\nENTRY e { ROOT p = " + std::string(shape) + " parameter(0) }";
  const Result<Module> m = parse_hlo_text(text);
  if (!m.ok()) FAIL(m.error().what);
  const ShapeId id = m->instructions[0].shape;
  const Result<Bytes> padded = padded_size(m->shapes, id);
  return {m->shapes.byte_size(id), padded.ok() ? *padded : -1};
}

}  // namespace

TEST_CASE("padded_size: elements take whole bytes unless the layout packs them (T2.1)") {
  CHECK(sizes_of("f32[3,5]").natural == 60);
  CHECK(sizes_of("pred[9]").natural == 9);
  CHECK(sizes_of("s4[7]").natural == 7);
  CHECK(sizes_of("s4[7]{0:E(4)}").natural == 4);
  CHECK(sizes_of("u2[5]{0:E(2)}").natural == 2);
  CHECK(sizes_of("f4e2m1fn[3]{0:E(4)}").natural == 2);
}

TEST_CASE("padded_size: dimensions are rounded up to the first tile (T2.4, case 15)") {
  const Sizes s = sizes_of("bf16[10,130]{1,0:T(8,128)}");
  CHECK(s.natural == 2600);
  CHECK(s.padded == 8192);
  CHECK(sizes_of("bf16[3,130]{1,0:T(8,128)(2,1)S(1)}").padded == 4096);
}

TEST_CASE("padded_size: a tile wider than the array, splits and tail padding count") {
  CHECK(sizes_of("f32[5]{0:T(8,128)}").padded == 8 * 128 * 4);
  CHECK(sizes_of("f32[8]{0:SC(0:3,5)}").padded == 3 * 4);
  CHECK(sizes_of("f32[10]{0:L(8)}").padded == 16 * 4);
  CHECK(sizes_of("f32[?,4]").padded == -1);
}
