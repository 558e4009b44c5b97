// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "holdfast/backend/host/detail/page_pool.hpp"
#include "holdfast/backend/host/detail/small_blocks.hpp"
#include "holdfast/backend/host/detail/thread_cache.hpp"
#include "holdfast/backend/host/page_source.hpp"
#include "holdfast/concepts/lock.hpp"
#include "holdfast/core/block.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast::detail {

/// What every handle of a pool shares: its regions, slabs and the blocks between its threads, under one lock.
///
/// Lives until its owner and every thread's cache have let go of it. Threads: any.
template <page_source Source>
class HeapCore {
 public:
  static HeapCore* make(Source source, PoolLimits limits) noexcept {
    std::byte* p = source.reserve(rounded(sizeof(HeapCore)));
    return p == nullptr ? nullptr : ::new (static_cast<void*>(p)) HeapCore(source, limits);
  }

  /// The owner lets go: all address space is released; threads' caches only know it when they end or look for another.
  void close() noexcept {
    retire_caches(this, false);
    {
      LockGuard guard(lock_);
      closed_.store(true, std::memory_order_release);
      pages_.close();
    }
    drop();
  }

  /// This thread's cache; null when there can be none. Cost: two comparisons when the thread used this pool last.
  [[nodiscard]] ThreadCache* cache() noexcept {
    return thread_caches.last_core == this ? thread_caches.last : find_cache();
  }
  /// What the fast path could not serve.
  [[nodiscard, gnu::noinline]] Result<Block> allocate(ThreadCache* own, Bytes size, Bytes alignment) noexcept {
    if (size == 0) return Block{};
    if (size < 0) return failure(Errc::invalid_argument, "a negative number of bytes was asked for", size);
    std::byte* p = nullptr;
    Refusal why;
    const auto bytes = static_cast<std::uint64_t>(size);
    {
      LockGuard guard(lock_);
      if (bytes <= small_limit && alignment <= slab_offset)
        p = small_.take(own, near_of(bytes), why);
      else if (bytes < page_limit * page_bytes)
        p = pages_.take(own, pages_of(bytes), static_cast<std::uint64_t>(alignment), why);
      if (p != nullptr) add_live(own, size);
    }
    if (p != nullptr) return Block{p, size};
    Error e = failure(why.code, why.what, size);
    e.available = why.available;
    return e;
  }
  [[gnu::noinline]] void deallocate(ThreadCache* own, Block block) noexcept {
    if (block.size <= 0) return;
    LockGuard guard(lock_);
    add_live(own, -block.size);
    const auto bytes = static_cast<std::uint64_t>(block.size);
    if (bytes <= small_limit && !on_page(block.data))
      small_.give(own, near_of(bytes), block.data);
    else
      pages_.give(own, pages_of(bytes), block.data);
  }

  /// Gives free pages back until `keep` bytes are reserved or none is free; the bytes given.
  [[nodiscard]] Bytes trim(Bytes keep) noexcept {
    ThreadCache* own = cache();
    LockGuard guard(lock_);
    pages_.flush(own);
    small_.flush(own);
    const std::uint64_t pages = keep < 0 ? 0 : static_cast<std::uint64_t>(keep) / page_bytes;
    return pages >= pages_.reserved() ? 0 : static_cast<Bytes>(pages_.purge(pages_.reserved() - pages, false) * page_bytes);
  }

  struct Figures {
    std::uint64_t reserved, peak_reserved, free, largest_free, address_space;
    Bytes live;
  };
  [[nodiscard]] Figures figures() noexcept {
    LockGuard guard(lock_);
    Figures f{pages_.reserved(), pages_.peak_reserved(), 0, 0, 0, retired_live_};
    for (PageRegion* r = pages_.regions(); r != nullptr; r = r->next) {
      f.address_space += r->size();
      f.free += r->warm_free();
      if (r->largest_warm() > f.largest_free) f.largest_free = r->largest_warm();
    }
    for (ThreadCache* c = caches_; c != nullptr; c = c->next_of_pool) f.live += c->live.load(std::memory_order_relaxed);
    return f;
  }
  template <class Visit>
  void visit(Visit&& visit_run) noexcept {
    LockGuard guard(lock_);
    for (PageRegion* r = pages_.regions(); r != nullptr; r = r->next) r->visit(visit_run);
  }

