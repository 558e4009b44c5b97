// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/concepts/sink.hpp"
#include "holdfast/core/wire.hpp"
#include "holdfast/plan/memory_stats.hpp"

namespace holdfast {

/// Statistics as a file had them.
struct StoredMemoryStats {
  CompiledMemoryStats stats;
  /// Field 15 stood there without 16 to 18: an older revision of XLA means `total_allocation_bytes`
  /// by it, so `total_size_in_bytes` cannot be trusted.
  bool total_is_ambiguous = false;
};

namespace detail {

struct MemoryStatsField {
  std::uint32_t number;
  Bytes CompiledMemoryStats::*member;
};

/// Numbers of CompiledMemoryStatsProto; 6 and 12 are retired, 13 is the serialised assignment.
inline constexpr MemoryStatsField memory_stats_fields[] = {
    {1, &CompiledMemoryStats::generated_code_size_in_bytes},
    {2, &CompiledMemoryStats::argument_size_in_bytes},
    {3, &CompiledMemoryStats::output_size_in_bytes},
    {4, &CompiledMemoryStats::alias_size_in_bytes},
    {5, &CompiledMemoryStats::temp_size_in_bytes},
    {7, &CompiledMemoryStats::host_generated_code_size_in_bytes},
    {8, &CompiledMemoryStats::host_argument_size_in_bytes},
    {9, &CompiledMemoryStats::host_output_size_in_bytes},
    {10, &CompiledMemoryStats::host_alias_size_in_bytes},
    {11, &CompiledMemoryStats::host_temp_size_in_bytes},
    {14, &CompiledMemoryStats::peak_memory_in_bytes},
    {15, &CompiledMemoryStats::total_size_in_bytes},
    {16, &CompiledMemoryStats::total_allocation_bytes},
    {17, &CompiledMemoryStats::indefinite_allocations},
    {18, &CompiledMemoryStats::peak_unpadded_heap_bytes},
};

}  // namespace detail

/// Reads a CompiledMemoryStatsProto; fields it does not know are kept.
///
/// Errors: corrupt, at a byte offset. Cost: linear. Source: runtime.md 6.5.
[[nodiscard]] constexpr Result<StoredMemoryStats> parse_memory_stats(std::string_view bytes) {
  StoredMemoryStats out;
  std::uint32_t seen = 0;
  WireReader reader(bytes);
  for (WireField f; reader.next(f);) {
    bool known = false;
    if (f.kind == WireKind::varint)
      for (const detail::MemoryStatsField& field : detail::memory_stats_fields)
        if (field.number == f.number) out.stats.*field.member = f.signed_value(), known = true;
    if (f.kind == WireKind::bytes && f.number == 13) {
      out.stats.serialized_buffer_assignment.assign(f.bytes.begin(), f.bytes.end());
      known = true;
    }
    if (known)
      seen |= 1u << f.number;
    else
      out.stats.unknown_fields.insert(out.stats.unknown_fields.end(), reader.raw().begin(),
                                      reader.raw().end());
  }
  if (Error e = reader.error(); !e.ok()) {
    e.stage = Stage::parse;
    return e;
  }
  out.total_is_ambiguous = (seen >> 15) == 1;
  return out;
}

/// Makes the bytes of a CompiledMemoryStatsProto: fields by number, the unknown ones last.
[[nodiscard]] constexpr std::vector<char> serialize_memory_stats(const CompiledMemoryStats& stats) {
  WireWriter out;
  for (const detail::MemoryStatsField& field : detail::memory_stats_fields) {
    if (field.number == 14)
      out.text(13, {stats.serialized_buffer_assignment.data(),
                    stats.serialized_buffer_assignment.size()});
    out.number(field.number, stats.*field.member);
  }
  out.raw({stats.unknown_fields.data(), stats.unknown_fields.size()});
  return {out.bytes().begin(), out.bytes().end()};
}

/// Writes the proto to a sink, such as a file; `parse_memory_stats` of the file's bytes is the way
/// back.
///
/// Errors: the sink's.
template <sink S>
constexpr Error save_memory_stats(S& out, const CompiledMemoryStats& stats) {
  const std::vector<char> bytes = serialize_memory_stats(stats);
  return out.write({bytes.data(), bytes.size()});
}

/// Finds the statistics in a serialised PjRtExecutableMetadata.
///
/// Errors: corrupt; not_found (it has none).
[[nodiscard]] constexpr Result<StoredMemoryStats> parse_executable_memory_stats(
    std::string_view metadata) {
  std::vector<char> message;  // may come in parts
  bool found = false;
  WireReader reader(metadata);
  for (WireField f; reader.next(f);)
    if (f.number == 1 && f.kind == WireKind::bytes)
      message.insert(message.end(), f.bytes.begin(), f.bytes.end()), found = true;
  if (!reader.error().ok()) return reader.error();
  if (!found) return make_error(Errc::not_found, "executable metadata holds no memory statistics");
  return parse_memory_stats({message.data(), message.size()});
}

}  // namespace holdfast
