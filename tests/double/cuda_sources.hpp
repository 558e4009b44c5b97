// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/segment_memory.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"

namespace holdfast::testing {

// Sources of a pool's regions, each in its world: plain memory, virtual memory, and a segment that grows in place.
struct PlainSource : CudaWorld {
  using CudaWorld::CudaWorld;
  using Source = BasicCudaDeviceMemory<DoubleDriver>;
  Source source() { return Source(*context); }
};
struct VirtualSource : CudaWorld {
  using CudaWorld::CudaWorld;
  using Source = BasicCudaVmmMemory<DoubleDriver>;
  Source source() { return vmm.memory(); }
  BasicCudaVmm<DoubleDriver> vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*context));
};
struct GrowingSource : CudaWorld {
  using CudaWorld::CudaWorld;
  using Source = BasicCudaSegmentMemory<DoubleDriver>;
  Source source() { return Source(segment); }
  BasicCudaSegment<DoubleDriver> segment = std::move(*BasicCudaSegment<DoubleDriver>::reserve(*context, Bytes{64} << 20));
};

/// A kernel that writes a block.
inline void write_kernel(CudaWorld& w, const DoubleStreamRef& s, Block block, const char* name) {
  w.cuda.launch(s.native(), name, {writes(block)}, [block] { std::memset(block.data, 1, static_cast<std::size_t>(block.size)); });
}

}  // namespace holdfast::testing
