// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "holdfast/backend/host/memory_limit.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// Something that tells how much more memory there is; asked before each growth.
template <class M>
concept memory_meter = requires(M& meter) {
  { meter.room() } noexcept -> std::same_as<MemoryRoom>;
};
/// What the system has available and the control group leaves.
struct SystemMeter {
  [[nodiscard]] MemoryRoom room() noexcept {
    SystemFiles files;
    return memory_room(files);
  }
};
/// Knows no limit: the do-nothing model.
struct NoMeter {
  [[nodiscard]] constexpr MemoryRoom room() noexcept { return {}; }
};
static_assert(memory_meter<SystemMeter> && memory_meter<NoMeter>);

/// How a pinned pool behaves.
struct PinnedOptions {
  Bytes limit = max_bytes;               ///< locked bytes never pass it
  Bytes reserve = Bytes{256} << 20;      ///< of what the system or the control group has left, this much is not locked
  Bytes cache_limit = Bytes{256} << 20;  ///< locked bytes of freed blocks that are kept
};

/// What a pinned pool has and had: what users asked for, and what the system locks for it.
struct PinnedStatistics {
  Bytes requested = 0, peak_requested = 0;
  Bytes locked = 0, peak_locked = 0;
  Bytes cached = 0;  ///< of `locked`, in freed blocks
};

}  // namespace holdfast
