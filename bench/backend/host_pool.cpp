// SPDX-License-Identifier: Apache-2.0
// What a block of the host pool costs beside the C library's; other allocators stand in bench/host_pool_peers.sh.
#include "holdfast/backend/host/host_pool.hpp"

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdlib>
#include <utility>

namespace {

using namespace holdfast;

void floor_pair(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    void* p = std::malloc(size);
    benchmark::DoNotOptimize(p);
    std::free(p);
  }
}
BENCHMARK(floor_pair)->Name("floor/malloc_pair")->ArgName("bytes")->RangeMultiplier(16)->Range(64, 64 << 20);

void pair(benchmark::State& state) {
  static HostHeap heap = std::move(*HostHeap::make());
  HostPool pool = heap.pool();
  const Bytes size = state.range(0);
  for (auto _ : state) {
    Block block = *pool.allocate(size, Alignment(64));
    benchmark::DoNotOptimize(block.data);
    pool.deallocate(block);
  }
}
BENCHMARK(pair)->Name("HostPool/pair")->ArgName("bytes")->RangeMultiplier(16)->Range(64, 64 << 20);
BENCHMARK(pair)->Name("HostPool/pair")->ArgName("bytes")->Arg(64)->Arg(65536)->Arg(1 << 20)->Threads(2)->UseRealTime();

}  // namespace
