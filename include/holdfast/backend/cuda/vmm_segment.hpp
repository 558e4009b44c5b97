// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "holdfast/backend/cuda/context.hpp"
#include "holdfast/backend/cuda/detail/cuda_peers.hpp"
#include "holdfast/core/block.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// A range of addresses that is reserved once and whose granules get and lose memory: how a pool grows without copying.
///
/// Threads: as a container. The context must outlive it. Source: backends.md 6.8; expandable segments.
template <cuda_driver Driver>
class BasicCudaSegment {
 public:
  using context_type = BasicCudaContext<Driver>;

  constexpr BasicCudaSegment() noexcept = default;
  BasicCudaSegment(BasicCudaSegment&& other) noexcept
      : state_(std::exchange(other.state_, nullptr)), range_(std::exchange(other.range_, {})), granule_(other.granule_), properties_(other.properties_),
        mapped_(std::exchange(other.mapped_, 0)), handles_(std::move(other.handles_)), peers_(std::move(other.peers_)) {}
  BasicCudaSegment& operator=(BasicCudaSegment other) noexcept {
    std::swap(state_, other.state_);
    std::swap(range_, other.range_);
    std::swap(granule_, other.granule_);
    std::swap(properties_, other.properties_);
    std::swap(mapped_, other.mapped_);
    std::swap(handles_, other.handles_);
    std::swap(peers_, other.peers_);
    return *this;
  }
  /// Waits for all work of the context, then gives all back; nothing while a stream of it is being captured. Threads: blocks.
  ~BasicCudaSegment() {
    if (state_ == nullptr || (mapped_ != 0 && !state_->drain())) return;
    static_cast<void>(unmap(0, range_.size));
    state_->note(state_->call(cuda_call::MemAddressFree{}, detail::cuda_address(range_.data), static_cast<std::size_t>(range_.size)));
  }

  /// Reserves addresses for at most `size` bytes, no memory. `granule`: what is mapped at a time, 0: what the driver recommends.
  ///
  /// Errors: invalid_argument (sizes; a granule that is no multiple of the driver's), out_of_memory, the driver's own.
  [[nodiscard]] static Result<BasicCudaSegment> reserve(const context_type& context, Bytes size, Bytes granule = 0) noexcept {
    auto& state = context.state();
    const CUmemAllocationProp props = detail::cuda_new_properties(state);
    std::size_t least = 0;
    if (Error e = state.call(cuda_call::MemGetAllocationGranularity{}, &least, &props, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED); !e.ok()) return e;
    const Bytes unit = granule == 0 ? static_cast<Bytes>(least) : granule;
    Bytes rounded = 0;
    if (size <= 0 || unit <= 0 || unit % static_cast<Bytes>(least) != 0 || !checked_align_up(size, unit, rounded))
      return detail::cuda_bad_request(size, Errc::invalid_argument, "a segment has a size and a granule of whole driver's granules");
    BasicCudaSegment made;
    made.granule_ = unit;
    made.properties_ = props;
    made.handles_.reset(new (std::nothrow) CUmemGenericAllocationHandle[static_cast<std::size_t>(rounded / unit)]{});
    if (made.handles_ == nullptr) return make_error(Errc::out_of_memory, "no memory for a segment's table");
    CUdeviceptr p = 0;
    if (Error e = state.call(cuda_call::MemAddressReserve{}, &p, static_cast<std::size_t>(rounded), std::size_t{0}, CUdeviceptr{0}, 0ull); !e.ok())
      return detail::cuda_refusal(state, e, size);
    made.state_ = &state;
    made.range_ = {detail::cuda_pointer(p), rounded};
    return made;
  }

