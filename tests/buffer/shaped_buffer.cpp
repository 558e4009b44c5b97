// SPDX-License-Identifier: Apache-2.0
#include "holdfast/buffer/shaped_buffer.hpp"

#include <doctest/doctest.h>

#include <initializer_list>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/buffer/tuple_memory.hpp"
#include "support/places.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
ArrayShape shape(ElementType type, std::initializer_list<std::int64_t> dimensions) {
  return *ArrayShape::make(type, std::span<const std::int64_t>(dimensions.begin(), dimensions.size()));
}
}  // namespace

TEST_CASE_TEMPLATE("shaped_buffer: T-G3 f32[1,2,3] has a root of 24 bytes, T-G5 a buffer has shape, space and size as given", W,
                   HOLDFAST_TEST_PLACES) {
  typename W::Place place;
  auto root = ShapedBuffer<typename W::Buffer>::allocate(place.backend(), shape(ElementType::f32, {1, 2, 3}));
  REQUIRE(root.ok());
  CHECK(root->on_device_size() == 24);
  CHECK(root->buffer().hold(HoldKind::usage)->raw().block().size == 24);
  auto b = ShapedBuffer<typename W::Buffer>::allocate(place.backend(), shape(ElementType::s32, {4, 4}));
  REQUIRE(b.ok());
  CHECK(b->shape() == shape(ElementType::s32, {4, 4}));
  CHECK(b->memory_space() == W::Backend::space);
  CHECK(b->on_device_size() == 64);
  if constexpr (std::equality_comparable<typename W::Backend>) CHECK(b->buffer().hold(HoldKind::usage)->raw().backend() == place.backend());
}

TEST_CASE_TEMPLATE("shaped_buffer: T-G11 a static shape is its own logical shape", W, HOLDFAST_TEST_PLACES) {
  typename W::Place place;
  for (const ElementType type : {ElementType::f32, ElementType::f16, ElementType::s8, ElementType::bf16}) {
    auto b = ShapedBuffer<typename W::Buffer>::allocate(place.backend(), shape(type, {3, 2}));
    REQUIRE(b.ok());
    const auto logical = b->logical_shape();
    REQUIRE(logical.ok());
    CHECK(*logical == b->shape());
  }
}

TEST_CASE_TEMPLATE("shaped_buffer: a dynamic shape is read after the contents, bad sizes and failed contents are INTERNAL", W,
                   HOLDFAST_TEST_PLACES) {
  typename W::Place place;
  ArrayShape bounded = shape(ElementType::s8, {5, 7});
  bounded.dynamic = 3;
  CHECK(buffer_size(bounded) == 43);
  const std::vector<std::pair<std::int32_t, std::int32_t>> cases{{3, 7}, {6, 7}, {-1, 7}};
  for (const auto& [first, second] : cases) {
    std::vector<std::byte> bytes(43);
    std::memcpy(bytes.data() + 35, &first, 4);
    std::memcpy(bytes.data() + 39, &second, 4);
    auto raw = *W::Raw::allocate(place.backend(), 43);
    fill(raw, bytes);
    auto written = place.promise();
    const typename W::Event definition[] = {written.get_event()};
    auto b = ShapedBuffer<typename W::Buffer>::make(bounded, std::move(*W::Buffer::make(raw, definition)));
    REQUIRE(b.ok());
    CHECK(written.set().ok());
    const auto logical = b->logical_shape();
    CHECK(logical.ok() == (first == 3));
    if (logical.ok()) {
      CHECK(*logical == shape(ElementType::s8, {3, 7}));
    } else {
      CHECK(status_kind(logical.error()) == StatusKind::internal);
      CHECK(says(logical.error(), "Cannot read dynamic shape due to error in device buffer: "));
    }
    CHECK(b->buffer().counts().usage == 0);
  }
  auto failing = place.promise();
  const typename W::Event definition[] = {failing.get_event()};
  auto poisoned = ShapedBuffer<typename W::Buffer>::make(bounded, std::move(*W::Buffer::make(*W::Raw::allocate(place.backend(), 43), definition)));
  REQUIRE(poisoned.ok());
  CHECK(failing.set_error(make_error(Errc::device_fault, "link down")).ok());
  const auto failed = poisoned->logical_shape();
  CHECK(says(failed.error(), "device buffer: link down"));
  CHECK(poisoned->buffer().release().ok());
  CHECK(status_kind(poisoned->logical_shape().error()) == StatusKind::invalid_argument);
}

