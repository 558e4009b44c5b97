// SPDX-License-Identifier: Apache-2.0
#include "holdfast/event/event_set.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "holdfast/event/host_event.hpp"
#include "holdfast/event/immediate_event.hpp"

using namespace holdfast;

TEST_CASE("event_set: a ready or failed event orders nothing and is left out") {
  EventSet<HostEvent> set;
  CHECK(set.add(HostEvent()).ok());
  CHECK(set.add(*HostEvent::make_failed(make_error(Errc::internal, "x"))).ok());
  CHECK(set.empty());
}

TEST_CASE("event_set: completed entries make room before it grows") {
  EventSet<HostEvent> set;
  std::vector<HostPromise> promises;
  for (int i = 0; i < 4; ++i) {
    promises.push_back(*HostPromise::make());
    CHECK(set.add(promises.back().get_event()).ok());
  }
  CHECK(set.size() == 4);
  CHECK(promises[1].set().ok());
  CHECK(promises[2].set_error(make_error(Errc::internal, "x")).ok());
  promises.push_back(*HostPromise::make());
  CHECK(set.add(promises.back().get_event()).ok());
  CHECK(set.size() == 3);
  for (int i = 0; i < 1000; ++i) {
    HostPromise p = *HostPromise::make();
    CHECK(set.add(p.get_event()).ok());
    CHECK(p.set().ok());
  }
  CHECK(set.size() <= 4);
  set.trim();
  CHECK(set.size() == 3);
}

TEST_CASE("event_set: the same event added again is one entry, and append_to copies what is still pending") {
  EventSet<HostEvent> set;
  HostPromise p = *HostPromise::make(), q = *HostPromise::make();
  for (int i = 0; i < 10; ++i) CHECK(set.add(p.get_event()).ok());
  CHECK(set.size() == 1);
  CHECK(set.add(q.get_event()).ok());
  EventList<HostEvent> list;
  CHECK(p.set().ok());
  CHECK(set.append_to(list).ok());
  CHECK(list.size() == 1);
  CHECK(list.span()[0] == q.get_event());
}

TEST_CASE("event_list: it keeps order through growth, moves and insertion at the front") {
  EventList<HostEvent> list;
  std::vector<HostEvent> events;
  for (int i = 0; i < 20; ++i) {
    events.push_back(HostPromise::make()->get_event());
    CHECK(list.push_back(HostEvent(events.back())).ok());
  }
  HostEvent front = HostPromise::make()->get_event();
  CHECK(list.push_front(HostEvent(front)).ok());
  EventList<HostEvent> moved = std::move(list);
  CHECK(list.empty());
  CHECK(moved.size() == 21);
  CHECK(moved.span()[0] == front);
  for (std::size_t i = 0; i < 20; ++i) CHECK(moved.span()[i + 1] == events[i]);
  EventList<HostEvent> small;
  CHECK(small.push_back(HostEvent(front)).ok());
  small = std::move(moved);
  CHECK(small.size() == 21);
  small.clear();
  CHECK(small.capacity() == 4);
}

static_assert(sizeof(EventSet<ImmediateEvent>) == 1 && sizeof(EventList<ImmediateEvent>) == 1);

TEST_CASE("event_set: a handle that is given away is taken over only if the event is new") {
  HostPromise p = *HostPromise::make();
  HostEvent given = p.get_event(), again = p.get_event(), ready;
  EventSet<HostEvent> set;
  CHECK(set.add(std::move(given)).ok());
  CHECK(given == HostEvent());
  CHECK(set.add(std::move(again)).ok());
  CHECK(again == p.get_event());
  CHECK(set.add(std::move(ready)).ok());
  CHECK(set.size() == 1);
}
