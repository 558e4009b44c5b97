// SPDX-License-Identifier: Apache-2.0
// What threads keep of a host pool's memory, and when they give it back.
#include "holdfast/backend/host/host_pool.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

using namespace holdfast;
using namespace holdfast::literals;

namespace {

// A thread that does one thing at a time, when told to; it ends with this.
class Worker {
 public:
  Worker() : thread_([this] {
    for (go_.acquire(); work_; go_.acquire()) {
      work_();
      done_.release();
    }
  }) {}
  Worker(const Worker&) = delete;
  ~Worker() {
    run(nullptr);
    thread_.join();
  }
  void run(std::function<void()> work) {
    work_ = std::move(work);
    go_.release();
    if (work_) done_.acquire();
  }

 private:
  std::function<void()> work_;
  std::binary_semaphore go_{0}, done_{0};
  std::thread thread_;
};

std::vector<Block> take(HostPool pool, int count, Bytes size) {
  std::vector<Block> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back(*pool.allocate(size, Alignment(64)));
  return blocks;
}
void give(HostPool pool, const std::vector<Block>& blocks) {
  for (const Block& b : blocks) pool.deallocate(b);
}

// Has a thread take and give so many blocks; what the pool must reserve for this one to take some of them while that one lives.
Bytes growth(HostPool pool, Worker& other, int count, Bytes size, int wanted) {
  other.run([&] { give(pool, take(pool, count, size)); });
  const Bytes before = pool.statistics().reserved;
  const std::vector<Block> mine = take(pool, wanted, size);
  const Bytes after = pool.statistics().reserved;
  give(pool, mine);
  return after - before;
}

}  // namespace

TEST_CASE("host_pool: of long blocks a thread keeps no more than the cache limit; the rest serves other threads at once") {
  for (const Bytes limit : {Bytes{0}, 1_MiB, 4_MiB}) {
    HostHeap heap = std::move(*HostHeap::make({.cache_limit = limit}));
    Worker other;
    CHECK(growth(heap.pool(), other, 64, 256_KiB, static_cast<int>(64 - limit / 256_KiB)) == 0);
  }
  HostHeap heap = std::move(*HostHeap::make());
  Worker other;
  CHECK(growth(heap.pool(), other, 64, 256_KiB, 64 - 31) == 0);  // of one size it keeps 31
  CHECK(heap.pool().statistics().live == 0);
}

TEST_CASE("host_pool: of small and near sizes a thread keeps 63 each; the rest serves other threads at once") {
  for (const Bytes size : {Bytes{64}, Bytes{2000}, 4_KiB, 64_KiB}) {
    CAPTURE(size);
    HostHeap heap = std::move(*HostHeap::make());
    Worker other;
    CHECK(growth(heap.pool(), other, 1000, size, 1000 - 63) == 0);
  }
}

TEST_CASE("host_pool: a thread that ends gives all it kept to the others") {
  for (const Bytes size : {Bytes{64}, 4_KiB, 256_KiB, 3_MiB}) {
    CAPTURE(size);
    HostHeap heap = std::move(*HostHeap::make());
    HostPool pool = heap.pool();
    std::thread([&] { give(pool, take(pool, 20, size)); }).join();
    const Bytes before = pool.statistics().reserved;
    give(pool, take(pool, 20, size));
    CHECK(pool.statistics().reserved == before);
    pool.trim(0);
    CHECK(pool.statistics().reserved == 0);
  }
}

TEST_CASE("host_pool: what a living thread keeps is its own, until sizes that are no longer asked for must make room") {
  HostHeap heap = std::move(*HostHeap::make({.cache_limit = 8_MiB}));
  HostPool pool = heap.pool();
  Worker other;
  CHECK(growth(pool, other, 31, 256_KiB, 31) == 31 * 256_KiB);  // it keeps all of them
  pool.trim(0);
  CHECK(pool.statistics().reserved == 31 * 256_KiB);
  other.run([&] {
    for (int i = 0; i < 300; ++i) give(pool, take(pool, 1, 512_KiB));  // finds no room time and again
  });
  const Bytes before = pool.statistics().reserved;
  give(pool, take(pool, 31, 256_KiB));
  CHECK(pool.statistics().reserved == before);
}

TEST_CASE("host_pool: what one thread takes and another gives back, for ever, needs no more than a few caches") {
  for (const Bytes size : {Bytes{64}, Bytes{1500}, 4_KiB, 64_KiB, 256_KiB, 4_MiB}) {
    CAPTURE(size);
    HostHeap heap = std::move(*HostHeap::make());
    HostPool pool = heap.pool();
    Worker other;
    for (int i = 0; i < 300; ++i) {
      const std::vector<Block> blocks = take(pool, 16, size);
      other.run([&] { give(pool, blocks); });
    }
    CHECK(pool.statistics().live == 0);
    CHECK(pool.statistics().peak_reserved <= (16 + 63) * size + 64_KiB);
  }
}
