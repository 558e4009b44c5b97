// SPDX-License-Identifier: Apache-2.0
// Where the tests of buffers run on CUDA: they are included again with these places.
#pragma once

#include <utility>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "support/places.hpp"

namespace holdfast::testing {

struct CudaPlace {
  using Backend = BasicCudaPoolMemory<DoubleDriver>;
  using Event = DoubleEvent;
  Backend backend() { return pool.memory(); }
  DoublePromise promise() { return std::move(*world.context->make_promise()); }
  bool holds_memory() { return pool.memory().used() != 0; }
  ~CudaPlace() { CHECK(!holds_memory()); }
  CudaWorld world;
  BasicCudaPool<DoubleDriver> pool = std::move(*BasicCudaPool<DoubleDriver>::make(*world.context));
};

}  // namespace holdfast::testing

#undef HOLDFAST_TEST_PLACES
#define HOLDFAST_TEST_PLACES Where<CudaPlace, SharedHold>
