// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace holdfast {

/// Never ends a search early: the default of searches that a caller may stop. Threads: a value.
struct NeverStop {
  [[nodiscard]] constexpr bool operator()() const noexcept { return false; }
};

}  // namespace holdfast
