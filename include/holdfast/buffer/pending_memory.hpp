// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "holdfast/buffer/raw_buffer.hpp"

namespace holdfast {

template <memory_backend Backend, ownership Own>
struct DelayedBuffer;

/// The write end of memory that comes later; dropped unset, the memory has failed as `aborted`. Threads: one at a time.
template <memory_backend Backend, ownership Own>
class PendingMemory {
 public:
  using buffer_type = RawBuffer<Backend, Own>;
  using promise_type = typename buffer_type::event_type::promise_type;

  /// Makes a buffer whose size is known and whose memory comes later.
  ///
  /// Errors: invalid_argument (negative size), out_of_memory (for the control block or the event).
  [[nodiscard]] static Result<DelayedBuffer<Backend, Own>> make(Backend backend, Bytes size) noexcept {
    if (size < 0) return make_error(Errc::invalid_argument, "a negative number of bytes was asked for");
    auto promise = promise_of<typename buffer_type::event_type>(backend);
    if (!promise.ok()) return promise.error();
    Result<buffer_type> buffer = buffer_type::adopt(std::move(backend), Block{});
    if (!buffer.ok()) return buffer.error();
    buffer->size_ = size;
    buffer->control_->allocation = promise->get_event();
    buffer_type other = *buffer;
    return DelayedBuffer<Backend, Own>{std::move(*buffer), PendingMemory(std::move(other), std::move(*promise))};
  }
  /// Makes the memory now. Errors: the backend's own, with which the memory has failed; wrong_state (set before).
  Error allocate(Alignment alignment = default_alignment) noexcept {
    if (!promise_.pending()) return make_error(Errc::wrong_state, "the memory was already set");
    Result<Block> block = buffer_.control_->backend.allocate(buffer_.size(), alignment);
    if (!block.ok()) return static_cast<void>(fail(block.error())), block.error();
    buffer_.control_->block = *block;
    return promise_.set();
  }
  /// Takes over another buffer's memory, of the same size, which this one's owners then share.
  ///
  /// Errors: invalid_argument (the size, no memory), that of the other's allocation; wrong_state (set before). Threads:
  /// blocks until the other's memory is there.
  Error fulfil(buffer_type other) noexcept {
    if (!promise_.pending()) return make_error(Errc::wrong_state, "the memory was already set");
    if (!other) return buffer_type::no_memory();
    if (other.size() != buffer_.size()) return bounds_error(buffer_.size(), 0, other.size());
    if (Result<std::byte*> there = other.address(); !there.ok()) return there.error();
    using Control = typename buffer_type::Control;
    Control& control = *buffer_.control_;
    control.block = other.block();
    control.owned = false;
    control.is_mutable = other.is_mutable();
    if (other.content_identity() == 0) buffer_.stop_content_identity();
    control.foreign = {[](void* share, Block) noexcept { buffer_type last(static_cast<Control*>(share), 0); },
                       std::exchange(other.control_, nullptr)};
    return promise_.set();
  }
  /// Says that the memory will never be there. Errors: wrong_state (set before).
  Error fail(const Error& error) noexcept { return promise_.set_error(error); }

 private:
  PendingMemory(buffer_type buffer, promise_type promise) noexcept : buffer_(std::move(buffer)), promise_(std::move(promise)) {}
  buffer_type buffer_;
  promise_type promise_;
};

/// A buffer whose memory is not there yet, and the end that brings it.
template <memory_backend Backend, ownership Own>
struct DelayedBuffer {
  RawBuffer<Backend, Own> buffer;
  PendingMemory<Backend, Own> memory;
};

}  // namespace holdfast
