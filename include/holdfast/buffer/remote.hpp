// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "holdfast/buffer/launch.hpp"
#include "holdfast/buffer/shaped_buffer.hpp"
#include "holdfast/buffer/staging.hpp"
#include "holdfast/buffer/transfer.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/core/array_shape.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/event/event_list.hpp"

namespace holdfast {

/// Moves bytes between hosts: what was sent under a key goes to whoever receives under it, in either order.
///
/// The bytes stay until the event that a call gives. A call that fails gives no event and keeps no bytes.
template <class C>
concept byte_channel = requires(C& c, std::uint64_t key, std::span<const std::byte> from, std::span<std::byte> to) {
  typename C::event_type;
  { c.send(key, from) } noexcept -> std::same_as<Result<typename C::event_type>>;
  { c.receive(key, to) } noexcept -> std::same_as<Result<typename C::event_type>>;
};

namespace detail {

// A call that failed as an event that failed, where the event can say so.
template <class Event>
Result<Event> or_failed_event(Result<Event> made) noexcept {
  if (made.ok()) return made;
  return failed_event<Event>(made.error());
}

// Sends the bytes of a buffer, from where they are or from a stage. The event keeps what is sent.
template <class Raw, byte_channel Channel, memory_backend Host>
Result<typename Channel::event_type> send_bytes(const Raw& raw, std::span<const typename Channel::event_type> valid,
                                                std::uint64_t key, Channel& channel, const Staging<Host>& staging) noexcept {
  using Event = typename Channel::event_type;
  const auto send = [key, &channel](const auto& memory) noexcept -> Result<Event> {
    Result<Event> sent = channel.send(key, {memory.data(), static_cast<std::size_t>(memory.size())});
    if (sent.ok()) keep_until(*sent, memory);
    return sent;
  };
  EventList<Event> after;
  if (Error e = after.append(valid); !e.ok()) return e;
  if constexpr (host_accessible<typename Raw::backend_type>) {
    return copy_after<Event>(std::move(after), [raw, send]() noexcept { return send(raw); });
  } else {
    Result<RawBuffer<Host>> stage = staging.make(raw.size());
    if (!stage.ok()) return stage.error();
    const std::span<std::byte> bytes(stage->data(), static_cast<std::size_t>(stage->size()));
    Result<Event> out = copy_out<Raw, Event>(raw, 0, bytes, std::as_const(after).span());
    if (!out.ok()) return out;
    EventList<Event> there;
    if (Error e = there.push_back(Event(*out)); !e.ok()) return static_cast<void>(out->wait()), e;
    return copy_after<Event>(std::move(there), [stage = *stage, send]() noexcept { return send(stage); });
  }
}

}  // namespace detail

/// Sends buffers to another host, each under its key, once their contents are valid; the channel must outlive the sending.
///
/// `sent` gets an event a buffer: of a failed definition its error. Errors: invalid_argument (counts, a gone buffer: none is
/// sent, all are as they were), as `Staging::make`; of the channel on a buffer's event. Source: PJRT CopyToRemoteDevice.
template <class Buffer, byte_channel Channel, memory_backend Host>
  requires Buffer::counts_holds
[[nodiscard]] Error send_buffers(std::span<Buffer* const> buffers, std::span<const std::uint64_t> keys, Channel& channel,
                                 const Staging<Host>& staging, std::span<typename Buffer::event_type> sent) noexcept {
  if (keys.size() != buffers.size() || sent.size() != buffers.size())
    return make_error(Errc::invalid_argument, "each buffer that is sent has a key and room for an event");
  SmallList<LaunchArgument<Buffer>> arguments;
  for (Buffer* buffer : buffers)
    if (Error e = arguments.push_back(LaunchArgument<Buffer>{buffer}); !e.ok()) return e;
  auto holds = acquire_arguments<Buffer>(std::as_const(arguments).span());
  if (!holds.ok()) return holds.error();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    auto& hold = (*holds)[i];
    auto done = detail::or_failed_event(detail::send_bytes(hold.raw(), hold.definition_events(), keys[i], channel, staging));
    if (!done.ok()) return done.error();
    hold.convert(*done);
    sent[i] = std::move(*done);
  }
  return {};
}

/// Makes buffers whose contents another host sends, each under its key; the channel must outlive the receiving.
///
/// Errors: wrong_state (FAILED_PRECONDITION) when one of the shapes is no array, before anything is asked of the channel;
/// invalid_argument (counts), the backend's own; of the channel on a buffer's definition event.
/// Source: PJRT MakeCrossHostReceiveBuffers.
template <class Buffer, byte_channel Channel>
  requires host_accessible<typename Buffer::backend_type> && std::same_as<typename Buffer::event_type, typename Channel::event_type>
[[nodiscard]] Error receive_buffers(typename Buffer::backend_type backend, std::span<const ArrayShape> shapes,
                                    std::span<const std::uint64_t> keys, Channel& channel,
                                    std::span<std::optional<ShapedBuffer<Buffer>>> received) noexcept {
  using Event = typename Buffer::event_type;
  using Raw = typename Buffer::raw_type;
  if (keys.size() != shapes.size() || received.size() != shapes.size())
    return make_error(Errc::invalid_argument, "each shape that is received has a key and room for a buffer");
  SmallList<Raw> memory;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (Error e = shapes[i].check(); !e.ok()) {
      e = make_error(Errc::wrong_state, "only arrays can be received from another host");
      e.at_kind = AtKind::argument;
      e.at = i;
      return e;
    }
  }
  for (const ArrayShape& shape : shapes) {
    Result<Raw> raw = Raw::allocate(backend, buffer_size(shape));
    if (!raw.ok()) return raw.error();
    if (Error e = memory.push_back(std::move(*raw)); !e.ok()) return e;
  }
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    Raw& raw = memory.span()[i];
    Result<Event> arrived =
        detail::or_failed_event<Event>(channel.receive(keys[i], {raw.data(), static_cast<std::size_t>(raw.size())}));
    if (!arrived.ok()) return arrived.error();
    Result<Buffer> buffer = Buffer::make(std::move(raw), std::span<const Event>(&*arrived, 1));
    if (!buffer.ok()) return buffer.error();
    Result<ShapedBuffer<Buffer>> shaped = ShapedBuffer<Buffer>::make(shapes[i], std::move(*buffer));
    if (!shaped.ok()) return shaped.error();
    received[i].emplace(std::move(*shaped));
  }
  return {};
}

}  // namespace holdfast
