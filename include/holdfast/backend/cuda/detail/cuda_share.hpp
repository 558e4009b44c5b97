// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "holdfast/backend/cuda/detail/cuda_copies.hpp"
#include "holdfast/core/share_blob.hpp"

namespace holdfast::detail {

// A number that the driver knows of an address: some are a word, others a byte or a pointer.
template <cuda_driver Driver>
[[nodiscard]] Result<std::uint64_t> cuda_attribute(CudaState<Driver>& state, CUpointer_attribute which, const void* p) noexcept {
  std::uint64_t value = 0;
  if (Error e = state.inside(cuda_call::PointerGetAttribute{}, static_cast<void*>(&value), which, cuda_address(p)); !e.ok()) return e;
  return value;
}

template <cuda_driver Driver>
[[nodiscard]] Result<std::array<std::byte, 16>> cuda_uuid(const CudaState<Driver>& state, CUdevice device) noexcept {
  CUuuid native{};
  if (Error e = state.call(cuda_call::DeviceGetUuid{}, &native, device); !e.ok()) return e;
  std::array<std::byte, 16> id;
  std::memcpy(id.data(), native.bytes, sizeof native.bytes);
  return id;
}

// Says in a blob on which device memory lies, which allocation it is, and where in it the block.
template <cuda_driver Driver>
[[nodiscard]] Error cuda_describe(CudaState<Driver>& state, Block block, ShareBlob& blob) noexcept {
  if (block.data == nullptr || block.size <= 0) return make_error(Errc::invalid_argument, "there is nothing to share");
  const CUdeviceptr p = cuda_address(block.data);
  CUdeviceptr base = 0;
  std::size_t size = 0;
  if (Error e = state.inside(cuda_call::MemGetAddressRange{}, &base, &size, p); !e.ok()) return e;
  if (static_cast<std::size_t>(block.size) > size - (p - base))
    return make_error(Errc::invalid_argument, "a block to share reaches beyond its allocation");
  const Result<std::uint64_t> number = cuda_attribute(state, CU_POINTER_ATTRIBUTE_BUFFER_ID, block.data);
  if (!number.ok()) return number.error();
  const Result<std::uint64_t> ordinal = cuda_attribute(state, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block.data);
  if (!ordinal.ok()) return ordinal.error();
  CUdevice where = 0;
  if (Error e = state.call(cuda_call::DeviceGet{}, &where, static_cast<int>(*ordinal)); !e.ok()) return e;
  const auto device = cuda_uuid(state, where);
  if (!device.ok()) return device.error();
  blob.device = *device;
  blob.allocation = *number;
  blob.whole = static_cast<Bytes>(size);
  blob.handle.size = block.size;
  blob.handle.offset = static_cast<Bytes>(p - base);
  return {};
}

// Tells whether this process sees the device that shared memory lies on; one that it does not see its driver may know all
// the same. Errors: unsupported (this device cannot access that one), the driver's.
template <cuda_driver Driver>
[[nodiscard]] Result<bool> cuda_sees(const CudaState<Driver>& state, const ShareBlob& blob) noexcept {
  const auto own = cuda_uuid(state, state.device);
  if (!own.ok()) return own.error();
  if (*own == blob.device) return true;
  int count = 0;
  if (Error e = state.call(cuda_call::DeviceGetCount{}, &count); !e.ok()) return e;
  for (int i = 0; i < count; ++i) {
    CUdevice other = 0;
    if (Error e = state.call(cuda_call::DeviceGet{}, &other, i); !e.ok()) return e;
    const auto id = cuda_uuid(state, other);
    if (!id.ok()) return id.error();
    if (*id != blob.device) continue;
    int can = 0;
    if (Error e = state.call(cuda_call::DeviceCanAccessPeer{}, &can, state.device, other); !e.ok()) return e;
    if (can == 0) return make_error(Errc::unsupported, "the device cannot access the one that the shared memory lies on");
    return true;
  }
  return false;
}
// What is said of memory that could not be opened: by the driver, perhaps for that reason.
[[nodiscard]] inline Error cuda_unopened(Error e, bool seen) noexcept {
  if (!seen && e.native != 0) e.what = "the driver did not open memory of a device that this process does not see";
  return e;
}

// The first checks of every import: who may open the blob, as what, on which device.
template <cuda_driver Driver>
[[nodiscard]] Result<bool> cuda_admit(const CudaState<Driver>& state, const ShareBlob& blob, ShareKind kind, const ShareIdentity& self,
                                      std::uint64_t generation) noexcept {
  if (Error e = check_share(blob, self, generation); !e.ok()) return e;
  if (blob.kind != kind) return make_error(Errc::corrupt, "the shared memory is of another kind");
  return cuda_sees(state, blob);
}

}  // namespace holdfast::detail
