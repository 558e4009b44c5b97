// SPDX-License-Identifier: Apache-2.0
// The observers together on a real pool: what threads did is counted, known and recorded, and the
// recording runs again elsewhere.
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/backend/host/host_pool.hpp"
#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/backend/layer/limited.hpp"
#include "holdfast/backend/layer/observed.hpp"
#include "holdfast/backend/stack.hpp"
#include "holdfast/trace/counters.hpp"
#include "holdfast/trace/leak_report.hpp"
#include "holdfast/trace/live_set.hpp"
#include "holdfast/trace/memory_log.hpp"
#include "holdfast/trace/recorder.hpp"
#include "holdfast/trace/replay.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::literals;

namespace {

using Live = LiveSet<SystemMemory>;
using Watched = Stack<HostPool, Limited, Observed<Counters>, Observed<Live>, Observed<Recorder>>;

/// A pool that everybody watches.
struct Run {
  HostHeap heap = std::move(*HostHeap::make());
  MemoryLimit limit{64_MiB};
  Counters counters;
  Live live{SystemMemory{}};
  std::unique_ptr<RecordSlot<StdSync>[]> slots;
  Recorder recorder;

  explicit Run(std::size_t events)
      : slots(std::make_unique<RecordSlot<StdSync>[]>(events)),
        recorder(Block{reinterpret_cast<std::byte*>(slots.get()),
                       static_cast<Bytes>(events * sizeof(RecordSlot<StdSync>))}) {}
  [[nodiscard]] Watched memory() {
    return make_stack<Watched>(heap.pool(), limit, counters, live, recorder);
  }
};

}  // namespace

TEST_CASE("recorded_run: four threads on one pool, then the recording on another") {
  constexpr unsigned threads = 4, rounds = 1500;
  Run run(16384);
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < threads; ++t)
    pool.emplace_back([&run, t] {
      Watched memory = run.memory();
      std::mt19937 random(t);
      std::vector<Block> mine;
      for (unsigned i = 0; i < rounds; ++i) {
        if (mine.size() < 20 && random() % 2 == 0) {
          mine.push_back(*memory.allocate(static_cast<Bytes>(1 + random() % 20'000), Alignment(64),
                                          {"thread", t}));
        } else if (!mine.empty()) {
          std::swap(mine[random() % mine.size()], mine.back());
          memory.deallocate(mine.back());
          mine.pop_back();
        }
      }
      while (mine.size() > 1) memory.deallocate(mine.back()), mine.pop_back();
      if (mine.empty()) mine.push_back(*memory.allocate(100, Alignment(64), {"thread", t}));
      // One block a thread stays.
    });
  for (std::thread& t : pool) t.join();

  const CounterFigures counted = run.counters.figures();
  const LiveFigures known = run.live.figures();
  CHECK(counted.blocks.value == threads);
  CHECK(known.blocks == threads);
  CHECK(known.bytes == counted.bytes.value);
  CHECK(known.faults == std::array<std::uint64_t, 4>{});
  CHECK(run.recorder.lost() == 0);
  CHECK(run.recorder.count() == known.events);
  std::uint32_t owners = 0;
  run.live.visit([&](const LiveBlock& b) { owners |= 1u << b.tag.number; });
  CHECK(owners == 0xF);

  testing::StringSink log;
  REQUIRE(write_memory_log(run.recorder, log).ok());
  const Result<MemoryLog> read = read_memory_log(log.text);
  REQUIRE(read.ok());
  const ReplayReport again = replay(*read, SystemMemory{});
  CHECK(again.error.ok());
  CHECK(again.allocations == counted.blocks.total);
  CHECK(again.allocated == counted.bytes.total);
  CHECK(again.left == counted.bytes.value);
  // A thread's block counts before others hear of it, and the recorder is told last: peaks differ
  // by what was under way.
  CHECK(again.peak_live <= counted.bytes.peak + Bytes{threads} * 20'000);
  CHECK(again.peak_live >= counted.bytes.peak - Bytes{threads} * 20'000);

  testing::StringSink report;
  LeakSummary leaks;
  const auto end = Checkpoint<SystemMemory>::take(run.live);
  REQUIRE(
      write_leaks(*end, GrowthWatch<SystemMemory>{}, {.owners_gone = true}, report, &leaks).ok());
  CHECK(leaks.count(LeakVerdict::leaked) == threads);
  CHECK(report.text.find("tag thread 3") != std::string::npos);
}

TEST_CASE("recorded_run: failures are counted and recorded, and a block of nothing is none") {
  Run run(64);
  Watched memory = run.memory();
  CHECK_FALSE(memory.allocate(65_MiB, Alignment(64)).ok());
  memory.deallocate(*memory.allocate(0, Alignment(64)));
  CHECK(run.counters.figures().failures == 1);
  CHECK(run.live.figures().events == 0);
  CHECK(run.recorder.count() == 1);
  testing::StringSink log;
  REQUIRE(write_memory_log(run.recorder, log).ok());
  CHECK(log.text.find(",failure,0x0,68157440,\"over_budget\",") != std::string::npos);
}
