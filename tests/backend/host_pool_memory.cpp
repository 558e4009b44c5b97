// SPDX-License-Identifier: Apache-2.0
// What the host pool says of its memory, beside brute force and beside what the kernel says.
#include "holdfast/backend/host/host_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

// The pages that the system backs, if every block is touched: all that were given out and not purged since.
std::set<std::byte*> backed;
struct LoggedPages : SystemPages {
  bool purge(std::byte* data, Bytes size) noexcept {
    backed.erase(backed.lower_bound(data), backed.lower_bound(data + size));
    return SystemPages::purge(data, size);
  }
};
void back(const Block& b) {
  for (Bytes i = 0; i < b.size; i += 4096) backed.insert(b.data + i);
}

// Bytes of this process that are in memory.
Bytes resident() {
  long all = 0, pages = 0;
  std::FILE* f = std::fopen("/proc/self/statm", "r");
  REQUIRE(f != nullptr);
  REQUIRE(std::fscanf(f, "%ld %ld", &all, &pages) == 2);
  std::fclose(f);
  return Bytes{4096} * pages;
}

// The flags that the kernel keeps for the mapping of an address, as in /proc/self/smaps.
std::string flags_at(const std::byte* p) {
  const std::string text = read_file("/proc/self/smaps");
  bool inside = false;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    const std::string line = text.substr(at, end - at);
    unsigned long first = 0, last = 0;
    if (line.starts_with("VmFlags:")) {
      if (inside) return line.substr(8) + " ";
    } else if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &last) == 2) {
      const auto address = reinterpret_cast<std::uintptr_t>(p);
      inside = first <= address && address < last;
    }
  }
  return {};
}

}  // namespace

TEST_CASE("host_pool: reserved, live, free, largest free and external fragmentation are what brute force says (backends.md 9.2)") {
  for (const Bytes cache : {Bytes{0}, 64_MiB}) {
    backed.clear();
    using Heap = BasicHostHeap<LoggedPages>;
    Heap heap = std::move(*Heap::make({.cache_limit = cache}));
    auto pool = heap.pool();
    std::mt19937 random(11);
    std::vector<Block> live;
    Bytes live_bytes = 0;
    int fragmented = 0, checked = 0;
    for (int i = 0; i < 4000; ++i) {
      const bool few = i / 500 % 2 == 1;  // now and then most of it goes
      if (live.size() > (few ? 10u : 60u) || (!live.empty() && random() % 3 == 0)) {
        std::swap(live[random() % live.size()], live.back());
        live_bytes -= live.back().size;
        pool.deallocate(live.back());
        live.pop_back();
      } else {
        const Bytes size = 2049 + static_cast<Bytes>(random() % (1u << (11 + random() % 9)));  // runs of pages
        const Block b = *pool.allocate(size, Alignment(64));
        live.push_back(b);
        live_bytes += size;
        back(b);
      }
      if (i % 16 != 0) continue;
      if (i % 160 == 0) pool.trim(static_cast<Bytes>(random() % (4u << 20)));
      pool.trim(max_bytes);  // joins what is kept for its size, gives nothing back
      Bytes free = 0, largest = 0, used = 0;
      pool.visit_blocks([&](Block run, bool is_free) {
        if (!is_free) {
          used += run.size;
          return;
        }
        Bytes row = 0;
        for (Bytes at = 0; at < run.size && run.data + at <= *backed.rbegin(); at += 4096) {
          row = backed.count(run.data + at) != 0 ? row + 4096 : 0;
          free += row != 0 ? 4096 : 0;
          largest = std::max(largest, row);
        }
      });
      const HostPoolStatistics s = pool.statistics();
      REQUIRE(s.live == live_bytes);
      REQUIRE(s.reserved == static_cast<Bytes>(backed.size()) * 4096);
      REQUIRE(s.reserved == used + free);  // P = C + F
      REQUIRE(s.free == free);
      REQUIRE(s.largest_free == largest);
      REQUIRE(pool.largest_free() == largest);
      REQUIRE(s.fragmentation() == (free == 0 ? 0.0 : 1.0 - static_cast<double>(largest) / static_cast<double>(free)));
      fragmented += s.fragmentation() > 0.2;
      ++checked;
    }
    CHECK(checked == 250);
    CHECK(fragmented > 50);
    for (const Block& b : live) pool.deallocate(b);
  }
}

