// interop: memory shared with other libraries: DLPack tensors, std::pmr, allocators.
// In the flow: above buffer and backend; nothing of the library includes it.
// Foreign input is checked before a byte of it is believed; what it shares has one counted owner.
// It may throw where a foreign contract demands it, and only there.
// Nothing here copies: what cannot be shared as it lies is refused.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "holdfast/buffer/shaped_buffer.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/core/array_shape.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/interop/dlpack_abi.hpp"

namespace holdfast::dlpack {

/// Either of the two forms of a tensor that has an owner.
template <class M>
concept managed_tensor = std::same_as<M, ManagedTensor> || std::same_as<M, ManagedTensorVersioned>;

/// The owner of a tensor that DLPack hands over as a pointer: calls its deleter. Threads: as a value.
template <managed_tensor Managed>
class OwnedTensor {
 public:
  constexpr OwnedTensor() noexcept = default;
  constexpr explicit OwnedTensor(Managed* tensor) noexcept : tensor_(tensor) {}
  constexpr OwnedTensor(OwnedTensor&& other) noexcept : tensor_(other.release()) {}
  OwnedTensor& operator=(OwnedTensor other) noexcept { return std::swap(tensor_, other.tensor_), *this; }
  ~OwnedTensor() {
    if (tensor_ != nullptr && tensor_->deleter != nullptr) tensor_->deleter(tensor_);
  }
  [[nodiscard]] constexpr Managed* get() const noexcept { return tensor_; }
  /// Gives the tensor up to who calls its deleter, say a capsule.
  [[nodiscard]] constexpr Managed* release() noexcept { return std::exchange(tensor_, nullptr); }

