// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <utility>

#include "holdfast/concepts/event.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// The write end of an event that is a handle to a counted cell: set once, with success or an error.
///
/// Destroyed unset, it fails the event as `aborted`, so nobody waits for ever. What makes an event derives its promise from
/// this; the cell says what `complete(error)` does. Threads: one at a time.
template <class Event>
class CellPromise {
 public:
  using event_type = Event;

  constexpr CellPromise() noexcept = default;
  CellPromise(CellPromise&& other) noexcept : cell_(std::exchange(other.cell_, nullptr)) {}
  CellPromise& operator=(CellPromise&& other) noexcept {
    CellPromise taken(std::move(other));
    std::swap(cell_, taken.cell_);
    return *this;
  }
  ~CellPromise() {
    if (cell_ != nullptr) static_cast<void>(set_error(make_error(Errc::aborted, "the promise was dropped without a result")));
  }

  /// A handle to the event; a set or empty promise has none to give (a null, ready event).
  [[nodiscard]] event_type get_event() const noexcept {
    if (cell_ != nullptr) cell_->retain_by_first();
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

 protected:
  using Cell = typename Event::Cell;
  constexpr explicit CellPromise(Cell* cell) noexcept : cell_(cell) {}  // takes over a share

 private:
  Error complete(const Error& error) noexcept {
    Cell* const cell = std::exchange(cell_, nullptr);
    if (cell == nullptr) return make_error(Errc::wrong_state, "the event was already set");
    cell->complete(error);
    cell->drop();  // last: waiters may drop every handle while they run
    return {};
  }
  Cell* cell_ = nullptr;
};

/// Resolves a promise as another event resolves, with one node and no allocation.
///
/// The object must live until the source is done; `Forwarding::start` may resolve at once. Threads: `start` once.
template <notifying_event Source, class Promise>
class Forwarding : private Continuation {
 public:
  Forwarding(Source source, Promise promise) noexcept : source_(std::move(source)), promise_(std::move(promise)) {}
  Forwarding(Forwarding&&) = delete;

  /// Begins to wait; `after` runs once the promise is resolved, and may destroy this object.
  void start(void (*after)(Forwarding&) noexcept = nullptr) noexcept {
    after_ = after;
    this->run = [](Continuation& node) noexcept { static_cast<Forwarding&>(node).resolve(); };
    if (!source_.then(*this)) resolve();
  }

 private:
  void resolve() noexcept {
    const Error error = source_.wait();
    static_cast<void>(error.ok() ? promise_.set() : promise_.set_error(error));
    if (after_ != nullptr) after_(*this);
  }
  Source source_;
  Promise promise_;
  void (*after_)(Forwarding&) noexcept = nullptr;
};

/// Makes a promise's event follow another event, success and first cause alike.
///
/// Without memory for the node it waits here. Threads: any. Cost: one allocation while the source is pending.
/// Source: runtime.md 2.1, indirect values.
template <notifying_event Source, class Promise>
void forward(Source source, Promise promise) noexcept {
  if (!source.ready()) {
    using Node = Forwarding<Source, Promise>;
    if (auto* node = new (std::nothrow) Node(source, std::move(promise)); node != nullptr)
      return node->start([](Node& done) noexcept { delete &done; });
  }
  const Error error = source.wait();
  static_cast<void>(error.ok() ? promise.set() : promise.set_error(error));
}

}  // namespace holdfast
