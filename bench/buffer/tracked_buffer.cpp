// SPDX-License-Identifier: Apache-2.0
// What a tracked buffer costs beside a bare pointer and beside the atomic operations that sharing needs at least.
#include "holdfast/buffer/tracked_buffer.hpp"

#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdlib>
#include <utility>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/buffer/launch.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/hold/local_hold.hpp"
#include "holdfast/hold/no_hold.hpp"
#include "holdfast/hold/striped_hold.hpp"
#include "threads.hpp"

namespace {

using namespace holdfast;

template <class Event, class Hold>
using Buffer = TrackedBuffer<SystemMemory, Event, Hold>;

// What `make_free` and `donate` must do at least.
void pointer_make_free(benchmark::State& state) {
  become_threaded();
  for (auto _ : state) {
    void* p = std::aligned_alloc(64, 4096);
    benchmark::DoNotOptimize(p);
    std::free(p);
  }
}
template <class Event, class Hold>
void make_free(benchmark::State& state) {
  become_threaded();
  for (auto _ : state) {
    auto b = Buffer<Event, Hold>::allocate({}, 4096);
    benchmark::DoNotOptimize(b->size());
  }
}
// A buffer whose memory goes on to the next one, as a step of training does it.
template <class Event, class Hold>
void donate(benchmark::State& state) {
  become_threaded();
  auto b = std::move(*Buffer<Event, Hold>::allocate({}, 4096));
  for (auto _ : state) {
    auto contents = b.take();
    if (!contents.ok()) state.SkipWithError("refused");
    b = std::move(*Buffer<Event, Hold>::adopt(std::move(*contents)));
  }
}

std::atomic<std::uint64_t> shared_count{0};
void atomic_pair(benchmark::State& state) {
  become_threaded();
  for (auto _ : state) {
    for (std::int64_t i = 0; i < state.range(0); ++i) {
      benchmark::DoNotOptimize(shared_count.fetch_add(1, std::memory_order_acq_rel));
      benchmark::DoNotOptimize(shared_count.fetch_sub(1, std::memory_order_acq_rel));
    }
  }
}
template <class Event, class Hold, HoldKind kind>
void hold(benchmark::State& state) {
  become_threaded();
  auto b = std::move(*Buffer<Event, Hold>::allocate({}, 4096));
  for (auto _ : state) {
    auto held = b.hold(kind);
    if (!held.ok()) state.SkipWithError("refused");
    benchmark::DoNotOptimize(held->raw().data());
  }
}
template <class Event, class Hold>
void ready_event(benchmark::State& state) {
  become_threaded();
  auto b = std::move(*Buffer<Event, Hold>::allocate({}, 4096));
  for (auto _ : state) {
    auto ready = b.ready_event();
    benchmark::DoNotOptimize(ready->ready());
  }
}
// The holds of a launch of n arguments, taken and converted.
template <class Event, class Hold>
void launch(benchmark::State& state) {
  become_threaded();
  using B = Buffer<Event, Hold>;
  std::vector<B> buffers;
  std::vector<LaunchArgument<B>> arguments;
  for (std::int64_t i = 0; i < state.range(0); ++i) buffers.push_back(std::move(*B::allocate({}, 64)));
  for (B& b : buffers) arguments.push_back({&b, false, 64});
  for (auto _ : state) {
    auto holds = acquire_arguments<B>(arguments);
    if (!holds.ok()) {
      state.SkipWithError("refused");
      break;
    }
    holds->enqueued(Event{});
  }
}

}  // namespace

BENCHMARK(pointer_make_free)->Name("floor/pointer_make_free");
BENCHMARK(make_free<ImmediateEvent, NoHold>)->Name("TrackedBuffer<NoHold>/make_free/system_memory");
BENCHMARK(make_free<HostEvent, LocalHold>)->Name("TrackedBuffer<LocalHold>/make_free/system_memory");
BENCHMARK(make_free<HostEvent, SharedHold>)->Name("TrackedBuffer/make_free/system_memory");
BENCHMARK(donate<ImmediateEvent, NoHold>)->Name("TrackedBuffer<NoHold>/donate/system_memory");
BENCHMARK(donate<HostEvent, SharedHold>)->Name("TrackedBuffer/donate/system_memory");
BENCHMARK(atomic_pair)->Name("floor/atomic_pairs")->Arg(1)->Arg(8)->Arg(64);
BENCHMARK(hold<ImmediateEvent, NoHold, HoldKind::usage>)->Name("TrackedBuffer<NoHold>/hold_usage/system_memory");
BENCHMARK(hold<HostEvent, LocalHold, HoldKind::usage>)->Name("TrackedBuffer<LocalHold>/hold_usage/system_memory");
BENCHMARK(hold<HostEvent, SharedHold, HoldKind::usage>)->Name("TrackedBuffer/hold_usage/system_memory");
BENCHMARK(hold<HostEvent, StripedHold, HoldKind::usage>)->Name("TrackedBuffer<StripedHold>/hold_usage/system_memory");
BENCHMARK(hold<HostEvent, SharedHold, HoldKind::external>)->Name("TrackedBuffer/hold_external/system_memory");
BENCHMARK(hold<HostEvent, SharedHold, HoldKind::donation>)->Name("TrackedBuffer/hold_donation/system_memory");
BENCHMARK(ready_event<HostEvent, SharedHold>)->Name("TrackedBuffer/ready_event/system_memory");
BENCHMARK(launch<HostEvent, SharedHold>)->Name("TrackedBuffer/launch/system_memory")->Arg(1)->Arg(8)->Arg(64);
