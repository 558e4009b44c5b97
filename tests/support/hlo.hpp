// SPDX-License-Identifier: Apache-2.0
// Reading and printing HLO text in tests.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/hlo/parser.hpp"
#include "holdfast/hlo/printer.hpp"
#include "support/texts.hpp"

namespace holdfast::testing {

/// Reads a text that has to be right; the text must outlive the module.
inline Module parse(std::string_view text, const ParseOptions& options = {}) {
  Result<Module> m = parse_hlo_text(text, options);
  REQUIRE_MESSAGE(m.ok(), m.error().line(), ":", m.error().column(), ": ", sentence(m.error()));
  return std::move(*m);
}
inline Module parse(std::string&& text, const ParseOptions& options = {}) = delete;

/// Why a text is refused, as `LINE:COLUMN: sentence`; "accepted" when it is not.
inline std::string refusal(std::string_view text, const ParseOptions& options = {}) {
  const Result<Module> m = parse_hlo_text(text, options);
  if (m.ok()) return "accepted";
  CHECK(m.error().at_kind == AtKind::line_column);
  CHECK(m.error().stage == Stage::parse);
  CHECK(status_kind(m.error()) == (m.error().code == Errc::over_budget
                                       ? StatusKind::resource_exhausted
                                       : StatusKind::invalid_argument));
  return std::to_string(m.error().line()) + ":" + std::to_string(m.error().column()) + ": " +
         sentence(m.error());
}

/// The module as text, all constants in full unless the options say otherwise.
inline std::string print(const Module& m, PrintOptions options = {true, true, false, -1}) {
  StringSink out;
  CHECK(print_hlo_text(m, out, options).ok());
  return out.text;
}

inline InstructionId find_instruction(const Module& m, std::string_view name) {
  for (std::size_t i = 0; i < m.instructions.size(); ++i)
    if (m.instructions[i].name == name) return static_cast<InstructionId>(i);
  FAIL("no instruction ", name);
  return {};
}
inline ComputationId find_computation(const Module& m, std::string_view name) {
  for (std::size_t i = 0; i < m.computations.size(); ++i)
    if (m.computations[i].name == name) return static_cast<ComputationId>(i);
  FAIL("no computation ", name);
  return {};
}
inline std::string shape_text(const Module& m, ShapeId id) {
  holdfast::detail::TextBuilder text;
  put_shape(text, m.shapes, id);
  return std::string(text.view());
}
/// The names of the instructions of a computation, in their order.
template <class Ids>
std::string names(const Module& m, const Ids& ids) {
  std::string out;
  for (const InstructionId id : ids) out += (out.empty() ? "" : " ") + std::string(m[id].name);
  return out;
}

}  // namespace holdfast::testing
