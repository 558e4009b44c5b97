// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/host/pinned_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/backend/layer/limited.hpp"
#include "holdfast/concepts/sink.hpp"
#include "support/fake_pinner.hpp"
#include "support/strict_memory.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

// Addresses without memory behind them: requests of any size cost nothing. Nobody may touch them, so only whole pages are asked for.
struct Addresses {
  static constexpr MemorySpace space = MemorySpace::host;
  std::uintptr_t* next;
  Bytes* live;
  Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    const auto a = static_cast<std::uintptr_t>(alignment.value());
    *next = (*next + a - 1) / a * a;
    auto* p = reinterpret_cast<std::byte*>(*next);
    *next += static_cast<std::uintptr_t>(size);
    *live += size;
    return Block{p, size};
  }
  void deallocate(Block b) noexcept { *live -= b.size; }
};

using Strict = Stack<StrictMemory, Pinned<FakePinner>>;
using Heap = BasicPinnedHeap<Strict, FakeMeter>;

struct Rig {
  StrictLog log;
  FakePinner pinner;
  MemoryRoom room;
  int asked = 0;
  Heap heap;
  explicit Rig(PinnedOptions options = {})
      : heap(std::move(*Heap::make(options, make_stack<Strict>(StrictMemory(log), pinner), FakeMeter{&room, &asked}))) {}
};
std::uintptr_t number(const Block& b) { return reinterpret_cast<std::uintptr_t>(b.data); }

}  // namespace

TEST_CASE("pinned_pool: both numbers are right all the time: what is asked for, and what the pinner has pinned") {
  Rig rig;
  auto pool = rig.heap.pool();
  std::mt19937 random(3);
  std::vector<std::pair<Block, int>> live;
  Bytes requested = 0, peak = 0;
  for (int i = 0; i < 6000; ++i) {
    if (live.size() > 60 || (!live.empty() && random() % 2 == 0)) {
      std::swap(live[random() % live.size()], live.back());
      const auto [block, value] = live.back();
      live.pop_back();
      CHECK(std::all_of(block.data, block.data + block.size, [v = value](std::byte b) { return b == static_cast<std::byte>(v); }));
      requested -= block.size;
      pool.deallocate(block);
    } else {
      const Bytes size = 1 + static_cast<Bytes>(random() % (1u << (random() % 18)));
      const Bytes alignment = Bytes{1} << (random() % 15);
      const Result<Block> block = pool.allocate(size, Alignment(alignment));
      REQUIRE(block.ok());
      CHECK(block->size == size);
      CHECK(number(*block) % static_cast<std::uintptr_t>(std::max<Bytes>(alignment, 64)) == 0);
      std::fill_n(block->data, size, static_cast<std::byte>(i));
      live.emplace_back(*block, i & 255);
      requested += size;
      peak = std::max(peak, requested);
    }
    const PinnedStatistics s = pool.statistics();
    CHECK(s.requested == requested);
    CHECK(s.peak_requested == peak);
    CHECK(s.locked == rig.pinner.bytes);
    CHECK(s.peak_locked == rig.pinner.peak);
    CHECK(s.locked >= s.requested + s.cached);
  }
  for (const auto& [block, value] : live) pool.deallocate(block);
  CHECK(pool.statistics().requested == 0);
  pool.trim(0);
  CHECK(pool.statistics().cached == 0);
  CHECK(pool.statistics().locked == rig.pinner.bytes);
  CHECK(rig.pinner.bytes <= 30 * 64_KiB);  // the runs of small blocks stay
}

