// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "holdfast/backend/cuda/context.hpp"
#include "holdfast/backend/cuda/detail/cuda_mapping.hpp"
#include "holdfast/backend/cuda/detail/cuda_share.hpp"
#include "holdfast/core/share_blob.hpp"

namespace holdfast {

namespace detail {
// The fabric handle of memory or of a multicast object, as its bytes travel in a blob.
template <cuda_driver Driver>
[[nodiscard]] Error cuda_export_fabric(CudaState<Driver>& state, CudaHandle memory, ShareHandle& out) noexcept {
  CUmemFabricHandle native{};
  static_assert(sizeof native.data == sizeof out.bytes);
  Error e = state.call(cuda_call::MemExportToShareableHandle{}, static_cast<void*>(&native), memory, CU_MEM_HANDLE_TYPE_FABRIC, 0ull);
  std::memcpy(out.bytes.data(), native.data, sizeof native.data);
  return e;
}
[[nodiscard]] inline CUmemFabricHandle cuda_fabric_handle(const ShareBlob& blob) noexcept {
  CUmemFabricHandle native{};
  std::memcpy(native.data, blob.handle.bytes.data(), sizeof native.data);
  return native;
}
// Virtual memory by its handle, which stays its owner's.
template <cuda_driver Driver>
[[nodiscard]] Result<ShareBlob> cuda_share_fabric(CudaState<Driver>& state, CudaHandle memory, Block block, const ShareIdentity& self) noexcept {
  ShareBlob blob{ShareKind::cuda_fabric, self, 0, {}};
  if (Error e = cuda_describe(state, block, blob); !e.ok()) return e;
  if (Error e = cuda_export_fabric(state, memory, blob.handle); !e.ok()) return e;
  return blob;
}
}  // namespace detail

/// Another process's virtual memory while it is mapped here, found by its fabric handle, from any host of the fabric; given
/// back once, when this goes.
///
/// Threads: as a value; its end waits for all work of the context, which must outlive it. Source: backends.md 10.1.
template <cuda_driver Driver>
class BasicCudaFabricImport {
 public:
  using context_type = BasicCudaContext<Driver>;
  constexpr BasicCudaFabricImport() noexcept = default;

  /// Maps what a blob stands for, if the process may: see `check_share`; `generation` is the owner's now, who keeps the memory
  /// until then at least.
  ///
  /// Errors: those of `check_share`; corrupt (another kind, a size of no whole granules), the driver's own: permission_denied,
  /// where the two processes have no IMEX channel in common.
  [[nodiscard]] static Result<BasicCudaFabricImport> open(const context_type& context, const ShareBlob& blob, const ShareIdentity& self,
                                                          std::uint64_t generation) noexcept {
    // Another host's device no process sees.
    if (const Result<bool> seen = detail::cuda_admit(context.state(), blob, ShareKind::cuda_fabric, self, generation); !seen.ok())
      return seen.error();
    CUmemFabricHandle native = detail::cuda_fabric_handle(blob);
    auto mapped = detail::cuda_map_shared(context.state(), &native, CU_MEM_HANDLE_TYPE_FABRIC, blob);
    if (!mapped.ok()) return mapped.error();
    BasicCudaFabricImport made;
    made.open_ = std::move(*mapped);
    return made;
  }
  [[nodiscard]] Block block() const noexcept { return open_->block; }

 private:
  Owned<detail::CudaMapped<Driver>> open_;
};

/// The imports of this machine's driver.
using CudaFabricImport = BasicCudaFabricImport<RealDriver>;

}  // namespace holdfast
