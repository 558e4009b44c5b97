// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/graph/module.hpp"
#include "holdfast/hlo/detail/attribute_words.hpp"
#include "holdfast/hlo/detail/name_table.hpp"
#include "holdfast/hlo/detail/shape_reader.hpp"
#include "holdfast/hlo/detail/warning_list.hpp"
#include "holdfast/hlo/lexer.hpp"
#include "holdfast/hlo/parse_options.hpp"

namespace holdfast::detail {

/// The computation that is being read.
struct TextScope {
  explicit constexpr TextScope(std::string_view text) : names(text) {}
  NameTable names;
  std::vector<InstructionId> list;
  std::vector<InstructionId> parameters;
  std::vector<InstructionId> unnamed;  // nested operands, named when all names are known
  InstructionId root = no_id<InstructionId>;
  bool implicit_parameters = false;  // an operand that does not exist becomes one
  std::uint32_t implicit_count = 0;
};

/// Everything that the functions reading one text share.
struct TextState {
  Lexer in;
  ParseOptions options;
  Module module;
  WarningList warnings;
  ShapeReader shapes;
  NameTable computations;
  NameTable operations;           // words of unknown operations
  std::vector<TextScope> scopes;  // one a level of nested computations; kept for their memory
  std::size_t open_scopes = 0;
  std::uint32_t depth = 0;              // of nested operands and computations
  std::size_t body_from = 0;            // where the computations begin
  std::uint64_t effort;                 // left for comparing shapes
  std::vector<std::uint8_t> callers;    // by computation: 0 none, 1 some, 2 a fusion
  std::vector<ComputationId> unnamed;   // named when all names are known
  std::vector<InstructionId> operands;  // of the instructions that are open, as are the next three
  std::vector<InstructionId> controls;
  std::vector<ComputationId> called;
  std::vector<Attribute> attributes;
  std::vector<std::int64_t> path;
  /// Reads a computation in braces that stands where a name could (a pointer, because reading
  /// recurs through it).
  bool (*read_inline)(TextState&, ComputationId&) = nullptr;

  constexpr TextState(std::string_view text, const ParseOptions& given)
      : in(text, given.limits.depth),
        options(given),
        shapes(in, module.shapes, LayoutRules{given.strict, given.default_layouts, &warnings},
               given.limits.depth),
        computations(text),
        operations(text),
        effort(text.size() * 64 + 4096) {
    // No text that XLA writes comes near these: they keep hostile tuples in proportion to the text.
    ShapeTable& table = module.shapes;
    table.node_limit = std::min<std::size_t>(ShapeTable::max_nodes, text.size() * 4 + 4096);
  }
  TextState(const TextState&) = delete;

  /// Makes room for `more` entries in a pool: what the rest of the text needs if it goes on as it
  /// did so far.
  template <class T>
  constexpr void make_room(std::vector<T>& pool, std::size_t more = 1) {
    const std::size_t wanted = pool.size() + more;
    if (wanted <= pool.capacity()) return;
    const std::size_t done = (in.offset() - body_from) / 64 + 1;
    const std::size_t guess = wanted + wanted * (in.remaining() / 64) / done;
    pool.reserve(std::clamp(guess + guess / 32, wanted + wanted / 2 + 8, wanted * 64 + 64));
  }

  constexpr TextScope& scope() noexcept { return scopes[open_scopes - 1]; }

  /// Puts an error without a place at one.
  constexpr bool fail(std::size_t at, const Error& e) noexcept {
    if (in.failure.ok()) {
      in.failure = e;
      in.failure.at_kind = AtKind::byte_offset;
      in.failure.at = at;
    }
    return false;
  }
  /// Tells whether two shapes agree but for layouts; gives up on texts that ask for it out of all
  /// proportion.
  constexpr bool same_shape(ShapeId a, ShapeId b, std::size_t at, const char* what) noexcept {
    if (a == b) return true;
    const std::uint64_t cost = module.shapes.node_count(a);
    if (cost > effort)
      return in.fail_at(at, "comparing shapes takes too much work", Errc::over_budget);
    effort -= cost;
    return module.shapes.compatible(a, b) || in.fail_at(at, what);
  }

  /// Reads a name where one has to stand, `%` optional.
  constexpr bool name(std::string_view& out, const char* what) {
    const std::size_t from = in.offset();
    if (in.take('%')) return in.percent_name(out);
    out = in.word();
    if (out.empty()) return in.fail(what);
    return !is_keyword(out) || in.fail_at(from, "this word is a name only when written with %");
  }
  /// Reads a shape index such as `{1,0}` into `path`.
  constexpr bool shape_index() {
    path.clear();
    if (!in.expect('{', "expected a shape index in braces")) return false;
    in.skip_space();
    if (in.take('}')) return true;
    for (;;) {
      in.skip_space();
      std::uint32_t k = 0;
      if (!in.index(k)) return false;
      path.push_back(k);
      in.skip_space();
      if (in.take('}')) return true;
      if (!in.take(',')) return in.fail("expected , or } in a shape index");
    }
  }
};

}  // namespace holdfast::detail
