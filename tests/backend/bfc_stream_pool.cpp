// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/bfc/stream_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/backend/bfc/replay.hpp"
#include "holdfast/backend/layer/limited.hpp"
#include "holdfast/backend/layer/locked.hpp"
#include "holdfast/backend/simulated/race_checked.hpp"
#include "holdfast/backend/stack.hpp"
#include "holdfast/trace/memory_log.hpp"
#include "support/bfc_fakes.hpp"
#include "support/fake_streams.hpp"
#include "support/shared.hpp"
#include "support/stream_pools.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

// A simulated device; when it goes, no race may have been.
struct World {
  using Source = RaceCheckedDevice;
  using Event = RaceCheckedEvent;
  using Stream = RaceCheckedStream;
  explicit World(std::uint64_t seed) : machine(options(seed)) {}
  ~World() {
    if (check_races) CHECK(races() == "");
  }
  static SimulatedOptions options(std::uint64_t seed) {
    SimulatedOptions o;
    o.seed = seed;
    o.sole_thread = true;
    return o;
  }
  Source source() { return device; }
  Stream stream() { return device.make_stream("stream"); }
  void kernel(const Stream& s, Block b, const char* name) {
    CHECK(s.launch(name, {writes(b)}, [b] { std::memset(b.data, 1, static_cast<std::size_t>(b.size)); }).ok());
  }
  RaceCheckedMachine::promise_type hold(const Stream& s) {
    auto promise = std::move(*machine.make_promise());
    CHECK(promise.get_event().wait_on(s).ok());
    return promise;
  }
  Event mark(const Stream& s) { return *s.record(); }
  void step() { static_cast<void>(machine.pump()); }
  void drain() { machine.drain(); }
  std::string races() {
    machine.drain();
    StringSink out;
    static_cast<void>(machine.watch().write_races(out));
    return out.text;
  }

  RaceCheckedMachine machine;
  RaceCheckedDevice device = *machine.add_device(1_MiB);
  bool check_races = true;
};

using Pool = StreamHeapOf<World>::Pool;
static_assert(stream_ordered_backend<Pool> && copying_backend<Pool> && tagging_backend<Pool> && inspectable_backend<Pool> &&
              sizeof(Pool) == sizeof(void*));
static_assert(stream_ordered_backend<Stack<Pool, Limited, Locked<>>> && copying_backend<Stack<Pool, Limited, Locked<>>>);

constexpr StreamMarks both[] = {StreamMarks::each_free, StreamMarks::on_demand};

// Addresses and streams that are numbers: which waits are made, and when, is exact.
template <class Growth = ExactGrowth>
struct Fake {
  using Heap = BfcStreamHeap<FakeMemory, FakeEvent, BestFit, ExactSplit, Growth, FailingTables>;
  explicit Fake(const BfcStreamOptions& options = {})
      : heap(std::move(*Heap::make(FakeMemory{&memory}, options, {}, {}, FailingTables(tables)))) {}
  FakeStream stream(int id) { return {log, id}; }
  Block take(int id, Bytes size) {
    const Result<Block> b = pool.allocate(stream(id), size, wide);
    REQUIRE(b.ok());
    return *b;
  }
  void give(int id, Block b) {
    log.work(id);
    pool.deallocate(stream(id), b);
  }
  BfcStreamStatistics cost() { return pool.stream_statistics(); }

  FakeLog memory;
  FakeStreamLog log;
  FailingTables::State tables;
  Heap heap;
  typename Heap::Pool pool = heap.pool();
};
using Waits = std::vector<FakeStreamLog::Wait>;
constexpr int A = 1, B = 2, C = 3, T = 4;

BfcStreamOptions grows_first() {
  BfcStreamOptions o;
  o.grow_before_waiting = true;
  return o;
}

}  // namespace

TEST_CASE("bfc_stream_pool: case 06, a block of two streams' frees is waited for on both, what is left of it on its own, over seeds") {
  for (const StreamMarks marks : both)
    for (const bool from_host : {false, true})
      for (std::uint64_t seed = 1; seed <= 6; ++seed) check_case_06<World>(marks, from_host, seed);
}

