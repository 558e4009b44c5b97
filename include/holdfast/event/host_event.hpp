// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <new>

#include "holdfast/concepts/event.hpp"
#include "holdfast/concepts/sync.hpp"
#include "holdfast/core/config.hpp"
#include "holdfast/core/intrusive_ptr.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/event/promise.hpp"

namespace holdfast {

template <sync Sync>
class BasicHostPromise;

/// A one-shot event of the host: a counted handle to one cell; a null handle is ready, costs nothing and allocates nothing.
///
/// The cell's one word holds the state in its low bits and the list of waiting nodes above, so no node can fall between
/// "is it done?" and "run the waiters". Nodes run on the completing thread, the last registered first.
/// Threads: any. Source: PJRT AsyncValue.
template <sync Sync>
class BasicHostEvent {
 public:
  /// The shared cell.
  class Cell;
  /// Its write end.
  using promise_type = BasicHostPromise<Sync>;

  constexpr BasicHostEvent() noexcept = default;

  /// Makes an event that has already failed. Errors: out_of_memory for its cell.
  [[nodiscard]] static Result<BasicHostEvent> make_failed(const Error& error) noexcept {
    Cell* cell = new (std::nothrow) Cell(error);
    if (cell == nullptr) return make_error(Errc::out_of_memory, "no memory for an event");
    return BasicHostEvent(cell);
  }

  /// True when it is done or failed.
  [[nodiscard]] bool ready() const noexcept { return cell_ == nullptr || cell_->done(); }
  /// Blocks until it is done; gives the error it failed with. Threads: any; parks on the cell's word.
  [[nodiscard]] Error wait() const noexcept { return wait_until(Deadline::never()); }
  /// The same with a deadline. Errors: would_block or deadline when it is still pending then.
  [[nodiscard]] Error wait_until(Deadline deadline) const noexcept { return cell_ == nullptr ? Error{} : cell_->wait(deadline); }
  /// The error it failed with; none while it is pending.
  [[nodiscard]] Error error() const noexcept { return ready() && cell_ != nullptr ? cell_->error() : Error{}; }
  /// Queues a node to run when it completes; false: it is ready, run it yourself. Cost: one atomic operation.
  [[nodiscard]] bool then(Continuation& node) const noexcept { return cell_ != nullptr && cell_->push(node); }

  /// Two handles are equal when they stand for the same event.
  friend bool operator==(const BasicHostEvent& a, const BasicHostEvent& b) noexcept { return a.cell_ == b.cell_; }

 private:
  friend class CellPromise<BasicHostEvent>;
  constexpr explicit BasicHostEvent(Cell* cell) noexcept : cell_(cell) {}
  IntrusivePtr<Cell> cell_;
};

template <sync Sync>
class BasicHostEvent<Sync>::Cell : public RefCounted<Cell, typename Sync::template atomic<std::uint32_t>> {
 public:
  Cell() noexcept = default;
  explicit Cell(const Error& error) noexcept : word_(failed), error_(error) {}

  [[nodiscard]] bool done() const noexcept { return (word_.load(std::memory_order_acquire) & done_mask) != 0; }
  [[nodiscard]] Error error() const noexcept { return error_; }

  // The release half publishes the node's fields to the completer, whose exchange acquires them.
  [[nodiscard]] bool push(Continuation& node) noexcept {
    std::uintptr_t w = word_.load(std::memory_order_acquire);
    do {
      if ((w & done_mask) != 0) return false;
      node.next = reinterpret_cast<Continuation*>(w & ~low_mask);
    } while (!word_.compare_exchange_weak(w, reinterpret_cast<std::uintptr_t>(&node) | (w & sleeping),
                                          std::memory_order_release, std::memory_order_acquire));
    return true;
  }

  [[nodiscard]] Error wait(Deadline deadline) noexcept {
    std::uintptr_t w = word_.load(std::memory_order_acquire);
    while ((w & done_mask) == 0) [[unlikely]] {
      if (deadline.passed())
        return deadline.is_now() ? make_error(Errc::would_block, "the event is still pending")
                                 : make_error(Errc::deadline, "the event was still pending at the deadline");
      // A completer that does not see this bit has not exchanged yet or will change the word we are about to compare.
      if ((w & sleeping) == 0) {
        if (!word_.compare_exchange_weak(w, w | sleeping, std::memory_order_acquire, std::memory_order_acquire)) continue;
        w |= sleeping;
      }
      Sync::wait_until(word_, w, deadline);
      w = word_.load(std::memory_order_acquire);
    }
    return w == failed ? error_ : Error{};
  }

  // The promise is the only completer, so one exchange takes the waiters and publishes the result; the acquire half
  // pairs with `push`, the release half makes the work and the error visible to whoever sees the state.
  void complete(const Error& error) noexcept {
    if (!error.ok()) error_ = error;
    const std::uintptr_t old = word_.exchange(error.ok() ? succeeded : failed, std::memory_order_acq_rel);
    HOLDFAST_ASSERT((old & done_mask) == 0);
    if ((old & sleeping) != 0) Sync::notify_all(word_);
    for (auto* node = reinterpret_cast<Continuation*>(old & ~low_mask); node != nullptr;) {
      Continuation* next = node->next;  // a node may die in its own run
      node->run(*node);
      node = next;
    }
  }

 private:
  static constexpr std::uintptr_t succeeded = 1, failed = 2, done_mask = 3, sleeping = 4, low_mask = 7;
  typename Sync::template atomic<std::uintptr_t> word_{0};
  Error error_;
};

/// The write end of a host event. Threads: one at a time.
template <sync Sync>
class BasicHostPromise : public CellPromise<BasicHostEvent<Sync>> {
 public:
  /// Makes a pending event. Errors: out_of_memory for its cell. Cost: the event's only allocation.
  [[nodiscard]] static Result<BasicHostPromise> make() noexcept {
    auto* cell = new (std::nothrow) Cell();
    if (cell == nullptr) return make_error(Errc::out_of_memory, "no memory for an event");
    return BasicHostPromise(cell);
  }
  constexpr BasicHostPromise() noexcept = default;

 private:
  using Cell = typename BasicHostEvent<Sync>::Cell;
  constexpr explicit BasicHostPromise(Cell* cell) noexcept : CellPromise<BasicHostEvent<Sync>>(cell) {}
};

/// A host event inside its owner, on a stack or in an object: no handle, no count, no allocation.
///
/// The owner keeps it until `set` has returned and nobody waits. Threads: any; set once, by one thread.
template <sync Sync>
class BasicInlineEvent {
 public:
  BasicInlineEvent() noexcept = default;
  BasicInlineEvent(const BasicInlineEvent&) = delete;
  BasicInlineEvent& operator=(const BasicInlineEvent&) = delete;

  void set() noexcept { cell_.complete(Error{}); }
  void set_error(const Error& error) noexcept { cell_.complete(error); }
  [[nodiscard]] bool ready() const noexcept { return cell_.done(); }
  [[nodiscard]] Error wait(Deadline deadline = Deadline::never()) noexcept { return cell_.wait(deadline); }
  [[nodiscard]] bool then(Continuation& node) noexcept { return cell_.push(node); }

 private:
  typename BasicHostEvent<Sync>::Cell cell_;
};

/// The inline event of real threads.
using InlineEvent = BasicInlineEvent<StdSync>;
/// The host event of real threads.
using HostEvent = BasicHostEvent<StdSync>;
/// Its write end.
using HostPromise = BasicHostPromise<StdSync>;
static_assert(promised_event<HostEvent> && sizeof(HostEvent) == sizeof(void*));

}  // namespace holdfast