TEST_CASE_TEMPLATE("shaped_buffer: a bitcast keeps memory and events; a wrong size names both and changes nothing", W, HOLDFAST_TEST_PLACES) {
  typename W::Place place;
  auto read = place.promise();
  auto b = ShapedBuffer<typename W::Buffer>::allocate(place.backend(), shape(ElementType::f32, {2, 6}));
  REQUIRE(b.ok());
  const std::byte* address = b->buffer().hold(HoldKind::usage)->raw().data();
  b->buffer().hold(HoldKind::usage)->convert(read.get_event());
  const Error e = b->bitcast(shape(ElementType::f32, {2, 5})).error();
  CHECK(status_kind(e) == StatusKind::invalid_argument);
  CHECK(e.requested == 40);
  CHECK(e.available == 48);
  CHECK(b->bitcast(ArrayShape{}).error().code == Errc::invalid_argument);
  CHECK(!b->buffer().is_deleted());
  {
    auto held = b->buffer().hold(HoldKind::external);
    CHECK(b->bitcast(shape(ElementType::s8, {48})).error().code == Errc::held);
  }
  auto cast = b->bitcast(shape(ElementType::s16, {24}));
  REQUIRE(cast.ok());
  CHECK(b->buffer().is_deleted());
  CHECK(status_kind(b->bitcast(shape(ElementType::s16, {24})).error()) == StatusKind::invalid_argument);
  auto donation = cast->buffer().hold(HoldKind::donation);
  CHECK(donation->raw().data() == address);
  CHECK(donation->usage_events().size() == 1);
  donation->drop();
  CHECK(read.set().ok());
}

TEST_CASE_TEMPLATE("shaped_buffer: memory of another size than the shape's is refused", W, HOLDFAST_TEST_PLACES) {
  typename W::Place place;
  const auto made = ShapedBuffer<typename W::Buffer>::make(shape(ElementType::f32, {4}), std::move(*W::Buffer::allocate(place.backend(), 12)));
  CHECK(made.error().code == Errc::invalid_argument);
  CHECK(ShapedBuffer<typename W::Buffer>::allocate(place.backend(), ArrayShape{}).error().code == Errc::invalid_argument);
}

TEST_CASE("shaped_buffer: case 04 item 7, a tiled f32[3,130] takes 8192 bytes on the device, a host provides 1560") {
  ArrayShape tiled = shape(ElementType::f32, {3, 130});
  tiled.tile.push_back(8);
  tiled.tile.push_back(128);
  auto b = ShapedBuffer<TrackedBuffer<SystemMemory>>::allocate({}, tiled);
  REQUIRE(b.ok());
  CHECK(b->on_device_size() == 8192);
  CHECK(b->host_size() == 1560);
}

TEST_CASE("shaped_buffer: T-S1 f32[3,101,4], s8[77], s64[] give one block each, at the same addresses in order") {
  MemoryLog log;
  using Raw = RawBuffer<LoggedMemory>;
  const ArrayShape shapes[] = {shape(ElementType::f32, {3, 101, 4}), shape(ElementType::s8, {77}), shape(ElementType::s64, {})};
  std::vector<Raw> leaves;
  for (const ArrayShape& s : shapes) leaves.push_back(*Raw::allocate(LoggedMemory(log), s.device_size()));
  auto tuple = TupleMemory<Raw>::make(LoggedMemory(log), shapes, leaves);
  REQUIRE(tuple.ok());
  REQUIRE(tuple->leaves().size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(tuple->leaves()[i].data() == leaves[i].data());
    std::byte* entry = nullptr;
    std::memcpy(&entry, tuple->table().data() + i * sizeof(void*), sizeof(void*));
    CHECK(entry == leaves[i].data());
  }
  std::swap(leaves[0], leaves[1]);
  const Error e = TupleMemory<Raw>::make(LoggedMemory(log), shapes, leaves).error();
  CHECK(e.code == Errc::invalid_argument);
  CHECK(e.at == 0);
  CHECK(!TupleMemory<Raw>::make(LoggedMemory(log), shapes, std::span(leaves).first(2)).ok());
}

TEST_CASE("shaped_buffer: T-S2 a tuple of f32[10,3,7] filled with 33.4 and s64 1 has as many blocks as subshapes, and keeps them") {
  MemoryLog log;
  using Raw = RawBuffer<LoggedMemory>;
  const ArrayShape shapes[] = {shape(ElementType::f32, {10, 3, 7}), shape(ElementType::s64, {})};
  auto tuple = [&] {
    const std::vector<Raw> leaves{*Raw::allocate(LoggedMemory(log), 840), *Raw::allocate(LoggedMemory(log), 8)};
    fill(leaves[0], view_of(std::vector<float>(210, 33.4f)));
    fill(leaves[1], view_of(std::vector<std::int64_t>{1}));
    return TupleMemory<Raw>::make(LoggedMemory(log), shapes, leaves);
  }();
  REQUIRE(tuple.ok());
  CHECK(tuple->blocks().size() == 3);
  CHECK(log.frees == 0);
  float last = 0;
  std::memcpy(&last, tuple->leaves()[0].data() + 836, 4);
  CHECK(last == 33.4f);
}
