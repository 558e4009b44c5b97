// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/host/host_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/counted_pages.hpp"
#include "support/death.hpp"
#include "support/shared.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {
using CountedHeap = BasicHostHeap<CountedPages>;

std::uintptr_t number(const Block& b) { return reinterpret_cast<std::uintptr_t>(b.data); }

// The runs tile the region and no two free ones touch; the bytes of those in use or kept.
template <class Pool>
Bytes check_runs(Pool pool) {
  std::byte* end = nullptr;
  bool was_free = false;
  Bytes used = 0;
  pool.visit_blocks([&](Block run, bool free) {
    if (run.data == end) CHECK(!(was_free && free));
    if (!free) used += run.size;
    end = run.data + run.size;
    was_free = free;
  });
  return used;
}
}  // namespace

TEST_CASE("host_pool: every size and alignment gives an aligned block of its own, whose bytes stay until it is freed") {
  HostHeap heap = std::move(*HostHeap::make());
  HostPool pool = heap.pool();
  std::mt19937_64 random(1);
  struct Live {
    Block block;
    unsigned char value;
  };
  std::vector<Live> live;
  const auto whole = [](const Live& x) {
    return std::all_of(x.block.data, x.block.data + x.block.size, [&](std::byte b) { return b == std::byte{x.value}; });
  };
  Bytes bytes = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (live.size() > 200 || (!live.empty() && random() % 5 < 2)) {
      std::swap(live[random() % live.size()], live.back());
      CHECK(whole(live.back()));
      bytes -= live.back().block.size;
      pool.deallocate(live.back().block);
      live.pop_back();
      continue;
    }
    const Bytes size = 1 + static_cast<Bytes>(random() % (std::uint64_t{1} << (1 + random() % 17)));
    const Bytes alignment = Bytes{1} << (random() % 4 == 0 ? random() % 15 : random() % 7);
    const Result<Block> b = pool.allocate(size, Alignment(alignment));
    REQUIRE(b.ok());
    CHECK(b->size == size);
    CHECK(number(*b) % static_cast<std::uintptr_t>(alignment) == 0);
    live.push_back({*b, static_cast<unsigned char>(i)});
    std::memset(b->data, i & 255, static_cast<std::size_t>(size));
    bytes += size;
    if (i % 1000 == 0) CHECK(check_runs(pool) >= bytes);
  }
  CHECK(pool.statistics().live == bytes);
  for (const Live& x : live) {
    CHECK(whole(x));
    pool.deallocate(x.block);
  }
  CHECK(pool.statistics().live == 0);
  pool.trim(0);
  CHECK(check_runs(pool) == 0);  // everything was joined
  CHECK(pool.statistics().reserved == 0);
}

TEST_CASE("host_pool: alignments above a page are honoured, up to 1 GiB") {
  HostHeap heap = std::move(*HostHeap::make());
  HostPool pool = heap.pool();
  for (Bytes alignment = 1; alignment <= 1_GiB; alignment *= 2)
    for (const Bytes size : {Bytes{1}, Bytes{100}, Bytes{2048}, Bytes{2049}, 1_MiB}) {
      const Result<Block> a = pool.allocate(size, Alignment(alignment)), b = pool.allocate(size, Alignment(alignment));
      REQUIRE((a.ok() && b.ok()));
      CHECK(number(*a) % static_cast<std::uintptr_t>(alignment) == 0);
      CHECK(number(*b) % static_cast<std::uintptr_t>(alignment) == 0);
      CHECK((a->data + size <= b->data || b->data + size <= a->data));
      pool.deallocate(*a);
      pool.deallocate(*b);
    }
  pool.trim(0);
  CHECK(check_runs(pool) == 0);
}

TEST_CASE("host_pool: a small block whose alignment took it a page goes back to the pages, not to a class") {
  HostHeap heap = std::move(*HostHeap::make());
  HostPool pool = heap.pool();
  const Block page = *pool.allocate(100, Alignment(4096)), plain = *pool.allocate(100, Alignment(64));
  pool.deallocate(page);
  const Block other = *pool.allocate(100, Alignment(64));
  CHECK(other.data != page.data);
  pool.deallocate(other);
  pool.deallocate(plain);
  pool.trim(0);
  CHECK(check_runs(pool) == 0);
}

