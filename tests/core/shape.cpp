// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/shape.hpp"

#include <string_view>

#include <doctest/doctest.h>

using namespace holdfast;

static_assert(element_type("bf16") == ElementType::bf16 &&
              element_name(ElementType::opaque) == "opaque");

TEST_CASE("shape: L.1 the types have XLA's numbers, words and widths") {
  struct Row {
    int number;
    std::string_view name;
    int bits;
  };
  constexpr Row rows[] = {
      {1, "pred", 8},        {2, "s8", 8},          {3, "s16", 16},    {4, "s32", 32},
      {5, "s64", 64},        {6, "u8", 8},          {7, "u16", 16},    {8, "u32", 32},
      {9, "u64", 64},        {10, "f16", 16},       {11, "f32", 32},   {12, "f64", 64},
      {15, "c64", 64},       {16, "bf16", 16},      {18, "c128", 128}, {19, "f8e5m2", 8},
      {20, "f8e4m3fn", 8},   {21, "s4", 4},         {22, "u4", 4},     {23, "f8e4m3b11fnuz", 8},
      {24, "f8e5m2fnuz", 8}, {25, "f8e4m3fnuz", 8}, {26, "s2", 2},     {27, "u2", 2},
      {28, "f8e4m3", 8},     {29, "f8e3m4", 8},     {30, "s1", 1},     {31, "u1", 1},
      {32, "f4e2m1fn", 4},   {33, "f8e8m0fnu", 8}};
  for (const Row& row : rows) {
    CAPTURE(row.name);
    const auto type = static_cast<ElementType>(row.number);
    CHECK(element_name(type) == row.name);
    CHECK(element_type(row.name) == type);
    CHECK(bit_width(type) == row.bits);
    CHECK(is_array(type));
  }
  for (const ElementType type : {ElementType::tuple, ElementType::opaque, ElementType::token,
                                 ElementType::buffer, ElementType::invalid})
    CHECK_FALSE(is_array(type));
}

TEST_CASE("shape: words that are no types of the text give invalid") {
  for (const std::string_view word : {"tuple", "buffer", "invalid", "F32", "f33", "", "f32 "})
    CHECK(element_type(word) == ElementType::invalid);
  CHECK(element_type("token") == ElementType::token);
  CHECK(element_type("opaque") == ElementType::opaque);
}

TEST_CASE("shape: T2.1 elements take whole bytes unless the layout packs them") {
  const auto bytes = [](ElementType type, std::int64_t count, std::int64_t bits) {
    Bytes out = -1;
    return elements_to_bytes(type, count, bits, out) ? out : -2;
  };
  CHECK(bytes(ElementType::f32, 15, 0) == 60);
  CHECK(bytes(ElementType::pred, 9, 0) == 9);
  CHECK(bytes(ElementType::s4, 7, 0) == 7);
  CHECK(bytes(ElementType::s4, 7, 4) == 4);
  CHECK(bytes(ElementType::u2, 5, 2) == 2);
  CHECK(bytes(ElementType::f4e2m1fn, 3, 4) == 2);
  CHECK(bytes(ElementType::c128, 0, 0) == 0);
  CHECK(bytes(ElementType::f64, max_bytes / 8, 0) == max_bytes / 8 * 8);
  CHECK(bytes(ElementType::f64, max_bytes / 8 + 1, 0) == -2);
  CHECK(bytes(ElementType::s4, max_bytes, 4) == -2);
}