TEST_CASE("pinned_pool: a heap that goes unpins and gives back all") {
  StrictLog log;
  FakePinner pinner;
  MemoryRoom room;
  int asked = 0;
  {
    Heap heap = std::move(*Heap::make({}, make_stack<Strict>(StrictMemory(log), pinner), FakeMeter{&room, &asked}));
    auto pool = heap.pool();
    for (const Bytes size : {1, 100, 5000, 100'000}) pool.deallocate(*pool.allocate(size, Alignment(1)));
    CHECK(pinner.bytes > 0);
    Heap moved = std::move(heap);
    CHECK(moved.pool() == pool);
  }
  CHECK(pinner.bytes == 0);
  CHECK(pinner.wrong == 0);
  CHECK(log.live.empty());
  CHECK(log.wrong == 0);
  PinnedOptions bad;
  bad.limit = -1;
  CHECK(Heap::make(bad, make_stack<Strict>(StrictMemory(log), pinner), FakeMeter{&room, &asked}).error().code == Errc::invalid_argument);
}

TEST_CASE("cases/08 A: the bytes pinned for one request are at most the request and max(64 KiB, an eighth)") {
  std::uintptr_t next = 1u << 20;
  Bytes live = 0;
  using Fake = BasicPinnedHeap<Addresses, NoMeter>;
  Fake heap = std::move(*Fake::make({}, Addresses{&next, &live}));
  auto pool = heap.pool();
  std::mt19937_64 random(7);
  std::vector<Bytes> sizes = {4096, 65537, 5368713216, 8589934593, 21894266880, 64_MiB, 64_MiB - 1, 64_MiB + 1};
  for (int i = 0; i < 2000; ++i) sizes.push_back(1025 + static_cast<Bytes>(random() % (std::uint64_t{1} << (1 + random() % 34))));
  for (const Bytes size : sizes) {
    pool.trim(0);
    const Block block = *pool.allocate(size, Alignment(64));
    CHECK(live >= size);
    CHECK(live <= size + std::max(64_KiB, size / 8));
    CHECK(pool.statistics().locked == live);
    if (size >= 64_MiB) CHECK(live == align_up(size, 4096));  // exact
    pool.deallocate(block);
    if (size >= 64_MiB) CHECK(live == 0);  // and unpinned at once
  }
  Rig small;
  static_cast<void>(*small.heap.pool().allocate(1, Alignment(1)));
  CHECK(small.pinner.bytes <= 1 + 64_KiB);
}

TEST_CASE("cases/08 B: 4 GiB freed, then 10 KiB, then 4 GiB again: never more than 4 GiB and 1 MiB pinned") {
  std::uintptr_t next = 1u << 20;
  Bytes live = 0;
  using Fake = BasicPinnedHeap<Addresses, NoMeter>;
  Fake heap = std::move(*Fake::make({}, Addresses{&next, &live}));
  auto pool = heap.pool();
  const Block a = *pool.allocate(4_GiB, Alignment(64));
  CHECK(live == 4_GiB);
  pool.deallocate(a);
  const Block b = *pool.allocate(10_KiB, Alignment(64)), c = *pool.allocate(4_GiB, Alignment(64));
  CHECK(pool.statistics().peak_locked <= 4_GiB + 1_MiB);
  pool.deallocate(b);
  pool.deallocate(c);
}

TEST_CASE("pinned_pool: five of 1.20 GiB lock 6.0 GiB, not 10") {
  std::uintptr_t next = 1u << 20;
  Bytes live = 0;
  using Fake = BasicPinnedHeap<Addresses, NoMeter>;
  Fake heap = std::move(*Fake::make({}, Addresses{&next, &live}));
  auto pool = heap.pool();
  for (int i = 0; i < 5; ++i) static_cast<void>(*pool.allocate(1288490189, Alignment(64)));
  CHECK(pool.statistics().requested == 5 * Bytes{1288490189});
  CHECK(pool.statistics().locked == 5 * Bytes{1288491008});
}

TEST_CASE("pinned_pool: a freed block serves the next of its size without the pinner, and old ones go when too many are kept") {
  PinnedOptions options;
  options.cache_limit = 1_MiB;
  Rig rig(options);
  auto pool = rig.heap.pool();
  const Block a = *pool.allocate(100'000, Alignment(64));
  pool.deallocate(a);
  const int calls = rig.pinner.calls;
  const Block b = *pool.allocate(99'000, Alignment(64));  // the same class
  CHECK(b.data == a.data);
  CHECK(rig.pinner.calls == calls);
  pool.deallocate(b);
  const Block aligned = *pool.allocate(99'000, Alignment(1_MiB));  // not what lies there, unless by chance
  CHECK(number(aligned) % 1_MiB == 0);
  pool.deallocate(aligned);
  std::vector<Block> all;
  for (int i = 0; i < 40; ++i) all.push_back(*pool.allocate(50'000, Alignment(64)));
  for (const Block& x : all) pool.deallocate(x);
  CHECK(pool.statistics().cached <= 1_MiB);
  CHECK(pool.statistics().cached > 900_KiB);
  CHECK(pool.trim(500_KiB) > 0);
  CHECK(pool.statistics().locked <= 500_KiB);
  std::vector<Block> many;
  for (int i = 0; i < 400; ++i) many.push_back(*pool.allocate(2000, Alignment(64)));  // more blocks than are remembered
  for (const Block& x : many) pool.deallocate(x);
  CHECK(pool.statistics().cached == 256 * 4096);
  CHECK(pool.statistics().locked == rig.pinner.bytes);
}

TEST_CASE("pinned_pool: the budget is asked for before each growth: the user's limit, the control group, the system, each by name") {
  PinnedOptions options;
  options.limit = 1_MiB;
  options.reserve = 100_KiB;
  Rig rig(options);
  auto pool = rig.heap.pool();
  const Block a = *pool.allocate(900_KiB, Alignment(64));
  CHECK(rig.asked == 1);
  const Bytes locked = pool.statistics().locked;
  CHECK(locked == 960_KiB);  // in steps of 64 KiB
  Error e = pool.allocate(200_KiB, Alignment(64)).error();
  CHECK(e.code == Errc::over_budget);
  CHECK(sentence(e) == "the limit of pinned host memory is reached (requested 204800, available " + std::to_string(64_KiB) + ") [limit 1048576]");
  CHECK(pool.statistics().locked == locked);
  pool.deallocate(a);  // kept, and given up when its room is needed
  const Block b = *pool.allocate(500_KiB, Alignment(64));
  CHECK(pool.statistics().locked == 512_KiB);
  rig.room = {300_KiB, LimitSource::cgroup};
  e = pool.allocate(201_KiB, Alignment(64)).error();
  CHECK(status_kind(e) == StatusKind::resource_exhausted);
  CHECK(sentence(e) == "the control group has no more memory to pin on the host (requested 205824, available 196608)");  // of 200 KiB, the largest that fits
  const Block c = *pool.allocate(196608, Alignment(64));
  rig.room = {50_KiB, LimitSource::system};
  e = pool.allocate(100_KiB, Alignment(64)).error();
  CHECK(sentence(e) == "the system has no more memory to pin on the host (requested 102400, available 0)");
  pool.deallocate(c);
  const Block again = *pool.allocate(196608, Alignment(64));  // from what is kept: nothing grows
  CHECK(pool.allocate(1, Alignment(1)).error().requested == 1);
  pool.deallocate(again);
  pool.deallocate(b);
}

TEST_CASE("pinned_pool: what the pinner refuses is tried once more without what is kept, then the caller's error; nothing leaks") {
  Rig rig;
  auto pool = rig.heap.pool();
  pool.deallocate(*pool.allocate(100_KiB, Alignment(64)));
  rig.pinner.limit = 120_KiB;
  CHECK(rig.pinner.calls == 1);
  const Block block = *pool.allocate(110_KiB, Alignment(64));
  CHECK(rig.pinner.calls == 3);  // refused, and again after one purge (cases/05 2)
  CHECK(pool.statistics().cached == 0);
  const int calls = rig.pinner.calls;
  const Error e = pool.allocate(20_KiB, Alignment(64)).error();
  CHECK(rig.pinner.calls == calls + 1);  // nothing was kept: one call
  CHECK(e.code == Errc::over_budget);
  CHECK(e.native == 12);
  CHECK(e.requested == 20_KiB);
  CHECK(pool.statistics().locked == rig.pinner.bytes);
  CHECK(pool.statistics().requested == 110_KiB);
  CHECK(!pool.allocate(8, Alignment(1)).ok());
  pool.deallocate(block);
  CHECK(pool.allocate(8, Alignment(1)).ok());
}

TEST_CASE("cases/05: sizes near the largest are refused before the upstream is called") {
  Rig rig;
  auto pool = rig.heap.pool();
  for (const Bytes size : {max_bytes, max_bytes - 1, max_bytes - 4095, max_bytes - 4096, Bytes{1} << 62}) {
    CHECK(status_kind(pool.allocate(size, Alignment(64)).error()) == StatusKind::resource_exhausted);
    CHECK(pool.statistics().locked == 0);
  }
  CHECK(rig.pinner.calls == 0);
  CHECK(pool.allocate(-1, Alignment(1)).error().code == Errc::invalid_argument);
  const Block block = *pool.allocate(1024, Alignment(64));
  pool.deallocate(block);
}

TEST_CASE("pinned_pool: threads") {
  PinnedOptions options;
  options.cache_limit = 200_KiB;
  options.limit = 3_MiB;
  Rig rig(options);
  std::atomic<bool> torn{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      auto pool = rig.heap.pool();
      std::mt19937 random(t);
      std::vector<Block> live;
      for (int i = 0; i < 2000; ++i) {
        if (!live.empty() && random() % 2 == 0) {
          const Block block = live.back();
          live.pop_back();
          if (*block.data != block.data[block.size - 1]) torn = true;
          pool.deallocate(block);
          continue;
        }
        const Result<Block> block = pool.allocate(1 + static_cast<Bytes>(random() % (1u << (random() % 17))), Alignment(64));
        if (!block.ok()) continue;
        *block->data = block->data[block->size - 1] = static_cast<std::byte>(random());
        live.push_back(*block);
        if (i % 500 == 0) pool.trim(0);
      }
      for (const Block& b : live) pool.deallocate(b);
    });
  for (auto& t : threads) t.join();
  CHECK(!torn);
  const PinnedStatistics s = rig.heap.pool().statistics();
  CHECK(s.requested == 0);
  CHECK(s.locked == rig.pinner.bytes);
  CHECK(s.peak_locked <= 3_MiB);
  CHECK(rig.pinner.wrong == 0);
}

TEST_CASE("pinned_pool: over the real mlock") {
  PinnedHeap heap = std::move(*PinnedHeap::make());
  PinnedPool pool = heap.pool();
  const Result<Block> block = pool.allocate(10'000, Alignment(64));
  if (block.ok()) {
    std::fill_n(block->data, block->size, std::byte{1});
    CHECK(pool.statistics().locked == 12'288);
    pool.deallocate(*block);
  } else {
    CHECK(status_kind(block.error()) == StatusKind::resource_exhausted);
  }
}
