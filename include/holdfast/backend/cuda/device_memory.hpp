// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "holdfast/backend/cuda/context.hpp"
#include "holdfast/backend/cuda/detail/cuda_copies.hpp"
#include "holdfast/concepts/memory_backend.hpp"

namespace holdfast {

/// Plain memory of a device: each request is a call of the driver, which may stop all streams. For a few large blocks.
///
/// A handle. Blocks are aligned to 256 bytes or what the driver gives. Threads: any. The context must outlive it.
template <cuda_driver Driver>
class BasicCudaDeviceMemory : public detail::CudaCopies<BasicCudaDeviceMemory<Driver>, Driver> {
 public:
  static constexpr MemorySpace space = MemorySpace::device;
  using context_type = BasicCudaContext<Driver>;

  /// No device: to be assigned before use.
  constexpr BasicCudaDeviceMemory() noexcept = default;
  explicit BasicCudaDeviceMemory(const context_type& context) noexcept : state_(&context.state()) {}

  /// Gives memory that the host's later work on all streams may use. Errors: invalid_argument (negative size), unsupported (an
  /// alignment that the driver's block does not have), out_of_memory, the driver's own. Threads: may run continuations.
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    const auto ask = [&](CUdeviceptr* p) noexcept { return state_->inside(cuda_call::MemAlloc{}, p, static_cast<std::size_t>(size)); };
    return detail::cuda_block(*state_, size, alignment, ask, [&](Block block) noexcept { deallocate(block); });
  }
  /// Takes memory back at once: whoever calls has seen the end of all its uses. A failure is the context's `unreported`.
  void deallocate(Block block) noexcept {
    if (block.data != nullptr) state_->insist(cuda_call::MemFree{}, detail::cuda_address(block.data));
  }

  friend bool operator==(const BasicCudaDeviceMemory& a, const BasicCudaDeviceMemory& b) noexcept { return a.state_ == b.state_; }
  // For copies.
  [[nodiscard]] detail::CudaState<Driver>& state() const noexcept { return *state_; }

 private:
  detail::CudaState<Driver>* state_ = nullptr;
};

/// Plain memory of this machine's driver.
using CudaDeviceMemory = BasicCudaDeviceMemory<RealDriver>;
static_assert(memory_backend<CudaDeviceMemory> && copying_backend<CudaDeviceMemory>);

}  // namespace holdfast