TEST_CASE("host_pool: sizes that cannot be rounded or served are errors, and the pool works on (cases/05 1-3)") {
  const std::string path = shared_path("cases/05-pool-size-overflow/rounding.csv");
  if (path.empty()) return;
  HostHeap heap = std::move(*HostHeap::make({.heed_system = false}));  // nothing of it is touched
  HostPool pool = heap.pool();
  const Block first = *pool.allocate(1024, Alignment(64));
  const std::string text = read_file(path);
  int rows = 0;
  for (std::size_t at = text.find('\n') + 1; at < text.size(); at = text.find('\n', at) + 1) {
    unsigned long long request = 0, granule = 0;
    REQUIRE(std::sscanf(text.c_str() + at, "%llu,%llu,", &request, &granule) == 2);
    ++rows;
    const HostPoolStatistics before = pool.statistics();
    const Result<Block> b = pool.allocate(static_cast<Bytes>(request), Alignment(static_cast<Bytes>(granule)));
    if (request <= 4_GiB) {  // addresses cost nothing
      REQUIRE(b.ok());
      CHECK((b->data != nullptr) == (request != 0));
      pool.deallocate(*b);
      pool.trim(before.reserved);
    } else {
      CHECK(b.error().code == (request >> 63 != 0 ? Errc::invalid_argument : Errc::out_of_memory));
      CHECK(b.error().requested == static_cast<Bytes>(request));
    }
    CHECK(pool.statistics().live == before.live);
    const Result<Block> after = pool.allocate(1024, Alignment(64));
    REQUIRE(after.ok());
    pool.deallocate(*after);
  }
  CHECK(rows == 26);
  CHECK(pool.allocate(1, Alignment(Bytes{1} << 62)).error().code == Errc::out_of_memory);  // cases/05 6: a signed size has no 2^63
  pool.deallocate(first);
}

TEST_CASE("host_pool: a source that always refuses is asked a bounded number of times, never for less than the request (cases/05 5)") {
  for (const Bytes request : {1, 255, 256, 300, 1'000'000}) {
    page_log.reset();
    Result<CountedHeap> heap = CountedHeap::make();
    REQUIRE(heap.ok());
    auto pool = heap->pool();
    pool.trim(0);  // the thread's cache is made
    page_log.refuse_at = page_log.calls + 1;
    page_log.refuse_after = true;
    page_log.smallest = max_bytes;
    const Error e = pool.allocate(request, Alignment(1)).error();
    CHECK(e.code == Errc::out_of_memory);
    CHECK(e.requested == request);
    CHECK(page_log.calls <= 64);  // backends.md 6.9.4
    CHECK(page_log.smallest >= request);
    page_log.refuse_at = 0;
    const Result<Block> b = pool.allocate(request, Alignment(1));  // it recovers
    REQUIRE(b.ok());
    pool.deallocate(*b);
  }
  CHECK(page_log.open == 0);
}

TEST_CASE("host_pool: five rounds of two blocks go upstream in the first only (cases/07)") {
  page_log.reset();
  {
    CountedHeap heap = std::move(*CountedHeap::make());
    auto pool = heap.pool();
    long after_first = 0;
    for (int round = 0; round < 5; ++round) {
      const Block a = *pool.allocate(4100, Alignment(64)), b = *pool.allocate(4100, Alignment(64));
      pool.deallocate(b);
      pool.deallocate(a);
      CHECK(pool.statistics().live == 0);
      if (round == 0) after_first = page_log.calls;
    }
    CHECK(page_log.calls == after_first);
    CHECK(page_log.purges == 0);
    CHECK(pool.statistics().reserved == 16384);
  }
  CHECK(page_log.open == 0);
}

