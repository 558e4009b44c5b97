// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/interval_csv.hpp"
#include "support/texts.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

using namespace holdfast;

namespace {

Error error_of(std::string_view text) { return parse_interval_csv(text).error(); }

constexpr bool reads_at_compile_time() {
  const auto t = parse_interval_csv("id,lower,upper,size\na,0,3,10\nb,2,5,7\n");
  std::vector<LiveRange> ranges;
  return t.ok() && t->rows.size() == 2 && t->problem(0, ranges).group_count == 2 &&
         live_peak(ranges) == 17;
}
static_assert(reads_at_compile_time());

}  // namespace

TEST_CASE(
    "interval_csv: columns are found by their names, in any order, with what is not known passed "
    "over") {
  const auto t = parse_interval_csv(
      " note , size,upper,id, lower ,alignment\nx,64,7,first,3,16\n,8,1,second,0,\n");
  REQUIRE(t.ok());
  REQUIRE(t->rows.size() == 2);
  CHECK(t->rows[0].name == "first");
  CHECK(t->rows[0].range.begin == 3);
  CHECK(t->rows[0].range.end == 7);
  CHECK(t->rows[0].range.size == 64);
  CHECK(t->rows[0].range.alignment == 16);
  CHECK(t->rows[1].range.alignment == 1);
  CHECK(t->group_counts == std::vector<std::uint32_t>{2});
}

TEST_CASE(
    "interval_csv: each trace is an arena, and rows of one group share an offset there and nowhere "
    "else") {
  const auto t = parse_interval_csv(
      "trace,group,size,start,end,xla_offset\n1,7,8,0,2,0\n0,7,16,0,1,0\n1,9,8,0,4,8\n1,7,8,3,5,"
      "0\n0,3,4,2,3,0\n");
  REQUIRE(t.ok());
  CHECK(t->group_counts.size() == 2);
  CHECK(t->rows[0].arena == 0);
  CHECK(t->rows[1].arena == 1);
  CHECK(t->rows[0].range.group == t->rows[3].range.group);
  CHECK(t->rows[0].range.group != t->rows[2].range.group);
  std::vector<LiveRange> ranges;
  CHECK(t->problem(0, ranges).group_count == 2);
  CHECK(ranges.size() == 3);
  CHECK(t->problem(1, ranges, 32).ranges[0].alignment == 32);
  CHECK(ranges.size() == 2);
}

TEST_CASE("interval_csv: a header is told from other texts") {
  CHECK(is_interval_csv("id,lower,upper,size\n"));
  CHECK(is_interval_csv("\r\n\ntrace,group,size,start,end\r\n0,0,1,0,1"));
  CHECK_FALSE(is_interval_csv(""));
  CHECK_FALSE(is_interval_csv("HloModule m, entry_computation_layout={()->f32[]}"));
  CHECK_FALSE(is_interval_csv("id,lower,size\n"));
  CHECK_FALSE(is_interval_csv("id,first,last,size,alignment\n"));
}

TEST_CASE("interval_csv: what is wrong is refused at its place") {
  CHECK(error_of("").code == Errc::corrupt);
  CHECK(error_of("id,lower,upper,size\na,0,x,4\n").at == 24);
  CHECK(error_of("id,lower,upper,size\na,0,1,-4\n").at == 26);
  CHECK(error_of("id,lower,upper,size\na,0,1,99999999999999999999\n").at == 26);
  CHECK(error_of("id,lower,upper,size\na,5,1,4\n").at == 20);
  CHECK(error_of("id,lower,upper,size\na,0,1\n").at == 20);
  CHECK(error_of("id,lower,upper,size,alignment\na,0,1,4,0\n").code == Errc::corrupt);
  for (const char* cut : {"id,lower,upper,size\na", "id,lower,upper,size\na,",
                          "id,lower,upper,size\n,,,", "id,lower,upper,size\n-"})
    CHECK(error_of(cut).code == Errc::corrupt);
}

TEST_CASE("interval_csv: no row at all is a table without arenas") {
  const auto t = parse_interval_csv("id,lower,upper,size\r\n\r\n");
  REQUIRE(t.ok());
  CHECK(t->rows.empty());
  CHECK(t->group_counts.empty());
}

TEST_CASE(
    "interval_csv: writing repeats the columns and adds the offsets, or fills them where there is "
    "a column") {
  const Bytes offsets[] = {128, 0};
  testing::StringSink added, filled;
  const auto t = parse_interval_csv("id,lower,upper,size\r\na,0,3,10\r\n\r\nb,2,5,7\r\n");
  REQUIRE(t.ok());
  CHECK(write_interval_csv(*t, offsets, added).ok());
  CHECK(added.text == "id,lower,upper,size,offset\na,0,3,10,128\nb,2,5,7,0\n");
  const auto again = parse_interval_csv("offset,id,lower,upper,size\n5,a,0,3,10\n9,b,2,5,7\n");
  REQUIRE(again.ok());
  CHECK(write_interval_csv(*again, offsets, filled).ok());
  CHECK(filled.text == "offset,id,lower,upper,size\n128,a,0,3,10\n0,b,2,5,7\n");
  const auto last = parse_interval_csv(added.text);
  REQUIRE(last.ok());
  testing::StringSink same;
  CHECK(write_interval_csv(*last, offsets, same).ok());
  CHECK(same.text == added.text);
}

TEST_CASE("interval_csv: the live peak counts half-open ranges and does not overflow") {
  const LiveRange ranges[] = {
      {0, 2, 10, 1, 0}, {2, 4, 20, 1, 1}, {3, 5, 5, 1, 2}, {1, 1, 1000, 1, 3}};
  CHECK(live_peak(ranges) == 25);
  const LiveRange large[] = {{0, 2, max_bytes, 1, 0}, {1, 3, 1, 1, 1}};
  CHECK(live_peak(large) == max_bytes);
  CHECK(live_peak({}) == 0);
}
