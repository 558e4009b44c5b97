// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <utility>

#include "holdfast/concepts/event.hpp"
#include "holdfast/concepts/lock.hpp"
#include "holdfast/core/config.hpp"
#include "holdfast/core/intrusive_ptr.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/event/event_list.hpp"
#include "holdfast/event/host_event.hpp"

namespace holdfast {

/// A copyable handle to a stream that marks places in its order and waits for marks of other streams.
///
/// Default made it is the null stream. `record` marks what is enqueued so far; `wait` makes later work wait for a mark, not
/// the host; a mark's `passed` asks the driver without blocking.
template <class S>
concept recording_stream = std::copyable<S> && std::default_initializable<S> && std::equality_comparable<S> &&
    requires(S& s, const typename S::driver_event& mark) {
      { s.record() } noexcept -> std::same_as<Result<typename S::driver_event>>;
      { s.wait(mark) } noexcept -> std::same_as<Error>;
      { mark.passed() } noexcept -> std::same_as<bool>;
    };

/// A driver's mark and its number in the order of the pool's records; none has number 0.
template <recording_stream Stream>
struct RecordedMark {
  std::optional<typename Stream::driver_event> driver;
  std::uint64_t sequence = 0;
};

/// Hands out marks of one device's streams, numbered in the order in which they are recorded, from 1.
///
/// Threads: any; the number is taken under the lock of the record call, so their orders agree.
template <recording_stream Stream, lock Lock = WordLock>
class EventPool {
 public:
  [[nodiscard]] Result<RecordedMark<Stream>> record(Stream& stream) noexcept {
    const LockGuard<Lock> guard(lock_);
    Result<typename Stream::driver_event> mark = stream.record();
    if (!mark.ok()) return mark.error();
    return RecordedMark<Stream>{std::move(*mark), ++last_};
  }

 private:
  Lock lock_;
  std::uint64_t last_ = 0;
};

/// An event with two moments: *recorded*, when other streams can be made to wait for it, and *completed*, when the device
/// has passed it and the host knows.
///
/// As an event it is ready when completed. A "predetermined error" says that its work will never be enqueued: both moments
/// fail. A wait that a stream already makes is not made again. Comparisons are of record order, equality is identity.
/// Threads: any. Source: runtime.md 2.6.
template <recording_stream Stream>
class SequencingEvent {
 public:
  /// Where it was recorded; the null stream and 0 before that, on an error, or without a driver's mark.
  struct Place {
    Stream stream{};
    std::uint64_t sequence = 0;
  };

  /// Ready at once, recorded nowhere.
  SequencingEvent() noexcept = default;

  /// Makes an event that is neither recorded nor completed. Errors: out_of_memory.
  [[nodiscard]] static Result<SequencingEvent> make() noexcept {
    Result<HostPromise> recorded = HostPromise::make();
    if (!recorded.ok()) return recorded.error();
    Result<HostPromise> completed = HostPromise::make();
    if (!completed.ok()) return completed.error();
    SequencingEvent made;
    made.cell_ = IntrusivePtr(new (std::nothrow) Cell(std::move(*recorded), std::move(*completed)));
    if (made.cell_ == nullptr) return make_error(Errc::out_of_memory, "no memory for an event");
    return made;
  }

  // --- what the one who enqueues the work calls ---

  /// Says where it was recorded. Errors: wrong_state on a second call.
  Error set_recorded(RecordedMark<Stream> mark, Stream stream) noexcept {
    if (!cell_->recorder.pending()) return make_error(Errc::wrong_state, "the event was already recorded");
    cell_->mark = std::move(mark);
    cell_->stream = std::move(stream);
    return cell_->recorder.set();
  }
  /// Says that the work will never be enqueued; the error must be one. Errors: wrong_state when it was recorded before.
  Error set_predetermined_error(const Error& error) noexcept {
    HOLDFAST_ASSERT(!error.ok());
    if (Error e = cell_->recorder.set_error(error); !e.ok()) return e;
    return cell_->completer.set_error(error);
  }
  /// Says that the device has passed it, or how its stream failed. Errors: wrong_state on a second call.
  Error set_completed(const Error& error = {}) noexcept {
    return error.ok() ? cell_->completer.set() : cell_->completer.set_error(error);
  }

  // --- completed: the event itself ---

  [[nodiscard]] bool ready() const noexcept { return cell_ == nullptr || cell_->completed.ready(); }
  [[nodiscard]] Error wait() const noexcept { return cell_ == nullptr ? Error{} : cell_->completed.wait(); }
  [[nodiscard]] bool then(Continuation& node) const noexcept { return cell_ != nullptr && cell_->completed.then(node); }

  // --- recorded: enough for streams ---