TEST_CASE("bfc_stream_pool: case 06, with one of the two still in use there is no such block") { check_case_06_refused<World>(); }

TEST_CASE("bfc_stream_pool: a stream has its own again at once, another waits for just that, nobody once it has passed") {
  for (const StreamMarks marks : both) check_waits<World>(marks);
}

TEST_CASE("bfc_stream_pool: four streams that take and free at random never meet, over seeds; each mistake with events is found") {
  const auto found = [](auto mistaken, StreamMarks marks) {
    using E = decltype(mistaken);
    int n = 0;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      World w(seed);
      w.check_races = std::is_same_v<E, World::Event>;
      BfcStreamOptions o = stream_pool_of(64_KiB, marks);
      n += random_streams<World, E>(w, o, seed, seed % 2 == 0);
    }
    return n;
  };
  for (const StreamMarks marks : both) {
    CHECK(found(World::Event{}, marks) == 0);
    CHECK(found(MistakenEvent<World::Event, Mistake::waits_for_nothing>{}, marks) == 10);
    CHECK(found(MistakenEvent<World::Event, Mistake::seen_too_early>{}, marks) == 10);
    CHECK(found(MistakenEvent<World::Event, Mistake::never_recorded>{}, marks) == 10);
    CHECK(found(MistakenEvent<World::Event, Mistake::comes_after_anyway>{}, marks) == 10);
  }
}

TEST_CASE("bfc_stream_pool: one stream gets what a plain pool gives, to the last address, without a wait or a question") {
  for (const StreamMarks marks : both) {
    FakeLog memory, plain_memory;
    FakeStreamLog log;
    const FakeStream s(log, A);
    BfcStreamOptions options;
    options.pool.limit = 40_MiB;
    options.marks = marks;
    auto heap = std::move(*BfcStreamHeap<FakeMemory, FakeEvent>::make(FakeMemory{&memory}, options));
    auto plain_heap = std::move(*BfcHeap<FakeMemory>::make(FakeMemory{&plain_memory}, options.pool));
    auto pool = heap.pool();
    auto plain = plain_heap.pool();
    std::vector<Block> live;
    std::uint64_t random = 7, frees = 0;
    const auto next = [&](std::uint64_t n) { return (random = random * 6364136223846793005u + 1442695040888963407u, (random >> 33) % n); };
    for (int step = 0; step < 20'000; ++step) {
      if (next(2) == 0 || live.empty()) {
        const auto size = static_cast<Bytes>(next(1u << next(22)) + 1);
        const Alignment alignment(Bytes{1} << next(13));
        const Result<Block> x = pool.allocate(s, size, alignment), y = plain.allocate(size, alignment);
        REQUIRE(x.ok() == y.ok());
        if (x.ok()) CHECK(*x == *y);
        if (x.ok()) live.push_back(*x);
        if (!x.ok()) CHECK(x.error().available == y.error().available);
      } else {
        std::swap(live[next(live.size())], live.back());
        log.work(A);
        pool.deallocate(s, live.back());
        plain.deallocate(live.back());
        live.pop_back();
        ++frees;
      }
      if (next(500) == 0) log.pass(A);
    }
    CHECK(pool.statistics().peak_reserved == plain.statistics().peak_reserved);
    CHECK(pool.statistics().peak_in_use == plain.statistics().peak_in_use);
    CHECK(pool.statistics().allocations == plain.statistics().allocations);
    CHECK(memory.asked == plain_memory.asked);
    CHECK(pool.stream_statistics().waits + pool.stream_statistics().host_waits + pool.stream_statistics().joins == 0);
    CHECK(pool.stream_statistics().marks == (marks == StreamMarks::each_free ? frees : 0));
    for (const Block b : live) pool.deallocate(s, b), plain.deallocate(b);
    CHECK(pool.statistics().largest_free == plain.statistics().largest_free);
  }
}

