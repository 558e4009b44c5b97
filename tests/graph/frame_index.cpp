// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/frame_index.hpp"

#include <string_view>

#include <doctest/doctest.h>

using namespace holdfast;

TEST_CASE("frame_index: J.26 a parent of 1 is none") {
  const Result<FrameIndex> index =
      parse_frame_index("StackFrames\n1 {file_location_id=1 parent_frame_id=1}");
  REQUIRE(index.ok());
  REQUIRE(index->frames.size() == 1);
  CHECK(index->frames[0].location == 1);
  CHECK(index->frames[0].parent == 0);
}

TEST_CASE("frame_index: all four tables are read") {
  constexpr std::string_view text =
      "FileNames\n1 \"a b.py\"\n2 \"c.py\"\n\nFunctionNames\n1 \"f\"\n\nFileLocations\n"
      "1 {file_name_id=2 function_name_id=1 line=3 end_line=4 column=5 "
      "end_column=6}\r\n\nStackFrames\n"
      "1 {file_location_id=1 parent_frame_id=1}\n2 {file_location_id=1 parent_frame_id=2}\n";
  const Result<FrameIndex> index = parse_frame_index(text);
  REQUIRE(index.ok());
  REQUIRE(index->files.size() == 2);
  CHECK(index->files[0] == "\"a b.py\"");
  CHECK(index->functions.size() == 1);
  REQUIRE(index->locations.size() == 1);
  CHECK(index->locations[0].file == 2);
  CHECK(index->locations[0].function == 1);
  CHECK(index->locations[0].line == 3);
  CHECK(index->locations[0].end_line == 4);
  CHECK(index->locations[0].column == 5);
  CHECK(index->locations[0].end_column == 6);
  REQUIRE(index->frames.size() == 2);
  CHECK(index->frames[1].parent == 1);
  CHECK(parse_frame_index("")->frames.empty());
  static_assert(parse_frame_index(text).ok());
}

TEST_CASE("frame_index: text that is no table is refused with its place") {
  const Result<FrameIndex> index = parse_frame_index("FileNames\n1 \"a\"\nxyz\n");
  REQUIRE_FALSE(index.ok());
  CHECK(index.error().code == Errc::corrupt);
  CHECK(index.error().at == 16);
  CHECK_FALSE(parse_frame_index("1 \"a\"").ok());
}