TEST_CASE("host_pool: one request reserves at most itself and the larger of 64 KiB and an eighth (cases/08 A)") {
  for (const Bytes request : {Bytes{1}, Bytes{4096}, Bytes{65537}, Bytes{5368713216}, Bytes{8589934593}, Bytes{21894266880}}) {
    HostHeap heap = std::move(*HostHeap::make({.heed_system = false}));  // nothing of it is touched
    HostPool pool = heap.pool();
    const Result<Block> b = pool.allocate(request, Alignment(64));
    REQUIRE(b.ok());
    CHECK(pool.statistics().peak_reserved <= request + std::max(64_KiB, request / 8));
    pool.deallocate(*b);
  }
}

TEST_CASE("host_pool: a small block does not swallow a large free one (cases/08 B, cases/09 B)") {
  HostHeap heap = std::move(*HostHeap::make({.heed_system = false}));  // nothing of it is touched
  HostPool pool = heap.pool();
  pool.deallocate(*pool.allocate(4_GiB, Alignment(64)));
  const Block b = *pool.allocate(10_KiB, Alignment(64)), c = *pool.allocate(4_GiB, Alignment(64));
  CHECK(pool.statistics().peak_reserved <= 4_GiB + 1_MiB);
  pool.deallocate(b);
  pool.deallocate(c);

  HostHeap other = std::move(*HostHeap::make());
  pool = other.pool();
  pool.deallocate(*pool.allocate(11_MiB, Alignment(64)));
  std::vector<Block> kept;
  for (int i = 0; i < 11; ++i) {
    const Block small = *pool.allocate(16_KiB, Alignment(64));
    if (i % 2 == 0)
      kept.push_back(small);
    else
      pool.deallocate(small);
  }
  const Block giant = *pool.allocate(11_MiB, Alignment(64));
  CHECK(pool.statistics().peak_reserved <= 11_MiB + 1_MiB);
  pool.deallocate(giant);
  for (const Block& x : kept) pool.deallocate(x);
}

TEST_CASE("host_pool: neighbours are joined when that spares new memory, whatever the size they were kept for") {
  for (const Bytes part : {4_KiB, 64_KiB, 68_KiB, 1_MiB}) {
    CAPTURE(part);
    HostHeap heap = std::move(*HostHeap::make());
    HostPool pool = heap.pool();
    std::vector<Block> parts;
    for (Bytes i = 0; i < 32_MiB / part; ++i) parts.push_back(*pool.allocate(part, Alignment(64)));
    for (const Block& x : parts) pool.deallocate(x);
    const Block whole = *pool.allocate(32_MiB / part * part, Alignment(64));
    CHECK(pool.statistics().peak_reserved == whole.size);
    pool.deallocate(whole);
  }
}

TEST_CASE("host_pool: a limit is kept, is over_budget with both numbers, and free memory elsewhere makes room under it") {
  for (const Bytes region : {16_GiB, 2_MiB}) {
    HostPoolOptions options;
    options.limit = 8_MiB;
    options.region_size = region;
    HostHeap heap = std::move(*HostHeap::make(options));
    HostPool pool = heap.pool();
    const Error e = pool.allocate(8_MiB + 1, Alignment(64)).error();
    CHECK(e.code == Errc::over_budget);
    CHECK(status_kind(e) == StatusKind::resource_exhausted);
    CHECK(e.requested == 8_MiB + 1);
    CHECK(e.available == 8_MiB);
    CHECK(sentence(e) == "The host pool's limit is reached (requested 8388609, available 8388608)");
    Block a = *pool.allocate(3_MiB, Alignment(64)), b = *pool.allocate(2_MiB, Alignment(64)), c = *pool.allocate(3_MiB, Alignment(64));
    CHECK(pool.allocate(1, Alignment(64)).error().code == Errc::over_budget);
    pool.deallocate(a);
    pool.deallocate(c);
    Result<Block> d = pool.allocate(6_MiB, Alignment(64));  // the free 6 MiB are in two pieces: pages move, addresses do not matter
    REQUIRE(d.ok());
    CHECK(pool.statistics().reserved <= 8_MiB);
    CHECK(pool.statistics().peak_reserved <= 8_MiB);
    pool.deallocate(*d);
    pool.deallocate(b);
  }
}

