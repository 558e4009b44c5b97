// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>

#include "holdfast/backend/layer/detail/layer_base.hpp"

namespace holdfast {

/// A cap on bytes, and what is out and was at most: the state of `Limited`; several stacks may share it.
///
/// Threads: any; the figures are exact. Cost: one atomic operation each way.
class MemoryLimit {
 public:
  explicit MemoryLimit(Bytes limit) noexcept : limit_(limit < 0 ? 0 : limit) {}

  /// Counts bytes in unless that would pass the limit, and tells whether it did.
  [[nodiscard]] bool try_take(Bytes size) noexcept {
    Bytes live = live_.load(std::memory_order_relaxed);
    do {
      const Bytes limit = limit_.load(std::memory_order_relaxed);
      if (live > limit || size > limit - live) return false;
    } while (!live_.compare_exchange_weak(live, live + size, std::memory_order_relaxed, std::memory_order_relaxed));
    return true;
  }
  /// Says that bytes counted in are really out. All that are out at a time were counted in before the last of them says so.
  void confirm() noexcept {
    const Bytes now = live();
    for (Bytes peak = peak_.load(std::memory_order_relaxed);
         peak < now && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed, std::memory_order_relaxed);) {
    }
  }
  /// Counts bytes out again.
  void give(Bytes size) noexcept { live_.fetch_sub(size, std::memory_order_relaxed); }

  [[nodiscard]] Bytes limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
  /// Sets another limit; what is out stays out, though it be more.
  void set_limit(Bytes limit) noexcept { limit_.store(limit < 0 ? 0 : limit, std::memory_order_relaxed); }
  [[nodiscard]] Bytes live() const noexcept { return live_.load(std::memory_order_relaxed); }
  /// The most that was out at a time, with what other threads were just asking for.
  [[nodiscard]] Bytes peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
  /// What may be taken now.
  [[nodiscard]] Bytes available() const noexcept { return std::max<Bytes>(limit() - live(), 0); }

 private:
  std::atomic<Bytes> limit_, live_{0}, peak_{0};
};

/// Refuses what would pass a limit that the user sets, before the source is asked.
///
/// It counts the sizes that it sees: put it below `Aligned` to count rounded ones. Errors: over_budget, with the limit.
struct Limited {
  template <memory_backend Up>
  class layer : public detail::StatefulLayer<layer<Up>, Up, MemoryLimit> {
    using Base = detail::StatefulLayer<layer<Up>, Up, MemoryLimit>;
    friend typename Base::LayerBase;

   public:
    using Base::Base;

    /// The largest request that neither the limit nor the free memory below forbids.
    [[nodiscard]] Bytes largest_free() noexcept
      requires inspectable_backend<Up>
    {
      return std::min(this->up().largest_free(), this->state().available());
    }

   private:
    template <class... Stream>
    [[nodiscard]] Result<Block> take(Bytes size, Alignment alignment, Tag tag, Stream&... stream) noexcept {
      if (size <= 0) return this->take_up(size, alignment, tag, stream...);
      if (!this->state().try_take(size)) return refused(size);
      Result<Block> block = this->take_up(size, alignment, tag, stream...);
      if (block.ok())
        this->state().confirm();
      else
        this->state().give(size);
      return block;
    }
    template <class... Stream>
    void give(Block block, Stream&... stream) noexcept {
      this->give_up(block, stream...);
      this->state().give(block.size);  // after: else another takes the room before it is there
    }
    [[nodiscard]] HOLDFAST_COLD Error refused(Bytes size) const noexcept {
      Error e = make_error(Errc::over_budget, "the memory limit would be passed");
      e.stage = Stage::allocation;
      e.requested = size;
      e.available = this->state().available();
      e.at_kind = AtKind::limit;
      e.at = static_cast<std::uint64_t>(this->state().limit());
      return e;
    }
  };
};
static_assert(memory_backend<Limited::layer<EmptyMemory>> && sizeof(Limited::layer<EmptyMemory>) == sizeof(void*));

}  // namespace holdfast
