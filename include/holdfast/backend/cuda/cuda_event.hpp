// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <utility>

#include "holdfast/backend/cuda/stream.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/core/intrusive_ptr.hpp"
#include "holdfast/event/promise.hpp"

namespace holdfast {

template <cuda_driver Driver>
class BasicCudaPromise;

/// A mark in a stream, or what a host promise completes: a counted handle, ready while it stands for nothing.
///
/// Two moments are apart: *recorded*, when other streams can wait for it, and *completed*, when the host has seen the device
/// pass it. The driver's events come from a pool and carry numbers in record order. Recording again makes this handle
/// stand for the new place; copies keep the old one. Continuations run on a thread that waits for some event or stream of
/// the context, or in its `run_completions`: they may make any call.
/// Threads: different handles on any threads. The context must outlive it. Source: runtime.md 2.6.
template <cuda_driver Driver>
class BasicCudaEvent {
 public:
  using promise_type = BasicCudaPromise<Driver>;
  using stream_type = BasicCudaStreamRef<Driver>;
  /// Where it was recorded; no stream and 0 if it was not.
  struct Place {
    stream_type stream{};
    std::uint64_t sequence = 0;
  };

  constexpr BasicCudaEvent() noexcept = default;

  /// Marks the end of a stream as it is now. Errors: wrong_state (it is being captured), the driver's, and this stands for what it stood for; out_of_memory.
  /// Stream: records the mark.
  [[nodiscard]] Error record(const stream_type& stream) noexcept {
    Result<BasicCudaEvent> made = after(stream, []() noexcept { return Error{}; });
    if (!made.ok()) return made.error();
    *this = std::move(*made);
    return {};
  }
  /// Makes an event of work that `enqueue()` puts on a stream, all that an event needs having been made before.
  ///
  /// Errors: wrong_state (the stream is being captured) before anything is put there; those of `enqueue`; the driver's, after the work was waited for; out_of_memory. Stream: the work, the mark.
  template <class F>
  [[nodiscard]] static Result<BasicCudaEvent> after(const stream_type& stream, F enqueue) noexcept {
    State& state = stream.state();
    BasicCudaEvent made(new (std::nothrow) Cell(&state));
    if (made.cell_ == nullptr) return make_error(Errc::out_of_memory, "no memory for an event");
    if (Error e = state.markable(stream.native()); !e.ok()) return e;
    if (Error e = state.take_event(made.cell_->handle); !e.ok()) return e;
    if (Error e = enqueue(); !e.ok()) return e;
    if (Error e = state.record(*made.cell_, stream.native(), stream.id()); !e.ok()) {
      state.insist(cuda_call::StreamSynchronize{}, stream.native());
      return e;
    }
    return made;
  }
  /// Makes an event of the end of a stream. Errors, Stream: as `record`.
  [[nodiscard]] static Result<BasicCudaEvent> recorded_on(const stream_type& stream) noexcept {
    BasicCudaEvent made;
    if (Error e = made.record(stream); !e.ok()) return e;
    return made;
  }

  // --- completed ---

  /// True when it is done or failed. Asks the driver; runs no continuation, so it may be called anywhere.
  [[nodiscard]] bool ready() const noexcept {
    return cell_ == nullptr || (cell_->handle != nullptr ? cell_->state->poll(*cell_) : cell_->finished());
  }
  /// True when it is done and has not failed. As `ready`.
  [[nodiscard]] bool passed() const noexcept { return ready() && (cell_ == nullptr || cell_->error.ok()); }
  /// Blocks until it is done; gives the error it failed with. Errors: a fault of the device, with its native code.
  /// Threads: blocks, the driver may spin; runs continuations.
  [[nodiscard]] Error wait() const noexcept { return wait_until(Deadline::never()); }
  /// The same with a deadline. Errors: also would_block or deadline when it is still pending then.
  [[nodiscard]] Error wait_until(Deadline deadline) const noexcept {
    if (cell_ == nullptr) return {};
    return cell_->state != nullptr ? cell_->state->wait(*cell_, deadline) : cell_->done.wait(deadline);
  }
  /// Queues a node, which runs as the class says; false: it is ready, run it yourself. Asks the driver first.
  /// Stream: has a stream of the context call the host when it is done, which wakes those that wait.
  [[nodiscard]] bool then(Continuation& node) const noexcept {
    if (ready()) return false;
    const BasicCudaEvent self(*this);  // the node may end whoever owns this handle
    if (!self.cell_->done.then(node)) return false;
    if (self.cell_->handle != nullptr) self.cell_->state->watch(*self.cell_);
    return true;
  }

