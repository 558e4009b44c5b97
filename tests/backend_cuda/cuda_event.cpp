// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/cuda_event.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "holdfast/event/combine.hpp"
#include "holdfast/event/event_set.hpp"
#include "holdfast/event/promise.hpp"

using namespace holdfast;
using namespace holdfast::testing;

static_assert(stream_event<DoubleEvent, DoubleStreamRef> && promised_event<DoubleEvent>);
template <class E, class T>
concept takes = requires(const E& e, T handle) { e.wait_on_native(handle); };
static_assert(takes<DoubleEvent, CUstream> && !takes<DoubleEvent, int> && !takes<DoubleEvent, std::nullptr_t>);

TEST_CASE("cuda event: T-E1 one that stands for nothing is ready, at no place, and nothing to wait for") {
  CudaWorld w;
  const DoubleStream s = w.stream();
  const auto before = w.cuda.calls();
  const DoubleEvent e;
  CountingNode node;
  CHECK(e.ready());
  CHECK(e.wait().ok());
  CHECK(!e.then(node));
  CHECK(e.wait_on(s).ok());
  CHECK(e.wait_on_native(s.native()).ok());
  CHECK(e.definition_place().sequence == 0);
  CHECK(!e.definition_place().stream);
  CHECK(e.native() == nullptr);
  CHECK(w.cuda.calls() == before);
}

TEST_CASE("cuda event: recorded and completed are apart: a place at once, the end when the device has passed it") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CudaWorld w(seed);
    const DoubleStream s = w.stream();
    w.work(s);
    const DoubleEvent e = w.mark(s);
    CHECK(e.definition_place().stream == s.ref());
    CHECK(e.definition_place().sequence == 1);
    CHECK(e.is_defined_on(s));
    CHECK(!e.passed());
    CHECK(e.wait_until(Deadline::now()).code == Errc::would_block);
    CHECK(e.wait().ok());
    CHECK(e.ready());
    CHECK(e.passed());
  }
}

TEST_CASE("cuda event: numbers go up by one in record order over all streams of a context") {
  CudaWorld w;
  const DoubleStream a = w.stream(), b = w.stream();
  std::uint64_t expected = 0;
  for (int i = 0; i < 3; ++i)
    for (const DoubleStream* s : {&a, &b}) CHECK(w.mark(*s).definition_place().sequence == ++expected);
}

TEST_CASE("cuda event: driver events are pooled: a hundred records in turn make one") {
  CudaWorld w;
  const DoubleStream s = w.stream();
  for (int i = 0; i < 100; ++i) {
    w.work(s);
    CHECK(w.mark(s).wait().ok());
  }
  CHECK(w.cuda.count("cuEventCreate") == 1);
}

TEST_CASE("cuda event: recording again makes a handle stand for the new place, a copy keeps the old one") {
  CudaWorld w;
  const DoubleStream s = w.stream();
  DoubleEvent e = w.mark(s);
  const DoubleEvent old = e;
  CHECK(old.wait().ok());
  w.work(s);
  CHECK(e.record(s).ok());
  CHECK(!(e == old));
  CHECK(old.ready());
  CHECK(e.wait_until(Deadline::now()).code == Errc::would_block);
}

TEST_CASE("cuda event: waits that are implied are left out: own stream, done, asked before, an earlier mark of the same stream") {
  CudaWorld w;
  const DoubleStream a = w.stream(), b = w.stream(), c = w.stream();
  const auto waits = [&] { return w.cuda.count("cuStreamWaitEvent"); };
  w.work(a);
  const DoubleEvent first = w.mark(a);
  w.work(a);
  const DoubleEvent second = w.mark(a);
  CHECK(second.wait_on(a).ok());
  CHECK(waits() == 0);
  CHECK(!second.is_defined_on(b));
  CHECK(second.wait_on(b).ok());
  CHECK(waits() == 1);
  CHECK(second.is_defined_on(b));
  CHECK(second.wait_on(b).ok());
  CHECK(first.wait_on(b).ok());
  CHECK(waits() == 1);
  CHECK(first.wait_on(c).ok());
  CHECK(second.wait_on(c).ok());  // later than what c waits for
  CHECK(waits() == 3);
  CHECK(second.wait().ok());
  const DoubleStream d = w.stream();
  CHECK(second.wait_on(d).ok());
  CHECK(waits() == 3);
  CHECK(second.wait_on_native(d.native()).ok());  // nothing is known of a foreign stream
  CHECK(waits() == 4);
}

TEST_CASE("cuda event: a stream that got a destroyed stream's handle is not taken for it: its wait is made") {
  CudaWorld w;
  const DoubleStream a = w.stream();
  w.work(a);
  const DoubleEvent e = w.mark(a);
  CUstream handle = nullptr;
  {
    const DoubleStream b = w.stream();
    handle = b.native();
    CHECK(e.wait_on(b).ok());
  }
  const DoubleStream c = w.stream();
  REQUIRE(c.native() == handle);
  CHECK(!e.is_defined_on(c));
  CHECK(e.wait_on(c).ok());
  CHECK(w.cuda.count("cuStreamWaitEvent") == 2);
}

