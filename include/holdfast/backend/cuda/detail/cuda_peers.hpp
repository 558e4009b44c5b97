// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "holdfast/backend/cuda/detail/cuda_copies.hpp"

namespace holdfast::detail {

// The other devices that may use an owner's mappings: to let contexts see each other does nothing for those.
class CudaPeers {
 public:
  // Adds one, whom `grant(access)` gives what is mapped already. Errors: unsupported (it cannot), the driver's; then later
  // mappings are not for it.
  template <cuda_driver Driver, class Grant>
  [[nodiscard]] Error add(CudaState<Driver>& state, CUdevice other, Grant grant) noexcept {
    int can = 0;
    if (Error e = state.call(cuda_call::DeviceCanAccessPeer{}, &can, other, state.device); !e.ok()) return e;
    if (can == 0) return make_error(Errc::unsupported, "the devices cannot access each other's memory");
    const CUmemAccessDesc access = cuda_access(other, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (Error e = peers_.push_back(CUmemAccessDesc(access)); !e.ok()) return e;
    const Error e = grant(access);
    if (!e.ok()) peers_.pop_back();
    return e;
  }
  // Gives all of them a new mapping.
  template <cuda_driver Driver>
  [[nodiscard]] Error open(CudaState<Driver>& state, CUdeviceptr at, std::size_t size) noexcept {
    if (peers_.empty()) return {};
    const CUmemAccessDesc* const all = peers_.span().data();
    return state.call(cuda_call::MemSetAccess{}, at, size, all, peers_.size());
  }

 private:
  SmallList<CUmemAccessDesc> peers_;
};

}  // namespace holdfast::detail
