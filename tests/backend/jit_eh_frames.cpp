// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/jit/eh_frames.hpp"

#include <doctest/doctest.h>

#include <cstring>

using namespace holdfast;

TEST_CASE("eh_frames: a chain of records up to a terminator is taken, one that leaves its section is not") {
  std::byte bytes[64] = {};
  const auto put = [&](std::size_t at, std::uint32_t length) { std::memcpy(bytes + at, &length, 4); };
  CHECK(check_frames(bytes, 4).ok());  // nothing but the end
  put(0, 20), put(24, 12);
  CHECK(check_frames(bytes, 44).ok());
  for (Bytes size = 0; size < 44; ++size) CHECK(check_frames(bytes, size).code == Errc::invalid_argument);
  CHECK(check_frames(bytes, 43).at == 40);
  put(24, 0xFFFFFFFF);
  CHECK(check_frames(bytes, 64).at == 24);
  put(24, 0xFFFFFFF0);
  CHECK(check_frames(bytes, 64).at == 24);
  put(24, 36);
  CHECK(check_frames(bytes, 64).at == 64);
}
