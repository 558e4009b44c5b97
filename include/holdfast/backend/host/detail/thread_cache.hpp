// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "holdfast/backend/host/detail/slab.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast::detail {

/// A few free blocks of one size, last in first out; the blocks themselves are not touched.
template <std::uint32_t Capacity>
struct BlockStack {
  std::uint64_t count;
  std::byte* slot[Capacity];

  [[nodiscard]] bool empty() const noexcept { return count == 0; }
  [[nodiscard]] bool full() const noexcept { return count == Capacity; }
  void push(std::byte* p) noexcept { slot[count++] = p; }
  std::byte* pop() noexcept { return slot[--count]; }
  /// Passes the `n` oldest on.
  template <class Sink>
  void drain(std::uint64_t n, Sink&& sink) noexcept {
    for (std::uint64_t i = 0; i < n; ++i) sink(slot[i]);
    for (std::uint64_t i = n; i < count; ++i) slot[i - n] = slot[i];
    count -= n;
  }
};

/// Stacks of runs of pages, one for each length, found by hash among the four of a set.
template <std::uint32_t Capacity>
struct PageStacks {
  static constexpr std::uint32_t sets = 64, ways = 4, none = sets * ways;
  std::uint32_t key[none];  // pages of a run; 0: never used
  BlockStack<Capacity> stack[none];  // each in cache lines of its own
  std::uint64_t used[none / 64];     // a bit for each key that is not 0

  [[nodiscard]] static constexpr std::uint32_t set_of(std::uint32_t pages) noexcept { return (pages * 0x9E37'79B1u >> 26) * ways; }
  [[nodiscard]] std::uint32_t find(std::uint32_t pages) const noexcept {
    const std::uint32_t set = set_of(pages);
    for (std::uint32_t i = set; i < set + ways; ++i)
      if (key[i] == pages) return i;
    return none;
  }
  /// Calls `f(stack, pages)` for every stack that was ever used.
  template <class F>
  void each(F&& f) noexcept {
    for (std::uint32_t word = 0; word < none / 64; ++word)
      for (std::uint64_t bits = used[word]; bits != 0; bits &= bits - 1) {
        const std::uint32_t i = word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
        f(stack[i], key[i]);
      }
  }
  /// The stack for a length: its own, else an empty one, else one to be emptied by the caller; `key` says which.
  [[nodiscard]] std::uint32_t claim(std::uint32_t pages) noexcept {
    const std::uint32_t set = set_of(pages);
    std::uint32_t found = find(pages);
    if (found != none) return found;
    found = set;
    for (std::uint32_t i = set; i < set + ways; ++i)
      if (stack[i].count < stack[found].count) found = i;
    if (stack[found].empty()) {
      key[found] = pages;
      used[found / 64] |= std::uint64_t{1} << (found % 64);
    }
    return found;
  }
};

/// What one thread keeps of one pool's free blocks: only it pushes and pops.
struct ThreadCache {
  BlockStack<63> near[near_stacks];
  PageStacks<31> far;
  std::uint32_t far_pages;   // in `far`
  std::uint32_t far_limit;   // for `far_pages`
  std::uint32_t refused;     // runs that found no room since `far` was last emptied for that
  std::atomic<Bytes> live;     // bytes this thread took less those it gave back; others read it

  void* core;                               // the pool
  void (*retire)(ThreadCache*) noexcept;    // gives everything back to it, this cache too
  bool (*abandoned)(const void*) noexcept;  // whether the pool is gone
  ThreadCache* next_of_thread;
  ThreadCache *next_of_pool, *prev_of_pool;

  // No other thread writes it, so that this needs no locked instruction.
  void add_live(Bytes n) noexcept { live.store(live.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
};

/// The caches of this thread, the last one used first at hand.
struct ThreadCaches {
  const void* last_core;
  ThreadCache* last;
  ThreadCache* first;
  bool ended;  // the thread is about to end: no new cache
};
inline thread_local constinit ThreadCaches thread_caches{nullptr, nullptr, nullptr, false};

/// Retires the thread's caches of pools that are gone, or of `core`, or all of them.
inline void retire_caches(const void* core, bool all) noexcept {
  thread_caches.last_core = nullptr;
  for (ThreadCache** at = &thread_caches.first; *at != nullptr;) {
    ThreadCache* cache = *at;
    if (!all && cache->core != core && !cache->abandoned(cache->core)) {
      at = &cache->next_of_thread;
      continue;
    }
    *at = cache->next_of_thread;
    cache->retire(cache);
  }
}

/// Gives the caches of a thread back when it ends.
struct ThreadCachesEnd {
  bool watching = false;
  ~ThreadCachesEnd() {
    thread_caches.ended = true;
    retire_caches(nullptr, true);
  }
};
// Apart from `thread_caches`, so that the fast path does not ask whether the destructor is registered.
inline thread_local ThreadCachesEnd thread_caches_end;

}  // namespace holdfast::detail
