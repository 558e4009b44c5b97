// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/layer/retrying.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/backend/bfc_pool.hpp"
#include "holdfast/backend/layer/guarded.hpp"
#include "holdfast/backend/layer/limited.hpp"
#include "holdfast/backend/layer/locked.hpp"
#include "holdfast/backend/layer/observed.hpp"
#include "holdfast/backend/stack.hpp"
#include "support/fake_clock.hpp"
#include "support/gate.hpp"
#include "support/strict_memory.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

// Keeps blocks that it can do without, as a cache does.
struct Cache {
  StrictMemory memory;
  std::vector<Block> blocks;
  int asked = 0, given_up = 0;
  int failures_seen = 0;
  bool on_out_of_memory(OutOfMemory& request) noexcept {
    ++asked;
    failures_seen = request.failures;
    if (blocks.empty()) return false;
    memory.deallocate(blocks.back());
    blocks.pop_back();
    return true;
  }
  void on_give_up(const OutOfMemory&) noexcept { ++given_up; }
};

struct Stubborn {
  int asked = 0;
  bool on_out_of_memory(OutOfMemory&) noexcept { return ++asked, true; }
};
struct Thrice : Stubborn {
  static constexpr int max_failures = 3;
};

struct Dump {
  std::vector<OutOfMemory>* dumps;
  void operator()(const OutOfMemory& request) const noexcept { dumps->push_back(request); }
};
using Waiting = WaitForMemory<Dump, FakeClock>;

struct NotNoexcept {
  bool on_out_of_memory(OutOfMemory&) { return false; }
};
struct NoAnswer {
  void on_out_of_memory(OutOfMemory&) noexcept {}
};
// What waits says so through all layers, so that `Locked` refuses to stand above it.
static_assert(Stack<SystemMemory, Retrying<WaitForMemory<>>, Limited, Observed<NoObserver>>::waits_for_release);
static_assert(!Stack<SystemMemory, Locked<>, Retrying<Cache>>::waits_for_release);
static_assert(out_of_memory_handler<Cache> && !out_of_memory_handler<NotNoexcept> && !out_of_memory_handler<NoAnswer>);

}  // namespace

TEST_CASE("retrying: a handler that frees something is asked until the request fits") {
  StrictLog log;
  log.capacity = 1000;
  Cache cache{StrictMemory(log), {}};
  for (int i = 0; i < 4; ++i) cache.blocks.push_back(*cache.memory.allocate(200, Alignment(1)));
  auto memory = make_stack<Stack<StrictMemory, Retrying<Cache>>>(StrictMemory(log), cache);
  const Block block = *memory.allocate(700, Alignment(1), Tag{"big", 1});
  CHECK(cache.asked == 3);
  CHECK(cache.failures_seen == 3);
  CHECK(cache.blocks.size() == 1);
  CHECK(cache.given_up == 0);
  CHECK(log.calls.back().tag.number == 1);
  const Error e = memory.allocate(900, Alignment(1)).error();  // the cache does not hold that much
  CHECK(e.code == Errc::out_of_memory);
  CHECK(cache.blocks.empty());
  CHECK(cache.given_up == 1);
  memory.deallocate(block);
  CHECK(log.live.empty());
}

TEST_CASE("retrying: asking again is bounded, by 16 or by what the handler says") {
  StrictLog log;
  log.capacity = 0;
  Stubborn stubborn;
  auto memory = make_stack<Stack<StrictMemory, Retrying<Stubborn>>>(StrictMemory(log), stubborn);
  CHECK(!memory.allocate(1, Alignment(1)).ok());
  CHECK(stubborn.asked == 16);
  CHECK(log.calls.size() == 17);
  Thrice thrice;
  auto other = make_stack<Stack<StrictMemory, Retrying<Thrice>>>(StrictMemory(log), thrice);
  CHECK(!other.allocate(1, Alignment(1)).ok());
  CHECK(thrice.asked == 3);
}

TEST_CASE("retrying: a limit below is handled as well; an invalid request is not") {
  StrictLog log;
  MemoryLimit limit(10);
  Thrice thrice;
  auto memory = make_stack<Stack<StrictMemory, Limited, Retrying<Thrice>>>(StrictMemory(log), limit, thrice);
  CHECK(memory.allocate(11, Alignment(1)).error().code == Errc::over_budget);
  CHECK(thrice.asked == 3);
  CHECK(memory.allocate(-1, Alignment(1)).error().code == Errc::invalid_argument);
  CHECK(thrice.asked == 3);
}