TEST_CASE("bfc_stream_pool: on recorded traces one stream reserves as much as a plain pool, two that never pass at most 2 % more") {
  const std::string folder = shared_path("data/traces");
  if (folder.empty()) return;
  int traces = 0;
  for (const char* name : {"xla_trinf_16.events.csv", "xla_conv_24.events.csv", "xla_train_12.events.csv", "iopddl_G_1.events.csv",
                           "mindspore_resnet50.events.csv", "mindspore_pangu_2.6B.events.csv.gz"}) {
    const Result<MemoryLog> trace = read_memory_log(read_file(folder + "/" + name));
    REQUIRE(trace.ok());
    for (const StreamMarks marks : both) {
      FakeLog memory, plain_memory;
      FakeStreamLog log;
      const FakeStream s(log, A);
      BfcStreamOptions options;
      options.marks = marks;
      auto heap = std::move(*BfcStreamHeap<FakeMemory, FakeEvent, BestFit, BfcSplit, ExactGrowth>::make(FakeMemory{&memory}, options));
      auto plain_heap = std::move(*BfcHeap<FakeMemory, BestFit, BfcSplit, ExactGrowth>::make(FakeMemory{&plain_memory}));
      auto pool = heap.pool();
      auto plain = plain_heap.pool();
      std::vector<Block> blocks(trace->block_count);
      for (const LogEvent& e : trace->events) {
        if (e.block == MemoryLog::no_block || e.fault != LogFault::none) continue;
        if (e.op == LogOp::allocate) {
          blocks[e.block] = *pool.allocate(s, e.size, wide);
          CHECK(*plain.allocate(e.size, wide) == blocks[e.block]);
        } else if (e.op == LogOp::release) {
          pool.deallocate(s, blocks[e.block]);
          plain.deallocate(blocks[e.block]);
        }
      }
      CHECK(pool.statistics().peak_reserved == plain.statistics().peak_reserved);
      FakeLog second_memory;
      auto second = std::move(*BfcStreamHeap<FakeMemory, FakeEvent, BestFit, BfcSplit, ExactGrowth>::make(FakeMemory{&second_memory}, options));
      auto shared = second.pool();
      for (const LogEvent& e : trace->events) {
        if (e.block == MemoryLog::no_block || e.fault != LogFault::none) continue;
        const FakeStream t(log, e.block % 2 == 0 ? B : C);
        if (e.op == LogOp::allocate) blocks[e.block] = *shared.allocate(t, e.size, wide);
        if (e.op == LogOp::release) shared.deallocate(t, blocks[e.block]);
      }
      CHECK(log.blocked == 0);
      CHECK(shared.statistics().peak_reserved <= plain.statistics().peak_reserved / 50 * 51);
      CHECK(shared.stream_statistics().waits < trace->events.size() / 10);
      ++traces;
    }
  }
  CHECK(traces == 12);
}

TEST_CASE("bfc_stream_pool: waits are exact: for the streams a block was made of, at their frees, once, and what is left over keeps its own") {
  Fake<> f(stream_pool_of(12 * kilo));
  const Block p = f.take(A, 4 * kilo), q = f.take(B, 8 * kilo);
  f.give(A, p);
  f.give(B, q);
  const std::uint64_t at_a = f.log.position[A], at_b = f.log.position[B];
  for (int i = 0; i < 5; ++i) f.log.work(A), f.log.work(B);  // later work is nobody's concern
  const Block r = f.take(C, 10 * kilo);
  CHECK(r.data == p.data);
  CHECK(f.log.waits == Waits{{C, A, at_a}, {C, B, at_b}});
  const Block s = f.take(T, 2 * kilo);
  CHECK(f.log.waits == Waits{{C, A, at_a}, {C, B, at_b}, {T, B, at_b}});
  CHECK(f.cost().waits == 3);
  f.give(T, s);
  const std::uint64_t at_t = f.log.position[T];
  const Block again = f.take(C, 1 * kilo), rest = f.take(C, 1 * kilo);  // of one free: one wait
  CHECK(f.log.waits == Waits{{C, A, at_a}, {C, B, at_b}, {T, B, at_b}, {C, T, at_t}});
  for (const Block b : {r, again, rest}) f.give(C, b);
  CHECK(f.take(C, 12 * kilo).data == p.data);
  CHECK(f.log.waits.size() == 4);
  CHECK(f.log.blocked == 0);
}

