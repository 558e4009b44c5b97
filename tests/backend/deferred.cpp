// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/layer/deferred.hpp"

#include <doctest/doctest.h>

#include <thread>
#include <utility>
#include <vector>

#include "holdfast/backend/host/pinned_pool.hpp"
#include "holdfast/backend/layer/limited.hpp"
#include "holdfast/backend/stack.hpp"
#include "holdfast/event/host_event.hpp"
#include "support/gate.hpp"
#include "support/strict_memory.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
using Memory = Stack<StrictMemory, Limited, Deferred<HostEvent>>;
using Releases = DeferredReleases<Stack<StrictMemory, Limited>, HostEvent>;
}  // namespace

TEST_CASE("cases/08 D: a pinned block freed while a copy from it is pending is not handed out before the copy's event, and nobody waits") {
  using Pool = BasicPinnedPool<Stack<SystemMemory, Pinned<NoPinning>>>;
  using Heap = BasicPinnedHeap<Stack<SystemMemory, Pinned<NoPinning>>>;
  Heap heap = std::move(*Heap::make());
  DeferredReleases<Pool, HostEvent> releases;
  auto pool = make_stack<Stack<Pool, Deferred<HostEvent>>>(heap.pool(), releases);
  HostPromise copy = std::move(*HostPromise::make());
  const Block a = *pool.allocate(100'000, Alignment(64));
  pool.deallocate_after(a, copy.get_event());
  const Block b = *pool.allocate(100'000, Alignment(64));  // at once, and another block
  CHECK(b.data != a.data);
  CHECK(releases.waiting() == 1);
  CHECK(copy.set().ok());
  const Block c = *pool.allocate(100'000, Alignment(64));
  CHECK(c.data == a.data);
  CHECK(releases.waiting() == 0);
  pool.deallocate(b);
  pool.deallocate(c);
  CHECK(heap.pool().statistics().requested == 0);
}

TEST_CASE("deferred: blocks go back in the order of their events, failed ones too; what lies below counts them until then") {
  StrictLog log;
  MemoryLimit limit(1000);
  Releases releases;
  auto memory = make_stack<Memory>(StrictMemory(log), limit, releases);
  std::vector<HostPromise> promises;
  for (int i = 0; i < 3; ++i) {
    promises.push_back(std::move(*HostPromise::make()));
    memory.deallocate_after(*memory.allocate(300, Alignment(1)), promises.back().get_event());
  }
  CHECK(limit.live() == 900);
  CHECK(memory.allocate(200, Alignment(1)).error().code == Errc::over_budget);
  CHECK(promises[1].set_error(make_error(Errc::device_fault, "the copy failed")).ok());
  const Result<Block> block = memory.allocate(200, Alignment(1));
  REQUIRE(block.ok());
  CHECK(limit.live() == 800);
  CHECK(promises[0].set().ok());
  CHECK(promises[2].set().ok());
  CHECK(releases.collect() == 600);
  CHECK(releases.collect() == 0);
  memory.deallocate(*block);
  memory.deallocate_after(*memory.allocate(10, Alignment(1)), HostEvent{});  // ready already
  CHECK(releases.collect() == 10);
  memory.deallocate_after(Block{}, HostEvent{});
  CHECK(releases.waiting() == 0);
  CHECK(log.live.empty());
  CHECK(log.wrong == 0);
}

TEST_CASE("deferred: its end waits for the events and gives all back") {
  StrictLog log;
  MemoryLimit limit(1000);
  HostPromise promise = std::move(*HostPromise::make());
  std::thread completer;
  {
    Releases releases;
    auto memory = make_stack<Memory>(StrictMemory(log), limit, releases);
    memory.deallocate_after(*memory.allocate(100, Alignment(1)), promise.get_event());
    completer = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      static_cast<void>(promise.set());
    });
  }
  CHECK(log.live.empty());
  CHECK(limit.live() == 0);
  completer.join();
}

TEST_CASE("deferred: threads free behind events that others complete") {
  StrictLog log;
  MemoryLimit limit(max_bytes);
  {
    Releases releases;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        auto memory = make_stack<Memory>(StrictMemory(log), limit, releases);
        for (int i = 0; i < 500; ++i) {
          HostPromise promise = std::move(*HostPromise::make());
          const Block block = *memory.allocate(64, Alignment(64));
          memory.deallocate_after(block, promise.get_event());
          if (i % 3 == 0) memory.deallocate(*memory.allocate(8, Alignment(8)));
          *block.data = std::byte{1};  // still its own
          static_cast<void>(promise.set());
        }
      });
    for (auto& t : threads) t.join();
  }
  CHECK(limit.live() == 0);
  CHECK(log.live.empty());
  CHECK(log.wrong == 0);
}