  /// Done once it is recorded, failed with the predetermined error.
  [[nodiscard]] HostEvent recorded() const noexcept { return cell_ == nullptr ? HostEvent() : cell_->recorded; }
  /// True once it is recorded or never will be. Never blocks.
  [[nodiscard]] bool is_defined() const noexcept { return cell_ == nullptr || cell_->recorded.ready(); }
  [[nodiscard]] Place definition_place() const noexcept {
    if (cell_ == nullptr || !cell_->recorded.ready() || !cell_->recorded.error().ok()) return {};
    return {cell_->stream, cell_->mark.sequence};
  }
  /// Makes a stream wait for it, unless it is that stream's own or the stream waits already.
  ///
  /// With a predetermined error there is nothing to wait for, and no error. Errors: the driver's, none for PJRT.
  /// Threads: blocks the host until it is recorded, not until it is completed. Stream: enqueues at most one wait.
  [[nodiscard]] Error wait_on(Stream& stream) noexcept {
    if (cell_ == nullptr || !cell_->recorded.wait().ok() || cell_->stream == stream) return {};
    const LockGuard<WordLock> guard(cell_->lock);
    for (const Stream& known : cell_->known.span())
      if (known == stream) return {};
    if (cell_->mark.driver)
      if (Error e = stream.wait(*cell_->mark.driver); !e.ok()) return e;
    // Without memory for the note the wait is made again next time, which costs time and nothing else.
    static_cast<void>(cell_->known.push_back(Stream(stream)));
    return {};
  }
  /// True on a predetermined error, or if the stream is the defining one or waits for it. Threads: blocks until recorded.
  [[nodiscard]] bool is_error_or_defined_on(const Stream& stream) const noexcept {
    if (cell_ == nullptr || !cell_->recorded.wait().ok() || cell_->stream == stream) return true;
    const LockGuard<WordLock> guard(cell_->lock);
    for (const Stream& known : cell_->known.span())
      if (known == stream) return true;
    return false;
  }
  /// Asks the driver whether the device has passed it; true on a predetermined error and without a driver's mark.
  /// Threads: blocks until recorded, not longer.
  [[nodiscard]] bool is_complete() const noexcept {
    return cell_ == nullptr || !cell_->recorded.wait().ok() || !cell_->mark.driver || cell_->mark.driver->passed();
  }

  friend bool operator==(const SequencingEvent& a, const SequencingEvent& b) noexcept { return a.cell_ == b.cell_; }
  friend bool operator<(const SequencingEvent& a, const SequencingEvent& b) noexcept {
    return a.definition_place().sequence < b.definition_place().sequence;
  }
  friend bool operator>(const SequencingEvent& a, const SequencingEvent& b) noexcept { return b < a; }
  friend bool operator<=(const SequencingEvent& a, const SequencingEvent& b) noexcept { return !(b < a); }
  friend bool operator>=(const SequencingEvent& a, const SequencingEvent& b) noexcept { return !(a < b); }

 private:
  struct Cell : RefCounted<Cell> {
    Cell(HostPromise r, HostPromise c) noexcept
        : recorder(std::move(r)), completer(std::move(c)), recorded(recorder.get_event()), completed(completer.get_event()) {}
    HostPromise recorder, completer;
    HostEvent recorded, completed;
    Stream stream{};  // written before `recorded`, read after it
    RecordedMark<Stream> mark;
    WordLock lock;  // of `known`
    SmallList<Stream> known;
  };
  IntrusivePtr<Cell> cell_;
};

/// Definition events of one compute stream made only when somebody asks: a point is a number until then.
///
/// Points are asked for in any order; the same point gives the same event. When a point's event has completed, all points
/// before it are past. Threads: any. Source: runtime.md 2.6, compute-stream sync points.
template <recording_stream Stream, lock Lock = WordLock>
class SyncPoints {
 public:
  using event_type = SequencingEvent<Stream>;
  SyncPoints(EventPool<Stream, Lock>& pool, Stream stream) noexcept : pool_(&pool), stream_(std::move(stream)) {}

  /// The point of all that is enqueued until now. Cost: reads a counter.
  [[nodiscard]] std::uint64_t next_sync_point() noexcept {
    const LockGuard<Lock> guard(lock_);
    return base_ + events_.size();
  }
  /// The event of a point, recorded now if nobody asked before; of a past point none, or the oldest that is kept.
  ///
  /// Errors: the driver's; out_of_memory. Stream: records at most one mark.
  [[nodiscard]] Result<std::optional<event_type>> event_for(std::uint64_t point, bool none_if_past) noexcept {
    const LockGuard<Lock> guard(lock_);
    prune();
    if (point < base_) {
      if (none_if_past || events_.empty()) return std::optional<event_type>();
      return std::optional<event_type>(events_.span().front());
    }
    if (point >= base_ + events_.size()) {
      Result<event_type> made = event_type::make();
      if (!made.ok()) return made.error();
      Result<RecordedMark<Stream>> mark = pool_->record(stream_);
      if (!mark.ok()) return mark.error();
      static_cast<void>(made->set_recorded(std::move(*mark), stream_));
      while (point >= base_ + events_.size())  // points that nobody asked for are passed with this one
        if (Error e = events_.push_back(event_type(*made)); !e.ok()) return e;
    }
    return std::optional<event_type>(events_.span()[static_cast<std::size_t>(point - base_)]);
  }

 private:
  void prune() noexcept {
    std::size_t past = 0;
    for (std::size_t i = 0; i < events_.size(); ++i)
      if (events_.span()[i].ready() || events_.span()[i].is_complete()) past = i;
    if (past == 0) return;
    for (std::size_t i = past; i < events_.size(); ++i) events_.span()[i - past] = std::move(events_.span()[i]);
    for (std::size_t i = 0; i < past; ++i) events_.pop_back();
    base_ += past;
  }
  Lock lock_;
  EventPool<Stream, Lock>* pool_;
  Stream stream_;
  std::uint64_t base_ = 0;
  SmallList<event_type> events_;
};

}  // namespace holdfast
