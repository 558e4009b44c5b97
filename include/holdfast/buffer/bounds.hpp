// buffer: owned bytes with events and holds: raw buffers, tracked buffers, copies, launches.
// In the flow: above event and hold; it meets a backend only as the user's template argument.
// A raw buffer owns bytes and checks ranges; a tracked buffer adds when they are valid and who uses them.
// Memory goes back to its backend when the last owner and the last event are done.
// Nothing here starts a thread or waits where its doc does not say so.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "holdfast/core/config.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// Tells whether `length` bytes at `offset` lie in `size` bytes; subtracts, so that nothing can overflow.
[[nodiscard]] constexpr bool in_bounds(Bytes size, Bytes offset, Bytes length) noexcept {
  return offset >= 0 && length >= 0 && offset <= size && length <= size - offset;
}

/// The error of a range that `in_bounds` refuses: "invalid offset O and length N in a buffer of S bytes".
[[nodiscard]] HOLDFAST_COLD constexpr Error bounds_error(Bytes size, Bytes offset, Bytes length) noexcept {
  Error e = make_error(Errc::invalid_argument, "invalid offset");
  e.at_kind = AtKind::range;
  e.at = static_cast<std::uint64_t>(offset);
  e.requested = length;
  e.available = size;
  return e;
}

/// `ok`, or the error of the range.
[[nodiscard]] constexpr Error check_bounds(Bytes size, Bytes offset, Bytes length) noexcept {
  return in_bounds(size, offset, length) ? Error{} : bounds_error(size, offset, length);
}

}  // namespace holdfast
