// SPDX-License-Identifier: Apache-2.0
#include "holdfast/buffer/dynamic_shape.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/buffer/raw_buffer.hpp"
#include "holdfast/buffer/reference_count.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/hold/local_hold.hpp"
#include "support/gate.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
using Raw = RawBuffer<SystemMemory>;
constexpr DynamicLayout s8_5_7{DynamicLayout::Kind::suffix, 35, 0};
constexpr std::int64_t bounds[2] = {5, 7};

Raw with_sizes(Bytes total, Bytes at, std::initializer_list<std::int32_t> sizes) {
  Raw raw = *Raw::allocate({}, total);
  std::memcpy(raw.data() + at, sizes.begin(), std::min<std::size_t>(sizes.size() * 4, static_cast<std::size_t>(total - at)));
  return raw;
}
}  // namespace

TEST_CASE("dynamic_shape: T-R12 s8[<=5,<=7] keeps its sizes at byte 35, unaligned; sizes out of 0..bound and short buffers are refused") {
  CHECK(s8_5_7.metadata_offset() == 35);
  CHECK(s8_5_7.metadata_size(2) == 8);
  std::int64_t sizes[2] = {};
  CHECK(read_dynamic_shape(with_sizes(43, 35, {3, 7}), s8_5_7, bounds, sizes).ok());
  CHECK(sizes[0] == 3);
  CHECK(sizes[1] == 7);
  CHECK(read_dynamic_shape(with_sizes(43, 35, {0, 0}), s8_5_7, bounds, sizes).ok());
  CHECK(read_dynamic_shape(with_sizes(43, 35, {6, 7}), s8_5_7, bounds, sizes).code == Errc::invalid_argument);
  CHECK(read_dynamic_shape(with_sizes(43, 35, {-1, 7}), s8_5_7, bounds, sizes).code == Errc::invalid_argument);
  CHECK(read_dynamic_shape(with_sizes(42, 35, {3, 7}), s8_5_7, bounds, sizes).code == Errc::invalid_argument);
  CHECK(says(read_dynamic_shape(with_sizes(43, 35, {3, 7}), {}, bounds, sizes), "No dynamic metadata found"));
}

TEST_CASE("dynamic_shape: the payload alone is a slice of the actual size, behind a prefix where there is one") {
  Raw raw = with_sizes(43, 35, {3, 7});
  CHECK(without_dynamic_metadata(raw, s8_5_7, 21)->size() == 21);
  CHECK(without_dynamic_metadata(raw, s8_5_7, 21)->data() == raw.data());
  CHECK(without_dynamic_metadata(raw, {}, 21)->size() == 43);
  const DynamicLayout prefixed{DynamicLayout::Kind::prefix, 35, 8};
  Raw front = with_sizes(43, 0, {2, 2});
  std::int64_t sizes[2] = {};
  CHECK(read_dynamic_shape(front, prefixed, bounds, sizes).ok());
  CHECK(sizes[1] == 2);
  CHECK(without_dynamic_metadata(front, prefixed, 4)->data() == front.data() + 8);
}

TEST_CASE_TEMPLATE("reference_count: T-A1 T-A2 T-A3 up then down, down first is refused, and the pointer needs no count", Hold, LocalHold,
                   SharedHold) {
  using Buffer = TrackedBuffer<LoggedMemory, ImmediateEvent, Hold>;
  MemoryLog log;
  ReferenceCount<Buffer> count;
  {
    auto b = std::move(*Buffer::allocate(LoggedMemory(log), 16));
    const Error zero = count.decrease();
    CHECK(zero.code == Errc::invalid_argument);
    CHECK(says(zero, "zero reference count"));
    CHECK(count.increase(b).ok());
    CHECK(b.counts().external == 1);
    CHECK(count.decrease().ok());
    CHECK(b.counts().external == 0);
    const auto pointer = opaque_pointer(b);
    REQUIRE(pointer.ok());
    CHECK(*pointer == b.hold(HoldKind::usage)->raw().data());
    for (int i = 0; i < 9; ++i) CHECK(count.increase(b).ok());
    CHECK(b.release().ok());
    CHECK(count.increase(b).code == Errc::deleted);
    CHECK(opaque_pointer(b).error().code == Errc::deleted);
  }
  CHECK(log.frees == 0);
  for (int i = 0; i < 9; ++i) CHECK(count.decrease().ok());
  CHECK(log.frees == 1);
}
