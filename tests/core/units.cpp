// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/units.hpp"

#include <cstdlib>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "support/death.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::literals;

namespace {

constexpr Bytes untouched = -77;

constexpr Bytes add(Bytes a, Bytes b) {
  Bytes out = untouched;
  return checked_add(a, b, out) ? out : untouched;
}
constexpr Bytes multiply(Bytes a, Bytes b) {
  Bytes out = untouched;
  return checked_multiply(a, b, out) ? out : untouched;
}
constexpr Bytes round_up(Bytes value, Bytes alignment) {
  Bytes out = untouched;
  return checked_align_up(value, alignment, out) ? out : untouched;
}

static_assert(add(2, 3) == 5 && multiply(2, 3) == 6 && round_up(65, 64) == 128);
static_assert(1_KiB == 1024 && 1_MiB == 1024 * 1024 && 16_GiB == 17179869184);
static_assert(sizeof(Alignment) == sizeof(Bytes) && Alignment().value() == 1);

}  // namespace

TEST_CASE("units: a sum is exact up to the largest size and fails past it") {
  CHECK(add(0, 0) == 0);
  CHECK(add(max_bytes, 0) == max_bytes);
  CHECK(add(max_bytes - 7, 7) == max_bytes);
  CHECK(add(max_bytes - 7, 8) == untouched);
  CHECK(add(max_bytes, max_bytes) == untouched);
}

TEST_CASE("units: a negative size is refused by every operation") {
  for (const Bytes hostile : {Bytes{-1}, std::numeric_limits<Bytes>::min()}) {
    CHECK(add(hostile, 1) == untouched);
    CHECK(add(1, hostile) == untouched);
    CHECK(multiply(hostile, 1) == untouched);
    CHECK(multiply(1, hostile) == untouched);
    CHECK(multiply(hostile, 0) == untouched);
    CHECK(round_up(hostile, 64) == untouched);
    CHECK(round_up(64, hostile) == untouched);
  }
  CHECK(round_up(64, 0) == untouched);
}

TEST_CASE("units: a product is exact up to the largest size and fails past it (case 05: f32 of 2^62 x 8)") {
  CHECK(multiply(0, max_bytes) == 0);
  CHECK(multiply(max_bytes, 1) == max_bytes);
  CHECK(multiply(max_bytes / 2, 2) == max_bytes - 1);
  CHECK(multiply(max_bytes / 2 + 1, 2) == untouched);
  CHECK(multiply(Bytes{1} << 32, Bytes{1} << 31) == untouched);
  CHECK(multiply(4611686018427387904, 8) == untouched);
}

TEST_CASE("units: rounding up gives the next multiple of any positive number") {
  CHECK(round_up(0, 256) == 0);
  CHECK(round_up(1, 256) == 256);
  CHECK(round_up(256, 256) == 256);
  CHECK(round_up(7, 5) == 10);  // no power of two: pools round to their own granularity
  CHECK(round_up(max_bytes, 1) == max_bytes);
  CHECK(round_up(max_bytes, 2) == untouched);
  CHECK(round_up(max_bytes - 255, 256) == max_bytes - 255);
  CHECK(round_up(max_bytes - 254, 256) == untouched);
}

TEST_CASE("units: the saturating forms stop at the largest size") {
  CHECK(align_up(65, 64) == 128);
  CHECK(align_up(max_bytes, 64) == max_bytes);
  CHECK(align_up(-1, 64) == max_bytes);
  CHECK(saturating_add(1, 2) == 3);
  CHECK(saturating_add(max_bytes, 1) == max_bytes);
}

TEST_CASE("units: case 05: no row of rounding.csv wraps; sizes of 2^63 and more are failures") {
  const std::string path = testing::shared_path("cases/05-pool-size-overflow/rounding.csv");
  if (path.empty()) return;
  std::ifstream table(path);
  std::string line;
  std::getline(table, line);
  REQUIRE(line == "request,granularity,rounded");
  int rows = 0;
  while (std::getline(table, line)) {
    const std::size_t first = line.find(','), second = line.find(',', first + 1);
    // A caller's 64-bit size arrives as it is: from 2^63 on it is negative, and refused.
    const auto request = static_cast<Bytes>(std::strtoull(line.c_str(), nullptr, 10));
    const auto granularity = static_cast<Bytes>(std::strtoull(line.c_str() + first + 1, nullptr, 10));
    const std::string rounded = line.substr(second + 1);
    const unsigned long long exact = std::strtoull(rounded.c_str(), nullptr, 10);
    const bool fits = rounded.substr(0, 8) != "OVERFLOW" && exact <= static_cast<unsigned long long>(max_bytes);
    CAPTURE(line);
    CHECK(round_up(request, granularity) == (fits ? static_cast<Bytes>(exact) : untouched));
    ++rows;
  }
  CHECK(rows == 26);
}

TEST_CASE("units: an alignment is a power of two; anything else is a broken precondition (case 05)") {
  static_assert(is_power_of_two(1) && is_power_of_two(Bytes{1} << 62));
  static_assert(!is_power_of_two(0) && !is_power_of_two(3) && !is_power_of_two(-8));
  static_assert(!is_power_of_two(std::numeric_limits<Bytes>::min()));
  CHECK(Alignment(4096).value() == 4096);
  CHECK(Alignment(64) == Alignment(64));
  CHECK(testing::aborts([] { return Alignment(0).value(); }));
  CHECK(testing::aborts([] { return Alignment(3).value(); }));
  CHECK_FALSE(testing::aborts([] { return Alignment(8).value(); }));
}
