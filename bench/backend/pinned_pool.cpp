// SPDX-License-Identifier: Apache-2.0
// What a pinned block costs from the pool beside locking and unlocking pages for it each time, and beside malloc.
#include "holdfast/backend/host/pinned_pool.hpp"

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdlib>
#include <utility>

namespace {

using namespace holdfast;

void floor_malloc(benchmark::State& state) {
  for (auto _ : state) {
    void* p = std::malloc(static_cast<std::size_t>(state.range(0)));
    benchmark::DoNotOptimize(p);
    std::free(p);
  }
}
BENCHMARK(floor_malloc)->Name("floor/malloc_pair")->ArgName("bytes")->Arg(64)->Arg(64 << 10)->Arg(1 << 20);

template <class Memory>
void measure(benchmark::State& state, Memory memory) {
  for (auto _ : state) {
    const Result<Block> block = memory.allocate(state.range(0), Alignment(64));
    if (!block.ok()) return state.SkipWithError(block.error().what);
    benchmark::DoNotOptimize(block->data);
    memory.deallocate(*block);
  }
}
void bare(benchmark::State& state) { measure(state, Stack<SystemMemory, Pinned<MemoryLock>>{}); }
BENCHMARK(bare)->Name("Pinned/pair/mlock")->ArgName("bytes")->Arg(64)->Arg(64 << 10)->Arg(1 << 20);

void pool(benchmark::State& state) {
  static PinnedHeap heap = std::move(*PinnedHeap::make());
  measure(state, heap.pool());
}
BENCHMARK(pool)->Name("PinnedPool/pair/mlock")->ArgName("bytes")->Arg(64)->Arg(64 << 10)->Arg(1 << 20);
BENCHMARK(pool)->Name("PinnedPool/pair/mlock")->ArgName("bytes")->Arg(64 << 10)->Threads(2)->UseRealTime();

}  // namespace
