// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/hash_table.hpp"

#include <map>
#include <random>
#include <utility>

#include <doctest/doctest.h>

#include "holdfast/backend/host/system_memory.hpp"
#include "support/gate.hpp"

using namespace holdfast;

namespace {

/// Keys that crowd a few places, at the table's end too: runs grow long and go round.
struct Entry {
  std::uint64_t key = 0;
  int value = 0;
  [[nodiscard]] bool is_used() const noexcept { return key != 0; }
  [[nodiscard]] bool is_same(const Entry& other) const noexcept { return key == other.key; }
  [[nodiscard]] std::uint64_t hash() const noexcept { return key % 5 * 7 - 9; }
};
template <class Backend>
using Table = HashTable<Entry, Backend>;
using Model = std::map<std::uint64_t, int>;

void check_same(Table<SystemMemory>& table, const Model& model) {
  REQUIRE(table.count() == model.size());
  std::size_t seen = 0;
  std::as_const(table).visit([&](const Entry& e) {
    ++seen;
    REQUIRE(model.count(e.key) == 1);
    REQUIRE(model.at(e.key) == e.value);
  });
  REQUIRE(seen == model.size());
  for (std::uint64_t k = 1; k <= 60; ++k)
    REQUIRE((table.find({k, 0}) != nullptr) == (model.count(k) == 1));
}

}  // namespace

TEST_CASE("hash_table: agrees with a map under every kind of change") {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    Table<SystemMemory> table;
    Model model;
    for (int i = 0; i < 150; ++i) {
      const std::uint64_t key = 1 + random() % 60;
      Entry* const found = table.find({key, 0});
      REQUIRE((found != nullptr) == (model.count(key) == 1));
      switch (random() % 8) {
        case 0:
        case 1:
        case 2:
        case 3:
          if (found == nullptr && table.insert({key, i}) != nullptr) model[key] = i;
          break;
        case 4:
        case 5:
        case 6:
          if (found != nullptr) table.erase(found), model.erase(key);
          break;
        default: {
          const std::uint64_t part = random() % 4;
          table.erase_if([&](const Entry& e) { return e.key % 4 == part; });
          std::erase_if(model, [&](const auto& e) { return e.first % 4 == part; });
        }
      }
      check_same(table, model);
    }
    table.clear();
    check_same(table, {});
  }
}

TEST_CASE("hash_table: moves with its memory, and gives it back once") {
  testing::MemoryLog log;
  {
    Table<testing::LoggedMemory> a{testing::LoggedMemory(log)}, b{testing::LoggedMemory(log)};
    REQUIRE(a.insert({1, 10}) != nullptr);
    REQUIRE(b.insert({2, 20}) != nullptr);
    Table<testing::LoggedMemory> c = std::move(a);
    CHECK(a.count() == 0);
    CHECK(a.find({1, 0}) == nullptr);
    CHECK(c.find({1, 0})->value == 10);
    b = std::move(c);
    CHECK(b.find({1, 0})->value == 10);
    CHECK(b.find({2, 0}) == nullptr);
    REQUIRE(a.insert({3, 30}) != nullptr);  // what was moved from can be used again
  }
  CHECK(log.allocations.load() == log.frees.load());
  CHECK(log.live_bytes.load() == 0);
}

TEST_CASE("hash_table: refuses what it has no room for, and keeps what it has") {
  testing::MemoryLog log;
  Table<testing::LoggedMemory> table{testing::LoggedMemory(log)};
  std::uint64_t in = 0;
  for (std::uint64_t k = 1; k <= 200; ++k) {
    log.fail_at = k > 1 ? log.allocations.load() : -1;
    if (table.insert({k, static_cast<int>(k)}) != nullptr) ++in;
  }
  CHECK(in == 56);  // seven eighths of 64
  for (std::uint64_t k = 1; k <= 56; ++k) CHECK(table.find({k, 0})->value == static_cast<int>(k));
  CHECK(table.find({57, 0}) == nullptr);
  log.fail_at = -1;
  CHECK(table.insert({57, 57}) != nullptr);
  CHECK(table.capacity() == 128);
}