TEST_CASE("host_pool: growth stops at what the control group or the system has left, and the error names it (backends.md 1.4)") {
  using MeteredHeap = BasicHostHeap<MeteredPages>;
  page_log.reset();
  meter = {};
  {
    MeteredHeap heap = std::move(*MeteredHeap::make());
    auto pool = heap.pool();
    meter.room = {10_MiB, LimitSource::cgroup};
    const Error e = pool.allocate(10_MiB + 1, Alignment(64)).error();
    CHECK(e.code == Errc::out_of_memory);
    CHECK(status_kind(e) == StatusKind::resource_exhausted);
    CHECK(e.stage == Stage::allocation);
    CHECK(sentence(e) == "The control group's memory limit is reached (requested 10485761, available 10485760)");
    CHECK(e.requested == 10_MiB + 1);
    CHECK(e.available == 10_MiB);
    const Block a = *pool.allocate(8_MiB, Alignment(64));  // what fits is given
    meter.room = {1_MiB, LimitSource::system};             // somebody else took some: it is seen at once
    const Error f = pool.allocate(3_MiB, Alignment(64)).error();
    CHECK(f.code == Errc::out_of_memory);
    CHECK(sentence(f) == "The system has no more memory available (requested 3145728, available 1048576)");
    CHECK(f.available == 1_MiB);
    pool.deallocate(a);
    const long asked = meter.asked;
    const Block b = *pool.allocate(8_MiB, Alignment(64));  // memory that the pool has needs no room
    CHECK(meter.asked == asked);
    pool.deallocate(b);
    const Bytes purged = page_log.purged;
    CHECK(pool.allocate(10_MiB, Alignment(64)).error().available == 1_MiB);  // what it has free is given back before it gives up
    CHECK(page_log.purged == purged + 8_MiB);
    CHECK(pool.statistics().reserved == 0);
    meter.room = {-1, LimitSource::system};
    CHECK(pool.allocate(1, Alignment(64)).error().available == 0);
    meter.room = {10_MiB, LimitSource::system};
    const Block most = *pool.allocate(10_MiB - 512_KiB, Alignment(64));
    meter.room = {0, LimitSource::system};
    const Block rest = *pool.allocate(512_KiB, Alignment(64));  // what was promised
    CHECK(pool.allocate(4_KiB, Alignment(64)).error().available == 0);
    pool.deallocate(most);
    pool.deallocate(rest);
    pool.trim(0);
    meter.room = {};
    const Block c = *pool.allocate(1_GiB, Alignment(64));
    const long before = meter.asked;
    const Block d = *pool.allocate(32_MiB, Alignment(64)), g = *pool.allocate(32_MiB, Alignment(64));
    CHECK(meter.asked == before);  // within 64 MiB it is not asked again
    const Block h = *pool.allocate(32_MiB, Alignment(64));
    CHECK(meter.asked == before + 1);
    for (const Block& x : {c, d, g, h}) pool.deallocate(x);
  }
  {
    MeteredHeap heap = std::move(*MeteredHeap::make({.heed_system = false}));
    auto pool = heap.pool();
    meter = {{0, LimitSource::cgroup}, 0};
    pool.deallocate(*pool.allocate(1_MiB, Alignment(64)));
    CHECK(meter.asked == 0);
  }
  CHECK(page_log.open == 0);
}

