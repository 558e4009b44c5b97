// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/simulated/heap.hpp"

#include <doctest/doctest.h>

#include <random>
#include <vector>

using namespace holdfast;

namespace {
alignas(4096) std::byte arena[1000];
}

TEST_CASE("simulated_heap: the lowest place that fits is taken, exactly, at its alignment") {
  SimulatedHeap h(Block{arena, 1000});
  CHECK(h.take(10, Alignment(1), {}, {}) == Block{arena, 10});
  CHECK(h.take(100, Alignment(64), {}, {}) == Block{arena + 64, 100});
  CHECK(h.take(54, Alignment(1), {}, {}) == Block{arena + 10, 54});  // the gap, to the byte
  CHECK(h.take(837, Alignment(1), {}, {}) == Block{});
  CHECK(h.take(836, Alignment(1), {}, {}) == Block{arena + 164, 836});
  CHECK(h.available() == 0);
}

TEST_CASE("simulated_heap: what is to be avoided is not touched, and neither missed nor looped over") {
  SimulatedHeap h(Block{arena, 1000});
  const std::vector<Block> avoid{{arena + 100, 100}, {arena, 50}, {arena + 200, 1}};
  CHECK(h.take(50, Alignment(1), avoid, {}) == Block{arena + 50, 50});
  CHECK(h.take(51, Alignment(1), avoid, {}) == Block{arena + 201, 51});
  CHECK(h.take(800, Alignment(1), avoid, {}) == Block{});
}

TEST_CASE("simulated_heap: only a block that is out is taken back, and neighbours merge") {
  SimulatedHeap h(Block{arena, 1000});
  Block a = h.take(300, Alignment(1), {}, {}), b = h.take(300, Alignment(1), {}, {}), c = h.take(400, Alignment(1), {}, {});
  CHECK(!h.give({a.data, 299}));
  CHECK(!h.give({a.data + 1, 299}));
  CHECK(h.give(a));
  CHECK(!h.give(a));
  CHECK(h.give(c));
  CHECK(h.largest_free() == 400);
  CHECK(h.give(b));
  CHECK(h.largest_free() == 1000);
}

TEST_CASE("simulated_heap: alignments and sizes near the end of the address space find no place") {
  SimulatedHeap h(Block{arena, 1000});
  CHECK(h.take(max_bytes, Alignment(1), {}, {}) == Block{});
  CHECK(h.take(1, Alignment(Bytes{1} << 62), {}, {}) == Block{});
}

TEST_CASE("simulated_heap: random takes and gives keep blocks apart and lose no byte") {
  std::mt19937 random(7);
  SimulatedHeap h(Block{arena, 1000});
  std::vector<Block> live;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0) {
      const Block b = h.take(1 + static_cast<Bytes>(random() % 120), Alignment(Bytes{1} << (random() % 6)), {}, {});
      if (b.data != nullptr) live.push_back(b);
    } else if (!live.empty()) {
      const std::size_t at = random() % live.size();
      REQUIRE(h.give(live[at]));
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    }
    Bytes used = 0;
    const std::byte* last = arena;
    h.visit_blocks([&](Block b, Tag) {
      REQUIRE(b.data >= last);
      last = b.data + b.size;
      used += b.size;
    });
    REQUIRE(last <= arena + 1000);
    REQUIRE(used + h.available() == 1000);
  }
}
