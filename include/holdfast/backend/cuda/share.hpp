// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "holdfast/backend/cuda/ipc.hpp"
#include "holdfast/backend/cuda/pool_ipc.hpp"
#include "holdfast/backend/cuda/shared_fabric.hpp"
#include "holdfast/backend/cuda/shared_file.hpp"

namespace holdfast {

/// By which mechanisms the memory behind an address can be shared with other processes.
struct CudaSharing {
  bool ipc = false;             ///< plain device memory: the driver's handle
  bool file = false;            ///< virtual memory: a file
  bool fabric = false;          ///< virtual memory: a fabric handle, for other hosts too
  CUmemoryPool pool = nullptr;  ///< the pool that it is from, if that can be shared: the pool's file
  bool dma_buf = false;         ///< plain or virtual memory, for other drivers
};

namespace detail {

// What gives the handle of virtual memory back, which retaining it took once more.
template <cuda_driver Driver>
struct CudaRetained {
  CudaState<Driver>* state = nullptr;
  CUmemGenericAllocationHandle handle = 0;
  void close() noexcept {
    if (state != nullptr) state->note(state->call(cuda_call::MemRelease{}, handle));
  }
};
// None, without an error: the address is in no mapping.
template <cuda_driver Driver>
[[nodiscard]] Result<Owned<CudaRetained<Driver>>> cuda_retain(CudaState<Driver>& state, const void* p) noexcept {
  CUmemGenericAllocationHandle handle = 0;
  const Error e = state.call(cuda_call::MemRetainAllocationHandle{}, &handle, const_cast<void*>(p));
  if (e.ok()) return Owned<CudaRetained<Driver>>({&state, handle});
  if (e.native == CUDA_ERROR_INVALID_VALUE || e.native == CUDA_ERROR_NOT_SUPPORTED || e.native == CUDA_ERROR_NOT_PERMITTED)
    return Owned<CudaRetained<Driver>>();
  return e;
}

}  // namespace detail

/// Tells how memory can be shared, of any address that the driver knows. Errors: the driver's: invalid_argument, of others.
template <cuda_driver Driver>
[[nodiscard]] Result<CudaSharing> find_cuda_sharing(const BasicCudaContext<Driver>& context, const void* p) noexcept {
  auto& state = context.state();
  CudaSharing ways;
  const auto ipc = detail::cuda_attribute(state, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p);
  if (!ipc.ok()) return ipc.error();
  ways.ipc = *ipc != 0;
  bool is_virtual = false;
  if (!ways.ipc) {
    const auto pool = detail::cuda_attribute(state, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p);
    if (!pool.ok()) return pool.error();
    if (*pool != 0) {
      const auto types = detail::cuda_attribute(state, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p);
      if (!types.ok()) return types.error();
      if ((*types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) ways.pool = reinterpret_cast<CUmemoryPool>(static_cast<std::uintptr_t>(*pool));
      return ways;
    }
    const auto retained = detail::cuda_retain(state, p);
    if (!retained.ok()) return retained.error();
    is_virtual = (*retained)->state != nullptr;
    if (is_virtual) {
      CUmemAllocationProp props{};
      if (Error e = state.call(cuda_call::MemGetAllocationPropertiesFromHandle{}, &props, (*retained)->handle); !e.ok()) return e;
      ways.file = (props.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
      ways.fabric = (props.requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0;
    }
  }
  int dma_buf = 0;
  if (ways.ipc || is_virtual)
    if (Error e = state.call(cuda_call::DeviceGetAttribute{}, &dma_buf, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, state.device); !e.ok()) return e;
  ways.dma_buf = dma_buf != 0;
  return ways;
}

/// Describes a block of any memory, or a part of one, for another process of this host, by the way that its memory has: plain
/// memory by a blob alone (the file is -1), virtual memory by its file, or if it has but a fabric handle by a blob alone, a pool's
/// block by the pool's file.
///
/// Errors: unsupported (the memory was not made to be shared so), invalid_argument (an empty block; one that reaches beyond its
/// allocation; memory that the driver does not know), the driver's own. Source: backends.md 10.2.
template <cuda_driver Driver>
[[nodiscard]] Result<CudaSharedFile> share_cuda(const BasicCudaContext<Driver>& context, Block block, const ShareIdentity& self) noexcept {
  if (block.data == nullptr || block.size <= 0) return make_error(Errc::invalid_argument, "there is nothing to share");
  auto& state = context.state();
  const Result<CudaSharing> ways = find_cuda_sharing(context, block.data);
  if (!ways.ok()) return ways.error();
  if (ways->ipc) {
    const Result<ShareBlob> blob = share_cuda_block(context, block, self);
    if (!blob.ok()) return blob.error();
    return CudaSharedFile({}, *blob);
  }
  if (ways->pool != nullptr) {
    Result<OwnedFile> file = detail::cuda_pool_file(state, ways->pool);
    if (!file.ok()) return file.error();
    const Result<ShareBlob> blob = detail::cuda_pool_blob(state, block, self);
    if (!blob.ok()) return blob.error();
    return CudaSharedFile(std::move(*file), *blob);
  }
  if (!ways->file && !ways->fabric) return make_error(Errc::unsupported, "the memory was not made to be shared by a file or by fabric");
  const auto retained = detail::cuda_retain(state, block.data);
  if (!retained.ok()) return retained.error();
  if (!ways->file) {
    const Result<ShareBlob> blob = detail::cuda_share_fabric(state, (*retained)->handle, block, self);
    if (!blob.ok()) return blob.error();
    return CudaSharedFile({}, *blob);
  }
  return detail::cuda_share_file(state, (*retained)->handle, block, self);
}

/// Another process's block while it is open here, whatever way it came; given back once, when this goes.
///
/// Threads: as a value; its end may wait for all work of the context, which must outlive it.
template <cuda_driver Driver>
class BasicCudaShared {
 public:
  using context_type = BasicCudaContext<Driver>;

  /// Opens what a blob, and its file if it has one, stand for. The file stays the caller's.
  ///
  /// Errors: those of the kind's own import; corrupt (a multicast object, no kind).
  [[nodiscard]] static Result<BasicCudaShared> open(const context_type& context, int file, const ShareBlob& blob, const ShareIdentity& self,
                                                    std::uint64_t generation) noexcept {
    switch (blob.kind) {
      case ShareKind::cuda_ipc: return keep(&BasicCudaShared::ipc_, BasicCudaImport<Driver>::open(context, blob, self, generation));
      case ShareKind::cuda_file: return keep(&BasicCudaShared::file_, BasicCudaFileImport<Driver>::open(context, file, blob, self, generation));
      case ShareKind::cuda_pool: {
        const auto pool = BasicCudaPoolImport<Driver>::open(context, file, blob, self, generation);
        if (!pool.ok()) return pool.error();
        return keep(&BasicCudaShared::pool_, pool->block(blob, self, generation));
      }
      case ShareKind::cuda_fabric: return keep(&BasicCudaShared::fabric_, BasicCudaFabricImport<Driver>::open(context, blob, self, generation));
      case ShareKind::multicast_file:
      case ShareKind::multicast_fabric: break;
    }
    return make_error(Errc::corrupt, "what is shared is no memory");
  }
  [[nodiscard]] Block block() const noexcept {
    for (const Block b : {ipc_.block(), file_.block(), fabric_.block(), pool_.block()})
      if (b.data != nullptr) return b;
    return {};
  }

 private:
  template <class Import>
  [[nodiscard]] static Result<BasicCudaShared> keep(Import BasicCudaShared::*where, Result<Import> import) noexcept {
    if (!import.ok()) return import.error();
    BasicCudaShared made;
    made.*where = std::move(*import);
    return made;
  }
  BasicCudaImport<Driver> ipc_;  // one of these
  BasicCudaFileImport<Driver> file_;
  BasicCudaFabricImport<Driver> fabric_;
  BasicCudaPoolBlock<Driver> pool_;
};

/// Shared memory of this machine's driver.
using CudaShared = BasicCudaShared<RealDriver>;

}  // namespace holdfast
