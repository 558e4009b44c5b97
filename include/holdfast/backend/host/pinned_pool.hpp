// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "holdfast/backend/host/detail/core_owner.hpp"
#include "holdfast/backend/host/detail/pinned_core.hpp"
#include "holdfast/backend/host/pinned_options.hpp"
#include "holdfast/backend/layer/pinned.hpp"
#include "holdfast/backend/stack.hpp"

namespace holdfast {

template <memory_backend Upstream, memory_meter Meter>
class BasicPinnedHeap;

/// Pinned host memory of any size, with a budget of what the system locks; freed blocks are kept for the next of their size.
///
/// A handle to a `BasicPinnedHeap`, which outlives it and every block. Up to 1 KiB blocks share pages; larger ones are whole pages of a
/// size class, at most an eighth larger; from 64 MiB on they have exactly their pages and are unpinned when they come back.
/// Aligned to 64 at least. Threads: any.
template <memory_backend Upstream, memory_meter Meter = SystemMeter>
class BasicPinnedPool {
 public:
  static constexpr MemorySpace space = Upstream::space;

  /// Gives uninitialised memory. Errors: invalid_argument (negative size), over_budget (the pool's limit), out_of_memory (what the
  /// control group or the system has left beyond the reserve), as the upstream's; the text says pinned host memory.
  /// Cost: a lock; a call of the upstream, which pins, where no freed block fits.
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept { return core_->allocate(size, alignment.value()); }
  /// Takes back a block that `allocate` gave, on any thread; the empty block is none.
  void deallocate(Block block) noexcept { core_->deallocate(block); }

  /// Unpins freed blocks, the oldest first, until at most `keep` bytes are locked; returns the bytes unpinned.
  Bytes trim(Bytes keep) noexcept { return core_->trim(keep); }
  [[nodiscard]] PinnedStatistics statistics() noexcept { return core_->statistics(); }

  friend bool operator==(const BasicPinnedPool&, const BasicPinnedPool&) noexcept = default;

 private:
  using Core = detail::PinnedCore<Upstream, Meter>;
  friend class BasicPinnedHeap<Upstream, Meter>;
  friend detail::CoreOwner<BasicPinnedPool, Core>;
  explicit BasicPinnedPool(Core* core) noexcept : core_(core) {}
  Core* core_;
};

/// What pinned pool handles refer to: owns the locked memory and gives it back when it dies. Threads: made, moved and destroyed by one.
template <memory_backend Upstream, memory_meter Meter = SystemMeter>
class BasicPinnedHeap : public detail::CoreOwner<BasicPinnedPool<Upstream, Meter>, detail::PinnedCore<Upstream, Meter>> {
 public:
  using Pool = BasicPinnedPool<Upstream, Meter>;

  /// Makes a pool; nothing is pinned before it is asked for. Errors: invalid_argument (an option is negative), out_of_memory.
  [[nodiscard]] static Result<BasicPinnedHeap> make(PinnedOptions options = {}, Upstream upstream = {}, Meter meter = {}) noexcept {
    if (options.limit < 0 || options.reserve < 0 || options.cache_limit < 0)
      return make_error(Errc::invalid_argument, "a pinned pool's limit, reserve and cache are not negative");
    Result<Block> own = SystemMemory{}.allocate(sizeof(typename Pool::Core), Alignment(alignof(typename Pool::Core)));
    if (!own.ok()) return own.error();
    return BasicPinnedHeap(::new (static_cast<void*>(own->data)) typename Pool::Core(std::move(upstream), options, std::move(meter)));
  }

 private:
  using detail::CoreOwner<Pool, typename Pool::Core>::CoreOwner;
};

/// The pinned pool over the system's memory and `mlock`.
using PinnedPool = BasicPinnedPool<Stack<SystemMemory, Pinned<MemoryLock>>>;
/// What owns a `PinnedPool`'s memory.
using PinnedHeap = BasicPinnedHeap<Stack<SystemMemory, Pinned<MemoryLock>>>;
static_assert(memory_backend<PinnedPool> && sizeof(PinnedPool) == sizeof(void*));

}  // namespace holdfast
