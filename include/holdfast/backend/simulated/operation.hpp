// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "holdfast/backend/simulated/fault.hpp"
#include "holdfast/backend/simulated/watch.hpp"
#include "holdfast/core/intrusive_ptr.hpp"
#include "holdfast/event/host_event.hpp"

namespace holdfast::detail {

template <order_watch Watch>
class SimulatedTimeline;

// What an event stands for. It finishes when its operation has run; its waiters are told later, when somebody waits.
template <order_watch Watch>
struct SimulatedCell : RefCounted<SimulatedCell<Watch>> {
  explicit SimulatedCell(SimulatedTimeline<Watch>* t) noexcept : timeline(t) {}

  [[nodiscard]] bool finished() const noexcept { return is_finished.load(std::memory_order_acquire); }
  // Publishes all that was written before, to whoever sees it finished.
  void set_finished() noexcept { is_finished.store(true, std::memory_order_release); }
  void resolve() noexcept { error.ok() ? done.set() : done.set_error(error); }
  // For promises.
  void complete(const Error& e) noexcept {
    if (timeline != nullptr) return timeline->complete(*this, e);
    error = e;
    set_finished();
    resolve();
  }

  SimulatedTimeline<Watch>* const timeline;  // null: made by no machine
  std::atomic<bool> is_finished{false};
  InlineEvent done;
  // Guarded by the timeline until it is finished, constant then.
  bool watched = false;
  std::int64_t finish = 0;
  HOLDFAST_NO_UNIQUE_ADDRESS typename Watch::clock_type clock{};
  Error error;
  SimulatedCell* next_completed = nullptr;
};

// One entry of a stream: waits for an event, does something to bytes, completes an event; each of them if any.
template <order_watch Watch>
struct SimulatedOperation {
  using Cell = SimulatedCell<Watch>;

  virtual ~SimulatedOperation() = default;
  virtual Error run() noexcept { return {}; }

  [[nodiscard]] std::span<const MemoryTouch> touches() const noexcept { return {declared.get(), declared_count}; }
  // False: no memory to remember them. Without a watch nobody asks.
  [[nodiscard]] bool declare(std::span<const MemoryTouch> list) noexcept {
    if (!Watch::enabled || list.empty()) return true;
    declared.reset(new (std::nothrow) MemoryTouch[list.size()]);
    if (declared == nullptr) return false;
    std::copy(list.begin(), list.end(), declared.get());
    declared_count = list.size();
    return true;
  }

  SimulatedOperation* next = nullptr;
  std::string_view name;
  Cell* waits = nullptr;      // owns a share
  Cell* completes = nullptr;  // owns a share, which the timeline takes over
  Error failure;              // told to fail
  bool failure_sticks = false;
  bool owns = false;          // its function has something to give back when it has run
  std::int64_t earliest = 0;
  std::int64_t delay = 0;
  HOLDFAST_NO_UNIQUE_ADDRESS typename Watch::clock_type enqueued{};
  std::unique_ptr<MemoryTouch[]> declared;
  std::size_t declared_count = 0;
};

// An operation that calls a function, which may give an `Error`.
template <order_watch Watch, std::invocable F>
struct SimulatedWork final : SimulatedOperation<Watch> {
  explicit SimulatedWork(F f) noexcept : function(std::move(f)) { this->owns = !std::is_trivially_destructible_v<F>; }
  Error run() noexcept override {
    if constexpr (std::is_void_v<std::invoke_result_t<F&>>) return function(), Error{};
    else return function();
  }
  F function;
};

// A queue of operations, run one after another.
template <order_watch Watch>
struct SimulatedQueue {
  SimulatedQueue(SimulatedTimeline<Watch>& t, DeviceHealth& h) noexcept : timeline(t), health(h) {}

  SimulatedTimeline<Watch>& timeline;
  DeviceHealth& health;
  ActorId actor{};
  SimulatedOperation<Watch>* first = nullptr;
  SimulatedOperation<Watch>* last = nullptr;
  std::int64_t end = 0;  // of the last operation that ran
};

}  // namespace holdfast::detail
