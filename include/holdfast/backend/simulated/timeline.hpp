// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/backend/simulated/operation.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/concepts/sync.hpp"

namespace holdfast {

/// How a simulated machine behaves.
///
/// Units: delays are units of virtual time; a call of the host takes 1.
struct SimulatedOptions {
  std::uint64_t seed = 1;
  std::int64_t longest_delay = 256;  ///< operations take 1 to this long, short ones oftener; the seed draws
  bool spoil = true;                 ///< bytes are overwritten when allocated and freed, so that using them shows
  bool sole_thread = false;          ///< only one host thread: a wait for what nobody can complete is an error, not for ever
};

namespace detail {

/// The streams of a machine and the virtual clock that their operations run by.
///
/// An operation ends its delay after its stream's last one, the event it waits for and its call. The next to run is the
/// one that ends first, so for one host thread a seed gives one order. Waiting threads run operations.
template <order_watch Watch>
class SimulatedTimeline {
 public:
  using clock_type = typename Watch::clock_type;
  using Cell = SimulatedCell<Watch>;
  using Operation = SimulatedOperation<Watch>;
  using Stream = SimulatedQueue<Watch>;
  static constexpr std::int64_t end_of_time = std::numeric_limits<std::int64_t>::max();

  explicit SimulatedTimeline(const SimulatedOptions& options) noexcept : options_(options) {}
  SimulatedTimeline(SimulatedTimeline&&) = delete;

  [[nodiscard]] const SimulatedOptions& options() const noexcept { return options_; }
  [[nodiscard]] Watch& watch() noexcept { return watch_; }
  [[nodiscard]] std::int64_t now() noexcept {
    const std::scoped_lock lock(mutex_);
    return now_;
  }
  // Runs `f(watch)` with the lock held: whatever else the machine keeps is guarded by it, too.
  template <class F>
  decltype(auto) with_lock(F f) noexcept {
    const std::scoped_lock lock(mutex_);
    return f(watch_);
  }
  void host_touch(std::string_view name, std::span<const MemoryTouch> touches) noexcept {
    run_due();
    with_lock([&](Watch& watch) noexcept { touch(watch, host_actor, name, touches); });
  }
  static void touch(Watch& watch, ActorId actor, std::string_view name, std::span<const MemoryTouch> touches) noexcept {
    watch.begin(actor, name);
    for (const MemoryTouch& t : touches) watch.touch(actor, t);
  }

  [[nodiscard]] Stream* add_stream(std::string_view name, DeviceHealth& health) noexcept {
    auto stream = std::make_unique<Stream>(*this, health);
    Stream* const made = stream.get();
    with_lock([&](Watch& watch) noexcept {
      stream->actor = watch.add_actor(name, streams_.size());
      streams_.push_back(std::move(stream));
    });
    return made;
  }

  // Puts an operation at the end of a stream.
  void enqueue(Stream& stream, std::unique_ptr<Operation> operation) noexcept {
    with_lock([&](Watch& watch) noexcept {
      operation->earliest = ++now_;
      operation->delay = draw_delay();
      operation->enqueued = watch.release(host_actor);
      (stream.last != nullptr ? stream.last->next : stream.first) = operation.get();
      stream.last = operation.release();
    });
    bump();
  }

  // Runs the operation that ends first, if that is not after `limit`; the waiters of its event are told by `tell_waiters`.
  bool step(std::int64_t limit = end_of_time) noexcept {
    if (running_.exchange(true, std::memory_order_acquire)) return false;  // another thread, or a kernel that calls back
    const bool ran = step_alone(limit);
    running_.store(false, std::memory_order_release);
    if (ran) bump();
    return ran;
  }
  // Runs the continuations of completed events; the host has seen these then.
  void tell_waiters() noexcept {
    while (Cell* cell = with_lock([&](Watch& watch) noexcept {
             Cell* first = completed_;
             if (first == nullptr) return first;
             completed_ = first->next_completed;
             if (completed_ == nullptr) last_completed_ = nullptr;
             if (first->watched) watch.acquire(host_actor, first->clock);
             return first;
           })) {
      cell->resolve();
      cell->drop();
    }
  }
  // Lets a call's worth of time pass and runs what ends in it; runs no continuation, so it may be called anywhere.
  void run_due() noexcept {
    const std::int64_t limit = with_lock([&](Watch&) noexcept { return ++now_; });
    while (step(limit)) {
    }
    bump();  // a thread that found this one running looks again
  }
  bool pump() noexcept {
    const bool ran = step();
    if (!ran) bump();
    tell_waiters();
    return ran;
  }

