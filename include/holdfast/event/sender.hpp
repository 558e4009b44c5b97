// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <utility>

#include "holdfast/concepts/event.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// Something that a sender tells its outcome, once: `set_value()` or `set_error(Error)`.
template <class R>
concept event_receiver = std::move_constructible<R> && requires(R&& r, Error e) {
  { std::forward<R>(r).set_value() } noexcept;
  { std::forward<R>(r).set_error(std::move(e)) } noexcept;
};

/// Adds nothing to an operation: the default of `EventSender`.
struct NoOperationTag {};

/// An event in the shape of std::execution: `connect` gives an operation, its `start` waits with a node inside itself.
///
/// It needs no sender library. What a library asks for in its own types, a user adds: `sender_concept` and
/// `completion_signatures` in a derived class of a few lines, `operation_state_concept` in `OperationTag`
/// (`tests/peer/sender.cpp` does it for stdexec). Threads: an operation is started once and outlives its completion.
template <notifying_event E, class OperationTag = NoOperationTag>
class EventSender {
 public:
  explicit EventSender(E event) noexcept : event_(std::move(event)) {}

  template <event_receiver Receiver>
  class Operation : public OperationTag, private Continuation {
   public:
    Operation(E event, Receiver receiver) noexcept : event_(std::move(event)), receiver_(std::move(receiver)) {}
    Operation(Operation&&) = delete;
    void start() noexcept {
      this->run = [](Continuation& node) noexcept { static_cast<Operation&>(node).complete(); };
      if (!event_.then(*this)) complete();
    }

   private:
    void complete() noexcept {
      if (Error e = event_.wait(); e.ok()) std::move(receiver_).set_value();
      else std::move(receiver_).set_error(std::move(e));
    }
    E event_;
    Receiver receiver_;
  };
  template <event_receiver Receiver>
  [[nodiscard]] Operation<Receiver> connect(Receiver receiver) const noexcept {
    return Operation<Receiver>(event_, std::move(receiver));
  }

 private:
  E event_;
};

}  // namespace holdfast
