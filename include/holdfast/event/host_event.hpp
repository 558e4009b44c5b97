// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <new>
#include <utility>

#include "holdfast/concepts/event.hpp"
#include "holdfast/concepts/sync.hpp"
#include "holdfast/core/config.hpp"
#include "holdfast/core/result.hpp"

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
  BasicHostEvent(const BasicHostEvent& other) noexcept : cell_(other.cell_) {
    if (cell_ != nullptr) cell_->retain();
  }
  BasicHostEvent(BasicHostEvent&& other) noexcept : cell_(std::exchange(other.cell_, nullptr)) {}
  BasicHostEvent& operator=(BasicHostEvent other) noexcept {
    std::swap(cell_, other.cell_);
    return *this;
  }
  ~BasicHostEvent() {
    if (cell_ != nullptr) cell_->drop();
  }

  /// Makes an event that has already failed. Errors: out_of_memory for its cell.
  [[nodiscard]] static Result<BasicHostEvent> make_failed(const Error& error) noexcept {
    Cell* cell = new (std::nothrow) Cell(1, error);
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
  friend class BasicHostPromise<Sync>;
  constexpr explicit BasicHostEvent(Cell* cell) noexcept : cell_(cell) {}
  Cell* cell_ = nullptr;
};

template <sync Sync>
class BasicHostEvent<Sync>::Cell {
 public:
  explicit Cell(std::uint32_t refs) noexcept : refs_(refs) {}
  Cell(std::uint32_t refs, const Error& error) noexcept : word_(failed), refs_(refs), error_(error) {}

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
    while ((w & done_mask) == 0) {
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

  void retain() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  // For the promise: while it is the only owner nobody else counts. The acquire pairs with the drops of earlier handles,
  // which a plain store would else cut off from the last one.
  void retain_by_promise() noexcept {
    if (refs_.load(std::memory_order_acquire) == 1) refs_.store(2, std::memory_order_relaxed);
    else retain();
  }
  // The last owner needs no locked instruction: nobody else is left to count.
  void drop() noexcept {
    if (refs_.load(std::memory_order_acquire) == 1 || refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  static constexpr std::uintptr_t succeeded = 1, failed = 2, done_mask = 3, sleeping = 4, low_mask = 7;
  typename Sync::template atomic<std::uintptr_t> word_{0};
  typename Sync::template atomic<std::uint32_t> refs_;
  Error error_;
};

/// The write end of a host event: set once, with success or an error.
///
/// Destroyed unset, it fails the event as `aborted`, so nobody waits for ever. Threads: one at a time.
template <sync Sync>
class BasicHostPromise {
 public:
  using event_type = BasicHostEvent<Sync>;

  /// Makes a pending event. Errors: out_of_memory for its cell. Cost: the event's only allocation.
  [[nodiscard]] static Result<BasicHostPromise> make() noexcept {
    auto* cell = new (std::nothrow) Cell(1);
    if (cell == nullptr) return make_error(Errc::out_of_memory, "no memory for an event");
    return BasicHostPromise(cell);
  }
  constexpr BasicHostPromise() noexcept = default;
  BasicHostPromise(BasicHostPromise&& other) noexcept : cell_(std::exchange(other.cell_, nullptr)) {}
  BasicHostPromise& operator=(BasicHostPromise other) noexcept {
    std::swap(cell_, other.cell_);
    return *this;
  }
  ~BasicHostPromise() {
    if (cell_ != nullptr) static_cast<void>(set_error(make_error(Errc::aborted, "the promise was dropped without a result")));
  }

  /// A handle to the event; a set or empty promise has none to give (a null, ready event).
  [[nodiscard]] event_type get_event() const noexcept {
    if (cell_ != nullptr) cell_->retain_by_promise();
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

 private:
  using Cell = typename event_type::Cell;
  constexpr explicit BasicHostPromise(Cell* cell) noexcept : cell_(cell) {}
  Error complete(const Error& error) noexcept {
    Cell* cell = std::exchange(cell_, nullptr);
    if (cell == nullptr) return make_error(Errc::wrong_state, "the event was already set");
    cell->complete(error);
    cell->drop();  // last: waiters may drop every handle while they run
    return {};
  }
  Cell* cell_ = nullptr;
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
  typename BasicHostEvent<Sync>::Cell cell_{1};
};

/// The inline event of real threads.
using InlineEvent = BasicInlineEvent<StdSync>;
/// The host event of real threads.
using HostEvent = BasicHostEvent<StdSync>;
/// Its write end.
using HostPromise = BasicHostPromise<StdSync>;
static_assert(promised_event<HostEvent> && sizeof(HostEvent) == sizeof(void*));

}  // namespace holdfast
