// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/concepts/sink.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/graph/module.hpp"

namespace holdfast {

/// What a checked run found wrong: who noticed, which value, and who is to blame.
struct PatternFault {
  enum class Kind : std::uint8_t {
    none,
    never_written,  ///< read before anything was written there
    overwritten,    ///< something else was written over it while it was still needed
    not_there,      ///< what was written last at this place is not what should be there
    overlap,  ///< a result shares memory with an operand or another result that it must not touch
  };
  Kind kind = Kind::none;
  InstructionId reader{};
  InstructionId value{};
  std::uint32_t node = 0;
  Bytes size = 0;
  Bytes offset = 0;  ///< of the first wrong byte
  InstructionId other = no_id<InstructionId>;
  std::uint32_t other_node = 0;
  bool by_copy = false;  ///< `other` came there by a copy that the plan makes
};

/// What the error of a run says of a fault.
[[nodiscard]] constexpr const char* what_of(PatternFault::Kind kind) noexcept {
  switch (kind) {
    case PatternFault::Kind::never_written: return "a value was read before it was written";
    case PatternFault::Kind::overwritten: return "a value was overwritten while it was still needed";
    case PatternFault::Kind::overlap: return "a result shares memory with what it must not touch";
    default: return "a value is not where it should be";
  }
}

namespace detail {

template <sink S>
Error write_position(S& out, const Module& m, InstructionId i, std::uint32_t node) {
  Error e = out.write("`");
  const auto put = [&](std::string_view text) {
    if (e.ok()) e = out.write(text);
  };
  put(m[i].name);
  std::vector<std::int64_t> path;
  m.shapes.path_of_node(m[i].shape, node, path);
  for (std::size_t k = 0; k < path.size(); ++k) {
    put(k == 0 ? "{" : ",");
    if (e.ok()) e = write_number(out, path[k]);
  }
  put(path.empty() ? "`" : "}`");
  return e;
}

}  // namespace detail

/// Writes a fault as one sentence with the names of both values. Errors: the sink's.
template <sink S>
Error write_fault(S& out, const Module& m, const PatternFault& f) {
  Error e;
  const auto put = [&](std::string_view text) {
    if (e.ok()) e = out.write(text);
  };
  const auto number = [&](Bytes n) {
    if (e.ok()) e = write_number(out, n);
  };
  const auto position = [&](InstructionId i, std::uint32_t node) {
    if (e.ok()) e = detail::write_position(out, m, i, node);
  };
  if (f.kind == PatternFault::Kind::none) return out.write("no fault");
  position(f.reader, 0);
  put(f.kind == PatternFault::Kind::overlap ? " reads " : " finds no ");
  position(f.value, f.node);
  put(" ("), number(f.size), put(" bytes)");
  switch (f.kind) {
    case PatternFault::Kind::never_written:
      put(": nothing has written it yet");
      return e;
    case PatternFault::Kind::overwritten:
      put(": byte "), number(f.offset),
          put(f.by_copy ? " was overwritten by the copy to " : " was overwritten by ");
      break;
    case PatternFault::Kind::not_there:
      put(": byte "), number(f.offset),
          put(f.other == no_id<InstructionId> ? " was never written" : " was last written by ");
      break;
    default:
      put(" where it writes ");
      break;
  }
  if (f.other != no_id<InstructionId>) position(f.other, f.other_node);
  return e;
}

}  // namespace holdfast
