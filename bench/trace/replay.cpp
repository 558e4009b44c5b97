// SPDX-License-Identifier: Apache-2.0
// What a replay adds to the allocations themselves, per event, and how fast a log is read.
#include "holdfast/trace/replay.hpp"

#include <cstddef>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "holdfast/backend/host/system_memory.hpp"

namespace {

using namespace holdfast;

/// A log of 20,000 events over a few hundred live blocks of 64 bytes to 4 KiB.
const std::string& text() {
  static const std::string log = [] {
    std::string out = "op,id,size\n";
    std::mt19937 random(1);
    std::vector<std::pair<int, std::size_t>> live;
    for (int i = 0; i < 20'000; ++i) {
      if (live.size() < 100 || (random() % 2 == 0 && live.size() < 500)) {
        live.emplace_back(i, 64 << random() % 7);
        out += "a," + std::to_string(i) + "," + std::to_string(live.back().second) + "\n";
      } else {
        std::swap(live[random() % live.size()], live.back());
        out += "f," + std::to_string(live.back().first) + "," + std::to_string(live.back().second) +
               "\n";
        live.pop_back();
      }
    }
    return out;
  }();
  return log;
}

void read_log(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(read_memory_log(text())->events.size());
  state.SetItemsProcessed(state.iterations() * 20'000);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text().size()));
}
BENCHMARK(read_log)->Name("MemoryLog/read");

void floor_replay(benchmark::State& state) {
  const MemoryLog log = std::move(*read_memory_log(text()));
  std::vector<void*> blocks(log.block_count, nullptr);
  for (auto _ : state) {
    for (const LogEvent& e : log.events) {
      if (e.op == LogOp::allocate)
        blocks[e.block] = std::aligned_alloc(64, static_cast<std::size_t>(e.size));
      else
        std::free(blocks[e.block]), blocks[e.block] = nullptr;
    }
    for (void*& b : blocks) std::free(b), b = nullptr;
  }
  state.SetItemsProcessed(state.iterations() * 20'000);
}
BENCHMARK(floor_replay)->Name("floor/replay_by_hand");

void replay_log(benchmark::State& state) {
  const MemoryLog log = std::move(*read_memory_log(text()));
  ReplayOptions options;
  options.verify = state.range(0) != 0;
  for (auto _ : state) benchmark::DoNotOptimize(replay(log, SystemMemory{}, options).events);
  state.SetItemsProcessed(state.iterations() * 20'000);
}
BENCHMARK(replay_log)->Name("Replay/system_memory")->ArgName("verify")->Arg(0)->Arg(1);

}  // namespace
