// SPDX-License-Identifier: Apache-2.0
// The contract of memory backends, for every source of CUDA memory on the double.
#include <memory>
#include <utility>

#include "double/cuda_world.hpp"
#include "holdfast/backend/bfc/stream_pool.hpp"
#include "holdfast/backend/bfc_pool.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/host_memory.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "holdfast/backend/cuda/segment_memory.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"

namespace holdfast::testing {
using namespace holdfast::literals;

/// A source that brings its world along, so that it can be made from nothing.
template <class Memory>
struct OnDouble : Memory {
  struct World : CudaWorld {
    BasicCudaPool<DoubleDriver> pool = std::move(*BasicCudaPool<DoubleDriver>::make(*context));
    BasicCudaVmm<DoubleDriver> vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*context));
    BasicCudaSegment<DoubleDriver> segment = std::move(*BasicCudaSegment<DoubleDriver>::reserve(*context, 64_MiB));
    BfcHeap<BasicCudaSegmentMemory<DoubleDriver>> heap =
        std::move(*BfcHeap<BasicCudaSegmentMemory<DoubleDriver>>::make(BasicCudaSegmentMemory<DoubleDriver>(segment)));
    BfcStreamHeap<BasicCudaDeviceMemory<DoubleDriver>, DoubleEvent> stream_heap =
        std::move(*BfcStreamHeap<BasicCudaDeviceMemory<DoubleDriver>, DoubleEvent>::make(BasicCudaDeviceMemory<DoubleDriver>(*context)));
  };
  OnDouble() : OnDouble(std::make_shared<World>()) {}
  explicit OnDouble(std::shared_ptr<World> w) : Memory(of(*w)), world(std::move(w)) {}
  static Memory of(World& w) {
    if constexpr (std::is_same_v<Memory, BasicCudaPoolMemory<DoubleDriver>>) return w.pool.memory();
    else if constexpr (std::is_same_v<Memory, BasicCudaVmmMemory<DoubleDriver>>) return w.vmm.memory();
    else if constexpr (std::is_same_v<Memory, BasicCudaSegmentMemory<DoubleDriver>>) return Memory(w.segment);
    else if constexpr (std::is_same_v<Memory, BfcPool<BasicCudaSegmentMemory<DoubleDriver>>>) return w.heap.pool();
    else if constexpr (std::is_same_v<Memory, BfcStreamPool<BasicCudaDeviceMemory<DoubleDriver>, DoubleEvent>>) return w.stream_heap.pool();
    else return Memory(*w.context);
  }
  std::shared_ptr<World> world;
};
using ContractPool = OnDouble<BasicCudaPoolMemory<DoubleDriver>>;
using ContractVmm = OnDouble<BasicCudaVmmMemory<DoubleDriver>>;
using ContractSegment = OnDouble<BasicCudaSegmentMemory<DoubleDriver>>;
using ContractBfc = OnDouble<BfcPool<BasicCudaSegmentMemory<DoubleDriver>>>;
using ContractStreams = OnDouble<BfcStreamPool<BasicCudaDeviceMemory<DoubleDriver>, DoubleEvent>>;
using ContractDevice = OnDouble<BasicCudaDeviceMemory<DoubleDriver>>;
using ContractHost = OnDouble<BasicCudaHostMemory<DoubleDriver>>;
using ContractManaged = OnDouble<BasicCudaManagedMemory<DoubleDriver>>;

}  // namespace holdfast::testing

#define MEMORY_BACKENDS                                                                                              \
  holdfast::testing::ContractPool, holdfast::testing::ContractVmm, holdfast::testing::ContractDevice,                 \
      holdfast::testing::ContractHost, holdfast::testing::ContractManaged, holdfast::testing::ContractSegment,        \
      holdfast::testing::ContractBfc, holdfast::testing::ContractStreams
#include "../contract/memory_backend.cpp"
