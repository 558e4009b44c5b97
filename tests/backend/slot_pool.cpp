// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/host/slot_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/fake_clock.hpp"
#include "support/gate.hpp"
#include "support/strict_memory.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

std::uintptr_t number(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

SlotPoolOptions slots(std::int64_t count, Bytes size = 4) {
  SlotPoolOptions o;
  o.count = count;
  o.size = size;
  return o;
}
template <class Pool>
Pool make(StrictLog& log, const SlotPoolOptions& options) {
  Result<Pool> pool = Pool::make(StrictMemory(log), options);
  REQUIRE(pool.ok());
  return std::move(*pool);
}
template <class Pool>
std::vector<typename Pool::Slot> fill(Pool& pool, int n) {
  std::vector<typename Pool::Slot> held;
  for (int i = 0; i < n; ++i) held.push_back(std::move(*pool.acquire(Tag{"filler", static_cast<std::uint64_t>(i)})));
  return held;
}

using Free = SlotPool<StrictMemory, PackedSlots>;
using Mutexed = SlotPool<StrictMemory, PackedSlots, FailWhenFull, WordLock>;
using Single = SlotPool<StrictMemory, PackedSlots, FailWhenFull, NoLock>;
using Poisoned = SlotPool<StrictMemory, CacheLineSlots, FailWhenFull, LockFree, PoisonOnRelease>;
using Waiting = SlotPool<StrictMemory, CacheLineSlots, WaitWhenFull>;
using Growing = SlotPool<StrictMemory, CacheLineSlots, GrowWhenFull>;
using LockedGrowing = SlotPool<StrictMemory, CacheLineSlots, GrowWhenFull, WordLock>;
static_assert(sizeof(Free) == sizeof(void*) && !std::is_copy_constructible_v<Free::Slot>);

struct Reports {
  std::vector<SlotReport> all;
  static void take(void* context, const SlotReport& r) noexcept { static_cast<Reports*>(context)->all.push_back(r); }
};

}  // namespace

TEST_CASE_TEMPLATE("HP1: 128 packed slots of 4 bytes come in order, the 129th fails with the count", Pool, Free, Mutexed, Single) {
  StrictLog log;
  Pool pool = make<Pool>(log, slots(128));
  CHECK(log.calls.size() == 1);
  CHECK(log.calls[0].size == 512);
  auto held = fill(pool, 128);
  const std::uintptr_t base = number(held[0].block().data);
  for (std::size_t i = 0; i < 128; ++i) CHECK(number(held[i].block().data) == base + 4 * i);
  const auto more = pool.acquire();
  REQUIRE(!more.ok());
  CHECK(status_kind(more.error()) == StatusKind::resource_exhausted);
  const SlotPoolStatistics s = pool.statistics();
  CHECK(s.in_use == 128);
  CHECK(s.peak_in_use == 128);
  CHECK(s.capacity == 128);
  CHECK(s.failures == 1);
  CHECK(s.acquires == 128);
  CHECK(sentence(more.error()) == "all pinned host slots are in use (requested 1, available 0) [count 128]");
}

TEST_CASE_TEMPLATE("HP2: a slot that comes back goes out again; cycles leave none in use", Pool, Free, Mutexed, Single) {
  StrictLog log;
  Pool pool = make<Pool>(log, slots(128));
  auto held = fill(pool, 128);
  const std::byte* fifth = held[4].block().data;
  CHECK(held[4].release().ok());
  CHECK(!held[4]);
  held[4] = std::move(*pool.acquire());
  CHECK(held[4].block().data == fifth);
  held.clear();
  for (int i = 0; i < 130; ++i) CHECK(pool.acquire().ok());
  const SlotPoolStatistics s = pool.statistics();
  CHECK(s.in_use == 0);
  CHECK(s.acquires == 128 + 1 + 130);
  CHECK(log.calls.size() == 1);
}

