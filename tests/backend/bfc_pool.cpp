// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/bfc_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "holdfast/backend/simulated/machine.hpp"
#include "support/bfc_fakes.hpp"
#include "support/death.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

template <class Fit = BestFit, class Split = BfcSplit, class Growth = BoundedGrowth>
struct Arena {
  using Heap = BfcHeap<FakeMemory, Fit, Split, Growth>;
  FakeLog log;
  Heap heap;
  typename Heap::Pool pool;
  explicit Arena(Bytes limit, Bytes region = 2_MiB, bool collect = true, Split split = {}, Growth growth = {})
      : heap(std::move(*Heap::make(FakeMemory{&log}, {.limit = limit, .region = region, .garbage_collection = collect}, split, growth))),
        pool(heap.pool()) {}
  Block take(Bytes size, Bytes alignment = 1) {
    const Result<Block> b = pool.allocate(size, Alignment(alignment));
    REQUIRE(b.ok());
    return *b;
  }
  Bytes chunk(const Block& b) {
    for (const BfcChunkRecord& c : pool.snapshot().chunks)
      if (c.block.data == b.data) return c.block.size;
    return -1;
  }
};
// A pool of one region of that size.
template <class Fit = BestFit, class Split = BfcSplit>
struct Fixed : Arena<Fit, Split> {
  explicit Fixed(Bytes size) : Arena<Fit, Split>(size, size) {}
};
template <class Split = BfcSplit>
using Ends = Arena<BestFit, Split, TwoEnded>;

template <class A>
Bytes take_from(A& a, BfcEnd end, Bytes size, Bytes alignment = 1) {
  const Result<Block> b = a.pool.allocate(size, Alignment(alignment), end);
  return b.ok() ? offset_of(*b) : -1;
}
constexpr auto lower = BfcEnd::lower, upper = BfcEnd::upper;

}  // namespace

TEST_CASE("bfc_pool: the first request takes a region of the limit or 2 MiB and cuts what it needs (BF2, BF3)") {
  Arena<> a(1_MiB);
  const Block b = a.take(512);
  CHECK(b.size == 512);
  CHECK(a.pool.statistics().reserved == 1_MiB);
  CHECK(a.pool.statistics().in_use == 512);
  CHECK(a.pool.largest_free() == 1048064);
  CHECK(a.pool.snapshot().chunks.size() == 2);
  Arena<> one(1_MiB);
  const Block c = one.take(1);
  CHECK(one.chunk(c) == 256);
  CHECK(one.pool.statistics().requested == 1);
  CHECK(one.pool.statistics().in_use == 256);
}

TEST_CASE("bfc_pool: a chunk less than twice the request is given whole; an exact split cuts it (BF4)") {
  Arena<> a(16_MiB);
  const Block b = a.take(3_MiB);
  CHECK(a.log.asked == std::vector<Bytes>{4_MiB});
  CHECK(a.chunk(b) == 4_MiB);
  CHECK(a.pool.statistics().split_waste == 1_MiB);
  CHECK(a.pool.statistics().alignment_waste == 0);
  Arena<BestFit, ExactSplit> exact(16_MiB);
  const Block c = exact.take(3_MiB);
  CHECK(exact.chunk(c) == 3_MiB);
  CHECK(exact.pool.statistics().split_waste == 0);
}

TEST_CASE("bfc_pool: the region size doubles after a region of that size, not after one that had to be larger (6.2)") {
  Arena<> a(1_GiB);
  a.take(3_MiB);  // the whole of 4 MiB
  a.take(4_MiB);
  a.take(4_MiB);
  CHECK(a.log.asked == std::vector<Bytes>{4_MiB, 4_MiB, 8_MiB});
}

TEST_CASE("bfc_pool: fragmentation within and outside of chunks is what the chunks say (BF5)") {
  Fixed<> a(4096);
  const std::array<Block, 4> b{a.take(1024), a.take(1024), a.take(1024), a.take(1024)};
  a.pool.deallocate(b[0]);
  a.pool.deallocate(b[2]);
  CHECK(a.pool.statistics().external_fragmentation() == 0.5);
  const Error e = a.pool.allocate(2048, Alignment(1)).error();
  CHECK(e.code == Errc::over_budget);
  CHECK(status_kind(e) == StatusKind::resource_exhausted);
  CHECK(e.requested == 2048);
  CHECK(e.available == 1024);
  a.pool.deallocate(b[1]);
  CHECK(a.pool.largest_free() == 3072);
  CHECK(a.pool.statistics().external_fragmentation() == 0);
  const Block big = a.take(2048);
  CHECK(offset_of(big) == 0);
  CHECK(a.chunk(big) == 3072);
  CHECK(a.pool.statistics().internal_fragmentation() == 0.25);
}

