// SPDX-License-Identifier: Apache-2.0
// The host pool under real threads for a while: HOLDFAST_STRESS_SECONDS, 2 unless set. Meant for the sanitizers.
#include "holdfast/backend/host/host_pool.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

using namespace holdfast;

namespace {

double seconds() {
  const char* set = std::getenv("HOLDFAST_STRESS_SECONDS");
  return set != nullptr ? std::atof(set) : 2;
}

// Eight threads allocate, write, hand blocks to each other, check and free what they were handed, trim and look; threads end and
// are made anew all the while. A block that two own at a time shows two values. A limit that is often reached is what refuses, and
// nothing else does.
void eight_threads(Bytes limit) {
  CAPTURE(limit);
  HostPoolOptions options;
  options.limit = limit;
  options.region_size = Bytes{64} << 20;  // several regions
  options.cache_limit = Bytes{2} << 20;
  HostHeap heap = std::move(*HostHeap::make(options));
  std::mutex lock;
  std::vector<Block> shared;  // what one thread leaves for another
  std::atomic<bool> stop{false}, torn{false};
  std::atomic<long> done{0}, refused{0};
  const auto life = [&](unsigned seed) {
    HostPool pool = heap.pool();
    std::mt19937 random(seed);
    std::vector<Block> mine;
    const auto end_of = [](const Block& b) { return b.data + b.size - 1; };
    const auto free_one = [&](const Block& b) {
      if (*b.data != *end_of(b)) torn = true;
      *b.data = std::byte{0xEE};
      pool.deallocate(b);
    };
    for (int i = 0; i < 3000 && !stop.load(std::memory_order_relaxed); ++i) {
      const unsigned what = random() % 64;
      if (what < 30) {
        const Bytes size = 1 + static_cast<Bytes>(random() % (1u << (1 + random() % 20)));
        const Result<Block> b = pool.allocate(size, Alignment(Bytes{1} << (random() % 14)));
        if (!b.ok()) {
          refused.fetch_add(1, std::memory_order_relaxed);
          if (b.error().code != Errc::over_budget) torn = true;
          for (const Block& x : mine) free_one(x);
          mine.clear();
          continue;
        }
        *b->data = *end_of(*b) = static_cast<std::byte>(random());
        mine.push_back(*b);
      } else if (what < 50) {
        if (mine.empty()) continue;
        std::swap(mine[random() % mine.size()], mine.back());
        free_one(mine.back());
        mine.pop_back();
      } else if (what < 62) {
        std::lock_guard guard(lock);
        mine.swap(shared);
      } else if (what == 62) {
        if (random() % 16 == 0) pool.trim(static_cast<Bytes>(random() % (8u << 20)));
      } else if (random() % 16 == 0) {
        const HostPoolStatistics s = pool.statistics();
        if (s.free > s.reserved || s.largest_free > s.free || s.reserved > s.peak_reserved || s.peak_reserved > limit) torn = true;
      }
      done.fetch_add(1, std::memory_order_relaxed);
    }
    for (const Block& b : mine) free_one(b);
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (unsigned n = 0; !stop.load(std::memory_order_relaxed); ++n) std::thread(life, t * 1000 + n).join();
    });
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds() / 2));
  stop = true;
  for (std::thread& t : threads) t.join();
  HostPool pool = heap.pool();
  for (const Block& b : shared) pool.deallocate(b);
  CHECK(!torn);
  CHECK((refused != 0) == (limit != max_bytes));
  CHECK(done > 1000);
  CHECK(pool.statistics().live == 0);
  pool.trim(0);
  CHECK(pool.statistics().reserved == 0);  // every cache came back
  std::printf("%ld operations, %ld refused\n", done.load(), refused.load());
}

}  // namespace

TEST_CASE("host_pool: 8 threads of mixed allocate, free on another thread, trim and statistics keep every block whole") {
  eight_threads(max_bytes);
  eight_threads(Bytes{12} << 20);
}

TEST_CASE("host_pool: a thread that outlives a pool goes on with another, and blocks outlive the thread that took them") {
  std::atomic<int> step{0};
  const auto wait_for = [&](int n) {
    while (step.load() < n) std::this_thread::yield();
  };
  auto first = std::make_unique<HostHeap>(std::move(*HostHeap::make()));
  Block left;
  std::thread other([&] {
    HostPool a = first->pool();
    a.deallocate(*a.allocate(1000, Alignment(64)));
    step = 1;
    wait_for(2);  // the pool is gone, this thread's cache of it is not
    HostHeap second = std::move(*HostHeap::make());
    HostPool b = second.pool();
    const Block x = *b.allocate(1000, Alignment(64));
    std::memset(x.data, 1, 1000);
    b.deallocate(x);
    wait_for(3);
    left = *first->pool().allocate(5000, Alignment(64));
  });
  wait_for(1);
  first.reset();
  step = 2;
  first = std::make_unique<HostHeap>(std::move(*HostHeap::make()));
  step = 3;
  other.join();
  HostPool pool = first->pool();
  std::memset(left.data, 1, 5000);
  CHECK(pool.statistics().live == 5000);
  pool.deallocate(left);
  pool.trim(0);
  CHECK(pool.statistics().live == 0);
  CHECK(pool.statistics().reserved == 0);
}
