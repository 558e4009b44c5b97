// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/hash.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace holdfast;

static_assert(hash_text("abc") != hash_text("abd") && hash_text("abc", 1) != hash_text("abc", 2));
static_assert(same_text("abcdefgh", "abcdefgh") && !same_text("abcdefgh", "abcdefgi"));

TEST_CASE("hash: texts of every length that differ in one place have different hashes") {
  for (std::size_t n = 1; n < 40; ++n) {
    const std::string text(n, 'a');
    std::set<std::uint64_t> seen{hash_text(text), hash_text(text + "a"), hash_text(text, 7)};
    for (std::size_t i = 0; i < n; ++i) {
      std::string other = text;
      other[i] = 'b';
      seen.insert(hash_text(other));
    }
    CHECK(seen.size() == n + 3);
  }
}

TEST_CASE("hash: names that count up spread over the low bits") {
  const std::size_t slots = 1 << 16;
  std::vector<int> used(slots, 0);
  std::size_t clashes = 0;
  for (int i = 0; i < 20000; ++i)
    clashes +=
        used[hash_text("multiply." + std::to_string(100000 + i)) & (slots - 1)]++ > 0 ? 1u : 0u;
  // 20000 balls in 65536 bins: about 2750 fall on another one.
  CHECK(clashes < 3300);
}

TEST_CASE("hash: same_text is equality for every length") {
  for (std::size_t n = 0; n < 40; ++n) {
    const std::string a(n, 'x');
    CHECK(same_text(a, std::string(n, 'x')));
    CHECK_FALSE(same_text(a, a + "x"));
    for (std::size_t i = 0; i < n; ++i) {
      std::string b = a;
      b[i] = 'y';
      CHECK_FALSE(same_text(a, b));
    }
  }
}
