// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "holdfast/buffer/shaped_buffer.hpp"
#include "holdfast/buffer/staging.hpp"
#include "holdfast/buffer/transfer.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/event/event_list.hpp"
#include "holdfast/hold/scoped_hold.hpp"

namespace holdfast {

namespace detail {

// Copies what a usage hold holds into memory after its contents and some events more; the hold ends with the copy's event.
// A source without memory gives its own error, or says that it has none.
template <class Buffer, class Raw, memory_backend Host>
Result<typename Buffer::event_type> copy_held(ScopedHold<Buffer>& held, const Raw& to, std::span<const typename Buffer::event_type> more,
                                              const Staging<Host>& staging) noexcept {
  using From = typename Buffer::raw_type;
  using Event = typename Buffer::event_type;
  EventList<Event> after;
  if (Error e = after.append(held.definition_events()); !e.ok()) return e;
  if (Error e = after.append(more); !e.ok()) return e;
  const std::span<const Event> events = std::as_const(after).span();
  const auto copied = [&]() noexcept -> Result<Event> {
    if (!held.raw()) {
      const Error e = wait_all(std::span<const Event>(held.definition_events()));
      return failed_event<Event>(e.ok() ? make_error(Errc::internal, "the source of a copy has no memory") : e);
    }
    if constexpr (copies_without_stage<From, Raw>) return copy<From, Raw, Event>(held.raw(), to, events);
    else return copy_through<From, Raw, Event>(held.raw(), to, events, staging);
  };
  Result<Event> done = copied();
  if (done.ok()) held.convert(*done);
  return done;
}

}  // namespace detail

/// Makes a buffer of the same array in another memory, or the same one; its definition event is that of the copy.
///
/// A failed source is no error of the call: the copy is poisoned with the first cause. Two memories that the host cannot use
/// go through `staging`. Errors: deleted or donated; the backends' own. Source: PJRT CopyToMemorySpace.
template <class To, class From, memory_backend Host>
  requires From::counts_holds && std::same_as<typename To::event_type, typename From::event_type>
[[nodiscard]] Result<ShapedBuffer<To>> copy_to_memory(ShapedBuffer<From>& from, typename To::backend_type backend,
                                                      const Staging<Host>& staging) noexcept {
  using Event = typename To::event_type;
  Result<typename To::raw_type> raw = To::raw_type::allocate(std::move(backend), buffer_size(from.shape()));
  if (!raw.ok()) return raw.error();
  auto held = from.buffer().hold(HoldKind::usage);
  if (!held.ok()) return held.error();
  Result<Event> done = detail::copy_held(*held, *raw, {}, staging);
  if (!done.ok()) return done.error();
  Result<To> buffer = To::make(std::move(*raw), std::span<const Event>(&*done, 1));
  if (!buffer.ok()) return buffer.error();
  return ShapedBuffer<To>::make(from.shape(), std::move(*buffer));
}

/// The same into the memory of a buffer that is donated for it: the copy waits for its contents and readers.
///
/// Both holds are taken in the order of all launches, so two copies cannot wait for each other. Errors: invalid_argument
/// (another size, a buffer into itself: before anything is taken), held and others of a donation, deleted or donated; both
/// are as they were then.
template <class To, class From, memory_backend Host>
  requires From::counts_holds && To::counts_holds && std::same_as<typename To::event_type, typename From::event_type>
[[nodiscard]] Result<ShapedBuffer<To>> copy_to_donated(ShapedBuffer<From>& from, ShapedBuffer<To>& donated,
                                                       const Staging<Host>& staging) noexcept {
  using Event = typename To::event_type;
  if (donated.on_device_size() != buffer_size(from.shape()))
    return bounds_error(donated.on_device_size(), 0, buffer_size(from.shape()));
  const void *source = from.buffer().identity(), *target = donated.buffer().identity();
  if (source == target) return make_error(Errc::invalid_argument, "a buffer cannot be copied into itself: f(a, donate(a))");
  std::optional<Result<typename From::scoped_hold>> held;
  if (std::less<const void*>()(source, target)) {
    held.emplace(from.buffer().hold(HoldKind::usage));
    if (!held->ok()) return held->error();
  }
  auto donation = donated.buffer().hold(HoldKind::donation);
  if (!donation.ok()) return donation.error();
  if (!held) held.emplace(from.buffer().hold(HoldKind::usage));
  if (!held->ok()) return held->error();
  EventList<Event> order;  // failed ones only order: their errors are not the copy's
  for (const std::span<const Event> events : {std::span<const Event>(donation->definition_events()),
                                              std::span<const Event>(donation->usage_events())})
    for (const Event& e : events)
      if (!e.ready())
        if (Error failure = order.push_back(Event(e)); !failure.ok()) return failure;
  Event over;
  if (!order.span().empty()) {
    auto promise = promise_like(std::as_const(order).span());
    if (!promise.ok()) return promise.error();
    over = promise->get_event();
    auto resolve = [promise = std::move(*promise)]() mutable noexcept { static_cast<void>(promise.set()); };
    if (Error e = run_when_ready(std::as_const(order).span(), std::move(resolve)); !e.ok()) return e;
  }
  typename To::raw_type raw = donation->raw();
  Result<Event> done = detail::copy_held(**held, raw, std::span<const Event>(&over, 1), staging);
  if (!done.ok()) return done.error();
  donation->confirm(*done);
  Result<To> buffer = To::make(std::move(raw), std::span<const Event>(&*done, 1));
  if (!buffer.ok()) return buffer.error();
  return ShapedBuffer<To>::make(from.shape(), std::move(*buffer));
}

}  // namespace holdfast
