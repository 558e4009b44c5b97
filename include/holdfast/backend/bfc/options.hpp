// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "holdfast/core/units.hpp"
#include "holdfast/trace/fragmentation.hpp"

namespace holdfast {

/// How a best-fit pool behaves; its policies are template arguments.
struct BfcOptions {
  const char* name = "bfc";          ///< a string literal, for reports
  Bytes limit = max_bytes;           ///< bytes of regions never pass it
  Bytes region = Bytes{2} << 20;     ///< what is asked of the upstream first
  Alignment region_alignment{256};   ///< of every region: 2 MiB where windows are registered
  bool garbage_collection = true;    ///< gives idle regions back where that makes room for a request
};

/// What a best-fit pool has and had; in bytes, but for `allocations`.
struct BfcStatistics {
  std::uint64_t allocations = 0;      ///< ever
  Bytes in_use = 0;                   ///< chunks in use, with their waste
  Bytes peak_in_use = 0;
  Bytes requested = 0;                ///< asked for by blocks now out
  Bytes peak_requested = 0;
  Bytes largest_allocation = 0;       ///< the largest chunk ever given out
  Bytes alignment_waste = 0;          ///< of `in_use`, from rounding sizes up
  Bytes split_waste = 0;              ///< of `in_use`, from chunks not cut
  Bytes reserved = 0;                 ///< held from the upstream: the pool
  Bytes peak_reserved = 0;
  Bytes limit = 0;
  Bytes free = 0;                     ///< of `reserved`, not in use
  Bytes largest_free = 0;

  /// The share of the free bytes outside the largest free chunk; 0 when nothing is free. Units: 0 to 1.
  [[nodiscard]] double external_fragmentation() const noexcept { return holdfast::external_fragmentation(largest_free, free); }
  /// The share of the bytes in use that nobody asked for; 0 when none is. Units: 0 to 1.
  [[nodiscard]] double internal_fragmentation() const noexcept { return share_of(in_use - requested, in_use); }
};

/// Whether a stream's frees are marked by events.
enum class StreamMarks : std::uint8_t {
  each_free,  ///< an event at each free: nobody waits for more than what was freed, and the stream may be destroyed after it
  on_demand,  ///< an event when another stream wants the memory: no call at a free, but waits cover the stream's later work, too
};

/// How a best-fit pool in the order of streams behaves.
struct BfcStreamOptions {
  BfcOptions pool{};
  StreamMarks marks = StreamMarks::each_free;
  bool grow_before_waiting = false;  ///< asks the upstream before a stream waits for another
};

/// What the order of streams has cost.
struct BfcStreamStatistics {
  std::uint64_t marks = 0;       ///< events recorded
  std::uint64_t waits = 0;       ///< of streams for another's frees, those that the event leaves out too
  std::uint64_t host_waits = 0;  ///< of the host
  std::uint64_t joins = 0;       ///< blocks made of memory of several marks
  Bytes stranded = 0;            ///< free for nobody before the pool's end: neither marked nor waited for, as both failed
};

}  // namespace holdfast
