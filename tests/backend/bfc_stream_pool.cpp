// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/bfc/stream_pool.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/backend/bfc/replay.hpp"
#include "holdfast/backend/simulated/race_checked.hpp"
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

constexpr StreamMarks both[] = {StreamMarks::each_free, StreamMarks::on_demand};

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
