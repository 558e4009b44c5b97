// SPDX-License-Identifier: Apache-2.0
#include "holdfast/buffer/literal.hpp"

#include <doctest/doctest.h>

#include <initializer_list>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
ArrayShape shape(ElementType type, std::initializer_list<std::int64_t> dimensions) {
  return *ArrayShape::make(type, std::span<const std::int64_t>(dimensions.begin(), dimensions.size()));
}
}  // namespace

TEST_CASE("literal: T-C8 PackOob, 16 x s4 need 8 bytes, packing them into 4 is refused and writes nothing") {
  std::vector<std::byte> values(16), packed(8), small(4, std::byte{0xEE});
  for (int i = 0; i < 16; ++i) values[static_cast<std::size_t>(i)] = static_cast<std::byte>(i - 8);
  CHECK(says(pack_elements(values, 4, small), "Mismatched packed target size"));
  for (const std::byte b : small) CHECK(b == std::byte{0xEE});
  CHECK(pack_elements(values, 4, packed).ok());
  CHECK(packed[0] == std::byte{0x98});  // -8 in the low bits, -7 above
  std::vector<std::byte> back(16);
  CHECK(unpack_elements(packed, 4, true, back).ok());
  CHECK(back == values);
  CHECK(unpack_elements(packed, 4, false, back).ok());
  CHECK(back[0] == std::byte{8});
  CHECK(unpack_elements(small, 4, true, back).code == Errc::invalid_argument);
}

TEST_CASE("literal: an odd number of elements fills a last byte in part, for every width") {
  for (const unsigned bits : {1u, 2u, 4u, 8u}) {
    const std::size_t each = 8 / bits;
    for (std::size_t n = 0; n < 20; ++n) {
      std::vector<std::byte> values(n), packed((n + each - 1) / each), back(n);
      for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<std::byte>(i % (std::size_t{1} << bits));
      CHECK(pack_elements(values, bits, packed).ok());
      CHECK(unpack_elements(packed, bits, false, back).ok());
      CHECK(back == values);
    }
  }
}

TEST_CASE("literal: values go through any layout, tile and packing and come back, and padding is 0") {
  std::vector<ArrayShape> shapes{shape(ElementType::s32, {2, 3, 4}), shape(ElementType::s32, {3, 130}), shape(ElementType::s4, {3, 5}),
                                 shape(ElementType::f64, {}), shape(ElementType::u8, {0, 4}), shape(ElementType::s16, {5, 3})};
  shapes[0].minor_to_major.push_back(1);
  shapes[0].minor_to_major.push_back(0);
  shapes[0].minor_to_major.push_back(2);
  shapes[1].tile.push_back(8);
  shapes[1].tile.push_back(128);
  shapes[2].element_bits = 4;
  shapes[5].minor_to_major.push_back(0);
  shapes[5].minor_to_major.push_back(1);
  shapes[5].tile.push_back(2);
  for (const ArrayShape& s : shapes) {
    std::vector<std::byte> values(static_cast<std::size_t>(s.host_size())), device(static_cast<std::size_t>(s.device_size()), std::byte{0xEE}),
        back(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(s.element_bits == 4 ? i % 7 : i + 1);
    CHECK(lay_out(s, values, device).ok());
    CHECK(read_out(s, device, back).ok());
    CHECK(back == values);
    std::size_t set = 0, wanted = 0;
    for (const std::byte b : device) set += b != std::byte{0};
    for (const std::byte b : values) wanted += b != std::byte{0};
    if (s.element_bits == 0) CHECK(set == wanted);
    if (!device.empty()) {
      CHECK(lay_out(s, values, std::span(device).first(device.size() - 1)).code == Errc::invalid_argument);
      CHECK(read_out(s, device, std::span(back).first(back.size() - 1)).code == Errc::invalid_argument);
    }
  }
}

TEST_CASE("literal: it has room for the values of its shape, whatever the layout") {
  ArrayShape s = shape(ElementType::f32, {2, 2});
  s.tile.push_back(8);
  s.tile.push_back(128);
  auto literal = Literal<SystemMemory>::allocate({}, s);
  REQUIRE(literal.ok());
  CHECK(literal->bytes().size() == 16);
  literal->values<float>()[3] = 4;
  CHECK(std::as_const(*literal).bytes()[15] == std::byte{0x40});
  s.dimensions[0] = -1;
  CHECK(Literal<SystemMemory>::allocate({}, s).error().code == Errc::invalid_argument);
}
