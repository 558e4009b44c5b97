// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>

#include "holdfast/backend/jit/contiguous_sections.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// A piece of code that tools are to know by name: where it runs, and its bytes there.
struct JitSymbol {
  std::string_view name;
  const std::byte* run = nullptr;
  Bytes size = 0;
};

/// Something that tells a tool about code.
template <class W>
concept symbol_writer = requires(W& writer, const JitSymbol& symbol) {
  { writer.add(symbol) } noexcept -> std::same_as<Error>;
};

/// Tells no tool: the do-nothing model.
struct NoSymbols {
  static constexpr Error add(const JitSymbol&) noexcept { return {}; }
};
static_assert(symbol_writer<NoSymbols>);

/// Tells of the code sections of a finalised arena, each under its own name. Errors: the writer's first.
template <class Sections, symbol_writer Writer>
[[nodiscard]] Error write_sections(const Sections& sections, Writer& writer) noexcept {
  Error failure;
  sections.visit_sections([&](const Section& s) {
    if (failure.ok() && s.kind == SectionKind::code && s.size != 0) failure = writer.add({s.name, s.run, s.size});
  });
  return failure;
}

}  // namespace holdfast
