// event: what tells that work on memory is done: one-shot events, promises, combinations, sets.
// In the flow: above core and concepts; buffers and backends are written against these.
// An event orders work and carries its first error; it never touches the memory it is about.
// Waiting nodes belong to the caller, so nothing allocates after the event itself.
// Nothing here starts a thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "holdfast/concepts/event.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// An event that is always ready and never failed: the do-nothing model, takes no room. Threads: any.
struct ImmediateEvent {
  [[nodiscard]] static constexpr bool ready() noexcept { return true; }
  [[nodiscard]] static constexpr Error wait() noexcept { return {}; }
  [[nodiscard]] static constexpr bool then(Continuation&) noexcept { return false; }
  friend constexpr bool operator==(ImmediateEvent, ImmediateEvent) noexcept { return true; }
};
static_assert(notifying_event<ImmediateEvent>);

namespace detail {
template <class Backend>
struct DefaultEvent {
  using type = ImmediateEvent;
};
template <class Backend>
  requires requires { typename Backend::event_type; }
struct DefaultEvent<Backend> {
  using type = typename Backend::event_type;
};
}  // namespace detail

/// The backend's own event type, or `ImmediateEvent` where it has none.
template <class Backend>
using default_event = typename detail::DefaultEvent<Backend>::type;

}  // namespace holdfast
