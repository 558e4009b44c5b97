// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/array_shape.hpp"

#include <doctest/doctest.h>

#include <initializer_list>
#include <set>

using namespace holdfast;

namespace {
constexpr ArrayShape shape(ElementType type, std::initializer_list<std::int64_t> dimensions) {
  return *ArrayShape::make(type, std::span<const std::int64_t>(dimensions.begin(), dimensions.size()));
}
constexpr ArrayShape tiled() {
  ArrayShape s = shape(ElementType::f32, {3, 130});
  s.tile.push_back(8);
  s.tile.push_back(128);
  return s;
}
}  // namespace

TEST_CASE("array_shape: case 04 item 7, f32[3,130] in tiles of (8,128) takes 8192 bytes, a host provides 1560") {
  static_assert(tiled().device_size() == 8192 && tiled().host_size() == 1560);
  CHECK(tiled().check().ok());
  // Each element has a place of its own inside the padded storage.
  std::set<std::int64_t> places;
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 130; ++j) {
      const std::int64_t index[] = {i, j};
      const std::int64_t at = tiled().element_offset(index);
      CHECK(at >= 0);
      CHECK(at * 4 < 8192);
      places.insert(at);
    }
  CHECK(places.size() == 390);
  const std::int64_t second_tile[] = {1, 129};
  CHECK(tiled().element_offset(second_tile) == 8 * 128 + 128 + 1);
}

TEST_CASE("array_shape: sizes are whole bytes an element for the host, packed or not on the device") {
  static_assert(shape(ElementType::f32, {1, 2, 3}).device_size() == 24);
  static_assert(shape(ElementType::s64, {}).device_size() == 8);
  static_assert(shape(ElementType::f32, {5, 0, 7}).device_size() == 0);
  ArrayShape s4 = shape(ElementType::s4, {16});
  CHECK(s4.device_size() == 16);
  s4.element_bits = 4;
  CHECK(s4.device_size() == 8);
  CHECK(s4.host_size() == 16);
  s4.element_bits = 2;
  CHECK(s4.check().code == Errc::invalid_argument);
  s4.element_bits = 3;
  CHECK(s4.check().code == Errc::invalid_argument);
}

TEST_CASE("array_shape: a layout permutes the places, two shapes are equal only in the same layout") {
  ArrayShape rows = shape(ElementType::s32, {2, 3}), columns = rows;
  columns.minor_to_major.push_back(0);
  columns.minor_to_major.push_back(1);
  const std::int64_t index[] = {1, 2};
  CHECK(rows.element_offset(index) == 5);
  CHECK(columns.element_offset(index) == 5);
  const std::int64_t first[] = {1, 0};
  CHECK(rows.element_offset(first) == 3);
  CHECK(columns.element_offset(first) == 1);
  CHECK(rows.same_array(columns));
  CHECK(!(rows == columns));
  ArrayShape named = rows;
  named.minor_to_major.push_back(1);
  named.minor_to_major.push_back(0);
  CHECK(named == rows);
}

TEST_CASE("array_shape: what is no array, has a negative dimension or a size that does not fit is refused") {
  const std::int64_t negative[] = {-1}, large[] = {1LL << 40, 1LL << 40}, hidden[] = {1LL << 40, 0, 1LL << 40};
  const std::int64_t many[ArrayShape::max_rank + 1] = {};
  CHECK(ArrayShape::make(ElementType::tuple, {}).error().code == Errc::invalid_argument);
  CHECK(ArrayShape::make(ElementType::token, {}).error().code == Errc::invalid_argument);
  CHECK(ArrayShape::make(ElementType::f32, negative).error().code == Errc::invalid_argument);
  CHECK(ArrayShape::make(ElementType::f32, large).error().code == Errc::over_budget);
  const std::int64_t wraps[] = {4611686018427387904, 8};  // cases/05 4: 2^65 bytes of float
  CHECK(ArrayShape::make(ElementType::f32, wraps).error().code == Errc::over_budget);
  CHECK(ArrayShape::make(ElementType::f32, hidden).error().code == Errc::over_budget);
  CHECK(ArrayShape::make(ElementType::f32, many).error().code == Errc::over_budget);
  ArrayShape s = shape(ElementType::f32, {2, 2});
  s.minor_to_major.push_back(1);
  CHECK(s.check().code == Errc::invalid_argument);
  s.minor_to_major.push_back(1);
  CHECK(s.check().code == Errc::invalid_argument);
  s = shape(ElementType::f32, {2, 2});
  s.tile.push_back(0);
  CHECK(s.check().code == Errc::invalid_argument);
  s.tile.clear();
  s.tile.push_back(1LL << 62);
  CHECK(s.check().code == Errc::over_budget);
}
