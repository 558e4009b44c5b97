// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "holdfast/backend/cuda/detail/cuda_copies.hpp"
#include "holdfast/core/owned.hpp"
#include "holdfast/core/share_blob.hpp"

namespace holdfast::detail {

using CudaHandle = CUmemGenericAllocationHandle;

// The kinds of handles that others can open, as asked for when something is created.
[[nodiscard]] constexpr unsigned cuda_handle_types(bool file_handles, bool fabric) noexcept {
  return (file_handles ? static_cast<unsigned>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) : 0u) |
         (fabric ? static_cast<unsigned>(CU_MEM_HANDLE_TYPE_FABRIC) : 0u);
}
// `create(handles)`; where the driver refuses fabric handles, without them. `handles` is then what was made.
template <class Create>
[[nodiscard]] Error cuda_with_handles(unsigned& handles, Create create) noexcept {
  Error e = create(handles);
  const bool refused = e.native == CUDA_ERROR_NOT_PERMITTED || e.native == CUDA_ERROR_NOT_SUPPORTED;
  if (!refused || (handles & CU_MEM_HANDLE_TYPE_FABRIC) == 0) return e;
  handles &= ~static_cast<unsigned>(CU_MEM_HANDLE_TYPE_FABRIC);
  return create(handles);
}

// Who keeps a handle when its mapping goes, or fails.
enum class CudaHandleOwner { mapping, caller };

// Makes memory on the state's device, shared by the given handles; `handles` as above.
template <cuda_driver Driver>
[[nodiscard]] Error cuda_create(CudaState<Driver>& state, Bytes size, unsigned& handles, CudaHandle& memory) noexcept {
  CUmemAllocationProp props = cuda_new_properties(state);
  return cuda_with_handles(handles, [&](unsigned asked) noexcept {
    props.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(asked);
    return state.call(cuda_call::MemCreate{}, &memory, static_cast<std::size_t>(size), &props, 0ull);
  });
}
// Maps memory as a whole to addresses of its own, readable and writable on the state's device. All or nothing.
template <cuda_driver Driver>
[[nodiscard]] Result<Block> cuda_map(CudaState<Driver>& state, CudaHandle memory, Bytes bytes, Bytes alignment,
                                     CudaHandleOwner owner = CudaHandleOwner::mapping) noexcept {
  const auto size = static_cast<std::size_t>(bytes);
  CUdeviceptr p = 0;
  Error e = state.call(cuda_call::MemAddressReserve{}, &p, size, static_cast<std::size_t>(alignment), CUdeviceptr{0}, 0ull);
  const bool reserved = e.ok();
  if (e.ok()) e = state.call(cuda_call::MemMap{}, p, size, std::size_t{0}, memory, 0ull);
  if (e.ok()) {
    const CUmemAccessDesc access = cuda_access(state.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    e = state.call(cuda_call::MemSetAccess{}, p, size, &access, std::size_t{1});
    if (e.ok()) return Block{cuda_pointer(p), bytes};
    state.note(state.call(cuda_call::MemUnmap{}, p, size));
  }
  if (owner == CudaHandleOwner::mapping) state.note(state.call(cuda_call::MemRelease{}, memory));
  if (reserved) state.note(state.call(cuda_call::MemAddressFree{}, p, size));
  return e;
}
// Takes a mapping back, each step whatever became of the one before: a failure is noted. Waits for nothing that runs.
template <cuda_driver Driver>
void cuda_unmap(CudaState<Driver>& state, Block range, CudaHandle memory, CudaHandleOwner owner = CudaHandleOwner::mapping) noexcept {
  const auto size = static_cast<std::size_t>(range.size);
  state.note(state.call(cuda_call::MemUnmap{}, cuda_address(range.data), size));
  if (owner == CudaHandleOwner::mapping) state.note(state.call(cuda_call::MemRelease{}, memory));
  state.note(state.call(cuda_call::MemAddressFree{}, cuda_address(range.data), size));
}

// Another process's virtual memory while it is mapped here, however its handle came.
template <cuda_driver Driver>
struct CudaMapped {
  CudaState<Driver>* state = nullptr;
  CudaHandle memory = 0;
  Block whole, block;
  void close() noexcept {
    if (state != nullptr && state->drain()) cuda_unmap(*state, whole, memory);
  }
};
// Of a blob that `check_share` has passed; `native` is what its kind's handles are to the driver.
template <cuda_driver Driver>
[[nodiscard]] Result<Owned<CudaMapped<Driver>>> cuda_map_shared(CudaState<Driver>& state, void* native, CUmemAllocationHandleType type,
                                                                const ShareBlob& blob) noexcept {
  const CUmemAllocationProp props = cuda_properties(state.device);
  std::size_t granule = 0;
  if (Error e = state.call(cuda_call::MemGetAllocationGranularity{}, &granule, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM); !e.ok()) return e;
  if (static_cast<std::size_t>(blob.whole) % granule != 0) return make_error(Errc::corrupt, "a shared allocation has no such size");
  CudaHandle memory = 0;
  if (Error e = state.call(cuda_call::MemImportFromShareableHandle{}, &memory, native, type); !e.ok()) return e;
  const Result<Block> whole = cuda_map(state, memory, blob.whole, Bytes{0});
  if (!whole.ok()) return whole.error();
  return Owned<CudaMapped<Driver>>({&state, memory, *whole, {whole->data + blob.handle.offset, blob.handle.size}});
}

}  // namespace holdfast::detail
