// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "holdfast/buffer/pending_memory.hpp"
#include "holdfast/buffer/shaped_buffer.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/core/array_shape.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/event/combine.hpp"

namespace holdfast {

/// The end of an alias buffer that brings its memory and contents; dropped unused, the buffer has failed as `aborted`.
///
/// Threads: one at a time.
template <class Buffer>
class AliasPromise {
 public:
  using event_type = typename Buffer::event_type;
  using memory_type = PendingMemory<typename Buffer::backend_type, typename Buffer::hold_type::ownership_type>;

  AliasPromise(const ArrayShape& shape, memory_type memory, typename event_type::promise_type contents) noexcept
      : shape_(shape), memory_(std::move(memory)), contents_(std::move(contents)) {}

  /// Donates a buffer of the same shape to the alias, which is valid when it is and when its readers are done.
  ///
  /// Errors: invalid_argument (another shape), as a donation; the alias has failed with them. wrong_state (used before).
  /// Threads: blocks as a donation hold, and until the memory is there.
  Error fulfil(ShapedBuffer<Buffer>& donor) noexcept {
    if (!contents_.pending()) return make_error(Errc::wrong_state, "the alias was already fulfilled");
    if (!(donor.shape() == shape_)) return fail_with(make_error(Errc::invalid_argument, "the alias has another shape than its buffer"));
    auto given = donor.buffer().take();
    if (!given.ok()) return fail_with(given.error());
    // The donor's readers become part of what the alias waits for: it is not there to be read or donated before.
    EventList<event_type> all;
    Error failure = all.append(std::as_const(given->definition).span());
    const std::uint32_t definitions = failure.ok() ? all.size() : 0;
    if (failure.ok()) failure = given->usage.append_to(all);
    EventList<event_type> waited;
    if (failure.ok()) failure = waited.append(std::as_const(all).span());
    if (failure.ok()) failure = memory_.fulfil(given->raw);
    if (!failure.ok()) {
      given->block_until_unused();
      return fail_with(failure);
    }
    auto resolve = [all = std::move(all), definitions, contents = std::move(contents_)]() mutable noexcept {
      const Error e = first_error<event_type>(std::as_const(all).span().first(definitions));
      static_cast<void>(e.ok() ? contents.set() : contents.set_error(e));
    };
    return run_when_ready(std::as_const(waited).span(), std::move(resolve));
  }
  /// Says that there will be no buffer. Errors: wrong_state (used before).
  Error fail(const Error& error) noexcept {
    if (!contents_.pending()) return make_error(Errc::wrong_state, "the alias was already fulfilled");
    static_cast<void>(fail_with(error));
    return {};
  }

 private:
  Error fail_with(const Error& error) noexcept {
    static_cast<void>(contents_.set_error(error));
    static_cast<void>(memory_.fail(error));
    return error;
  }
  ArrayShape shape_;
  memory_type memory_;
  typename event_type::promise_type contents_;
};

/// A buffer whose memory and contents will be another buffer's, and the end that brings them.
template <class Buffer>
struct AliasBuffer {
  ShapedBuffer<Buffer> buffer;
  AliasPromise<Buffer> promise;
};

/// Makes a buffer of a shape that can be used at once and stands for one that comes later.
///
/// Errors: as `ArrayShape::check`, out_of_memory. Source: PJRT CreateAliasBuffer.
template <class Buffer>
  requires Buffer::counts_holds && promised_event<typename Buffer::event_type> &&
           std::same_as<typename Buffer::event_type, typename Buffer::raw_type::event_type>
[[nodiscard]] Result<AliasBuffer<Buffer>> make_alias_buffer(typename Buffer::backend_type backend, const ArrayShape& shape) noexcept {
  using Event = typename Buffer::event_type;
  if (Error e = shape.check(); !e.ok()) return e;
  auto contents = promise_of<Event>(backend);
  if (!contents.ok()) return contents.error();
  auto delayed = AliasPromise<Buffer>::memory_type::make(std::move(backend), buffer_size(shape));
  if (!delayed.ok()) return delayed.error();
  const Event valid = contents->get_event();
  Result<Buffer> buffer = Buffer::make(delayed->buffer, std::span<const Event>(&valid, 1));
  if (!buffer.ok()) return buffer.error();
  Result<ShapedBuffer<Buffer>> shaped = ShapedBuffer<Buffer>::make(shape, std::move(*buffer));
  if (!shaped.ok()) return shaped.error();
  return Result<AliasBuffer<Buffer>>(
      AliasBuffer<Buffer>{std::move(*shaped), AliasPromise<Buffer>(shape, std::move(delayed->memory), std::move(*contents))});
}

/// Makes another owner of a buffer's bytes that nothing orders with its users: for whoever orders them otherwise.
///
/// Asks `factories(buffer)`, each a `Result` of a raw buffer, in order, null buffers too: the first error or owner is the
/// answer, a null owner declines. If all decline it takes a usage hold and ends it with no event.
/// Errors: a factory's own; invalid_argument (null buffer); deleted or donated. Source: PJRT CreateRawAliasOfBuffer.
template <class Buffer, class... Factories>
  requires Buffer::counts_holds
[[nodiscard]] Result<typename Buffer::raw_type> make_raw_alias(Buffer* buffer, Factories&&... factories) noexcept {
  using Raw = typename Buffer::raw_type;
  Raw found;
  Error failure;
  [[maybe_unused]] const auto asks = [&](auto& factory) noexcept {
    Result<Raw> answer = factory(buffer);
    if (answer.ok()) found = std::move(*answer);
    else failure = answer.error();
    return static_cast<bool>(found) || !failure.ok();
  };
  static_cast<void>((... || asks(factories)));
  if (!failure.ok()) return failure;
  if (found) return found;
  if (buffer == nullptr) return make_error(Errc::invalid_argument, "a raw alias was asked of a null buffer.");
  auto held = buffer->hold(HoldKind::usage);
  if (!held.ok()) return held.error();
  found = held->raw();
  held->convert();
  return found;
}

}  // namespace holdfast
