// SPDX-License-Identifier: Apache-2.0
#include "holdfast/trace/fragmentation.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/shared.hpp"

using namespace holdfast;

namespace {

constexpr FreeBlocks free_of(std::initializer_list<Bytes> sizes) {
  FreeBlocks f;
  for (const Bytes s : sizes) f.add(s);
  return f;
}

// What an engine plans with holds at compile time.
static_assert(external_fragmentation(100, 250) == 0.6);
static_assert(free_of({100, 100, 50}).external_fragmentation() == 0.6);
static_assert(free_of({}).external_fragmentation() == 0 && free_of({}).entropy() == 0 &&
              free_of({}).mean() == 0);
static_assert(free_of({64, 64, 64, 64}).entropy() == 2);

/// An arena of bytes, each free or not: every figure can be counted off.
struct Bitmap {
  std::vector<char> used;

  std::vector<Extent> extents() const {
    std::vector<Extent> out;
    for (std::size_t i = 0; i < used.size(); ++i) {
      // Live blocks are of one byte or of two equal marks.
      if (!out.empty() && used[i] == 0 && used[i - 1] == 0)
        ++out.back().size;
      else if (!out.empty() && used[i] != 0 && used[i] == used[i - 1])
        ++out.back().size;
      else
        out.push_back({static_cast<Bytes>(i), 1, used[i] == 0});
    }
    return out;
  }
  Bytes largest() const {
    Bytes best = 0, run = 0;
    for (const char u : used) best = std::max(best, run = u == 0 ? run + 1 : 0);
    return best;
  }
  /// How many bytes blocks of a size can take, placed one by one.
  Bytes placeable(Bytes size) const {
    Bytes run = 0, placed = 0;
    for (const char u : used)
      if (run = u == 0 ? run + 1 : 0; run == size) placed += size, run = 0;
    return placed;
  }
};

}  // namespace

TEST_CASE("fragmentation: LK4, the worked example") {
  const std::vector<Bytes> blocks{100, 100, 50};
  CHECK(free_of({100, 100, 50}).external_fragmentation() == doctest::Approx(0.6));
  CHECK(unusable_for(blocks, 100) == doctest::Approx(0.2));
  CHECK(unusable_for(blocks, 60) == doctest::Approx(0.52));
}

TEST_CASE("fragmentation: nothing to divide by gives 0") {
  CHECK(unusable_for({}, 10) == 0);
  CHECK(unusable_for(std::vector<Bytes>{10}, 0) == 0);
  const ArenaFigures none;
  CHECK(none.used.internal_fragmentation() == 0);
  CHECK(none.holding_ratio() == 0);
  CHECK(none.committed() == 0);
  CHECK(none.stranded_share() == 0);
  CHECK(none.peak_gap() == 0);
  CHECK(size_quantiles({}) == SizeQuantiles{});
  CHECK(RecentSizes<4>{}.quantiles() == SizeQuantiles{});
}

TEST_CASE("fragmentation: LK4, free figures agree with a count byte by byte") {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    Bitmap map{std::vector<char>(1 + random() % 200, 0)};
    const auto density = random() % 5;
    for (char& u : map.used)
      u = random() % 4 < density ? static_cast<char>(1 + random() % 2) : '\0';
    FreeBlocks f;
    std::vector<Bytes> sizes;
    for (const Extent& e : map.extents())
      if (e.free) f.add(e.size), sizes.push_back(e.size);
    const auto bytes = static_cast<Bytes>(std::count(map.used.begin(), map.used.end(), 0));
    REQUIRE(f.bytes == bytes);
    REQUIRE(f.largest == map.largest());
    REQUIRE(f.count == static_cast<std::int64_t>(sizes.size()));
    const auto share = [&](Bytes part) {
      return bytes == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(bytes);
    };
    REQUIRE(f.external_fragmentation() ==
            doctest::Approx(bytes == 0 ? 0 : 1 - share(map.largest())));
    for (const Bytes s : {1, 2, 3, 7, 20, 300})
      REQUIRE(unusable_for(sizes, s) ==
              doctest::Approx(bytes == 0 ? 0 : 1 - share(map.placeable(s))));
    double entropy = 0;
    for (const Bytes s : sizes) entropy -= share(s) * std::log2(share(s));
    REQUIRE(f.entropy() == doctest::Approx(entropy).epsilon(1e-9));
  }
}

TEST_CASE("fragmentation: logarithms are those of the library, to the last digits") {
  std::mt19937_64 random(3);
  for (int i = 0; i < 10'000; ++i) {
    const auto x = static_cast<Bytes>((random() >> 1) >> random() % 63) | 1;
    REQUIRE(std::abs(detail::log2_of(x) - std::log2(static_cast<double>(x))) < 1e-12);
  }
}

