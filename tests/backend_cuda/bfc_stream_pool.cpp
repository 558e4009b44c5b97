// SPDX-License-Identifier: Apache-2.0
// A best-fit pool in the order of CUDA's streams, over plain memory, virtual memory and a segment that grows in place.
#include "holdfast/backend/bfc/stream_pool.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "double/cuda_sources.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "support/stream_pools.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

// A world as the support's checks want one: it keeps its streams.
template <class Of>
struct Streams : Of {
  using Of::Of;
  using Event = DoubleEvent;
  using Stream = DoubleStreamRef;
  Stream stream() {
    owned.push_back(Of::stream());
    return owned.back().ref();
  }
  void kernel(const Stream& s, Block b, const char* name) { write_kernel(*this, s, b, name); }
  auto hold(const Stream& s) { return this->cuda.hold(s.native()); }
  void step() { static_cast<void>(this->cuda.machine.pump()); }
  void drain() { this->cuda.machine.drain(); }
  std::string races() { return this->cuda.races(); }
  std::deque<DoubleStream> owned;
};
using Plain = Streams<PlainSource>;
using Virtual = Streams<VirtualSource>;
using Growing = Streams<GrowingSource>;
#define WORLDS Plain, Virtual, Growing

constexpr StreamMarks both[] = {StreamMarks::each_free, StreamMarks::on_demand};

}  // namespace

TEST_CASE_TEMPLATE("cuda bfc streams: case 06, a block of two streams' frees is waited for on both, what is left on its own, over seeds", W,
                   WORLDS) {
  using Pool = typename StreamHeapOf<W>::Pool;
  static_assert(stream_ordered_backend<Pool> && copying_backend<Pool> && std::is_same_v<typename Pool::event_type, DoubleEvent>);
  for (const StreamMarks marks : both)
    for (const bool from_host : {false, true})
      for (std::uint64_t seed = 1; seed <= 4; ++seed) check_case_06<W>(marks, from_host, seed);
}

TEST_CASE_TEMPLATE("cuda bfc streams: case 06, with one of the two still in use there is no such block", W, WORLDS) {
  check_case_06_refused<W>();
}

TEST_CASE_TEMPLATE("cuda bfc streams: a stream has its own again at once, another waits for just that, nobody once it has passed", W, WORLDS) {
  for (const StreamMarks marks : both) check_waits<W>(marks);
}

TEST_CASE_TEMPLATE("cuda bfc streams: four streams that take and free at random never meet, over seeds; each mistake is found", W, WORLDS) {
  const auto found = [](auto mistaken, StreamMarks marks) {
    using E = decltype(mistaken);
    int n = 0;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      W w(seed);
      w.check_races = std::is_same_v<E, DoubleEvent>;
      n += random_streams<W, E>(w, stream_pool_of(64_KiB, marks), seed, seed % 2 == 0);
    }
    return n;
  };
  for (const StreamMarks marks : both) {
    CHECK(found(DoubleEvent{}, marks) == 0);
    CHECK(found(MistakenEvent<DoubleEvent, Mistake::waits_for_nothing>{}, marks) == 5);
    CHECK(found(MistakenEvent<DoubleEvent, Mistake::seen_too_early>{}, marks) == 5);
    CHECK(found(MistakenEvent<DoubleEvent, Mistake::never_recorded>{}, marks) == 5);
    CHECK(found(MistakenEvent<DoubleEvent, Mistake::comes_after_anyway>{}, marks) == 5);
  }
}
