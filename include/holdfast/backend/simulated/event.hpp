// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <span>

#include "holdfast/backend/simulated/timeline.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/core/intrusive_ptr.hpp"
#include "holdfast/event/promise.hpp"

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

  /// True when it is done or failed. Runs what is due by then, but no continuation.
  [[nodiscard]] bool ready() const noexcept {
    if (cell_ == nullptr) return true;
    return cell_->timeline != nullptr ? cell_->timeline->ready(*cell_) : cell_->done.ready();
  }
  /// True when it is done and has not failed. As `ready`.
  [[nodiscard]] bool passed() const noexcept { return ready() && (cell_ == nullptr || cell_->error.ok()); }
  /// Runs the machine until it is done; gives the error it failed with. Errors: the work's own; wrong_state (deadlock).
  [[nodiscard]] Error wait() const noexcept { return wait_until(Deadline::never()); }
  /// The same with a deadline of real time. Errors: also would_block or deadline when it is still pending then.
  [[nodiscard]] Error wait_until(Deadline deadline) const noexcept {
    if (cell_ == nullptr) return {};
    return cell_->timeline != nullptr ? cell_->timeline->wait(*cell_, deadline) : cell_->done.wait(deadline);
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
  friend class CellPromise<BasicSimulatedEvent>;
  friend class BasicSimulatedPromise<Watch>;
  friend class BasicSimulatedStream<Watch>;
  using Cell = detail::SimulatedCell<Watch>;
  explicit BasicSimulatedEvent(Cell* cell) noexcept : cell_(cell) {}  // takes over a share
  IntrusivePtr<Cell> cell_;
};

/// The write end of an event that the host completes.
///
/// One that a machine made (`make_promise`) gives an event whose wait runs that machine; of one made alone, streams may
/// wait, but a host that waits only parks. Threads: one at a time.
template <order_watch Watch>
class BasicSimulatedPromise : public CellPromise<BasicSimulatedEvent<Watch>> {
  using event_type = BasicSimulatedEvent<Watch>;
  using Cell = detail::SimulatedCell<Watch>;

 public:
  /// Makes one that belongs to no machine. Errors: out_of_memory.
  [[nodiscard]] static Result<BasicSimulatedPromise> make() noexcept { return make(nullptr); }
  /// Makes one for the machine of the first event that has one. Errors: out_of_memory.
  [[nodiscard]] static Result<BasicSimulatedPromise> make_like(std::span<const event_type> events) noexcept {
    for (const event_type& e : events)
      if (e.cell_ != nullptr && e.cell_->timeline != nullptr) return make(e.cell_->timeline);
    return make();
  }
  constexpr BasicSimulatedPromise() noexcept = default;

  // For the machine.
  [[nodiscard]] static Result<BasicSimulatedPromise> make(detail::SimulatedTimeline<Watch>* timeline) noexcept {
    auto* cell = new (std::nothrow) Cell(timeline);
    if (cell == nullptr) return make_error(Errc::out_of_memory, "no memory for an event");
    return BasicSimulatedPromise(cell);
  }

 private:
  explicit BasicSimulatedPromise(Cell* cell) noexcept : CellPromise<event_type>(cell) {}
};

}  // namespace holdfast
