// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/bfc/moves.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "support/bfc_fakes.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

TEST_CASE("bfc_moves: one move makes the room of cases/09 A, and is carried out") {
  FakeLog log;
  auto heap = std::move(*BfcHeap<FakeMemory, BestFit, ExactSplit>::make({&log}, {.limit = 65536, .region = 65536}));
  auto pool = heap.pool();
  std::vector<Block> a;
  for (int i = 0; i < 8; ++i) a.push_back(*pool.allocate(8192, Alignment(1), Tag{"a", static_cast<std::uint64_t>(i)}));
  CHECK(plan_bfc_moves(pool.snapshot(), 12288).error().code == Errc::infeasible);
  for (const unsigned i : {1u, 3u, 5u, 7u}) pool.deallocate(a[i]);
  CHECK(plan_bfc_moves(pool.snapshot(), 8192)->empty());
  CHECK(plan_bfc_moves(pool.snapshot(), 0).error().code == Errc::invalid_argument);
  const auto moves = plan_bfc_moves(pool.snapshot(), 12288);
  REQUIRE(moves.ok());
  REQUIRE(moves->size() == 1);
  const BfcMove move = moves->front();
  CHECK(move.from == a[0]);  // one block is one block: the first place is as good as the others
  CHECK(move.to == a[3]);
  CHECK(move.tag.number == 0);
  const Result<Block> there = pool.allocate_at(move.to, move.alignment, move.tag);
  REQUIRE(there.ok());
  CHECK(*there == move.to);
  pool.deallocate(move.from);
  check_bfc(pool);
  CHECK(pool.allocate(12288, Alignment(1)).ok());
  CHECK(plan_bfc_moves(pool.snapshot(), 65536).error().code == Errc::infeasible);
}

TEST_CASE("bfc_moves: a place is given where it is free and in one hole") {
  FakeLog log;
  auto heap = std::move(*BfcHeap<FakeMemory>::make({&log}, {.limit = 16384, .region = 16384}));
  auto pool = heap.pool();
  const Block a = *pool.allocate(1024, Alignment(1));
  const auto code = [&](Bytes offset, Bytes size, Bytes alignment = 1) {
    return pool.allocate_at({a.data + offset, size}, Alignment(alignment)).error().code;
  };
  CHECK(code(0, 256) == Errc::wrong_state);
  CHECK(code(768, 512) == Errc::wrong_state);
  CHECK(code(16384, 1) == Errc::wrong_state);
  CHECK(code(16128, 257) == Errc::wrong_state);
  CHECK(code(-256, 1) == Errc::wrong_state);
  CHECK(code(1024 + 128, 1) == Errc::invalid_argument);
  CHECK(code(1024, 0) == Errc::invalid_argument);
  CHECK(code(1024, -1) == Errc::invalid_argument);
  CHECK(code(1024, max_bytes) == Errc::invalid_argument);
  CHECK(code(1024, 1, 2048) == Errc::invalid_argument);
  const Block b = *pool.allocate_at({a.data + 2048, 300}, Alignment(2048), Tag{"b"});
  CHECK(b == Block{a.data + 2048, 300});
  check_bfc(pool);
  CHECK(pool.statistics().in_use == 1024 + 512);
  CHECK(pool.snapshot().chunks.size() == 4);
  CHECK(pool.snapshot().chunks[2].alignment == Alignment(2048));
  pool.deallocate(b);
  pool.deallocate(a);
  CHECK(pool.snapshot().chunks.size() == 1);
}

TEST_CASE("bfc_moves: a plan carried out makes the request fit, with every block aligned and no other touched") {
  int planned = 0, infeasible = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    FakeLog log;
    auto heap = std::move(*BfcHeap<FakeMemory, BestFit, ExactSplit>::make({&log}, {.limit = 64_KiB, .region = 64_KiB}));
    auto pool = heap.pool();
    std::vector<Block> live;
    for (int i = 0; i < 300; ++i) {
      if (!live.empty() && random() % 8 < (i < 200 ? 3u : 5u)) {
        std::swap(live[random() % live.size()], live.back());
        pool.deallocate(live.back());
        live.pop_back();
      } else if (const auto b = pool.allocate(1 + static_cast<Bytes>(random() % 2000), Alignment(Bytes{1} << random() % 11)); b.ok()) {
        live.push_back(*b);
      }
    }
    const Bytes size = 1 + static_cast<Bytes>(random() % 12000);
    const Alignment alignment(Bytes{1} << random() % 12);
    const BfcSnapshot before = pool.snapshot();
    const auto moves = plan_bfc_moves(before, size, alignment);
    const Bytes in_use = before.statistics.requested;
    if (!moves.ok()) {
      ++infeasible;
      CHECK(!pool.allocate(size, alignment).ok());
      continue;
    }
    planned += moves->empty() ? 0 : 1;
    for (const BfcMove& m : *moves) {
      CHECK(std::find(live.begin(), live.end(), m.from) != live.end());
      CHECK(offset_of(m.to) % m.alignment.value() == 0);
      REQUIRE(pool.allocate_at(m.to, m.alignment, m.tag).ok());
    }
    for (const BfcMove& m : *moves) pool.deallocate(m.from);
    check_bfc(pool);
    CHECK(pool.statistics().requested == in_use);
    CHECK(pool.allocate(size, alignment).ok());
  }
  CHECK(planned > 30);
  CHECK(infeasible > 0);
}

