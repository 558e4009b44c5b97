// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "holdfast/concepts/sync.hpp"

namespace holdfast {

/// How a raw buffer owns its memory: alone, or through a counted control block.
template <class O>
concept ownership = requires {
  { O::shared } -> std::convertible_to<bool>;
} && (!O::shared || sync<typename O::sync_type>);

/// Shared with slices and copies through a control block that counts with `Sync`.
template <sync Sync>
struct BasicShared {
  static constexpr bool shared = true;
  using sync_type = Sync;
};

/// Shared between any threads: the default.
using Shared = BasicShared<StdSync>;

/// One owner: nothing beside the block.
struct Unique {
  static constexpr bool shared = false;
};

static_assert(ownership<Shared> && ownership<BasicShared<NoSync>> && ownership<Unique>);

}  // namespace holdfast