TEST_CASE("BF14: who waits gets memory that is freed at 100 ms") {
  StrictLog log;
  log.capacity = 1000;
  FakeTime time;
  const std::int64_t start = time.now;
  std::vector<OutOfMemory> dumps;
  Waiting wait(10'000 * millisecond, Dump{&dumps}, FakeClock(time));
  auto memory = make_stack<Stack<StrictMemory, Retrying<Waiting>>>(StrictMemory(log), wait);
  const Block a = *memory.allocate(400, Alignment(1)), b = *memory.allocate(600, Alignment(1));
  time.at(start + 50 * millisecond, [&] { memory.deallocate(a); });  // not enough: it waits on
  time.at(start + 100 * millisecond, [&] { memory.deallocate(b); });
  const Result<Block> block = memory.allocate(700, Alignment(1));
  REQUIRE(block.ok());
  CHECK(time.now == start + 100 * millisecond);
  CHECK(dumps.empty());
  memory.deallocate(*block);
  CHECK(log.live.empty());
}

TEST_CASE("BF14: without a release the request fails at 10 s with exactly one dump") {
  StrictLog log;
  log.capacity = 1000;
  FakeTime time;
  const std::int64_t start = time.now;
  std::vector<OutOfMemory> dumps;
  Waiting wait(10'000 * millisecond, Dump{&dumps}, FakeClock(time));
  auto memory = make_stack<Stack<StrictMemory, Retrying<Waiting>>>(StrictMemory(log), wait);
  const Block a = *memory.allocate(900, Alignment(1));
  for (int i = 1; i < 100; ++i) time.at(start + i * 90 * millisecond, [&] { wait.on_release(); });  // others' small change
  const Error e = memory.allocate(200, Alignment(8), Tag{"step", 4}).error();
  CHECK(e.code == Errc::out_of_memory);
  CHECK(time.now == start + 10'000 * millisecond);
  REQUIRE(dumps.size() == 1);
  CHECK(dumps[0].size == 200);
  CHECK(dumps[0].tag.number == 4);
  CHECK(dumps[0].failures == 101);  // at first, at once again, and after each of 99 releases
  memory.deallocate(a);
}

TEST_CASE("BF14: the same on a best-fit pool under a lock, with others' blocks guarded and counted") {
  FakeTime time;
  const std::int64_t start = time.now;
  std::vector<OutOfMemory> dumps;
  using Pool = BfcPool<SystemMemory>;
  using Below = Stack<Pool, Locked<>, Retrying<Waiting>>;
  using Memory = Stack<Pool, Locked<>, Retrying<Waiting>, Guarded<>>;
  BfcHeap<SystemMemory> heap = std::move(*BfcHeap<SystemMemory>::make({}, {.limit = 1 << 20}));
  WordLock lock;
  Waiting wait(10'000 * millisecond, Dump{&dumps}, FakeClock(time));
  Guard<Below> guard({64, 0});
  Memory memory = make_stack<Memory>(heap.pool(), lock, wait, guard);
  const Block a = *memory.allocate(700'000, Alignment(256));
  time.at(start + 100 * millisecond, [&] { memory.deallocate(a); });  // while the other is inside: no lock may be held
  const Result<Block> b = memory.allocate(600'000, Alignment(256));
  REQUIRE(b.ok());
  CHECK(time.now == start + 100 * millisecond);
  CHECK(memory.allocate(600'000, Alignment(256)).error().code == Errc::over_budget);
  CHECK(time.now == start + 10'100 * millisecond);
  CHECK(dumps.size() == 1);
  memory.deallocate(*b);
}

TEST_CASE("retrying: a release between the refusal and the wait is not missed") {
  StrictLog log;
  log.capacity = 100;
  FakeTime time;
  std::vector<OutOfMemory> dumps;
  Waiting wait(1000 * millisecond, Dump{&dumps}, FakeClock(time));
  using Memory = Stack<StrictMemory, Retrying<Waiting>>;
  Memory memory = make_stack<Memory>(StrictMemory(log), wait);
  OutOfMemory request{100, Alignment(1), {}, make_error(Errc::out_of_memory, "x"), 1};
  const Block block = *memory.allocate(100, Alignment(1));
  CHECK(wait.on_out_of_memory(request));
  memory.deallocate(block);  // after the second refusal, before the handler hears of it
  request.failures = 2;
  CHECK(wait.on_out_of_memory(request));
  CHECK(time.waits == 0);
}

TEST_CASE("retrying: threads that need more than there is all come through, by waiting for each other") {
  StrictLog log;
  log.capacity = 1000;
  WaitForMemory<> wait;
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      auto memory = make_stack<Stack<StrictMemory, Retrying<WaitForMemory<>>>>(StrictMemory(log), wait);
      for (int i = 0; i < 50; ++i) {
        const Result<Block> block = memory.allocate(600, Alignment(1));
        if (!block.ok()) {
          ++failed;
          continue;
        }
        std::this_thread::yield();
        memory.deallocate(*block);
      }
    });
  for (auto& t : threads) t.join();
  CHECK(failed == 0);
  CHECK(log.live.empty());
}