 private:
  Managed* tensor_ = nullptr;
};

namespace detail {

constexpr bool host_can_use(DeviceType type) noexcept {
  return type == DeviceType::cpu || type == DeviceType::cuda_host || type == DeviceType::rocm_host || type == DeviceType::cuda_managed;
}
// A backend of one numbered device, as CUDA's are.
template <class B>
concept numbered_backend = requires(const B& b) {
  { b.state().device } noexcept -> std::convertible_to<std::int64_t>;
};
inline Error wrong_device() noexcept {
  return make_error(Errc::invalid_argument, "the DLPack device is not one of the buffer's memory");
}
// What both reach, as managed memory, may be named as either's.
template <memory_backend Backend>
constexpr Error check_device(Device device) noexcept {
  const bool fits = host_can_use(device.type) ? host_accessible<Backend> : !host_accessible<Backend> || Backend::space == MemorySpace::device;
  return fits ? Error{} : wrong_device();
}
template <memory_backend Backend>
Error check_number(const Backend& backend, Device device) noexcept {
  if constexpr (numbered_backend<Backend>)
    if (device.type == DeviceType::cuda && device.id != backend.state().device) return wrong_device();
  return {};
}
inline Error refused(Errc code, const char* what, std::size_t dimension) noexcept {
  Error e = make_error(code, what);
  e.at_kind = AtKind::argument;
  e.at = dimension;
  return e;
}

// Finds the layout that strides describe. Only one without gaps and overlaps is a layout; the shape has a size already.
inline Error read_strides(const std::int64_t* strides, ArrayShape& shape) noexcept {
  const std::size_t rank = shape.rank();
  if (strides == nullptr || shape.count() == 0) return {};
  std::int64_t expected = 1;
  bool row_major = true;
  for (std::size_t d = rank; d-- > 0;) {
    if (shape.dimensions[d] == 1) continue;
    row_major = row_major && strides[d] == expected;
    expected *= shape.dimensions[d];
  }
  if (row_major) return {};
  if (shape.element_bits != 0) return make_error(Errc::unsupported, "packed elements are shared in row-major order only");
  std::uint32_t used = 0;
  const auto take = [&](std::size_t d) noexcept {
    used |= std::uint32_t{1} << d;
    shape.minor_to_major.push_back(static_cast<std::uint8_t>(d));
  };
  expected = 1;
  for (bool found = true; found;) {
    found = false;
    for (std::size_t d = rank; d-- > 0 && !found;) {
      if ((used >> d & 1) != 0 || shape.dimensions[d] == 1 || strides[d] != expected) continue;
      expected *= shape.dimensions[d];
      take(d);
      found = true;
    }
  }
  for (std::size_t d = rank; d-- > 0;) {
    if ((used >> d & 1) != 0) continue;
    if (shape.dimensions[d] != 1) return refused(Errc::unsupported, "the tensor has gaps or overlaps: copy it first (stride)", d);
    take(d);
  }
  return {};
}

template <managed_tensor Managed, class Hold>
struct Exported {
  Managed managed;
  Hold hold;
  std::int64_t shape[ArrayShape::max_rank] = {};
  std::int64_t strides[ArrayShape::max_rank] = {};
};

}  // namespace detail

/// What a tensor that somebody gave is: its array and where it lies.
struct TensorView {
  ArrayShape shape;
  std::byte* data = nullptr;
};

/// Reads a foreign tensor without believing it: counts, sizes, strides, types, device and addresses.
///
/// `padded`: elements of less than 8 bits take a byte each. Errors: invalid_argument (a null array, a negative or too large
/// size, a missing address, another device), unsupported (types or strides that are no array here), over_budget (rank, size).
[[nodiscard]] inline Result<TensorView> read_tensor(const Tensor& tensor, bool padded, Device device) noexcept {
  if (tensor.ndim < 0) return make_error(Errc::invalid_argument, "a DLPack tensor of a negative rank");
  if (tensor.ndim > static_cast<std::int32_t>(ArrayShape::max_rank)) return make_error(Errc::over_budget, "a DLPack tensor of too many dimensions");
  if (tensor.ndim > 0 && tensor.shape == nullptr) return make_error(Errc::invalid_argument, "a DLPack tensor without a shape");
  if (!(tensor.device == device)) return make_error(Errc::invalid_argument, "a DLPack tensor on another device");
  const ElementType type = element_type_of(tensor.dtype);
  if (type == ElementType::invalid) return make_error(Errc::unsupported, "a DLPack tensor of an element type that is none here");
  Result<ArrayShape> shape = ArrayShape::make(type, {tensor.shape, static_cast<std::size_t>(tensor.ndim)});
  if (!shape.ok()) return shape.error();
  if (tensor.dtype.bits < 8 && !padded) shape->element_bits = tensor.dtype.bits;
  if (Error e = detail::read_strides(tensor.strides, *shape); !e.ok()) return e;
  const Bytes size = shape->device_size();
  if (size == 0) return TensorView{*shape, nullptr};
  if (tensor.data == nullptr) return make_error(Errc::invalid_argument, "a DLPack tensor without an address");
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  const std::uintptr_t room = std::numeric_limits<std::uintptr_t>::max() - address;
  if (tensor.byte_offset > room || static_cast<std::uint64_t>(size) > room - tensor.byte_offset)
    return make_error(Errc::invalid_argument, "a DLPack tensor beyond the end of memory");
  return TensorView{*shape, reinterpret_cast<std::byte*>(address + tensor.byte_offset)};
}

/// A tensor that shares a buffer's memory, and the event after which its contents are valid.
///
/// DLPack has no events: whoever passes the tensor on waits for `ready` first, or makes the consumer's stream wait
/// (`order_consumer`). The deleter is called after the end of all uses: a stream that still has some does not keep the memory.
template <managed_tensor Managed, class Buffer>
struct Export {
  OwnedTensor<Managed> tensor;
  typename Buffer::event_type ready;
};

/// Shares a buffer as a DLPack tensor, which is an external hold: the memory stays until its deleter has run.
///
/// Errors: deleted or donated; invalid_argument (the device is none of this memory); unsupported (dynamic, tiled, a type or
/// packing that DLPack lacks); permission_denied (constant memory in the form that cannot say so); out_of_memory.
/// Threads: any; blocks for a pending donation and until the memory is there, not for the contents.
template <managed_tensor Managed, class Buffer>
  requires Buffer::counts_holds
[[nodiscard]] Result<Export<Managed, Buffer>> export_tensor(ShapedBuffer<Buffer>& from, Device device = {}) noexcept {
  constexpr bool versioned = std::same_as<Managed, ManagedTensorVersioned>;
  using Exported = detail::Exported<Managed, typename Buffer::scoped_hold>;
  const ArrayShape& shape = from.shape();
  const DataType dtype = data_type_of(shape.type);
  if (Error e = detail::check_device<typename Buffer::backend_type>(device); !e.ok()) return e;
  if (!shape.is_static() || !shape.tile.empty()) return make_error(Errc::unsupported, "DLPack has no dynamic or tiled arrays");
  if (dtype.bits == 0) return make_error(Errc::unsupported, "DLPack lacks the element type");
  const bool packed = shape.element_bits != 0, padded = dtype.bits < 8 && !packed;
  if ((packed && (shape.element_bits != dtype.bits || !shape.is_row_major())) || (padded && !versioned))
    return make_error(Errc::unsupported, "DLPack cannot say how the elements are packed");
  auto ready = from.buffer().ready_event();
  if (!ready.ok()) return ready.error();
  auto hold = from.buffer().hold(HoldKind::external);
  if (!hold.ok()) return hold.error();
  const auto& raw = hold->raw();
  if (Error e = detail::check_number(raw.backend(), device); !e.ok()) return e;
  const Result<std::byte*> data = raw.address();
  if (!data.ok()) return data.error();
  if (!raw.is_mutable() && !versioned) return make_error(Errc::permission_denied, "a tensor without flags cannot say that it is constant");
  if (raw.is_mutable()) raw.stop_content_identity();
  auto* const made = new (std::nothrow) Exported{Managed{}, std::move(*hold)};
  if (made == nullptr) return make_error(Errc::out_of_memory, "no memory for a DLPack tensor");
  std::int64_t stride = 1;
  for (std::size_t k = 0; k < shape.rank(); ++k) {
    made->strides[shape.minor(k)] = stride;
    stride *= shape.dimensions[shape.minor(k)];
    made->shape[k] = shape.dimensions[k];
  }
  made->managed.dl_tensor = {*data, device, static_cast<std::int32_t>(shape.rank()), dtype, made->shape, made->strides, 0};
  made->managed.manager_ctx = made;
  made->managed.deleter = [](Managed* self) noexcept { delete static_cast<Exported*>(self->manager_ctx); };
  if constexpr (versioned) made->managed.flags = (made->hold.raw().is_mutable() ? 0 : flag_read_only) | (padded ? flag_subbyte_padded : 0);
  return Result<Export<Managed, Buffer>>(Export<Managed, Buffer>{OwnedTensor<Managed>(&made->managed), std::move(*ready)});
}

/// Makes a buffer of a foreign tensor's memory, which its deleter frees after the last owner and event; nothing is copied.
///
/// `definition`: the events after which the contents are valid: of a tensor that was asked for on a stream (`stream_number`), a
/// mark of that stream as it is then. A tensor that is refused is deleted. Constant unless
/// `is_mutable`. Errors: as `read_tensor`; unsupported (another major version); permission_denied (mutable, but the tensor is
/// read only); invalid_argument (not aligned to 64 bytes), out_of_memory. Threads: the deleter runs on whichever thread is last.
template <class Buffer, managed_tensor Managed>
  requires Buffer::counts_holds
[[nodiscard]] Result<ShapedBuffer<Buffer>> import_tensor(OwnedTensor<Managed> tensor, typename Buffer::backend_type backend,
                                                         std::span<const typename Buffer::event_type> definition = {},
                                                         Device device = {}, bool is_mutable = false) noexcept {
  Managed* const given = tensor.get();
  if (given == nullptr) return make_error(Errc::invalid_argument, "a null DLPack tensor");
  if (Error e = detail::check_device<typename Buffer::backend_type>(device); !e.ok()) return e;
  if (Error e = detail::check_number(backend, device); !e.ok()) return e;
  bool padded = false;
  if constexpr (std::same_as<Managed, ManagedTensorVersioned>) {
    if (given->version.major != 1) return make_error(Errc::unsupported, "a DLPack tensor of another major version");
    if (is_mutable && (given->flags & flag_read_only) != 0) return make_error(Errc::permission_denied, "the DLPack tensor is read only");
    padded = (given->flags & flag_subbyte_padded) != 0;
  }
  const Result<TensorView> view = read_tensor(given->dl_tensor, padded, device);
  if (!view.ok()) return view.error();
  const ForeignRelease release{[](void* context, Block) noexcept { OwnedTensor<Managed> last(static_cast<Managed*>(context)); }, given};
  auto raw = Buffer::raw_type::import_foreign(std::move(backend), Block{view->data, view->shape.device_size()}, release, is_mutable);
  if (!raw.ok()) return raw.error();
  static_cast<void>(tensor.release());
  Result<Buffer> buffer = Buffer::make(std::move(*raw), definition);
  if (!buffer.ok()) return buffer.error();
  return ShapedBuffer<Buffer>::make(view->shape, std::move(*buffer));
}

/// The number that stands for a stream in `__dlpack__(stream)`: its native handle.
template <class Stream>
  requires std::is_pointer_v<decltype(std::declval<const Stream&>().native())>
[[nodiscard]] std::int64_t stream_number(const Stream& stream) noexcept {
  return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(stream.native()));
}

/// Does what a producer owes its consumer: what that puts on its stream from now on comes after the tensor's contents.
///
/// `stream`: the number that `__dlpack__` got: a native handle, 1 the legacy default stream (which None stands for), 2 the
/// thread's own; -1: the consumer orders itself. Errors: invalid_argument (0, which DLPack forbids; below -1); why the contents
/// failed, if that is known; the driver's. Stream: enqueues a wait on the consumer's. Threads: blocks for a host promise.
template <event Event>
  requires requires(const Event& e, const typename Event::stream_type& s) {
    { e.wait_on_native(s.native()) } -> std::same_as<Error>;
  }
[[nodiscard]] Error order_consumer(const Event& ready, std::int64_t stream) noexcept {
  using Native = decltype(std::declval<const typename Event::stream_type&>().native());
  if (stream == 0 || stream < -1) return make_error(Errc::invalid_argument, "a DLPack stream number that stands for no stream");
  if (ready.ready()) return ready.wait();
  if (stream == -1) return {};
  return ready.wait_on_native(reinterpret_cast<Native>(static_cast<std::uintptr_t>(stream)));
}

}  // namespace holdfast::dlpack
