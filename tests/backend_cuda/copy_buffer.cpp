// SPDX-License-Identifier: Apache-2.0
// T-G10, T-R6 and T-R7 between the spaces of a CUDA machine: a pool's memory, pinned memory and the host's.
#include "double/cuda_place.hpp"
#include "holdfast/backend/cuda/host_memory.hpp"

namespace holdfast::testing {

struct CudaSpaces : CudaPlace {
  using Device = Backend;
  using Pinned = BasicCudaHostMemory<DoubleDriver>;
  Device on_device() { return backend(); }
  void drain() { world.cuda.machine.drain(); }
  Pinned pinned{*world.context};
};

}  // namespace holdfast::testing

#define HOLDFAST_TEST_SPACES CudaSpaces
#include "../buffer/copy_buffer.cpp"
