// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "holdfast/backend/cuda/detail/cuda_context_calls.hpp"
#include "holdfast/concepts/lock.hpp"
#include "holdfast/concepts/sync.hpp"
#include "holdfast/core/intrusive_ptr.hpp"
#include "holdfast/event/event_list.hpp"
#include "holdfast/event/host_event.hpp"

namespace holdfast::detail {

template <cuda_driver Driver>
class CudaState;

// What an event stands for: a driver's mark in a stream, or, without a handle, what a promise completes.
// It is finished when somebody has seen the mark passed or failed; its waiters are told later, where continuations may run.
template <cuda_driver Driver>
struct CudaEventCell : RefCounted<CudaEventCell<Driver>> {
  explicit CudaEventCell(CudaState<Driver>* s) noexcept : state(s) {}
  ~CudaEventCell() {
    if (handle != nullptr) state->give_event(handle);
  }

  [[nodiscard]] bool finished() const noexcept { return is_finished.load(std::memory_order_acquire); }
  // The first to see the end says how it was.
  void finish(const Error& e) noexcept {
    const LockGuard<WordLock> guard(lock);
    if (finished()) return;
    error = e;
    is_finished.store(true, std::memory_order_release);
  }
  void resolve() noexcept { error.ok() ? done.set() : done.set_error(error); }
  // For promises.
  void complete(const Error& e) noexcept {
    finish(e);
    resolve();
    if (state != nullptr) state->wake();
  }

  CudaState<Driver>* const state;  // null: a promise that belongs to no context
  CUevent handle = nullptr;        // this and the place: constant once others know the cell
  CUstream stream = nullptr;
  std::uint64_t stream_id = 0;
  std::uint64_t sequence = 0;
  std::atomic<bool> is_finished{false};
  WordLock lock;
  Error error;
  InlineEvent done;
  CudaEventCell* next = nullptr;  // this and `watched`: guarded by the state
  bool watched = false;
};

// Which marks streams wait for already, by the numbers that no two streams of a program share: a handle may come again
// after its stream was destroyed. What is forgotten is waited for once more. Threads: any.
class CudaWaits {
 public:
  [[nodiscard]] bool implied(std::uint64_t waiter, std::uint64_t source, std::uint64_t sequence) noexcept {
    const LockGuard<WordLock> guard(lock_);
    const Wait& w = place(waiter, source);
    return w.waiter == waiter && w.source == source && w.sequence >= sequence;
  }
  void note(std::uint64_t waiter, std::uint64_t source, std::uint64_t sequence) noexcept {
    const LockGuard<WordLock> guard(lock_);
    Wait& w = place(waiter, source);
    if (w.waiter != waiter || w.source != source || w.sequence < sequence) w = {waiter, source, sequence};
  }

 private:
  struct Wait {
    std::uint64_t waiter = 0, source = 0, sequence = 0;  // sequence 0: none
  };
  Wait& place(std::uint64_t waiter, std::uint64_t source) noexcept {
    return waits_[((waiter * 0x9E3779B97F4A7C15u) ^ (source * 0xC2B2AE3D27D4EB4Fu)) >> 56];
  }
  WordLock lock_;
  std::array<Wait, 256> waits_{};
};

// One device's primary context: pooled events numbered in record order, events that are watched.
template <cuda_driver Driver>
class CudaState : CudaContexts::Member, public CudaContextCalls<Driver> {
  using Calls = CudaContextCalls<Driver>;

 public:
  using Cell = CudaEventCell<Driver>;
  using Calls::call, Calls::inside, Calls::insist, Calls::note, Calls::driver, Calls::device;

  CudaState(Driver d, CUdevice dev, CUcontext c) noexcept : Calls(std::move(d), dev, c) {
    this->run = [](CudaContexts::Member& self) noexcept { return static_cast<CudaState&>(self).run_completions(); };
    driver.contexts().add(*this);
  }
  CudaState(CudaState&&) = delete;
  ~CudaState() {
    driver.contexts().remove(*this);
    finish_watched(std::numeric_limits<std::uint64_t>::max());
    if (wake_ != nullptr) insist(cuda_call::StreamSynchronize{}, wake_);  // its host functions run by then
    destroy(wake_);
    for (const OwnStream& own : copies_) destroy(own.stream);
    for (const CUevent event : free_events_.span()) insist(cuda_call::EventDestroy{}, event);
    note(call(cuda_call::DevicePrimaryCtxRelease{}, device));
  }

  // --- events ---

