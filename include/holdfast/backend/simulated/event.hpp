// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <utility>

#include "holdfast/backend/simulated/timeline.hpp"
#include "holdfast/concepts/event.hpp"

namespace holdfast {

template <order_watch Watch>
class BasicSimulatedStream;
template <order_watch Watch>
class BasicSimulatedPromise;

/// An event of a simulated machine: a counted handle, ready while nothing was recorded in it.
///
/// Waiting runs the machine. Asking whether it is ready takes a moment of virtual time, so a loop that asks ends. Recording
/// it again makes this handle stand for the new place; copies made before keep the old one.
/// Threads: different handles on any threads. The machine must outlive it.
template <order_watch Watch>
class BasicSimulatedEvent {
 public:
  using promise_type = BasicSimulatedPromise<Watch>;
  using stream_type = BasicSimulatedStream<Watch>;

  constexpr BasicSimulatedEvent() noexcept = default;
  BasicSimulatedEvent(const BasicSimulatedEvent& other) noexcept : cell_(other.cell_) {
    if (cell_ != nullptr) cell_->retain();
  }
  BasicSimulatedEvent(BasicSimulatedEvent&& other) noexcept : cell_(std::exchange(other.cell_, nullptr)) {}
  BasicSimulatedEvent& operator=(BasicSimulatedEvent other) noexcept {
    std::swap(cell_, other.cell_);
    return *this;
  }
  ~BasicSimulatedEvent() {
    if (cell_ != nullptr) cell_->drop();
  }

  /// True when it is done or failed. Runs what is due by then, but no continuation.
  [[nodiscard]] bool ready() const noexcept {
    if (cell_ == nullptr) return true;
    return cell_->timeline != nullptr ? cell_->timeline->ready(*cell_) : cell_->done.ready();
  }
  /// Runs the machine until it is done; gives the error it failed with. Errors: the work's own; wrong_state (deadlock).
  [[nodiscard]] Error wait() const noexcept { return wait_until(Deadline::never()); }
  /// The same with a deadline of real time. Errors: also would_block or deadline when it is still pending then.
  [[nodiscard]] Error wait_until(Deadline deadline) const noexcept {
    if (cell_ == nullptr) return {};
    return cell_->timeline != nullptr ? cell_->timeline->wait(*cell_, deadline) : cell_->done.wait_until(deadline);
  }
  /// Queues a node, which runs on a thread that waits or pumps; false: it is ready, run it yourself.
  [[nodiscard]] bool then(Continuation& node) const noexcept {
    if (cell_ == nullptr) return false;
    return cell_->timeline != nullptr ? cell_->timeline->then(*cell_, node) : cell_->done.then(node);
  }

  /// Marks the end of a stream as it is now. Errors: an injected fault; out_of_memory. Stream: enqueues the mark.
  [[nodiscard]] Error record(const stream_type& stream) noexcept;
  /// Makes a stream wait for it; nothing recorded is nothing to wait for.
  ///
  /// Errors: an injected fault; invalid_argument (another machine's event); out_of_memory. Stream: enqueues the wait.
  [[nodiscard]] Error wait_on(const stream_type& stream) const noexcept;

  /// Two handles are equal when they stand for the same place.
  friend bool operator==(const BasicSimulatedEvent& a, const BasicSimulatedEvent& b) noexcept { return a.cell_ == b.cell_; }

 private:
  friend class BasicSimulatedPromise<Watch>;
  friend class BasicSimulatedStream<Watch>;
  using Cell = detail::SimulatedCell<Watch>;
  explicit BasicSimulatedEvent(Cell* cell) noexcept : cell_(cell) {}  // takes over a share

  Cell* cell_ = nullptr;
};

/// The write end of an event that the host completes.
///
/// One that a machine made (`make_promise`) gives an event whose wait runs that machine; of one made alone, streams may
/// wait, but a host that waits only parks. Destroyed unset, it fails the event as `aborted`. Threads: one at a time.
template <order_watch Watch>
class BasicSimulatedPromise {
 public:
  using event_type = BasicSimulatedEvent<Watch>;

  /// Makes one that belongs to no machine. Errors: out_of_memory.
  [[nodiscard]] static Result<BasicSimulatedPromise> make() noexcept { return make(nullptr); }
  /// Makes one for the machine of the first event that has one. Errors: out_of_memory.
  [[nodiscard]] static Result<BasicSimulatedPromise> make_like(std::span<const event_type> events) noexcept {
    for (const event_type& e : events)
      if (e.cell_ != nullptr && e.cell_->timeline != nullptr) return make(e.cell_->timeline);
    return make();
  }
  constexpr BasicSimulatedPromise() noexcept = default;
  BasicSimulatedPromise(BasicSimulatedPromise&& other) noexcept : cell_(std::exchange(other.cell_, nullptr)) {}
  BasicSimulatedPromise& operator=(BasicSimulatedPromise other) noexcept {
    std::swap(cell_, other.cell_);
    return *this;
  }
  ~BasicSimulatedPromise() {
    if (cell_ != nullptr) static_cast<void>(set_error(make_error(Errc::aborted, "the promise was dropped without a result")));
  }

  /// A handle to the event; a set or empty promise has none to give (a ready event).
  [[nodiscard]] event_type get_event() const noexcept {
    if (cell_ != nullptr) cell_->retain();
    return event_type(cell_);
  }
  /// True while the event can still be set.
  [[nodiscard]] bool pending() const noexcept { return cell_ != nullptr; }
  /// Completes the event and runs its waiters on this thread. Errors: wrong_state when it was set before.
  Error set() noexcept { return complete(Error{}); }
  /// Fails the event; an error without a reason is `internal`. Errors: wrong_state when it was set before.
  Error set_error(const Error& error) noexcept {
    return complete(error.ok() ? make_error(Errc::internal, "an event was failed without a reason") : error);
  }

  // For the machine.
  [[nodiscard]] static Result<BasicSimulatedPromise> make(detail::SimulatedTimeline<Watch>* timeline) noexcept {
    auto* cell = detail::SimulatedCell<Watch>::make(timeline);
    if (cell == nullptr) return make_error(Errc::out_of_memory, "no memory for an event");
    return BasicSimulatedPromise(cell);
  }

 private:
  explicit BasicSimulatedPromise(detail::SimulatedCell<Watch>* cell) noexcept : cell_(cell) {}
  Error complete(const Error& error) noexcept {
    auto* cell = std::exchange(cell_, nullptr);
    if (cell == nullptr) return make_error(Errc::wrong_state, "the event was already set");
    if (cell->timeline != nullptr) {
      cell->timeline->complete(*cell, error);
    } else {
      cell->error = error;
      cell->set_finished();
      cell->resolve();
    }
    cell->drop();
    return {};
  }
  detail::SimulatedCell<Watch>* cell_ = nullptr;
};

}  // namespace holdfast
