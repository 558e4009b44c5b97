// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "holdfast/concepts/event.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/event/event_list.hpp"

namespace holdfast {

/// The first failure in list order among the events that are done; pending ones count as not failed. Never waits.
template <event E>
[[nodiscard]] Error first_error(std::span<const E> events) noexcept {
  for (const E& e : events)
    if (e.ready())
      if (Error error = e.wait(); !error.ok()) return error;
  return {};
}

/// Waits for all events, whatever their outcome; gives the first failure in list order. Threads: blocks.
template <event E>
[[nodiscard]] Error wait_all(std::span<const E> events) noexcept {
  Error first;
  for (const E& e : events)
    if (Error error = e.wait(); !error.ok() && first.ok()) first = error;
  return first;
}

/// Runs a function once all events of a list are done, with one node for all of them and no allocation.
///
/// It stands in the queue of one pending event at a time and goes on to the next when that one completes. The list and
/// this object must live until the function has run, which may destroy both.
/// Threads: `start` once; the function runs on the starting or the last completing thread.
template <notifying_event E>
class WhenReady : private Continuation {
 public:
  using Done = void (*)(WhenReady&) noexcept;

  /// Calls `done` when every event is ready or failed: at once, before this returns, if all are.
  void start(std::span<const E> events, Done done) noexcept {
    this->run = [](Continuation& node) noexcept { static_cast<WhenReady&>(node).go_on(); };
    events_ = events;
    at_ = 0;
    done_ = done;
    go_on();
  }

 private:
  void go_on() noexcept {
    while (at_ < events_.size()) {
      const E& e = events_[at_++];
      if (e.then(*this)) return;  // from here on another thread may run, and end, this object
    }
    done_(*this);
  }
  std::span<const E> events_;
  std::size_t at_ = 0;
  Done done_ = nullptr;
};

/// Makes a promise whose event belongs where these events belong (to their machine or device), if they belong anywhere.
///
/// A host that waits for it then drives what it waits for. Errors: out_of_memory.
template <promised_event E>
[[nodiscard]] Result<typename E::promise_type> promise_like(std::span<const E> events) noexcept {
  if constexpr (requires { E::promise_type::make_like(events); }) return E::promise_type::make_like(events);
  else return E::promise_type::make();
}

/// Makes a promise whose event belongs to a backend's machine, where the backend can make one. Errors: out_of_memory.
template <promised_event E, class Backend>
[[nodiscard]] Result<typename E::promise_type> promise_of(Backend& backend) noexcept {
  if constexpr (requires { { backend.make_promise() } -> std::same_as<Result<typename E::promise_type>>; }) return backend.make_promise();
  else return E::promise_type::make();
}

namespace detail {

// A function waiting for a list of events, on the heap until it has run; the executor gets it as one more node.
template <class E, class X, class F>
class Pending : private WhenReady<E> {
 public:
  Pending(X executor, F f) noexcept : executor_(std::move(executor)), f_(std::move(f)) {}
  [[nodiscard]] Error start(std::span<const E> events) noexcept {
    for (const E& e : events)
      if (!e.ready())
        if (Error failure = events_.push_back(E(e)); !failure.ok()) return delete this, failure;
    WhenReady<E>::start(std::as_const(events_).span(), [](WhenReady<E>& when) noexcept {
      auto& self = static_cast<Pending&>(when);
      self.task_.pending = &self;
      self.task_.run = [](Continuation& node) noexcept {
        Pending* pending = static_cast<Task&>(node).pending;
        pending->f_();
        delete pending;
      };
      X executor = self.executor_;  // the node may have run, and this object be gone, before the call returns
      executor.execute(self.task_);
    });
    return {};
  }

 private:
  struct Task : Continuation {
    Pending* pending = nullptr;
  };
  Task task_;
  EventList<E> events_;
  HOLDFAST_NO_UNIQUE_ADDRESS X executor_;
  F f_;
};

}  // namespace detail

/// Runs `f()` through an executor once all events are ready or failed; `f` looks at their errors itself.
///
/// Errors: out_of_memory; `f` will not run then. Threads: `f` runs where the executor says. Cost: one allocation.
/// Source: runtime.md 2.2.
template <notifying_event E, executor X, std::invocable F>
[[nodiscard]] Error execute_when_ready(std::span<const E> events, X executor, F f) noexcept {
  auto* pending = new (std::nothrow) detail::Pending<E, X, F>(std::move(executor), std::move(f));
  if (pending == nullptr) return make_error(Errc::out_of_memory, "no memory for a waiting function");
  return pending->start(events);
}

/// Runs `f()` here and now if all events are done, else on the thread that completes the last. Errors: as above.
template <notifying_event E, std::invocable F>
[[nodiscard]] Error run_when_ready(std::span<const E> events, F f) noexcept {
  bool pending = false;
  for (const E& e : events) pending = pending || !e.ready();
  if (!pending) return f(), Error{};
  return execute_when_ready(events, InlineExecutor{}, std::move(f));
}

/// One event for all: done when every one is, failed with the first failure in list order, whichever came first in time.
///
/// Of an empty list it is ready, of one event it is that event. Errors: out_of_memory. Cost: two allocations.
template <event E>
[[nodiscard]] Result<E> after_all(std::span<const E> events) noexcept {
  if constexpr (std::is_empty_v<E>) {
    return E{};
  } else {
    static_assert(promised_event<E>, "more than one event can be joined only by an event that the host can make");
    if (events.empty()) return E{};
    if (events.size() == 1) return E(events.front());
    EventList<E> kept;  // ready ones too: one of them may be the first failure
    if (Error failure = kept.append(events); !failure.ok()) return failure;
    auto promise = promise_like(events);
    if (!promise.ok()) return promise.error();
    E joined = promise->get_event();
    auto resolve = [kept = std::move(kept), promise = std::move(*promise)]() mutable noexcept {
      const Error error = first_error<E>(std::as_const(kept).span());
      static_cast<void>(error.ok() ? promise.set() : promise.set_error(error));
    };
    if (Error failure = run_when_ready(events, std::move(resolve)); !failure.ok()) return failure;
    return joined;
  }
}

}  // namespace holdfast
