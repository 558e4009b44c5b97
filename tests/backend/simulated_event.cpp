// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/simulated/event.hpp"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "holdfast/backend/simulated/race_checked.hpp"
#include "holdfast/event/combine.hpp"
#include "holdfast/event/event_set.hpp"
#include "holdfast/event/promise.hpp"
#include "support/gate.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

struct Counting : Continuation {
  Counting() {
    run = [](Continuation& self) noexcept { static_cast<Counting&>(self).count += 1; };
  }
  int count = 0;
};

SimulatedOptions sole(std::uint64_t seed = 1) {
  SimulatedOptions o;
  o.seed = seed;
  o.sole_thread = true;
  return o;
}

struct World {
  explicit World(std::uint64_t seed = 1) : m(sole(seed)) {}
  SimulatedMachine m;
  SimulatedDevice d = *m.add_device(64_KiB);
  SimulatedStream a = d.make_stream("a"), b = d.make_stream("b");
  SimulatedEvent work(const SimulatedStream& s) const { return *s.launch("work", {}, [] {}); }
};

}  // namespace

TEST_CASE("simulated_event: one that nothing was recorded in is ready and nothing to wait for") {
  World w;
  SimulatedEvent e;
  Counting node;
  CHECK(e.ready());
  CHECK(e.passed());
  CHECK(e.wait().ok());
  CHECK(!e.then(node));
  CHECK(e.wait_on(w.a).ok());
  CHECK(!w.m.pump());
}

TEST_CASE("simulated_event: it is pending until the machine runs; asking long enough runs it, too") {
  World w;
  SimulatedEvent e = w.work(w.a);
  CHECK(e.wait_until(Deadline::now()).code == Errc::would_block);
  int asked = 0;
  while (!e.ready()) ++asked;
  CHECK(asked > 0);
  CHECK(asked <= 256);
  CHECK(e.wait_until(Deadline::now()).ok());
}

TEST_CASE("simulated_event: recording again makes a handle stand for the new place, a copy keeps the old one") {
  World w;
  SimulatedEvent e = *w.a.record(), old = e;
  CHECK(e == old);
  CHECK(old.wait().ok());
  w.work(w.a);
  CHECK(e.record(w.a).ok());
  CHECK(!(e == old));
  CHECK(old.ready());
  CHECK(e.wait_until(Deadline::now()).code == Errc::would_block);
}

TEST_CASE("simulated_event: continuations run once, when somebody waits or pumps, never inside a question") {
  World w;
  SimulatedEvent e = w.work(w.a);
  Counting node, late;
  CHECK(e.then(node));
  while (!e.ready()) {
  }
  CHECK(node.count == 0);
  CHECK(!e.then(late));  // done: run it yourself
  CHECK(e.wait().ok());
  CHECK(node.count == 1);
  CHECK(!w.m.pump());
  CHECK(node.count == 1);
  CHECK(late.count == 0);
}

TEST_CASE("simulated_event: a host promise holds a stream back until it is set") {
  World w;
  auto p = *w.m.make_promise();
  SimulatedEvent e = p.get_event();
  CHECK(e.wait_on(w.a).ok());
  SimulatedEvent after = w.work(w.a);
  w.m.drain();
  CHECK(!after.ready());
  CHECK(says(after.wait(), "deadlock"));
  CHECK(p.set().ok());
  CHECK(p.set().code == Errc::wrong_state);
  CHECK(after.wait().ok());
  CHECK(e.wait().ok());
}

TEST_CASE("simulated_event: a promise of no machine holds a stream back as well, and one dropped unset fails its event") {
  World w;
  SimulatedEvent e;
  {
    auto p = *SimulatedEvent::promise_type::make();
    e = p.get_event();
    CHECK(e.wait_on(w.a).ok());
    w.m.drain();
    CHECK(!e.ready());
    CHECK(!e.passed());
  }
  CHECK(e.ready());
  CHECK(!e.passed());
  CHECK(e.wait().code == Errc::aborted);
  CHECK(w.work(w.a).wait().ok());  // errors of events order, they do not spread
}

TEST_CASE("simulated_event: another machine's event is refused") {
  World w, other;
  CHECK(w.work(w.a).wait_on(other.a).code == Errc::invalid_argument);
}

TEST_CASE("simulated_event: a machine destroyed with work pending fails its events as aborted and runs their nodes") {
  Counting node;
  SimulatedEvent e;
  {
    World w;
    e = w.work(w.a);
    CHECK(e.then(node));
  }
  CHECK(node.count == 1);
}