TEST_CASE("bfc_stream_pool: a mark made on demand covers what the stream has done since, and serves until more is freed") {
  Fake<> f(stream_pool_of(12 * kilo, StreamMarks::on_demand));
  const Block p = f.take(A, 4 * kilo), q = f.take(A, 4 * kilo), r = f.take(A, 4 * kilo);
  f.give(A, p);
  f.give(A, r);
  f.log.work(A);
  CHECK(f.log.records.empty());
  CHECK(f.pool.snapshot().chunks[2].freed_at == 2);  // the number among the stream's, whichever its slot
  CHECK(f.take(B, 4 * kilo) == p);
  CHECK(f.take(B, 4 * kilo) == r);
  CHECK(f.log.records == std::vector<int>{A});
  CHECK(f.log.waits == Waits{{B, A, 4}});
  f.give(A, q);
  CHECK(f.take(B, 4 * kilo) == q);
  CHECK(f.log.records == std::vector<int>{A, A});
  CHECK(f.cost().waits == 2);
  CHECK(f.cost().marks == 2);
}

TEST_CASE("bfc_stream_pool: what is safe is not tied to a stream's frees beside it once a second stream is known; its own stream joins them") {
  Fake<> f(stream_pool_of(16 * kilo));
  const Block p = f.take(A, 4 * kilo);
  f.give(B, f.take(B, 1 * kilo));  // from now on there are two
  f.give(A, p);
  CHECK(f.take(C, 4 * kilo).data != p.data);
  CHECK(f.log.waits.empty());
  CHECK(f.take(A, 2 * kilo) == Block{p.data, 2 * kilo});
  Fake<> g(stream_pool_of(8 * kilo));
  const Block x = g.take(A, 4 * kilo), y = g.take(B, 4 * kilo);
  g.pool.deallocate(y);  // seen by the host
  g.give(A, x);
  CHECK(g.take(A, 8 * kilo).data == x.data);
  CHECK(g.log.waits.empty());
  CHECK(g.cost().joins == 1);
}

TEST_CASE("bfc_stream_pool: a stream waits for another before the pool grows, or after, as it is told; the host only when it cannot grow") {
  for (const bool grow : {false, true}) {
    BfcStreamOptions options = grows_first();
    options.grow_before_waiting = grow;
    Fake<> f(options);
    const Block p = f.take(A, 2_MiB);
    f.give(A, p);
    CHECK((f.take(B, 2_MiB) == p) == !grow);
    CHECK(f.log.waits.size() == (grow ? 0 : 1));
    CHECK(f.memory.asked.size() == (grow ? 2 : 1));
  }
  Fake<> f;
  const Block p = f.take(A, 2_MiB);
  f.give(A, p);
  CHECK(f.pool.allocate(2_MiB, wide)->data != p.data);
  CHECK(f.log.blocked == 0);
  f.memory.refuse_from = 1;
  CHECK(*f.pool.allocate(2_MiB, wide) == p);
  CHECK(f.cost().host_waits == 1);
  CHECK(f.log.blocked == 1);
}

TEST_CASE("bfc_stream_pool: idle regions go back to the upstream only when the host has seen the end of their use") {
  BfcStreamOptions options = grows_first();
  options.pool.limit = 4_MiB;
  Fake<> f(options);
  const Block p = f.take(A, 2_MiB), q = f.take(B, 2_MiB);
  f.give(A, p);
  f.give(B, q);
  CHECK(f.pool.trim(0) == 0);
  f.log.pass(A);
  CHECK(f.pool.trim(0) == 2_MiB);
  CHECK(f.memory.held() == 2_MiB);
  CHECK(f.log.blocked == 0);
  f.take(A, 3_MiB);  // in no region: B's goes back, the host having waited for it, not A's stream
  CHECK(f.log.blocked == 1);
  CHECK(f.log.waits.empty());
  CHECK(f.memory.held() == 3_MiB);
  for (const StreamMarks marks : both) {  // and so when the pool ends
    Fake<> g(stream_pool_of(4_MiB, marks));
    const Block x = g.take(A, 1_MiB), y = g.take(B, 1_MiB);
    g.give(A, x);
    g.give(B, y);
    { const auto gone = std::move(g.heap); }
    CHECK(g.log.blocked == 2);
    CHECK(g.memory.out.empty());
    CHECK(g.tables.out == 0);
  }
}

