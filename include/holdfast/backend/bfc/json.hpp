// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "holdfast/backend/bfc/snapshot.hpp"
#include "holdfast/concepts/sink.hpp"

namespace holdfast {

/// Writes a snapshot as one JSON object: `name`, `two_ended`, figures in bytes, and `regions` with their `chunks`; addresses are
/// strings, since they may pass 2^53.
///
/// Errors: the first failure of the sink. Cost: linear in the chunks.
template <sink S>
Error write_bfc_json(S& out, const BfcSnapshot& s) noexcept {
  Error failure;
  const auto put = [&](std::string_view text) {
    if (failure.ok()) failure = out.write(text);
  };
  const auto number = [&](std::string_view before, std::int64_t n) {
    put(before);
    if (failure.ok()) failure = write_number(out, n);
  };
  const auto text = [&](std::string_view before, const char* value) {
    put(before);
    if (value == nullptr) return put("null");
    put("\"");
    for (const char* at = value; *at != '\0'; ++at) {
      const auto c = static_cast<unsigned char>(*at);
      const char plain[] = {'\\', *at}, coded[] = {'\\', 'u', '0', '0', "0123456789abcdef"[c / 16], "0123456789abcdef"[c % 16]};
      if (c == '"' || c == '\\')
        put({plain, 2});
      else if (c < 0x20 || c == '<' || c == '>' || c == '&')  // harmless within HTML too
        put({coded, 6});
      else
        put({at, 1});
    }
    put("\"");
  };
  const auto address = [&](std::string_view before, const std::byte* p) {
    char digits[18];
    std::size_t at = sizeof digits;
    std::uint64_t n = detail::bfc_address(p);
    do digits[--at] = "0123456789abcdef"[n % 16];
    while ((n /= 16) != 0);
    put(before), put("\"0x"), put({digits + at, sizeof digits - at}), put("\"");
  };
  const BfcStatistics& f = s.statistics;
  text("{\"name\":", s.options.name);
  put(s.two_ended ? ",\"two_ended\":true" : ",\"two_ended\":false");
  number(",\"limit_bytes\":", f.limit);
  number(",\"reserved_bytes\":", f.reserved);
  number(",\"peak_reserved_bytes\":", f.peak_reserved);
  number(",\"in_use_bytes\":", f.in_use);
  number(",\"peak_in_use_bytes\":", f.peak_in_use);
  number(",\"requested_bytes\":", f.requested);
  number(",\"peak_requested_bytes\":", f.peak_requested);
  number(",\"alignment_waste_bytes\":", f.alignment_waste);
  number(",\"split_waste_bytes\":", f.split_waste);
  number(",\"free_bytes\":", f.free);
  number(",\"largest_free_bytes\":", f.largest_free);
  number(",\"largest_allocation_bytes\":", f.largest_allocation);
  number(",\"allocations\":", static_cast<std::int64_t>(f.allocations));
  put(",\"regions\":[");
  std::size_t i = 0;
  for (std::uint32_t r = 0; r < s.regions.size(); ++r) {
    address(r == 0 ? "{\"address\":" : ",{\"address\":", s.regions[r].data);
    number(",\"bytes\":", s.regions[r].size);
    put(",\"chunks\":[");
    for (bool first = true; i < s.chunks.size() && s.chunks[i].region == r; ++i, first = false) {
      const BfcChunkRecord& c = s.chunks[i];
      number(first ? "{\"offset\":" : ",{\"offset\":", c.block.data - s.regions[r].data);
      number(",\"bytes\":", c.block.size);
      put(c.used() ? ",\"used\":true" : ",\"used\":false");
      if (c.used()) {
        number(",\"requested_bytes\":", c.requested);
        number(",\"id\":", static_cast<std::int64_t>(c.id));
        text(",\"tag\":", c.tag.name);
        number(",\"tag_number\":", static_cast<std::int64_t>(c.tag.number));
      }
      if (c.freed_at != 0) number(",\"freed_at\":", static_cast<std::int64_t>(c.freed_at));
      if (s.two_ended) put(c.owner == BfcEnd::lower ? ",\"end\":\"lower\"" : c.owner == BfcEnd::upper ? ",\"end\":\"upper\"" : ",\"end\":\"gap\"");
      put("}");
    }
    put("]}");
  }
  put("]}\n");
  return failure;
}

}  // namespace holdfast
