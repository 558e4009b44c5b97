// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/opcode.hpp"

#include <cctype>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "support/shared.hpp"

using namespace holdfast;

static_assert(find_opcode("xor") == Opcode::xor_ &&
              static_cast<std::size_t>(Opcode::xor_) + 1 == opcode_count);

TEST_CASE("opcode: every word is found again, and others are not") {
  for (std::size_t i = 0; i < opcode_count; ++i)
    CHECK(find_opcode(opcode_word(static_cast<Opcode>(i))) == static_cast<Opcode>(i));
  for (const std::string_view word :
       {"", "adds", "ad", "Add", "while_", "dynamic-slice-start", "and_", "async"})
    CHECK(static_cast<std::size_t>(find_opcode(word)) == opcode_count);
}

TEST_CASE("opcode: enumerators are named after their words") {
  CHECK(find_opcode("and") == Opcode::and_);
  CHECK(find_opcode("while") == Opcode::while_);
  CHECK(find_opcode("get-tuple-element") == Opcode::get_tuple_element);
  CHECK(find_opcode("round-nearest-afz") == Opcode::round_nearest_afz);
  CHECK(find_opcode("copy-start") == Opcode::copy_start);
  CHECK(find_opcode("topk") == Opcode::topk);
}

TEST_CASE("opcode: F.1 the words of the specification are all there") {
  const std::string path = testing::shared_path("spec/hlo-format.md");
  if (path.empty()) return;
  const std::string text = testing::read_file(path);
  std::size_t at = text.find("### F.1");
  const std::size_t end = text.find("### F.2");
  REQUIRE(at != text.npos);
  REQUIRE(end != text.npos);
  at = text.find("\nabs ", at);
  std::size_t words = 0;
  std::string word;
  for (; at < end; ++at) {
    const char c = text[at];
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-') {
      word += c;
    } else if (!word.empty()) {
      CAPTURE(word);
      CHECK(static_cast<std::size_t>(find_opcode(word)) < opcode_count);
      ++words;
      word.clear();
    }
  }
  CHECK(words == opcode_count);
}

TEST_CASE("opcode: F.3 elementwise operations are those of the specification") {
  for (const Opcode opcode : {Opcode::add, Opcode::select, Opcode::clamp, Opcode::convert,
                              Opcode::copy, Opcode::compare, Opcode::reduce_precision})
    CHECK(is_elementwise(opcode));
  for (const Opcode opcode : {Opcode::add_dependency, Opcode::bitcast, Opcode::broadcast,
                              Opcode::reshape, Opcode::dot, Opcode::fusion, Opcode::tuple})
    CHECK_FALSE(is_elementwise(opcode));
}