TEST_CASE("HP3: a handle moved onto another frees the other's slot at once; an empty one gives an error") {
  StrictLog log;
  auto pool = std::move(*Free::make_for<float>(StrictMemory(log), slots(8)));
  auto held = fill(pool, 8);
  Free::Slot& a = held[2];
  Free::Slot& b = held[7];
  CHECK(pool.statistics().in_use == 8);
  b = std::move(a);
  CHECK(pool.statistics().in_use == 7);
  CHECK(b.index() == 2);
  CHECK(!a);
  CHECK(a.get<float>().error().code == Errc::wrong_state);
  CHECK(a.block() == Block{});
  CHECK(pool.acquire()->index() == 7);
  Free::Slot& same = b;
  b = std::move(same);  // onto itself it stays
  CHECK(b.get<float>().ok());
  CHECK(b.get<std::int32_t>().error().code == Errc::invalid_argument);
  CHECK(b.get<double>().error().code == Errc::invalid_argument);
  **b.get<float>() = 1.5f;
  CHECK(**b.get<float>() == 1.5f);
  CHECK(a.release().ok());
}

TEST_CASE("slot_pool: without a type any that fits is read") {
  StrictLog log;
  SlotPoolOptions o = slots(2, 8);
  o.alignment = 4;
  Free pool = make<Free>(log, o);
  auto slot = std::move(*pool.acquire());
  CHECK(slot.get<std::int32_t>().ok());
  CHECK(slot.get<char>().ok());
  CHECK(slot.get<double>().error().code == Errc::invalid_argument);  // aligned to 4 only
  struct Large {
    char bytes[9];
  };
  CHECK(slot.get<Large>().error().code == Errc::invalid_argument);
}

TEST_CASE("HP4: a cache line for each slot of 1 byte: 8192 native bytes, all on lines of their own; spaced ones lie 128 apart") {
  StrictLog log;
  auto pool = make<SlotPool<StrictMemory>>(log, slots(128, 1));
  CHECK(log.calls[0].size == 8192);
  CHECK(log.calls[0].alignment == 64);
  auto held = fill(pool, 128);
  for (auto& s : held) CHECK(number(s.block().data) % 64 == 0);
  auto spaced = make<SlotPool<StrictMemory, SpacedSlots>>(log, slots(2, 1));
  auto two = fill(spaced, 2);
  CHECK(two[1].block().data - two[0].block().data == 128);
  SlotPoolOptions page = slots(2, 1);
  page.alignment = 4096;
  auto aligned = make<Free>(log, page);
  CHECK(log.calls.back().alignment == 4096);
  CHECK(number(aligned.acquire()->block().data) % 4096 == 0);
}

TEST_CASE("slot_pool: no slots, too many, sizes that overflow and bad alignments are invalid before any native call") {
  StrictLog log;
  const auto code = [&](SlotPoolOptions o) { return SlotPool<StrictMemory>::make(StrictMemory(log), o).error().code; };
  CHECK(code(slots(0)) == Errc::invalid_argument);
  CHECK(code(slots(-1)) == Errc::invalid_argument);
  CHECK(code(slots(128, 0)) == Errc::invalid_argument);
  CHECK(code(slots(128, -4)) == Errc::invalid_argument);
  CHECK(code(slots(128, max_bytes)) == Errc::invalid_argument);
  CHECK(code(slots(128, max_bytes / 127)) == Errc::invalid_argument);
  CHECK(code(slots(32768)) == Errc::invalid_argument);
  CHECK(code(slots(max_bytes)) == Errc::invalid_argument);
  for (const Bytes alignment : {Bytes{0}, Bytes{3}, -max_bytes}) {
    SlotPoolOptions o = slots(4);
    o.alignment = alignment;
    CHECK(code(o) == Errc::invalid_argument);
  }
  CHECK(log.calls.empty());
  CHECK(SlotPool<StrictMemory>::make(StrictMemory(log), slots(32767)).ok());
}

TEST_CASE("cases/08 C: 64 slots of 8 bytes lie 8 apart, the 65th is refused with the capacity, and all come back") {
  StrictLog log;
  {
    Free pool = make<Free>(log, slots(64, 8));
    auto held = fill(pool, 64);
    for (std::size_t i = 1; i < 64; ++i) CHECK(held[i].block().data - held[i - 1].block().data == 8);
    const Error e = pool.acquire().error();
    CHECK(status_kind(e) == StatusKind::resource_exhausted);
    CHECK(e.at == 64);
    held[10] = Free::Slot();
    CHECK(pool.statistics().in_use == 63);
    CHECK(pool.acquire().ok());
    held[11] = std::move(held[12]);
    CHECK(pool.statistics().in_use == 62);
    held.clear();
    CHECK(pool.statistics().in_use == 0);
    auto again = fill(pool, 64);
    std::vector<std::byte*> all;
    for (auto& s : again) all.push_back(s.block().data);
    std::sort(all.begin(), all.end());
    CHECK(std::unique(all.begin(), all.end()) == all.end());
  }
  CHECK(log.live.empty());
  CHECK(log.wrong == 0);
}

