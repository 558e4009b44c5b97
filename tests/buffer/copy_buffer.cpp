// SPDX-License-Identifier: Apache-2.0
#include "holdfast/buffer/copy_buffer.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "support/places.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

// Three memory spaces of one machine: its device, its pinned memory, and the host's own; all with the machine's events.
#ifndef HOLDFAST_TEST_SPACES
#define HOLDFAST_TEST_SPACES SimulatedSpaces
struct SimulatedSpaces {
  using Event = RaceCheckedEvent;
  using Device = RaceCheckedDevice;
  using Pinned = RaceCheckedMachine::host_memory_type;
  Device on_device() { return place.device; }
  auto promise() { return place.promise(); }
  void drain() { place.machine.drain(); }
  DevicePlace place;
  Pinned pinned = *place.machine.add_host_memory(1 << 20);
};
#endif

template <class Site, class HoldPolicy>
struct Spaces : Site {
  using Hold = HoldPolicy;
  using typename Site::Event;
  using OnDevice = TrackedBuffer<typename Site::Device, Event, Hold>;
  using OnPinned = TrackedBuffer<typename Site::Pinned, Event, Hold>;
  using OnHost = TrackedBuffer<LoggedMemory, Event, Hold>;

  MemoryLog log;
  Staging<SystemMemory> staging{SystemMemory{}, false};

  template <class Buffer>
  auto backend() {
    if constexpr (std::same_as<Buffer, OnDevice>) return this->on_device();
    else if constexpr (std::same_as<Buffer, OnPinned>) return this->pinned;
    else return LoggedMemory(log);
  }
  template <class Visit>
  void each_pair(Visit visit) {
    const auto with = [&]<class From>(From*) {
      visit.template operator()<From, OnDevice>();
      visit.template operator()<From, OnPinned>();
      visit.template operator()<From, OnHost>();
    };
    with(static_cast<OnDevice*>(nullptr));
    with(static_cast<OnPinned*>(nullptr));
    with(static_cast<OnHost*>(nullptr));
  }
};
#define COUNTING_SPACES \
  Spaces<HOLDFAST_TEST_SPACES, SharedHold>, Spaces<HOLDFAST_TEST_SPACES, LocalHold>, Spaces<HOLDFAST_TEST_SPACES, StripedHold>

ArrayShape array(std::vector<std::int64_t> dimensions) { return *ArrayShape::make(ElementType::s32, dimensions); }

}  // namespace

TEST_CASE_TEMPLATE("copy_buffer: T-G10 CopyPoisonedBuffer, f32[8] with an error is copied between all spaces, each copy has its cause", S,
                   COUNTING_SPACES) {
  S s;
  const ArrayShape f32_8 = *ArrayShape::make(ElementType::f32, std::vector<std::int64_t>{8});
  s.each_pair([&]<class From, class To>() {
    for (const bool late : {false, true}) {
      auto written = s.promise();
      const typename S::Event definition[] = {written.get_event()};
      const Error injected = make_error(Errc::internal, "injected error");
      if (!late) CHECK(written.set_error(injected).ok());
      auto from = std::move(*ShapedBuffer<From>::make(f32_8, std::move(*From::make(*From::raw_type::allocate(s.template backend<From>(), 32), definition))));
      auto to = copy_to_memory<To>(from, s.template backend<To>(), s.staging);
      if (late) CHECK(written.set_error(injected).ok());
      REQUIRE(to.ok());
      const Error e = to->buffer().ready_event()->wait();
      CHECK(status_kind(e) == StatusKind::internal);
      CHECK(says(e, "injected error"));
    }
  });
}

