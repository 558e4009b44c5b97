// SPDX-License-Identifier: Apache-2.0
#include "holdfast/buffer/alias_buffer.hpp"

#include <doctest/doctest.h>

#include <initializer_list>
#include <optional>
#include <vector>

#include "holdfast/buffer/undonatable_buffer.hpp"
#include "support/places.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
ArrayShape s32(std::initializer_list<std::int64_t> dimensions) {
  return *ArrayShape::make(ElementType::s32, std::span<const std::int64_t>(dimensions.begin(), dimensions.size()));
}
// The host's own events here are those of its backend, so that memory may be late.
struct LateMemory : LoggedMemory {
  using event_type = HostEvent;
  using LoggedMemory::LoggedMemory;
  Result<HostEvent> copy_in(Block to, Bytes offset, std::span<const std::byte> from) noexcept {
    if (!from.empty()) std::memcpy(to.data + offset, from.data(), from.size());
    return HostEvent();
  }
  Result<HostEvent> copy_out(Block from, Bytes offset, std::span<std::byte> to) noexcept {
    if (!to.empty()) std::memcpy(to.data(), from.data + offset, to.size());
    return HostEvent();
  }
  Result<HostEvent> copy(Block to, Bytes a, Block from, Bytes b, Bytes n) noexcept {
    std::memmove(to.data + a, from.data + b, static_cast<std::size_t>(n));
    return HostEvent();
  }
};
struct LatePlace : HostPlace {
  using Backend = LateMemory;
  Backend backend() { return Backend(log); }
};
#define LATE_PLACES                                                                                                        \
  Where<LatePlace, SharedHold>, Where<LatePlace, LocalHold>, Where<LatePlace, StripedHold>, Where<DevicePlace, SharedHold>, \
      Where<DevicePlace, LocalHold>, Where<DevicePlace, StripedHold>
}  // namespace

TEST_CASE_TEMPLATE("alias_buffer: it is used before its memory is there, and has the donor's bytes, events and address after", W, LATE_PLACES) {
  typename W::Place place;
  auto alias = make_alias_buffer<typename W::Buffer>(place.backend(), s32({1024}));
  REQUIRE(alias.ok());
  CHECK(alias->buffer.on_device_size() == 4096);
  auto ready = *alias->buffer.buffer().ready_event();
  auto slice = *alias->buffer.buffer().hold(HoldKind::usage)->raw().slice(0, 512);  // T-E9: of an unfulfilled alias
  auto there = slice.allocation_ready();
  CHECK(!there.ready());
  std::vector<std::byte> out(4096), in(4096, std::byte{5});
  auto read = [&] {
    auto held = alias->buffer.buffer().hold(HoldKind::usage);
    auto copied = *copy_out<typename W::Raw, typename W::Event>(held->raw(), 0, out, held->definition_events());
    held->convert(copied);
    return copied;
  }();

  auto written = place.promise(), last_read = place.promise();
  const typename W::Event definition[] = {written.get_event()};
  auto raw = *W::Raw::allocate(place.backend(), 4096);
  fill(raw, in);
  const std::byte* address = raw.data();
  auto donor = std::move(*ShapedBuffer<typename W::Buffer>::make(s32({1024}), std::move(*W::Buffer::make(std::move(raw), definition))));
  donor.buffer().hold(HoldKind::usage)->convert(last_read.get_event());
  CHECK(alias->promise.fulfil(donor).ok());
  CHECK(alias->promise.fulfil(donor).code == Errc::wrong_state);
  CHECK(donor.buffer().is_deleted());
  CHECK(there.ready());
  CHECK(*slice.address() == address);
  CHECK(written.set().ok());
  CHECK(!ready.ready());  // the donor's reader is not done
  CHECK(!read.ready());
  CHECK(last_read.set().ok());
  CHECK(ready.wait().ok());
  CHECK(read.wait().ok());
  CHECK(out == in);
}

