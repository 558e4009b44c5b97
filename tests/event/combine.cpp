// SPDX-License-Identifier: Apache-2.0
#include "holdfast/event/combine.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "holdfast/event/host_event.hpp"
#include "holdfast/event/immediate_event.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
using Events = std::vector<HostEvent>;
std::span<const HostEvent> view(const Events& e) { return e; }
HostEvent failed(const char* what) { return *HostEvent::make_failed(make_error(Errc::internal, what)); }
}  // namespace

TEST_CASE("combine: T-E5 first_error gives the first failing entry, pending ones count as not failed") {
  CHECK(first_error(view({HostEvent(), failed("test error")})).code == Errc::internal);
  CHECK(says(first_error(view({HostEvent(), failed("test error"), failed("other")})), "test error"));
  HostPromise p = *HostPromise::make();
  const Events pending{p.get_event()};
  CHECK(first_error(view(pending)).ok());
  CHECK(first_error(view({})).ok());
}

TEST_CASE("combine: T-E6 run_when_ready runs after the last of two pending events, not before") {
  HostPromise a = *HostPromise::make(), b = *HostPromise::make();
  int runs = 0;
  {
    const Events list{a.get_event(), HostEvent(), b.get_event()};
    CHECK(run_when_ready(view(list), [&] { ++runs; }).ok());
  }
  CHECK(runs == 0);
  CHECK(b.set().ok());
  CHECK(runs == 0);
  CHECK(a.set().ok());
  CHECK(runs == 1);
}

TEST_CASE("combine: run_when_ready with nothing pending runs before it returns, and errors do not stop it") {
  int runs = 0;
  CHECK(run_when_ready(view({}), [&] { ++runs; }).ok());
  CHECK(run_when_ready(view({HostEvent(), failed("x")}), [&] { ++runs; }).ok());
  CHECK(runs == 2);
}

namespace {
struct QueueExecutor {
  std::vector<Continuation*>* queue;
  void execute(Continuation& node) noexcept { queue->push_back(&node); }
};
static_assert(executor<QueueExecutor>);
}  // namespace

TEST_CASE("combine: T-E7 execute_when_ready always goes through its executor, inline or queued") {
  HostPromise a = *HostPromise::make();
  int runs = 0;
  const Events list{a.get_event()};
  CHECK(execute_when_ready(view(list), InlineExecutor{}, [&] { ++runs; }).ok());
  CHECK(runs == 0);
  CHECK(a.set().ok());
  CHECK(runs == 1);
  std::vector<Continuation*> queue;
  CHECK(execute_when_ready(view(list), QueueExecutor{&queue}, [&] { ++runs; }).ok());
  CHECK(runs == 1);
  REQUIRE(queue.size() == 1);
  queue[0]->run(*queue[0]);
  CHECK(runs == 2);
}

TEST_CASE("combine: after_all of none is ready, of one is that one") {
  HostPromise a = *HostPromise::make();
  const Events one{a.get_event()};
  CHECK(after_all(view({}))->ready());
  CHECK(*after_all(view(one)) == one[0]);
  const ImmediateEvent now[3];
  CHECK(after_all(std::span<const ImmediateEvent>(now))->ready());
}

TEST_CASE("combine: after_all resolves after every entry, with the first error in list order whichever came first") {
  HostPromise a = *HostPromise::make(), b = *HostPromise::make(), c = *HostPromise::make();
  const Events list{a.get_event(), b.get_event(), c.get_event()};
  HostEvent all = *after_all(view(list));
  CHECK(c.set_error(make_error(Errc::aborted, "third")).ok());
  CHECK(!all.ready());
  CHECK(b.set_error(make_error(Errc::internal, "second")).ok());
  CHECK(!all.ready());
  CHECK(a.set().ok());
  CHECK(all.ready());
  CHECK(says(all.wait(), "second"));
  const Events resolved{failed("early"), list[1]};
  CHECK(says(after_all(view(resolved))->wait(), "early"));
}

TEST_CASE("combine: WhenReady needs one node for many events and allocates nothing") {
  struct Node : WhenReady<HostEvent> {
    int runs = 0;
  };
  std::vector<HostPromise> promises;
  Events list;
  for (int i = 0; i < 100; ++i) {
    promises.push_back(*HostPromise::make());
    list.push_back(promises.back().get_event());
  }
  Node node;
  node.start(list, [](WhenReady<HostEvent>& n) noexcept { ++static_cast<Node&>(n).runs; });
  for (int i = 0; i < 100; ++i) {
    CHECK(node.runs == 0);
    CHECK(promises[static_cast<std::size_t>(i * 37 % 100)].set().ok());
  }
  CHECK(node.runs == 1);
}
