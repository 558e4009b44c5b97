// SPDX-License-Identifier: Apache-2.0
// What an observed event costs beside the least that it could: one atomic addition, one look at the
// clock. Asked of each: below 50 ns.
#include <atomic>
#include <cstddef>
#include <memory>

#include <benchmark/benchmark.h>

#include "holdfast/trace/counters.hpp"
#include "holdfast/trace/recorder.hpp"

namespace {

using namespace holdfast;

/// A recorder's time as of the last tick.
struct CoarseClock : MonotonicClock {
  [[nodiscard]] std::int64_t now() const noexcept { return coarse_now(); }
};

Block some_block(std::size_t i) {
  static std::byte there[4096];
  return {there + i % 4096, 64};
}

void floor_addition(benchmark::State& state) {
  static std::atomic<std::int64_t> sum{0};
  for (auto _ : state) benchmark::DoNotOptimize(sum.fetch_add(64, std::memory_order_relaxed));
}
BENCHMARK(floor_addition)->Name("floor/atomic_addition")->Threads(1)->Threads(2)->UseRealTime();

template <class Clock>
void floor_clock(benchmark::State& state) {
  Clock clock;
  for (auto _ : state) benchmark::DoNotOptimize(clock.now());
}
BENCHMARK(floor_clock<MonotonicClock>)->Name("floor/clock");
BENCHMARK(floor_clock<CoarseClock>)->Name("floor/coarse_clock");

void counters_pair(benchmark::State& state) {
  static Counters counters;
  for (auto _ : state) {
    counters.on_allocate(some_block(0), {});
    counters.on_deallocate(some_block(0));
  }
  state.SetItemsProcessed(2 * state.iterations());
}
BENCHMARK(counters_pair)->Name("Counters/pair")->Threads(1)->Threads(2)->UseRealTime();

template <class Clock>
void recorder_event(benchmark::State& state) {
  using R = BasicRecorder<StdSync, Clock>;
  static auto slots = std::make_unique<typename R::Slot[]>(4096);
  static R recorder(Block{reinterpret_cast<std::byte*>(slots.get()), 4096 * 64});
  for (std::size_t i = 0; auto _ : state) {
    ++i;
    recorder.on_allocate(some_block(i), {"bench", i});
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(recorder_event<MonotonicClock>)
    ->Name("Recorder/event")
    ->Threads(1)
    ->Threads(2)
    ->UseRealTime();
BENCHMARK(recorder_event<CoarseClock>)
    ->Name("Recorder/event_coarse_clock")
    ->Threads(1)
    ->Threads(2)
    ->UseRealTime();

}  // namespace
