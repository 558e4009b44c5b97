// SPDX-License-Identifier: Apache-2.0
// Pools beside plain re-implementations of the rules of the specification: the same decisions for every request.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "holdfast/backend/bfc_pool.hpp"
#include "support/bfc_fakes.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

Bytes up(Bytes n, Bytes a) { return (n + a - 1) / a * a; }

// One list of chunks by address; every search looks at all of them.
struct NaivePool {
  enum class Way { best, first, worst };
  struct Chunk {
    Bytes at, size;
    bool used;
    std::size_t region;
  };
  Bytes limit, target, pool = 0, next_region = 0, cap = 128_MiB;
  Way way = Way::best;
  bool exact = false, collect = true;
  std::size_t regions = 0;
  std::vector<Chunk> chunks{};

  std::optional<Bytes> allocate(Bytes size, Bytes alignment) {
    const Bytes rounded = up(size, 256);
    alignment = std::max<Bytes>(alignment, 256);
    if (const auto at = place(rounded, alignment)) return at;
    if (extend(rounded, alignment)) return place(rounded, alignment);
    if (!collect) return {};
    Bytes idle = 0;
    std::vector<std::size_t> whole;
    for (const Chunk& c : chunks) {
      const auto same = std::count_if(chunks.begin(), chunks.end(), [&](const Chunk& x) { return x.region == c.region; });
      if (same == 1 && !c.used) idle += c.size, whole.push_back(c.region);
    }
    if (idle == 0 || limit - pool + idle < rounded) return {};
    std::erase_if(chunks, [&](const Chunk& c) { return std::find(whole.begin(), whole.end(), c.region) != whole.end(); });
    pool -= idle;
    return extend(rounded, alignment) ? place(rounded, alignment) : std::nullopt;
  }
  void free(Bytes at) {
    std::size_t i = 0;
    while (chunks[i].at != at) ++i;
    chunks[i].used = false;
    if (i + 1 < chunks.size() && joins(i, i + 1)) chunks[i].size += chunks[i + 1].size, chunks.erase(chunks.begin() + static_cast<long>(i) + 1);
    if (i > 0 && joins(i - 1, i)) chunks[i - 1].size += chunks[i].size, chunks.erase(chunks.begin() + static_cast<long>(i));
  }
  bool joins(std::size_t a, std::size_t b) const { return !chunks[a].used && !chunks[b].used && chunks[a].region == chunks[b].region; }
  bool cuts(Bytes size, Bytes rounded) const { return exact || size >= 2 * rounded || size - rounded >= cap; }
  std::optional<Bytes> place(Bytes rounded, Bytes alignment) {
    std::size_t best = chunks.size();
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const Chunk& c = chunks[i];
      if (c.used || up(c.at, alignment) + rounded > c.at + c.size) continue;
      if (best == chunks.size() || (way == Way::best && c.size < chunks[best].size) || (way == Way::worst && c.size > chunks[best].size)) best = i;
    }
    if (best == chunks.size()) return {};
    const Bytes at = up(chunks[best].at, alignment);
    if (at > chunks[best].at) {
      chunks.insert(chunks.begin() + static_cast<long>(best), chunks[best]);
      chunks[best].size = at - chunks[best].at;
      ++best;
      chunks[best].at = at;
      chunks[best].size -= chunks[best - 1].size;
    }
    if (chunks[best].size > rounded && cuts(chunks[best].size, rounded)) {
      chunks.insert(chunks.begin() + static_cast<long>(best) + 1, {at + rounded, chunks[best].size - rounded, false, chunks[best].region});
      chunks[best].size = rounded;
    }
    chunks[best].used = true;
    return at;
  }
  bool extend(Bytes rounded, Bytes alignment) {
    const Bytes available = (limit - pool) / 256 * 256;
    if (rounded > available) return false;
    bool doubled = false;
    while (target < rounded) target *= 2, doubled = true;
    const Bytes size = std::min(target, available);
    if (!doubled) target *= 2;
    const Bytes at = up(next_region, alignment);
    chunks.push_back({at, size, false, ++regions});
    next_region = at + size;
    pool += size;
    return true;
  }
};

struct Live {
  Block block;
  Bytes at;
};