TEST_CASE("bfc_pool: a refusing upstream is asked for less and less, never for less than the request (BF6)") {
  const auto asked = [](auto&& a) {
    a.log.refuse_from = 1;
    const Error e = a.pool.allocate(100, Alignment(1)).error();
    CHECK(e.code == Errc::out_of_memory);
    CHECK(e.available == 0);
    return a.log.asked;
  };
  const std::vector<Bytes> steps{2048, 1792, 1536, 1280, 1024, 768, 512, 256};
  CHECK(asked(Arena<>(2048)) == steps);
  CHECK(asked(Arena<BestFit, BfcSplit, DoublingGrowth>(2048)) == steps);
}

TEST_CASE("bfc_pool: growth that cannot succeed ends after 64 calls, the last for exactly the request (cases/05 5)") {
  for (const Bytes request : {1, 255, 256, 300, 1'000'000}) {
    CAPTURE(request);
    const Bytes rounded = (request + 255) / 256 * 256;
    Arena<> a(max_bytes, 1'000'000);
    a.log.refuse_from = 1;
    CHECK(status_kind(a.pool.allocate(request, Alignment(1)).error()) == StatusKind::resource_exhausted);
    CHECK(a.log.asked.size() <= 64);
    CHECK(*std::min_element(a.log.asked.begin(), a.log.asked.end()) == rounded);
    CHECK(a.log.asked.back() == rounded);
    a.log.refuse_from = 0;
    CHECK(a.take(request).size == request);  // it recovers

    Arena<BestFit, BfcSplit, DoublingGrowth> original(max_bytes, 1'000'000);
    original.log.refuse_from = 1;
    CHECK(status_kind(original.pool.allocate(request, Alignment(1)).error()) == StatusKind::resource_exhausted);
    CHECK(original.log.asked.size() <= 200);
    CHECK(*std::min_element(original.log.asked.begin(), original.log.asked.end()) >= rounded);
    Arena<BestFit, BfcSplit, ExactGrowth> exact(max_bytes);
    exact.log.refuse_from = 1;
    CHECK(status_kind(exact.pool.allocate(request, Alignment(1)).error()) == StatusKind::resource_exhausted);
    CHECK(exact.log.asked == std::vector<Bytes>{2_MiB, rounded});
  }
}

TEST_CASE("bfc_pool: sizes that cannot be rounded are errors before the upstream is asked, and change nothing (cases/05 1-3)") {
  const std::string path = shared_path("cases/05-pool-size-overflow/rounding.csv");
  if (path.empty()) return;
  const std::string text = read_file(path);
  int rows = 0;
  for (std::size_t at = text.find('\n') + 1; at < text.size(); at = text.find('\n', at) + 1) {
    unsigned long long request = 0, granule = 0;
    REQUIRE(std::sscanf(text.c_str() + at, "%llu,%llu,", &request, &granule) == 2);
    ++rows;
    CAPTURE(request);
    Arena<> a(1_GiB);
    const Block first = a.take(1024);
    const std::size_t calls = a.log.asked.size();
    const Result<Block> b = a.pool.allocate(static_cast<Bytes>(request), Alignment(static_cast<Bytes>(granule)));
    if (request <= 257) {
      REQUIRE(b.ok());
      CHECK((b->data != nullptr) == (request != 0));
      a.pool.deallocate(*b);
    } else {
      CHECK(status_kind(b.error()) == (request >> 63 != 0 ? StatusKind::invalid_argument : StatusKind::resource_exhausted));
      CHECK(a.log.asked.size() == calls);
    }
    CHECK(a.pool.statistics().requested == 1024);
    check_bfc(a.pool);
    CHECK(a.take(1024).size == 1024);
    a.pool.deallocate(first);
  }
  CHECK(rows == 26);
  Arena<> a(max_bytes);
  for (const Bytes size : {max_bytes, max_bytes - 254, max_bytes - 255, max_bytes - 256})
    CHECK(a.pool.allocate(size, Alignment(1)).error().code == Errc::out_of_memory);
  CHECK(a.pool.allocate(1, Alignment(Bytes{1} << 62)).error().code == Errc::out_of_memory);  // cases/05 6: no such address
}