  [[nodiscard]] bool ready(Cell& cell) noexcept {
    if (!cell.finished()) run_due();
    if (!cell.finished()) return false;
    see(cell);
    return true;
  }
  [[nodiscard]] bool then(Cell& cell, Continuation& node) noexcept {
    return with_lock([&](Watch& watch) noexcept {
      if (!cell.finished()) {
        cell.watched = true;
        return cell.done.then(node);
      }
      watch.acquire(host_actor, cell.clock);
      return false;
    });
  }
  [[nodiscard]] Error wait(Cell& cell, Deadline deadline) noexcept {
    for (;;) {
      const std::uint32_t seen = progress_.load(std::memory_order_acquire);
      if (cell.finished()) break;
      if (deadline.passed())
        return deadline.is_now() ? make_error(Errc::would_block, "the event is still pending")
                                 : make_error(Errc::deadline, "the event was still pending at the deadline");
      const bool ran = step();
      tell_waiters();
      if (ran) continue;
      if (options_.sole_thread || gone_.load(std::memory_order_acquire)) {
        if (cell.finished()) break;
        return make_error(Errc::wrong_state, "deadlock: the event waits for something that nobody can complete");
      }
      // Events that no timeline made complete without telling this one, so a stream may become ready unseen.
      StdSync::wait_until(progress_, seen, Deadline::after(std::chrono::milliseconds(1)));
    }
    tell_waiters();
    see(cell);
    return cell.error;
  }
  // Completes the event of a host promise, with all that the host has seen.
  void complete(Cell& cell, const Error& error) noexcept {
    with_lock([&](Watch& watch) noexcept {
      cell.clock = watch.release(host_actor);
      cell.finish = now_;
      cell.error = error;
      cell.set_finished();
    });
    bump();
    cell.resolve();
  }
  // Fails everything that has not run.
  void abandon() noexcept {
    const Error gone = make_error(Errc::aborted, "the simulated machine is gone");
    gone_.store(true, std::memory_order_release);
    running_.store(true, std::memory_order_release);  // whoever waits now is not to run what is left
    for (bool more = true; more; tell_waiters()) {  // those told may enqueue more
      more = false;
      for (auto& stream : streams_) {
        while (Operation* operation = stream->first) {
          more = true;
          finish(*stream, *operation, now_, gone);
          delete operation;
        }
      }
    }
  }

 private:
  bool step_alone(std::int64_t limit) noexcept {
    Stream* stream = nullptr;
    Operation* operation = nullptr;
    std::int64_t end = limit;
    Error error;
    with_lock([&](Watch& watch) noexcept {
      for (auto& s : streams_) {
        std::int64_t at = 0;
        if (s->first == nullptr || !can_run(*s, *s->first, at) || at > end || (at == end && stream != nullptr)) continue;
        stream = s.get();
        end = at;
      }
      if (stream == nullptr) return;
      operation = stream->first;
      error = stream->health.dead().ok() ? operation->failure : stream->health.dead();
      show(watch, *stream, *operation, error.ok());
    });
    if (operation == nullptr) return false;
    if (error.ok()) error = operation->run();
    with_lock([&](Watch& watch) noexcept {
      if (!error.ok() && operation->failure_sticks) stream->health.die(error);
      finish(*stream, *operation, end, error);
      // Buffers that the function owned go back now, on the host, which must have seen it end as a callback does.
      if (operation->owns) watch.acquire(host_actor, watch.release(stream->actor));
    });
    delete operation;
    return true;
  }
  [[nodiscard]] bool can_run(const Stream& stream, const Operation& operation, std::int64_t& end) const noexcept {
    std::int64_t start = std::max(stream.end, operation.earliest);
    if (operation.waits != nullptr) {
      if (!operation.waits->finished()) return false;
      start = std::max(start, operation.waits->finish);
    }
    end = start + operation.delay;
    return true;
  }
  void show(Watch& watch, const Stream& stream, const Operation& operation, bool runs) noexcept {
    watch.acquire(stream.actor, operation.enqueued);
    if (const Cell* cell = operation.waits; cell != nullptr)
      watch.acquire(stream.actor, cell->timeline == this ? cell->clock : watch.release(host_actor));
    touch(watch, stream.actor, operation.name, runs ? operation.touches() : std::span<const MemoryTouch>{});
  }
  // Takes the first operation off its stream.
  void finish(Stream& stream, Operation& operation, std::int64_t end, const Error& error) noexcept {
    stream.first = operation.next;
    if (stream.first == nullptr) stream.last = nullptr;
    stream.end = std::max(stream.end, end);
    if (operation.waits != nullptr) operation.waits->drop();
    Cell* const cell = operation.completes;
    if (cell == nullptr) return;
    cell->finish = end;
    cell->clock = watch_.release(stream.actor);
    cell->error = error;
    cell->set_finished();
    (last_completed_ != nullptr ? last_completed_->next_completed : completed_) = cell;
    last_completed_ = cell;
  }
  void see(Cell& cell) noexcept {
    with_lock([&](Watch& watch) noexcept {
      now_ = std::max(now_, cell.finish);
      watch.acquire(host_actor, cell.clock);
    });
  }
  void bump() noexcept {
    progress_.fetch_add(1, std::memory_order_release);
    StdSync::notify_all(progress_);
  }
  // Most operations are short and some are very long: that is what shows a missing wait in the bytes.
  [[nodiscard]] std::int64_t draw_delay() noexcept {
    const std::uint64_t r = draw();
    std::int64_t most = std::max<std::int64_t>(options_.longest_delay, 1);
    for (std::uint64_t halvings = r & 7; halvings > 0 && most > 1; --halvings) most /= 2;
    return 1 + static_cast<std::int64_t>((r >> 8) % static_cast<std::uint64_t>(most));
  }
  // SplitMix64: the n-th number depends on the seed and n only, so delays do not depend on when operations run.
  [[nodiscard]] std::uint64_t draw() noexcept {
    std::uint64_t z = options_.seed + ++drawn_ * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  const SimulatedOptions options_;
  std::mutex mutex_;  // never held while foreign code runs
  std::atomic<bool> running_{false};
  std::atomic<bool> gone_{false};
  std::atomic<std::uint32_t> progress_{0};
  HOLDFAST_NO_UNIQUE_ADDRESS Watch watch_;
  std::vector<std::unique_ptr<Stream>> streams_;
  Cell* completed_ = nullptr;
  Cell* last_completed_ = nullptr;
  std::int64_t now_ = 0;
  std::uint64_t drawn_ = 0;
};

}  // namespace detail
}  // namespace holdfast