// The trace of the case, 16 times as large, so that its granule of 256 bytes is a page. The host pool differs in one thing: step 13
// succeeds, for pages can move to where addresses are free.
TEST_CASE("host_pool: the fragmentation table of cases/09 A, row by row, and its failing request served within the same memory") {
  const std::string path = shared_path("cases/09-fragmentation/trace.csv");
  if (path.empty()) return;
  struct Row {
    int step;
    Bytes free, largest;
    int holes;
    double fragmentation;
  };
  constexpr Row table[] = {
      {8, 0, 0, 0, 0}, {12, 32768, 8192, 4, 0.75}, {14, 40960, 24576, 3, 0.4}, {15, 28672, 12288, 3, 4.0 / 7}, {23, 65536, 65536, 1, 0}};
  HostHeap heap = std::move(*HostHeap::make({.limit = 16 * 65536, .cache_limit = 0}));
  HostPool pool = heap.pool();
  std::map<std::string, Block> blocks;
  std::byte* base = nullptr;
  const std::string text = read_file(path);
  int rows = 0;
  for (std::size_t at = text.find('\n') + 1; at < text.size(); at = text.find('\n', at) + 1) {
    int step = 0;
    char op[8] = {}, id[4] = {};
    long bytes = 0, offset = -1;
    REQUIRE(std::sscanf(text.c_str() + at, "%d,%7[a-z],%3[a-z0-9],%ld,%ld", &step, op, id, &bytes, &offset) >= 3);
    if (step == 13) {
      HostPoolStatistics s = pool.statistics();
      CHECK(s.live == 16 * 32768);
      std::vector<Block> between;  // the blocks that separate the holes: a2, a4, a6
      pool.visit_blocks([&](Block run, bool free) {
        if (!free && run.data != base) between.push_back(run);
      });
      REQUIRE(between.size() == 3);
      CHECK(between[0].data == blocks["a2"].data);
      CHECK(between[1].data == blocks["a4"].data);
      CHECK(between[2].data == blocks["a6"].data);
      continue;
    }
    if (std::string(op) == "alloc") {
      const Result<Block> b = pool.allocate(16 * bytes, Alignment(4096));
      REQUIRE(b.ok());
      if (step == 1) base = b->data;
      CHECK(b->data - base == 16 * offset);
      blocks[id] = *b;
    } else {
      pool.deallocate(blocks[id]);
    }
    pool.trim(max_bytes);  // joins at once
    for (const Row& row : table) {
      if (row.step != step) continue;
      ++rows;
      const HostPoolStatistics s = pool.statistics();
      int holes = 0;
      Bytes runs = 0;
      pool.visit_blocks([&](Block run, bool free) {
        runs += free ? 0 : run.size;
        holes += free && run.data < base + 16 * 65536;
      });
      CHECK(s.free == 16 * row.free);
      CHECK(s.largest_free == 16 * row.largest);
      CHECK(holes == row.holes);
      CHECK(s.fragmentation() == doctest::Approx(row.fragmentation).epsilon(1e-12));
      if (step == 8) CHECK(runs - s.live == 16 * 768);  // internal waste
    }
  }
  CHECK(rows == 5);

  std::vector<Block> parts;
  for (int i = 0; i < 8; ++i) parts.push_back(*pool.allocate(16 * 8192, Alignment(4096)));
  for (const int i : {1, 3, 5, 7}) pool.deallocate(parts[static_cast<std::size_t>(i)]);
  const Result<Block> x = pool.allocate(16 * 12288, Alignment(4096));
  REQUIRE(x.ok());
  CHECK(pool.statistics().peak_reserved == 16 * 65536);
  pool.deallocate(*x);
  for (const int i : {0, 2, 4, 6}) pool.deallocate(parts[static_cast<std::size_t>(i)]);
}

TEST_CASE("host_pool: trim really gives memory back: the process's resident bytes fall by it") {
  HostHeap heap = std::move(*HostHeap::make());
  HostPool pool = heap.pool();
  const Bytes before = resident();
  std::vector<Block> blocks;
  for (int i = 0; i < 64; ++i) {
    blocks.push_back(*pool.allocate(1_MiB, Alignment(64)));
    std::memset(blocks.back().data, 1, 1_MiB);
  }
  const Bytes full = resident();
  CHECK(full - before >= 63_MiB);
  for (const Block& b : blocks) pool.deallocate(b);
  CHECK(resident() >= full - 1_MiB);  // kept for the next
  CHECK(pool.trim(16_MiB) == 48_MiB);
  CHECK(resident() <= full - 47_MiB);
  CHECK(pool.trim(0) == 16_MiB);
  CHECK(resident() <= full - 63_MiB);
}

TEST_CASE("host_pool: a pool that is gone leaves nothing resident") {
  const Bytes before = resident();
  for (int i = 0; i < 8; ++i) {
    HostHeap heap = std::move(*HostHeap::make());
    HostPool pool = heap.pool();
    const Block b = *pool.allocate(32_MiB, Alignment(64));
    std::memset(b.data, 1, 32_MiB);
    pool.deallocate(b);
  }
  CHECK(resident() - before < 16_MiB);
}

TEST_CASE("host_pool: with huge pages on, the kernel's mapping of the pool's pages is advised so; off, it is not") {
  for (const bool huge : {true, false}) {
    HostHeap heap = std::move(*HostHeap::make({.huge_pages = huge}));
    HostPool pool = heap.pool();
    const Block b = *pool.allocate(8_MiB, Alignment(2_MiB));
    const std::string flags = flags_at(b.data);
    if (flags.empty()) return skip_case("no VmFlags in /proc/self/smaps");
    std::FILE* f = std::fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (f == nullptr) return skip_case("a kernel without huge pages");
    std::fclose(f);
    CHECK((flags.find(" hg ") != flags.npos) == huge);
    pool.deallocate(b);
  }
}
