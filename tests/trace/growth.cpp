// SPDX-License-Identifier: Apache-2.0
#include "holdfast/trace/growth.hpp"

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/backend/host/system_memory.hpp"
#include "support/gate.hpp"

using namespace holdfast;
using namespace holdfast::literals;

namespace {

using Point = Checkpoint<SystemMemory>;

Block at(std::uintptr_t address, Bytes size) {
  return {reinterpret_cast<std::byte*>(address << 6), size};
}

/// Takes a set through steps in which `live(step)` MiB are live, as blocks of 1 MiB; what the watch
/// says at the end of each.
template <class Live>
std::vector<bool> suspicious(int steps, Live live, GrowthRules rules = {}) {
  LiveSet<SystemMemory> set(SystemMemory{});
  GrowthWatch<SystemMemory> watch;
  std::vector<bool> out;
  std::uintptr_t next = 1;
  std::vector<std::uintptr_t> blocks;
  for (int step = 0; step < steps; ++step) {
    set.set_step(static_cast<std::uint32_t>(step));
    while (blocks.size() > static_cast<std::size_t>(live(step)))
      set.on_deallocate(at(blocks.back(), 1_MiB)), blocks.pop_back();
    while (blocks.size() < static_cast<std::size_t>(live(step)))
      set.on_allocate(at(blocks.emplace_back(next++), 1_MiB), {});
    const Point point = std::move(*Point::take(set));
    REQUIRE(watch.note(point).ok());
    bool any = false;
    point.visit(
        [&](const LiveGroup& g) { any = any || watch.is_suspicious(g, point.step(), rules); });
    out.push_back(any);
  }
  return out;
}

constexpr double slope_of(std::initializer_list<double> ys) {
  LeastSquares line;
  double x = 0;
  for (const double y : ys) line.add(x++, y);
  return line.slope();
}
static_assert(slope_of({5, 7, 9, 11}) == 2 && slope_of({1, 1, 1}) == 0 && slope_of({4}) == 0);

}  // namespace

TEST_CASE("growth: LK2, 1 MiB a step for ten steps is suspicious from the fifth on") {
  const std::vector<bool> told = suspicious(10, [](int step) { return step + 1; });
  CHECK(told == std::vector<bool>{false, false, false, false, true, true, true, true, true, true});
}

TEST_CASE(
    "growth: LK2, a sawtooth is not, nor what is constant, falls, or grew only while it warmed "
    "up") {
  const auto never = [](const std::vector<bool>& told) {
    return std::count(told.begin(), told.end(), true) == 0;
  };
  CHECK(never(suspicious(40, [](int step) { return 3 + step % 4; })));
  CHECK(never(suspicious(40, [](int step) { return step % 4; })));  // down to nothing
  CHECK(never(suspicious(20, [](int) { return 7; })));
  CHECK(never(suspicious(20, [](int step) { return 30 - step; })));
  CHECK(never(suspicious(20, [](int step) { return step == 0 ? 1 : 20; })));
  CHECK_FALSE(suspicious(40, [](int step) { return std::min(step + 1, 6); }).back());
  // A fall begins anew, though the line through all points is steep and close.
  const int dips[] = {1, 2, 3, 4, 3, 5, 6, 7};
  CHECK_FALSE(suspicious(8, [&](int step) { return dips[step]; }).back());
}

TEST_CASE(
    "growth: a leak in every third step is found, and on top of much that comes and goes as well") {
  CHECK(suspicious(12, [](int step) { return 10 + step / 3; }).back());
  std::mt19937 random(1);
  // What falls is no growth: noise hides a leak in its own group, which is why groups are small.
  CHECK_FALSE(suspicious(30, [&](int) { return static_cast<int>(10 + random() % 10); }).back());
}

TEST_CASE("growth: rules are the caller's") {
  const auto grows = [](int step) { return step + 1; };
  CHECK(suspicious(3, grows, {.checkpoints = 3}) == std::vector<bool>{false, false, true});
  CHECK_FALSE(suspicious(6, grows, {.checkpoints = 3, .age = 10}).back());
  CHECK_FALSE(suspicious(8, [](int step) { return 1 + (step > 5 ? 20 : 0); }, {.r2 = 0.9}).back());
}

TEST_CASE("growth: least squares as by the closed formula, for numbers far from 0 too") {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    LeastSquares line;
    long double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0, syy = 0;
    for (std::uint32_t i = 0, points = 2 + static_cast<std::uint32_t>(random() % 30); i < points;
         ++i) {
      const auto x = static_cast<double>(i),
                 y = 1e9 + 50.0 * i + static_cast<double>(random() % 1000);
      line.add(1e6 + x, y);
      n += 1, sx += x, sy += y, sxx += x * x, sxy += static_cast<long double>(x) * y,
          syy += static_cast<long double>(y) * y;
    }
    const long double vx = n * sxx - sx * sx, vy = n * syy - sy * sy, c = n * sxy - sx * sy;
    REQUIRE(line.slope() == doctest::Approx(static_cast<double>(c / vx)).epsilon(1e-6));
    REQUIRE(line.r2() ==
            doctest::Approx(static_cast<double>(vy == 0 ? 0 : c * c / (vx * vy))).epsilon(1e-6));
  }
  LeastSquares flat;
  flat.add(1, 5), flat.add(2, 5);
  CHECK(flat.r2() == 0);
  LeastSquares upright;
  upright.add(1, 5), upright.add(1, 9);
  CHECK(upright.slope() == 0);
  CHECK(upright.r2() == 0);
}

TEST_CASE("growth: without memory it says so, and goes on with what it has") {
  testing::MemoryLog log;
  log.fail_at = 0;
  {
    GrowthWatch<testing::LoggedMemory> watch{testing::LoggedMemory(log)};
    LiveSet<SystemMemory> set(SystemMemory{});
    set.on_allocate(at(1, 8), {});
    const Point point = std::move(*Point::take(set));
    CHECK(watch.note(point).code == Errc::out_of_memory);
    CHECK(watch.note(point).ok());
    CHECK(watch.find({{}, no_id<StackId>, 4}) != nullptr);
    set.on_deallocate(at(1, 8));
    CHECK(watch.note(*Point::take(set)).ok());
    CHECK(watch.find({{}, no_id<StackId>, 4}) == nullptr);  // what is gone is not watched
  }
  CHECK(log.live_bytes.load() == 0);
}
