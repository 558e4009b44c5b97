// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/attribute_text.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

using namespace holdfast;

namespace {

std::string numbers(std::string_view text) {
  NumberList list(text);
  std::string out;
  for (std::int64_t d = 0; list.next(d);) out += std::to_string(d) + ";";
  return out + (list.ok() ? "" : "!");
}
std::string unquoted(std::string_view text) {
  std::vector<char> out;
  append_unquoted(text, out);
  return {out.begin(), out.end()};
}

static_assert(field_of("{a=1 b=\"x\"}", "b") == "\"x\"");

}  // namespace

TEST_CASE("attribute_text: lists of numbers are read, anything else is noticed") {
  CHECK(numbers("{0,2}") == "0;2;");
  CHECK(numbers("{ 0 , /*index=1*/ -2 }") == "0;-2;");
  CHECK(numbers("7") == "7;");
  CHECK(numbers("{}").empty());
  CHECK(numbers("").empty());
  CHECK(numbers("{1,}") == "1;");
  CHECK(numbers("{1 2}") == "!");
  CHECK(numbers("{a}") == "!");
  CHECK(numbers("{1") == "!");
  CHECK(numbers("{99999999999999999999}") == "!");
  CHECK(numbers("-") == "!");
}

TEST_CASE(
    "attribute_text: J.12 fields stand apart by blanks or commas, groups and strings are kept "
    "whole") {
  const std::string_view text =
      "{op_name=\"a b,c=\\\"d\\\"}\" source_line=7, deep={x={1, 2} y=\"}\"}, last=[1, 2]}";
  CHECK(field_of(text, "op_name") == "\"a b,c=\\\"d\\\"}\"");
  CHECK(field_of(text, "source_line") == "7");
  CHECK(field_of(text, "deep") == "{x={1, 2} y=\"}\"}");
  CHECK(field_of(text, "last") == "[1, 2]");
  CHECK(field_of(text, "x").empty());
  CHECK(field_of("{xla.sdy.rule=\"1\"}", "xla.sdy.rule") == "\"1\"");
  for (const std::string_view broken : {"", "{", "{}", "{a", "{a=", "{a=\"", "{=}", "{a={"})
    CHECK(field_of(broken, "zz").empty());
}

TEST_CASE("attribute_text: strings lose their quotes and C escapes") {
  CHECK(unquoted("\"jit(f)/\\\"quoted\\\"/x\"") == "jit(f)/\"quoted\"/x");
  CHECK(unquoted("'a\\n\\t\\\\'") == "a\n\t\\");
  CHECK(unquoted("\"\\x41\\x4g\\101\\7z\"") == "A\x04gA\az");
  CHECK(unquoted("plain") == "plain");
  CHECK(unquoted("\"\"").empty());
  CHECK(unquoted("\"a\\\"") == "a\\");
}
