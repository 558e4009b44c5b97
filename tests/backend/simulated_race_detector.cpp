// SPDX-License-Identifier: Apache-2.0
// The detector by itself, without a machine: another device or an annotated engine can drive it, too.
#include "holdfast/backend/simulated/race_detector.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/backend/simulated/access_map.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

std::byte memory[64];
constexpr ActorId one{1}, two{2}, three{3};

struct Detector : RaceDetector {
  Detector() {
    for (const char* name : {"one", "two", "three"}) add_actor(name, 0);
  }
  void op(ActorId actor, const char* name, Touch touch, Bytes from = 0, Bytes size = 64) {
    begin(actor, name);
    this->touch(actor, {{memory + from, size}, touch});
  }
  void order(ActorId before, ActorId after) { acquire(after, release(before)); }
};

}  // namespace

TEST_CASE("race_detector: two reads are no race, an unordered write and read are, in either order") {
  Detector d;
  d.op(one, "r1", Touch::read);
  d.op(two, "r2", Touch::read);
  CHECK(d.count() == 0);
  d.op(three, "w", Touch::write);
  REQUIRE(d.count() == 2);
  CHECK(d.races()[0].first.operation == "r1");
  CHECK(d.races()[1].first.operation == "r2");
  d.op(one, "late", Touch::read);
  REQUIRE(d.count() == 3);
  CHECK(d.races()[2].first.operation == "w");
  CHECK(d.races()[2].second.operation == "late");
}

TEST_CASE("race_detector: order is transitive and goes as far as it was released, no farther") {
  Detector d;
  d.op(one, "w", Touch::write);
  d.order(one, two);
  d.op(one, "after", Touch::write, 32, 32);
  d.order(two, three);
  d.op(three, "r", Touch::read, 0, 32);
  CHECK(d.count() == 0);
  d.op(three, "too far", Touch::read, 31, 2);
  REQUIRE(d.count() == 1);
  CHECK(d.races()[0].first.operation == "after");
  CHECK(d.races()[0].bytes == Block{memory + 32, 1});
}

TEST_CASE("race_detector: disjoint bytes never race, whoever splits them") {
  Detector d;
  for (int i = 0; i < 64; ++i) d.op(i % 2 == 0 ? one : two, "w", Touch::write, i, 1);
  CHECK(d.count() == 0);
  d.op(three, "all", Touch::read);
  REQUIRE(d.count() == 2);
  CHECK(d.races()[0].bytes == Block{memory, 63});
  CHECK(d.races()[1].bytes == Block{memory + 1, 63});
}

TEST_CASE("race_detector: a pair of names is one race however often and in whatever order it meets, another name is another") {
  Detector d;
  for (int i = 0; i < 10; ++i) {
    d.op(one, "w", Touch::write, i, 2);
    d.op(two, "w", Touch::write, i, 2);
  }
  REQUIRE(d.count() == 1);
  CHECK(d.races()[0].bytes == Block{memory, 11});
  d.op(three, "w", Touch::write);
  CHECK(d.count() == 3);
}

TEST_CASE("race_detector: an access that raced hides nothing: the pair meant is among those told") {
  Detector d;  // "use" ran before the allocation that it was meant to wait for
  d.op(one, "free", Touch::free);
  d.op(two, "use", Touch::read);
  d.op(one, "allocate", Touch::allocate);
  d.op(one, "upload", Touch::write);
  REQUIRE(d.count() == 3);
  CHECK(d.races()[2].first.operation == "use");
  CHECK(d.races()[2].second.operation == "upload");
}

TEST_CASE("race_detector: one pair of operations is one race over however many ranges") {
  Detector d;
  d.op(one, "left", Touch::write, 0, 20);
  d.op(one, "right", Touch::write, 40, 20);
  d.begin(two, "both");
  d.touch(two, {{memory + 30, 30}, Touch::read});
  d.touch(two, {{memory, 30}, Touch::read});
  REQUIRE(d.count() == 2);
  d.begin(three, "wide");
  d.touch(three, {{memory + 50, 10}, Touch::write});
  d.touch(three, {{memory + 40, 5}, Touch::write});
  for (const Race& r : d.races())
    if (r.first.operation == "right" && r.second.operation == "wide") CHECK(r.bytes == Block{memory + 40, 20});
}

TEST_CASE("race_detector: memory freed and used, in order or not, is told apart; a new allocation starts anew") {
  Detector d;
  d.op(one, "a", Touch::allocate);
  d.op(one, "w", Touch::write);
  d.op(one, "free", Touch::free);
  CHECK(d.count() == 0);
  d.op(one, "after", Touch::read);
  d.op(two, "elsewhere", Touch::read);
  d.op(one, "again", Touch::free);
  REQUIRE(d.count() == 4);
  CHECK(d.races()[0].kind == RaceKind::use_after_free);
  CHECK(d.races()[1].kind == RaceKind::freed_in_use);
  CHECK(d.races()[2].kind == RaceKind::use_after_free);  // double free
  CHECK(d.races()[3].kind == RaceKind::freed_in_use);    // and the other's read
  d.clear();
  d.order(two, one);
  d.op(one, "b", Touch::allocate);
  d.op(one, "w", Touch::write);
  CHECK(d.count() == 0);
  d.op(three, "old user", Touch::read);  // names the release first, then the new owner
  REQUIRE(d.count() == 2);
  CHECK(d.races()[0].first.operation == "again");
  CHECK(d.races()[0].kind == RaceKind::freed_in_use);
  CHECK(d.races()[1].first.operation == "w");
}