TEST_CASE("HP5: who waits gets the slot that comes back, or a deadline; in order of coming (fake clock)") {
  StrictLog log;
  FakeTime time;
  using Pool = SlotPool<StrictMemory, CacheLineSlots, WaitWhenFull, NoLock, KeepBytes, FakeClock>;
  SlotPoolOptions o = slots(2);
  o.timeout = 50 * millisecond;
  Pool pool = std::move(*Pool::make(StrictMemory(log), o, FakeClock(time)));
  auto held = fill(pool, 2);
  time.at(time.now + 10 * millisecond, [&] { CHECK(held[1].release().ok()); });
  auto slot = pool.acquire();
  REQUIRE(slot.ok());
  CHECK(slot->index() == 1);
  SlotPoolStatistics s = pool.statistics();
  CHECK(s.waits == 1);
  CHECK(s.wait_total == 10 * millisecond);
  const Error e = pool.acquire().error();
  CHECK(e.code == Errc::deadline);
  s = pool.statistics();
  CHECK(s.waits == 2);
  CHECK(s.wait_total == 60 * millisecond);
  CHECK(s.wait_max == 50 * millisecond);
  CHECK(s.failures == 1);
  CHECK(s.in_use == 2);
  CHECK(s.acquires == 3);
}

TEST_CASE("HP5: with threads: a releaser at 10 ms lets the waiter through between 10 and 50 ms; without one it is a deadline") {
  StrictLog log;
  SlotPoolOptions o = slots(1);
  o.timeout = 10'000 * millisecond;  // a loaded machine may be late; the lower bound is what is exact
  Waiting pool = make<Waiting>(log, o);
  auto held = fill(pool, 1);
  std::thread releaser([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    static_cast<void>(held[0].release());
  });
  const std::int64_t start = MonotonicClock{}.now();
  auto slot = pool.acquire();
  releaser.join();
  REQUIRE(slot.ok());
  CHECK(pool.statistics().wait_total <= MonotonicClock{}.now() - start);
  CHECK(pool.statistics().waits <= 1);
  SlotPoolOptions shorter = slots(1);
  shorter.timeout = 50 * millisecond;
  Waiting other = make<Waiting>(log, shorter);
  auto all = fill(other, 1);
  CHECK(other.acquire().error().code == Errc::deadline);
  CHECK(other.statistics().waits == 1);
  CHECK(other.statistics().wait_total >= 50 * millisecond);
}

TEST_CASE("slot_pool: waiters are served in the order in which they came, and nobody passes them") {
  StrictLog log;
  SlotPoolOptions o = slots(1);
  o.timeout = 20'000 * millisecond;
  Waiting pool = make<Waiting>(log, o);
  auto held = fill(pool, 1);
  std::atomic<int> served{0};
  std::vector<int> order(3, -1);
  std::vector<std::unique_ptr<Caller>> waiters;
  for (std::size_t i = 0; i < 3; ++i) {
    waiters.push_back(std::make_unique<Caller>([&, i] {
      auto slot = pool.acquire();
      if (slot.ok()) order[i] = served++;
    }));
    CHECK(waiters.back()->blocks());
  }
  CHECK(held[0].release().ok());
  for (auto& w : waiters) CHECK(w->returns_soon());
  CHECK(order == std::vector<int>{0, 1, 2});
  CHECK(pool.statistics().in_use == 0);
}

