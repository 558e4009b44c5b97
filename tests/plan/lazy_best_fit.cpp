// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/lazy_best_fit.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/plan/validate.hpp"
#include "support/intervals.hpp"

using namespace holdfast;

namespace {

/// Plays a problem of one range a group in the order of time, ends before begins; the offsets.
std::vector<Bytes> play(const testing::OwnedProblem& p, LazyBestFit& heap) {
  std::vector<std::pair<std::int64_t, std::int64_t>> moments;  // by time; ends have numbers below 0
  for (std::uint32_t r = 0; r < p.ranges.size(); ++r) {
    moments.push_back({p.ranges[r].begin, r});
    moments.push_back({p.ranges[r].end, -1 - std::int64_t{r}});
  }
  std::sort(moments.begin(), moments.end());
  for (const auto& [time, what] : moments) {
    const auto r = static_cast<std::uint32_t>(what < 0 ? -1 - what : what);
    REQUIRE((what < 0 ? heap.release(r) : heap.allocate(r, p.ranges[r].size, p.ranges[r].alignment)).ok());
  }
  std::vector<Bytes> offsets(p.groups, 0);
  for (std::uint32_t g = 0; g < p.groups; ++g) offsets[g] = heap.offset(g);
  return offsets;
}

constexpr Bytes two_waiting() {
  LazyBestFit heap;
  static_cast<void>(heap.allocate(0, 10));
  static_cast<void>(heap.allocate(1, 20));
  static_cast<void>(heap.release(0));
  static_cast<void>(heap.release(1));
  return heap.size();
}
static_assert(two_waiting() == 30);

}  // namespace

TEST_CASE("lazy_best_fit: T8.15 what fits nowhere waits and is put at the end when it is released") {
  LazyBestFit heap;
  REQUIRE(heap.allocate(0, 10).ok());
  REQUIRE(heap.allocate(1, 20).ok());
  CHECK(heap.offset(0) == LazyBestFit::waiting);
  CHECK(heap.offset(1) == LazyBestFit::waiting);
  CHECK(heap.size() == 0);
  REQUIRE(heap.release(0).ok());
  REQUIRE(heap.release(1).ok());
  CHECK(heap.offset(0) == 0);
  CHECK(heap.offset(1) == 10);
  CHECK(heap.size() == 30);
  CHECK(heap.all_free());
}

TEST_CASE("lazy_best_fit: T8.15 a free chunk at the end of the heap grows by what is missing") {
  LazyBestFit heap;
  REQUIRE(heap.allocate(0, 8).ok());
  REQUIRE(heap.release(0).ok());
  REQUIRE(heap.allocate(1, 12).ok());
  CHECK(heap.offset(1) == 0);
  CHECK(heap.size() == 12);
  REQUIRE(heap.release(1).ok());
  CHECK(heap.all_free());
}

TEST_CASE("lazy_best_fit: the smallest chunk that holds it is taken, the lowest of equal ones, by aligned starts") {
  LazyBestFit heap;
  // 0 of 8, 1 of 4, 2 of 16, 3 of 4, 4 of 8, laid out one after the other.
  const Bytes sizes[] = {8, 4, 16, 4, 8};
  for (std::uint32_t i = 0; i < 5; ++i) REQUIRE(heap.allocate(i, sizes[i]).ok());
  for (std::uint32_t i = 0; i < 5; ++i) REQUIRE(heap.release(i).ok());
  for (std::uint32_t i = 0; i < 5; ++i) REQUIRE(heap.allocate(i, sizes[i]).ok());
  CHECK(heap.size() == 40);
  REQUIRE(heap.release(0).ok());
  REQUIRE(heap.release(4).ok());
  REQUIRE(heap.allocate(5, 6).ok());
  CHECK(heap.offset(5) == heap.offset(0));
  REQUIRE(heap.release(2).ok());
  // Chunks of 2, 8 and 16: the 8 holds 8 bytes at multiples of 4, not at multiples of 16.
  REQUIRE(heap.allocate(6, 8, 4).ok());
  CHECK(heap.offset(6) == heap.offset(4));
  REQUIRE(heap.allocate(7, 4, 16).ok());
  CHECK(heap.offset(7) == 16);
  CHECK(heap.size() == 40);
}

TEST_CASE("lazy_best_fit: alignment that leaves nothing of the last chunk makes a block wait") {
  LazyBestFit heap;
  REQUIRE(heap.allocate(0, 8).ok());
  REQUIRE(heap.allocate(1, 8).ok());
  REQUIRE(heap.release(0).ok());
  REQUIRE(heap.allocate(2, 8).ok());
  REQUIRE(heap.release(1).ok());  // chunk [8, 16)
  REQUIRE(heap.allocate(3, 8, 16).ok());
  CHECK(heap.offset(3) == LazyBestFit::waiting);
  REQUIRE(heap.release(3).ok());
  CHECK(heap.offset(3) == 16);
  CHECK(heap.size() == 24);
  REQUIRE(heap.release(2).ok());
  CHECK(heap.all_free());
}

TEST_CASE("lazy_best_fit: plays any problem to a valid plan that ends as one free chunk") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    const auto p = testing::random_problem(seed, 60, seed % 2);
    LazyBestFit heap;
    const std::vector<Bytes> offsets = play(p, heap);
    CHECK(validate_offsets(p.view(), offsets).ok());
    CHECK(heap.all_free());
    Bytes peak = 0;
    for (const LiveRange& r : p.ranges) peak = std::max(peak, offsets[r.group] + r.size);
    CHECK(peak <= heap.size());
  }
}

TEST_CASE("lazy_best_fit: what a caller does wrong is an error and changes nothing") {
  LazyBestFit heap;
  REQUIRE(heap.allocate(3, 8).ok());
  CHECK(heap.allocate(3, 8).code == Errc::already_exists);
  CHECK(heap.allocate(4, -1).code == Errc::invalid_argument);
  CHECK(heap.allocate(4, 1, 0).code == Errc::invalid_argument);
  CHECK(heap.allocate(4, max_bytes).code == Errc::over_budget);
  CHECK(heap.allocate(4, 8, max_bytes).code == Errc::over_budget);
  CHECK(heap.release(4).code == Errc::not_found);
  CHECK(heap.release(99).code == Errc::not_found);
  REQUIRE(heap.allocate(4, 0).ok());
  CHECK(heap.offset(4) == 0);
  REQUIRE(heap.release(4).ok());
  REQUIRE(heap.release(3).ok());
  CHECK(heap.release(3).code == Errc::not_found);
  CHECK(heap.size() == 8);
}
