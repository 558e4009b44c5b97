// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "holdfast/backend/cuda/context.hpp"
#include "holdfast/backend/cuda/detail/cuda_share.hpp"
#include "holdfast/core/block.hpp"
#include "holdfast/core/owned.hpp"

namespace holdfast {

/// Describes a block of plain device memory, or a part of one, for another process of this host.
///
/// The exporter keeps the memory until every importer has closed it. Errors: invalid_argument (an empty block; one that
/// reaches beyond its allocation), the driver's own: not_found, or invalid_argument for memory that cannot be named so.
template <cuda_driver Driver>
[[nodiscard]] Result<ShareBlob> share_cuda_block(const BasicCudaContext<Driver>& context, Block block, const ShareIdentity& self) noexcept {
  auto& state = context.state();
  ShareBlob blob{ShareKind::cuda_ipc, self, 0, {}};
  if (Error e = detail::cuda_describe(state, block, blob); !e.ok()) return e;
  CUipcMemHandle native{};
  if (Error e = state.inside(cuda_call::IpcGetMemHandle{}, &native, detail::cuda_address(block.data - blob.handle.offset)); !e.ok()) return e;
  static_assert(sizeof native.reserved == sizeof blob.handle.bytes);
  std::memcpy(blob.handle.bytes.data(), native.reserved, sizeof native.reserved);
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
    made.open_ = Owned<Open>({&state, base, 0, {detail::cuda_pointer(base) + handle.offset, handle.size}});
    CUdeviceptr start = 0;
    std::size_t size = 0;
    if (Error e = state.inside(cuda_call::MemGetAddressRange{}, &start, &size, base); !e.ok()) return e;
    if (static_cast<std::size_t>(end) > size) return make_error(Errc::corrupt, "a shared block reaches beyond its allocation");
    made.open_->whole = static_cast<Bytes>(size);
    return made;
  }
  /// Opens what a blob describes, if the process may: see `check_share`; `generation` is the owner's now.
  ///
  /// Errors: those of `check_share`; corrupt (another kind; an allocation of another size); unsupported (a device that this one
  /// cannot access); as above, and whether the device is one that this process does not see.
  [[nodiscard]] static Result<BasicCudaImport> open(const context_type& context, const ShareBlob& blob, const ShareIdentity& self,
                                                    std::uint64_t generation) noexcept {
    const Result<bool> seen = detail::cuda_admit(context.state(), blob, ShareKind::cuda_ipc, self, generation);
    if (!seen.ok()) return seen.error();
    Result<BasicCudaImport> made = open(context, blob.handle);
    if (!made.ok()) return detail::cuda_unopened(made.error(), *seen);
    if (made->open_->whole != blob.whole) return make_error(Errc::corrupt, "a shared allocation has another size");
    return made;
  }
  [[nodiscard]] Block block() const noexcept { return open_->block; }

 private:
  struct Open {
    detail::CudaState<Driver>* state = nullptr;
    CUdeviceptr base = 0;
    Bytes whole = 0;  // the allocation, as the driver says
    Block block;
    void close() noexcept {
      if (state != nullptr) state->insist(cuda_call::IpcCloseMemHandle{}, base);
    }
  };
  Owned<Open> open_;
};

/// The imports of this machine's driver.
using CudaImport = BasicCudaImport<RealDriver>;

}  // namespace holdfast