TEST_CASE("bfc_stream_pool: of a retired stream nothing is asked any more; one that equals it is another") {
  for (const StreamMarks marks : both) {
    Fake<> f(stream_pool_of(4 * kilo, marks));
    const Block p = f.take(A, 4 * kilo);
    f.give(A, p);
    CHECK(f.pool.retire(f.stream(A)).ok());
    CHECK(f.pool.retire(f.stream(B)).ok());  // never seen
    const std::uint64_t at = f.log.position[A];
    CHECK(f.log.records == std::vector<int>{A});
    f.log.destroyed[A] = true;
    CHECK(f.take(A, 4 * kilo) == p);  // a stream of the same handle waits for it
    CHECK(f.log.waits == Waits{{A, A, at}});
    CHECK(f.log.misuse == 0);
  }
}

TEST_CASE("bfc_stream_pool: what a retired stream waited for does not count for the one that takes its place") {
  for (const StreamMarks marks : both) {
    Fake<> f(stream_pool_of(12 * kilo, marks));
    const Block p = f.take(A, 2 * kilo), q = f.take(A, 4 * kilo), r = f.take(A, 6 * kilo);
    f.give(A, p);
    f.give(A, r);
    CHECK(f.take(T, 6 * kilo) == r);
    CHECK(f.cost().waits == 1);
    CHECK(f.pool.retire(f.stream(T)).ok());
    CHECK(f.take(C, 2 * kilo) == p);
    CHECK(f.cost().waits == 2);
    f.give(A, q);
  }
}

TEST_CASE("bfc_stream_pool: with a mark at each free a stream may be destroyed after it") {
  Fake<> f(stream_pool_of(8 * kilo));
  const Block p = f.take(A, 4 * kilo);
  f.give(A, p);
  f.log.destroyed[A] = true;
  CHECK(f.take(B, 8 * kilo).data == p.data);
  CHECK(f.log.waits == Waits{{B, A, 2}});
  CHECK(f.log.misuse == 0);
}

TEST_CASE("bfc_stream_pool: where a free cannot be marked the host waits; where it cannot wait either, the block stays that stream's") {
  Fake<> f(stream_pool_of(4 * kilo));
  Block p = f.take(A, 4 * kilo);
  f.log.records_until_failure = 1;
  f.give(A, p);
  CHECK(f.log.blocked == 1);
  CHECK(f.take(B, 4 * kilo) == p);
  CHECK(f.log.waits.empty());
  f.log.records_until_failure = 1;
  f.log.streams_fail = true;
  f.give(B, p);
  const Error e = f.pool.allocate(f.stream(A), 4 * kilo, wide).error();
  CHECK(status_kind(e) == StatusKind::resource_exhausted);
  CHECK(!f.pool.allocate(4 * kilo, wide).ok());
  CHECK(f.pool.trim(0) == 0);
  p = f.take(B, 4 * kilo);  // it comes after itself
  f.give(B, p);
  CHECK(f.take(A, 4 * kilo) == p);
  CHECK(f.log.waits == Waits{{A, B, f.log.position[B]}});

  Fake<> g(stream_pool_of(4 * kilo, StreamMarks::on_demand));
  p = g.take(A, 4 * kilo);
  g.give(A, p);
  g.log.records_until_failure = 1;
  g.log.streams_fail = true;
  CHECK(g.pool.retire(g.stream(A)).code == Errc::device_fault);
  g.log.records_fail = true;
  CHECK(g.pool.allocate(g.stream(B), 4 * kilo, wide).error().code == Errc::device_fault);
  g.log.streams_fail = false;
  CHECK(g.take(B, 4 * kilo) == p);
  CHECK(g.log.waits.empty());
  CHECK(g.log.blocked == 1);
}

