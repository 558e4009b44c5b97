// SPDX-License-Identifier: Apache-2.0
#include "holdfast/buffer/literal_copy.hpp"

#include <doctest/doctest.h>

#include <initializer_list>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "support/places.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
ArrayShape shape(ElementType type, std::initializer_list<std::int64_t> dimensions) {
  return *ArrayShape::make(type, std::span<const std::int64_t>(dimensions.begin(), dimensions.size()));
}
std::vector<ArrayShape> layouts() {
  std::vector<ArrayShape> shapes(4, shape(ElementType::s32, {3, 130}));
  shapes[1].minor_to_major.push_back(0);
  shapes[1].minor_to_major.push_back(1);
  shapes[2].tile.push_back(8);
  shapes[2].tile.push_back(128);
  shapes[3] = shape(ElementType::s4, {3, 5});
  shapes[3].element_bits = 4;
  return shapes;
}
}  // namespace

TEST_CASE_TEMPLATE("literal_copy: T-R6 a literal goes to a buffer in any layout and comes back equal; it may change after the call", W,
                   HOLDFAST_TEST_PLACES) {
  typename W::Place place;
  for (const ArrayShape& s : layouts()) {
    auto in = std::move(*Literal<SystemMemory>::allocate({}, s)), out = std::move(*Literal<SystemMemory>::allocate({}, s));
    for (std::size_t i = 0; i < in.bytes().size(); ++i) in.bytes()[i] = static_cast<std::byte>(i % 7);
    const std::vector<std::byte> before(in.bytes().begin(), in.bytes().end());
    auto b = from_literal<typename W::Buffer>(in, place.backend(), s, SystemMemory{});
    REQUIRE(b.ok());
    std::memset(in.bytes().data(), 0xEE, in.bytes().size());
    CHECK(b->shape() == s);
    auto read = to_literal(*b, out, SystemMemory{});
    REQUIRE(read.ok());
    CHECK(b->buffer().counts().usage == 0);
    CHECK(read->wait().ok());
    CHECK(std::vector<std::byte>(out.bytes().begin(), out.bytes().end()) == before);
  }
}

TEST_CASE_TEMPLATE("literal_copy: another array is INTERNAL, a gone buffer INVALID_ARGUMENT, a failed definition its own error", W,
                   HOLDFAST_TEST_PLACES) {
  typename W::Place place;
  for (const ArrayShape& s : layouts()) {
    auto out = std::move(*Literal<SystemMemory>::allocate({}, s)), other = std::move(*Literal<SystemMemory>::allocate({}, shape(s.type, {1})));
    auto written = place.promise();
    const typename W::Event definition[] = {written.get_event()};
    auto b = std::move(*ShapedBuffer<typename W::Buffer>::make(
        s, std::move(*W::Buffer::make(*W::Raw::allocate(place.backend(), s.device_size()), definition))));
    CHECK(status_kind(to_literal(b, other, SystemMemory{}).error()) == StatusKind::internal);
    CHECK(from_literal<typename W::Buffer>(other, place.backend(), s, SystemMemory{}).error().code == Errc::invalid_argument);
    auto read = to_literal(b, out, SystemMemory{});
    REQUIRE(read.ok());
    CHECK(!read->ready());
    CHECK(written.set_error(make_error(Errc::device_fault, "kernel failed")).ok());
    CHECK(says(read->wait(), "kernel failed"));
    CHECK(b.buffer().release().ok());
    CHECK(status_kind(to_literal(b, out, SystemMemory{}).error()) == StatusKind::invalid_argument);
  }
}
