// SPDX-License-Identifier: Apache-2.0
#include "holdfast/event/sequencing_event.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <vector>

#include "holdfast/event/event_set.hpp"
#include "support/child.hpp"
#include "support/gate.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

// A driver whose streams pass their marks when the test says so.
struct Driver {
  std::uint64_t passed[4] = {};
  std::uint64_t recorded[4] = {};
  int waits = 0;
  bool broken = false;
};
struct Stream {
  struct driver_event {
    Driver* driver;
    int stream;
    std::uint64_t place;
    [[nodiscard]] bool passed() const noexcept { return driver->passed[stream] >= place; }
  };
  Driver* driver = nullptr;
  int number = 0;
  Result<driver_event> record() noexcept {
    if (driver->broken) return make_error(Errc::device_fault, "cannot record");
    return driver_event{driver, number, ++driver->recorded[number]};
  }
  Error wait(const driver_event&) noexcept {
    ++driver->waits;
    return {};
  }
  friend bool operator==(const Stream&, const Stream&) = default;
};
using Event = SequencingEvent<Stream>;
using Mark = RecordedMark<Stream>;
static_assert(notifying_event<Event> && recording_stream<Stream>);

}  // namespace

TEST_CASE("sequencing_event: T-E1 a default mark has sequence 0 and no driver event") {
  const Mark mark;
  CHECK(mark.sequence == 0);
  CHECK(!mark.driver);
}

TEST_CASE("sequencing_event: T-E2 T-E3 recorded with a default mark on the null stream it is complete, at place {null, 0}") {
  Driver driver;
  Event e = *Event::make();
  CHECK(!e.is_defined());
  CHECK(e.set_recorded({}, {}).ok());
  CHECK(e.set_recorded({}, {}).code == Errc::wrong_state);
  CHECK(e.is_defined());
  CHECK(e.is_complete());
  CHECK(e.definition_place().stream == Stream{});
  CHECK(e.definition_place().sequence == 0);
  Stream external{&driver, 1};
  CHECK(e.wait_on(external).ok());
  CHECK(driver.waits == 0);
  CHECK(e.set_completed().ok());
  CHECK(e.wait().ok());
}

TEST_CASE("sequencing_event: T-E4 two events without numbers are neither before nor after each other") {
  Event a = *Event::make(), b = *Event::make();
  CHECK(a.set_recorded({}, {}).ok());
  CHECK(b.set_recorded({}, {}).ok());
  CHECK(!(a < b));
  CHECK(!(a > b));
  CHECK(a <= b);
  CHECK(a >= b);
  CHECK(!(a == b));
}

TEST_CASE("sequencing_event: numbers follow the order of the records, over all streams of a pool, from 1") {
  Driver driver;
  EventPool<Stream> pool;
  Stream s{&driver, 1}, t{&driver, 2};
  Event a = *Event::make(), b = *Event::make();
  CHECK(a.set_recorded(*pool.record(s), s).ok());
  CHECK(b.set_recorded(*pool.record(t), t).ok());
  CHECK(a.definition_place().sequence == 1);
  CHECK(b.definition_place().sequence == 2);
  CHECK(a < b);
  driver.broken = true;
  CHECK(pool.record(s).error().code == Errc::device_fault);
  driver.broken = false;
  CHECK(pool.record(s)->sequence == 3);
}

TEST_CASE("sequencing_event: recorded is enough for a stream to wait, completed is for the host, and no wait is made twice") {
  Driver driver;
  EventPool<Stream> pool;
  Stream s{&driver, 1}, t{&driver, 2}, u{&driver, 3};
  Event e = *Event::make();
  Caller waiter([&] { CHECK(e.wait_on(t).ok()); });
  CHECK(waiter.blocks());
  CHECK(e.set_recorded(*pool.record(s), s).ok());
  CHECK(waiter.returns_soon());
  CHECK(!e.ready());
  CHECK(!e.is_complete());
  CHECK(driver.waits == 1);
  CHECK(e.wait_on(t).ok());
  CHECK(e.wait_on(s).ok());
  CHECK(driver.waits == 1);
  CHECK(e.is_error_or_defined_on(s));
  CHECK(e.is_error_or_defined_on(t));
  CHECK(!e.is_error_or_defined_on(u));
  driver.passed[1] = 1;
  CHECK(e.is_complete());
  CHECK(!e.ready());
  CHECK(e.set_completed().ok());
  CHECK(e.ready());
}

TEST_CASE("sequencing_event: a predetermined error unblocks everybody, orders no stream and is the event's error") {
  Driver driver;
  Stream t{&driver, 2};
  Event e = *Event::make();
  Caller waiter([&] { CHECK(e.wait_on(t).ok()); });
  CHECK(e.set_predetermined_error(make_error(Errc::internal, "never enqueued")).ok());
  CHECK(waiter.returns_soon());
  CHECK(driver.waits == 0);
  CHECK(e.is_complete());
  CHECK(e.is_error_or_defined_on(t));
  CHECK(says(e.wait(), "never enqueued"));
  CHECK(says(e.recorded().wait(), "never enqueued"));
  CHECK(e.definition_place().sequence == 0);
  CHECK(e.set_recorded({}, t).code == Errc::wrong_state);
  CHECK(aborts([] { static_cast<void>(Event::make()->set_predetermined_error(Error{})); }));
}

TEST_CASE("sequencing_event: T-E8 a sync point asked twice is one event; completed points pass, and the oldest kept stands for them") {
  Driver driver;
  EventPool<Stream> pool;
  SyncPoints<Stream> points(pool, Stream{&driver, 1});
  const std::uint64_t p0 = points.next_sync_point();
  CHECK(p0 == 0);
  const Event first = **points.event_for(p0, false);
  CHECK(**points.event_for(p0, false) == first);
  const std::uint64_t p1 = points.next_sync_point();
  CHECK(p1 == p0 + 1);
  CHECK(points.next_sync_point() == p1);
  const Event second = **points.event_for(p1, false);
  CHECK(!(second == first));
  CHECK(points.event_for(p0, true)->has_value());
  driver.passed[1] = 2;
  CHECK(!points.event_for(p0, true)->has_value());
  CHECK(**points.event_for(p0, false) == second);
  const Event padded = **points.event_for(p1 + 3, false);
  CHECK(**points.event_for(p1 + 1, false) == padded);
  CHECK(points.next_sync_point() == p1 + 4);
  driver.broken = true;
  CHECK(points.event_for(p1 + 9, false).error().code == Errc::device_fault);
}

TEST_CASE("event_set: of events of one stream only the last is kept, whatever order they come in; others accumulate until done") {
  Driver driver;
  EventPool<Stream> pool;
  Stream s{&driver, 1}, t{&driver, 2};
  std::vector<Event> on_s;
  for (int i = 0; i < 3; ++i) {
    on_s.push_back(*Event::make());
    CHECK(on_s.back().set_recorded(*pool.record(s), s).ok());
  }
  Event on_t = *Event::make(), unrecorded = *Event::make(), failed = *Event::make();
  CHECK(on_t.set_recorded(*pool.record(t), t).ok());
  CHECK(failed.set_predetermined_error(make_error(Errc::internal, "x")).ok());
  EventSet<Event> set;
  for (const Event& e : {on_s[0], on_s[2], on_s[1], on_t, unrecorded, failed}) CHECK(set.add(e).ok());
  CHECK(set.size() == 3);
  CHECK(set.span()[0] == on_s[2]);
  CHECK(set.span()[1] == on_t);
  CHECK(set.span()[2] == unrecorded);
  CHECK(on_t.set_completed().ok());
  set.trim();
  CHECK(set.size() == 2);
}
