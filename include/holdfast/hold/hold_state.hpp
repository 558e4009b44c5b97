// hold: who may use a buffer together with whom: usage, external and donation holds, deletion.
// In the flow: above core and concepts; buffers are guarded by one of the policies here.
// Every policy follows the one table in hold_rules.hpp; they differ in where the counters live and how a call waits.
// A hold knows nothing of memory or events.
// Nothing here allocates, and a call that finds no conflict never blocks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "holdfast/concepts/hold_policy.hpp"

namespace holdfast {

/// All that a hold policy knows, in one word: two counters and the bits of the protocol.
///
/// Units: usage and external are counts, at most `max_usage` and `max_external`. Threads: a value.
class HoldState {
 public:
  static constexpr std::uint64_t usage_one = 1, max_usage = (1u << 23) - 1;
  static constexpr std::uint64_t external_one = std::uint64_t{1} << 24, max_external = (1u << 23) - 1;
  enum Flag : std::uint64_t {
    donation = std::uint64_t{1} << 48,  ///< a donation is pending or granted
    deleted = std::uint64_t{1} << 49,   ///< deletion has begun: newcomers fail
    donated = std::uint64_t{1} << 50,   ///< a donation was confirmed
    locked = std::uint64_t{1} << 51,    ///< somebody changes the usage events
    waiting = std::uint64_t{1} << 52,   ///< somebody sleeps until the state changes
    settled = std::uint64_t{1} << 53,   ///< the contents' events are over: only external holds keep them
    emptied = std::uint64_t{1} << 54,   ///< the contents are gone
    orphaned = std::uint64_t{1} << 55,  ///< the handle is gone
  };

  constexpr HoldState() noexcept = default;
  constexpr explicit HoldState(std::uint64_t bits) noexcept : bits_(bits) {}
  [[nodiscard]] constexpr std::uint64_t bits() const noexcept { return bits_; }

  [[nodiscard]] constexpr std::uint64_t usage() const noexcept { return bits_ & (external_one - 1); }
  [[nodiscard]] constexpr std::uint64_t external() const noexcept { return (bits_ / external_one) & (external_one - 1); }
  [[nodiscard]] constexpr bool has(std::uint64_t flags) const noexcept { return (bits_ & flags) != 0; }
  [[nodiscard]] constexpr HoldState with(std::uint64_t flags) const noexcept { return HoldState(bits_ | flags); }
  [[nodiscard]] constexpr HoldState without(std::uint64_t flags) const noexcept { return HoldState(bits_ & ~flags); }
  [[nodiscard]] constexpr HoldState plus(std::uint64_t one) const noexcept { return HoldState(bits_ + one); }
  [[nodiscard]] constexpr HoldState minus(std::uint64_t one) const noexcept { return HoldState(bits_ - one); }

  [[nodiscard]] constexpr HoldCounts counts() const noexcept {
    return {static_cast<std::uint32_t>(usage()), static_cast<std::uint32_t>(external()), has(donation) ? 1u : 0u,
            has(deleted), has(donated)};
  }
  friend constexpr bool operator==(HoldState, HoldState) noexcept = default;

 private:
  std::uint64_t bits_ = 0;
};

}  // namespace holdfast
