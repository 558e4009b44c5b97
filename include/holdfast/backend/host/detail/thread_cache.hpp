// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "holdfast/backend/host/detail/slab.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast::detail {

/// A few free blocks of one size, last in first out; the blocks themselves are not touched.
template <std::uint32_t Capacity>
struct BlockStack {
  std::uint32_t key;  // for whole pages: how many
  std::uint32_t count;
  std::byte* slot[Capacity];

  static constexpr std::uint32_t capacity = Capacity;
  [[nodiscard]] bool full() const noexcept { return count == Capacity; }
  void push(std::byte* p) noexcept { slot[count++] = p; }
  std::byte* pop() noexcept { return slot[--count]; }
};

/// Where blocks of so many pages are kept, in a table of `page_stacks`.
inline constexpr std::uint32_t page_stacks = 256;
[[nodiscard]] constexpr std::uint32_t page_stack_of(std::uint32_t pages) noexcept { return pages * 0x9E37'79B1u >> 24; }

/// What one thread keeps of one pool's free blocks: only it pushes and pops.
struct ThreadCache {
  BlockStack<63> small[small_classes];
  BlockStack<15> pages[page_stacks];
  std::uint32_t cached_pages;  // in `pages`
  std::uint32_t page_limit;    // for `cached_pages`
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
