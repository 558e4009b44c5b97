// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/bfc/explain.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "support/bfc_fakes.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

struct Text {
  std::string text;
  Error write(std::string_view more) noexcept { return text += more, Error{}; }
};
std::string sentence(const BfcExplanation& e) {
  Text out;
  CHECK(write_explanation(out, e).ok());
  return out.text;
}

// The fewest live bytes between two chunks of one region whose span holds the request, by trying all spans.
Bytes cheapest(const BfcSnapshot& s, Bytes rounded, Bytes alignment) {
  Bytes best = max_bytes;
  for (std::size_t i = 0; i < s.chunks.size(); ++i) {
    Bytes live = 0;
    for (std::size_t j = i; j < s.chunks.size() && s.chunks[j].region == s.chunks[i].region; ++j) {
      if (s.chunks[j].used()) live += s.chunks[j].block.size;
      const Bytes begin = (offset_of(s.chunks[i].block) + alignment - 1) / alignment * alignment;
      if (begin + rounded <= offset_of(s.chunks[j].block) + s.chunks[j].block.size) best = std::min(best, live);
    }
  }
  return best;
}

}  // namespace

TEST_CASE("bfc_explain: a failing request names the shortfall and the cheapest blocks in its way (cases/09 A)") {
  const std::string path = shared_path("cases/09-fragmentation/trace.csv");
  if (path.empty()) return;
  FakeLog log;
  auto heap = std::move(*BfcHeap<FakeMemory, BestFit, ExactSplit>::make({&log}, {.limit = 65536, .region = 65536}));
  auto pool = heap.pool();
  std::map<std::string, Block> out;
  const std::string text = read_file(path);
  int rows = 0;
  for (std::size_t at = text.find('\n') + 1; at < text.size(); at = text.find('\n', at) + 1, ++rows) {
    int step = 0;
    char op[16] = "", id[16] = "", expected[32] = "";
    long long bytes = 0;
    REQUIRE(std::sscanf(text.c_str() + at, "%d,%15[^,],%15[^,],%lld,%31[^\n]", &step, op, id, &bytes, expected) >= 3);
    CAPTURE(step);
    if (std::string_view(op) == "free") {
      pool.deallocate(out[id]);
      out.erase(id);
    } else {
      if (step == 13) {
        const BfcExplanation e = pool.explain(bytes);
        CHECK(e.reason == BfcReason::fragmented);
        CHECK(e.requested == 12288);
        CHECK(e.free == 32768);
        CHECK(e.largest == 8192);
        CHECK(e.short_by == 4096);
        CHECK(e.window_blocks == 1);
        CHECK(e.window_live == 8192);
        CHECK(e.window_choices == 3);  // a2, a4 or a6
        CHECK(e.window.data == out["a2"].data - 8192);
        CHECK(e.window.size == 24576);
        CHECK(sentence(e) ==
              "12288 bytes, 12288 with rounding: enough is free, but in pieces. Free 32768, largest usable 8192, below the limit 0. Short "
              "by 4096 in one piece. It is enough to move or free 8192 bytes in 1 block, which gives 24576; there are 3 such places.");
      }
      const Result<Block> b = pool.allocate(bytes, Alignment(1));
      if (std::string_view(expected) == "RESOURCE_EXHAUSTED") {
        CHECK(status_kind(b.error()) == StatusKind::resource_exhausted);
        CHECK(b.error().requested == 12288);
        CHECK(b.error().available == 8192);
      } else {
        REQUIRE(b.ok());
        CHECK(std::to_string(offset_of(*b)) == expected);
        out[id] = *b;
      }
    }
    struct Figures {
      int step;
      Bytes free, largest;
      std::size_t holes;
      double fragmentation;
    };
    for (const Figures& f : {Figures{8, 0, 0, 0, 0}, Figures{12, 32768, 8192, 4, 0.75}, Figures{14, 40960, 24576, 3, 0.4},
                             Figures{15, 28672, 12288, 3, 4.0 / 7}, Figures{23, 65536, 65536, 1, 0}})
      if (f.step == step) {
        const BfcStatistics s = pool.statistics();
        CHECK(s.free == f.free);
        CHECK(s.largest_free == f.largest);
        CHECK(s.external_fragmentation() == doctest::Approx(f.fragmentation));
        std::size_t holes = 0;
        pool.visit_blocks([&](Block, bool free) { holes += free ? 1 : 0; });
        CHECK(holes == f.holes);
        if (step == 8) CHECK(s.in_use - s.requested == 768);
      }
  }
  CHECK(rows == 23);
}

