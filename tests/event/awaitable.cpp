// SPDX-License-Identifier: Apache-2.0
#include "holdfast/event/awaitable.hpp"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "holdfast/event/any_event.hpp"
#include "holdfast/event/combine.hpp"
#include "holdfast/event/event_set.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/event/immediate_event.hpp"
#include "holdfast/event/sender.hpp"
#include "support/gate.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

struct Task {
  struct promise_type {
    static Task get_return_object() { return {}; }
    static std::suspend_never initial_suspend() noexcept { return {}; }
    static std::suspend_never final_suspend() noexcept { return {}; }
    static void return_void() {}
    static void unhandled_exception() {}
  };
};

Task add_up(std::vector<HostEvent> events, std::atomic<int>& sum, Error& last) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    last = co_await events[i];
    sum += 1 << i;
  }
}

struct QueueExecutor {
  std::vector<Continuation*>* queue;
  void execute(Continuation& node) noexcept { queue->push_back(&node); }
};
Task on_executor(HostEvent event, QueueExecutor executor, int& ran) {
  static_cast<void>(co_await resume_on(event, executor));
  ran = 1;
}

}  // namespace

TEST_CASE("awaitable: a coroutine goes on when its event is done and gets the error, ready events do not suspend it") {
  HostPromise a = *HostPromise::make(), b = *HostPromise::make();
  std::atomic<int> sum{0};
  Error last;
  add_up({HostEvent(), a.get_event(), b.get_event()}, sum, last);
  CHECK(sum == 1);
  CHECK(a.set().ok());
  CHECK(sum == 3);
  CHECK(b.set_error(make_error(Errc::device_fault, "fault")).ok());
  CHECK(sum == 7);
  CHECK(last.code == Errc::device_fault);
}

TEST_CASE("awaitable: it goes on on the completing thread, or where the executor says") {
  for (int round = 0; round < 300; ++round) {
    HostPromise p = *HostPromise::make();
    std::atomic<int> sum{0};
    Error last;
    const HostEvent event = p.get_event();  // before: a promise is one thread's at a time
    std::thread completer([&] { static_cast<void>(p.set()); });
    add_up({event}, sum, last);
    completer.join();
    CHECK(soon([&] { return sum.load() == 1; }));
  }
  HostPromise p = *HostPromise::make();
  std::vector<Continuation*> queue;
  int ran = 0;
  on_executor(p.get_event(), QueueExecutor{&queue}, ran);
  CHECK(p.set().ok());
  CHECK(ran == 0);
  REQUIRE(queue.size() == 1);
  queue[0]->run(*queue[0]);
  CHECK(ran == 1);
}

namespace {
struct Receiver {
  int* values;
  Error* error;
  void set_value() && noexcept { ++*values; }
  void set_error(const Error& e) && noexcept { *error = e; }
};
}  // namespace

TEST_CASE("sender: a connected and started event tells its receiver once, value or error") {
  int values = 0;
  Error error;
  EventSender<HostEvent> ready{HostEvent()};
  auto now = ready.connect(Receiver{&values, &error});
  CHECK(values == 0);
  now.start();
  CHECK(values == 1);
  HostPromise p = *HostPromise::make();
  auto later = EventSender<HostEvent>(p.get_event()).connect(Receiver{&values, &error});
  later.start();
  CHECK(values == 1);
  CHECK(p.set_error(make_error(Errc::device_fault, "fault")).ok());
  CHECK(values == 1);
  CHECK(error.code == Errc::device_fault);
}

TEST_CASE("any_event: events of several types wait in one list, with their errors and their identity") {
  HostPromise p = *HostPromise::make();
  std::vector<AnyEvent> list = {ImmediateEvent(), p.get_event(), AnyEvent()};
  CHECK(list[0].ready());
  CHECK(!list[1].ready());
  CHECK(list[1] == AnyEvent(p.get_event()));
  CHECK(!(list[1] == list[0]));
  CHECK(list[1].get_if<HostEvent>() != nullptr);
  CHECK(list[0].get_if<HostEvent>() == nullptr);
  int runs = 0;
  CHECK(run_when_ready<AnyEvent>(list, [&] { ++runs; }).ok());
  EventSet<AnyEvent> set;
  for (const AnyEvent& e : list) CHECK(set.add(e).ok());
  CHECK(set.size() == 1);
  list[0] = list[1];
  CHECK(p.set_error(make_error(Errc::internal, "mixed")).ok());
  CHECK(runs == 1);
  CHECK(says(first_error<AnyEvent>(list), "mixed"));
}