TEST_CASE("simulated_event: T-E5 first_error, T-E6 run_when_ready, after_all and forward work over it") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    World w(seed);
    SimulatedEvent good = w.work(w.a);
    SimulatedEvent bad = *w.b.launch("bad", {}, [] { return make_error(Errc::internal, "test error"); });
    const std::vector<SimulatedEvent> both{good, bad};
    bool ran = false;
    CHECK(run_when_ready<SimulatedEvent>(both, [&] { ran = true; }).ok());
    SimulatedEvent all = *after_all<SimulatedEvent>(both);
    auto p = *w.m.make_promise();
    SimulatedEvent followed = p.get_event();
    forward(all, std::move(p));
    CHECK(says(followed.wait(), "test error"));  // runs the machine, though neither event is a stream's
    CHECK(ran);
    CHECK(good.ready());
    CHECK(says(first_error<SimulatedEvent>(both), "test error"));
    CHECK(all.wait().code == Errc::internal);
  }
}

TEST_CASE("simulated_event: order reaches the host through events that were joined or forwarded") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    RaceCheckedMachine m(sole(seed));
    RaceCheckedDevice d = *m.add_device(4096);
    std::vector<std::byte> x(8), y(8);
    Block block = *d.allocate(8, Alignment(8));
    const std::vector<RaceCheckedEvent> both{*d.make_stream().launch("one", {writes({x.data(), 8})}, [] {}),
                                             *d.make_stream().launch("two", {writes({y.data(), 8})}, [] {})};
    RaceCheckedEvent all = *after_all<RaceCheckedEvent>(both);
    RaceCheckedStream s = d.make_stream();
    CHECK(all.wait_on(s).ok());
    CHECK(d.copy_in(s, block, 0, x).ok());
    CHECK(all.wait().ok());
    m.host_reads("look", x);
    m.host_reads("look", y);
    m.drain();
    CHECK(m.watch().count() == 0);
  }
}

TEST_CASE("simulated_event: a set of events drops those that are done before it grows") {
  World w;
  EventSet<SimulatedEvent> set;
  for (int i = 0; i < 100; ++i) {
    CHECK(set.add(w.work(w.a)).ok());
    CHECK(w.a.synchronize().ok());
  }
  CHECK(set.size() <= 4);
}

TEST_CASE("simulated_event: a thread that waits is woken by a promise of another thread") {
  SimulatedMachine m;
  SimulatedDevice d = *m.add_device(4096);
  SimulatedStream a = d.make_stream();
  auto bound = *m.make_promise(), alone = *SimulatedEvent::promise_type::make();
  CHECK(bound.get_event().wait_on(a).ok());
  CHECK(alone.get_event().wait_on(a).ok());
  SimulatedEvent e = *a.record();
  Caller waiter([&] { CHECK(e.wait().ok()); });
  CHECK(waiter.blocks());
  CHECK(bound.set().ok());
  CHECK(waiter.blocks());
  CHECK(alone.set().ok());
  CHECK(waiter.returns_soon());
}

TEST_CASE("simulated_event: buffers that a kernel's function owns go back when it has run, seen by the host") {
  RaceCheckedMachine m(sole());
  RaceCheckedDevice d = *m.add_device(4096);
  struct Owner {
    RaceCheckedDevice device;
    Block block;
    Owner(RaceCheckedDevice dev, Block b) : device(dev), block(b) {}
    Owner(Owner&& o) noexcept : device(o.device), block(std::exchange(o.block, Block{})) {}
    ~Owner() { device.deallocate(block); }
    void operator()() noexcept {}
  };
  Block x = *d.allocate(64, Alignment(64));
  RaceCheckedEvent e = *d.make_stream().launch("user", {writes(x)}, Owner(d, x));
  CHECK(d.available() == 4096 - 64);
  CHECK(e.wait().ok());
  CHECK(d.available() == 4096);
  CHECK(m.watch().count() == 0);
}

TEST_CASE("simulated_event: a continuation has seen its event: it may free what the work used") {
  RaceCheckedMachine m(sole());
  RaceCheckedDevice d = *m.add_device(4096);
  struct Freeing : Continuation {
    RaceCheckedDevice device;
    Block block;
  } node;
  node.device = d;
  node.block = *d.allocate(64, Alignment(64));
  node.run = [](Continuation& self) noexcept { static_cast<Freeing&>(self).device.deallocate(static_cast<Freeing&>(self).block); };
  RaceCheckedEvent e = *d.make_stream().launch("user", {writes(node.block)}, [] {});
  CHECK(e.then(node));
  m.drain();
  CHECK(d.available() == 4096);
  CHECK(m.watch().count() == 0);
}
