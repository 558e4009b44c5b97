// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "holdfast/concepts/hold_policy.hpp"
#include "holdfast/core/config.hpp"

namespace holdfast {

/// No holds: one owner, nothing shared, donation is a move. Takes no room; every request but an external hold is granted.
///
/// Threads: one at a time, by the owner's own order. The buffer keeps its contents inside itself.
struct NoHold {
  static constexpr bool concurrent = false;
  using ownership_type = Unique;

  /// Errors: unsupported (external: there is nobody to share with).
  [[nodiscard]] static constexpr Error acquire(HoldKind kind, Deadline) noexcept {
    return kind == HoldKind::external ? make_error(Errc::unsupported, "hold(external): a buffer without holds has one owner")
                                      : Error{};
  }
  template <class Change>
  static constexpr void convert(Change&& change) noexcept {
    static_cast<void>(change());
  }
  static constexpr bool drop(HoldKind) noexcept { return false; }
  static constexpr void confirm() noexcept {}
  [[nodiscard]] static constexpr Error release(Deadline) noexcept { return {}; }
  static constexpr bool settle() noexcept { return true; }
  static constexpr bool emptied() noexcept { return false; }
  static constexpr bool orphan() noexcept { return false; }
  [[nodiscard]] static constexpr HoldCounts counts() noexcept { return {}; }
};
static_assert(hold_policy<NoHold>);

}  // namespace holdfast
