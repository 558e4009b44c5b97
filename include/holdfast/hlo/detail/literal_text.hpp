// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "holdfast/graph/shape_table.hpp"
#include "holdfast/hlo/lexer.hpp"

namespace holdfast::detail {

/// Checks what a literal shows without its values: the braces of its first element, and where `...`
/// stands.
///
/// Gives what is wrong, or null. Cost: a search for dots. Source: hlo-format.md D.
[[nodiscard]] constexpr const char* check_literal(std::string_view text, const ShapeTable& shapes,
                                                  ShapeId id) noexcept {
  const bool dots = text.find("...") != std::string_view::npos;
  Lexer in(text, 0);
  if (is_array(shapes[id].type)) {
    std::size_t braces = 0;
    for (in.skip_space(); in.take('{'); in.skip_space()) ++braces;
    if (dots && braces == 1 && in.take("...")) {
      in.skip_space();
      if (!in.take('}')) return "expected } after ...";
      in.skip_space();
      return in.at_end() ? nullptr : "an elided literal is {...} and nothing else";
    }
    bool empty = false;
    for (const std::int64_t d : shapes.dimensions(id)) empty = empty || d == 0;
    const std::size_t rank = shapes.dimensions(id).size();
    if (braces > rank || (braces < rank && !empty))
      return "literal has not as many braces as its shape has dimensions";
  }
  if (!dots) return nullptr;
  // Dots in a comment mean nothing; elsewhere they may only replace a whole array of a tuple.
  in.seek(0);
  std::size_t depth = 0;
  for (in.skip_space(); !in.at_end(); in.skip_space()) {
    if (in.take("...")) {
      if (depth != 1 || is_array(shapes[id].type)) return "... may only replace a whole array";
    } else {
      depth += in.peek() == '{' ? 1u : 0u;
      depth -= in.peek() == '}' && depth > 0 ? 1u : 0u;
      in.skip(1);
    }
    if (!in.failure.ok()) return "malformed literal";
  }
  return nullptr;
}

}  // namespace holdfast::detail