TEST_CASE("host_pool: a request that was refused does not raise what may be reserved later") {
  using MeteredHeap = BasicHostHeap<MeteredPages>;
  meter = {{1_GiB, LimitSource::system}, 0};
  MeteredHeap heap = std::move(*MeteredHeap::make());
  auto pool = heap.pool();
  CHECK(!pool.allocate(2_GiB, Alignment(64)).ok());
  std::vector<Block> parts;
  for (int round = 0; round < 8; ++round) {  // each round asks for another size: what the others left must be reused
    for (int i = 0; i < 16; ++i) parts.push_back(*pool.allocate(1_MiB + round * 64_KiB, Alignment(64)));
    for (const Block& b : parts) pool.deallocate(b);
    parts.clear();
  }
  CHECK(pool.statistics().peak_reserved <= (16 * (1_MiB + 7 * 64_KiB)) * 11 / 10);
}

TEST_CASE("host_pool: trim gives memory back, which reads as zero when it is taken again, and keeps what it is told to") {
  HostHeap heap = std::move(*HostHeap::make());
  HostPool pool = heap.pool();
  const Block a = *pool.allocate(1_MiB, Alignment(64)), b = *pool.allocate(1_MiB, Alignment(64)), c = *pool.allocate(512_KiB, Alignment(64));
  std::memset(a.data, 1, 1_MiB);
  pool.deallocate(a);
  CHECK(pool.trim(8_MiB) == 0);
  CHECK(pool.statistics().reserved == 2_MiB + 512_KiB);
  CHECK(pool.largest_free() == 1_MiB);
  CHECK(pool.trim(2_MiB) == 512_KiB);
  CHECK(pool.statistics().reserved == 2_MiB);
  CHECK(pool.largest_free() == 512_KiB);
  const Block again = *pool.allocate(1_MiB, Alignment(64));
  CHECK(again.data == a.data);
  CHECK(again.data[1_MiB - 1] == std::byte{0});  // the end was given back
  for (const Block& x : {again, b, c}) pool.deallocate(x);
  CHECK(pool.trim(0) == 2_MiB + 512_KiB);
  CHECK(pool.trim(0) == 0);
}

TEST_CASE("host_pool: free, largest free and fragmentation are what the runs say") {
  HostPoolOptions options;
  options.cache_limit = 0;
  HostHeap heap = std::move(*HostHeap::make(options));
  HostPool pool = heap.pool();
  CHECK(pool.statistics().fragmentation() == 0);  // nothing is free
  std::vector<Block> blocks;
  for (const Bytes size : {100_KiB, 4_KiB, 100_KiB, 4_KiB, 52_KiB, 4_KiB}) blocks.push_back(*pool.allocate(size, Alignment(64)));
  for (const int i : {0, 2, 4}) pool.deallocate(blocks[static_cast<std::size_t>(i)]);
  CHECK(pool.trim(1_GiB) == 0);  // joins what was kept for its size
  const HostPoolStatistics s = pool.statistics();
  CHECK(s.free == 252_KiB);
  CHECK(s.largest_free == 100_KiB);
  CHECK(s.fragmentation() == 1.0 - 100.0 / 252.0);
  CHECK(s.live == 12_KiB);
}

TEST_CASE("host_pool: a source refusing its n-th reservation leaks nothing and leaves the pool usable") {
  bool refused = true;
  for (long n = 1; refused; ++n) {
    page_log.reset();
    page_log.refuse_at = n;
    {
      HostPoolOptions options;
      options.region_size = 1_MiB;  // so that regions are added again and again
      Result<CountedHeap> heap = CountedHeap::make(options);
      if (!heap.ok()) {
        CHECK(heap.error().code == Errc::out_of_memory);
        CHECK(page_log.open == 0);
        continue;
      }
      auto pool = heap->pool();
      std::vector<Block> live;
      int failed = 0;
      for (int i = 0; i < 60; ++i) {
        const Bytes size = i % 3 == 0 ? 100 : 40'000 * i;
        const Result<Block> b = pool.allocate(size, Alignment(64));
        if (b.ok()) {
          std::memset(b->data, i, static_cast<std::size_t>(b->size));
          live.push_back(*b);
        } else {
          ++failed;
          CHECK(b.error().code == Errc::out_of_memory);
          CHECK(b.error().requested == size);
        }
      }
      CHECK(failed <= 1);
      refused = page_log.calls >= n;
      for (const Block& b : live) pool.deallocate(b);
      CHECK(pool.statistics().live == 0);
      pool.trim(0);
      CHECK(pool.statistics().reserved == 0);
    }
    CHECK(page_log.open == 0);
    CHECK(page_log.reserved == 0);
  }
}