TEST_CASE("fragmentation: the histogram has the 21 bins of BFC") {
  CHECK(free_size_bin(1) == 0);
  CHECK(free_size_bin(511) == 0);
  CHECK(free_size_bin(512) == 1);
  CHECK(free_size_bin((256 << 5) - 1) == 4);
  CHECK(free_size_bin(256 << 5) == 5);
  CHECK(free_size_bin(Bytes{256} << 20) == 20);
  CHECK(free_size_bin(max_bytes) == 20);
  CHECK(free_of({300, 300, 512, Bytes{1} << 40}).histogram[0] == 2);
  CHECK(free_of({300, 300, 512, Bytes{1} << 40}).histogram[20] == 1);
}

TEST_CASE("fragmentation: arenas add up to a domain") {
  ArenaFigures a, b;
  a.used.add(100, 128, 256);
  a.used.add(1000, 1024, 1024);
  a.free = free_of({512, 256});
  a.held = 2048, a.limit = 4096, a.stranded = 256, a.peak_held = 2048, a.peak_chunks = 1536;
  b.used.add(50, 64, 64);
  b.free = free_of({960});
  b.held = 1024;
  CHECK(a.used.internal_fragmentation() == doctest::Approx(180.0 / 1280));
  CHECK(a.used.alignment_waste() == 52);
  CHECK(a.used.split_waste() == 128);
  CHECK(a.used.alignment_waste() + a.used.split_waste() == a.used.chunks - a.used.requested);
  CHECK(a.holding_ratio() == doctest::Approx(1.6));
  CHECK(a.committed() == 0.5);
  CHECK(a.stranded_share() == doctest::Approx(1.0 / 3));
  CHECK(a.peak_gap() == 512);
  ArenaFigures sum = a;
  sum += b;
  CHECK(sum.used.count == 3);
  CHECK(sum.used.requested == 1150);
  CHECK(sum.free.external_fragmentation() == doctest::Approx(1 - 960.0 / 1728));
  CHECK(sum.free.entropy() == doctest::Approx(free_of({512, 256, 960}).entropy()));
  CHECK(sum.free.histogram == free_of({512, 256, 960}).histogram);
  CHECK(sum.holding_ratio() == doctest::Approx(3072.0 / 1344));
}

TEST_CASE("fragmentation: quantiles by nearest rank, of the last sizes") {
  std::vector<Bytes> sizes;
  for (Bytes i = 100; i > 0; --i) sizes.push_back(i);
  CHECK(size_quantiles(sizes) == SizeQuantiles{50, 90, 99, 100});
  RecentSizes<4> recent;
  for (const Bytes s : {900, 4, 1, 3, 2}) recent.add(s);
  CHECK(recent.quantiles() == SizeQuantiles{2, 4, 4, 4});
  RecentSizes<8> few;
  few.add(7);
  CHECK(few.quantiles() == SizeQuantiles{7, 7, 7, 7});
}

TEST_CASE("fragmentation: blockers are the cheapest of all sets of live blocks") {
  std::mt19937 random(23);
  for (int round = 0; round < 3000; ++round) {
    std::vector<Extent> arena;
    Bytes at = 0;
    for (std::size_t n = 1 + random() % 11; arena.size() < n;) {
      const bool free = random() % 2 == 0 && (arena.empty() || !arena.back().free);
      arena.push_back({at, 1 + static_cast<Bytes>(random() % 9), free});
      at += arena.back().size;
    }
    const Bytes size = 1 + static_cast<Bytes>(random() % static_cast<unsigned>(at + 3));
    // Every set of live blocks that is released, the largest hole that is there then.
    Bytes cheapest = max_bytes, largest = 0;
    for (unsigned set = 0; set < 1u << arena.size(); ++set) {
      Bytes live = 0, run = 0, hole = 0;
      bool proper = true;
      for (std::size_t i = 0; i < arena.size(); ++i) {
        const bool released = (set >> i & 1) != 0;
        proper = proper && !(released && arena[i].free);
        if (released) live += arena[i].size;
        run = released || arena[i].free ? run + arena[i].size : 0;
        hole = std::max(hole, run);
      }
      if (!proper || hole < size) continue;
      if (live < cheapest) cheapest = live, largest = 0;
      if (live == cheapest) largest = std::max(largest, hole);
    }
    int calls = 0;
    find_blockers(arena, size, [&](const Blockers& b) {
      ++calls;
      REQUIRE(b.live == cheapest);
      REQUIRE(b.hole == largest);
      REQUIRE_FALSE(arena[b.begin].free);
      REQUIRE_FALSE(arena[b.end - 1].free);
    });
    REQUIRE((calls > 0) == (cheapest != 0 && cheapest != max_bytes));
  }
}

