// SPDX-License-Identifier: Apache-2.0
#include "holdfast/event/host_event.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/gate.hpp"
#include "support/shared.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

struct Counting : Continuation {
  explicit Counting(std::atomic<int>& n) : count(&n) {
    run = [](Continuation& self) noexcept { static_cast<Counting&>(self).count->fetch_add(1); };
  }
  std::atomic<int>* count;
};

struct Ordered : Continuation {
  Ordered(std::string& o, char c) : out(&o), name(c) {
    run = [](Continuation& self) noexcept { static_cast<Ordered&>(self).out->push_back(static_cast<Ordered&>(self).name); };
  }
  std::string* out;
  char name;
};

}  // namespace

TEST_CASE("host_event: a null event is ready, never failed, queues nothing and costs no allocation") {
  HostEvent e;
  std::atomic<int> ran{0};
  Counting node(ran);
  CHECK(e.ready());
  CHECK(e.wait().ok());
  CHECK(!e.then(node));
  CHECK(ran == 0);
}

TEST_CASE("host_event: it is pending until its promise is set, then ready for every handle") {
  HostPromise p = *HostPromise::make();
  HostEvent e = p.get_event(), f = e;
  CHECK(!e.ready());
  CHECK(e == f);
  CHECK(e.error().ok());
  CHECK(e.wait_until(Deadline::now()).code == Errc::would_block);
  CHECK(e.wait_until(Deadline::after(std::chrono::milliseconds(2))).code == Errc::deadline);
  CHECK(p.set().ok());
  CHECK(e.ready());
  CHECK(f.wait().ok());
}

TEST_CASE("host_event: a second completion is detected and changes nothing") {
  HostPromise p = *HostPromise::make();
  HostEvent e = p.get_event();
  CHECK(p.set().ok());
  CHECK(p.set().code == Errc::wrong_state);
  CHECK(p.set_error(make_error(Errc::internal, "late")).code == Errc::wrong_state);
  CHECK(e.wait().ok());
  CHECK(!p.pending());
}

TEST_CASE("host_event: an error travels with its first cause, and an error without a reason is internal") {
  HostPromise p = *HostPromise::make();
  HostEvent e = p.get_event();
  CHECK(p.set_error(make_error(Errc::internal, "copy failed")).ok());
  CHECK(e.ready());
  CHECK(e.wait().code == Errc::internal);
  CHECK(says(e.wait(), "copy failed"));
  CHECK(says(e.error(), "copy failed"));
  HostPromise q = *HostPromise::make();
  HostEvent f = q.get_event();
  CHECK(q.set_error(Error{}).ok());
  CHECK(f.wait().code == Errc::internal);
  CHECK(HostEvent::make_failed(make_error(Errc::aborted, "gone"))->wait().code == Errc::aborted);
}

TEST_CASE("host_event: a promise dropped unset fails its event as aborted, so nobody waits for ever") {
  HostEvent e;
  {
    HostPromise p = *HostPromise::make();
    e = p.get_event();
    HostPromise moved = std::move(p);
    CHECK(!p.pending());
    CHECK(!e.ready());
  }
  CHECK(e.wait().code == Errc::aborted);
}

TEST_CASE("host_event: waiters run once on the completing thread, the last registered first") {
  HostPromise p = *HostPromise::make();
  HostEvent e = p.get_event();
  std::string order;
  Ordered a(order, 'a'), b(order, 'b'), c(order, 'c');
  CHECK(e.then(a));
  CHECK(e.then(b));
  CHECK(e.then(c));
  CHECK(order.empty());
  CHECK(p.set().ok());
  CHECK(order == "cba");
  CHECK(!e.then(a));
  CHECK(order == "cba");
}

TEST_CASE("host_event: a thread that waits is woken by the completion") {
  for (int round = 0; round < 200; ++round) {
    HostPromise p = *HostPromise::make();
    HostEvent e = p.get_event();
    Caller waiter([&] { CHECK(e.wait().code == Errc::internal); });
    if (round % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
    CHECK(p.set_error(make_error(Errc::internal, "x")).ok());
    CHECK(waiter.returns_soon());
  }
}

TEST_CASE("host_event: case 03 A, a callback added while the event completes runs exactly once, 200000 times over") {
  const int rounds = holdfast::testing::quick() ? 5'000 : 200'000;
  std::atomic<int> count{0};
  std::atomic<int> turn{0};
  HostPromise promise = *HostPromise::make();
  HostEvent event = promise.get_event();
  std::thread other([&] {
    for (int i = 0; i < rounds; ++i) {
      while (turn.load() != 2 * i + 1) std::this_thread::yield();
      static_cast<void>(promise.set());
      turn.store(2 * i + 2);
    }
  });
  for (int i = 0; i < rounds; ++i) {
    Counting node(count);
    turn.store(2 * i + 1);
    if (!event.then(node)) node.run(node);
    while (turn.load() != 2 * i + 2) std::this_thread::yield();
    promise = *HostPromise::make();
    event = promise.get_event();
  }
  other.join();
  CHECK(count == rounds);
}

TEST_CASE("host_event: case 03 B, of 8000 callbacks of 8 threads each runs once though the event completes halfway") {
  HostPromise p = *HostPromise::make();
  HostEvent e = p.get_event();
  std::atomic<int> count{0}, registered{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      std::vector<std::unique_ptr<Counting>> nodes;
      for (int i = 0; i < 1000; ++i) {
        nodes.push_back(std::make_unique<Counting>(count));
        if (!e.then(*nodes.back())) nodes.back()->run(*nodes.back());
        registered.fetch_add(1);
      }
      static_cast<void>(e.wait());
      CHECK(soon([&] { return count.load() == 8000; }));
    });
  }
  while (registered.load() < 4000) {}
  CHECK(p.set().ok());
  for (auto& t : threads) t.join();
  CHECK(count == 8000);
}

TEST_CASE("host_event: case 03 C, a callback may register on its own event and drop the last handle to it") {
  struct Reentrant : Continuation {
    HostEvent* event = nullptr;
    std::atomic<int> inner{0};
  };
  HostPromise p = *HostPromise::make();
  auto event = std::make_unique<HostEvent>(p.get_event());
  Reentrant outer;
  outer.event = event.get();
  outer.run = [](Continuation& self) noexcept {
    auto& me = static_cast<Reentrant&>(self);
    Counting again(me.inner);
    if (!me.event->then(again)) again.run(again);
    *me.event = HostEvent();
  };
  CHECK(event->then(outer));
  CHECK(p.set().ok());
  CHECK(outer.inner == 1);
}

TEST_CASE("host_event: an inline event needs no handle and no allocation, and wakes, runs and fails like any other") {
  std::atomic<int> ran{0};
  Counting node(ran);
  InlineEvent e;
  CHECK(e.wait(Deadline::now()).code == Errc::would_block);
  CHECK(e.then(node));
  Caller waiter([&] { CHECK(e.wait().code == Errc::device_fault); });
  e.set_error(make_error(Errc::device_fault, "fault"));
  CHECK(waiter.returns_soon());
  CHECK(ran == 1);
  CHECK(!e.then(node));
}
