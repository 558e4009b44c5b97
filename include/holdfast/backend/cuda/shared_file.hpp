// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "holdfast/backend/cuda/context.hpp"
#include "holdfast/backend/cuda/detail/cuda_mapping.hpp"
#include "holdfast/backend/cuda/detail/cuda_share.hpp"
#include "holdfast/backend/host/owned_file.hpp"
#include "holdfast/core/share_blob.hpp"

namespace holdfast {

/// A file that stands for memory, to be sent to another process with its blob (`SCM_RIGHTS`); closed when this goes. -1: the
/// blob alone is enough.
///
/// The memory lasts while the file is open anywhere, or somebody has it mapped. Threads: as a value.
class CudaSharedFile {
 public:
  CudaSharedFile(OwnedFile file, const ShareBlob& blob) noexcept : file_(std::move(file)), blob_(blob) {}

  [[nodiscard]] int file() const noexcept { return file_->number; }
  /// Gives the file up to the caller.
  [[nodiscard]] int release() noexcept { return file_.release().number; }
  [[nodiscard]] const ShareBlob& blob() const noexcept { return blob_; }

 private:
  OwnedFile file_;
  ShareBlob blob_;
};

namespace detail {
// A file for memory or for a multicast object.
template <cuda_driver Driver>
[[nodiscard]] Result<OwnedFile> cuda_export_file(const CudaState<Driver>& state, CudaHandle memory) noexcept {
  int file = -1;
  if (Error e = state.call(cuda_call::MemExportToShareableHandle{}, static_cast<void*>(&file), memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull);
      !e.ok())
    return e;
  return own_file(file);
}
// Virtual memory by its handle, which stays its owner's.
template <cuda_driver Driver>
[[nodiscard]] Result<CudaSharedFile> cuda_share_file(CudaState<Driver>& state, CudaHandle memory, Block block, const ShareIdentity& self) noexcept {
  ShareBlob blob{ShareKind::cuda_file, self, 0, {}};
  if (Error e = cuda_describe(state, block, blob); !e.ok()) return e;
  Result<OwnedFile> file = cuda_export_file(state, memory);
  if (!file.ok()) return file.error();
  return CudaSharedFile(std::move(*file), blob);
}
}  // namespace detail

/// Another process's virtual memory while it is mapped here; given back once, when this goes.
///
/// Threads: as a value; its end waits for all work of the context, which must outlive it.
template <cuda_driver Driver>
class BasicCudaFileImport {
 public:
  using context_type = BasicCudaContext<Driver>;
  constexpr BasicCudaFileImport() noexcept = default;

  /// Maps what a file and its blob stand for, if the process may: see `check_share`; `generation` is the owner's now.
  ///
  /// The file stays the caller's and may be closed after. Errors: those of `check_share`; corrupt (another kind, a size of no
  /// whole granules), unsupported (a device that this one cannot access), the driver's own, of a file that stands for nothing or
  /// for less than the blob says, too.
  [[nodiscard]] static Result<BasicCudaFileImport> open(const context_type& context, int file, const ShareBlob& blob, const ShareIdentity& self,
                                                        std::uint64_t generation) noexcept {
    const Result<bool> seen = detail::cuda_admit(context.state(), blob, ShareKind::cuda_file, self, generation);
    if (!seen.ok()) return seen.error();
    void* const native = reinterpret_cast<void*>(static_cast<std::intptr_t>(file));
    auto mapped = detail::cuda_map_shared(context.state(), native, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, blob);
    if (!mapped.ok()) return detail::cuda_unopened(mapped.error(), *seen);
    BasicCudaFileImport made;
    made.open_ = std::move(*mapped);
    return made;
  }
  [[nodiscard]] Block block() const noexcept { return open_->block; }

 private:
  Owned<detail::CudaMapped<Driver>> open_;
};

/// The imports of this machine's driver.
using CudaFileImport = BasicCudaFileImport<RealDriver>;

}  // namespace holdfast