TEST_CASE("bfc_stream_pool: a wait that fails gives its error where nothing else serves, and changes nothing") {
  for (const bool in_pieces : {false, true}) {
    BfcStreamOptions options = stream_pool_of(4 * kilo);
    options.pool.garbage_collection = false;  // which would have the host wait
    Fake<> f(options);
    const Block p = f.take(A, 2 * kilo), q = f.take(in_pieces ? B : A, 2 * kilo);
    f.give(A, p);
    f.give(in_pieces ? B : A, q);
    for (int n = 0; n < (in_pieces ? 2 : 1); ++n) {
      f.log.waits_left = n;
      CHECK(f.pool.allocate(f.stream(C), 4 * kilo, wide).error().code == Errc::device_fault);
      CHECK(f.pool.statistics().free == 4 * kilo);
      CHECK(f.pool.statistics().in_use == 0);
    }
    f.log.waits_left = -1;
    CHECK(f.take(C, 4 * kilo).data == p.data);
    CHECK(f.cost().waits == (in_pieces ? 2 : 1));
  }
  Fake<> f(stream_pool_of(4 * kilo));  // events that failed: the host cannot tell, streams can still wait
  const Block p = f.take(A, 4 * kilo);
  f.give(A, p);
  f.log.failed = true;
  CHECK(f.pool.allocate(4 * kilo, wide).error().code == Errc::device_fault);
  CHECK(f.pool.trim(0) == 0);
  CHECK(f.take(B, 4 * kilo) == p);
  CHECK(f.log.waits.size() == 1);
}

TEST_CASE("bfc_stream_pool: tables without memory, at each place: nothing is lost, and in the end all is one") {
  for (const StreamMarks marks : both)
    for (std::uint64_t n = 1;; ++n) {
      FakeLog memory;
      FakeStreamLog log;
      FailingTables::State tables{n};
      {
        auto made = Fake<>::Heap::make(FakeMemory{&memory}, stream_pool_of(64_KiB, marks), {}, {}, FailingTables(tables));
        if (made.ok()) {
          auto pool = made->pool();
          std::vector<std::pair<FakeStream, Block>> live;
          std::uint64_t random = 1;
          for (int step = 0; step < 1000; ++step) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            const FakeStream s(log, 1 + static_cast<int>((random >> 33) % 12));
            const Result<Block> b = pool.allocate(s, static_cast<Bytes>(1 + (random >> 40) % 3000), wide);
            if (b.ok()) live.emplace_back(s, *b);
            if (!b.ok() || step % 2 == 0) {
              if (live.empty()) continue;
              std::swap(live[(random >> 20) % live.size()], live.back());
              pool.deallocate(live.back().first, live.back().second);
              live.pop_back();
            }
          }
          for (const auto& [s, b] : live) pool.deallocate(s, b);
          CHECK(pool.statistics().in_use == 0);
          CHECK(pool.stream_statistics().stranded == 0);
          CHECK(pool.allocate(FakeStream(log, 1), 64_KiB, wide).ok());
        } else {
          CHECK(made.error().code == Errc::out_of_memory);
        }
      }
      CHECK(tables.out == 0);
      CHECK(log.alive == 0);
      CHECK(memory.out.empty());
      if (!tables.failed) break;
    }
}

TEST_CASE("bfc_stream_pool: more streams than slots: those without one wait on the host, and slots are used again") {
  Fake<> f(stream_pool_of(400 * kilo));
  std::vector<Block> blocks;
  for (int id = 1; id <= 400; ++id) blocks.push_back(f.take(id, kilo));
  for (int id = 1; id <= 400; ++id) f.give(id, blocks[static_cast<std::size_t>(id) - 1]);
  CHECK(f.log.blocked == 400 - 253);
  CHECK(f.take(1000, 400 * kilo).data == blocks[0].data);
  CHECK(f.cost().waits == 253);
  CHECK(f.cost().stranded == 0);
  Fake<> g(stream_pool_of(4 * kilo));
  for (int id = 1; id <= 1000; ++id) {  // a stream a request
    g.give(id, g.take(id, kilo));
    g.log.pass(id);
  }
  CHECK(g.log.blocked == 0);
  CHECK(g.take(1, 4 * kilo).data != nullptr);
}