  [[nodiscard]] Error take_event(CUevent& out) noexcept {
    {
      const LockGuard<WordLock> guard(events_lock_);
      if (!free_events_.empty()) {
        out = free_events_.span().back();
        free_events_.pop_back();
        return {};
      }
    }
    return inside(cuda_call::EventCreate{}, &out, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
  }
  // A stream that waits for the mark keeps what it asked for, so the handle can be recorded anew at once.
  void give_event(CUevent event) noexcept {
    {
      const LockGuard<WordLock> guard(events_lock_);
      if (free_events_.push_back(CUevent(event)).ok()) return;
    }
    insist(cuda_call::EventDestroy{}, event);
  }
  // A mark in a stream that is being captured would be part of the graph: no question about it is allowed.
  [[nodiscard]] Error markable(CUstream stream) noexcept {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (Error e = call(cuda_call::StreamIsCapturing{}, stream, &status); !e.ok()) return e;
    return status == CU_STREAM_CAPTURE_STATUS_NONE ? Error{} : make_error(Errc::wrong_state, "the stream is being captured: its events stand for nothing");
  }
  // Records the cell's mark, which it has taken before. The number is taken under the lock of the record call, so that the
  // orders agree.
  [[nodiscard]] Error record(Cell& cell, CUstream stream, std::uint64_t stream_id) noexcept {
    const LockGuard<WordLock> guard(record_lock_);
    if (Error e = inside(cuda_call::EventRecord{}, cell.handle, stream); !e.ok()) return e;
    cell.sequence = ++last_sequence_;
    cell.stream = stream;
    cell.stream_id = stream_id;
    return {};
  }
  // Asks the driver without blocking.
  [[nodiscard]] bool poll(Cell& cell) noexcept {
    if (cell.finished()) return true;
    if (cell.handle == nullptr) return false;
    const typename Calls::Relaxed relaxed(*this);
    return ask(cell);
  }
  [[nodiscard]] Error wait(Cell& cell, Deadline deadline) noexcept {
    for (;;) {
      const std::uint32_t seen = progress().load(std::memory_order_acquire);
      if (poll(cell)) break;
      if (deadline.passed())
        return deadline.is_now() ? make_error(Errc::would_block, "the event is still pending")
                                 : make_error(Errc::deadline, "the event was still pending at the deadline");
      if (cell.handle != nullptr && deadline.is_never()) {
        end(cell, inside(cuda_call::EventSynchronize{}, cell.handle));
      } else if (!driver.contexts().run()) {
        driver.pause(progress(), seen, Deadline::after(longest_pause));
      }
    }
    run_completions();
    return cell.error;
  }
  [[nodiscard]] Error wait_on(Cell& cell, CudaState& waiter, CUstream stream, std::uint64_t stream_id) noexcept {
    if ((cell.finished() && cell.error.ok()) || cell.stream_id == stream_id) return {};
    if (waits_.implied(stream_id, cell.stream_id, cell.sequence)) return {};
    if (Error e = waiter.inside(cuda_call::StreamWaitEvent{}, stream, cell.handle, 0u); !e.ok()) return e;
    waits_.note(stream_id, cell.stream_id, cell.sequence);
    return {};
  }
  [[nodiscard]] bool waits_for(const Cell& cell, std::uint64_t stream_id) noexcept {
    return cell.stream_id == stream_id || waits_.implied(stream_id, cell.stream_id, cell.sequence);
  }

  // A stream of the context's own for copies that name none, made when it is first asked for.
  struct OwnStream {
    CUstream stream = nullptr;
    std::uint64_t id = 0;
  };
  [[nodiscard]] Result<OwnStream> copy_stream(std::size_t which) noexcept {
    const LockGuard<WordLock> guard(copies_lock_);
    OwnStream& own = copies_[which];
    if (Error e = make_once(own.stream); !e.ok()) return e;
    unsigned long long id = own.id;
    if (id == 0)
      if (Error e = inside(cuda_call::StreamGetId{}, own.stream, &id); !e.ok()) return e;
    own.id = id;
    return own;
  }

  // --- completions ---

  // Has the cell's waiters told when it is finished, by whoever runs completions then.
  void watch(Cell& cell) noexcept {
    {
      const LockGuard<WordLock> guard(watch_lock_);
      if (cell.watched) return;
      cell.watched = true;
      cell.retain();
      cell.next = nullptr;
      append(&cell, &cell);
    }
    note(ask_to_be_woken(cell.handle));
  }
  // Tells the waiters of all watched events that are finished, in the order in which they were watched. The driver runs no
  // host function after a fault, so it asks about every one of them.
  bool run_completions() noexcept {
    Runner self;
    Cell* cell = take_watched(self);
    if (cell == nullptr) return false;
    Cell *pending = nullptr, **pending_end = &pending, *last_pending = nullptr, *ready = nullptr, **ready_end = &ready;
    for (const typename Calls::Relaxed relaxed(*this); cell != nullptr;) {
      Cell* const next = std::exchange(cell->next, nullptr);
      if (cell->finished() || ask(*cell)) {
        *ready_end = cell;
        ready_end = &cell->next;
      } else {
        *pending_end = last_pending = cell;
        pending_end = &cell->next;
      }
      cell = next;
    }
    if (pending != nullptr) {
      const LockGuard<WordLock> guard(watch_lock_);
      append(pending, last_pending);
    }
    const bool any = ready != nullptr;
    while (ready != nullptr) {
      Cell* const next = ready->next;
      ready->resolve();
      ready->drop();
      ready = next;
    }
    if (leave(self) || any) wake();
    return any;
  }
  // The same of a device that is idle: when it returns, nothing that was due is left, also with another thread. That one may
  // have asked too early and put an event back, so it is waited for before and after; nobody is waited for in a continuation.
  void settle() noexcept {
    await_runners();
    run_completions();
    await_runners();
  }
  // Waits for the watched events up to a number: what their continuations give back, they can give back after it no more.
  // Later ones may be watched for ever.
  void finish_watched(std::uint64_t last) noexcept {
    do {
      while (Cell* cell = first_watched(last)) {
        end(*cell, inside(cuda_call::EventSynchronize{}, cell->handle));
        cell->drop();
        run_completions();
      }
    } while (await_runners());
  }
  void finish_watched() noexcept { finish_watched(last_sequence()); }
  // Lets threads that wait, here or in another context, look again.
  void wake() noexcept { driver.contexts().wake(); }

 private:
  static constexpr std::chrono::milliseconds longest_pause{1};

  [[nodiscard]] bool ask(Cell& cell) noexcept {
    const Error e = call(cuda_call::EventQuery{}, cell.handle);
    if (e.native == CUDA_ERROR_NOT_READY) return false;
    end(cell, e);
    return true;
  }
  // The errors of readers' events only order: without the note nobody might see a fault.
  void end(Cell& cell, const Error& e) noexcept {
    note(e);
    cell.finish(e);
  }
  void append(Cell* first, Cell* last) noexcept {
    (last_ != nullptr ? last_->next : first_) = first;
    last_ = last;
  }
  [[nodiscard]] std::atomic<std::uint32_t>& progress() const noexcept { return driver.contexts().progress; }
  [[nodiscard]] std::uint64_t last_sequence() noexcept {
    const LockGuard<WordLock> guard(record_lock_);
    return last_sequence_;
  }
  [[nodiscard]] Cell* first_watched(std::uint64_t last) noexcept {
    const LockGuard<WordLock> guard(watch_lock_);
    Cell* cell = first_;
    while (cell != nullptr && cell->sequence > last) cell = cell->next;
    if (cell != nullptr) cell->retain();
    return cell;
  }

  // A thread that has taken watched events and not yet told or put back all of them.
  struct Runner {
    std::size_t thread = StdSync::thread_slot();
    std::uint64_t number = 0;
    Runner* next = nullptr;
  };
  [[nodiscard]] Cell* take_watched(Runner& self) noexcept {
    const LockGuard<WordLock> guard(watch_lock_);
    if (first_ == nullptr) return nullptr;
    self.number = ++last_runner_;
    self.next = std::exchange(runners_, &self);
    last_ = nullptr;
    return std::exchange(first_, nullptr);
  }
  // True if somebody waits for it.
  [[nodiscard]] bool leave(Runner& self) noexcept {
    const LockGuard<WordLock> guard(watch_lock_);
    Runner** r = &runners_;
    while (*r != &self) r = &(*r)->next;
    *r = self.next;
    return std::exchange(runners_awaited_, false);
  }
  // Waits for the other threads that are at it now; false: there were none, or this thread is in a continuation itself.
  bool await_runners() noexcept {
    std::uint64_t newest = 0;
    for (bool any = false;; any = true) {
      const std::uint32_t seen = progress().load(std::memory_order_acquire);
      {
        const LockGuard<WordLock> guard(watch_lock_);
        if (!any) newest = last_runner_;
        bool waits = false;
        for (const Runner* r = runners_; r != nullptr; r = r->next) {
          if (r->thread == StdSync::thread_slot()) return false;
          waits = waits || r->number <= newest;
        }
        if (!waits) return any;
        runners_awaited_ = true;
      }
      driver.pause(progress(), seen, Deadline::after(longest_pause));
    }
  }
  [[nodiscard]] Error make_once(CUstream& stream) noexcept {
    if (stream != nullptr) return {};
    return inside(cuda_call::StreamCreate{}, &stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  }
  void destroy(CUstream stream) noexcept {
    if (stream != nullptr) insist(cuda_call::StreamDestroy{}, stream);
  }
  [[nodiscard]] Error ask_to_be_woken(CUevent event) noexcept {
    const LockGuard<WordLock> guard(wake_lock_);  // the wait and the function belong together
    if (Error e = make_once(wake_); !e.ok()) return e;
    if (Error e = inside(cuda_call::StreamWaitEvent{}, wake_, event, 0u); !e.ok()) return e;
    CUhostFn const tell = [](void* contexts) { static_cast<CudaContexts*>(contexts)->wake(); };
    return inside(cuda_call::LaunchHostFunc{}, wake_, tell, static_cast<void*>(&driver.contexts()));
  }

  WordLock events_lock_, record_lock_, watch_lock_, wake_lock_, copies_lock_;
  SmallList<CUevent> free_events_;
  std::uint64_t last_sequence_ = 0;
  CudaWaits waits_;
  Cell* first_ = nullptr;  // watched
  Cell* last_ = nullptr;
  Runner* runners_ = nullptr;  // this and the next two: guarded as these
  std::uint64_t last_runner_ = 0;
  bool runners_awaited_ = false;
  CUstream wake_ = nullptr;
  OwnStream copies_[3];
};

}  // namespace holdfast::detail
