// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "holdfast/backend/cuda/context.hpp"
#include "holdfast/backend/cuda/detail/cuda_copies.hpp"
#include "holdfast/core/share_blob.hpp"

namespace holdfast {

/// A file that stands for memory, to be sent to another process with its blob (`SCM_RIGHTS`); closed when this goes.
///
/// The memory lasts while the file is open anywhere, or somebody has it mapped. Threads: as a value.
class CudaSharedFile {
 public:
  /// Takes over an open file.
  CudaSharedFile(int file, const ShareBlob& blob) noexcept : file_(file), blob_(blob) {}
  CudaSharedFile(CudaSharedFile&& other) noexcept : file_(std::exchange(other.file_, -1)), blob_(other.blob_) {}
  CudaSharedFile& operator=(CudaSharedFile other) noexcept {
    std::swap(file_, other.file_);
    std::swap(blob_, other.blob_);
    return *this;
  }
  ~CudaSharedFile() {
    if (file_ >= 0) ::close(file_);
  }

  [[nodiscard]] int file() const noexcept { return file_; }
  /// Gives the file up to the caller.
  [[nodiscard]] int release() noexcept { return std::exchange(file_, -1); }
  [[nodiscard]] const ShareBlob& blob() const noexcept { return blob_; }

 private:
  int file_;
  ShareBlob blob_;
};

/// Another process's virtual memory while it is mapped here; given back once, when this goes.
///
/// Threads: as a value; its end waits for all work of the context, which must outlive it.
template <cuda_driver Driver>
class BasicCudaFileImport {
 public:
  using context_type = BasicCudaContext<Driver>;
  constexpr BasicCudaFileImport() noexcept = default;
  BasicCudaFileImport(BasicCudaFileImport&& other) noexcept
      : state_(std::exchange(other.state_, nullptr)), memory_(other.memory_), whole_(std::exchange(other.whole_, {})),
        block_(std::exchange(other.block_, {})) {}
  BasicCudaFileImport& operator=(BasicCudaFileImport other) noexcept {
    std::swap(state_, other.state_);
    std::swap(memory_, other.memory_);
    std::swap(whole_, other.whole_);
    std::swap(block_, other.block_);
    return *this;
  }
  ~BasicCudaFileImport() {
    if (state_ == nullptr) return;
    state_->insist(cuda_call::CtxSynchronize{});  // unmapping waits for nothing that runs
    undo(3);
  }

  /// Maps what a file and its blob stand for, if the process may: see `check_share`; `generation` is the owner's now.
  ///
  /// The file stays the caller's and may be closed after. Errors: those of `check_share`; corrupt (another kind, a size of no
  /// whole granules), the driver's own, of a file that stands for nothing or for less than the blob says, too.
  [[nodiscard]] static Result<BasicCudaFileImport> open(const context_type& context, int file, const ShareBlob& blob, const ShareIdentity& self,
                                                        std::uint64_t generation) noexcept {
    if (Error e = check_share(blob, self, generation); !e.ok()) return e;
    if (blob.kind != ShareKind::cuda_file) return make_error(Errc::corrupt, "the shared memory is of another kind");
    auto& state = context.state();
    const CUmemAllocationProp props = detail::cuda_properties(state.device);
    std::size_t granule = 0;
    if (Error e = state.call(cuda_call::MemGetAllocationGranularity{}, &granule, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM); !e.ok()) return e;
    const auto size = static_cast<std::size_t>(blob.whole);
    if (size % granule != 0) return make_error(Errc::corrupt, "a shared allocation has no such size");

    BasicCudaFileImport made;
    void* const native = reinterpret_cast<void*>(static_cast<std::intptr_t>(file));
    if (Error e = state.call(cuda_call::MemImportFromShareableHandle{}, &made.memory_, native, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR); !e.ok())
      return e;
    made.state_ = &state;
    CUdeviceptr p = 0;
    int done = 1;
    Error e = state.call(cuda_call::MemAddressReserve{}, &p, size, std::size_t{0}, CUdeviceptr{0}, 0ull);
    if (e.ok()) {
      made.whole_ = {detail::cuda_pointer(p), blob.whole};
      done = 2;
      e = state.call(cuda_call::MemMap{}, p, size, std::size_t{0}, made.memory_, 0ull);
    }
    if (e.ok()) {
      done = 3;
      const CUmemAccessDesc access = detail::cuda_access(state.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      e = state.call(cuda_call::MemSetAccess{}, p, size, &access, std::size_t{1});
    }
    if (!e.ok()) {
      made.undo(done);
      made.state_ = nullptr;
      return e;
    }
    made.block_ = {made.whole_.data + blob.handle.offset, blob.handle.size};
    return made;
  }
  [[nodiscard]] Block block() const noexcept { return block_; }

 private:
  // Takes back what was done: 1 imported, 2 addresses too, 3 mapped too.
  void undo(int done) noexcept {
    const CUdeviceptr p = detail::cuda_address(whole_.data);
    const auto size = static_cast<std::size_t>(whole_.size);
    if (done >= 3) state_->note(state_->call(cuda_call::MemUnmap{}, p, size));
    state_->note(state_->call(cuda_call::MemRelease{}, memory_));
    if (done >= 2) state_->note(state_->call(cuda_call::MemAddressFree{}, p, size));
  }

  detail::CudaState<Driver>* state_ = nullptr;
  CUmemGenericAllocationHandle memory_ = 0;
  Block whole_, block_;
};

/// The imports of this machine's driver.
using CudaFileImport = BasicCudaFileImport<RealDriver>;

}  // namespace holdfast
