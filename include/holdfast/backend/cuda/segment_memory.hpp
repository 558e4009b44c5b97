// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "holdfast/backend/cuda/vmm_segment.hpp"
#include "holdfast/concepts/memory_backend.hpp"

namespace holdfast {

/// A segment as a source of large blocks: the lowest granules without memory, so that a pool over it grows in place.
///
/// A handle to a segment, which outlives it and stays where it is. Blocks that adjoin are given back as one.
/// Threads: one at a time (`Locked`). Cost: linear in the granules.
template <cuda_driver Driver>
class BasicCudaSegmentMemory : public detail::CudaCopies<BasicCudaSegmentMemory<Driver>, Driver> {
 public:
  static constexpr MemorySpace space = MemorySpace::device;
  static constexpr bool joins_adjacent = true;

  explicit BasicCudaSegmentMemory(BasicCudaSegment<Driver>& segment) noexcept : segment_(&segment) {}

  /// Gives memory that all streams may use, in whole granules.
  ///
  /// Errors: invalid_argument (negative size), over_budget (the segment has no such run of addresses left; `available` is the
  /// longest), out_of_memory, the driver's own: then everything is as it was.
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    if (size < 0) return detail::cuda_bad_request(size, Errc::invalid_argument, "a negative number of bytes was asked for");
    if (size == 0) return Block{};
    const Block all = segment_->range();
    Bytes longest = 0;
    for (Bytes at = 0, end = 0; at < all.size; at = end + segment_->granule()) {
      for (end = at; end < all.size && !segment_->is_mapped(end);) end += segment_->granule();
      const auto misplaced = detail::cuda_address(all.data + at) % static_cast<CUdeviceptr>(alignment.value());
      at += misplaced == 0 ? 0 : alignment.value() - static_cast<Bytes>(misplaced);
      longest = std::max(longest, end - at);
      if (size > end - at) continue;
      if (Error e = segment_->map(at, size); !e.ok()) return e;
      return Block{all.data + at, size};
    }
    Error e = detail::cuda_bad_request(size, Errc::over_budget, "the segment's addresses are used up");
    e.available = longest;
    return e;
  }
  /// Takes memory back after all work of the context: unmapping waits for nothing that runs; while a stream of the context is
  /// being captured the segment keeps it. A failure is the context's `unreported`. Threads: blocks.
  void deallocate(Block block) noexcept {
    if (block.data == nullptr || !state().drain()) return;
    segment_->unmap(block.data - segment_->range().data, align_up(block.size, segment_->granule()));
  }

  friend bool operator==(const BasicCudaSegmentMemory&, const BasicCudaSegmentMemory&) noexcept = default;
  // For copies.
  [[nodiscard]] detail::CudaState<Driver>& state() const noexcept { return segment_->state(); }

 private:
  BasicCudaSegment<Driver>* segment_;
};

/// The segments of this machine's driver as a source.
using CudaSegmentMemory = BasicCudaSegmentMemory<RealDriver>;
static_assert(memory_backend<CudaSegmentMemory> && copying_backend<CudaSegmentMemory>);

}  // namespace holdfast
