// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <vector>

#include "holdfast/backend/simulated/device.hpp"

namespace holdfast {

/// A simulated machine: devices with finite memory, streams, events, and a virtual clock that the host shares.
///
/// Work runs when a host thread waits, asks or pumps, in an order that the seed chooses among those that the streams and
/// events allow. With a `RaceDetector` as its watch it finds what they fail to order. It must outlive all handles; what has
/// not run when it is destroyed fails as `aborted`.
/// Threads: any; with more than one, the order is not the seed's alone. Cost: of an operation, the streams.
template <order_watch Watch = NoWatch>
class BasicSimulatedMachine {
 public:
  using watch_type = Watch;
  using device_type = BasicSimulatedDevice<Watch, MemorySpace::device>;
  using host_memory_type = BasicSimulatedDevice<Watch, MemorySpace::host>;
  using stream_type = BasicSimulatedStream<Watch>;
  using event_type = BasicSimulatedEvent<Watch>;
  using promise_type = BasicSimulatedPromise<Watch>;

  explicit BasicSimulatedMachine(const SimulatedOptions& options = {}) noexcept : timeline_(options) {}
  BasicSimulatedMachine(BasicSimulatedMachine&&) = delete;
  ~BasicSimulatedMachine() { timeline_.abandon(); }

  /// Adds a device. Errors: invalid_argument (negative capacity), out_of_memory (the host has no room for its bytes).
  [[nodiscard]] Result<device_type> add_device(Bytes capacity, std::string_view name = {}) noexcept {
    return add<device_type>(capacity, name);
  }
  /// Adds a pool of pinned host memory, whose streams are its own. Errors: as `add_device`.
  [[nodiscard]] Result<host_memory_type> add_host_memory(Bytes capacity, std::string_view name = "pinned memory") noexcept {
    return add<host_memory_type>(capacity, name);
  }
  /// Makes an event that the host completes. Errors: out_of_memory.
  [[nodiscard]] Result<promise_type> make_promise() noexcept { return promise_type::make(&timeline_); }

  /// Tells the watch that the host reads bytes now: its own that copies write, or a device's.
  void host_reads(std::string_view name, std::span<const std::byte> bytes) noexcept {
    host_touch(name, {block_of(bytes), Touch::read});
  }
  /// Tells the watch that the host writes bytes now, say a staging buffer that copies read.
  void host_writes(std::string_view name, std::span<const std::byte> bytes) noexcept {
    host_touch(name, {block_of(bytes), Touch::write});
  }

  /// Runs one operation and the continuations that it completes; false: nothing can run. The host sees nothing by it.
  bool pump() noexcept { return timeline_.pump(); }
  /// Runs all that can run; the host sees nothing by it. Use it before looking at the races.
  void drain() noexcept {
    while (pump()) {
    }
  }
  /// The virtual clock of the host. Units: a call takes 1.
  [[nodiscard]] std::int64_t now() noexcept { return timeline_.now(); }
  /// What watches; look at it when no other thread uses the machine.
  [[nodiscard]] Watch& watch() noexcept { return timeline_.watch(); }

 private:
  using State = detail::SimulatedDeviceState<Watch>;

  [[nodiscard]] static Block block_of(std::span<const std::byte> bytes) noexcept {
    return {const_cast<std::byte*>(bytes.data()), static_cast<Bytes>(bytes.size())};
  }
  void host_touch(std::string_view name, const MemoryTouch& touch) noexcept { timeline_.host_touch(name, {&touch, 1}); }

  template <class Device>
  [[nodiscard]] Result<Device> add(Bytes capacity, std::string_view name) noexcept {
    Result<Block> arena = SystemMemory{}.allocate(capacity, Alignment(4096));
    if (!arena.ok()) return arena.error();
    std::unique_ptr<State> state(new (std::nothrow) State(timeline_, *arena));
    if (state == nullptr) {
      SystemMemory{}.deallocate(*arena);
      return make_error(Errc::out_of_memory, "no memory for a simulated device");
    }
    State* const made = state.get();
    timeline_.with_lock([&](Watch& watch) noexcept {
      watch.name_region(name, devices_.size(), *arena);
      const MemoryTouch never_allocated{*arena, Touch::free};
      watch.begin(host_actor, "nobody: never allocated");
      watch.touch(host_actor, never_allocated);
      devices_.push_back(std::move(state));
    });
    return Device(*made);
  }

  detail::SimulatedTimeline<Watch> timeline_;
  std::vector<std::unique_ptr<State>> devices_;
};

/// The machine that only simulates, and its parts.
using SimulatedMachine = BasicSimulatedMachine<NoWatch>;
using SimulatedDevice = BasicSimulatedDevice<NoWatch>;
using SimulatedStream = BasicSimulatedStream<NoWatch>;
using SimulatedEvent = BasicSimulatedEvent<NoWatch>;

}  // namespace holdfast
