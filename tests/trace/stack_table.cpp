// SPDX-License-Identifier: Apache-2.0
#include "holdfast/trace/stack_table.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/trace/checkpoint.hpp"
#include "holdfast/trace/live_set.hpp"
#include "support/gate.hpp"
#include "support/texts.hpp"

using namespace holdfast;

namespace {

using Frames = std::vector<const void*>;
using Table = StackTable<SystemMemory>;

Frames frames_of(std::initializer_list<std::uintptr_t> addresses) {
  Frames out;
  for (const std::uintptr_t a : addresses) out.push_back(reinterpret_cast<const void*>(a));
  return out;
}
Frames of(const auto& table, StackId id) {
  const auto f = table.frames(id);
  return {f.begin(), f.end()};
}

}  // namespace

TEST_CASE("stack_table: a stack has one number, whoever asks, and another stack another") {
  Table table;
  const Frames a = frames_of({1, 2, 3}), b = frames_of({1, 2}), c = frames_of({3, 2, 1});
  const StackId ia = table.intern(a), ib = table.intern(b), ic = table.intern(c);
  CHECK(table.count() == 3);
  CHECK(ia != ib);
  CHECK(ia != ic);
  CHECK(table.intern(Frames(a)) == ia);
  CHECK(table.count() == 3);
  CHECK(of(table, ia) == a);
  CHECK(of(table, ib) == b);
  CHECK(of(table, ic) == c);
  CHECK(table.intern({}) == no_id<StackId>);
  CHECK(table.frames(no_id<StackId>).empty());
}

TEST_CASE("stack_table: thousands of stacks stay where they are, and long ones are cut") {
  Table table;
  std::map<StackId, Frames> all;
  for (std::uintptr_t i = 1; i < 5000; ++i) {
    Frames f;
    for (std::uintptr_t k = 0; k <= i % 60; ++k)
      f.push_back(reinterpret_cast<const void*>(i * 1000 + k));
    const StackId id = table.intern(f);
    REQUIRE(id != no_id<StackId>);
    if (f.size() > Table::max_depth) f.resize(Table::max_depth);
    REQUIRE(all.try_emplace(id, f).second);
  }
  const void* const* const first = table.frames(all.begin()->first).data();
  for (const auto& [id, f] : all) REQUIRE(of(table, id) == f);
  CHECK(table.frames(all.begin()->first).data() == first);
}

TEST_CASE("stack_table: fails at each allocation without harm") {
  for (std::int64_t n = 0; n < 6; ++n) {
    testing::MemoryLog log;
    log.fail_at = n;
    {
      StackTable<testing::LoggedMemory> table{testing::LoggedMemory(log)};
      int refused = 0;
      for (std::uintptr_t i = 1; i < 300; ++i) {
        const Frames f = frames_of({i, i + 1, i + 2, i + 3});
        const StackId id = table.intern(f);
        if (id == no_id<StackId>)
          ++refused;
        else
          REQUIRE(of(table, id) == f);
      }
      CHECK(refused <= 1);
    }
    CHECK(log.live_bytes.load() == 0);
  }
}

namespace {

// Two sites that allocate; each is one call path.
[[gnu::noinline]] StackId here(Table& table) { return table.take(); }
[[gnu::noinline]] StackId through(Table& table) {
  const StackId id = here(table);
  return id;
}

}  // namespace

TEST_CASE(
    "stack_table: the caller's stack is the same each time round a loop, and another from another "
    "place") {
  Table table;
  std::vector<StackId> loop;
  const volatile int rounds = 3;  // unrolled, the calls would come from three places
  for (int i = 0; i < rounds; ++i) loop.push_back(through(table));
  const StackId other = here(table);
  CHECK(loop[0] != no_id<StackId>);
  CHECK(loop[1] == loop[0]);
  CHECK(loop[2] == loop[0]);
  CHECK(other != loop[0]);
  CHECK(table.frames(loop[0]).size() > 2);
  testing::StringSink text;
  REQUIRE(write_stack(table, loop[0], text).ok());
  CHECK(static_cast<std::size_t>(std::count(text.text.begin(), text.text.end(), '\n')) ==
        table.frames(loop[0]).size());
  CHECK(text.text.find("+0x") != std::string::npos);
  Frames two(2);
  CHECK(capture_stack(two) == 2);
}

namespace {

using Sited = LiveSet<SystemMemory, WordLock, NoClock, Table::Source>;
Block at(std::uintptr_t address, Bytes size) {
  return {reinterpret_cast<std::byte*>(address << 6), size};
}
[[gnu::noinline]] void leaky_site(Sited& set, std::uintptr_t i) { set.on_allocate(at(i, 100), {}); }
[[gnu::noinline]] void tidy_site(Sited& set, std::uintptr_t i) {
  set.on_allocate(at(i, 100), {});
  set.on_deallocate(at(i, 100));
}

}  // namespace

TEST_CASE(
    "stack_table: LK3, a live set takes the site of each block, and checkpoints differ by it") {
  Table table;
  Sited set(SystemMemory{}, {}, {}, table.source());
  leaky_site(set, 1);
  const auto before = Checkpoint<SystemMemory>::take(set);
  const volatile std::uintptr_t end = 12;
  for (std::uintptr_t i = 2; i < end; ++i) leaky_site(set, i), tidy_site(set, i + 1000);
  const auto after = Checkpoint<SystemMemory>::take(set);
  int groups = 0;
  visit_changes(*before, *after, [&](const LiveGroup& then, const LiveGroup& now) {
    ++groups;
    CHECK(then.blocks + 9 <= now.blocks);
    CHECK(table.frames(now.key.stack).size() > 1);
  });
  CHECK(groups == 1);  // the loop's site; the first call's has not changed
}

TEST_CASE("stack_table: with sampling only what is recorded costs a stack") {
  Table table;
  Sited set(SystemMemory{}, {.sample_mean = 1 << 20}, {}, table.source());
  const volatile std::uintptr_t many = 100'000;
  for (std::uintptr_t i = 1; i < many; ++i) leaky_site(set, i);
  CHECK(set.figures().blocks > 0);
  CHECK(set.figures().blocks < 100);
  CHECK(table.count() == 1);
}

TEST_CASE("stack_table: threads agree on the numbers") {
  Table table;
  std::vector<std::vector<StackId>> got(4);
  std::vector<std::thread> pool;
  for (std::vector<StackId>& mine : got)
    pool.emplace_back([&] {
      for (std::uintptr_t i = 1; i < 2000; ++i)
        mine.push_back(table.intern(frames_of({i % 500 + 1, 7})));
    });
  for (std::thread& t : pool) t.join();
  for (const auto& mine : got) CHECK(mine == got[0]);
  CHECK(table.count() == 500);
}
