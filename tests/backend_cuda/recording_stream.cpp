// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/recording_stream.hpp"

#include <doctest/doctest.h>

#include <utility>

#include "double/cuda_world.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
using Stream = BasicCudaRecordingStream<DoubleDriver>;
using Event = SequencingEvent<Stream>;
}  // namespace

TEST_CASE("cuda recording stream: T-E2 T-E3 recorded with a default mark on the null stream it is complete, at place {null, 0}") {
  CudaWorld w;
  const DoubleStream external = w.stream();
  w.work(external);
  Event e = *Event::make();
  CHECK(e.set_recorded({}, {}).ok());
  Event::Place place{external.ref(), 0xdeadbeef};
  place = e.definition_place();
  CHECK(place.stream.stream().native() == nullptr);
  CHECK(place.sequence == 0);
  CHECK(e.is_complete());
  const auto before = w.cuda.calls();
  Stream s(external);
  CHECK(e.wait_on(s).ok());
  CHECK(w.cuda.calls() == before);
  CHECK(e.is_error_or_defined_on(s));
  CHECK(Stream().record().error().code == Errc::wrong_state);
}

TEST_CASE("cuda recording stream: T-E4 two events without numbers are neither before nor after each other; with numbers one is") {
  CudaWorld w;
  const DoubleStream a = w.stream(), b = w.stream();
  Event x = *Event::make(), y = *Event::make();
  CHECK(x.set_recorded({}, {}).ok());
  CHECK(y.set_recorded({}, {}).ok());
  CHECK(!(x < y));
  CHECK(!(x > y));
  CHECK(x <= y);
  CHECK(x >= y);
  EventPool<Stream> pool;
  Stream on_a(a), on_b(b);
  Event first = *Event::make(), second = *Event::make();
  CHECK(first.set_recorded(*pool.record(on_a), on_a).ok());
  CHECK(second.set_recorded(*pool.record(on_b), on_b).ok());
  CHECK(first < second);
  CHECK(!(first >= second));
}

TEST_CASE("cuda recording stream: recorded is enough for a stream to wait, once; the host waits for a mark without a stream") {
  CudaWorld w;
  const DoubleStream a = w.stream(), b = w.stream();
  EventPool<Stream> pool;
  Stream on_a(a), on_b(b);
  w.work(a);
  Event e = *Event::make();
  CHECK(e.set_recorded(*pool.record(on_a), on_a).ok());
  CHECK(!e.is_complete());
  for (int i = 0; i < 2; ++i) CHECK(e.wait_on(on_b).ok());
  CHECK(w.cuda.count("cuStreamWaitEvent") == 1);
  CHECK(e.is_error_or_defined_on(on_b));
  CHECK(!e.is_complete());
  Stream null;
  CHECK(e.wait_on(null).ok());
  CHECK(e.is_complete());
}

TEST_CASE("cuda recording stream: T-E8 a sync point asked twice is one event; when a later one has passed it is past, over seeds") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CudaWorld w(seed);
    const DoubleStream s = w.stream();
    EventPool<Stream> pool;
    SyncPoints<Stream> points(pool, s.ref());
    auto finish = w.cuda.hold(s.native());
    w.work(s);
    const std::uint64_t p0 = points.next_sync_point();
    const Event first = **points.event_for(p0, false);
    CHECK(**points.event_for(p0, false) == first);
    w.work(s);
    const std::uint64_t p1 = points.next_sync_point();
    CHECK(p1 != p0);
    const Event second = **points.event_for(p1, false);
    CHECK(!(second == first));
    w.cuda.machine.drain();
    CHECK(points.event_for(p0, true)->has_value());
    CHECK(**points.event_for(p0, false) == first);
    CHECK(finish.set().ok());
    w.cuda.machine.drain();
    CHECK(!points.event_for(p0, true)->has_value());
    CHECK(**points.event_for(p0, false) == second);
    CHECK(w.cuda.count("cuEventRecord") == 2);
  }
}

TEST_CASE("cuda recording stream: a record that the driver refuses is its error, and no number is lost") {
  CudaWorld w;
  const DoubleStream s = w.stream();
  EventPool<Stream> pool;
  Stream on(s);
  w.cuda.fail_at(1, CUDA_ERROR_OUT_OF_MEMORY);
  const Error e = pool.record(on).error();
  CHECK(e.native == CUDA_ERROR_OUT_OF_MEMORY);
  w.cuda.fail_at(0, CUDA_SUCCESS);
  CHECK(pool.record(on)->sequence == 1);
}
