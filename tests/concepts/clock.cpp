// SPDX-License-Identifier: Apache-2.0
#include "holdfast/concepts/clock.hpp"

#include <doctest/doctest.h>

#include <type_traits>

using namespace holdfast;

namespace {
struct NoNow : NoClock {
  void now() const noexcept {}
};
struct NoCoarse : NoClock {
  int coarse_now() const noexcept { return 0; }
};
struct ThrowingWait : NoClock {
  void wait_until(const std::atomic<std::uint32_t>&, std::uint32_t, std::int64_t) const {}
};
static_assert(holdfast::clock<NoClock> && !holdfast::clock<NoNow> && !holdfast::clock<NoCoarse> && !holdfast::clock<ThrowingWait>);
static_assert(std::is_empty_v<MonotonicClock> && std::is_empty_v<NoClock>);
}  // namespace

TEST_CASE("clock: the monotonic one goes forward, the coarse one is at most behind, and a wait ends at its moment") {
  const MonotonicClock clock;
  const std::int64_t a = clock.now(), coarse = clock.coarse_now(), b = clock.now();
  CHECK(a > 0);
  CHECK(b >= a);
  CHECK(coarse <= b);
  CHECK(b - coarse < 1'000'000'000);
  std::atomic<std::uint32_t> word{3};
  clock.wait_until(word, 3, b + 2'000'000);
  CHECK(clock.now() >= b + 2'000'000);
  const std::int64_t c = clock.now();
  clock.wait_until(word, 4, c + 10'000'000'000);  // it is not 4
  CHECK(clock.now() < c + 5'000'000'000);
}
