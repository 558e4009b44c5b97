// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include "holdfast/concepts/sink.hpp"
#include "holdfast/graph/module.hpp"
#include "holdfast/hlo/detail/finish_module.hpp"
#include "holdfast/hlo/detail/read_computation.hpp"
#include "holdfast/hlo/detail/read_header.hpp"
#include "holdfast/hlo/detail/text_state.hpp"
#include "holdfast/hlo/parse_options.hpp"

namespace holdfast {

namespace detail {

// Not constexpr: a constant expression that comes here ends, and the compiler shows the arguments
// of its caller.
inline void malformed_hlo_text() noexcept { HOLDFAST_ASSERT(false); }
constexpr void require_well_formed(bool good, const char*, std::uint32_t /*line*/,
                                   std::uint32_t /*column*/) noexcept {
  if (!good) malformed_hlo_text();
}

/// Tells whether a text without a header begins with one lone instruction, not with a computation.
[[nodiscard]] constexpr bool is_single_instruction(Lexer in) noexcept {
  if (in.peek() == '(') return true;
  if (in.take("ROOT") && (hlo_chars[static_cast<unsigned char>(in.peek())] & is_space) != 0)
    return true;
  in.take('%');
  in.word();
  in.skip_space();
  return in.peek() == '=' || in.peek() == '[';
}

constexpr bool read_module(TextState& st) {
  Lexer& in = st.in;
  Module& m = st.module;
  const std::string_view text = in.rest();
  if (text.size() > st.options.limits.bytes ||
      text.size() >= std::numeric_limits<std::uint32_t>::max())
    return in.fail("more bytes than the limit", Errc::over_budget);
  if (const std::size_t nul = find_char(text, '\0'); nul != text.size())
    return in.fail_at(nul, "text holds a NUL byte");
  in.take("\xEF\xBB\xBF");
  in.skip_space();
  HeaderParts parts;
  const bool has_header = in.peek_word() == "HloModule";
  if (has_header) {
    in.word();
    if (!read_header(st, parts) || !read_frame_index(st)) return false;
  }
  in.skip_space();
  st.body_from = in.offset();
  bool has_entry = false;
  if (!has_header && is_single_instruction(in)) {
    if (!read_single_instruction(st)) return false;
  } else {
    if (in.at_end()) return in.fail(has_header ? "module has no computation" : "text is empty");
    for (; !in.at_end(); in.skip_space()) {
      const std::size_t from = in.offset();
      bool is_entry = false;
      if (!read_computation(st, is_entry)) return false;
      if (!is_entry) continue;
      if (has_entry) return in.fail_at(from, "module has two ENTRYs");
      has_entry = true;
      m.entry = static_cast<ComputationId>(m.computations.size() - 1);
    }
  }
  if (!in.failure.ok()) return false;
  if (!has_entry) m.entry = static_cast<ComputationId>(m.computations.size() - 1);
  name_computations(st);
  if (!has_header) {
    std::vector<char> name{'m', 'o', 'd', 'u', 'l', 'e', '_'};
    name.insert(name.end(), m[m.entry].name.begin(), m[m.entry].name.end());
    m.name = m.own({name.data(), name.size()});
  }
  return check_entry_layout(st, parts) && resolve_tables(st, parts);
}

}  // namespace detail

/// Reads HLO text into a module whose strings are views into that text.
///
/// Warnings (lenient reading passes over unknown words) go to `warnings`, a line each.
/// Errors: corrupt (malformed, or nested too deeply), over_budget (a limit); both with line and
/// column. Cost: linear in the text, in time and in memory. Source: hlo-format.md A-H.
template <sink S = NullSink>
[[nodiscard]] constexpr Result<Module> parse_hlo_text(std::string_view text,
                                                      const ParseOptions& options = {},
                                                      S&& warnings = {}) {
  detail::TextState st(text, options);
  st.read_inline = detail::read_inline_computation;
  const bool good = detail::read_module(st);
  st.warnings.write(text, warnings);
  if (good) return std::move(st.module);
  Error e = st.in.failure;
  e.stage = Stage::parse;
  e.at = place_of(text, e.at);
  e.at_kind = AtKind::line_column;
  return e;
}

/// Reads HLO text that is part of the program, in a constant expression: malformed text does not
/// compile.
///
/// Errors: none; outside a constant expression malformed text is a broken precondition.
[[nodiscard]] constexpr Module parse_hlo_literal(std::string_view text,
                                                 const ParseOptions& options = {}) {
  Result<Module> m = parse_hlo_text(text, options);
  detail::require_well_formed(m.ok(), m.error().what, m.error().line(), m.error().column());
  return std::move(m).value();
}

/// Writes `LINE:COLUMN: what is wrong`, the line it is in (as much as is useful of it), and a mark
/// below the place.
///
/// Errors: the first failure of the sink.
template <sink S>
constexpr Error write_parse_error(S& out, std::string_view text, const Error& e) {
  Error failure = write_number(out, e.line());
  const auto put = [&](std::string_view part) {
    if (failure.ok()) failure = out.write(part);
  };
  put(":");
  if (failure.ok()) failure = write_number(out, e.column());
  put(": ");
  if (failure.ok()) failure = write_error(out, e);
  put("\n");
  for (std::uint32_t line = 1; line < e.line() && !text.empty(); ++line)
    text.remove_prefix(std::min(text.size(), find_char(text, '\n') + 1));
  text = text.substr(0, find_char(text, '\n'));
  constexpr std::size_t width = 96;
  std::size_t column = e.column() > 0 ? e.column() - 1 : 0;
  const std::size_t from = column > width / 2 ? column - width / 2 : 0;
  put(text.substr(std::min(from, text.size()), width));
  put("\n");
  for (std::size_t i = from; i < column; ++i) put(i < text.size() && text[i] == '\t' ? "\t" : " ");
  put("^\n");
  return failure;
}

}  // namespace holdfast
