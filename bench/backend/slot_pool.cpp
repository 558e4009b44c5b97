// SPDX-License-Identifier: Apache-2.0
// What a slot of a pool costs, by lock and hygiene, beside a bare free list of indices for one thread and beside malloc.
#include "holdfast/backend/host/slot_pool.hpp"

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <utility>

namespace {

using namespace holdfast;

// The least that can be done: pop an index, push it.
void floor_list(benchmark::State& state) {
  std::uint32_t next[128], first = 0;
  for (std::uint32_t i = 0; i < 128; ++i) next[i] = i + 1;
  alignas(64) static std::byte slots[128][64];
  for (auto _ : state) {
    const std::uint32_t i = first;
    first = next[i];
    benchmark::DoNotOptimize(slots[i]);
    next[i] = first;
    first = i;
    benchmark::DoNotOptimize(first);
  }
}
BENCHMARK(floor_list)->Name("floor/index_list_pair");

void floor_malloc(benchmark::State& state) {
  for (auto _ : state) {
    void* p = std::malloc(4);
    benchmark::DoNotOptimize(p);
    std::free(p);
  }
}
BENCHMARK(floor_malloc)->Name("floor/malloc_pair");
BENCHMARK(floor_malloc)->Name("floor/malloc_pair")->Threads(2)->UseRealTime();

template <class Pool>
void pair(benchmark::State& state) {
  static Pool pool = std::move(*Pool::template make_for<std::int32_t>(SystemMemory{}));
  for (auto _ : state) {
    auto slot = pool.acquire();
    benchmark::DoNotOptimize(slot->block().data);
  }
}
using Free = SlotPool<SystemMemory>;
using FreeNoClock = SlotPool<SystemMemory, CacheLineSlots, FailWhenFull, LockFree, KeepBytes, NoClock>;
using Mutexed = SlotPool<SystemMemory, CacheLineSlots, FailWhenFull, WordLock>;
using Single = SlotPool<SystemMemory, CacheLineSlots, FailWhenFull, NoLock>;
using Poisoned = SlotPool<SystemMemory, CacheLineSlots, FailWhenFull, LockFree, PoisonOnRelease>;
using Packed = SlotPool<SystemMemory, PackedSlots>;
BENCHMARK(pair<Free>)->Name("SlotPool/pair/lock_free");
BENCHMARK(pair<FreeNoClock>)->Name("SlotPool/pair/lock_free/no_clock");
BENCHMARK(pair<Mutexed>)->Name("SlotPool/pair/word_lock");
BENCHMARK(pair<Single>)->Name("SlotPool/pair/no_lock");
BENCHMARK(pair<Poisoned>)->Name("SlotPool/pair/poison");
BENCHMARK(pair<Free>)->Name("SlotPool/pair/lock_free")->Threads(2)->UseRealTime();
BENCHMARK(pair<Packed>)->Name("SlotPool/pair/lock_free/packed")->Threads(2)->UseRealTime();
BENCHMARK(pair<Mutexed>)->Name("SlotPool/pair/word_lock")->Threads(2)->UseRealTime();

}  // namespace