TEST_CASE("host_pool: pages that the source will not take back stay in use, under the limit; nothing leaks") {
  for (const bool ever_after : {false, true})
    for (long n = 1; n <= 12; ++n) {
      CAPTURE(n);
      page_log.reset();
      page_log.refuse_purge_at = n;
      page_log.refuse_after = ever_after;
      {
        CountedHeap heap = std::move(*CountedHeap::make({.limit = 8_MiB, .cache_limit = 0}));
        auto pool = heap.pool();
        std::mt19937 random(static_cast<unsigned>(n));
        std::vector<Block> live;
        for (int i = 0; i < 400; ++i) {
          const Bytes size = 1 + static_cast<Bytes>(random() % (1u << (10 + random() % 11)));
          const Result<Block> b = pool.allocate(size, Alignment(64));
          if (b.ok()) {
            std::memset(b->data, i, static_cast<std::size_t>(size));
            live.push_back(*b);
          } else {
            CHECK(b.error().code == Errc::over_budget);
            CHECK(b.error().requested == size);
            CHECK(b.error().available >= 0);
          }
          while (!live.empty() && (!b.ok() || live.size() > 20)) {
            pool.deallocate(live.back());
            live.pop_back();
            if (random() % 4 == 0) break;
          }
          if (i % 50 == 0) {
            const Bytes before = pool.statistics().reserved;
            const Bytes given = pool.trim(1_MiB);
            CHECK(pool.statistics().reserved == before - given);
          }
          const HostPoolStatistics s = pool.statistics();
          CHECK(s.reserved <= 8_MiB);
          CHECK(s.free <= s.reserved);
        }
        CHECK(page_log.purges >= n);
        for (const Block& b : live) pool.deallocate(b);
        page_log.refuse_purge_at = 0;
        pool.trim(0);
        CHECK(pool.statistics().reserved == 0);
      }
      CHECK(page_log.open == 0);
      CHECK(page_log.reserved == 0);
    }
}

TEST_CASE("host_pool: on every trace what is reserved stays within 1.1 of the most that was live, in its first pass and after") {
  for (const char* name : {"mindspore_resnet50.events.csv", "mindspore_pangu_2.6B.events.csv.gz", "iopddl_G_1.events.csv",
                           "xla_train_12.events.csv", "xla_trinf_16.events.csv", "xla_conv_24.events.csv"}) {
    const std::string path = shared_path(std::string("data/traces/") + name);
    if (path.empty()) return;
    CAPTURE(name);
    struct Event {
      bool take;
      std::size_t id;
      Bytes size;
    };
    std::vector<Event> events;
    std::size_t ids = 0;
    const std::string text = read_file(path);
    for (std::size_t at = text.find('\n') + 1; at < text.size(); at = text.find('\n', at) + 1) {
      char op = 0;
      unsigned long id = 0;
      long long size = 0;
      REQUIRE(std::sscanf(text.c_str() + at, "%c,%lu,%lld", &op, &id, &size) == 3);
      events.push_back({op == 'a', id, size});
      ids = std::max<std::size_t>(ids, id + 1);
    }
    HostHeap heap = std::move(*HostHeap::make({.heed_system = false}));  // nothing of it is touched
    HostPool pool = heap.pool();
    std::vector<Block> blocks(ids);
    Bytes live = 0, peak = 0;
    for (int pass = 0; pass < 10; ++pass) {
      for (const Event& e : events) {
        if (e.take) {
          const Result<Block> b = pool.allocate(e.size, Alignment(64));
          REQUIRE(b.ok());
          blocks[e.id] = *b;
        } else {
          pool.deallocate(blocks[e.id]);
        }
        live += e.take ? e.size : -e.size;
        peak = std::max(peak, live);
      }
      CHECK(static_cast<double>(pool.statistics().peak_reserved) <= 1.1 * static_cast<double>(peak));
      CHECK(pool.statistics().live == 0);
    }
  }
}