namespace {

/// The pool of case 09: best fit in 256 bytes, lowest among equals, always cut, holes joined at
/// once.
struct CasePool {
  struct Chunk {
    Extent extent;
    std::string id;
    Bytes requested = 0;
  };
  std::vector<Chunk> chunks{{{0, 65536, true}, {}, 0}};

  Bytes allocate(const std::string& id, Bytes bytes) {
    const Bytes size = align_up(bytes, 256);
    std::size_t best = chunks.size();
    for (std::size_t i = 0; i < chunks.size(); ++i)
      if (const Extent& e = chunks[i].extent;
          e.free && e.size >= size && (best == chunks.size() || e.size < chunks[best].extent.size))
        best = i;
    if (best == chunks.size()) return -1;
    const Extent hole = chunks[best].extent;
    chunks[best] = {{hole.offset, size, false}, id, bytes};
    if (hole.size > size)
      chunks.insert(chunks.begin() + static_cast<std::ptrdiff_t>(best) + 1,
                    {{hole.offset + size, hole.size - size, true}, {}, 0});
    return hole.offset;
  }
  void release(const std::string& id) {
    for (Chunk& c : chunks)
      if (c.id == id) c = {{c.extent.offset, c.extent.size, true}, {}, 0};
    for (std::size_t i = 0; i + 1 < chunks.size();)
      if (chunks[i].extent.free && chunks[i + 1].extent.free)
        chunks[i].extent.size += chunks[i + 1].extent.size,
            chunks.erase(chunks.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      else
        ++i;
  }
  FreeBlocks free() const {
    FreeBlocks f;
    for (const Chunk& c : chunks)
      if (c.extent.free) f.add(c.extent.size);
    return f;
  }
  UsedBlocks used() const {
    UsedBlocks u;
    for (const Chunk& c : chunks)
      if (!c.extent.free) u.add(c.requested, align_up(c.requested, 256), c.extent.size);
    return u;
  }
};

std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> out{""};
  for (const char c : line)
    if (c == ',')
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

}  // namespace

TEST_CASE(
    "fragmentation: case 09 A, figures after each step, and who is in the way of the request that "
    "fails") {
  const std::string path = testing::shared_path("cases/09-fragmentation/trace.csv");
  if (path.empty()) return;
  const std::string text = testing::read_file(path);
  struct Row {
    Bytes free, largest;
    std::int64_t holes;
    double external;
  };
  const std::map<int, Row> expected{{8, {0, 0, 0, 0}},
                                    {12, {32768, 8192, 4, 0.75}},
                                    {14, {40960, 24576, 3, 0.4}},
                                    {15, {28672, 12288, 3, 4.0 / 7}},
                                    {23, {65536, 65536, 1, 0}}};
  CasePool pool;
  int steps = 0;
  for (std::size_t from = text.find('\n') + 1; from < text.size();) {
    const std::size_t to = std::min(text.find('\n', from), text.size());
    const std::vector<std::string> row = cells(text.substr(from, to - from));
    from = to + 1;
    const int step = std::stoi(row[0]);
    ++steps;
    if (row[1] == "free") {
      pool.release(row[2]);
    } else {
      const Bytes offset = pool.allocate(row[2], std::stoll(row[3]));
      CHECK(offset == (row[4] == "RESOURCE_EXHAUSTED" ? -1 : std::stoll(row[4])));
    }
    if (step == 8) CHECK(pool.used().alignment_waste() + pool.used().split_waste() == 768);
    if (step == 13) {
      std::vector<Extent> arena;
      for (const CasePool::Chunk& c : pool.chunks) arena.push_back(c.extent);
      std::vector<std::string> names;
      find_blockers(arena, 12288, [&](const Blockers& b) {
        CHECK(b.end == b.begin + 1);
        CHECK(b.hole == 24576);
        names.push_back(pool.chunks[b.begin].id);
      });
      CHECK(names == std::vector<std::string>{"a2", "a4", "a6"});
      CHECK(pool.free().bytes == 32768);
      CHECK(pool.free().largest == 8192);
    }
    if (const auto want = expected.find(step); want != expected.end()) {
      const FreeBlocks f = pool.free();
      CHECK(f.bytes == want->second.free);
      CHECK(f.largest == want->second.largest);
      CHECK(f.count == want->second.holes);
      CHECK(f.external_fragmentation() == doctest::Approx(want->second.external));
    }
  }
  CHECK(steps == 23);
}
