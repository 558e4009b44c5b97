// SPDX-License-Identifier: Apache-2.0
#include "holdfast/trace/counters.hpp"

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace holdfast;

namespace {

Block block(Bytes size) {
  static std::byte there{};
  return {&there, size};
}

}  // namespace

TEST_CASE_TEMPLATE("counters: value, peak and total of bytes and blocks", C, Counters,
                   BasicCounters<NoSync>) {
  C c;
  c.on_allocate(block(100), {});
  c.on_allocate(block(50), {});
  c.on_deallocate(block(100));
  c.on_allocate(block(20), {});
  c.on_allocate({}, {});
  c.on_deallocate({});
  c.on_hold(HoldKind::external, 1);
  c.on_hold(HoldKind::external, 1);
  c.on_hold(HoldKind::external, -1);
  c.on_failure(make_error(Errc::out_of_memory, "none"));
  const CounterFigures f = c.figures();
  CHECK(f.bytes == Figure{70, 150, 170});
  CHECK(f.blocks == Figure{2, 2, 3});
  CHECK(f.holds == std::array<std::int64_t, 3>{0, 1, 0});
  CHECK(f.failures == 1);
}

TEST_CASE("counters: parts nest, and the whole's peak stays the largest") {
  Counters c;
  c.on_allocate(block(1000), {});
  c.on_deallocate(block(900));  // 100 there, peak 1000
  const CounterFigures outer = c.push();
  c.on_allocate(block(30), {});
  const CounterFigures inner = c.push();
  c.on_allocate(block(500), {});
  c.on_deallocate(block(500));
  c.on_deallocate(block(30));
  CHECK(c.figures().bytes.peak == 630);
  CHECK(c.pop(inner).bytes == Figure{-30, 500, 500});
  CHECK(c.pop(outer).bytes == Figure{0, 530, 530});
  CHECK(c.figures().bytes == Figure{100, 1000, 1530});
  CHECK(c.figures().blocks == Figure{0, 2, 3});
}

TEST_CASE("counters: threads lose nothing, and the peak is one that was reached") {
  Counters c;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&c, t] {
      std::mt19937 random(t);
      std::vector<Bytes> mine;
      for (int i = 0; i < 20'000; ++i) {
        if (mine.size() < 8 && random() % 2 == 0) {
          mine.push_back(1 + static_cast<Bytes>(random() % 100));
          c.on_allocate(block(mine.back()), {});
        } else if (!mine.empty()) {
          c.on_deallocate(block(mine.back()));
          mine.pop_back();
        }
      }
      for (const Bytes b : mine) c.on_deallocate(block(b));
    });
  for (std::thread& t : threads) t.join();
  const CounterFigures f = c.figures();
  CHECK(f.bytes.value == 0);
  CHECK(f.blocks.value == 0);
  CHECK(f.blocks.peak >= 8);
  CHECK(f.blocks.peak <= 32);
  CHECK(f.bytes.peak <= 3200);
  CHECK(f.bytes.total > f.bytes.peak);
}
