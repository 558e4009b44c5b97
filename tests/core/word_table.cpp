// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/word_table.hpp"

#include <string>
#include <string_view>

#include <doctest/doctest.h>

using namespace holdfast;

namespace {
constexpr std::string_view words[] = {"a", "ab", "abc", "ba", "b", "a-long-word-of-many-letters"};
constexpr WordTable<16> table{words};
static_assert(table.find("abc") == 2 && table.find("") == table.none &&
              table.find("c") == table.none);
}  // namespace

TEST_CASE("word_table: every word is found at its place, and nothing else") {
  for (std::size_t i = 0; i < std::size(words); ++i) CHECK(table.find(words[i]) == i);
  for (const std::string_view other : {"", "aa", "abcd", "abd", "A", "a-long-word-of-many-letterS"})
    CHECK(table.find(other) == table.none);
}