TEST_CASE_TEMPLATE("HP6: a pool of 128 grows to 256 without moving a slot; the 257th is refused", Pool, Growing, LockedGrowing) {
  StrictLog log;
  SlotPoolOptions o = slots(128);
  o.max_count = 256;
  {
    Pool pool = make<Pool>(log, o);
    auto held = fill(pool, 128);
    std::vector<std::byte*> before;
    for (auto& s : held) before.push_back(s.block().data);
    CHECK(log.calls.size() == 1);
    auto more = fill(pool, 128);
    for (std::size_t i = 0; i < 128; ++i) CHECK(held[i].block().data == before[i]);
    CHECK(log.calls.size() == 2);
    CHECK(status_kind(pool.acquire().error()) == StatusKind::resource_exhausted);
    const SlotPoolStatistics s = pool.statistics();
    CHECK(s.capacity == 256);
    CHECK(s.growths == 1);
    CHECK(s.peak_in_use == 256);
    std::vector<std::byte*> all = before;
    for (auto& m : more) all.push_back(m.block().data);
    std::sort(all.begin(), all.end());
    CHECK(std::unique(all.begin(), all.end()) == all.end());
  }
  CHECK(log.live.empty());
  o.max_count = 200;  // the last block is smaller
  {
    Pool pool = make<Pool>(log, o);
    auto held = fill(pool, 200);
    CHECK(!pool.acquire().ok());
    CHECK(log.calls.back().size == 72 * 64);
    log.fail_at = static_cast<long>(log.calls.size()) + 2;
    Pool other = make<Pool>(log, o);
    auto some = fill(other, 128);
    const Error e = other.acquire().error();  // the backend refuses the growth, once
    CHECK(e.code == Errc::out_of_memory);
    CHECK(e.requested == 72 * 64);
    CHECK(other.statistics().growths == 0);
    CHECK(other.acquire().ok());
  }
  CHECK(log.live.empty());
  CHECK(log.wrong == 0);
}

TEST_CASE("HP8: a pool that goes with 3 slots out reports them; the handles stay good and give the memory back at the end") {
  StrictLog log;
  Reports reports;
  FakeTime time;
  using Pool = SlotPool<StrictMemory, CacheLineSlots, FailWhenFull, LockFree, KeepBytes, FakeClock>;
  std::vector<Pool::Slot> kept;
  {
    SlotPoolOptions o = slots(16);
    o.report = &Reports::take;
    o.context = &reports;
    Pool pool = std::move(*Pool::make(StrictMemory(log), o, FakeClock(time)));
    auto held = fill(pool, 10);
    time.now += 7 * millisecond;
    for (const std::size_t i : {1u, 4u, 9u}) kept.push_back(std::move(held[i]));
    held.clear();
    CHECK(reports.all.empty());
  }
  REQUIRE(reports.all.size() == 3);
  CHECK(reports.all[1].kind == SlotReportKind::live_at_end);
  CHECK(reports.all[1].index == 4);
  CHECK(reports.all[1].tag.number == 4);
  CHECK(reports.all[1].age == 7 * millisecond);
  CHECK(log.live.size() == 1);
  for (auto& s : kept) *s.block().data = std::byte{1};
  kept.pop_back();
  CHECK(kept[0].release().ok());
  CHECK(log.live.size() == 1);
  kept.clear();
  CHECK(log.live.empty());
  CHECK(log.wrong == 0);
}

TEST_CASE("slot_pool: memory that outlives a pool stays with leak_at_end, and the handles are still safe") {
  StrictLog log;
  Free::Slot kept;
  {
    SlotPoolOptions o = slots(4);
    o.leak_at_end = true;
    Free pool = make<Free>(log, o);
    kept = std::move(*pool.acquire());
  }
  kept = {};
  CHECK(log.live.size() == 1);
  StrictMemory(log).deallocate({log.live.begin()->first, log.live.begin()->second});
  {
    SlotPoolOptions o = slots(4);
    o.leak_at_end = true;
    Free pool = make<Free>(log, o);
    CHECK(pool.acquire().ok());
  }
  CHECK(log.live.empty());  // nothing was out
}

TEST_CASE("HP9: a write after the release is found when the slot goes out again, with its index and who had it") {
  StrictLog log;
  Reports reports;
  SlotPoolOptions o = slots(4);
  o.report = &Reports::take;
  o.context = &reports;
  Poisoned pool = make<Poisoned>(log, o);
  std::byte* stray = nullptr;
  {
    auto first = std::move(*pool.acquire(Tag{"first", 1}));
    auto second = std::move(*pool.acquire(Tag{"second", 2}));
    CHECK(*first.block().data == std::byte{0xA5});
    CHECK(second.index() == 1);
    stray = second.block().data;
    for (Bytes i = 0; i < 4; ++i) stray[i] = first.block().data[i] = std::byte{7};  // in time: nothing wrong
  }
  CHECK(reports.all.empty());
  CHECK(*stray == std::byte{0xA5});
  stray[2] = std::byte{7};
  auto held = fill(pool, 4);
  REQUIRE(reports.all.size() == 1);
  CHECK(reports.all[0].kind == SlotReportKind::damaged);
  CHECK(reports.all[0].index == 1);
  CHECK(reports.all[0].tag.name == std::string_view("second"));
  CHECK(pool.statistics().damaged == 1);
}

