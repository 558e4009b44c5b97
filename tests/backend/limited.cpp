// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/layer/limited.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "holdfast/backend/layer/aligned.hpp"
#include "holdfast/backend/stack.hpp"
#include "holdfast/concepts/sink.hpp"
#include "support/strict_memory.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

TEST_CASE("limited: what would pass the limit is refused without asking the source, and the error says all figures") {
  StrictLog log;
  MemoryLimit limit(1000);
  auto memory = make_stack<Stack<StrictMemory, Limited>>(StrictMemory(log), limit);
  const Block a = *memory.allocate(600, Alignment(64));
  const Error e = memory.allocate(401, Alignment(64)).error();
  CHECK(log.calls.size() == 1);
  CHECK(e.code == Errc::over_budget);
  CHECK(status_kind(e) == StatusKind::resource_exhausted);
  CHECK(e.stage == Stage::allocation);
  CHECK(sentence(e) == "the memory limit would be passed (requested 401, available 400) [limit 1000]");
  const Block b = *memory.allocate(400, Alignment(64));  // to the byte
  CHECK(limit.live() == 1000);
  CHECK(limit.peak() == 1000);
  CHECK(limit.available() == 0);
  memory.deallocate(a);
  memory.deallocate(b);
  CHECK(limit.live() == 0);
  CHECK(limit.peak() == 1000);
  CHECK(log.live.empty());
}

TEST_CASE("limited: what the source refuses is neither live nor the peak; 0 bytes and negative ones are not counted") {
  StrictLog log;
  log.capacity = 100;
  MemoryLimit limit(1000);
  auto memory = make_stack<Stack<StrictMemory, Limited>>(StrictMemory(log), limit);
  CHECK(memory.allocate(101, Alignment(1)).error().code == Errc::out_of_memory);
  CHECK(memory.allocate(-1, Alignment(1)).error().code == Errc::invalid_argument);
  const Block none = *memory.allocate(0, Alignment(1));
  memory.deallocate(none);
  CHECK(limit.live() == 0);
  CHECK(limit.peak() == 0);
  CHECK(memory.allocate(max_bytes, Alignment(1)).error().code == Errc::over_budget);
}

TEST_CASE("limited: a limit set below what is out refuses everything until enough came back") {
  StrictLog log;
  MemoryLimit limit(1000);
  auto memory = make_stack<Stack<StrictMemory, Limited>>(StrictMemory(log), limit);
  const Block a = *memory.allocate(500, Alignment(1)), b = *memory.allocate(200, Alignment(1));
  limit.set_limit(300);
  CHECK(limit.available() == 0);
  CHECK(memory.allocate(1, Alignment(1)).error().available == 0);
  memory.deallocate(a);
  CHECK(limit.available() == 100);
  const Block c = *memory.allocate(100, Alignment(1));
  memory.deallocate(b);
  memory.deallocate(c);
  limit.set_limit(-5);
  CHECK(limit.limit() == 0);
}

TEST_CASE("limited: stacks that share a limit share the room") {
  MemoryLimit limit(100);
  auto one = make_stack<Stack<SystemMemory, Limited>>(SystemMemory{}, limit);
  auto other = make_stack<Stack<SystemMemory, Aligned<64>, Limited>>(SystemMemory{}, limit);
  const Block block = *one.allocate(60, Alignment(1));
  CHECK(other.allocate(41, Alignment(1)).error().available == 40);
  one.deallocate(block);
}

TEST_CASE("cases/07: below a rounding layer the high-water mark counts aligned bytes, above it requested ones") {
  StrictLog log;
  MemoryLimit aligned(max_bytes), requested(max_bytes);
  auto memory = make_stack<Stack<StrictMemory, Limited, Aligned<64>, Limited>>(StrictMemory(log), aligned, requested);
  for (int round = 0; round < 5; ++round) {
    const Block p1 = *memory.allocate(4100, Alignment(1)), p2 = *memory.allocate(4100, Alignment(1));
    memory.deallocate(p2);
    memory.deallocate(p1);
    CHECK(aligned.live() == 0);
  }
  CHECK(log.calls.front().size == 4160);
  CHECK(aligned.peak() == 8320);
  CHECK(requested.peak() == 8200);
}

TEST_CASE("limited: under threads the limit is never passed, and the figures are exact when all is over") {
  StrictLog log;
  MemoryLimit limit(2000);
  std::atomic<bool> passed{false};
  std::atomic<long> served{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      auto memory = make_stack<Stack<StrictMemory, Limited>>(StrictMemory(log), limit);
      std::mt19937 random(t);
      for (int i = 0; i < 3000; ++i) {
        const Result<Block> block = memory.allocate(1 + static_cast<Bytes>(random() % 900), Alignment(1));
        {
          const std::lock_guard<std::mutex> guard(log.lock);
          if (log.live_bytes() > 2000) passed = true;
        }
        if (!block.ok()) continue;
        ++served;
        memory.deallocate(*block);
      }
    });
  for (auto& t : threads) t.join();
  CHECK(!passed);
  CHECK(served > 0);
  CHECK(limit.live() == 0);
  CHECK(limit.peak() <= 2000);
  CHECK(log.live.empty());
}