template <class Fit, class Split>
void compare(NaivePool::Way way, bool exact, unsigned seed, int steps) {
  CAPTURE(seed);
  std::mt19937 random(seed);
  const Bytes limit = Bytes{1} << (18 + random() % 8);
  const Bytes region = Bytes{256} << random() % 12;
  const bool collect = random() % 2 == 0;
  NaivePool naive{.limit = limit, .target = std::min(region, limit), .way = way, .exact = exact, .collect = collect};
  FakeLog log;
  auto heap = std::move(*BfcHeap<FakeMemory, Fit, Split, DoublingGrowth>::make(
      {&log}, {.limit = limit, .region = region, .garbage_collection = collect}));
  auto pool = heap.pool();
  std::vector<Live> live;
  const auto free_one = [&] {
    std::swap(live[random() % live.size()], live.back());
    pool.deallocate(live.back().block);
    naive.free(live.back().at);
    live.pop_back();
  };
  for (int i = 0; i < steps; ++i) {
    const bool shrink = i / 200 % 2 == 1;
    if (!live.empty() && random() % 8 < (shrink ? 5u : 3u)) {
      free_one();
    } else {
      const Bytes size = 1 + static_cast<Bytes>(random() % (1u << (8 + random() % 11)));
      const Bytes alignment = random() % 4 == 0 ? Bytes{1} << random() % 16 : 1;
      const auto expected = naive.allocate(size, alignment);
      const Result<Block> b = pool.allocate(size, Alignment(alignment));
      REQUIRE(b.ok() == expected.has_value());
      if (!b.ok()) continue;
      REQUIRE(offset_of(*b) == *expected);
      live.push_back({*b, *expected});
    }
    if (i % 64 == 0) check_bfc(pool);
    REQUIRE(pool.statistics().reserved == naive.pool);
  }
  while (!live.empty()) free_one();
  check_bfc(pool);
  const BfcSnapshot s = pool.snapshot();
  CHECK(s.chunks.size() == s.regions.size());
}

}  // namespace

TEST_CASE("bfc_model: a pool takes the chunks that a search of all chunks by the specification's rules takes (6.1-6.3)") {
  const unsigned seeds = quick() ? 4 : 24;
  const int steps = quick() ? 1000 : 4000;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    compare<BestFit, BfcSplit>(NaivePool::Way::best, false, seed, steps);
    compare<BestFit, ExactSplit>(NaivePool::Way::best, true, seed, steps);
    compare<FirstFit, BfcSplit>(NaivePool::Way::first, false, seed, steps);
    compare<WorstFit, BfcSplit>(NaivePool::Way::worst, false, seed, steps);
    compare<WorstFit, ExactSplit>(NaivePool::Way::worst, true, seed, steps);
  }
}

TEST_CASE("bfc_model: no policy fails while a chunk fits, and blocks are aligned, disjoint and whole") {
  const auto run = []<class Fit, class Split, class Growth>(Fit, Split, Growth) {
    for (unsigned seed = 0; seed < (quick() ? 3u : 15u); ++seed) {
      CAPTURE(seed);
      std::mt19937 random(seed);
      FakeLog log;
      auto heap = std::move(*BfcHeap<FakeMemory, Fit, Split, Growth>::make({&log}, {.limit = 4_MiB, .region = 64_KiB}));
      auto pool = heap.pool();
      std::map<Bytes, Block> live;
      for (int i = 0; i < 3000; ++i) {
        if (!live.empty() && random() % 8 < 3) {
          const auto it = std::next(live.begin(), static_cast<long>(random() % live.size()));
          pool.deallocate(it->second);
          live.erase(it);
          continue;
        }
        const Bytes size = 1 + static_cast<Bytes>(random() % (1u << (8 + random() % 12))), alignment = Bytes{1} << random() % 15;
        bool fits = false;
        for (const BfcChunkRecord& c : pool.snapshot().chunks)
          fits = fits || (!c.used() && up(offset_of(c.block), std::max<Bytes>(alignment, 256)) + up(size, 256) <= offset_of(c.block) + c.block.size);
        const Result<Block> b = pool.allocate(size, Alignment(alignment));
        if (!b.ok()) {
          REQUIRE(!fits);
          CHECK(b.error().available < up(size, 256) + alignment);
          continue;
        }
        REQUIRE(offset_of(*b) % alignment == 0);
        const auto after = live.lower_bound(offset_of(*b));
        if (after != live.end()) REQUIRE(b->data + size <= after->second.data);
        if (after != live.begin()) REQUIRE(std::prev(after)->second.data + std::prev(after)->second.size <= b->data);
        live[offset_of(*b)] = *b;
        if (i % 64 == 0) check_bfc(pool);
      }
      check_bfc(pool);
    }
  };
  run(BestFit{}, KeepLarge<ExactSplit>{64_KiB, 4_KiB}, BoundedGrowth{});
  run(BestFit{}, BoundedWaste{}, ExactGrowth{16_KiB});
  run(FirstFit{}, KeepLarge<>{64_KiB, 4_KiB}, ExactGrowth{});
  run(WorstFit{}, BoundedWaste{50}, BoundedGrowth{});
  run(TwoLevelFit{}, BfcSplit{}, BoundedGrowth{});
  run(TwoLevelFit{}, KeepLarge<ExactSplit>{64_KiB, 4_KiB}, ExactGrowth{16_KiB});
}

