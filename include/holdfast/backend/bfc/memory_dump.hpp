// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/backend/bfc/snapshot.hpp"
#include "holdfast/core/wire.hpp"

namespace holdfast {

/// Writes what a pool holds as the proto MemoryDump, which TensorFlow's tools for memory maps read.
///
/// `action` and `step` are the caller's: how many requests there had been, and in which step it was. Cost: linear in the chunks.
/// Source: backends.md 6.2 and 6.9; the numbers of the fields are bfc_memory_map.proto's.
[[nodiscard]] inline std::vector<char> serialize_bfc_memory_dump(const BfcSnapshot& s, std::uint64_t action = 0, std::uint64_t step = 0) {
  WireWriter dump, part;
  dump.text(1, s.options.name);
  const auto bins = detail::bfc_bins(s);
  for (std::size_t i = 0; i < bins.size(); ++i) {
    part.clear();
    part.number(1, static_cast<std::int64_t>(i));
    part.number(2, bins[i].in_use);
    part.number(3, bins[i].size);
    part.number(4, bins[i].used);
    part.number(5, bins[i].chunks);
    dump.message(2, part);
  }
  for (const BfcChunkRecord& c : s.chunks) {
    part.clear();
    part.number(1, static_cast<std::int64_t>(detail::bfc_address(c.block.data)));
    part.number(2, c.block.size);
    part.number(3, c.requested);
    part.number(4, c.used() ? -1 : static_cast<std::int64_t>(free_size_bin(c.block.size)));
    part.text(5, c.tag.name != nullptr ? std::string_view(c.tag.name) : std::string_view());
    part.number(6, static_cast<std::int64_t>(c.freed_at));
    part.number(7, static_cast<std::int64_t>(c.id));
    part.number(8, c.used() ? 1 : 0);
    part.number(9, c.used() ? static_cast<std::int64_t>(step) : 0);
    dump.message(3, part);
  }
  part.clear();
  part.number(1, static_cast<std::int64_t>(action));
  part.number(2, s.statistics.in_use);
  dump.message(4, part);
  part.clear();
  part.number(1, static_cast<std::int64_t>(s.statistics.allocations));
  part.number(2, s.statistics.in_use);
  part.number(3, s.statistics.peak_in_use);
  part.number(4, s.statistics.largest_allocation);
  const auto fragmentation = std::bit_cast<std::uint32_t>(static_cast<float>(s.statistics.external_fragmentation()));
  part.tag(5, WireKind::fixed32);
  for (int i = 0; i < 4; ++i) {
    const char byte = static_cast<char>(fragmentation >> (8 * i) & 0xFF);
    part.raw({&byte, 1});
  }
  dump.message(5, part);
  const std::string_view bytes = dump.bytes();
  return {bytes.begin(), bytes.end()};
}

}  // namespace holdfast
