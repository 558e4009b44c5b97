// SPDX-License-Identifier: Apache-2.0
// What one usage hold costs: taken and converted, with a ready and with a pending event, alone and with two threads.
#include <benchmark/benchmark.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/hold/striped_hold.hpp"
#include "threads.hpp"

namespace {

using namespace holdfast;

// The plain design: a mutex, three counters, a condition variable, the usage events in a vector. Same rules, same refusals.
class MutexHold {
 public:
  Error acquire(HoldKind kind) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return counts_[2] == 0; });
    if (gone_) return make_error(Errc::deleted, "Buffer has been deleted or donated.");
    if (kind == HoldKind::donation) {
      if (counts_[1] != 0) return make_error(Errc::held, "Donation requested for buffer with external reference");
      ++counts_[2];
      changed_.wait(lock, [&] { return counts_[0] == 0; });
      return {};
    }
    ++counts_[static_cast<int>(kind)];
    return {};
  }
  void convert(const HostEvent& event) {
    {
      const std::lock_guard lock(mutex_);
      if (!event.ready() && (events_.empty() || !(events_.back() == event))) events_.push_back(event);
      --counts_[0];
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int counts_[3] = {};
  bool gone_ = false;
  std::vector<HostEvent> events_;
};

std::atomic<std::uint64_t> shared_count{0};
void atomic_pair(benchmark::State& state) {
  become_threaded();
  for (auto _ : state) {
    benchmark::DoNotOptimize(shared_count.fetch_add(1, std::memory_order_acq_rel));
    benchmark::DoNotOptimize(shared_count.fetch_sub(1, std::memory_order_acq_rel));
  }
}

MutexHold mutex_hold;
void mutex_acquire_convert(benchmark::State& state, bool pending) {
  become_threaded();
  static HostPromise never_set = *HostPromise::make();
  const HostEvent event = pending ? never_set.get_event() : HostEvent();
  for (auto _ : state) {
    if (!mutex_hold.acquire(HoldKind::usage).ok()) state.SkipWithError("refused");
    mutex_hold.convert(event);
  }
}

// The same on the policy itself, beside the usage events that it guards.
struct HeldEvents {
  SharedHold hold;
  EventSet<HostEvent> usage;
};
HeldEvents shared_hold;
void shared_acquire_convert(benchmark::State& state, bool pending) {
  become_threaded();
  static HostPromise never_set = *HostPromise::make();
  const HostEvent event = pending ? never_set.get_event() : HostEvent();
  for (auto _ : state) {
    if (!shared_hold.hold.acquire(HoldKind::usage, Deadline::never()).ok()) state.SkipWithError("refused");
    if (event.ready()) shared_hold.hold.drop(HoldKind::usage);
    else shared_hold.hold.convert([&]() noexcept { return shared_hold.usage.add(event).ok(); });
  }
}

// And through the whole of a tracked buffer, as an engine does it.
using Buffer = TrackedBuffer<SystemMemory, HostEvent, SharedHold>;
Buffer& one_buffer() {
  static Buffer buffer = std::move(*Buffer::allocate({}, 64));
  return buffer;
}
void buffer_hold_convert(benchmark::State& state, bool pending) {
  become_threaded();
  static HostPromise never_set = *HostPromise::make();
  const HostEvent event = pending ? never_set.get_event() : HostEvent();
  Buffer& buffer = one_buffer();
  for (auto _ : state) {
    auto hold = buffer.hold(HoldKind::usage);
    if (!hold.ok()) {
      state.SkipWithError("refused");
      break;
    }
    hold->convert(event);
  }
}

// Weights that every thread reads: the same through stripes.
StripedHold striped_hold;
void striped_acquire_convert(benchmark::State& state) {
  become_threaded();
  for (auto _ : state) {
    if (!striped_hold.acquire(HoldKind::usage, Deadline::never()).ok()) state.SkipWithError("refused");
    striped_hold.drop(HoldKind::usage);
  }
}

void register_all() {
  for (const int threads : {1, 2}) {
    const auto with_threads = [threads](benchmark::internal::Benchmark* b) {
      if (threads > 1) b->Threads(threads);
    };
    with_threads(benchmark::RegisterBenchmark("floor/atomic_pair", atomic_pair));
    with_threads(benchmark::RegisterBenchmark("MutexHold/acquire_convert_ready", mutex_acquire_convert, false));
    with_threads(benchmark::RegisterBenchmark("SharedHold/acquire_convert_ready", shared_acquire_convert, false));
    with_threads(benchmark::RegisterBenchmark("StripedHold/acquire_convert_ready", striped_acquire_convert));
    with_threads(benchmark::RegisterBenchmark("TrackedBuffer/hold_convert_ready/system_memory", buffer_hold_convert, false));
    with_threads(benchmark::RegisterBenchmark("TrackedBuffer/hold_convert_pending/system_memory", buffer_hold_convert, true));
    with_threads(benchmark::RegisterBenchmark("MutexHold/acquire_convert_pending", mutex_acquire_convert, true));
    with_threads(benchmark::RegisterBenchmark("SharedHold/acquire_convert_pending", shared_acquire_convert, true));
  }
}

[[maybe_unused]] const bool registered = (register_all(), true);

}  // namespace