TEST_CASE_TEMPLATE("copy_buffer: T-R6 s32[128,256] goes from each space to each, itself too, in its layout; T-R7 pinned both ways", S,
                   COUNTING_SPACES) {
  S s;
  ArrayShape ascending = array({128, 256});
  ascending.minor_to_major.push_back(0);
  ascending.minor_to_major.push_back(1);
  std::vector<std::int32_t> values(128 * 256);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
  for (const ArrayShape& shape : {array({128, 256}), ascending})
    s.each_pair([&]<class From, class To>() {
      auto raw = *From::raw_type::allocate(s.template backend<From>(), shape.device_size());
      fill(raw, view_of(values));
      auto from = std::move(*ShapedBuffer<From>::make(shape, std::move(*From::make(std::move(raw)))));
      auto to = copy_to_memory<To>(from, s.template backend<To>(), s.staging);
      REQUIRE(to.ok());
      CHECK(to->shape() == shape);
      CHECK(to->buffer().ready_event()->wait().ok());
      const std::vector<std::byte> bytes = bytes_of(to->buffer().hold(HoldKind::usage)->raw());
      CHECK(std::memcmp(bytes.data(), values.data(), bytes.size()) == 0);
      CHECK(from.buffer().counts() == HoldCounts{});
    });
}

TEST_CASE_TEMPLATE("copy_buffer: into a donated buffer the copy comes after its readers; a wrong size leaves it alone", S, COUNTING_SPACES) {
  S s;
  s.each_pair([&]<class From, class To>() {
    const ArrayShape shape = array({4});
    auto raw = *From::raw_type::allocate(s.template backend<From>(), 16);
    fill(raw, view_of(std::vector<std::int32_t>{1, 2, 3, 4}));
    auto from = std::move(*ShapedBuffer<From>::make(shape, std::move(*From::make(std::move(raw)))));
    auto small = std::move(*ShapedBuffer<To>::allocate(s.template backend<To>(), array({3})));
    CHECK(copy_to_donated(from, small, s.staging).error().code == Errc::invalid_argument);
    CHECK(!small.buffer().is_deleted());
    auto target = std::move(*ShapedBuffer<To>::allocate(s.template backend<To>(), shape));
    {
      auto external = target.buffer().hold(HoldKind::external);
      CHECK(copy_to_donated(from, target, s.staging).error().code == Errc::held);
    }
    auto reader = s.promise();
    target.buffer().hold(HoldKind::usage)->convert(reader.get_event());
    const std::byte* address = target.buffer().hold(HoldKind::usage)->raw().data();
    auto copied = copy_to_donated(from, target, s.staging);
    REQUIRE(copied.ok());
    CHECK(target.buffer().is_deleted());
    s.drain();
    CHECK(!copied->buffer().ready_event()->ready());
    CHECK(reader.set_error(make_error(Errc::internal, "a reader's error is not the copy's")).ok());
    CHECK(copied->buffer().ready_event()->wait().ok());
    CHECK(copied->buffer().hold(HoldKind::usage)->raw().data() == address);
    const std::int32_t wanted[] = {1, 2, 3, 4};
    CHECK(std::memcmp(bytes_of(copied->buffer().hold(HoldKind::usage)->raw()).data(), wanted, 16) == 0);
    auto gone = std::move(*ShapedBuffer<From>::allocate(s.template backend<From>(), shape));
    CHECK(gone.buffer().release().ok());
    CHECK(status_kind(copy_to_donated(gone, *copied, s.staging).error()) == StatusKind::invalid_argument);
    CHECK(!copied->buffer().is_deleted());
  });
}

TEST_CASE_TEMPLATE("copy_buffer: two threads that copy two buffers into each other never wait for one another; into itself is refused", Hold,
                   SharedHold, StripedHold) {
  using Buffer = TrackedBuffer<LoggedMemory, HostEvent, Hold>;
  MemoryLog log;
  const Staging<SystemMemory> staging{SystemMemory{}, false};
  const ArrayShape shape = array({4});
  for (int round = 0; round < 200; ++round) {
    auto a = std::move(*ShapedBuffer<Buffer>::allocate(LoggedMemory(log), shape)), b = std::move(*ShapedBuffer<Buffer>::allocate(LoggedMemory(log), shape));
    CHECK(says(copy_to_donated(a, a, staging).error(), "f(a, donate(a))"));
    CHECK(!a.buffer().is_deleted());
    Caller there([&] { static_cast<void>(copy_to_donated(a, b, staging).ok()); });
    static_cast<void>(copy_to_donated(b, a, staging).ok());
    CHECK(there.returns_soon());
  }
  CHECK(log.live_bytes == 0);
}
