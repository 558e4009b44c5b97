// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/heap_replay.hpp"

#include <initializer_list>
#include <vector>

#include <doctest/doctest.h>

#include "support/allocation_tables.hpp"

using namespace holdfast;
using holdfast::testing::Tables;
using Kind = HeapEvent::Kind;

namespace {

/// The running sums of a trace.
std::vector<Bytes> sums(const AllocationTable& t, std::size_t trace = 0) {
  const LogicalBufferIndex index(t);
  HeapReplay replay(t, index);
  std::vector<Bytes> out;
  for (const HeapEvent& e : t.events_of(t.traces[trace])) {
    REQUIRE(replay.apply(e).ok());
    out.push_back(replay.size());
  }
  return out;
}

}  // namespace

TEST_CASE("heap_replay: a shared buffer's memory lives until the last of its sharers goes (R.14)") {
  Tables t;
  t.temp(0, 64, {{1, 64}, {2, 64}})
      .trace({{Kind::alloc, 1}, {Kind::share_with, 2, 1}, {Kind::free, 1}, {Kind::free, 2}});
  CHECK(sums(t.table) == std::vector<Bytes>{64, 64, 64, 0});
  CHECK(check_allocations(t.table).ok());
  const LogicalBufferIndex index(t.table);
  const Result<HeapPeak> peak = HeapReplay(t.table, index).run(t.table.traces[0]);
  REQUIRE(peak.ok());
  CHECK(peak->size == 64);
  CHECK(peak->event == 0);  // the earliest maximum
}

TEST_CASE("heap_replay: a sharer whose root has died brings its memory back (R.14)") {
  Tables t;
  t.temp(0, 64, {{1, 64}, {2, 64}})
      .trace({{Kind::alloc, 1}, {Kind::free, 1}, {Kind::share_with, 2, 1}, {Kind::free, 2}});
  CHECK(sums(t.table) == std::vector<Bytes>{64, 0, 64, 0});
}

TEST_CASE("heap_replay: sharing with a sharer is sharing with the root") {
  Tables t;
  t.temp(0, 64, {{1, 64}, {2, 64}, {3, 64}})
      .trace({{Kind::alloc, 1},
              {Kind::share_with, 2, 1},
              {Kind::share_with, 3, 2},
              {Kind::free, 1},
              {Kind::free, 2},
              {Kind::free, 3}});
  CHECK(sums(t.table) == std::vector<Bytes>{64, 64, 64, 64, 64, 0});
}

TEST_CASE(
    "heap_replay: freeing what does not live, allocating twice and unknown buffers are errors") {
  const auto fails = [](std::initializer_list<HeapEvent> events) {
    Tables t;
    t.temp(0, 64, {{1, 64}}).trace(events);
    const Error e = check_allocations(t.table);
    CHECK(status_kind(e) == StatusKind::invalid_argument);
  };
  fails({{Kind::free, 1}});
  fails({{Kind::alloc, 1}, {Kind::free, 1}, {Kind::free, 1}});
  fails({{Kind::alloc, 1}, {Kind::alloc, 1}});
  fails({{Kind::alloc, 9}});
  fails({{Kind::share_with, 1, 9}});
  fails({{Kind::alloc, 1}});  // never freed
}

TEST_CASE("heap_replay: the viewer adds the picked heap's peak to what lives throughout (R.13)") {
  Tables t;
  t.parameter(0, 1024, {{1, 1024}})
      .live_out(1, 1024, {{3, 1024}})
      .temp(2, 1024, {{2, 1024}})
      .trace({{Kind::alloc, 2}, {Kind::free, 2}});
  CHECK(check_allocations(t.table).ok());
  const Result<ViewerPeak> v = viewer_peak(t.table);
  REQUIRE(v.ok());
  CHECK(v->heap == 1024);
  CHECK(v->indefinite == 2048);
  CHECK(v->heap + v->indefinite == 3072);
}

TEST_CASE("heap_replay: a trace about two allocations is refused, one each is right (R.15)") {
  Tables both;
  both.temp(0, 64, {{1, 64}})
      .temp(1, 32, {{2, 32}}, 1)
      .trace({{Kind::alloc, 1}, {Kind::alloc, 2}, {Kind::free, 1}, {Kind::free, 2}});
  CHECK(check_allocations(both.table).code == Errc::corrupt);
  Tables apart;
  apart.temp(0, 64, {{1, 64}})
      .temp(1, 32, {{2, 32}}, 1)
      .trace({{Kind::alloc, 1}, {Kind::free, 1}})
      .trace({{Kind::alloc, 2}, {Kind::free, 2}});
  CHECK(check_allocations(apart.table).ok());
  CHECK(viewer_peak(apart.table, 0)->heap == 64);
  CHECK(viewer_peak(apart.table, 1)->heap == 32);
  CHECK(viewer_peak(apart.table, 1)->indefinite == 0);
}

TEST_CASE(
    "heap_replay: a buffer in two allocations, and one beyond its allocation's end, are refused "
    "(R.16)") {
  Tables twice;
  twice.temp(0, 64, {{1, 64}}).live_out(1, 64, {});
  twice.table.allocations[1].assigned = {0, 1};
  CHECK(check_allocations(twice.table).code == Errc::corrupt);
  Tables beyond;
  beyond.temp(0, 63, {{1, 64}});
  CHECK(check_allocations(beyond.table).code == Errc::corrupt);
  Tables wraps;
  wraps.temp(0, 64, {{1, 64}});
  wraps.table.assigned[0].offset = max_bytes;
  CHECK(check_allocations(wraps.table).code == Errc::corrupt);
  Tables misplaced;
  misplaced.temp(0, 64, {{1, 64}});
  misplaced.table.allocations[0].index = 4;
  CHECK(check_allocations(misplaced.table).code == Errc::corrupt);
  Tables same_id;
  same_id.temp(0, 64, {{1, 64}, {1, 64}});
  CHECK(check_allocations(same_id.table).code == Errc::corrupt);
}

TEST_CASE("heap_replay: sizes that add up beyond 64 bits are an error, not a wrapped sum") {
  Tables t;
  t.temp(0, max_bytes, {{1, max_bytes}, {2, max_bytes}})
      .trace({{Kind::alloc, 1}, {Kind::alloc, 2}, {Kind::free, 1}, {Kind::free, 2}});
  CHECK(check_allocations(t.table).code == Errc::over_budget);
}
