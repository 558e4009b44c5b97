// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "holdfast/backend/cuda/detail/cuda_share.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "holdfast/backend/host/owned_file.hpp"

namespace holdfast {

namespace detail {
template <cuda_driver Driver>
[[nodiscard]] Result<OwnedFile> cuda_pool_file(const CudaState<Driver>& state, CUmemoryPool pool) noexcept {
  int file = -1;
  if (Error e = state.call(cuda_call::MemPoolExportToShareableHandle{}, static_cast<void*>(&file), pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                           0ull);
      !e.ok())
    return e;
  return own_file(file);
}
template <cuda_driver Driver>
[[nodiscard]] Result<ShareBlob> cuda_pool_blob(CudaState<Driver>& state, Block block, const ShareIdentity& self) noexcept {
  ShareBlob blob{ShareKind::cuda_pool, self, 0, {}};
  if (Error e = cuda_describe(state, block, blob); !e.ok()) return e;
  CUmemPoolPtrExportData native{};
  if (Error e = state.call(cuda_call::MemPoolExportPointer{}, &native, cuda_address(block.data - blob.handle.offset)); !e.ok()) return e;
  static_assert(sizeof native.reserved == sizeof blob.handle.bytes);
  std::memcpy(blob.handle.bytes.data(), native.reserved, sizeof native.reserved);
  return blob;
}
}  // namespace detail

/// Makes a file that stands for a pool made with `file_handles`, to be sent once to each process that opens its blocks.
///
/// Errors: the driver's own (a pool made without).
template <cuda_driver Driver>
[[nodiscard]] Result<OwnedFile> share_cuda_pool(const BasicCudaPoolMemory<Driver>& memory) noexcept {
  return detail::cuda_pool_file(memory.state(), memory.native());
}
/// Describes a block of a pool that was shared already, or a part of one, for another process of this host.
///
/// Others may use it once the stream that it was allocated on has come so far. Every importer has released it before its owner
/// does. Errors: invalid_argument (an empty block; one that reaches beyond its allocation), the driver's own.
template <cuda_driver Driver>
[[nodiscard]] Result<ShareBlob> share_cuda_pool_block(const BasicCudaPoolMemory<Driver>& memory, Block block, const ShareIdentity& self) noexcept {
  return detail::cuda_pool_blob(memory.state(), block, self);
}

/// A block of another process's pool while it is open here; given back once, when this goes.
///
/// Threads: as a value; its end waits for all work of the context, which must outlive it.
template <cuda_driver Driver>
class BasicCudaPoolBlock {
 public:
  using stream_type = BasicCudaStreamRef<Driver>;
  constexpr BasicCudaPoolBlock() noexcept = default;

  [[nodiscard]] Block block() const noexcept { return open_->block; }
  /// Gives it back in the order of a stream, which has waited for all its uses here; its owner may release it after that.
  /// A failure is the context's `unreported`. Stream: enqueues the release.
  void release(const stream_type& stream) noexcept {
    const Open gone = open_.release();
    if (gone.state != nullptr) gone.state->insist(cuda_call::MemFreeAsync{}, gone.base, stream.native());
  }

 private:
  template <cuda_driver D>
  friend class BasicCudaPoolImport;
  struct Open {
    detail::CudaState<Driver>* state = nullptr;
    CUdeviceptr base = 0;
    Block block;
    void close() noexcept {
      // cuMemFree waits for nothing, for such memory.
      if (state != nullptr && state->drain()) state->insist(cuda_call::MemFree{}, base);
    }
  };
  Owned<Open> open_;
};

/// Another process's pool while it is open here: nothing can be allocated from it, the blocks that its owner shares are opened.
///
/// It may go before its blocks. Threads: as a value. The context must outlive it.
template <cuda_driver Driver>
class BasicCudaPoolImport {
 public:
  using context_type = BasicCudaContext<Driver>;
  using block_type = BasicCudaPoolBlock<Driver>;
  constexpr BasicCudaPoolImport() noexcept = default;

  /// Opens the pool that a file stands for and lets the context's device read and write it, if the process may: see
  /// `check_share`. `blob` is that of any of its blocks, `generation` its owner's now. The file stays the caller's.
  ///
  /// Errors: those of `check_share`; corrupt (another kind), unsupported (a device that this one cannot access), the driver's.
  [[nodiscard]] static Result<BasicCudaPoolImport> open(const context_type& context, int file, const ShareBlob& blob, const ShareIdentity& self,
                                                        std::uint64_t generation) noexcept {
    auto& state = context.state();
    const Result<bool> seen = detail::cuda_admit(state, blob, ShareKind::cuda_pool, self, generation);
    if (!seen.ok()) return seen.error();
    CUmemoryPool pool = nullptr;
    void* const native = reinterpret_cast<void*>(static_cast<std::intptr_t>(file));
    if (Error e = state.call(cuda_call::MemPoolImportFromShareableHandle{}, &pool, native, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull); !e.ok())
      return detail::cuda_unopened(e, *seen);
    BasicCudaPoolImport made;
    made.open_ = Owned<Open>({&state, pool});
    made.from_ = blob.from;
    // The importer has none of the access that the owner gave.
    const CUmemAccessDesc access = detail::cuda_access(state.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (Error e = state.call(cuda_call::MemPoolSetAccess{}, pool, &access, std::size_t{1}); !e.ok()) return detail::cuda_unopened(e, *seen);
    return made;
  }
  /// Opens a block, if it is of the pool's owner in the generation that the pool was opened in.
  ///
  /// Errors: wrong_state (it is not; another generation's than its owner's now), corrupt (kind, sizes), the driver's own, of
  /// another pool's block, of one that is no more, and of one that is open here already, too.
  [[nodiscard]] Result<block_type> block(const ShareBlob& blob, const ShareIdentity& self, std::uint64_t generation) const noexcept {
    auto* const state = open_->state;
    if (state == nullptr) return make_error(Errc::wrong_state, "there is no shared pool");
    const Result<bool> seen = detail::cuda_admit(*state, blob, ShareKind::cuda_pool, self, generation);
    if (!seen.ok()) return seen.error();
    if (blob.from != from_) return make_error(Errc::wrong_state, "the shared block is of another owner, or generation, than the pool");
    CUmemPoolPtrExportData native{};
    std::memcpy(native.reserved, blob.handle.bytes.data(), sizeof native.reserved);
    CUdeviceptr base = 0, start = 0;
    if (Error e = state->call(cuda_call::MemPoolImportPointer{}, &base, open_->pool, &native); !e.ok()) return detail::cuda_unopened(e, *seen);
    block_type made;
    made.open_ = Owned<typename block_type::Open>({state, base, {detail::cuda_pointer(base) + blob.handle.offset, blob.handle.size}});
    std::size_t size = 0;
    if (Error e = state->inside(cuda_call::MemGetAddressRange{}, &start, &size, base); !e.ok()) return e;
    if (static_cast<std::size_t>(blob.handle.offset + blob.handle.size) > size)
      return make_error(Errc::corrupt, "a shared block reaches beyond its allocation");
    return made;
  }

 private:
  struct Open {
    detail::CudaState<Driver>* state = nullptr;
    CUmemoryPool pool = nullptr;
    void close() noexcept {
      if (state != nullptr) state->note(state->call(cuda_call::MemPoolDestroy{}, pool));
    }
  };
  Owned<Open> open_;
  ShareIdentity from_;
};

/// The shared pools of this machine's driver.
using CudaPoolBlock = BasicCudaPoolBlock<RealDriver>;
using CudaPoolImport = BasicCudaPoolImport<RealDriver>;

}  // namespace holdfast
