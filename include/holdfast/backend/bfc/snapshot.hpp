// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "holdfast/backend/bfc/detail/chunk.hpp"
#include "holdfast/backend/bfc/options.hpp"
#include "holdfast/trace/fragmentation.hpp"

namespace holdfast {

/// A piece of a region as a snapshot shows it.
struct BfcChunkRecord {
  Block block;               ///< all of it, with its waste
  Bytes requested = 0;       ///< 0: free
  std::uint64_t id = 0;      ///< the number of its allocation, from 1; 0: free
  std::uint64_t freed_at = 0;  ///< the stamp of its release, or the number among its stream's; 0: none
  std::uint32_t region = 0;
  BfcEnd owner = BfcEnd::lower;
  Alignment alignment;  ///< that was asked for, at least 256
  Tag tag;

  [[nodiscard]] bool used() const noexcept { return id != 0; }
};

/// A copy of what a pool holds at one time: what reports, explanations and pictures are made of.
struct BfcSnapshot {
  BfcOptions options;
  BfcStatistics statistics;
  bool two_ended = false;
  Bytes room = 0;     ///< may still be asked of the upstream
  Bytes target = 0;   ///< the size of the next region
  Bytes refused = 0;  ///< the least size that the upstream has refused since it last gave a region; 0: none
  std::vector<Block> regions;          ///< by address
  std::vector<BfcChunkRecord> chunks;  ///< by address; they tile the regions
};

namespace detail {

struct BfcBin {
  std::int64_t chunks = 0, used = 0;
  Bytes size = 0, in_use = 0, requested = 0;
};
[[nodiscard]] inline std::array<BfcBin, 21> bfc_bins(const BfcSnapshot& s) noexcept {
  std::array<BfcBin, 21> bins;
  for (const BfcChunkRecord& c : s.chunks) {
    BfcBin& b = bins[free_size_bin(c.block.size)];
    ++b.chunks;
    b.size += c.block.size;
    if (!c.used()) continue;
    ++b.used;
    b.in_use += c.block.size;
    b.requested += c.requested;
  }
  return bins;
}

template <class Core>
[[nodiscard]] BfcSnapshot bfc_snapshot(const Core& core) {
  BfcSnapshot s{core.options(), core.statistics(), Core::two_ended, core.room(), core.target(), core.refused(), {}, {}};
  s.chunks.reserve(core.chunk_count());
  s.regions.reserve(core.region_count());
  for (std::uint32_t r = 0; r < core.region_count(); ++r) s.regions.push_back({core.region(r).data, core.region(r).size});
  core.visit([&](std::uint32_t region, const BfcChunk& c) {
    BfcChunkRecord record{{c.data, c.size}, 0, c.id, Core::stamps_type::number(c.freed_at), region, c.owner, {}, {}};
    if (c.used()) record.requested = c.requested, record.alignment = Alignment(Bytes{1} << c.alignment), record.tag = c.tag;
    s.chunks.push_back(record);
  });
  return s;
}

}  // namespace detail
}  // namespace holdfast
