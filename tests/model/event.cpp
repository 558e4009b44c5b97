// SPDX-License-Identifier: Apache-2.0
// The real host event and its combinations under every interleaving.
#include <doctest/doctest.h>

#include <optional>

#include "holdfast/event/combine.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/event/promise.hpp"
#include "model/explorer.hpp"

using namespace holdfast;
using model::check_all;
using model::Data;
using model::require;

namespace {

using Event = BasicHostEvent<model::Sync>;
using Promise = BasicHostPromise<model::Sync>;

// A node that counts its runs and reads what the completer wrote before.
struct Seen : Continuation {
  Data<int>* written = nullptr;
  int runs = 0;
  Seen() {
    run = [](Continuation& c) noexcept {
      auto& self = static_cast<Seen&>(c);
      ++self.runs;
      require(self.written == nullptr || self.written->get() == 7, "a callback runs before the work is visible");
    };
  }
  void on(const Event& e, Data<int>& data) {
    written = &data;
    if (!e.then(*this)) run(*this);
  }
};

struct Base {
  Data<int> written{0};
  std::optional<Promise> promise{std::move(*Promise::make())};
  Event event = promise->get_event();
  void set() {
    written.set(7);
    require(promise->set().ok(), "a first completion is refused");
  }
  void fail_it() {
    written.set(7);
    require(promise->set_error(make_error(Errc::device_fault, "first cause")).ok(), "a first completion is refused");
  }
  void invariant() {}
  void finish() {}
};

struct SetAgainstThen : Base {
  static constexpr int threads = 2;
  Seen node;
  void run(int t) { t == 0 ? set() : node.on(event, written); }
  void finish() { require(node.runs == 1, "a callback runs other than once"); }
};

struct SetAgainstTwoThens : Base {
  static constexpr int threads = 3;
  Seen nodes[2];
  void run(int t) { t == 0 ? set() : nodes[t - 1].on(event, written); }
  void finish() { require(nodes[0].runs == 1 && nodes[1].runs == 1, "a callback runs other than once"); }
};

struct SetAgainstWait : Base {
  static constexpr int threads = 2;
  void run(int t) {
    if (t == 0) return fail_it();
    const Error e = event.wait();
    require(e.code == Errc::device_fault, "a waiter gets another error");
    require(written.get() == 7, "a waiter returns before the work is visible");
  }
};

struct SetAgainstTwoWaits : Base {
  static constexpr int threads = 3;
  void run(int t) {
    if (t == 0) return set();
    require(event.wait().ok() && written.get() == 7, "a waiter returns early");
  }
};

struct SetAgainstWaitAndThen : Base {
  static constexpr int threads = 3;
  Seen node;
  void run(int t) {
    if (t == 0) return set();
    if (t == 1) return node.on(event, written);
    require(event.wait().ok() && written.get() == 7, "a waiter returns early");
  }
  void finish() { require(node.runs == 1, "a callback runs other than once"); }
};

struct LastHandleAgainstSet : Base {
  static constexpr int threads = 3;
  Event copy = event;
  void run(int t) {
    if (t == 0) return set();
    (t == 1 ? event : copy) = Event();
  }
};

// The promise hands out another handle while the first one goes: it counts alone only when it is alone.
struct HandleAgainstGetEvent : Base {
  static constexpr int threads = 2;
  void run(int t) {
    if (t == 1) return void(event = Event());
    const Event again = promise->get_event();
    const Event third = promise->get_event();
    set();
    require(again.ready() && third.ready(), "a handle of a set event is pending");
  }
};

struct DroppedPromise : Base {
  static constexpr int threads = 2;
  void run(int t) {
    if (t == 0) return promise.reset();
    require(event.wait().code == Errc::aborted, "a dropped promise leaves its event pending");
  }
};

// The callback drops the event's last handle and registers once more.
struct Reentrant : Base {
  static constexpr int threads = 2;
  struct Node : Continuation {
    Event* event = nullptr;
    Seen again;
  } node;
  Reentrant() {
    node.event = &event;
    node.run = [](Continuation& c) noexcept {
      auto& self = static_cast<Node&>(c);
      if (!self.event->then(self.again)) self.again.run(self.again);
      *self.event = Event();
    };
  }
  void run(int t) {
    if (t == 0) return set();
    if (!event.then(node)) node.run(node);
  }
  void finish() { require(node.again.runs == 1, "a callback of a callback runs other than once"); }
};

struct TwoEvents {
  Data<int> written[2];
  Promise promises[2] = {std::move(*Promise::make()), std::move(*Promise::make())};
  Event events[2] = {promises[0].get_event(), promises[1].get_event()};
  void set(int i) {
    written[i].set(7);
    if (i == 1) static_cast<void>(promises[i].set_error(make_error(Errc::device_fault, "second")));
    else static_cast<void>(promises[i].set());
  }
  void invariant() {}
  void finish() {}
};

struct AfterAll : TwoEvents {
  static constexpr int threads = 3;
  void run(int t) {
    if (t < 2) return set(t);
    const Event all = *after_all<Event>(events);
    require(all.wait().code == Errc::device_fault, "after_all loses its error");
    require(written[0].get() == 7 && written[1].get() == 7, "after_all is ready before all are");
  }
};

struct WhenReadyRuns : TwoEvents {
  static constexpr int threads = 3;
  struct Node : WhenReady<Event> {
    WhenReadyRuns* owner = nullptr;
    int runs = 0;
  } node;
  void run(int t) {
    if (t < 2) return set(t);
    node.owner = this;
    node.start(events, [](WhenReady<Event>& n) noexcept {
      auto& self = static_cast<Node&>(n);
      ++self.runs;
      require(self.owner->written[0].get() == 7 && self.owner->written[1].get() == 7, "it runs before all are ready");
    });
  }
  void finish() { require(node.runs == 1, "it runs other than once"); }
};

struct Forwarded : Base {
  static constexpr int threads = 3;
  Promise target = std::move(*Promise::make());
  Event far = target.get_event();
  void run(int t) {
    if (t == 0) return fail_it();
    if (t == 1) return forward(event, std::move(target));
    require(far.wait().code == Errc::device_fault && written.get() == 7, "a forwarded event loses its cause");
  }
};

}  // namespace

TEST_CASE("model: case 03, a callback runs once in every interleaving of set and then, and sees the work") {
  check_all<SetAgainstThen>("HostEvent set | then");
  check_all<SetAgainstTwoThens>("HostEvent set | then | then");
}
TEST_CASE("model: no waiter of an event is lost, whichever way set, wait and then interleave") {
  check_all<SetAgainstWait>("HostEvent set_error | wait");
  check_all<SetAgainstTwoWaits>("HostEvent set | wait | wait");
  check_all<SetAgainstWaitAndThen>("HostEvent set | then | wait");
}
TEST_CASE("model: an event's cell is freed once whoever drops it last, and an unset promise resolves it") {
  check_all<LastHandleAgainstSet>("HostEvent set | drop | drop");
  check_all<HandleAgainstGetEvent>("HostEvent get twice and set | drop");
  check_all<DroppedPromise>("HostEvent promise dropped | wait");
  check_all<Reentrant>("HostEvent set | then, re-entrant, last handle dropped");
}
TEST_CASE("model: after_all, WhenReady and forwarding resolve once, after all, with the cause") {
  check_all<AfterAll>("after_all set | set_error | join and wait");
  check_all<WhenReadyRuns>("WhenReady set | set | start");
  check_all<Forwarded>("forward set_error | forward | wait");
}
