// SPDX-License-Identifier: Apache-2.0
// Where the tests of buffers run on CUDA: they are included again with these places.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <utility>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "support/places.hpp"

namespace holdfast::testing {

/// The seed of the delays: `HOLDFAST_SEED`, or 1; meson's test `backend_cuda_seeds` takes several.
inline std::uint64_t place_seed() {
  const char* const given = std::getenv("HOLDFAST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
}

struct CudaPlace {
  using Backend = BasicCudaPoolMemory<DoubleDriver>;
  using Event = DoubleEvent;
  Backend backend() { return pool.memory(); }
  DoublePromise promise() { return std::move(*world.context->make_promise()); }
  bool holds_memory() { return pool.memory().used() != 0; }
  ~CudaPlace() { CHECK(!holds_memory()); }
  CudaWorld world{place_seed()};
  BasicCudaPool<DoubleDriver> pool = std::move(*BasicCudaPool<DoubleDriver>::make(*world.context));
};

}  // namespace holdfast::testing

#undef HOLDFAST_TEST_PLACES
#define HOLDFAST_TEST_PLACES Where<CudaPlace, SharedHold>
