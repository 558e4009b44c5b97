// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "holdfast/buffer/raw_buffer.hpp"
#include "holdfast/buffer/transfer.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// Host memory that copies may go through, say pinned memory, and whether they should.
///
/// Threads: a value. Source: PJRT stream-executor staging option (runtime.md 5.2).
template <memory_backend Host>
  requires host_accessible<Host>
struct Staging {
  std::optional<Host> memory;
  bool enabled = false;

  /// Tells whether copies of a backend's memory go through it: never for memory that the host can use itself.
  template <memory_backend Backend>
  [[nodiscard]] constexpr bool applies_to() const noexcept {
    return enabled && !host_accessible<Backend>;
  }
  /// Makes a staging buffer. Errors: invalid_argument (there is no memory to stage in), the memory's own.
  [[nodiscard]] Result<RawBuffer<Host>> make(Bytes size) const noexcept {
    if (!memory.has_value()) return make_error(Errc::invalid_argument, "a staged copy needs host memory to stage in");
    return RawBuffer<Host>::allocate(*memory, size);
  }
};

namespace detail {

// Keeps memory until an event; where nobody can be told of it, waits.
template <class Event, class Raw>
void keep_until(const Event& done, const Raw& memory) noexcept {
  if constexpr (notifying_event<Event>) {
    if (run_when_ready(std::span<const Event>(&done, 1), [memory]() noexcept {}).ok()) return;
  }
  static_cast<void>(done.wait());
}

// Runs `finish`, which may fail, once an event has succeeded, and gives the event of both.
template <class Event, class Finish>
Result<Event> finish_after(const Event& done, Finish finish) noexcept {
  if constexpr (promised_event<Event>) {
    if (!done.ready()) {
      const std::span<const Event> first(&done, 1);
      auto promise = promise_like(first);
      if (!promise.ok()) return promise.error();
      Event both = promise->get_event();
      auto go_on = [done, finish = std::move(finish), promise = std::move(*promise)]() mutable noexcept {
        Error e = done.wait();
        if (e.ok()) e = finish();
        static_cast<void>(e.ok() ? promise.set() : promise.set_error(e));
      };
      if (Error e = run_when_ready(first, std::move(go_on)); !e.ok()) return static_cast<void>(done.wait()), e;
      return both;
    }
  }
  Error e = done.wait();
  if (!e.ok()) return failed_event<Event>(e);
  e = finish();
  if (!e.ok()) return failed_event<Event>(e);
  return Event(done);
}

}  // namespace detail

/// Copies host bytes into a buffer, through the staging memory if that applies: then `from` may change after the call.
///
/// Errors: as `copy_in`; as `Staging::make`. Threads: as the events.
template <class Raw, event Event, memory_backend Host>
[[nodiscard]] Result<Event> copy_in_staged(const Raw& to, Bytes offset, std::span<const std::byte> from,
                                           std::span<const Event> after, const Staging<Host>& staging) noexcept {
  if (!staging.template applies_to<typename Raw::backend_type>()) return copy_in<Raw, Event>(to, offset, from, after);
  if (Error e = check_bounds(to.size(), offset, static_cast<Bytes>(from.size())); !e.ok()) return e;
  Result<RawBuffer<Host>> stage = staging.make(static_cast<Bytes>(from.size()));
  if (!stage.ok()) return stage.error();
  if (!from.empty()) std::memcpy(stage->data(), from.data(), from.size());
  Result<Event> copied = copy_in<Raw, Event>(to, offset, {stage->data(), from.size()}, after);
  if (copied.ok()) detail::keep_until(*copied, *stage);
  return copied;
}

/// Copies bytes of a buffer to the host, through the staging memory if that applies; `to` must stay until the event.
///
/// Errors: as `copy_out`; as `Staging::make`. Threads: as the events.
template <class Raw, event Event, memory_backend Host>
[[nodiscard]] Result<Event> copy_out_staged(const Raw& from, Bytes offset, std::span<std::byte> to, std::span<const Event> after,
                                            const Staging<Host>& staging) noexcept {
  if (!staging.template applies_to<typename Raw::backend_type>()) return copy_out<Raw, Event>(from, offset, to, after);
  if (Error e = check_bounds(from.size(), offset, static_cast<Bytes>(to.size())); !e.ok()) return e;
  Result<RawBuffer<Host>> stage = staging.make(static_cast<Bytes>(to.size()));
  if (!stage.ok()) return stage.error();
  Result<Event> copied = copy_out<Raw, Event>(from, offset, {stage->data(), to.size()}, after);
  if (!copied.ok()) return copied;
  return detail::finish_after(*copied, [stage = *stage, to]() noexcept {
    if (!to.empty()) std::memcpy(to.data(), stage.data(), to.size());
    return Error{};
  });
}

/// Copies a whole buffer between two memories that the host cannot use: out to the staging memory, then in from it.
///
/// Errors: as `copy`; as `Staging::make`, whether enabled or not. Threads: as the events. Source: runtime.md 5.5.
template <class From, class To, promised_event Event, memory_backend Host>
[[nodiscard]] Result<Event> copy_through(const From& from, const To& to, std::span<const Event> after,
                                         const Staging<Host>& staging) noexcept {
  if (from.size() != to.size()) return bounds_error(to.size(), 0, from.size());
  Result<RawBuffer<Host>> stage = staging.make(from.size());
  if (!stage.ok()) return stage.error();
  Result<Event> out = copy_out<From, Event>(from, 0, {stage->data(), static_cast<std::size_t>(from.size())}, after);
  if (!out.ok()) return out;
  Result<Event> in =
      copy_in<To, Event>(to, 0, {stage->data(), static_cast<std::size_t>(from.size())}, std::span<const Event>(&*out, 1));
  detail::keep_until(in.ok() ? *in : *out, *stage);
  return in;
}

}  // namespace holdfast