TEST_CASE("cuda event: a continuation runs once, on a thread that waits, may make calls, and sees the end") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CudaWorld w(seed);
    const DoubleStream s = w.stream();
    w.work(s);
    struct Node : Continuation {
      CudaWorld* w;
      DoubleEvent* e;
      int count = 0;
    } node;
    DoubleEvent e = w.mark(s);
    node.w = &w;
    node.e = &e;
    node.run = [](Continuation& self) noexcept {
      auto& n = static_cast<Node&>(self);
      ++n.count;
      CHECK(n.e->ready());
      CHECK(n.w->context->make_stream().ok());  // a call of the driver: not on its thread
    };
    REQUIRE(e.then(node));
    CHECK(node.count == 0);
    while (!e.ready()) CHECK(node.count == 0);
    CHECK(node.count == 0);  // a question runs nothing
    CHECK(w.context->run_completions());
    CHECK(node.count == 1);
    CHECK(!w.context->run_completions());
    CHECK(!e.then(node));
    CHECK(node.count == 1);
    CHECK(w.cuda.count("cuLaunchHostFunc") == 1);
  }
}

TEST_CASE("cuda event: an event, a stream and a context that are waited for all run the continuations that are due") {
  for (int which = 0; which < 3; ++which) {
    CudaWorld w;
    const DoubleStream s = w.stream();
    w.work(s);
    CountingNode node;
    const DoubleEvent e = w.mark(s);
    REQUIRE(e.then(node));
    CHECK((which == 0 ? e.wait() : which == 1 ? s.synchronize() : w.context->synchronize()).ok());
    CHECK(node.count == 1);
  }
}

TEST_CASE("cuda event: a fault reaches those who wait and those who are told, with its native code, and later calls") {
  for (const CUresult code : {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_ECC_UNCORRECTABLE}) {
    CudaWorld w;
    w.check_races = false;
    {
      const DoubleStream s = w.stream();
      w.cuda.launch_faulty(s.native(), code);
      const DoubleEvent e = w.mark(s);
      CountingNode node;
      REQUIRE(e.then(node));  // the driver calls no host function after a fault
      int asked = 0;
      while (!w.context->run_completions()) REQUIRE(++asked < 10'000);
      CHECK(node.count == 1);
      for (const Error& error : {e.wait(), e.wait_until(Deadline::now()), s.synchronize()}) {
        CHECK(error.code == Errc::device_fault);
        CHECK(error.native == static_cast<int>(code));
      }
      CHECK(says(e.wait(), "cuEvent"));
      CHECK(e.ready());
      CHECK(!e.passed());
      CHECK(w.context->make_stream().error().native == static_cast<int>(code));
      w.expected_unreported = Errc::device_fault;  // the stream could not be given back
    }
    w.cuda.forgive();
  }
}

TEST_CASE("cuda event: a promise completes one; the host waits for it before a stream goes on, its error orders all the same") {
  CudaWorld w;
  const DoubleStream s = w.stream();
  for (const bool fails : {false, true}) {
    DoublePromise p = std::move(*w.context->make_promise());
    const DoubleEvent e = p.get_event();
    CountingNode node;
    CHECK(!e.ready());
    CHECK(!e.definition_place().stream);
    REQUIRE(e.then(node));
    std::thread worker([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      static_cast<void>(fails ? p.set_error(make_error(Errc::internal, "no input")) : p.set());
    });
    CHECK(e.wait_on(s).ok());
    CHECK(e.ready());
    worker.join();
    CHECK(node.count == 1);
    CHECK(e.wait().ok() == !fails);
  }
  CHECK(w.cuda.count("cuStreamWaitEvent") == 0);
  DoubleEvent dropped;
  {
    const DoublePromise p = std::move(*DoublePromise::make());
    dropped = p.get_event();
  }
  CHECK(dropped.wait().code == Errc::aborted);
}

TEST_CASE("cuda event: T-E5 first_error, T-E6 run_when_ready, after_all and forward work over it, over seeds") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CudaWorld w(seed);
    const DoubleStream a = w.stream(), b = w.stream();
    w.work(a);
    w.work(b);
    const DoubleEvent both[] = {w.mark(a), w.mark(b)};
    CHECK(first_error(std::span<const DoubleEvent>(both)).ok());
    int runs = 0;
    CHECK(run_when_ready(std::span<const DoubleEvent>(both), [&runs]() noexcept { ++runs; }).ok());
    const auto joined = after_all(std::span<const DoubleEvent>(both));
    REQUIRE(joined.ok());
    DoublePromise p = std::move(*w.context->make_promise());
    const DoubleEvent forwarded = p.get_event();
    forward(*joined, std::move(p));
    CHECK(forwarded.wait().ok());  // drives the two continuations that it depends on
    CHECK(both[0].ready());
    CHECK(both[1].ready());
    CHECK(runs == 1);
  }
}

