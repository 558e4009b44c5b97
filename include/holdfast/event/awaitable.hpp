// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <utility>

#include "holdfast/concepts/event.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// Suspends a coroutine until an event is done, with a node in the coroutine's own frame; the result is the event's error.
///
/// The coroutine goes on where the event completes, or through the executor. Threads: awaited once.
template <notifying_event E, executor X = InlineExecutor>
class EventAwaiter : private Continuation {
 public:
  explicit EventAwaiter(E event, X executor = {}) noexcept : event_(std::move(event)), executor_(std::move(executor)) {}
  EventAwaiter(EventAwaiter&&) = delete;

  [[nodiscard]] bool await_ready() const noexcept { return event_.ready(); }
  /// False: the event became ready meanwhile, the coroutine goes on at once.
  [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiting) noexcept {
    waiting_ = waiting;
    this->run = [](Continuation& node) noexcept {
      auto& self = static_cast<EventAwaiter&>(node);
      self.run = [](Continuation& again) noexcept { static_cast<EventAwaiter&>(again).waiting_.resume(); };
      X executor = self.executor_;
      executor.execute(node);
    };
    return event_.then(*this);
  }
  [[nodiscard]] Error await_resume() const noexcept { return event_.wait(); }

 private:
  E event_;
  HOLDFAST_NO_UNIQUE_ADDRESS X executor_;
  std::coroutine_handle<> waiting_;
};

/// `Error e = co_await event;`
template <notifying_event E>
[[nodiscard]] EventAwaiter<E> operator co_await(E event) noexcept {
  return EventAwaiter<E>(std::move(event));
}

/// `Error e = co_await resume_on(event, executor);`
template <notifying_event E, executor X>
[[nodiscard]] EventAwaiter<E, X> resume_on(E event, X executor) noexcept {
  return EventAwaiter<E, X>(std::move(event), std::move(executor));
}

}  // namespace holdfast