TEST_CASE("bfc_moves: in a two-ended pool blocks move within their own end's holes") {
  FakeLog log;
  auto heap = std::move(*BfcHeap<FakeMemory, BestFit, ExactSplit, TwoEnded>::make({&log}, {.limit = 8192}));
  auto pool = heap.pool();
  std::vector<Block> low, high;
  for (int i = 0; i < 5; ++i) low.push_back(*pool.allocate(768, Alignment(1), BfcEnd::lower));
  for (int i = 0; i < 5; ++i) high.push_back(*pool.allocate(768, Alignment(1), BfcEnd::upper));
  for (const unsigned i : {0u, 2u}) pool.deallocate(low[i]);
  for (const unsigned i : {0u, 2u}) pool.deallocate(high[i]);
  CHECK(!pool.allocate(1024, Alignment(1), BfcEnd::upper).ok());
  const auto moves = plan_bfc_moves(pool.snapshot(), 1024, Alignment(1), BfcEnd::upper);
  REQUIRE(moves.ok());
  REQUIRE(moves->size() == 1);
  CHECK(std::find(high.begin(), high.end(), moves->front().from) != high.end());
  REQUIRE(pool.allocate_at(moves->front().to).ok());
  pool.deallocate(moves->front().from);
  check_bfc(pool);
  CHECK(pool.allocate(1024, Alignment(1), BfcEnd::upper).ok());
  CHECK(!pool.allocate(1024, Alignment(1), BfcEnd::lower).ok());
}

TEST_CASE("bfc_moves: nothing moves to memory that may still be used, and not into the gap") {
  FakeLog log;
  auto heap = std::move(*BfcHeap<FakeMemory, BestFit, ExactSplit>::make({&log}, {.limit = 5120, .region = 5120}));
  auto pool = heap.pool();
  std::vector<Block> a;
  for (int i = 0; i < 5; ++i) a.push_back(*pool.allocate(1024, Alignment(1)));
  pool.set_now(4);
  for (const unsigned i : {1u, 3u}) pool.deallocate(a[i]);
  CHECK(plan_bfc_moves(pool.snapshot(), 2048).error().code == Errc::infeasible);
  pool.set_safe_frontier(5);
  CHECK(plan_bfc_moves(pool.snapshot(), 2048)->size() == 1);

  auto ends = std::move(*BfcHeap<FakeMemory, BestFit, ExactSplit, TwoEnded>::make({&log}, {.limit = 4096}));
  auto two = ends.pool();
  const Block low = *two.allocate(256, Alignment(1), BfcEnd::lower);
  CHECK(two.allocate_at({low.data + 1024, 256}).error().code == Errc::wrong_state);
}

TEST_CASE("bfc_moves: what alignment leaves over before a moved block is room for the next") {
  FakeLog log;
  auto heap = std::move(*BfcHeap<FakeMemory, BestFit, ExactSplit>::make({&log}, {.limit = 12288, .region = 12288}));
  auto pool = heap.pool();
  REQUIRE(pool.allocate(4352, Alignment(1)).ok());
  const Block hole = *pool.allocate(1280, Alignment(1)), first = *pool.allocate(512, Alignment(1));
  const Block aligned = *pool.allocate(512, Alignment(1024)), last = *pool.allocate(256, Alignment(1));
  const Block small = *pool.allocate(256, Alignment(1));
  REQUIRE(pool.allocate(5120, Alignment(1)).ok());
  pool.deallocate(hole);
  pool.deallocate(small);
  const auto moves = plan_bfc_moves(pool.snapshot(), 1536);
  REQUIRE(moves.ok());
  REQUIRE(moves->size() == 3);
  CHECK((*moves)[0].from == first);
  CHECK((*moves)[0].to.data == hole.data);
  CHECK((*moves)[1].from == aligned);
  CHECK((*moves)[1].to.data == hole.data + 768);
  CHECK((*moves)[2].from == last);
  CHECK((*moves)[2].to.data == hole.data + 512);
  for (const BfcMove& m : *moves) REQUIRE(pool.allocate_at(m.to, m.alignment).ok());
  for (const BfcMove& m : *moves) pool.deallocate(m.from);
  CHECK(pool.allocate(1536, Alignment(1)).ok());
  check_bfc(pool);
}
