// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "holdfast/backend/simulated/event.hpp"
#include "holdfast/backend/simulated/timeline.hpp"

namespace holdfast {

/// A queue of work on a simulated device: a handle. Work of one stream runs in order; between streams only events order.
///
/// Threads: any. The machine must outlive it.
template <order_watch Watch>
class BasicSimulatedStream {
 public:
  using event_type = BasicSimulatedEvent<Watch>;

  /// No stream: to be assigned before use.
  constexpr BasicSimulatedStream() noexcept = default;

  /// Enqueues a kernel: a function that is called when its turn comes, and the bytes that it touches.
  ///
  /// `f()` gives nothing, or an `Error` that its event fails with; it must not call the machine. `name` must outlive the
  /// machine. Errors: an injected fault, out_of_memory. Stream: enqueues the kernel.
  template <std::invocable F>
  [[nodiscard]] Result<event_type> launch(std::string_view name, std::span<const MemoryTouch> touches, F f) const noexcept {
    return enqueue(SimulatedCall::launch, name, touches, std::move(f));
  }
  template <std::invocable F>
  [[nodiscard]] Result<event_type> launch(std::string_view name, std::initializer_list<MemoryTouch> touches, F f) const noexcept {
    return launch(name, std::span<const MemoryTouch>(touches.begin(), touches.size()), std::move(f));
  }
  /// Marks the end of the stream as it is now. Errors: as `event::record`.
  [[nodiscard]] Result<event_type> record() const noexcept {
    event_type e;
    if (Error failure = e.record(*this); !failure.ok()) return failure;
    return e;
  }
  /// Runs the machine until all that was enqueued here is done; the host has seen it then. Errors: as `event::record`.
  [[nodiscard]] Error synchronize() const noexcept {
    Result<event_type> e = record();
    return e.ok() ? e->wait() : e.error();
  }
  friend bool operator==(const BasicSimulatedStream& a, const BasicSimulatedStream& b) noexcept = default;

  // For devices and events.
  using Queue = detail::SimulatedQueue<Watch>;
  explicit BasicSimulatedStream(Queue& queue) noexcept : queue_(&queue) {}
  [[nodiscard]] Queue& queue() const noexcept { return *queue_; }

  // Enqueues a function as a call of the given kind, which may be told to fail.
  template <std::invocable F>
  [[nodiscard]] Result<event_type> enqueue(SimulatedCall call, std::string_view name, std::span<const MemoryTouch> touches,
                                           F f) const noexcept {
    const SimulatedFault fault = queue_->timeline.with_lock([&](Watch&) noexcept { return queue_->health.next(call); });
    if (!fault.error.ok() && !fault.late) return fault.error;
    return enqueue(name, touches, std::move(f), fault);
  }
  // The same with no way to be told to fail.
  template <std::invocable F>
  [[nodiscard]] Result<event_type> enqueue(std::string_view name, std::span<const MemoryTouch> touches, F f,
                                           const SimulatedFault& fault) const noexcept {
    std::unique_ptr<Operation> operation(new (std::nothrow) detail::SimulatedWork<Watch, F>(std::move(f)));
    if (operation == nullptr || !operation->declare(touches)) return no_memory();
    operation->failure = fault.error;
    operation->failure_sticks = fault.sticks;
    return submit(std::move(operation), name);
  }
  [[nodiscard]] Error enqueue_wait(detail::SimulatedCell<Watch>& cell) const noexcept {
    if (cell.timeline != nullptr && cell.timeline != &queue_->timeline)
      return make_error(Errc::invalid_argument, "the event is of another machine");
    if (Error e = told_to_fail(SimulatedCall::wait); !e.ok()) return e;
    std::unique_ptr<Operation> operation(new (std::nothrow) Operation);
    if (operation == nullptr) return no_memory();
    operation->name = "wait";
    operation->waits = &cell;
    cell.retain();
    queue_->timeline.enqueue(*queue_, std::move(operation));
    return {};
  }
  [[nodiscard]] Result<event_type> enqueue_record() const noexcept {
    if (Error e = told_to_fail(SimulatedCall::record); !e.ok()) return e;
    std::unique_ptr<Operation> operation(new (std::nothrow) Operation);
    if (operation == nullptr) return no_memory();
    return submit(std::move(operation), "record");
  }

 private:
  using Operation = detail::SimulatedOperation<Watch>;

  [[nodiscard]] Error told_to_fail(SimulatedCall call) const noexcept {
    return queue_->timeline.with_lock([&](Watch&) noexcept { return queue_->health.next(call).error; });
  }
  [[nodiscard]] HOLDFAST_COLD static Error no_memory() noexcept {
    return make_error(Errc::out_of_memory, "no memory for an operation of a stream");
  }
  [[nodiscard]] Result<event_type> submit(std::unique_ptr<Operation> operation, std::string_view name) const noexcept {
    auto* cell = new (std::nothrow) detail::SimulatedCell<Watch>(&queue_->timeline);
    if (cell == nullptr) return no_memory();
    cell->retain();
    operation->name = name;
    operation->completes = cell;
    event_type done(cell);
    queue_->timeline.enqueue(*queue_, std::move(operation));
    return done;
  }

  Queue* queue_ = nullptr;
};

template <order_watch Watch>
Error BasicSimulatedEvent<Watch>::record(const stream_type& stream) noexcept {
  Result<BasicSimulatedEvent> made = stream.enqueue_record();
  if (!made.ok()) return made.error();
  *this = std::move(*made);
  return {};
}

template <order_watch Watch>
Error BasicSimulatedEvent<Watch>::wait_on(const stream_type& stream) const noexcept {
  return cell_ == nullptr ? Error{} : stream.enqueue_wait(*cell_);
}

static_assert(stream_event<BasicSimulatedEvent<NoWatch>, BasicSimulatedStream<NoWatch>> && promised_event<BasicSimulatedEvent<NoWatch>>);

}  // namespace holdfast