TEST_CASE("race_detector: its sentences name kinds, operations, actors and bytes; a sink's failure comes back") {
  Detector d;
  d.name_region("arena", 0, {memory, 64});
  d.op(one, "free it", Touch::free, 8, 8);
  d.op(one, "use it", Touch::write, 8, 4);
  d.op(two, "see it", Touch::read, 8, 4);
  StringSink out;
  CHECK(d.write_races(out).ok());
  CHECK(out.text ==
        "use after free: release by 'free it' (one #1) and write by 'use it' (one #2) touch 4 bytes at 8 of arena\n"
        "freed in use: release by 'free it' (one #1) and read by 'see it' (two #1) touch 4 bytes at 8 of arena, and no event orders them\n"
        "unordered: write by 'use it' (one #2) and read by 'see it' (two #1) touch 4 bytes at 8 of arena, and no event orders them\n");
  struct Full {
    int room;
    Error write(std::string_view) noexcept { return room-- > 0 ? Error{} : make_error(Errc::out_of_memory, "full"); }
  };
  for (int room = 0; room < 20; ++room) {
    Full full{room};
    CHECK(d.write_race(full, d.races()[1]).code == Errc::out_of_memory);
  }
}

TEST_CASE("access_map: ranges give what a record for each byte would give, and merge again") {
  std::mt19937 random(11);
  AccessMap map;
  std::array<std::uint64_t, 64> bytes{};
  for (int i = 0; i < 20'000; ++i) {
    const Bytes from = static_cast<Bytes>(random() % 64), size = static_cast<Bytes>(random() % static_cast<unsigned>(65 - from));
    const std::uint64_t number = 1 + random() % 3;
    Bytes covered = 0;
    const std::byte* at = memory + from;
    map.visit({memory + from, size}, [&](Block part, LastAccess& last) {
      REQUIRE(part.data == at);
      at += part.size;
      covered += part.size;
      for (Bytes b = part.data - memory; b < part.data - memory + part.size; ++b)
        REQUIRE(bytes[static_cast<std::size_t>(b)] == last.freed.number);
      last.freed = AccessSite{"w", one, Touch::free, number};
    });
    REQUIRE(covered == size);
    for (Bytes b = from; b < from + size; ++b) bytes[static_cast<std::size_t>(b)] = number;
    std::size_t runs = 0;
    for (std::size_t b = 0; b < 64; ++b) runs += bytes[b] != 0 && (b == 0 || bytes[b] != bytes[b - 1]) ? 1 : 0;
    REQUIRE(map.size() == runs);
  }
}

TEST_CASE("race_detector: it agrees with an oracle that keeps every access of every byte and every order") {
  std::mt19937 random(5);
  std::vector<std::string> names;
  for (int i = 0; i < 30; ++i) names.push_back("op " + std::to_string(i));
  for (int round = 0; round < 300; ++round) {
    Detector d;
    struct Access {
      int actor;
      std::uint64_t number;
      bool write;
      Bytes from, size;
    };
    std::vector<Access> done;
    std::array<std::array<std::uint64_t, 4>, 4> seen{};  // seen[a][b]: operations of b that a has seen
    std::set<std::pair<std::pair<int, std::uint64_t>, std::pair<int, std::uint64_t>>> expected, found;
    for (int i = 0; i < 30; ++i) {
      const int a = 1 + static_cast<int>(random() % 3), b = 1 + static_cast<int>(random() % 3);
      if (random() % 3 == 0) {
        d.order(static_cast<ActorId>(a), static_cast<ActorId>(b));
        for (std::size_t k = 0; k < 4; ++k)
          seen[static_cast<std::size_t>(b)][k] = std::max(seen[static_cast<std::size_t>(b)][k], seen[static_cast<std::size_t>(a)][k]);
        continue;
      }
      auto& clock = seen[static_cast<std::size_t>(a)];
      const Access now{a, ++clock[static_cast<std::size_t>(a)], random() % 2 == 0, static_cast<Bytes>(random() % 32),
                       1 + static_cast<Bytes>(random() % 32)};
      d.op(static_cast<ActorId>(a), names[static_cast<std::size_t>(i)].c_str(), now.write ? Touch::write : Touch::read, now.from, now.size);
      for (const Access& old : done) {
        const bool overlap = old.from < now.from + now.size && now.from < old.from + old.size;
        if (overlap && (old.write || now.write) && clock[static_cast<std::size_t>(old.actor)] < old.number)
          expected.insert({{old.actor, old.number}, {now.actor, now.number}});
      }
      done.push_back(now);
    }
    for (const Race& r : d.races())
      found.insert({{static_cast<int>(r.first.actor), r.first.number}, {static_cast<int>(r.second.actor), r.second.number}});
    for (const auto& pair : found) CHECK(expected.count(pair) == 1);  // nothing false
    // What lies before a kept access need not be kept, so not every pair is told, but every access that races is.
    std::set<std::pair<int, std::uint64_t>> expected_seconds, found_seconds;
    for (const auto& pair : expected) expected_seconds.insert(pair.second);
    for (const auto& pair : found) found_seconds.insert(pair.second);
    CHECK(expected_seconds == found_seconds);
  }
}
