// plan: from a program and an order to live ranges, offsets, peaks and statistics, before anything runs.
// In the flow: after graph and passes, before report and execute; pure functions of their arguments.
// A stage takes the stage before it by const reference or span and returns its result.
// Every planner is checked by validate.hpp, which shares no code with any of them.
// It never touches memory that it plans.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "holdfast/core/units.hpp"

namespace holdfast {

/// A time during which one group needs `size` bytes: half-open, `[begin, end)`.
///
/// Units: `begin` and `end` are schedule positions. A range with `begin == end` or `size == 0` needs nothing.
struct LiveRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Bytes size = 0;
  Bytes alignment = 1;      ///< divides the offset; any positive number
  std::uint32_t group = 0;  ///< ranges of one group share an offset; a gap in between is free for others
};

/// An offset that somebody has already decided.
struct FixedOffset {
  std::uint32_t group = 0;
  Bytes offset = 0;
};

/// What an offset planner solves: an offset per group so that no two ranges alive together overlap.
///
/// Ranges of one group must not overlap in time. Threads: a view, as its arrays.
struct OffsetProblem {
  std::span<const LiveRange> ranges;
  std::uint32_t group_count = 0;
  std::span<const FixedOffset> fixed = {};
  Bytes capacity = max_bytes;
};

}  // namespace holdfast