TEST_CASE("bfc_pool: idle regions are given back where that makes room for a request (BF7)") {
  for (const bool collect : {true, false}) {
    Arena<> a(4_MiB, 2_MiB, collect);
    const Block b = a.take(1_MiB), c = a.take(2_MiB);
    CHECK(a.log.asked == std::vector<Bytes>{2_MiB, 2_MiB});
    a.pool.deallocate(b);
    a.pool.deallocate(c);
    CHECK(a.pool.allocate(4_MiB, Alignment(1)).ok() == collect);
    CHECK(a.pool.snapshot().regions.size() == (collect ? 1 : 2));
    CHECK(a.log.held() == 4_MiB);
    check_bfc(a.pool);
  }
}

TEST_CASE("bfc_pool: alignments from 32 to 4096 are honoured behind a filler (BF8)") {
  Arena<> a(16_MiB);
  for (Bytes alignment = 32; alignment <= 4096; alignment *= 2)
    for (int i = 0; i < 8; ++i) {
      a.take(256);
      CHECK(offset_of(a.take(1 + 100 * i, alignment)) % alignment == 0);
      check_bfc(a.pool);
    }
  CHECK(offset_of(a.take(10, 1_MiB)) % 1_MiB == 0);
}

TEST_CASE("bfc_pool: what is freed in any order is one chunk a region again (BF9)") {
  Arena<> a(1_GiB, 1_MiB, true);
  std::mt19937 random(42);
  for (int round = 0; round < 20; ++round) {
    std::vector<Block> blocks;
    for (int i = 0; i < 350; ++i) blocks.push_back(a.take(1 + static_cast<Bytes>(random() % 100'000), Bytes{1} << random() % 13));
    check_bfc(a.pool);
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (const Block& b : blocks) a.pool.deallocate(b);
    const BfcSnapshot s = a.pool.snapshot();
    CHECK(s.chunks.size() == s.regions.size());
  }
  CHECK(a.pool.trim(0) == a.pool.statistics().peak_reserved);
  CHECK(a.log.out.empty());
}

TEST_CASE("bfc_pool: a full pool is not fragmented (BF10)") {
  Fixed<> a(4096);
  a.take(4096);
  CHECK(a.pool.statistics().external_fragmentation() == 0);
  CHECK(a.pool.statistics().internal_fragmentation() == 0);
  CHECK(Arena<>(1_MiB).pool.statistics().internal_fragmentation() == 0);
}

TEST_CASE("bfc_pool: a double, foreign, inner or wrongly sized release is an error and changes nothing (BF11, BF12)") {
  Fixed<> a(65536);
  const Block b = a.take(1000), c = a.take(1000);
  a.pool.deallocate(b);
  const auto unchanged = [&](Block wrong, Errc code) {
    CHECK(a.pool.deallocate_checked(wrong).code == code);
    CHECK(a.pool.statistics().in_use == 1024);
    CHECK(a.pool.statistics().requested == 1000);
    check_bfc(a.pool);
  };
  unchanged(b, Errc::wrong_state);
  CHECK(status_kind(a.pool.deallocate_checked(b)) == StatusKind::failed_precondition);
  unchanged({reinterpret_cast<std::byte*>(64), 1000}, Errc::invalid_argument);
  unchanged({b.data + 65536, 1000}, Errc::invalid_argument);
  unchanged({c.data + 256, 1000}, Errc::invalid_argument);
  unchanged({c.data, 999}, Errc::invalid_argument);
  CHECK(a.pool.deallocate_checked({}).ok());
  CHECK(aborts([&] { a.pool.deallocate(b); }));
  CHECK(a.pool.deallocate_checked(c).ok());
  CHECK(a.pool.deallocate_checked(c).code == Errc::wrong_state);  // joined with its neighbours long ago
}

TEST_CASE("bfc_pool: what is freed under a stamp is joined when the stamp is safe, and skipped by requests from before (BF13)") {
  Fixed<> a(4096);
  const Block b = a.take(1024), c = a.take(1024), d = a.take(2048);
  a.pool.set_now(5);
  a.pool.deallocate(b);
  a.pool.deallocate(c);
  CHECK(a.pool.snapshot().chunks.size() == 3);
  a.pool.set_safe_frontier(5);
  CHECK(a.pool.snapshot().chunks.size() == 3);
  CHECK(!a.pool.allocate_freed_before(4, 1024, Alignment(1)).ok());
  const Result<Block> same = a.pool.allocate_freed_before(5, 1024, Alignment(1));
  REQUIRE(same.ok());
  CHECK(same->data == b.data);
  a.pool.deallocate(*same);
  check_bfc(a.pool);
  a.pool.set_safe_frontier(6);
  CHECK(a.pool.snapshot().chunks.size() == 2);
  CHECK(a.pool.largest_free() == 2048);
  CHECK(a.pool.allocate_freed_before(0, 2048, Alignment(1)).ok());
  a.pool.deallocate(d);
  CHECK(a.pool.statistics().free == 2048);
}

TEST_CASE("bfc_pool: under pressure stamped chunks are joined until one holds the request, under the newest stamp") {
  Fixed<BestFit, ExactSplit> a(8192);
  std::vector<Block> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(a.take(1024));
  for (const unsigned i : {1u, 5u, 2u, 6u, 3u}) {
    a.pool.set_now(10 + i);
    a.pool.deallocate(blocks[i]);
  }
  CHECK(a.pool.explain(2048).reason == BfcReason::reclaims);
  CHECK(a.pool.explain(2048).largest == 1024);
  CHECK(a.pool.explain(2048).joined == 3072);
  CHECK(!a.pool.allocate_freed_before(20, 2048, Alignment(1)).ok());
  const Block two = a.take(2048);  // joins 1 and 2, the oldest first
  CHECK(two.data == blocks[1].data);
  check_bfc(a.pool);
  a.pool.deallocate(two);
  const Block three = a.take(3072);
  CHECK(three.data == blocks[1].data);
  a.pool.set_safe_frontier(100);
  CHECK(a.pool.snapshot().chunks.size() == 5);  // 5 and 6 are one
  check_bfc(a.pool);
}

TEST_CASE("bfc_pool: the rest of a stamped chunk keeps its stamp and its turn") {
  Fixed<BestFit, ExactSplit> a(8192);
  const Block b = a.take(4096), c = a.take(4096);
  a.pool.set_now(3);
  a.pool.deallocate(b);
  a.pool.set_now(7);
  a.pool.deallocate(c);
  const Block part = a.take(512, 1024), other = a.take(256, 2048);
  CHECK(part.data == b.data);
  CHECK(other.data == b.data + 2048);
  a.pool.set_now(0);
  for (const BfcChunkRecord& x : a.pool.snapshot().chunks)
    if (!x.used()) CHECK(x.freed_at == (x.block.data < c.data ? 3 : 7));
  CHECK(a.pool.snapshot().chunks.size() == 5);
  a.pool.set_safe_frontier(4);
  for (const BfcChunkRecord& x : a.pool.snapshot().chunks)
    if (!x.used()) CHECK(x.freed_at == (x.block.data < c.data ? 0 : 7));
  check_bfc(a.pool);
  a.pool.set_safe_frontier(8);
  a.pool.deallocate(part);
  a.pool.deallocate(other);
  CHECK(a.pool.snapshot().chunks.size() == 1);
}

TEST_CASE("bfc_pool: two ends of 4096 bytes lie 3840 apart, and neither takes the other's holes (BS1, BS2)") {
  Ends<> a(4096);
  CHECK(take_from(a, lower, 256) == 0);
  CHECK(take_from(a, upper, 256) == 3840);
  Ends<> full(1024);
  const Block first = *full.pool.allocate(256, Alignment(1), lower);
  CHECK(take_from(full, lower, 256) == 256);
  CHECK(take_from(full, upper, 512) == 512);
  full.pool.deallocate(first);
  CHECK(take_from(full, upper, 256) == -1);
  CHECK(full.pool.explain(256, Alignment(1), upper).reason == BfcReason::other_end);
  CHECK(full.pool.explain(256, Alignment(1), upper).largest_other == 256);
  CHECK(take_from(full, lower, 256) == 0);
}

TEST_CASE("bfc_pool: what alignment leaves over is a hole of the end that cut it (BS3, BS4)") {
  Ends<> a(4096);
  CHECK(take_from(a, upper, 256, 1024) == 3072);
  CHECK(take_from(a, lower, 3072) == 0);
  CHECK(take_from(a, lower, 768) == -1);
  CHECK(take_from(a, upper, 768) == 3328);
  Ends<> b(4096);
  CHECK(take_from(b, lower, 256) == 0);
  CHECK(take_from(b, lower, 256, 1024) == 1024);
  CHECK(take_from(b, upper, 2816) == 1280);
  CHECK(take_from(b, upper, 768) == -1);
  CHECK(take_from(b, lower, 768) == 256);
  check_bfc(b.pool);
}

TEST_CASE("bfc_pool: what is freed at the gap is the gap's again, with the holes behind it (BS5)") {
  Ends<> a(1_GiB);
  std::vector<Block> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(*a.pool.allocate(32_MiB, Alignment(1), lower));
  CHECK(!a.pool.allocate(1, Alignment(1), upper).ok());
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(5));
  for (const Block& b : blocks) a.pool.deallocate(b);
  CHECK(take_from(a, upper, 18_MiB) == 1_GiB - 18_MiB);
  CHECK(a.pool.snapshot().chunks.size() == 2);
}

TEST_CASE("bfc_pool: one end's offsets do not depend on the other's requests (BS6)") {
  std::vector<Bytes> expected;
  for (unsigned seed = 0; seed < 31; ++seed) {
    Ends<SplitByEnd<>> a(64_MiB);
    std::mt19937 random(seed);
    std::vector<Block> below;
    std::vector<Bytes> offsets;
    std::vector<Block> above;
    for (const Bytes size : {1_MiB, 300_KiB, 2_MiB, Bytes{100}, 1_MiB, 64_KiB, 3_MiB, Bytes{257}}) {
      for (unsigned i = random() % 8; i > 0; --i) {
        below.push_back(*a.pool.allocate(1 + static_cast<Bytes>(random() % 500'000), Alignment(1), lower));
        if (random() % 3 == 0) {
          std::swap(below[random() % below.size()], below.back());
          a.pool.deallocate(below.back());
          below.pop_back();
        }
      }
      above.push_back(*a.pool.allocate(size, Alignment(64_KiB), upper));
      offsets.push_back(offset_of(above.back()));
      if (above.size() % 3 == 0) a.pool.deallocate(above[above.size() - 2]);
      check_bfc(a.pool);
    }
    if (seed == 0) expected = offsets;
    CHECK(offsets == expected);
  }
}

TEST_CASE("bfc_pool: each end takes its own holes before the gap (BS7)") {
  Ends<> a(1_MiB);
  std::vector<Block> low, high;
  for (int i = 0; i < 3; ++i) low.push_back(*a.pool.allocate(4096, Alignment(1), lower));
  for (int i = 0; i < 3; ++i) high.push_back(*a.pool.allocate(4096, Alignment(1), upper));
  a.pool.deallocate(low[1]);
  a.pool.deallocate(high[1]);
  CHECK(take_from(a, lower, 4096) == offset_of(low[1]));
  CHECK(take_from(a, upper, 4096) == offset_of(high[1]));
}

TEST_CASE("bfc_pool: a two-ended pool asks for its limit, whole or not at all; its upper end is a backend") {
  Ends<> refused(1_MiB);
  refused.log.most = 1_MiB - 1;
  CHECK(refused.pool.allocate(1, Alignment(1)).error().code == Errc::out_of_memory);
  CHECK(refused.log.asked == std::vector<Bytes>{1_MiB});
  Ends<> a(1_MiB);
  BfcUpperEnd<decltype(a.pool)> high(a.pool);
  static_assert(tagging_backend<decltype(high)> && inspectable_backend<decltype(high)> && sizeof(high) == sizeof(void*));
  const Block b = *high.allocate(1000, Alignment(64));
  CHECK(offset_of(b) == 1_MiB - 1024);
  CHECK(high.explain(1_MiB).reason == BfcReason::limit);
  high.deallocate(b);
  CHECK(a.pool.trim(0) == 1_MiB);
  CHECK(a.log.out.empty());
  CHECK(offset_of(*high.allocate(1000, Alignment(64))) == 2_MiB - 1024);  // addresses are given once
}

TEST_CASE("bfc_pool: a KeepLarge split spares a giant for the next one while the pool can grow (cases/09 B)") {
  const auto reserved = [](auto&& a) {
    const Block g = a.take(11_MiB);
    a.pool.deallocate(g);
    std::vector<Block> kept;
    for (int i = 0; i < 11; ++i) {
      const Block b = a.take(16_KiB);
      if (i % 2 == 0)
        kept.push_back(b);
      else
        a.pool.deallocate(b);
    }
    const BfcExplanation why = a.pool.explain(11_MiB);
    const Block again = a.take(11_MiB);
    CHECK((again.data == g.data) == (why.reason == BfcReason::fits));
    return std::pair(a.pool.statistics().reserved, why);
  };
  const auto [with, spared] = reserved(Arena<BestFit, KeepLarge<>, ExactGrowth>(1_GiB));
  CHECK(with == 11_MiB + 2_MiB);
  CHECK(spared.reason == BfcReason::fits);
  const auto [without, cut_up] = reserved(Arena<BestFit, BfcSplit, ExactGrowth>(1_GiB));
  CHECK(without >= 22_MiB);
  CHECK(cut_up.reason == BfcReason::grows);
  CHECK(cut_up.window.size == 11_MiB);
  CHECK(cut_up.window_blocks == 6);  // the survivors
  CHECK(cut_up.window_live == 6 * 16_KiB);

  Arena<BestFit, KeepLarge<>> small(1_GiB, 64_MiB);  // a region for small requests is one that they may cut
  small.take(16_KiB);
  small.take(5_MiB);
  CHECK(small.log.asked == std::vector<Bytes>{4_MiB, 128_MiB});
  Arena<BestFit, KeepLarge<>> limited(16_MiB);  // a pool that cannot grow cuts what it would spare
  const Block g = limited.take(11_MiB);
  limited.pool.deallocate(g);
  limited.take(16_KiB);
  limited.take(1_MiB);
}

TEST_CASE("bfc_pool: the waste of a request is bounded by the policy that says so") {
  Fixed<BestFit, BoundedWaste> a(1_MiB);
  const Block spare = a.take(10'240), stop = a.take(256);
  a.pool.deallocate(spare);
  const Block close = a.take(9'216);  // 11 % more: whole
  CHECK(close.data == spare.data);
  CHECK(a.chunk(close) == 10'240);
  a.pool.deallocate(close);
  const Block cut = a.take(8'960);  // 14 %
  CHECK(cut.data == spare.data);
  CHECK(a.chunk(cut) == 8'960);
  a.pool.deallocate(stop);
}

TEST_CASE("bfc_pool: first fit takes the lowest, worst fit the largest, two-level a chunk that surely fits") {
  const auto choice = [](auto&& a, Bytes size) {
    std::vector<Block> blocks;
    for (const Bytes s : {8_KiB, 1_KiB, 64_KiB, 1_KiB, 16_KiB, 1_KiB, 128_KiB, 1_KiB, 64_KiB, 1_KiB, 128_KiB, 1_KiB}) blocks.push_back(a.take(s));
    for (unsigned i = 0; i < blocks.size(); i += 2) a.pool.deallocate(blocks[i]);
    a.take(a.pool.statistics().reserved - 418_KiB);  // the tail
    const Result<Block> b = a.pool.allocate(size, Alignment(1));
    for (unsigned i = 0; i < blocks.size(); ++i)
      if (b.ok() && b->data == blocks[i].data) return static_cast<int>(i);
    return -1;
  };
  using Exact = ExactSplit;
  CHECK(choice(Fixed<BestFit, Exact>(1_MiB), 10_KiB) == 4);
  CHECK(choice(Fixed<FirstFit, Exact>(1_MiB), 10_KiB) == 2);
  CHECK(choice(Fixed<WorstFit, Exact>(1_MiB), 10_KiB) == 6);
  CHECK(choice(Fixed<TwoLevelFit, Exact>(1_MiB), 10_KiB) == 4);
  CHECK(choice(Fixed<BestFit, Exact>(1_MiB), 64_KiB) == 2);
  CHECK(choice(Fixed<TwoLevelFit, Exact>(1_MiB), 64_KiB) == 8);  // the last freed
}

TEST_CASE("bfc_pool: adjoining regions are one where the upstream takes them back as one") {
  const auto regions = []<bool Joins>(std::bool_constant<Joins>) {
    FakeLog log;
    {
      using Heap = BfcHeap<BasicFakeMemory<Joins>, BestFit, ExactSplit>;
      auto heap = std::move(*Heap::make({&log}, {.limit = 8_MiB, .region = 1_MiB, .garbage_collection = false}));
      auto pool = heap.pool();
      const Block a = *pool.allocate(1_MiB, Alignment(1)), b = *pool.allocate(2_MiB, Alignment(1));
      pool.deallocate(a);
      pool.deallocate(b);
      CHECK(pool.allocate(3_MiB, Alignment(1)).ok() == true);
      check_bfc(pool);
      return pool.snapshot().regions.size();
    }
  };
  CHECK(regions(std::false_type{}) == 3);
  CHECK(regions(std::true_type{}) == 1);
}

TEST_CASE("bfc_pool: an upstream that gives misaligned memory is refused, and gets it back") {
  Arena<> a(16_MiB);
  a.log.skew = 64;
  CHECK(a.pool.allocate(1, Alignment(1)).error().code == Errc::out_of_memory);
  CHECK(a.log.out.empty());
  CHECK(a.log.asked.size() == 1);
  a.log.skew = 0;
  CHECK(offset_of(a.take(1)) % 256 == 0);
}

TEST_CASE("bfc_pool: regions have the alignment that the options ask for") {
  FakeLog log;
  log.next += 4096;
  auto heap = std::move(*BfcHeap<FakeMemory>::make({&log}, {.region_alignment = Alignment(2_MiB)}));
  auto pool = heap.pool();
  CHECK(offset_of(*pool.allocate(100, Alignment(1))) == 2_MiB);
}

TEST_CASE("bfc_pool: a copy goes through to the upstream; a two-byte test of a device's pool") {
  SimulatedMachine machine;
  auto device = *machine.add_device(1 << 20);
  {
    auto heap = std::move(*BfcHeap<SimulatedDevice>::make(device, {.limit = 512 << 10}));
    auto pool = heap.pool();
    static_assert(copying_backend<decltype(pool)> && !host_accessible<decltype(pool)>);
    const Block filler = *pool.allocate(100, Alignment(1)), b = *pool.allocate(2, Alignment(1));
    const std::byte in[2]{std::byte{7}, std::byte{9}};
    std::byte out[2]{};
    CHECK(pool.copy_in(b, 0, in)->wait().ok());
    CHECK(pool.copy_out(b, 0, out)->wait().ok());
    CHECK((out[0] == std::byte{7} && out[1] == std::byte{9}));
    CHECK(device.available() == 512 << 10);
    pool.deallocate(filler);
  }
  CHECK(device.available() == 1 << 20);
}

TEST_CASE("bfc_pool: statistics count, and begin again at what is in use") {
  Arena<> a(16_MiB);
  const Block b = a.take(1000), c = a.take(5000);
  a.pool.deallocate(c);
  BfcStatistics s = a.pool.statistics();
  CHECK(s.allocations == 2);
  CHECK(s.in_use == 1024);
  CHECK(s.peak_in_use == 1024 + 5120);
  CHECK(s.peak_requested == 6000);
  CHECK(s.largest_allocation == 5120);
  CHECK(s.limit == 16_MiB);
  CHECK(s.peak_reserved == 2_MiB);
  a.pool.clear_statistics();
  s = a.pool.statistics();
  CHECK(s.allocations == 0);
  CHECK(s.in_use == 1024);
  CHECK(s.peak_in_use == 1024);
  CHECK(s.largest_allocation == 0);
  a.pool.deallocate(b);
  CHECK(a.pool.trim(1) == 2_MiB);
  CHECK(a.pool.statistics().reserved == 0);
  Bytes seen = 0;
  a.take(100);
  a.pool.visit_blocks([&](Block block, bool free) { seen += free ? 0 : block.size; });
  CHECK(seen == 256);
}

TEST_CASE("bfc_pool: options that mean nothing are refused") {
  FakeLog log;
  CHECK(BfcHeap<FakeMemory>::make({&log}, {.limit = 255}).error().code == Errc::invalid_argument);
  CHECK(BfcHeap<FakeMemory>::make({&log}, {.region = 0}).error().code == Errc::invalid_argument);
}
