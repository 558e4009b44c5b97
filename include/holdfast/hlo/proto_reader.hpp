// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/core/wire.hpp"
#include "holdfast/graph/module.hpp"
#include "holdfast/hlo/detail/proto_module.hpp"

namespace holdfast {

/// Which message a file of bytes is.
enum class ProtoKind : std::uint8_t { detect, hlo_proto, hlo_module, hlo_snapshot };

/// How `parse_hlo_proto` reads.
struct ProtoOptions {
  ProtoKind kind = ProtoKind::detect;
  ReaderLimits limits = {};
  bool default_layouts = true;  ///< arrays without a layout get minor-to-major n-1...0, as in text
  std::vector<std::int64_t>* instruction_ids =
      nullptr;  ///< receives the file's own id of each instruction
};

namespace detail {

/// The sub-message `number` of a message; its parts are put together in `module` when there are
/// several.
constexpr Result<WireField> find_message(const WireField& message, std::uint32_t number,
                                         Module& module) {
  WireField out;
  std::vector<char> all;
  std::size_t parts = 0;
  WireReader reader(message.bytes, message.offset);
  for (WireField f; reader.next(f);) {
    if (f.number != number || f.kind != WireKind::bytes) continue;
    if (parts == 1) all.assign(out.bytes.begin(), out.bytes.end());
    if (parts++ == 0)
      out = f;
    else
      all.insert(all.end(), f.bytes.begin(), f.bytes.end());
  }
  if (!reader.error().ok()) return reader.error();
  if (parts > 1) out.bytes = module.own({all.data(), all.size()});
  return out;
}

/// Tells whether bytes look like an HloModuleProto: its fields have their kinds, and there is a
/// computation and an entry. (An HloProto has a field 3 too, but neither 2 nor 6.)
constexpr bool looks_like_module(std::string_view bytes) noexcept {
  bool computations = false;
  bool entry = false;
  WireReader reader(bytes);
  for (WireField f; reader.next(f);) {
    const bool message = f.number <= 4 || (f.number >= 7 && f.number <= 10) ||
                         (f.number >= 12 && f.number <= 15) || (f.number >= 17 && f.number <= 22);
    const bool number = f.number == 5 || f.number == 6 || f.number == 11 || f.number == 16;
    if ((message && f.kind != WireKind::bytes) || (number && f.kind != WireKind::varint))
      return false;
    computations = computations || f.number == 3;
    entry = entry || f.number == 2 || f.number == 6;
  }
  return reader.error().ok() && computations && entry;
}

/// The first sub-message 1 of a message; empty when there is none.
constexpr std::string_view first_message(std::string_view bytes) noexcept {
  WireReader reader(bytes);
  for (WireField f; reader.next(f);)
    if (f.number == 1 && f.kind == WireKind::bytes) return f.bytes;
  return {};
}

}  // namespace detail

/// Finds out which message a file is: all three begin with field 1, whose contents differ.
///
/// Cost: O(number of fields); nothing is copied. Source: hlo-format.md K.
[[nodiscard]] constexpr ProtoKind detect_proto_kind(std::string_view bytes) noexcept {
  const std::string_view first = detail::first_message(bytes);
  if (detail::looks_like_module(first)) return ProtoKind::hlo_proto;
  return detail::looks_like_module(detail::first_message(first)) ? ProtoKind::hlo_snapshot
                                                                 : ProtoKind::hlo_module;
}

/// Reads a module from the bytes of an HloProto, an HloModuleProto or an HloSnapshot.
///
/// Gives the same module as the text reader does for the same program; names are views into
/// `bytes`, which must outlive it. Errors: corrupt and over_budget, at a byte offset; unsupported
/// (compressed). Threads: any. Cost: linear, n log n where ids lie far apart. Source: hlo-format.md
/// K-O.
[[nodiscard]] constexpr Result<Module> parse_hlo_proto(std::string_view bytes,
                                                       const ProtoOptions& options = {}) {
  if (bytes.starts_with("\x1f\x8b"))
    return make_error_at(Errc::unsupported, "file is compressed by gzip: unpack it first", 0);
  if (bytes.size() > options.limits.bytes || bytes.size() > 0xFFFFFFFFu) {
    Error e = make_error_at(Errc::over_budget, "more bytes than the limit", 0);
    e.requested = static_cast<std::int64_t>(bytes.size());
    e.available = static_cast<std::int64_t>(options.limits.bytes);
    return e;
  }
  detail::ProtoContext context;
  context.depth_limit = std::min(options.limits.depth, wire_depth_limit);
  context.default_layouts = options.default_layouts;
  // As for text: no file that XLA writes comes near this.
  context.module.shapes.node_limit =
      std::min<std::size_t>(ShapeTable::max_nodes, bytes.size() * 8 + 4096);
  const ProtoKind kind =
      options.kind == ProtoKind::detect ? detect_proto_kind(bytes) : options.kind;
  WireField message{1, WireKind::bytes, 0, bytes, 0};
  for (int wrapped = kind == ProtoKind::hlo_snapshot ? 2
                     : kind == ProtoKind::hlo_proto  ? 1
                                                     : 0;
       wrapped != 0; --wrapped) {
    const Result<WireField> inner = detail::find_message(message, 1, context.module);
    if (!inner.ok()) return inner.error();
    message = *inner;
  }
  detail::ProtoModuleReader reader(context);
  reader.instruction_limit = options.limits.instructions;
  reader.ids = options.instruction_ids;
  if (!reader.read(message)) {
    context.failure.stage = Stage::parse;
    return context.failure;
  }
  return std::move(context.module);
}

/// The serialised BufferAssignmentProto inside an HloProto or HloSnapshot; empty when it has none.
///
/// A view into `bytes`. Errors: corrupt; unsupported (written in several parts, which no writer
/// does).
[[nodiscard]] constexpr Result<std::string_view> find_buffer_assignment(
    std::string_view bytes, ProtoKind kind = ProtoKind::detect) {
  if (kind == ProtoKind::detect) kind = detect_proto_kind(bytes);
  if (kind == ProtoKind::hlo_module) return std::string_view{};
  std::string_view out;
  bool found = false;
  WireReader reader(kind == ProtoKind::hlo_snapshot ? detail::first_message(bytes) : bytes);
  for (WireField f; reader.next(f);) {
    if (f.number != 3 || f.kind != WireKind::bytes) continue;
    if (found)
      return make_error_at(Errc::unsupported, "buffer assignment is written in several parts",
                           f.offset);
    out = f.bytes;
    found = true;
  }
  if (!reader.error().ok()) return reader.error();
  return out;
}

}  // namespace holdfast