TEST_CASE("bfc_explain: each reason is told, and what the pool then does agrees") {
  FakeLog log;
  auto heap = std::move(*BfcHeap<FakeMemory>::make({&log}, {.limit = 8192, .region = 4096}));
  auto pool = heap.pool();
  CHECK(pool.explain(0).reason == BfcReason::invalid);
  CHECK(pool.explain(-1).reason == BfcReason::invalid);
  CHECK(pool.explain(max_bytes).reason == BfcReason::invalid);
  CHECK(pool.explain(8192).reason == BfcReason::grows);
  CHECK(pool.explain(8193).reason == BfcReason::no_free);
  CHECK(pool.explain(8193).short_by == 256);
  const Block a = *pool.allocate(3000, Alignment(1));
  CHECK(pool.explain(1024).reason == BfcReason::grows);
  CHECK(pool.explain(8192).reason == BfcReason::no_free);
  pool.deallocate(a);
  CHECK(pool.explain(4096).reason == BfcReason::fits);
  CHECK(pool.explain(8192).reason == BfcReason::reclaims);
  CHECK(pool.explain(8192).idle == 4096);
  log.refuse_from = 2;
  const Block b = *pool.allocate(256, Alignment(1));
  CHECK(pool.allocate(4096, Alignment(1)).error().code == Errc::out_of_memory);
  CHECK(pool.explain(4096).reason == BfcReason::refused);
  CHECK(pool.explain(8192).reason == BfcReason::limit);
  CHECK(sentence(pool.explain(4096)).find("the upstream has refused as much") != std::string::npos);
  pool.deallocate(b);
}

TEST_CASE("bfc_explain: the cheapest place to make room is that of brute force, and fits means success") {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    FakeLog log;
    auto heap = std::move(*BfcHeap<FakeMemory, BestFit, ExactSplit>::make({&log}, {.limit = 65536, .region = 16384}));
    auto pool = heap.pool();
    std::vector<Block> blocks;
    for (int i = 0; i < 80; ++i) {
      if (!blocks.empty() && random() % 3 == 0) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        pool.deallocate(blocks.back());
        blocks.pop_back();
      } else if (const auto b = pool.allocate(1 + static_cast<Bytes>(random() % 3000), Alignment(1)); b.ok()) {
        blocks.push_back(*b);
      }
      const Bytes size = 1 + static_cast<Bytes>(random() % 20000), alignment = Bytes{256} << random() % 5;
      const BfcSnapshot s = pool.snapshot();
      const BfcExplanation e = explain_bfc(s, size, Alignment(alignment));
      if (e.reason != BfcReason::fits) {
        const Bytes best = cheapest(s, e.rounded, alignment);
        CHECK((e.window.size == 0 ? max_bytes : e.window_live) == best);
        Bytes live = 0;
        for (const BfcChunkRecord& c : s.chunks)
          if (c.used() && c.block.data >= e.window.data && c.block.data < e.window.data + e.window.size) live += c.block.size;
        CHECK(live == e.window_live);
      }
      const Result<Block> b = pool.allocate(size, Alignment(alignment));
      CHECK(b.ok() == (e.reason <= BfcReason::reclaims));
      if (b.ok()) pool.deallocate(*b);
    }
  }
}
