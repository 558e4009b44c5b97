// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "holdfast/backend/cuda/context.hpp"
#include "holdfast/backend/cuda/detail/cuda_copies.hpp"
#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/core/owned.hpp"

namespace holdfast {

/// Host memory that all devices reach: page-locked, so that copies from and to it run beside the host.
///
/// A handle. Threads: any. Cost: a call of the driver, which locks pages; put a pool over it. The context must outlive it.
template <cuda_driver Driver>
class BasicCudaHostMemory {
 public:
  static constexpr MemorySpace space = MemorySpace::host;
  using context_type = BasicCudaContext<Driver>;

  /// No context: to be assigned before use.
  constexpr BasicCudaHostMemory() noexcept = default;
  /// `write_combined`: quick for the host to write and for devices to read, slow for the host to read.
  explicit BasicCudaHostMemory(const context_type& context, bool write_combined = false) noexcept
      : state_(&context.state()),
        flags_(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | (write_combined ? CU_MEMHOSTALLOC_WRITECOMBINED : 0u)) {}

  /// Gives locked memory. Errors: invalid_argument (negative size), unsupported (an alignment above the page's),
  /// out_of_memory ("pinned host memory": the host's, not the device's), the driver's own.
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    if (size < 0) return detail::cuda_bad_request(size, Errc::invalid_argument, "a negative number of bytes was asked for");
    if (size == 0) return Block{};
    void* p = nullptr;
    Error e = state_->inside(cuda_call::MemHostAlloc{}, &p, static_cast<std::size_t>(size), flags_);
    if (!e.ok()) {
      if (e.what == cuda_call::failed<cuda_call::MemHostAlloc>.data() && e.code == Errc::out_of_memory)
        e.what = "cuMemHostAlloc failed: out of pinned host memory";
      e.stage = Stage::allocation;
      e.requested = size;
      return e;
    }
    const Block block{static_cast<std::byte*>(p), size};
    if (detail::cuda_aligned(detail::cuda_address(p), alignment)) return block;
    deallocate(block);
    return detail::cuda_bad_request(size, Errc::unsupported, "the driver's memory is not aligned so far");
  }
  /// Takes memory back: whoever calls has seen the end of all its uses. A failure is the context's `unreported`.
  void deallocate(Block block) noexcept {
    if (block.data != nullptr) state_->insist(cuda_call::MemFreeHost{}, static_cast<void*>(block.data));
  }
  friend bool operator==(const BasicCudaHostMemory& a, const BasicCudaHostMemory& b) noexcept { return a.state_ == b.state_; }

 private:
  detail::CudaState<Driver>* state_ = nullptr;
  unsigned flags_ = 0;
};

/// Memory that the driver moves between host and device as either touches it.
///
/// A handle. Threads: any; the host touches a block only while no kernel may. The context must outlive it.
template <cuda_driver Driver>
class BasicCudaManagedMemory : public detail::CudaCopies<BasicCudaManagedMemory<Driver>, Driver> {
 public:
  static constexpr MemorySpace space = MemorySpace::device;
  static constexpr bool host_accessible = true;
  using context_type = BasicCudaContext<Driver>;

  constexpr BasicCudaManagedMemory() noexcept = default;
  explicit BasicCudaManagedMemory(const context_type& context) noexcept : state_(&context.state()) {}

  /// Gives managed memory. Errors: invalid_argument (negative size), unsupported (the device has none; an alignment that the
  /// driver's block does not have), out_of_memory, the driver's own. Threads: may run continuations.
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    const auto ask = [&](CUdeviceptr* p) noexcept {
      return state_->inside(cuda_call::MemAllocManaged{}, p, static_cast<std::size_t>(size), static_cast<unsigned>(CU_MEM_ATTACH_GLOBAL));
    };
    return detail::cuda_block(*state_, size, alignment, ask, [&](Block block) noexcept { deallocate(block); });
  }
  /// As of device memory.
  void deallocate(Block block) noexcept {
    if (block.data != nullptr) state_->insist(cuda_call::MemFree{}, detail::cuda_address(block.data));
  }
  friend bool operator==(const BasicCudaManagedMemory& a, const BasicCudaManagedMemory& b) noexcept { return a.state_ == b.state_; }
  // For copies.
  [[nodiscard]] detail::CudaState<Driver>& state() const noexcept { return *state_; }

 private:
  detail::CudaState<Driver>* state_ = nullptr;
};

/// Locks host memory that somebody else made, while it lives. Threads: as a value.
template <cuda_driver Driver>
class BasicCudaRegistration {
 public:
  using context_type = BasicCudaContext<Driver>;
  constexpr BasicCudaRegistration() noexcept = default;

  /// Locks it. Errors: invalid_argument (empty), already_exists (a part is locked already), out_of_memory, the driver's own.
  [[nodiscard]] static Result<BasicCudaRegistration> make(const context_type& context, Block block) noexcept {
    if (block.data == nullptr || block.size <= 0) return make_error(Errc::invalid_argument, "there is nothing to register");
    auto& state = context.state();
    const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    Error e = state.inside(cuda_call::MemHostRegister{}, static_cast<void*>(block.data), static_cast<std::size_t>(block.size), flags);
    if (!e.ok()) return e;
    BasicCudaRegistration made;
    made.open_ = Owned<Open>({&state, block});
    return made;
  }
  [[nodiscard]] Block block() const noexcept { return open_->block; }

 private:
  struct Open {
    detail::CudaState<Driver>* state = nullptr;
    Block block;
    void close() noexcept {
      if (state != nullptr) state->insist(cuda_call::MemHostUnregister{}, static_cast<void*>(block.data));
    }
  };
  Owned<Open> open_;
};

/// Host memory of this machine's driver.
using CudaHostMemory = BasicCudaHostMemory<RealDriver>;
using CudaManagedMemory = BasicCudaManagedMemory<RealDriver>;
using CudaRegistration = BasicCudaRegistration<RealDriver>;
static_assert(memory_backend<CudaHostMemory> && copying_backend<CudaManagedMemory>);

}  // namespace holdfast
