// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "holdfast/buffer/dynamic_shape.hpp"
#include "holdfast/buffer/literal.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/buffer/transfer.hpp"
#include "holdfast/core/array_shape.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// Where a buffer of a shape keeps its dynamic sizes: behind the payload, or nowhere if the shape is static.
[[nodiscard]] constexpr DynamicLayout dynamic_layout(const ArrayShape& shape) noexcept {
  if (shape.is_static()) return {};
  return {DynamicLayout::Kind::suffix, shape.device_size(), 0};
}
/// What a buffer of a shape takes: payload and dynamic sizes.
[[nodiscard]] constexpr Bytes buffer_size(const ArrayShape& shape) noexcept {
  return shape.device_size() + dynamic_layout(shape).metadata_size(shape.rank());
}

/// A tracked buffer that is one array: what it holds and how it lies, beside the buffer itself.
///
/// Threads: as the buffer; the shape never changes. Source: PJRT buffer.
template <class Buffer>
class ShapedBuffer {
 public:
  using buffer_type = Buffer;
  using backend_type = typename Buffer::backend_type;
  using event_type = typename Buffer::event_type;
  using raw_type = typename Buffer::raw_type;

  /// Takes over a buffer of the shape's size. Errors: invalid_argument (the size), as `ArrayShape::check`; the buffer is
  /// deleted then.
  [[nodiscard]] static Result<ShapedBuffer> make(const ArrayShape& shape, Buffer buffer) noexcept {
    if (Error e = check(shape, buffer.size()); !e.ok()) return e;
    return Result<ShapedBuffer>(ShapedBuffer(shape, std::move(buffer)));
  }
  /// Makes new memory, valid from the start. Errors: as `ArrayShape::check`; the backend's own.
  [[nodiscard]] static Result<ShapedBuffer> allocate(backend_type backend, const ArrayShape& shape,
                                                     Alignment alignment = default_alignment) noexcept {
    if (Error e = shape.check(); !e.ok()) return e;
    Result<Buffer> buffer = Buffer::allocate(std::move(backend), buffer_size(shape), alignment);
    if (!buffer.ok()) return buffer.error();
    return Result<ShapedBuffer>(ShapedBuffer(shape, std::move(*buffer)));
  }

  /// The shape on the device: dimensions that are dynamic have their bounds.
  [[nodiscard]] const ArrayShape& shape() const noexcept { return shape_; }
  [[nodiscard]] Buffer& buffer() noexcept { return buffer_; }
  [[nodiscard]] static constexpr MemorySpace memory_space() noexcept { return backend_type::space; }
  /// What it takes on the device, padding and dynamic sizes included.
  [[nodiscard]] Bytes on_device_size() const noexcept { return buffer_.size(); }
  /// What a host must provide for its values.
  [[nodiscard]] Bytes host_size() const noexcept { return shape_.host_size(); }

  /// The shape with the sizes that the contents have. A static shape is itself.
  ///
  /// Errors: deleted or donated; a failed definition event or refused sizes, as `Stage::dynamic_shape` (INTERNAL).
  /// Threads: blocks for the contents. Source: runtime.md 5.4.
  [[nodiscard]] Result<ArrayShape> logical_shape() noexcept
    requires detail::copies_to_host<backend_type>
  {
    if (shape_.is_static()) return ArrayShape(shape_);
    ArrayShape actual = shape_;
    actual.dynamic = 0;
    auto held = buffer_.hold(HoldKind::usage);
    if (!held.ok()) return held.error();
    Error e = wait_all(std::span<const event_type>(held->definition_events()));
    // A mutable copy of the handle: an only owner's reads are not const.
    if (e.ok())
      e = read_dynamic_shape(held->guard().contents().raw, dynamic_layout(shape_), {shape_.dimensions.data(), shape_.rank()},
                             {actual.dimensions.data(), actual.rank()});
    held->convert();
    if (!e.ok()) {
      e.stage = Stage::dynamic_shape;
      return e;
    }
    return actual;
  }

  /// Gives the memory, with all its events, to a buffer of another array of as many bytes; this one is donated.
  ///
  /// Errors: invalid_argument (the shape, or its size: both are in the error), and then nothing has changed; as a donation.
  [[nodiscard]] Result<ShapedBuffer> bitcast(const ArrayShape& shape, Deadline deadline = Deadline::never()) noexcept {
    if (Error e = check(shape, buffer_.size()); !e.ok()) return e;
    if (!shape.is_static() || !shape_.is_static()) return make_error(Errc::invalid_argument, "a dynamic array cannot be bitcast");
    auto contents = buffer_.take(deadline);
    if (!contents.ok()) return contents.error();
    Result<Buffer> buffer = Buffer::adopt(std::move(*contents));
    if (!buffer.ok()) return buffer.error();
    return Result<ShapedBuffer>(ShapedBuffer(shape, std::move(*buffer)));
  }

 private:
  ShapedBuffer(const ArrayShape& shape, Buffer buffer) noexcept : shape_(shape), buffer_(std::move(buffer)) {}
  [[nodiscard]] static Error check(const ArrayShape& shape, Bytes size) noexcept {
    if (Error e = shape.check(); !e.ok()) return e;
    if (buffer_size(shape) == size) return {};
    Error e = make_error(Errc::invalid_argument, "the buffer is not as large as the array in its layout");
    e.requested = buffer_size(shape);
    e.available = size;
    return e;
  }
  ArrayShape shape_;
  Buffer buffer_;
};

}  // namespace holdfast
