// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/reader.hpp"

#include <string>
#include <string_view>

#include <doctest/doctest.h>

using namespace holdfast;

namespace {

constexpr CharTable letters = [] {
  CharTable t{};
  for (char c = 'a'; c <= 'z'; ++c) t[static_cast<unsigned char>(c)] = 1;
  t[' '] = 2;
  return t;
}();

constexpr bool walks() {
  Reader in("ab cd");
  return in.take_while(letters, 1) == "ab" && in.take(' ') && !in.take("cde") && in.take("cd") &&
         in.at_end() && in.peek() == '\0';
}
static_assert(walks());
static_assert(find_char("abc", 'c') == 2 && find_char("abc", 'x') == 3 && find_char("", 'x') == 0);
static_assert(place_of("a\nbc\n", 3) == ((2ull << 32) | 2));

}  // namespace

TEST_CASE("reader: no call leaves the text") {
  const std::string text = "abc";
  Reader in(text);
  in.skip(2);
  CHECK(in.offset() == 2);
  CHECK(in.peek(1) == '\0');
  in.skip(99);
  CHECK(in.at_end());
  CHECK(in.remaining() == 0);
  CHECK_FALSE(in.take('c'));
  CHECK_FALSE(in.take("c"));
  CHECK(in.take(""));
  CHECK(in.take_while(letters, 1).empty());
  in.skip_to('x');
  in.skip_until(letters, 2);
  CHECK(in.at_end());
  in.seek(1);
  CHECK(in.rest() == "bc");
  in.seek(1000);
  CHECK(in.at_end());
  Reader none(std::string_view{});
  CHECK(none.peek() == '\0');
  none.skip_to('x');
  CHECK(none.at_end());
}

TEST_CASE("reader: skipping stops at the character asked for, and what was read can be had again") {
  Reader in("abc def");
  const std::size_t from = in.offset();
  in.skip_until(letters, 2);
  CHECK(in.since(from) == "abc");
  in.seek(0);
  in.skip_to('d');
  CHECK(in.offset() == 4);
  CHECK(in.text_at(0, 3) == "abc");
  CHECK(in.peek(2) == 'f');
}

TEST_CASE("reader: find_char agrees with itself at compile time, and finds NUL") {
  const std::string text("a\0b", 3);
  CHECK(find_char(text, '\0') == 1);
  CHECK(find_char(text, 'b') == 2);
  CHECK(find_char(text, 'z') == 3);
  CHECK(find_char({}, '\0') == 0);
}

TEST_CASE(
    "reader: a place counts lines and columns from 1; the end is behind the last word (m13)") {
  const auto place = [](std::string_view text, std::size_t offset) {
    const std::uint64_t at = place_of(text, offset);
    return std::to_string(at >> 32) + ":" + std::to_string(at & 0xFFFFFFFF);
  };
  CHECK(place("", 0) == "1:1");
  CHECK(place("ab\ncd", 0) == "1:1");
  CHECK(place("ab\ncd", 2) == "1:3");
  CHECK(place("ab\ncd", 3) == "2:1");
  CHECK(place("ab\ncd\n\n", 7) == "2:3");
  CHECK(place("ab\ncd\r\n \t\n", 99) == "2:3");
  CHECK(place("\n\n\n", 3) == "1:1");
}