TEST_CASE_TEMPLATE("alias_buffer: fulfilled with an error it is poisoned, and with another shape both sides are told", W, LATE_PLACES) {
  typename W::Place place;
  auto poisoned = make_alias_buffer<typename W::Buffer>(place.backend(), s32({4}));
  auto wrong = make_alias_buffer<typename W::Buffer>(place.backend(), s32({4}));
  auto gone = make_alias_buffer<typename W::Buffer>(place.backend(), s32({4}));
  std::optional<AliasBuffer<typename W::Buffer>> dropped(std::move(*make_alias_buffer<typename W::Buffer>(place.backend(), s32({4}))));
  CHECK(poisoned->promise.fail(make_error(Errc::device_fault, "link down")).ok());
  CHECK(poisoned->promise.fail(make_error(Errc::device_fault, "again")).code == Errc::wrong_state);
  CHECK(says(poisoned->buffer.buffer().ready_event()->wait(), "link down"));
  auto donor = std::move(*ShapedBuffer<typename W::Buffer>::allocate(place.backend(), s32({2, 2})));
  CHECK(wrong->promise.fulfil(donor).code == Errc::invalid_argument);
  CHECK(!donor.buffer().is_deleted());
  CHECK(wrong->buffer.buffer().ready_event()->wait().code == Errc::invalid_argument);
  auto dead = std::move(*ShapedBuffer<typename W::Buffer>::allocate(place.backend(), s32({4})));
  CHECK(dead.buffer().release().ok());
  CHECK(status_kind(gone->promise.fulfil(dead)) == StatusKind::invalid_argument);
  CHECK(gone->buffer.buffer().ready_event()->wait().code == Errc::deleted);
  auto aborted = *dropped->buffer.buffer().ready_event();
  { auto promise = std::move(dropped->promise); }
  CHECK(aborted.wait().code == Errc::aborted);
  dropped.reset();
}

TEST_CASE_TEMPLATE("alias_buffer: a donor whose contents fail passes the cause on; its failed readers only order", W, LATE_PLACES) {
  typename W::Place place;
  for (const bool fails : {false, true}) {
    auto alias = make_alias_buffer<typename W::Buffer>(place.backend(), s32({4}));
    auto written = place.promise(), reader = place.promise();
    const typename W::Event definition[] = {written.get_event()};
    auto donor = std::move(*ShapedBuffer<typename W::Buffer>::make(s32({4}), std::move(*W::Buffer::make(*W::Raw::allocate(place.backend(), 16), definition))));
    donor.buffer().hold(HoldKind::usage)->convert(reader.get_event());
    CHECK(alias->promise.fulfil(donor).ok());
    CHECK(reader.set_error(make_error(Errc::internal, "reader failed")).ok());
    CHECK((fails ? written.set_error(make_error(Errc::internal, "writer failed")) : written.set()).ok());
    const Error e = alias->buffer.buffer().ready_event()->wait();
    CHECK(e.ok() == !fails);
    if (fails) CHECK(says(e, "writer failed"));
  }
}

TEST_CASE_TEMPLATE("alias_buffer: T-R1 factories that decline a null buffer leave INVALID_ARGUMENT, T-R2 a factory's error passes through", W,
                   HOLDFAST_TEST_PLACES) {
  using Raw = typename W::Raw;
  using Buffer = typename W::Buffer;
  typename W::Place place;
  int asked = 0;
  const auto declines = [&](Buffer*) noexcept -> Result<Raw> { return ++asked, Raw(); };
  const auto refuses = [&](Buffer*) noexcept -> Result<Raw> { return make_error(Errc::invalid_argument, "this factory refuses"); };
  const Error null = make_raw_alias<Buffer>(nullptr, declines, declines).error();
  CHECK(asked == 2);  // they are asked even for null
  CHECK(status_kind(null) == StatusKind::invalid_argument);
  CHECK(says(null, "null buffer."));
  auto b = std::move(*Buffer::allocate(place.backend(), 64));
  CHECK(says(make_raw_alias(&b, declines, refuses, declines).error(), "this factory refuses"));
  CHECK(asked == 3);
  auto mine = *Raw::allocate(place.backend(), 8);
  CHECK(make_raw_alias(&b, declines, [&](Buffer*) noexcept -> Result<Raw> { return Raw(mine); }, refuses)->data() == mine.data());
  auto alias = make_raw_alias(&b, declines);
  REQUIRE(alias.ok());
  CHECK(alias->data() == b.hold(HoldKind::usage)->raw().data());
  CHECK(b.counts() == HoldCounts{});
  CHECK(b.release().ok());
  CHECK(status_kind(make_raw_alias(&b).error()) == StatusKind::invalid_argument);
}

TEST_CASE_TEMPLATE("alias_buffer: T-U3 a factory for undonatable buffers gives the same raw buffer", W, HOLDFAST_TEST_PLACES) {
  typename W::Place place;
  auto source = std::move(*W::Buffer::allocate(place.backend(), 64));
  auto served = UndonatableBuffer<typename W::Buffer>::make(source);
  REQUIRE(served.ok());
  auto alias = make_raw_alias<typename W::Buffer>(nullptr, [&](auto*) noexcept -> Result<typename W::Raw> { return typename W::Raw(served->raw()); });
  REQUIRE(alias.ok());
  CHECK(alias->shares_memory(served->raw()));
  CHECK(alias->data() == served->raw().data());
}
