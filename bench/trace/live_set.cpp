// SPDX-License-Identifier: Apache-2.0
// What it costs to know every live block, per event, beside the standard's map behind a mutex.
// Asked: below 50 ns without stacks.
#include "holdfast/trace/live_set.hpp"

#include <array>
#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <benchmark/benchmark.h>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/trace/stack_table.hpp"

namespace {

using namespace holdfast;

Block block(std::size_t i) { return {reinterpret_cast<std::byte*>((i + 1) << 8), 256}; }

// A window of live blocks moves on: one allocation and the release of the oldest, at addresses that
// come again.
template <class Add, class Remove>
void slide(benchmark::State& state, Add add, Remove remove) {
  const auto live = static_cast<std::size_t>(state.range(0));
  // Odd strides visit the addresses in an order that no cache foresees.
  const auto address = [live](std::size_t n) { return block(n * 0x9E3779B1u % (2 * live)); };
  for (std::size_t i = 0; i < live; ++i) add(address(i));
  for (std::size_t i = live; auto _ : state) {
    add(address(i));
    remove(address(i - live));
    ++i;
  }
  state.SetItemsProcessed(2 * state.iterations());
}

void floor_map(benchmark::State& state) {
  std::unordered_map<std::byte*, LiveBlock> map;
  std::mutex lock;
  slide(
      state,
      [&](Block b) {
        const std::scoped_lock guard(lock);
        map[b.data] = LiveBlock{b, {}, 1, 0, 0, 0, 0, {}};
      },
      [&](Block b) {
        const std::scoped_lock guard(lock);
        map.erase(b.data);
      });
}
BENCHMARK(floor_map)
    ->Name("floor/unordered_map_pair")
    ->ArgName("live")
    ->Arg(1 << 6)
    ->Arg(1 << 10)
    ->Arg(1 << 14)
    ->Arg(1 << 18);

template <lock Lock, class Clock, Bytes SampleMean>
void live_set_pair(benchmark::State& state) {
  LiveSet<SystemMemory, Lock, Clock> set(SystemMemory{}, {.sample_mean = SampleMean});
  slide(
      state,
      [&](Block b) {
        set.on_allocate(b, {"bench", 0});
      },
      [&](Block b) { set.on_deallocate(b); });
}
BENCHMARK(live_set_pair<WordLock, MonotonicClock, 0>)
    ->Name("LiveSet/pair")
    ->ArgName("live")
    ->Arg(1 << 6)
    ->Arg(1 << 10)
    ->Arg(1 << 14)
    ->Arg(1 << 18);
BENCHMARK(live_set_pair<NoLock, NoClock, 0>)
    ->Name("LiveSet/pair_one_thread")
    ->ArgName("live")
    ->Arg(1 << 10)
    ->Arg(1 << 18);
BENCHMARK(live_set_pair<WordLock, MonotonicClock, 1 << 16>)
    ->Name("LiveSet/pair_sampled")
    ->ArgName("live")
    ->Arg(1 << 10)
    ->Arg(1 << 18);

// Two threads, each with blocks of its own: what the one lock costs when they meet.
void live_set_threads(benchmark::State& state) {
  static LiveSet<SystemMemory> set(SystemMemory{});
  const auto base = (static_cast<std::size_t>(state.thread_index()) + 1) << 20;
  for (std::size_t i = 0; auto _ : state) {
    const Block b = block(base + i % 1024);
    set.on_allocate(b, {"bench", 0});
    set.on_deallocate(b);
    ++i;
  }
  state.SetItemsProcessed(2 * state.iterations());
}
BENCHMARK(live_set_threads)->Name("LiveSet/pair_shared")->Threads(1)->Threads(2)->UseRealTime();

void capture(benchmark::State& state) {
  std::array<const void*, 48> frames;
  for (auto _ : state) benchmark::DoNotOptimize(capture_stack(frames));
}
BENCHMARK(capture)->Name("floor/unwind");

void take_stack(benchmark::State& state) {
  StackTable<SystemMemory> table;
  for (auto _ : state) benchmark::DoNotOptimize(table.take());
}
BENCHMARK(take_stack)->Name("StackTable/take");

}  // namespace
