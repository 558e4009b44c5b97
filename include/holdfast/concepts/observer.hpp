// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "holdfast/core/block.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"

namespace holdfast {

/// Something that is told what happens to memory; `on_hold` gets +1 when a hold is taken and -1 when it ends.
template <class O>
concept observer = requires(O& o, Block block, Tag tag, HoldKind kind, int change, const Error& error) {
  { o.on_allocate(block, tag) } noexcept -> std::same_as<void>;
  { o.on_deallocate(block) } noexcept -> std::same_as<void>;
  { o.on_hold(kind, change) } noexcept -> std::same_as<void>;
  { o.on_failure(error) } noexcept -> std::same_as<void>;
};

/// Looks away: the default, takes no room. Threads: any.
struct NoObserver {
  constexpr void on_allocate(Block, Tag) noexcept {}
  constexpr void on_deallocate(Block) noexcept {}
  constexpr void on_hold(HoldKind, int) noexcept {}
  constexpr void on_failure(const Error&) noexcept {}
};
static_assert(observer<NoObserver>);

}  // namespace holdfast
