// SPDX-License-Identifier: Apache-2.0
// What an event costs beside the standard's one-shot primitives: set and wait without a conflict, and a hand-over.
#include <benchmark/benchmark.h>

#include <atomic>
#include <future>
#include <latch>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/event/host_event.hpp"
#include "threads.hpp"

namespace {

using namespace holdfast;

void latch_set_wait(benchmark::State& state) {
  become_threaded();
  for (auto _ : state) {
    std::latch latch(1);
    latch.count_down();
    latch.wait();
  }
}
void promise_set_get(benchmark::State& state) {
  become_threaded();
  for (auto _ : state) {
    std::promise<void> promise;
    std::future<void> future = promise.get_future();
    promise.set_value();
    future.get();
  }
}
void inline_set_wait(benchmark::State& state) {
  become_threaded();
  for (auto _ : state) {
    InlineEvent event;
    event.set();
    benchmark::DoNotOptimize(event.wait().code);
  }
}
void event_make_set_wait(benchmark::State& state) {
  become_threaded();
  for (auto _ : state) {
    Result<HostPromise> promise = HostPromise::make();
    const HostEvent event = promise->get_event();
    static_cast<void>(promise->set());
    benchmark::DoNotOptimize(event.wait().code);
  }
}

// The same of events that were made before: what is left when the allocation is not counted.
void event_set_wait(benchmark::State& state) {
  become_threaded();
  constexpr std::size_t ring = 1024;
  std::vector<HostPromise> promises(ring);
  std::vector<HostEvent> events(ring);
  for (std::size_t i = ring; auto _ : state) {
    if (i == ring) {
      state.PauseTiming();
      for (std::size_t k = 0; k < ring; ++k) {
        promises[k] = std::move(*HostPromise::make());
        events[k] = promises[k].get_event();
      }
      i = 0;
      state.ResumeTiming();
    }
    static_cast<void>(promises[i].set());
    benchmark::DoNotOptimize(events[i].wait().code);
    ++i;
  }
}

// Two threads hand a token to and fro; a wait that finds nothing sleeps.
void atomic_hand_over(benchmark::State& state) {
  std::atomic<std::uint32_t> turn{0};
  std::thread other([&] {
    for (std::uint32_t i = 1;; i += 2) {
      turn.wait(i - 1);
      if (turn.load() == ~0u) return;
      turn.store(i + 1);
      turn.notify_one();
    }
  });
  std::uint32_t i = 0;
  for (auto _ : state) {
    turn.store(i + 1);
    turn.notify_one();
    turn.wait(i + 1);
    i += 2;
  }
  turn.store(~0u);
  turn.notify_one();
  other.join();
}
void event_hand_over(benchmark::State& state) {
  constexpr int ring = 1 << 16;
  struct Pair {
    HostPromise promise;
    HostEvent event;
  };
  const auto fill = [](std::vector<Pair>& v) {
    v.clear();
    for (int i = 0; i < ring; ++i) {
      HostPromise p = *HostPromise::make();
      HostEvent e = p.get_event();
      v.push_back({std::move(p), std::move(e)});
    }
  };
  std::vector<Pair> there, back;
  fill(there);
  fill(back);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    for (int i = 0; i < ring; ++i) {
      static_cast<void>(there[static_cast<std::size_t>(i)].event.wait());
      if (stop.load()) return;
      static_cast<void>(back[static_cast<std::size_t>(i)].promise.set());
    }
  });
  std::size_t i = 0;
  for (auto _ : state) {
    static_cast<void>(there[i].promise.set());
    static_cast<void>(back[i].event.wait());
    ++i;
  }
  stop = true;
  if (i < there.size()) static_cast<void>(there[i].promise.set());
  other.join();
}

}  // namespace

BENCHMARK(latch_set_wait)->Name("floor/latch_set_wait");
BENCHMARK(promise_set_get)->Name("floor/promise_set_get");
BENCHMARK(inline_set_wait)->Name("InlineEvent/make_set_wait");
BENCHMARK(event_make_set_wait)->Name("HostEvent/make_set_wait");
BENCHMARK(event_set_wait)->Name("HostEvent/set_wait");
BENCHMARK(atomic_hand_over)->Name("floor/atomic_hand_over")->Iterations(20'000)->UseRealTime();
BENCHMARK(event_hand_over)->Name("HostEvent/hand_over")->Iterations(20'000)->UseRealTime();