  // --- recorded ---

  /// Makes a stream wait for it, unless it is that stream's own, done, or implied by what the stream waits for already.
  ///
  /// What a host promise completes the host waits for here; how it ends is no error. Errors: the driver's.
  /// Stream: enqueues at most one wait.
  [[nodiscard]] Error wait_on(const stream_type& stream) const noexcept {
    if (cell_ == nullptr) return {};
    if (cell_->handle == nullptr) return static_cast<void>(wait()), Error{};
    return cell_->state->wait_on(*cell_, stream.state(), stream.native(), stream.id());
  }
  /// Makes a stream that the library knows nothing of wait for it. Errors, Stream: as above; never left out.
  [[nodiscard]] Error wait_on_native(CUstream stream) const noexcept {
    if (cell_ == nullptr) return {};
    if (cell_->handle == nullptr) return static_cast<void>(wait()), Error{};
    return cell_->state->inside(cuda_call::StreamWaitEvent{}, stream, cell_->handle, 0u);
  }
  Error wait_on_native(int) const = delete;
  Error wait_on_native(std::nullptr_t) const = delete;
  /// True if the stream is the one that it was recorded on, or waits for it. Never blocks.
  [[nodiscard]] bool is_defined_on(const stream_type& stream) const noexcept {
    return cell_ == nullptr || (cell_->handle != nullptr && cell_->state->waits_for(*cell_, stream.id()));
  }
  [[nodiscard]] Place definition_place() const noexcept {
    if (cell_ == nullptr || cell_->handle == nullptr) return {};
    return {stream_type::known(*cell_->state, cell_->stream, cell_->stream_id), cell_->sequence};
  }
  /// The driver's event, good while this handle lives; null if there is none.
  [[nodiscard]] CUevent native() const noexcept { return cell_ == nullptr ? nullptr : cell_->handle; }

  /// Two handles are equal when they stand for the same place.
  friend bool operator==(const BasicCudaEvent& a, const BasicCudaEvent& b) noexcept { return a.cell_ == b.cell_; }

 private:
  friend class CellPromise<BasicCudaEvent>;
  friend class BasicCudaPromise<Driver>;
  using State = detail::CudaState<Driver>;
  using Cell = detail::CudaEventCell<Driver>;
  explicit BasicCudaEvent(Cell* cell) noexcept : cell_(cell) {}  // takes over a share
  IntrusivePtr<Cell> cell_;
};

/// The write end of an event that the host completes.
///
/// One that belongs to a context (`make_promise`, or made like its events) gives an event whose wait runs the context's
/// continuations; of one made alone a wait only parks. Threads: one at a time.
template <cuda_driver Driver>
class BasicCudaPromise : public CellPromise<BasicCudaEvent<Driver>> {
  using event_type = BasicCudaEvent<Driver>;
  using Cell = detail::CudaEventCell<Driver>;

 public:
  /// Makes one that belongs to no context. Errors: out_of_memory.
  [[nodiscard]] static Result<BasicCudaPromise> make() noexcept { return make(nullptr); }
  /// Makes one for the context of the first event that has one. Errors: out_of_memory.
  [[nodiscard]] static Result<BasicCudaPromise> make_like(std::span<const event_type> events) noexcept {
    for (const event_type& e : events)
      if (e.cell_ != nullptr && e.cell_->state != nullptr) return make(e.cell_->state);
    return make();
  }
  constexpr BasicCudaPromise() noexcept = default;

  // For contexts.
  [[nodiscard]] static Result<BasicCudaPromise> make(detail::CudaState<Driver>* state) noexcept {
    auto* cell = new (std::nothrow) Cell(state);
    if (cell == nullptr) return make_error(Errc::out_of_memory, "no memory for an event");
    return BasicCudaPromise(cell);
  }

 private:
  explicit BasicCudaPromise(Cell* cell) noexcept : CellPromise<event_type>(cell) {}
};

/// The events of this machine's driver.
using CudaEvent = BasicCudaEvent<RealDriver>;
using CudaPromise = BasicCudaPromise<RealDriver>;
static_assert(stream_event<CudaEvent, CudaStreamRef> && promised_event<CudaEvent>);

}  // namespace holdfast
