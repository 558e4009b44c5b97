// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "holdfast/concepts/sync.hpp"

namespace holdfast::detail {

/// The free slots of a pool: a stack of indices in one word, with how many slots are out and whether the pool still stands.
///
/// The word has a 32-bit tag that each change counts up, so that a stale compare-and-swap fails. `Next` gives the link of a slot.
/// Threads: any with StdSync; NoSync for use under a lock. Cost: one compare-and-swap a call when nobody else is there.
template <sync Sync>
class SlotList {
 public:
  static constexpr std::uint32_t none = 0xFFFF, most = 0x7FFF;  ///< no slot; the largest number of slots

  /// Takes a slot, or `none`; `out` becomes how many are out.
  template <class Next>
  [[nodiscard]] std::uint32_t pop(Next next, std::uint32_t& out) noexcept {
    std::uint64_t h = head_.load(std::memory_order_acquire);
    for (;;) {
      const std::uint32_t i = first_of(h);
      if (i == none) return none;
      out = out_of(h) + 1;
      const std::uint64_t want = make(h, closed_of(h), out, next(i).load(std::memory_order_relaxed));
      if (head_.compare_exchange_weak(h, want, std::memory_order_acquire, std::memory_order_acquire)) return i;
    }
  }
  /// Puts a slot back; true when the pool is gone and this was the last.
  template <class Next>
  [[nodiscard]] bool push(std::uint32_t i, Next next) noexcept {
    std::uint64_t h = head_.load(std::memory_order_relaxed);
    for (;;) {
      next(i).store(first_of(h), std::memory_order_relaxed);
      const std::uint64_t want = make(h, closed_of(h), out_of(h) - 1, i);
      if (head_.compare_exchange_weak(h, want, std::memory_order_acq_rel, std::memory_order_relaxed)) return closed_of(want) && out_of(want) == 0;
    }
  }
  /// Adds new slots, `first` to `last`, linked already but for the last.
  template <class Next>
  void add(std::uint32_t first, std::uint32_t last, Next next) noexcept {
    std::uint64_t h = head_.load(std::memory_order_relaxed);
    do next(last).store(first_of(h), std::memory_order_relaxed);
    while (!head_.compare_exchange_weak(h, make(h, closed_of(h), out_of(h), first), std::memory_order_release, std::memory_order_relaxed));
  }
  /// The pool goes; true when no slot is out.
  [[nodiscard]] bool close() noexcept {
    std::uint64_t h = head_.load(std::memory_order_relaxed);
    while (!head_.compare_exchange_weak(h, make(h, true, out_of(h), first_of(h)), std::memory_order_acq_rel, std::memory_order_relaxed)) {
    }
    return out_of(h) == 0;
  }
  /// How many slots are out.
  [[nodiscard]] std::uint32_t out() const noexcept { return out_of(head_.load(std::memory_order_relaxed)); }

 private:
  // 32 bits tag, 1 bit closed, 15 bits out, 16 bits first.
  static constexpr std::uint32_t first_of(std::uint64_t h) noexcept { return static_cast<std::uint32_t>(h & 0xFFFF); }
  static constexpr std::uint32_t out_of(std::uint64_t h) noexcept { return static_cast<std::uint32_t>(h >> 16 & 0x7FFF); }
  static constexpr bool closed_of(std::uint64_t h) noexcept { return (h >> 31 & 1) != 0; }
  static constexpr std::uint64_t make(std::uint64_t before, bool closed, std::uint32_t out, std::uint32_t first) noexcept {
    return ((before >> 32) + 1) << 32 | std::uint64_t{closed} << 31 | std::uint64_t{out} << 16 | first;
  }

  typename Sync::template atomic<std::uint64_t> head_{std::uint64_t{none}};
};

}  // namespace holdfast::detail
