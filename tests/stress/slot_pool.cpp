// SPDX-License-Identifier: Apache-2.0
// The slot pool under real threads, optimised as users' code is.
#include "holdfast/backend/host/slot_pool.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "support/fake_clock.hpp"
#include "support/strict_memory.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

using Free = SlotPool<StrictMemory, PackedSlots>;
using Mutexed = SlotPool<StrictMemory, PackedSlots, FailWhenFull, WordLock>;
using Poisoned = SlotPool<StrictMemory, CacheLineSlots, FailWhenFull, LockFree, PoisonOnRelease>;
using Waiting = SlotPool<StrictMemory, CacheLineSlots, WaitWhenFull>;
using Growing = SlotPool<StrictMemory, CacheLineSlots, GrowWhenFull>;

// Threads that take a slot, write, look and give it back; what the pool counted.
template <class Pool>
SlotPoolStatistics many_threads(int rounds) {
  StrictLog log;
  SlotPoolOptions o;
  o.count = 5;
  o.size = 8;
  o.alignment = 8;
  o.max_count = 7;
  o.timeout = 20'000 * millisecond;
  constexpr int threads = 8;
  SlotPoolStatistics last;
  {
    Result<Pool> made = Pool::make(StrictMemory(log), o);
    REQUIRE(made.ok());
    Pool pool = std::move(*made);
    std::atomic<long> shared{0}, served{0}, lost{0};
    std::vector<std::thread> all;
    for (std::uint64_t t = 1; t <= threads; ++t)
      all.emplace_back([&, t] {
        long mine = 0;
        for (int i = 0; i < rounds; ++i) {
          auto slot = pool.acquire(Tag{"thread", t});
          if (!slot.ok()) continue;
          auto* word = *slot->template get<std::uint64_t>();
          *word = t;
          if (i % 64 == 0) std::this_thread::yield();
          if (*word != t) ++shared;
          if (!slot->release().ok()) ++lost;
          ++mine;
        }
        served += mine;
      });
    for (auto& t : all) t.join();
    CHECK(shared == 0);
    CHECK(lost == 0);
    const SlotPoolStatistics s = pool.statistics();
    CHECK(s.in_use == 0);
    CHECK(s.acquires == served);
    CHECK(s.acquires + s.failures == threads * long{rounds});
    CHECK(s.damaged == 0);
    CHECK(s.stale_releases == 0);
    CHECK(s.peak_in_use <= s.capacity);
    last = s;
  }
  CHECK(log.live.empty());
  return last;
}

}  // namespace

TEST_CASE_TEMPLATE("slot_pool: HP7, 8 threads of 100,000 rounds: acquire, write, check, release: no slot has two owners, none stays out", Pool, Free, Mutexed,
                   Poisoned, Growing) {
  many_threads<Pool>(100'000);
}
TEST_CASE("slot_pool: 8 threads that wait for 5 slots all get one each time") { CHECK(many_threads<Waiting>(500).failures == 0); }
