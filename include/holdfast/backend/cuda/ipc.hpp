// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "holdfast/backend/cuda/context.hpp"
#include "holdfast/backend/cuda/detail/cuda_copies.hpp"
#include "holdfast/core/block.hpp"
#include "holdfast/core/share_blob.hpp"

namespace holdfast {

/// Describes a block of plain device memory, or a part of one, for another process of this host.
///
/// The exporter keeps the memory until every importer has closed it. Errors: invalid_argument (an empty block; one that
/// reaches beyond its allocation), the driver's own: not_found, or invalid_argument for memory that cannot be named so.
template <cuda_driver Driver>
[[nodiscard]] Result<ShareBlob> share_cuda_block(const BasicCudaContext<Driver>& context, Block block, const ShareIdentity& self) noexcept {
  if (block.data == nullptr || block.size <= 0) return make_error(Errc::invalid_argument, "there is nothing to share");
  auto& state = context.state();
  const CUdeviceptr p = detail::cuda_address(block.data);
  CUdeviceptr base = 0;
  std::size_t size = 0;
  if (Error e = state.inside(cuda_call::MemGetAddressRange{}, &base, &size, p); !e.ok()) return e;
  if (static_cast<std::size_t>(block.size) > size - (p - base))
    return make_error(Errc::invalid_argument, "a block to share reaches beyond its allocation");
  CUipcMemHandle native{};
  if (Error e = state.inside(cuda_call::IpcGetMemHandle{}, &native, base); !e.ok()) return e;
  ShareBlob blob{ShareKind::cuda_ipc, self, static_cast<Bytes>(size), {}};
  static_assert(sizeof native.reserved == sizeof blob.handle.bytes);
  std::memcpy(blob.handle.bytes.data(), native.reserved, sizeof native.reserved);
  blob.handle.size = block.size;
  blob.handle.offset = static_cast<Bytes>(p - base);
  return blob;
}
/// The handle alone, for those who know from elsewhere whose it is. Errors: as above.
template <cuda_driver Driver>
[[nodiscard]] Result<ShareHandle> export_cuda_block(const BasicCudaContext<Driver>& context, Block block) noexcept {
  const Result<ShareBlob> blob = share_cuda_block(context, block, {});
  if (!blob.ok()) return blob.error();
  return blob->handle;
}

/// Another process's block while it is open here; closed once, when this goes. Threads: as a value. The context must outlive it.
template <cuda_driver Driver>
class BasicCudaImport {
 public:
  using context_type = BasicCudaContext<Driver>;
  constexpr BasicCudaImport() noexcept = default;
  BasicCudaImport(BasicCudaImport&& other) noexcept
      : state_(std::exchange(other.state_, nullptr)), base_(std::exchange(other.base_, 0)), whole_(other.whole_),
        block_(std::exchange(other.block_, {})) {}
  BasicCudaImport& operator=(BasicCudaImport other) noexcept {
    std::swap(state_, other.state_);
    std::swap(base_, other.base_);
    std::swap(whole_, other.whole_);
    std::swap(block_, other.block_);
    return *this;
  }
  ~BasicCudaImport() {
    if (state_ != nullptr) state_->insist(cuda_call::IpcCloseMemHandle{}, base_);
  }

  /// Opens a handle, which may come from anywhere: what it says of itself is held against what the driver opens.
  ///
  /// Errors: corrupt (sizes that no handle has, or beyond the allocation), the driver's own: wrong_state in the exporting
  /// process, invalid_argument for what is no handle.
  [[nodiscard]] static Result<BasicCudaImport> open(const context_type& context, const ShareHandle& handle) noexcept {
    Bytes end = 0;
    if (handle.size <= 0 || !checked_add(handle.offset, handle.size, end)) return make_error(Errc::corrupt, "a shared block has no such size");
    auto& state = context.state();
    CUipcMemHandle native{};
    std::memcpy(native.reserved, handle.bytes.data(), sizeof native.reserved);
    CUdeviceptr base = 0;
    if (Error e = state.inside(cuda_call::IpcOpenMemHandle{}, &base, native, static_cast<unsigned>(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)); !e.ok())
      return e;
    BasicCudaImport made;
    made.state_ = &state;
    made.base_ = base;
    CUdeviceptr start = 0;
    std::size_t size = 0;
    if (Error e = state.inside(cuda_call::MemGetAddressRange{}, &start, &size, base); !e.ok()) return e;
    if (static_cast<std::size_t>(end) > size) return make_error(Errc::corrupt, "a shared block reaches beyond its allocation");
    made.whole_ = static_cast<Bytes>(size);
    made.block_ = {detail::cuda_pointer(base) + handle.offset, handle.size};
    return made;
  }
  /// Opens what a blob describes, if the process may: see `check_share`; `generation` is the owner's now.
  ///
  /// Errors: those of `check_share`; corrupt (another kind; an allocation of another size); as above.
  [[nodiscard]] static Result<BasicCudaImport> open(const context_type& context, const ShareBlob& blob, const ShareIdentity& self,
                                                    std::uint64_t generation) noexcept {
    if (Error e = check_share(blob, self, generation); !e.ok()) return e;
    if (blob.kind != ShareKind::cuda_ipc) return make_error(Errc::corrupt, "the shared memory is of another kind");
    Result<BasicCudaImport> made = open(context, blob.handle);
    if (made.ok() && made->whole_ != blob.whole) return make_error(Errc::corrupt, "a shared allocation has another size");
    return made;
  }
  [[nodiscard]] Block block() const noexcept { return block_; }

 private:
  detail::CudaState<Driver>* state_ = nullptr;
  CUdeviceptr base_ = 0;
  Bytes whole_ = 0;  // the allocation, as the driver says
  Block block_;
};

/// The imports of this machine's driver.
using CudaImport = BasicCudaImport<RealDriver>;

}  // namespace holdfast