  /// Puts memory behind every granule that a range touches and that has none; readable and writable on this device.
  ///
  /// Errors: invalid_argument (range), out_of_memory, the driver's own: then everything is as it was.
  [[nodiscard]] Error map(Bytes offset, Bytes size) noexcept {
    if (offset < 0 || size < 0 || offset > range_.size || size > range_.size - offset)
      return detail::cuda_bad_request(size, Errc::invalid_argument, "a range outside of the segment");
    const Bytes first = offset / granule_, end = align_up(offset + size, granule_) / granule_;
    Error e;
    Bytes at = first;
    for (; at < end && e.ok(); ++at)
      if (handle(at) == 0) e = map_granule(at);
      else handle(at) |= kept;
    if (!e.ok()) --at;  // the one that failed
    for (Bytes i = first; i < at; ++i) {
      if (!e.ok() && (handle(i) & kept) == 0) unmap_granule(i);
      else handle(i) &= ~kept;
    }
    return e;
  }
  /// Takes the memory from all granules that lie in a range as a whole; tells how many bytes. Waits for nothing: whoever calls
  /// has seen the end of all their uses. A failure is the context's `unreported`.
  Bytes unmap(Bytes offset, Bytes size) noexcept {
    if (offset < 0 || size < 0 || offset > range_.size || size > range_.size - offset) return 0;
    const Bytes before = mapped_;
    for (Bytes i = align_up(offset, granule_) / granule_; i < (offset + size) / granule_; ++i)
      if (handle(i) != 0) unmap_granule(i);
    return before - mapped_;
  }

  /// Lets another device read and write it, what is mapped later too. Errors: unsupported (it cannot), the driver's own.
  [[nodiscard]] Error allow(const context_type& other) noexcept {
    return peers_.add(*state_, other.device(), [this](const CUmemAccessDesc& access) noexcept {
      for (Bytes i = 0; i < range_.size / granule_; ++i)
        if (handle(i) != 0)
          if (Error e = state_->call(cuda_call::MemSetAccess{}, address(i), static_cast<std::size_t>(granule_), &access, std::size_t{1}); !e.ok())
            return e;
      return Error{};
    });
  }

  [[nodiscard]] Block range() const noexcept { return range_; }
  [[nodiscard]] Bytes granule() const noexcept { return granule_; }
  /// Bytes that have memory.
  [[nodiscard]] Bytes mapped() const noexcept { return mapped_; }
  [[nodiscard]] bool is_mapped(Bytes offset) const noexcept {
    return offset >= 0 && offset < range_.size && handles_[static_cast<std::size_t>(offset / granule_)] != 0;
  }
  // For sources over it.
  [[nodiscard]] detail::CudaState<Driver>& state() const noexcept { return *state_; }

 private:
  using Handle = CUmemGenericAllocationHandle;
  static constexpr Handle kept = Handle{1} << 63;  // had memory before the call that is running

  [[nodiscard]] Handle& handle(Bytes i) noexcept { return handles_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] CUdeviceptr address(Bytes i) const noexcept { return detail::cuda_address(range_.data + i * granule_); }
  [[nodiscard]] Error map_granule(Bytes i) noexcept {
    const auto size = static_cast<std::size_t>(granule_);
    Handle made = 0;
    if (Error e = state_->call(cuda_call::MemCreate{}, &made, size, static_cast<const CUmemAllocationProp*>(&properties_), 0ull); !e.ok()) return detail::cuda_refusal(*state_, e, granule_);
    Error e = state_->call(cuda_call::MemMap{}, address(i), size, std::size_t{0}, made, 0ull);
    if (e.ok()) {
      const CUmemAccessDesc access = detail::cuda_access(state_->device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      e = state_->call(cuda_call::MemSetAccess{}, address(i), size, &access, std::size_t{1});
      if (e.ok()) e = peers_.open(*state_, address(i), size);
      if (e.ok()) return mapped_ += granule_, handle(i) = made, Error{};
      state_->note(state_->call(cuda_call::MemUnmap{}, address(i), size));
    }
    state_->note(state_->call(cuda_call::MemRelease{}, made));
    return e;
  }
  void unmap_granule(Bytes i) noexcept {
    state_->note(state_->call(cuda_call::MemUnmap{}, address(i), static_cast<std::size_t>(granule_)));
    state_->note(state_->call(cuda_call::MemRelease{}, std::exchange(handle(i), 0)));
    mapped_ -= granule_;
  }

  detail::CudaState<Driver>* state_ = nullptr;
  Block range_;
  Bytes granule_ = 1;
  CUmemAllocationProp properties_{};
  Bytes mapped_ = 0;
  std::unique_ptr<Handle[]> handles_;  // 0: no memory
  detail::CudaPeers peers_;
};

/// The segments of this machine's driver.
using CudaSegment = BasicCudaSegment<RealDriver>;

}  // namespace holdfast