namespace {

// Two-ended space as one line of blocks: holes of an end are what is free before its innermost block, the rest is the gap.
struct NaiveEnds {
  struct Used {
    Bytes at, size;
    BfcEnd end;
  };
  Bytes total;
  std::vector<Used> used;  // by address
  struct Run {
    Bytes at, size;
    BfcEnd owner;
  };
  std::vector<Run> runs() const {
    Bytes border_low = 0, border_high = total;
    for (const Used& u : used) {
      if (u.end == BfcEnd::lower) border_low = u.at + u.size;
      if (u.end == BfcEnd::upper) border_high = std::min(border_high, u.at);
    }
    std::vector<Run> all;
    Bytes at = 0;
    const auto run = [&](Bytes end) {
      for (const auto& [from, to, owner] : {std::tuple{at, std::min(end, border_low), BfcEnd::lower},
                                            std::tuple{std::max(at, border_low), std::min(end, border_high), BfcEnd::gap},
                                            std::tuple{std::max(at, border_high), end, BfcEnd::upper}})
        if (from < to) all.push_back({from, to - from, owner});
    };
    for (const Used& u : used) run(u.at), at = u.at + u.size;
    run(total);
    return all;
  }
  std::optional<Bytes> allocate(Bytes size, Bytes alignment, BfcEnd end, bool exact) {
    const Bytes rounded = up(size, 256);
    alignment = std::max<Bytes>(alignment, 256);
    const Run* best = nullptr;
    const auto all = runs();
    for (const BfcEnd owner : {end, BfcEnd::gap}) {
      if (best != nullptr) break;
      for (const Run& r : all)
        if (r.owner == owner && up(r.at, alignment) + rounded <= r.at + r.size && (best == nullptr || r.size < best->size)) best = &r;
    }
    if (best == nullptr) return {};
    const Bytes stop = best->at + best->size;
    Bytes at = up(best->at, alignment), got = rounded;
    const bool whole = best->owner != BfcEnd::gap && !exact && stop - at < 2 * rounded;
    if (whole) got = stop - at;
    if (end == BfcEnd::upper && !whole) at = (stop - rounded) / alignment * alignment;
    used.insert(std::find_if(used.begin(), used.end(), [&](const Used& u) { return u.at > at; }), {at, got, end});
    return at;
  }
  void free(Bytes at) {
    std::erase_if(used, [&](const Used& u) { return u.at == at; });
  }
};

}  // namespace

TEST_CASE("bfc_model: a two-ended pool places as the rules of its ends say (6.4)") {
  for (unsigned seed = 0; seed < (quick() ? 6u : 40u); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    FakeLog log;
    const Bytes limit = Bytes{64_KiB} << random() % 5;
    auto heap = std::move(*BfcHeap<FakeMemory, BestFit, SplitByEnd<>, TwoEnded>::make({&log}, {.limit = limit}));
    auto pool = heap.pool();
    NaiveEnds naive{limit, {}};
    std::vector<Live> live;
    for (int i = 0; i < 2000; ++i) {
      if (!live.empty() && random() % 8 < 3) {
        std::swap(live[random() % live.size()], live.back());
        pool.deallocate(live.back().block);
        naive.free(live.back().at);
        live.pop_back();
      } else {
        const BfcEnd end = random() % 2 == 0 ? BfcEnd::lower : BfcEnd::upper;
        const Bytes size = 1 + static_cast<Bytes>(random() % (1u << (8 + random() % 6)));
        const Bytes alignment = random() % 3 == 0 ? Bytes{1} << random() % 13 : 1;
        const auto expected = naive.allocate(size, alignment, end, end == BfcEnd::upper);
        const Result<Block> b = pool.allocate(size, Alignment(alignment), end);
        REQUIRE(b.ok() == expected.has_value());
        if (!b.ok()) continue;
        REQUIRE(offset_of(*b) == *expected);
        live.push_back({*b, *expected});
      }
      if (i % 16 != 0) continue;
      std::vector<std::pair<Bytes, BfcEnd>> holes, chunks;
      for (const NaiveEnds::Run& r : naive.runs()) holes.push_back({r.at, r.owner});
      for (const BfcChunkRecord& c : pool.snapshot().chunks)
        if (!c.used()) chunks.push_back({offset_of(c.block), c.owner});
      REQUIRE(holes == chunks);
    }
  }
}