TEST_CASE("bfc_stream_pool: an old hole does not make the marks pile up") {
  Fake<> f(stream_pool_of(6 * kilo));
  const Block hole = f.take(A, kilo), fence = f.take(B, kilo);
  f.give(A, hole);
  const std::uint64_t at = f.log.position[A];
  Block last = f.take(A, 2 * kilo);
  for (int i = 0; i < 10'000; ++i) {
    const Block next = f.take(A, 2 * kilo);
    f.give(A, last);
    last = next;
  }
  CHECK(f.log.most_alive <= 16);
  CHECK(f.cost().marks == 10'001);
  CHECK(f.take(B, kilo) == hole);
  CHECK(f.log.waits == Waits{{B, A, at}});  // its mark is still there
  f.give(A, last);
  f.pool.deallocate(fence);
}

TEST_CASE("bfc_stream_pool: against a model of every byte's last free: who takes it comes after that, and waits for no other stream") {
  // A piece of free memory, as of its last free; what is not in any was never used, or freed by the host.
  struct Piece {
    std::byte *begin, *end;
    int source;
    std::uint64_t position;
  };
  for (const StreamMarks marks : both)
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      BfcStreamOptions options = stream_pool_of(256 * kilo, marks);
      options.pool.region = seed % 2 == 0 ? 256 * kilo : 16 * kilo;
      options.grow_before_waiting = seed % 3 == 0;
      Fake<> f(options);
      std::vector<Piece> pieces;
      std::vector<std::pair<int, Block>> live;
      std::map<std::pair<int, int>, std::uint64_t> known;  // a stream comes after another's work so far
      std::uint64_t random = seed;
      const auto next = [&](std::uint64_t n) { return (random = random * 6364136223846793005u + 1442695040888963407u, (random >> 33) % n); };
      f.pool.deallocate(*f.pool.allocate(kilo, wide));  // the host uses it, too: nothing safe is tied to a stream
      int taken = 0, failed = 0;
      for (int step = 0; step < 2000; ++step) {
        const bool host = next(20) == 0;
        const int id = 1 + static_cast<int>(next(5));
        const auto size = static_cast<Bytes>(1 + next(1u << next(16)));
        const std::size_t waits_before = f.log.waits.size();
        const Result<Block> b = host ? f.pool.allocate(size, wide) : f.pool.allocate(f.stream(id), size, wide);
        const auto satisfied = [&](const Piece& p) {
          return f.log.passed[p.source] >= p.position || (!host && (p.source == id || known[{id, p.source}] >= p.position));
        };
        std::vector<Piece> under, rest;
        if (b.ok()) {
          std::byte* const end = b->data + (size + 255) / 256 * 256;
          for (const Piece& p : pieces) {
            if (p.end <= b->data || p.begin >= end) {
              rest.push_back(p);
              continue;
            }
            under.push_back(p);
            if (p.begin < b->data) rest.push_back({p.begin, b->data, p.source, p.position});
            if (p.end > end) rest.push_back({end, p.end, p.source, p.position});
          }
          pieces = rest;
        }
        for (std::size_t i = waits_before; i < f.log.waits.size(); ++i) {
          const FakeStreamLog::Wait& w = f.log.waits[i];
          REQUIRE(w.waiter == id);
          REQUIRE(!host);
          bool needed = !b.ok();
          for (const Piece& p : under) needed = needed || (p.source == w.source && p.position <= w.position);
          CHECK(needed);
        }
        for (std::size_t i = waits_before; i < f.log.waits.size(); ++i) {
          std::uint64_t& to = known[{id, f.log.waits[i].source}];
          to = std::max(to, f.log.waits[i].position);
        }
        for (const Piece& p : under) REQUIRE(satisfied(p));
        if (b.ok()) live.emplace_back(id, *b);
        b.ok() ? ++taken : ++failed;
        while (!live.empty() && (!b.ok() ? live.size() > 5 : next(2) == 0)) {
          std::swap(live[next(live.size())], live.back());
          const auto [by, block] = live.back();
          live.pop_back();
          if (next(10) == 0) {
            f.pool.deallocate(block);
          } else {
            f.give(by, block);
            pieces.push_back({block.data, block.data + (block.size + 255) / 256 * 256, by, f.log.position[by]});
          }
          if (b.ok()) break;
        }
        if (next(30) == 0) f.log.pass(id);
        // What went back to the upstream is nobody's.
        std::erase_if(pieces, [&](const Piece& p) {
          auto region = f.memory.out.upper_bound(reinterpret_cast<std::uintptr_t>(p.begin));
          return region == f.memory.out.begin() ||
                 (--region, region->first + static_cast<std::uint64_t>(region->second) <= reinterpret_cast<std::uintptr_t>(p.begin));
        });
      }
      CHECK(taken > 1000);
      CHECK(f.cost().waits > 10);
      for (const auto& [by, block] : live) f.give(by, block);
    }
}