TEST_CASE("slot_pool: zeroed slots are zero whoever had them") {
  StrictLog log;
  auto pool = make<SlotPool<StrictMemory, PackedSlots, FailWhenFull, LockFree, ZeroOnAcquire>>(log, slots(2));
  for (int i = 0; i < 6; ++i) {
    auto slot = std::move(*pool.acquire());
    for (Bytes at = 0; at < 4; ++at) CHECK(slot.block().data[at] == std::byte{0});
    slot.block().data[i % 4] = std::byte{9};
  }
}

TEST_CASE("HP10: what the backend refuses is an error that says pinned host and the bytes") {
  StrictLog log;
  log.fail_at = 1;
  const Error e = SlotPool<StrictMemory>::make(StrictMemory(log), slots(128, 1)).error();
  CHECK(e.code == Errc::out_of_memory);
  CHECK(sentence(e) == "Out of memory allocating pinned host slots (requested 8192)");
  CHECK(log.live.empty());
}

TEST_CASE_TEMPLATE("slot_pool: a slot given back twice, by name or by handle, is an error, counted, and the list stays whole", Pool, Free,
                   Mutexed) {
  StrictLog log;
  Reports reports;
  SlotPoolOptions o = slots(4);
  o.report = &Reports::take;
  o.context = &reports;
  Pool pool = make<Pool>(log, o);
  auto slot = std::move(*pool.acquire());
  const SlotId id = slot.detach();
  CHECK(!slot);
  CHECK(pool.statistics().in_use == 1);
  auto back = std::move(*pool.adopt(id));
  CHECK(back.index() == id.index);
  auto twin = std::move(*pool.adopt(id));
  CHECK(back.release().ok());
  CHECK(twin.release().code == Errc::internal);
  CHECK(pool.release(id).code == Errc::internal);
  CHECK(pool.adopt(id).error().code == Errc::internal);
  auto next = std::move(*pool.acquire());  // the same slot, another holder
  CHECK(next.index() == id.index);
  CHECK(pool.release(id).code == Errc::internal);
  CHECK(pool.release({99, 1}).code == Errc::internal);
  CHECK(pool.release({1, 0}).code == Errc::internal);
  CHECK(pool.statistics().stale_releases == 6);
  CHECK(reports.all.size() == 6);
  CHECK(pool.statistics().in_use == 1);
  auto rest = fill(pool, 3);
  CHECK(!pool.acquire().ok());
  CHECK(pool.release(next.detach()).ok());
}

TEST_CASE("slot_pool: the full text of exhaustion names the oldest holder, its age and tag") {
  StrictLog log;
  FakeTime time;
  using Pool = SlotPool<StrictMemory, CacheLineSlots, FailWhenFull, LockFree, KeepBytes, FakeClock>;
  Pool pool = std::move(*Pool::make(StrictMemory(log), slots(2), FakeClock(time)));
  auto first = std::move(*pool.acquire(Tag{"a", 1}));
  time.now += 5 * millisecond;
  auto second = std::move(*pool.acquire(Tag{"b", 2}));
  first = {};
  time.now += 12 * millisecond;
  first = std::move(*pool.acquire(Tag{"c", 3}));
  StringSink out;
  CHECK(!pool.acquire({}, out).ok());
  CHECK(out.text ==
        "all pinned host slots are in use (requested 1, available 0) [count 2]; 2 of 2 pinned host slots are in use; slot 1 has been held "
        "for 12 ms by \"b\" 2");
}

TEST_CASE("slot_pool: a moved pool is the same pool") {
  StrictLog log;
  Free a = make<Free>(log, slots(4)), b = make<Free>(log, slots(8));
  auto slot = std::move(*a.acquire());
  b = std::move(a);
  CHECK(b.statistics().in_use == 1);
  slot = {};
  CHECK(b.statistics().in_use == 0);
  Free c(std::move(b));
  CHECK(c.statistics().capacity == 4);
}
