// SPDX-License-Identifier: Apache-2.0
#include "holdfast/trace/checkpoint.hpp"

#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/backend/host/system_memory.hpp"
#include "support/gate.hpp"

using namespace holdfast;

namespace {

using Set = LiveSet<SystemMemory>;
using Point = Checkpoint<SystemMemory>;

Block at(std::uintptr_t address, Bytes size) {
  return {reinterpret_cast<std::byte*>(address << 6), size};
}
constexpr StackId stack(std::uint32_t n) { return static_cast<StackId>(n); }

}  // namespace

TEST_CASE("checkpoint: LK3, the difference of two by stack, tag and size class") {
  static constexpr char weights[] = "weights", cache[] = "cache";
  Set set(SystemMemory{});
  CHECK(set.add(at(1, 1000), {weights, 0}, stack(1)).ok());
  CHECK(set.add(at(2, 64), {cache, 1}, stack(2)).ok());
  CHECK(set.add(at(3, 100), {cache, 1}, stack(2)).ok());
  const Point before = std::move(*Point::take(set));
  set.set_step(4);
  CHECK(set.remove(at(2, 64)).ok());
  CHECK(set.add(at(4, 100), {cache, 1}, stack(2)).ok());   // grows
  CHECK(set.add(at(5, 100), {cache, 1}, stack(3)).ok());   // the same tag from elsewhere
  CHECK(set.add(at(6, 1000), {cache, 1}, stack(2)).ok());  // another size class
  CHECK(set.remove(at(3, 100)).ok());
  const Point after = std::move(*Point::take(set));
  CHECK(before.step() == 0);
  CHECK(after.step() == 4);
  std::map<std::tuple<std::uint32_t, std::uint32_t>, std::pair<double, double>> changes;
  visit_changes(before, after, [&](const LiveGroup& then, const LiveGroup& now) {
    CHECK(then.key == now.key);
    CHECK(then.key.tag.name == cache);
    changes[{index_of(then.key.stack), then.key.size_class}] = {then.bytes, now.bytes};
  });
  // 64 and 100 bytes are of one class: 164 become 100. The weights are not named.
  CHECK(changes.size() == 3);
  CHECK(changes[{2, 7}] == std::pair(164.0, 100.0));
  CHECK(changes[{3, 7}] == std::pair(0.0, 100.0));
  CHECK(changes[{2, 10}] == std::pair(0.0, 1000.0));
  const LiveGroup g = after.group({{cache, 1}, stack(2), 7});
  CHECK(g.blocks == 1);
  CHECK(g.smallest == 100);
  CHECK(g.first == 5);
  CHECK(g.first_step == 4);
  visit_changes(after, after,
                [](const LiveGroup&, const LiveGroup&) { FAIL("nothing has changed"); });
  int gone = 0;
  set.on_deallocate(at(1, 1000));
  visit_changes(after, *Point::take(set), [&](const LiveGroup& then, const LiveGroup& now) {
    ++gone;
    CHECK(then.bytes == 1000);
    CHECK(now.bytes == 0);
  });
  CHECK(gone == 1);
}

TEST_CASE("checkpoint: groups hold what a map holds") {
  Set set(SystemMemory{});
  std::mt19937 random(9);
  std::map<std::pair<std::uint64_t, int>, std::pair<double, double>> map;
  std::map<std::pair<std::uint64_t, int>, std::uint64_t> oldest;
  for (std::uintptr_t i = 1; i < 20'000; ++i) {
    const auto size = static_cast<Bytes>(1 + random() % 4000);
    const std::uint64_t owner = random() % 50;
    set.on_allocate(at(i, size), {nullptr, owner});
    oldest.try_emplace({owner, std::bit_width(static_cast<unsigned long>(size))}, i);
    auto& [bytes, blocks] = map[{owner, std::bit_width(static_cast<unsigned long>(size))}];
    bytes += static_cast<double>(size), ++blocks;
  }
  const Point point = std::move(*Point::take(set));
  CHECK(point.count() == map.size());
  point.visit([&](const LiveGroup& g) {
    REQUIRE(oldest[{g.key.tag.number, static_cast<int>(g.key.size_class)}] == g.first);
  });
  point.visit([&](const LiveGroup& g) {
    REQUIRE(map[{g.key.tag.number, static_cast<int>(g.key.size_class)}] ==
            std::pair(g.bytes, g.blocks));
  });
}

namespace {

/// A backend that has memory for so many requests.
struct Rationed {
  static constexpr MemorySpace space = MemorySpace::host;
  int* left;
  Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    if (size != 0 && (*left)-- <= 0) return make_error(Errc::out_of_memory, "rationed");
    return SystemMemory{}.allocate(size, alignment);
  }
  void deallocate(Block block) noexcept { SystemMemory{}.deallocate(block); }
};

}  // namespace

TEST_CASE("checkpoint: without memory it is an error, and nothing leaks") {
  Set set(SystemMemory{});
  for (std::uintptr_t i = 1; i < 500; ++i) set.on_allocate(at(i, 8), {nullptr, i});
  testing::MemoryLog log;
  for (std::int64_t n = 0; n < 5; ++n) {
    log.fail_at = log.allocations.load() + n;
    const auto point = Checkpoint<testing::LoggedMemory>::take(set, testing::LoggedMemory(log));
    CHECK(
        point.ok() ==
        (n > 0));  // a later growth is tried again at the next group, and there is room until then
    if (point.ok()) CHECK(point->count() == 499);
  }
  CHECK(log.live_bytes.load() == 0);
  for (int n = 0; n < 6; ++n) {
    int left = n;
    const auto point = Checkpoint<Rationed>::take(set, Rationed{&left});
    CHECK(point.ok() == (n >= 5));  // 64 to 1024 places
    if (!point.ok()) CHECK(point.error().code == Errc::out_of_memory);
  }
}

TEST_CASE("checkpoint: with sampling it estimates") {
  LiveSet<SystemMemory> set(SystemMemory{}, {.sample_mean = 4096});
  for (std::uintptr_t i = 1; i <= 200'000; ++i) set.on_allocate(at(i, 100), {});
  const Point point = std::move(*Point::take(set));
  const LiveGroup g = point.group({{}, no_id<StackId>, 7});
  CHECK(g.bytes == doctest::Approx(2e7).epsilon(0.05));
  CHECK(g.blocks == doctest::Approx(2e5).epsilon(0.05));
}
