// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "holdfast/backend/cuda/cuda_event.hpp"
#include "holdfast/core/block.hpp"

namespace holdfast::detail {

[[nodiscard]] inline CUdeviceptr cuda_address(const void* p) noexcept { return reinterpret_cast<CUdeviceptr>(p); }
[[nodiscard]] inline std::byte* cuda_pointer(CUdeviceptr p) noexcept { return reinterpret_cast<std::byte*>(p); }
[[nodiscard]] constexpr CUmemAllocationProp cuda_properties(CUdevice device) noexcept {
  CUmemAllocationProp p{};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  p.location.id = device;
  return p;
}
// The same for memory that is to be made: network cards may reach it where the device can let them.
template <cuda_driver Driver>
[[nodiscard]] CUmemAllocationProp cuda_new_properties(CudaState<Driver>& state) noexcept {
  CUmemAllocationProp p = cuda_properties(state.device);
  int can = 0;
  state.note(state.call(cuda_call::DeviceGetAttribute{}, &can, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, state.device));
  p.allocFlags.gpuDirectRDMACapable = can != 0;
  return p;
}
[[nodiscard]] constexpr CUmemAccessDesc cuda_access(CUdevice device, CUmemAccess_flags flags) noexcept {
  CUmemAccessDesc d{};
  d.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  d.location.id = device;
  d.flags = flags;
  return d;
}

// What sources say of a failed request; `available` is what the driver says is free on the device, if it says so.
template <cuda_driver Driver>
[[nodiscard]] HOLDFAST_COLD Error cuda_refusal(CudaState<Driver>& state, Error e, Bytes size) noexcept {
  e.stage = Stage::allocation;
  e.requested = size;
  std::size_t free = 0, total = 0;
  if (e.code == Errc::out_of_memory && state.inside(cuda_call::MemGetInfo{}, &free, &total).ok()) e.available = static_cast<Bytes>(free);
  return e;
}
[[nodiscard]] HOLDFAST_COLD inline Error cuda_bad_request(Bytes size, Errc code, const char* what) noexcept {
  Error e = make_error(code, what);
  e.stage = Stage::allocation;
  e.requested = size;
  return e;
}
[[nodiscard]] inline bool cuda_aligned(CUdeviceptr p, Alignment alignment) noexcept {
  return p % static_cast<CUdeviceptr>(alignment.value()) == 0;
}

// A block that `ask(p)` gets from the driver; one that is not aligned as wanted goes back by `give(block)`.
template <cuda_driver Driver, class Ask, class Give>
[[nodiscard]] Result<Block> cuda_block(CudaState<Driver>& state, Bytes size, Alignment alignment, Ask ask, Give give) noexcept {
  if (size < 0) return cuda_bad_request(size, Errc::invalid_argument, "a negative number of bytes was asked for");
  if (size == 0) return Block{};
  CUdeviceptr p = 0;
  Error e = ask(&p);
  if (e.code == Errc::out_of_memory && state.run_completions()) e = ask(&p);  // what events hold back may be free by now
  if (!e.ok()) return cuda_refusal(state, e, size);
  const Block block{cuda_pointer(p), size};
  if (cuda_aligned(p, alignment)) return block;
  give(block);
  return cuda_bad_request(size, Errc::unsupported, "the driver's memory is not aligned so far");
}

// The copies of a source: bytes of any memory that the driver knows, or of the host.
template <class Self, cuda_driver Driver>
class CudaCopies {
 public:
  using event_type = BasicCudaEvent<Driver>;
  using stream_type = BasicCudaStreamRef<Driver>;
  static constexpr bool runs_continuations = true;  // where the driver has no more

  /// Copies host bytes in; they must stay as they are until the event. Errors: invalid_argument (range), the driver's.
  /// Stream: enqueues the copy; the form without a stream uses one of the context's own.
  [[nodiscard]] Result<event_type> copy_in(const stream_type& stream, Block to, Bytes offset, std::span<const std::byte> from) const noexcept {
    return move(stream, to, offset, {const_cast<std::byte*>(from.data()), size_of(from)}, 0, size_of(from));
  }
  [[nodiscard]] Result<event_type> copy_in(Block to, Bytes offset, std::span<const std::byte> from) const noexcept {
    return on_own(0, [&](const stream_type& s) noexcept { return copy_in(s, to, offset, from); });
  }
  /// Copies bytes out to the host, which may look at them after the event. Errors, Stream: as `copy_in`.
  [[nodiscard]] Result<event_type> copy_out(const stream_type& stream, Block from, Bytes offset, std::span<std::byte> to) const noexcept {
    return move(stream, {to.data(), size_of(to)}, 0, from, offset, size_of(to));
  }
  [[nodiscard]] Result<event_type> copy_out(Block from, Bytes offset, std::span<std::byte> to) const noexcept {
    return on_own(1, [&](const stream_type& s) noexcept { return copy_out(s, from, offset, to); });
  }
  /// Copies between blocks of any devices. Errors, Stream: as `copy_in`.
  [[nodiscard]] Result<event_type> copy(const stream_type& stream, Block to, Bytes to_offset, Block from, Bytes from_offset,
                                        Bytes size) const noexcept {
    return move(stream, to, to_offset, from, from_offset, size);
  }
  [[nodiscard]] Result<event_type> copy(Block to, Bytes to_offset, Block from, Bytes from_offset, Bytes size) const noexcept {
    return on_own(2, [&](const stream_type& s) noexcept { return copy(s, to, to_offset, from, from_offset, size); });
  }
  /// Makes an event that the host completes and whose waits run the context's continuations. Errors: out_of_memory.
  [[nodiscard]] Result<typename event_type::promise_type> make_promise() const noexcept {
    return event_type::promise_type::make(&state());
  }

 private:
  [[nodiscard]] CudaState<Driver>& state() const noexcept { return static_cast<const Self*>(this)->state(); }
  template <class Byte>
  [[nodiscard]] static Bytes size_of(std::span<Byte> bytes) noexcept {
    return static_cast<Bytes>(bytes.size());
  }
  [[nodiscard]] static bool holds(Block block, Bytes offset, Bytes size) noexcept {
    return offset >= 0 && size >= 0 && offset <= block.size && size <= block.size - offset;
  }
  [[nodiscard]] static Result<event_type> move(const stream_type& stream, Block to, Bytes to_offset, Block from, Bytes from_offset,
                                               Bytes size) noexcept {
    if (!holds(to, to_offset, size) || !holds(from, from_offset, size))
      return make_error(Errc::invalid_argument, "a copy reaches beyond its block");
    return event_type::after(stream, [&]() noexcept -> Error {
      if (size == 0) return {};
      return stream.state().inside(cuda_call::MemcpyAsync{}, cuda_address(to.data + to_offset), cuda_address(from.data + from_offset),
                                   static_cast<std::size_t>(size), stream.native());
    });
  }
  template <class F>
  [[nodiscard]] Result<event_type> on_own(std::size_t which, F copy_on) const noexcept {
    const auto own = state().copy_stream(which);
    if (!own.ok()) return own.error();
    return copy_on(stream_type::known(state(), own->stream, own->id));
  }
};

}  // namespace holdfast::detail
