// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <span>
#include <utility>

#include "holdfast/concepts/event.hpp"
#include "holdfast/event/combine.hpp"
#include "holdfast/event/event_list.hpp"
#include "holdfast/event/event_set.hpp"

namespace holdfast {

/// Waits for readers, whatever their outcome, then for contents.
///
/// Errors: the first failed definition event, as `Stage::execute` (INTERNAL); events after it are not waited for.
/// Threads: blocks.
template <event Event>
[[nodiscard]] Error block_for_operations(std::span<const Event> usage, std::span<const Event> definition) noexcept {
  static_cast<void>(wait_all(usage));
  for (const Event& e : definition) {
    if (Error failure = e.wait(); !failure.ok()) {
      failure.stage = Stage::execute;
      return failure;
    }
  }
  return {};
}

namespace detail {

// The event of a buffer's memory with its error marked as one of the allocation.
template <promised_event Event>
[[nodiscard]] Result<Event> staged_allocation(const Event& memory) noexcept {
  auto promise = Event::promise_type::make();
  if (!promise.ok()) return promise.error();
  Event staged = promise->get_event();
  Error failure = run_when_ready(std::span<const Event>(&memory, 1), [memory, p = std::move(*promise)]() mutable noexcept {
    Error e = memory.wait();
    if (!e.ok()) e.stage = Stage::buffer_allocation;
    static_cast<void>(e.ok() ? p.set() : p.set_error(e));
  });
  if (!failure.ok()) return failure;
  return staged;
}

}  // namespace detail

/// What a tracked buffer guards: bytes, the events that make them valid, the events of readers not finished yet.
///
/// No definition events: valid from the start. `raw` may be null for a buffer that only carries an error.
/// Threads: one owner at a time. Source: PJRT tracked device buffer.
template <class Raw, event Event>
struct Contents {
  Raw raw;
  HOLDFAST_NO_UNIQUE_ADDRESS EventList<Event> definition;
  HOLDFAST_NO_UNIQUE_ADDRESS EventSet<Event> usage;

  /// One event for all that the contents wait for: the memory, then the definition events, those that are pending or failed.
  ///
  /// A failure of the memory shows itself as such (`Stage::buffer_allocation`, FAILED_PRECONDITION). Errors: out_of_memory.
  [[nodiscard]] Result<Event> ready_event() const noexcept {
    EventList<Event> open;
    if constexpr (promised_event<Event> && requires { { raw.allocation_ready() } -> std::same_as<Event>; }) {
      if (const Event memory = raw.allocation_ready(); !memory.ready() || !memory.wait().ok()) {
        Result<Event> staged = detail::staged_allocation(memory);
        if (!staged.ok()) return staged.error();
        if (Error failure = open.push_back(std::move(*staged)); !failure.ok()) return failure;
      }
    }
    for (const Event& e : definition.span()) {
      if (e.ready() && e.wait().ok()) continue;
      if (Error failure = open.push_back(Event(e)); !failure.ok()) return failure;
    }
    return after_all<Event>(std::as_const(open).span());
  }
  /// Waits for all events, for an owner about to free the bytes.
  void block_until_unused() const noexcept {
    static_cast<void>(wait_all(definition.span()));
    static_cast<void>(wait_all(usage.span()));
  }
};

}  // namespace holdfast