TEST_CASE("bfc_stream_pool: many holes that others may use do not hide what is safe: nobody waits in a pool that grew, and it grows once") {
  BfcStreamOptions first = grows_first();
  first.grow_before_waiting = true;
  for (const bool host : {false, true}) {
    Fake<> f(host ? grows_first() : first);
    std::vector<Block> holes, fences;
    for (int i = 0; i < 100; ++i) holes.push_back(f.take(A, kilo)), fences.push_back(f.take(A, kilo));
    const Block rest = f.take(A, 2_MiB - 200 * kilo);
    for (const Block hole : holes) f.give(A, hole);
    for (int i = 0; i < 100; ++i) CHECK((host ? f.pool.allocate(kilo, wide) : f.pool.allocate(f.stream(B), kilo, wide)).ok());
    CHECK(f.memory.asked.size() == 2);
    CHECK(f.log.waits.empty());
    CHECK(f.log.blocked == 0);
    f.give(A, rest);
  }
}

TEST_CASE("bfc_stream_pool: what the upstream runs may free here: the slot that it takes for that is not the asker's any more") {
  struct RunningMemory : FakeMemory {
    std::function<void()>* run;
    Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
      if (*run) (*run)();
      return FakeMemory::allocate(size, alignment);
    }
  };
  using Heap = BfcStreamHeap<RunningMemory, FakeEvent, BestFit, ExactSplit, ExactGrowth>;
  FakeLog memory;
  FakeStreamLog log;
  std::function<void()> run;
  auto heap = std::move(*Heap::make(RunningMemory{{&memory}, &run}));
  auto pool = heap.pool();
  std::vector<Block> blocks;
  for (int id = 1; id <= 253; ++id) blocks.push_back(*pool.allocate(FakeStream(log, id), id == 1 ? 1_MiB : kilo, wide));
  for (int id = 2; id <= 253; ++id) pool.deallocate(FakeStream(log, id), blocks[static_cast<std::size_t>(id) - 1]);
  for (Bytes rest = pool.largest_free(); rest != 0; rest = 0) blocks.push_back(*pool.allocate(FakeStream(log, 2), rest, wide));
  run = [&] {
    const FakeStream other(log, 1000);
    log.work(1000);
    pool.deallocate(other, blocks[0]);
    run = nullptr;
  };
  memory.refuse_from = 2;
  CHECK(pool.allocate(FakeStream(log, 1), 1_MiB, wide)->data == blocks[0].data);
  CHECK(log.waits == Waits{{1, 1000, log.position[1000]}});
}

TEST_CASE("bfc_stream_pool: a free that could not be marked is marked when its stream retires, or the stream must live on") {
  for (const StreamMarks marks : both) {
    Fake<> f(stream_pool_of(4 * kilo, marks));
    const Block p = f.take(A, 4 * kilo);
    f.log.records_fail = f.log.streams_fail = true;
    f.give(A, p);
    CHECK(f.pool.retire(f.stream(A)).code == Errc::device_fault);
    f.log.records_fail = false;
    CHECK(f.pool.retire(f.stream(A)).ok());
    f.log.destroyed[A] = true;
    CHECK(f.take(B, 4 * kilo) == p);
    CHECK(f.log.waits.size() == 1);
    CHECK(f.log.misuse == 0);
  }
}
