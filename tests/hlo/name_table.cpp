// SPDX-License-Identifier: Apache-2.0
#include "holdfast/hlo/detail/name_table.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace holdfast;
using holdfast::detail::NameTable;

namespace {

/// A text of names, each followed by a blank, and where they stand.
struct Names {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> places;
  void add(std::string_view name) {
    places.emplace_back(text.size(), name.size());
    text += name;
    text += ' ';
  }
  std::string_view operator[](std::size_t i) const {
    return std::string_view(text).substr(places[i].first, places[i].second);
  }
};

}  // namespace

TEST_CASE("name_table: names are found by their whole word, across growth and clearing") {
  Names names;
  for (int i = 0; i < 5000; ++i) names.add("add." + std::to_string(i));
  NameTable table(names.text);
  CHECK(table.find("add.1") == NameTable::none);
  for (std::uint32_t i = 0; i < 5000; ++i) CHECK(table.insert(names[i], i) == NameTable::none);
  for (std::uint32_t i = 0; i < 5000; ++i) CHECK(table.find("add." + std::to_string(i)) == i);
  CHECK(table.insert(names[77], 9999) == 77);
  for (const std::string_view other : {"add", "add.", "add.5000", "add.10000", "dd.1", ""})
    CHECK(table.find(other) == NameTable::none);
  table.clear();
  CHECK(table.find("add.1") == NameTable::none);
  for (std::uint32_t i = 0; i < 5000; i += 7)
    CHECK(table.insert(names[i], i + 1) == NameTable::none);
  CHECK(table.find("add.7") == 8);
  CHECK(table.find("add.8") == NameTable::none);
}

TEST_CASE("name_table: a name at the very end of the text is found, longer ones are not") {
  const std::string text = "abc";
  NameTable table(text);
  CHECK(table.insert(std::string_view(text), 5) == NameTable::none);
  CHECK(table.find("abc") == 5);
  CHECK(table.find("abcd") == NameTable::none);
  CHECK(table.find("ab") == NameTable::none);
}

TEST_CASE("name_table: names made to crowd one place are spread by another hash") {
  // All of these would take one slot and its neighbours in any table of up to 8192 slots.
  Names names;
  for (int i = 0; names.places.size() < 1500; ++i) {
    const std::string name = "n" + std::to_string(i);
    if ((hash_text(name) & 8191) == 0) names.add(name);
  }
  NameTable table(names.text);
  for (std::uint32_t i = 0; i < names.places.size(); ++i)
    CHECK(table.insert(names[i], i) == NameTable::none);
  for (std::uint32_t i = 0; i < names.places.size(); ++i) CHECK(table.find(names[i]) == i);
  CHECK(table.crowding() <= 256);
}