TEST_CASE("cuda event: T-E7 execute_when_ready of one event goes through its executor when somebody waits, not before") {
  CudaWorld w;
  const DoubleStream s = w.stream();
  w.work(s);
  const DoubleEvent e = w.mark(s);
  int runs = 0;
  CHECK(execute_when_ready(std::span<const DoubleEvent>(&e, 1), InlineExecutor{}, [&runs]() noexcept { ++runs; }).ok());
  CHECK(runs == 0);
  CHECK(e.wait().ok());
  CHECK(runs == 1);
}

TEST_CASE("cuda event: of a set's events on one stream the last is kept") {
  CudaWorld w;
  const DoubleStream a = w.stream(), b = w.stream();
  EventSet<DoubleEvent> set;
  for (int i = 0; i < 10; ++i)
    for (const DoubleStream* s : {&a, &b}) {
      w.work(*s);
      CHECK(set.add(w.mark(*s)).ok());
    }
  CHECK(set.size() <= 2);
  CHECK(wait_all(set.span()).ok());
}

TEST_CASE("cuda event: threads that wait for marks of several streams while others record see each end once") {
  CudaWorld w;
  std::vector<std::thread> threads;
  std::atomic<int> ran{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const DoubleStream s = w.stream();
      for (int i = 0; i < 50; ++i) {
        w.cuda.launch(s.native(), "work", {}, [] {});
        const DoubleEvent e = w.mark(s);
        CHECK(run_when_ready(std::span<const DoubleEvent>(&e, 1), [&ran]() noexcept { ++ran; }).ok());
        if (i % 3 == 0) CHECK(e.wait().ok());
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(w.context->synchronize().ok());
  while (w.context->run_completions()) {
  }
  CHECK(ran.load() == 200);
}

namespace {

// A continuation that another thread is at, until it is let go.
struct SlowNode : Continuation {
  SlowNode() {
    run = [](Continuation& self) noexcept {
      auto& n = static_cast<SlowNode&>(self);
      n.entered = true;
      n.entered.notify_all();
      n.go.wait(false);
      n.left = true;
    };
  }
  std::atomic<bool> entered{false}, go{false}, left{false};
};

}  // namespace

TEST_CASE("cuda event: whoever waits for a promise drives the events of every context that it hangs on") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CudaWorld w(seed);
    const DoubleStream a = w.stream();
    const DoubleStream b = std::move(*w.other->make_stream());
    w.work(a);
    auto later = w.cuda.hold(b.native());
    w.work(b);
    const DoubleEvent both[] = {w.mark(a), w.mark(b)};
    const auto joined = after_all(std::span<const DoubleEvent>(both));
    REQUIRE(joined.ok());
    static_cast<void>(later.set());
    CHECK(joined->wait_until(Deadline::after(std::chrono::seconds(20))).ok());
  }
}

TEST_CASE("cuda event: a context that is synchronised and a pool that ends wait for what another thread is telling") {
  for (const bool ends : {false, true}) {
    CudaWorld w;
    std::optional<BasicCudaPool<DoubleDriver>> pool(std::move(*BasicCudaPool<DoubleDriver>::make(*w.context)));
    const DoubleStream s = w.stream();
    w.work(s);
    SlowNode node;
    REQUIRE(w.mark(s).then(node));
    std::thread teller([&] {
      while (!w.context->run_completions()) {
      }
    });
    node.entered.wait(false);
    std::atomic<bool> done{false};
    std::thread waiter([&] {
      if (ends) pool.reset();
      else CHECK(w.context->synchronize().ok());
      CHECK(node.left);
      done = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(!done);
    node.go = true;
    node.go.notify_all();
    waiter.join();
    teller.join();
  }
}

TEST_CASE("cuda event: a continuation may synchronise its context, and one that works on for ever holds nobody up") {
  CudaWorld w;
  const DoubleStream s = w.stream();
  struct Node : Continuation {
    CudaWorld* w;
    const DoubleStream* s;
    int count = 0;
  } node;
  node.w = &w;
  node.s = &s;
  node.run = [](Continuation& self) noexcept {
    auto& n = static_cast<Node&>(self);
    if (++n.count == 50) return;
    CHECK(n.w->context->synchronize().ok());
    n.w->work(*n.s);
    CHECK(n.w->mark(*n.s).then(self));
  };
  w.work(s);
  REQUIRE(w.mark(s).then(node));
  CHECK(w.context->synchronize().ok());
  CHECK(node.count == 1);
  { const auto pool = BasicCudaPool<DoubleDriver>::make(*w.context); }  // its end waits for what is watched then, no more
  CHECK(node.count == 2);
  while (node.count < 50) w.context->run_completions();
}