TEST_CASE("bfc_model: stamped chunks under random frontiers never overlap, are skipped while unsafe, and join in the end") {
  for (unsigned seed = 0; seed < (quick() ? 4u : 30u); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    FakeLog log;
    auto heap = std::move(*BfcHeap<FakeMemory, BestFit, ExactSplit>::make({&log}, {.limit = 256_KiB, .region = 64_KiB}));
    auto pool = heap.pool();
    std::map<Bytes, std::uint64_t> stamps;  // of each granule: when it was freed last and is not safe yet
    std::vector<Block> live;
    std::uint64_t now = 1, safe = 0;
    for (int i = 0; i < 3000; ++i) {
      pool.set_now(now += random() % 2);
      if (random() % 16 == 0) {
        safe = std::max<std::uint64_t>(safe, now - random() % 4);
        pool.set_safe_frontier(safe);
        std::erase_if(stamps, [&](const auto& s) { return s.second < safe; });
      } else if (!live.empty() && random() % 8 < 4) {
        std::swap(live[random() % live.size()], live.back());
        const Block b = live.back();
        live.pop_back();
        for (Bytes at = 0; at < b.size; at += 256) stamps[offset_of(b) + at] = now;
        pool.deallocate(b);
      } else {
        const Bytes size = 1 + static_cast<Bytes>(random() % 20000);
        const std::uint64_t before = random() % 2 == 0 ? bfc_any_time : now - random() % 6;
        const Result<Block> b = pool.allocate_freed_before(before, size, Alignment(Bytes{1} << random() % 12));
        if (!b.ok()) continue;
        for (const Block& other : live) REQUIRE((other.data + other.size <= b->data || b->data + b->size <= other.data));
        for (Bytes at = 0; at < size; at += 256)
          if (const auto s = stamps.find(offset_of(*b) + at); s != stamps.end()) {
            REQUIRE(s->second <= before);
            stamps.erase(s);
          }
        live.push_back(*b);
      }
      if (i % 16 == 0) check_bfc(pool);
    }
    for (const Block& b : live) pool.deallocate(b);
    pool.set_safe_frontier(now + 1);
    const BfcSnapshot s = pool.snapshot();
    CHECK(s.chunks.size() == s.regions.size());
    check_bfc(pool);
  }
}

namespace {

// Host memory for tables; refuses a call.
struct Counted {
  static constexpr MemorySpace space = MemorySpace::host;
  struct Log {
    std::size_t calls = 0, refuse = 0;
    long out = 0;
  };
  Log* log;
  Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    if (++log->calls == log->refuse) return make_error(Errc::out_of_memory, "refused");
    ++log->out;
    return SystemMemory{}.allocate(size, alignment);
  }
  void deallocate(Block b) noexcept {
    if (b.data != nullptr) --log->out;
    SystemMemory{}.deallocate(b);
  }
};

}  // namespace

TEST_CASE("bfc_model: an upstream or a table's memory that refuses its n-th call leaks nothing and leaves the pool usable (fault)") {
  for (const bool tables : {false, true}) {
    bool refused = true;
    for (std::size_t n = 1; refused; ++n) {
      CAPTURE(n);
      FakeLog log;
      Counted::Log meta;
      if (tables)
        meta.refuse = n;
      else
        log.refuse = {n};
      {
        auto heap = BfcHeap<FakeMemory, BestFit, ExactSplit, ExactGrowth, Counted>::make({&log}, {}, {}, {4096}, {&meta});
        if (!heap.ok()) {
          CHECK(heap.error().code == Errc::out_of_memory);
          CHECK(meta.out == 0);
          continue;
        }
        auto pool = heap->pool();
        std::vector<Block> live;
        int failed = 0;
        for (int i = 0; i < 700; ++i) {
          const Bytes size = i % 3 == 0 ? 100 : 10 * i;
          const Result<Block> b = pool.allocate(size, Alignment(i % 7 == 0 ? 4096 : 1));
          if (b.ok()) {
            live.push_back(*b);
          } else {
            ++failed;
            CHECK(b.error().code == Errc::out_of_memory);
            CHECK(b.error().requested == size);
          }
          if (i % 5 == 4) {
            pool.deallocate(live[live.size() / 2]);
            live.erase(live.begin() + static_cast<long>(live.size() / 2));
          }
        }
        check_bfc(pool);
        CHECK(failed <= 1);
        refused = tables ? meta.calls >= n : log.asked.size() >= n;
        for (const Block& b : live) pool.deallocate(b);
        CHECK(pool.statistics().in_use == 0);
        pool.trim(0);
        CHECK(log.out.empty());
        if (tables) CHECK(n < 40);
      }
      CHECK(meta.out == 0);
    }
  }
}
