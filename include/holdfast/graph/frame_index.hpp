// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/core/reader.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/graph/attribute_text.hpp"

namespace holdfast {

/// Where code stands in its source. Numbers of files and functions count from 1; 0 is none.
struct FrameLocation {
  std::uint32_t file = 0, function = 0;
  std::uint32_t line = 0, end_line = 0, column = 0, end_column = 0;
};

/// One call on the stack of an instruction's origin.
struct StackFrame {
  std::uint32_t location = 0;  ///< counts from 1; 0 is none
  std::uint32_t parent = 0;    ///< counts from 1; 0 is none
};

/// The tables behind `stack_frame_id` of metadata, whose numbers count from 1.
struct FrameIndex {
  std::vector<std::string_view> files;      ///< as written, with quotes
  std::vector<std::string_view> functions;  ///< as written, with quotes
  std::vector<FrameLocation> locations;
  std::vector<StackFrame> frames;
};

namespace detail {

/// The number of a field; 0 when it is missing, negative or too large.
[[nodiscard]] constexpr std::uint32_t field_number(std::string_view braces,
                                                   std::string_view key) noexcept {
  NumberList list(field_of(braces, key));
  std::int64_t value = 0;
  return list.next(value) && value >= 0 && value <= 0xFFFFFFFF ? static_cast<std::uint32_t>(value)
                                                               : 0;
}

}  // namespace detail

/// Reads `Module::frame_index`, in which a parent of 1 means none, one more than in protos.
///
/// Errors: corrupt, with a byte offset. Cost: linear. Source: hlo-format.md B.2.
[[nodiscard]] constexpr Result<FrameIndex> parse_frame_index(std::string_view text) {
  constexpr std::string_view sections[] = {"FileNames", "FunctionNames", "FileLocations",
                                           "StackFrames"};
  FrameIndex out;
  int section = -1;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at + find_char(text.substr(at), '\n');
    std::string_view line = text.substr(at, end - at);
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
    while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
    const std::size_t where = at;
    at = end + 1;
    if (line.empty()) continue;
    bool is_title = false;
    for (int k = 0; k < 4; ++k)
      if (line == sections[k]) section = k, is_title = true;
    if (is_title) continue;
    const std::size_t space = line.find(' ');
    if (section < 0 || space == std::string_view::npos)
      return make_error_at(Errc::corrupt, "expected an entry of a frame table", where);
    const std::string_view value = line.substr(space + 1);
    if (section == 0) out.files.push_back(value);
    if (section == 1) out.functions.push_back(value);
    if (section == 2)
      out.locations.push_back(
          {detail::field_number(value, "file_name_id"),
           detail::field_number(value, "function_name_id"), detail::field_number(value, "line"),
           detail::field_number(value, "end_line"), detail::field_number(value, "column"),
           detail::field_number(value, "end_column")});
    if (section == 3) {
      const std::uint32_t parent = detail::field_number(value, "parent_frame_id");
      out.frames.push_back(
          {detail::field_number(value, "file_location_id"), parent == 0 ? 0 : parent - 1});
    }
  }
  return out;
}

}  // namespace holdfast
