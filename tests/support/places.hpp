// SPDX-License-Identifier: Apache-2.0
// Where a test of buffers runs: on host memory that is counted, and on a simulated device whose races are found.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/backend/simulated/race_checked.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/hold/local_hold.hpp"
#include "holdfast/hold/shared_hold.hpp"
#include "holdfast/hold/striped_hold.hpp"
#include "support/gate.hpp"
#include "support/texts.hpp"

namespace holdfast::testing {

struct HostPlace {
  using Backend = LoggedMemory;
  using Event = HostEvent;
  Backend backend() { return Backend(log); }
  HostPromise promise() { return *HostPromise::make(); }
  bool holds_memory() { return log.live_bytes != 0; }
  ~HostPlace() { CHECK(!holds_memory()); }
  MemoryLog log;
};

struct DevicePlace {
  using Backend = RaceCheckedDevice;
  using Event = RaceCheckedEvent;
  Backend backend() { return device; }
  auto promise() { return std::move(*machine.make_promise()); }
  ~DevicePlace() {
    machine.drain();
    StringSink races;
    static_cast<void>(machine.watch().write_races(races));
    CHECK(races.text == "");
    CHECK(!holds_memory());
  }
  bool holds_memory() { return device.available() != device.capacity(); }
  RaceCheckedMachine machine;
  RaceCheckedDevice device = *machine.add_device(1 << 20);
};

/// A place under a hold policy: what the tests below are instantiated with.
template <class P, class Hold>
struct Where {
  using Place = P;
  using Event = typename P::Event;
  using Backend = typename P::Backend;
  using Buffer = TrackedBuffer<Backend, Event, Hold>;
  using Raw = typename Buffer::raw_type;
};
#define HOLDFAST_TEST_PLACES                                                                                               \
  Where<HostPlace, SharedHold>, Where<HostPlace, LocalHold>, Where<HostPlace, StripedHold>, Where<DevicePlace, SharedHold>, \
      Where<DevicePlace, LocalHold>, Where<DevicePlace, StripedHold>

/// All bytes of memory, read through its backend.
template <class Raw>
std::vector<std::byte> bytes_of(const Raw& raw) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(raw.size()));
  auto copied = raw.copy_out(0, bytes);
  REQUIRE(copied.ok());
  CHECK(copied->wait().ok());
  return bytes;
}
/// Writes all bytes of memory through its backend.
template <class Raw>
void fill(const Raw& raw, std::span<const std::byte> bytes) {
  auto copied = raw.copy_in(0, bytes);
  REQUIRE(copied.ok());
  CHECK(copied->wait().ok());
}
template <class T>
std::span<const std::byte> view_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

}  // namespace holdfast::testing