 private:
  static constexpr std::uint64_t page_limit = 1u << 30;

  HeapCore(Source source, PoolLimits limits) noexcept : pages_(source, limits), small_(pages_) {}

  static constexpr Bytes rounded(std::size_t n) noexcept { return static_cast<Bytes>((n + page_bytes - 1) & ~(page_bytes - 1)); }
  [[nodiscard]] static Error failure(Errc code, const char* what, Bytes size) noexcept {
    Error e = make_error(code, what);
    e.stage = Stage::allocation;
    e.requested = size;
    return e;
  }
  void add_live(ThreadCache* own, Bytes n) noexcept {
    if (own != nullptr)
      own->add_live(n);
    else
      retired_live_ += n;
  }

  HOLDFAST_COLD ThreadCache* find_cache() noexcept {
    ThreadCache* c = thread_caches.first;
    while (c != nullptr && c->core != this) c = c->next_of_thread;
    if (c == nullptr) {
      if (thread_caches.ended) return nullptr;
      retire_caches(nullptr, false);
      if ((c = make_cache()) == nullptr) return nullptr;
      thread_caches_end.watching = true;
    }
    thread_caches.last = c;
    thread_caches.last_core = this;
    return c;
  }
  ThreadCache* make_cache() noexcept {
    LockGuard guard(lock_);
    std::byte* p = pages_.source().reserve(rounded(sizeof(ThreadCache)));
    if (p == nullptr) return nullptr;
    auto* c = ::new (static_cast<void*>(p)) ThreadCache;
    c->far_limit = pages_.limits().cache_pages;
    c->core = this;
    c->retire = [](ThreadCache* cache) noexcept { static_cast<HeapCore*>(cache->core)->retire(cache); };
    c->abandoned = [](const void* core) noexcept {
      return static_cast<const HeapCore*>(core)->closed_.load(std::memory_order_acquire);
    };
    c->next_of_thread = thread_caches.first;
    thread_caches.first = c;
    c->prev_of_pool = nullptr;
    c->next_of_pool = caches_;
    if (caches_ != nullptr) caches_->prev_of_pool = c;
    caches_ = c;
    references_.fetch_add(1, std::memory_order_relaxed);
    return c;
  }
  void retire(ThreadCache* c) noexcept {
    {
      LockGuard guard(lock_);
      if (!closed_.load(std::memory_order_relaxed)) {
        for (std::uint32_t i = 0; i < small_classes; ++i)
          while (!c->near[i].empty()) small_.give(nullptr, i, c->near[i].pop());
        for (std::uint32_t n = 1; n <= near_pages; ++n)
          while (!c->near[small_classes + n - 1].empty()) pages_.keep(c->near[small_classes + n - 1].pop(), n);
        for (std::uint32_t i = 0; i < c->far.none; ++i)
          while (!c->far.stack[i].empty()) pages_.keep(c->far.stack[i].pop(), c->far.key[i]);
      }
      retired_live_ += c->live.load(std::memory_order_relaxed);
      (c->prev_of_pool != nullptr ? c->prev_of_pool->next_of_pool : caches_) = c->next_of_pool;
      if (c->next_of_pool != nullptr) c->next_of_pool->prev_of_pool = c->prev_of_pool;
      pages_.source().release(reinterpret_cast<std::byte*>(c), rounded(sizeof(ThreadCache)));
    }
    drop();
  }
  void drop() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    Source source = pages_.source();
    this->~HeapCore();
    source.release(reinterpret_cast<std::byte*>(this), rounded(sizeof(HeapCore)));
  }

  WordLock lock_;
  std::atomic<bool> closed_{false};
  std::atomic<std::uint32_t> references_{1};
  ThreadCache* caches_ = nullptr;
  Bytes retired_live_ = 0;
  PagePool<Source> pages_;
  SmallBlocks<Source> small_;
};

}  // namespace holdfast::detail
