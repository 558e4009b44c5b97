// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "holdfast/buffer/bounds.hpp"
#include "holdfast/buffer/raw_buffer.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/event/combine.hpp"
#include "holdfast/event/event_list.hpp"
#include "holdfast/event/promise.hpp"

namespace holdfast {

/// What the maker of a host array promises about its bytes. Source: PJRT host buffer semantics.
enum class HostSemantics : std::uint8_t { immutable_during_call, immutable_until_done, zero_copy, mutable_zero_copy };

/// The size from which a copy is worth another thread. Units: bytes.
inline constexpr Bytes worker_copy_size = 102400;

namespace detail {

// The event of a copy as the caller's event type: the backend's own, or "ready" for one that is done when it returns.
// Until it is done it keeps the memory that is copied.
template <class Event, class Made, class... Raw>
Result<Event> as_event(Result<Made> made, const Raw&... kept) noexcept {
  if (!made.ok()) return made.error();
  if constexpr (std::same_as<Event, Made>) {
    if (made->ready()) return std::move(*made);
    auto keep = [... raw = kept]() noexcept {};
    if (Error e = run_when_ready(std::span<const Made>(&*made, 1), std::move(keep)); !e.ok()) static_cast<void>(made->wait());
    return std::move(*made);
  } else {
    const Error e = made->wait();
    if (!e.ok()) return e;
    return Event{};
  }
}

template <class Event>
Result<Event> failed_event(const Error& error) noexcept {
  if constexpr (requires { Event::make_failed(error); }) {
    return Event::make_failed(error);
  } else if constexpr (promised_event<Event>) {
    auto promise = Event::promise_type::make();
    if (!promise.ok()) return promise.error();
    Event failed = promise->get_event();
    static_cast<void>(promise->set_error(error));
    return failed;
  } else {
    return error;
  }
}

// What a copy waits for: the caller's events, and the memory where it can be late.
template <class Event, class Raw>
Error append_memory(EventList<Event>& list, const Raw& raw) noexcept {
  if constexpr (requires { { raw.allocation_ready() } -> std::same_as<Event>; })
    if (Event memory = raw.allocation_ready(); !memory.ready() || !memory.wait().ok()) return list.push_back(std::move(memory));
  return {};
}

// What forbids to copy a whole buffer into another, whenever it is asked.
template <class From, class To>
Error check_copy(const From& from, const To& to) noexcept {
  if (from.size() != to.size()) return bounds_error(to.size(), 0, from.size());
  if (!from || !to) return make_error(Errc::invalid_argument, "the buffer has no memory (null buffer)");
  if (!to.is_mutable()) return make_error(Errc::permission_denied, "the memory is constant");
  return {};
}

// Two memories of one kind of device, which copies between its own.
template <class From, class To>
concept copies_directly = std::same_as<typename From::backend_type, typename To::backend_type> &&
                          !host_accessible<typename To::backend_type> && plain_copying<typename To::backend_type>;
template <class From, class To>
concept copies_without_stage =
    host_accessible<typename From::backend_type> || host_accessible<typename To::backend_type> || copies_directly<From, To>;

// Runs `copy` after the events: now if they are done, else on the thread that completes the last. A failed event fails
// the result, and no byte moves.
template <class Event, class Copy>
Result<Event> copy_after(EventList<Event> after, Copy copy) noexcept {
  if constexpr (std::is_empty_v<Event>) {
    return copy();
  } else {
    bool pending = false;
    for (const Event& e : after.span()) pending = pending || !e.ready();
    if (!pending) {
      if (Error e = first_error<Event>(std::as_const(after).span()); !e.ok()) return failed_event<Event>(e);
      return copy();
    }
    static_assert(promised_event<Event>, "only an event that the host can make can stand for a copy that is yet to begin");
    auto promise = promise_like(std::as_const(after).span());
    if (!promise.ok()) return promise.error();
    Event done = promise->get_event();
    EventList<Event> waited;
    if (Error failure = waited.append(std::as_const(after).span()); !failure.ok()) return failure;
    auto begin = [after = std::move(after), copy = std::move(copy), promise = std::move(*promise)]() mutable noexcept {
      if (Error e = first_error<Event>(std::as_const(after).span()); !e.ok()) return static_cast<void>(promise.set_error(e));
      Result<Event> copied = copy();
      if (!copied.ok()) return static_cast<void>(promise.set_error(copied.error()));
      forward(std::move(*copied), std::move(promise));
    };
    if (Error failure = run_when_ready(std::as_const(waited).span(), std::move(begin)); !failure.ok()) return failure;
    return done;
  }
}

}  // namespace detail

/// Copies host bytes into a buffer once the events are done; `from` must stay until the copy is.
///
/// Errors, at once and with no event: invalid_argument (range, null buffer), permission_denied, out_of_memory. A failed
/// event fails the result and moves no byte. The copy keeps the memory alive. Threads: as the events.
template <class Raw, event Event>
[[nodiscard]] Result<Event> copy_in(const Raw& to, Bytes offset, std::span<const std::byte> from,
                                    std::span<const Event> after) noexcept {
  if (Error e = check_bounds(to.size(), offset, static_cast<Bytes>(from.size())); !e.ok()) return e;
  if (!to) return make_error(Errc::invalid_argument, "the buffer has no memory (null buffer)");
  if (!to.is_mutable()) return make_error(Errc::permission_denied, "the memory is constant");
  EventList<Event> list;
  if (Error e = list.append(after); !e.ok()) return e;
  if (Error e = detail::append_memory(list, to); !e.ok()) return e;
  return detail::copy_after<Event>(std::move(list), [to, offset, from]() noexcept {
    return detail::as_event<Event>(to.copy_in(offset, from), to);
  });
}

/// Copies bytes of a buffer to the host once the events are done; `to` must stay until the copy is. Errors: as `copy_in`.
template <class Raw, event Event>
[[nodiscard]] Result<Event> copy_out(const Raw& from, Bytes offset, std::span<std::byte> to, std::span<const Event> after) noexcept {
  if (Error e = check_bounds(from.size(), offset, static_cast<Bytes>(to.size())); !e.ok()) return e;
  if (!from) return make_error(Errc::invalid_argument, "the buffer has no memory (null buffer)");
  EventList<Event> list;
  if (Error e = list.append(after); !e.ok()) return e;
  if (Error e = detail::append_memory(list, from); !e.ok()) return e;
  return detail::copy_after<Event>(std::move(list), [from, offset, to]() noexcept {
    return detail::as_event<Event>(from.copy_out(offset, to), from);
  });
}

/// Copies bytes of a buffer to an address that is known only when `known` is done; they are kept until then.
///
/// `to` is read after `known`. Errors: as `copy_out`; the range is checked now. Source: PJRT CopyRawToHostFuture.
template <class Raw, event Event>
[[nodiscard]] Result<Event> copy_out_when_known(const Raw& from, Bytes offset, Bytes length, std::byte* const* to, Event known,
                                                std::span<const Event> after) noexcept {
  if (Error e = check_bounds(from.size(), offset, length); !e.ok()) return e;
  if (!from) return make_error(Errc::invalid_argument, "the buffer has no memory (null buffer)");
  EventList<Event> list;
  if (Error e = list.append(after); !e.ok()) return e;
  if (Error e = detail::append_memory(list, from); !e.ok()) return e;
  if (Error e = list.push_back(std::move(known)); !e.ok()) return e;
  return detail::copy_after<Event>(std::move(list), [from, offset, length, to]() noexcept {
    return detail::as_event<Event>(from.copy_out(offset, {*to, static_cast<std::size_t>(length)}), from);
  });
}

/// Copies a whole buffer into another of the same size, of one backend or two, once the events are done.
///
/// Parts of one memory may overlap: they are copied as by memmove. One of the two is memory that the host can use, or both are of one
/// kind of device: see `copy_through`.
/// Errors: as `copy_in`; invalid_argument when the sizes differ.
template <class From, class To, event Event>
[[nodiscard]] Result<Event> copy(const From& from, const To& to, std::span<const Event> after) noexcept {
  static_assert(detail::copies_without_stage<From, To>, "a copy between two memories that the host cannot use: see copy_through");
  if (Error e = detail::check_copy(from, to); !e.ok()) return e;
  EventList<Event> list;
  if (Error e = list.append(after); !e.ok()) return e;
  if (Error e = detail::append_memory(list, from); !e.ok()) return e;
  if (Error e = detail::append_memory(list, to); !e.ok()) return e;
  return detail::copy_after<Event>(std::move(list), [from, to]() noexcept -> Result<Event> {
    const auto n = static_cast<std::size_t>(from.size());
    if constexpr (detail::copies_directly<From, To>) {
      for (const Result<std::byte*>& there : {from.address(), to.address()})
        if (!there.ok()) return there.error();
      to.contents_changed();
      auto backend = to.backend();
      return detail::as_event<Event>(backend.copy(to.block(), 0, from.block(), 0, from.size()), from, to);
    } else if constexpr (host_accessible<typename From::backend_type>) return detail::as_event<Event>(to.copy_in(0, {from.data(), n}), from, to);
    else return detail::as_event<Event>(from.copy_out(0, {to.data(), n}), from, to);
  });
}

/// Copies a whole buffer and resolves two promises, each once on every path: the destination's contents, the source's use.
///
/// A failure of the copy fails the definition; the usage only says that the source is free again. Source: PJRT CopyTo.
template <class From, class To, event Event, class Promise>
void copy_to(const From& from, const To& to, std::span<const Event> after, Promise definition, Promise usage) noexcept {
  Result<Event> copied = copy<From, To, Event>(from, to, after);
  if (!copied.ok()) {
    static_cast<void>(definition.set_error(copied.error()));
    static_cast<void>(usage.set_error(copied.error()));
    return;
  }
  forward(*copied, std::move(definition));
  auto free_again = [usage = std::move(usage), from]() mutable noexcept { static_cast<void>(usage.set()); };
  if (Error e = run_when_ready(std::span<const Event>(&*copied, 1), std::move(free_again)); !e.ok())
    static_cast<void>(copied->wait());  // the promise went with the function: the source's use has failed as aborted
}

/// Does the same on an executor once the events are done, and tells `allocated(Error)` before the destination is touched:
/// with the reason if it never will be, a failed event first.
///
/// All three are told exactly once on every path. Threads: what is told, on the executor's, or here without memory for the
/// wait. Source: PJRT ScheduleCopyTo.
template <class From, class To, event Event, class Promise, executor X, std::invocable<const Error&> Allocated>
void schedule_copy_to(const From& from, const To& to, std::span<const Event> after, X executor, Promise definition, Promise usage,
                      Allocated allocated) noexcept {
  struct Work {
    From from;
    To to;
    EventList<Event> after;
    Promise definition, usage;
    Allocated allocated;
    bool over = false;
    Work(From f, To t, Promise d, Promise u, Allocated a) noexcept
        : from(std::move(f)), to(std::move(t)), definition(std::move(d)), usage(std::move(u)), allocated(std::move(a)) {}
    Work(Work&& other) noexcept
        : from(std::move(other.from)), to(std::move(other.to)), after(std::move(other.after)), definition(std::move(other.definition)),
          usage(std::move(other.usage)), allocated(std::move(other.allocated)), over(std::exchange(other.over, true)) {}
    ~Work() {
      if (!over) refuse(make_error(Errc::aborted, "a copy was dropped before it began"));
    }
    void refuse(const Error& error) noexcept {
      over = true;
      allocated(error);
      static_cast<void>(definition.set_error(error));
      static_cast<void>(usage.set_error(error));
    }
    void operator()() noexcept {
      if (Error e = first_error<Event>(std::as_const(after).span()); !e.ok()) return refuse(e);
      if (Error e = detail::check_copy(from, to); !e.ok()) return refuse(e);
      over = true;
      allocated(Error{});
      copy_to<From, To, Event>(from, to, {}, std::move(definition), std::move(usage));
    }
  } work(from, to, std::move(definition), std::move(usage), std::move(allocated));
  if (Error e = work.after.append(after); !e.ok()) return work.refuse(e);
  static_cast<void>(execute_when_ready(after, std::move(executor), std::move(work)));
}

/// Copies host bytes into a whole buffer by the rules of their maker: here for small ones and for bytes that may change
/// after the call, else through the executor. `done` runs after the copy and before its event.
///
/// Errors: as `copy_in`. Source: runtime.md 5.2, host-to-device on CPU.
template <class Raw, promised_event Event, executor X, std::invocable Done>
[[nodiscard]] Result<Event> copy_from_host(const Raw& to, std::span<const std::byte> from, HostSemantics semantics, X executor,
                                           Done done) noexcept {
  if (Error e = check_bounds(to.size(), 0, static_cast<Bytes>(from.size())); !e.ok()) return e;
  if (semantics == HostSemantics::immutable_during_call || static_cast<Bytes>(from.size()) < worker_copy_size) {
    Result<Event> copied = detail::as_event<Event>(to.copy_in(0, from), to);
    if (copied.ok()) static_cast<void>(copied->wait());
    done();
    return copied;
  }
  auto promise = Event::promise_type::make();
  if (!promise.ok()) return promise.error();
  Event event = promise->get_event();
  auto work = [to, from, done = std::move(done), promise = std::move(*promise)]() mutable noexcept {
    Result<Event> copied = detail::as_event<Event>(to.copy_in(0, from), to);
    const Error e = copied.ok() ? copied->wait() : copied.error();
    done();
    static_cast<void>(e.ok() ? promise.set() : promise.set_error(e));
  };
  if (Error e = execute_when_ready(std::span<const Event>(), std::move(executor), std::move(work)); !e.ok()) return e;
  return event;
}

}  // namespace holdfast