TEST_CASE("host_pool: what may lie idle is the user's choice: reserved keeps to it, and more of it spares page faults") {
  Bytes purged_before = 0;
  for (const double share : {1.0, 0.25, 0.09, 0.0}) {
    CAPTURE(share);
    page_log.reset();
    CountedHeap heap = std::move(*CountedHeap::make({.idle_share = share}));
    auto pool = heap.pool();
    std::mt19937 random(4);
    std::vector<Block> live;
    Bytes in_use = 0, peak = 0;
    for (int i = 0; i < 6000; ++i) {
      while (live.size() >= 100) {
        std::swap(live[random() % live.size()], live.back());
        in_use -= live.back().size;
        pool.deallocate(live.back());
        live.pop_back();
      }
      live.push_back(*pool.allocate(4_KiB * static_cast<Bytes>(1 + random() % (1u << (random() % 9))), Alignment(64)));
      peak = std::max(peak, in_use += live.back().size);
    }
    CHECK(static_cast<double>(pool.statistics().peak_reserved) <= static_cast<double>(peak) * (1 + share) + 262144);
    CHECK(page_log.purged >= purged_before + purged_before / 4);
    purged_before = page_log.purged;
    for (const Block& b : live) pool.deallocate(b);
  }
  CHECK(purged_before > 100_MiB);
}

TEST_CASE("host_pool: huge pages are asked for where that is wanted, and served memory is as ever") {
  HostPoolOptions options;
  options.huge_pages = true;
  HostHeap heap = std::move(*HostHeap::make(options));
  HostPool pool = heap.pool();
  const Block b = *pool.allocate(8_MiB, Alignment(2_MiB));
  CHECK(number(b) % (2u << 20) == 0);
  CHECK(b.data[8_MiB - 1] == std::byte{0});
  pool.deallocate(b);
}

TEST_CASE("host_pool: options that mean nothing are refused") {
  for (const HostPoolOptions& options : {HostPoolOptions{.limit = 0}, HostPoolOptions{.cache_limit = -1}, HostPoolOptions{.region_size = 0},
                                         HostPoolOptions{.idle_share = -0.1}, HostPoolOptions{.idle_share = 101},
                                         HostPoolOptions{.idle_share = std::numeric_limits<double>::quiet_NaN()}})
    CHECK(HostHeap::make(options).error().code == Errc::invalid_argument);
}

TEST_CASE("host_pool: freeing what is not the pool's, or a run of pages twice, is a broken precondition") {
  HostPoolOptions options;
  options.cache_limit = 0;
  HostHeap heap = std::move(*HostHeap::make(options));
  HostPool pool = heap.pool();
  CHECK(aborts([&] {
    std::vector<std::byte> foreign(1_MiB);
    pool.deallocate({foreign.data(), 1_MiB});
    pool.trim(0);
  }));
  CHECK(aborts([&] {
    const Block b = *pool.allocate(1_MiB, Alignment(64));
    pool.deallocate(b);
    pool.deallocate(b);
    pool.trim(0);
  }));
}

TEST_CASE("host_pool: pools live side by side, and a cache of one that died is not used for the next") {
  for (int i = 0; i < 20; ++i) {
    HostHeap a = std::move(*HostHeap::make()), b = std::move(*HostHeap::make());
    HostPool first = a.pool(), second = b.pool();
    const Block x = *first.allocate(1000, Alignment(64)), y = *second.allocate(1000, Alignment(64));
    CHECK(x.data != y.data);
    first.deallocate(x);
    second.deallocate(y);
    CHECK(first.allocate(1000, Alignment(64))->data == x.data);
    CHECK(second.allocate(1000, Alignment(64))->data == y.data);
    HostHeap moved = std::move(a);
    CHECK(moved.pool() == first);
    CHECK(first.statistics().live == 1000);
  }
}
