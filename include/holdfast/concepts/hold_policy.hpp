// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>

#include "holdfast/concepts/ownership.hpp"
#include "holdfast/concepts/sync.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"

namespace holdfast {

/// How many holds of each kind are out, and whether the buffer is gone.
struct HoldCounts {
  std::uint32_t usage = 0;
  std::uint32_t external = 0;
  std::uint32_t donation = 0;  ///< pending or granted
  bool deleted = false;
  bool donated = false;
  friend constexpr bool operator==(const HoldCounts&, const HoldCounts&) noexcept = default;
};

/// Who may hold a buffer together with whom: the transitions of `hold/hold_rules.hpp` over a state of its own.
///
/// `acquire` takes a hold of a kind and waits at most until the deadline. `convert`, for the holder of a usage hold, runs a
/// change of the usage events that no other `convert` overlaps, and ends the hold if that gives true. `drop` ends a hold;
/// for a donation it is the abort. `release` deletes: newcomers fail, then it waits for usage holds.
/// The end: `settle` says that the contents' events are over; it, or the `drop` of the last external hold, gives true to
/// the one who must drop the contents and then call `emptied`. `orphan` says that the handle is gone; it or `emptied` gives
/// true to the one who must free what the policy lies in.
template <class H>
concept hold_policy = std::default_initializable<H> && ownership<typename H::ownership_type> &&
    requires(H& h, const H& c, HoldKind kind, Deadline deadline, bool (*change)() noexcept) {
  { H::concurrent } -> std::convertible_to<bool>;
  { h.acquire(kind, deadline) } noexcept -> std::same_as<Error>;
  { h.convert(change) } noexcept -> std::same_as<void>;
  { h.drop(kind) } noexcept -> std::same_as<bool>;
  { h.confirm() } noexcept -> std::same_as<void>;
  { h.release(deadline) } noexcept -> std::same_as<Error>;
  { h.settle() } noexcept -> std::same_as<bool>;
  { h.emptied() } noexcept -> std::same_as<bool>;
  { h.orphan() } noexcept -> std::same_as<bool>;
  { c.counts() } noexcept -> std::same_as<HoldCounts>;
};

}  // namespace holdfast
