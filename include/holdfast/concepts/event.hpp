// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "holdfast/core/result.hpp"

namespace holdfast {

/// One waiter of an event: a node that its owner keeps alive until it has run; nothing is allocated for it.
///
/// `run` is called once, on the thread that completes the event, and may destroy the node. It must not block.
struct alignas(8) Continuation {
  void (*run)(Continuation&) noexcept = nullptr;
  Continuation* next = nullptr;  ///< belongs to the event while the node is queued
};

/// A one-shot "it is done", or why it failed.
///
/// `ready` is true when it is done or failed; `wait` blocks until then and gives the error; both may be called again.
template <class E>
concept event = std::movable<E> && requires(const E& e) {
  { e.ready() } noexcept -> std::same_as<bool>;
  { e.wait() } noexcept -> std::same_as<Error>;
};

/// An event that runs a caller's node when it completes; false: it was ready, nothing is queued, run it yourself.
template <class E>
concept notifying_event = event<E> && requires(const E& e, Continuation& c) {
  { e.then(c) } noexcept -> std::same_as<bool>;
};

/// A notifying event that the host can make: a copyable handle, ready when default made, set through its promise.
template <class E>
concept promised_event = notifying_event<E> && std::copyable<E> && std::default_initializable<E> &&
    requires(typename E::promise_type& p, const Error& error) {
      { E::promise_type::make() } noexcept -> std::same_as<Result<typename E::promise_type>>;
      { p.get_event() } noexcept -> std::same_as<E>;
      { p.set() } noexcept -> std::same_as<Error>;
      { p.set_error(error) } noexcept -> std::same_as<Error>;
    };

/// A copyable handle to something that runs a node on a thread of its own choice; the node may die in its run.
template <class X>
concept executor = std::copyable<X> && requires(X& x, Continuation& node) {
  { x.execute(node) } noexcept -> std::same_as<void>;
};

/// Runs a node here and now: the do-nothing model. Threads: any.
struct InlineExecutor {
  static void execute(Continuation& node) noexcept { node.run(node); }
};
static_assert(executor<InlineExecutor>);

/// An event that marks a place in a stream, and that streams can wait for without the host.
template <class E, class Stream>
concept stream_event = event<E> && requires(E& e, Stream& s) {
  { e.record(s) } noexcept -> std::same_as<Error>;
  { e.wait_on(s) } noexcept -> std::same_as<Error>;
};

}  // namespace holdfast
