// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <utility>

#include "holdfast/buffer/literal.hpp"
#include "holdfast/buffer/shaped_buffer.hpp"
#include "holdfast/buffer/staging.hpp"
#include "holdfast/buffer/transfer.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// Reads a buffer's values into a literal of the same array, once they are there; the literal must stay until the event.
///
/// A layout that is not row major is read through memory of `host`. Errors: deleted or donated; internal (another array),
/// unsupported (a dynamic one); as `copy_out`. A failed definition event fails the result. Threads: blocks for a pending
/// donation, not for events. Source: PJRT ToLiteral.
template <class Buffer, memory_backend Host>
  requires Buffer::counts_holds
[[nodiscard]] Result<typename Buffer::event_type> to_literal(ShapedBuffer<Buffer>& from, Literal<Host>& to, Host host) noexcept {
  using Raw = typename Buffer::raw_type;
  using Event = typename Buffer::event_type;
  const ArrayShape shape = from.shape();
  if (!shape.same_array(to.shape())) return make_error(Errc::internal, "the literal is another array than the buffer");
  if (!shape.is_static()) return make_error(Errc::unsupported, "a dynamic array has no literal of one size");
  auto held = from.buffer().hold(HoldKind::usage);
  if (!held.ok()) return held.error();
  const auto read = [&]() noexcept -> Result<Event> {
    if (detail::is_plain(shape)) return copy_out<Raw, Event>(held->raw(), 0, to.bytes(), held->definition_events());
    Result<RawBuffer<Host>> stage = RawBuffer<Host>::allocate(std::move(host), shape.device_size());
    if (!stage.ok()) return stage.error();
    const std::span<std::byte> laid_out(stage->data(), static_cast<std::size_t>(stage->size()));
    Result<Event> copied = copy_out<Raw, Event>(held->raw(), 0, laid_out, held->definition_events());
    if (!copied.ok()) return copied;
    return detail::finish_after(*copied, [shape, stage = *stage, laid_out, values = to.bytes()]() noexcept {
      return read_out(shape, laid_out, values);
    });
  };
  Result<Event> done = read();
  if (done.ok()) held->convert(*done);
  return done;
}

/// Makes a buffer of a literal's values in the layout of `shape`; the literal may change after the call.
///
/// Errors: invalid_argument (another array), unsupported (a dynamic one); the backends' own. Source: PJRT BufferFromHostLiteral.
template <class Buffer, memory_backend Host>
  requires Buffer::counts_holds
[[nodiscard]] Result<ShapedBuffer<Buffer>> from_literal(const Literal<Host>& from, typename Buffer::backend_type backend,
                                                        const ArrayShape& shape, Host host) noexcept {
  using Raw = typename Buffer::raw_type;
  using Event = typename Buffer::event_type;
  if (Error e = shape.check(); !e.ok()) return e;
  if (!shape.same_array(from.shape())) return make_error(Errc::invalid_argument, "the literal is another array than the buffer");
  if (!shape.is_static()) return make_error(Errc::unsupported, "a dynamic array has no literal of one size");
  Result<Raw> raw = Raw::allocate(std::move(backend), shape.device_size());
  if (!raw.ok()) return raw.error();
  const auto laid_out_in = [&](std::byte* memory) noexcept {
    return std::span<std::byte>(memory, static_cast<std::size_t>(shape.device_size()));
  };
  Result<Buffer> buffer = [&]() noexcept -> Result<Buffer> {
    if constexpr (host_accessible<typename Buffer::backend_type>) {
      if (Error e = lay_out(shape, from.bytes(), laid_out_in(raw->data())); !e.ok()) return e;
      return Buffer::make(std::move(*raw));
    } else {
      Result<RawBuffer<Host>> stage = RawBuffer<Host>::allocate(std::move(host), shape.device_size());
      if (!stage.ok()) return stage.error();
      if (Error e = lay_out(shape, from.bytes(), laid_out_in(stage->data())); !e.ok()) return e;
      Result<Event> written = copy_in<Raw, Event>(*raw, 0, laid_out_in(stage->data()), {});
      if (!written.ok()) return written.error();
      detail::keep_until(*written, *stage);
      return Buffer::make(std::move(*raw), std::span<const Event>(&*written, 1));
    }
  }();
  if (!buffer.ok()) return buffer.error();
  return ShapedBuffer<Buffer>::make(shape, std::move(*buffer));
}

}  // namespace holdfast
