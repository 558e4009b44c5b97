// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "holdfast/backend/host/pinned_options.hpp"
#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/concepts/lock.hpp"
#include "holdfast/concepts/memory_backend.hpp"

namespace holdfast::detail {

/// A page of equal small blocks: its header, then the blocks, none of which begins on a page.
struct PinnedSlab {
  PinnedSlab *next, *prev;
  std::uint64_t free;  ///< a bit for each block
  std::uint32_t size, first, count;

  [[nodiscard]] bool full() const noexcept { return free == 0; }
  [[nodiscard]] std::byte* take() noexcept {
    const auto i = static_cast<std::uint32_t>(std::countr_zero(free));
    free &= free - 1;
    return reinterpret_cast<std::byte*>(this) + first + i * size;
  }
  void give(const std::byte* p) noexcept {
    free |= std::uint64_t{1} << ((static_cast<std::uint32_t>(p - reinterpret_cast<std::byte*>(this)) - first) / size);
  }
};

static_assert(sizeof(PinnedSlab) <= 64);

/// What the handles of a pinned pool share. Threads: any, one lock; the upstream is called outside of it.
template <memory_backend Upstream, memory_meter Meter>
class PinnedCore {
  static_assert(host_accessible<Upstream>, "pinned memory is the host's");

 public:
  static constexpr Bytes page = 4096, small_limit = 1024, run = 16 * page, exact_from = Bytes{64} << 20;

  PinnedCore(Upstream upstream, const PinnedOptions& options, Meter meter) noexcept
      : options_(options), upstream_(std::move(upstream)), meter_(std::move(meter)) {}
  PinnedCore(const PinnedCore&) = delete;
  PinnedCore& operator=(const PinnedCore&) = delete;
  ~PinnedCore() {
    static_cast<void>(shrink_cache(0));
    while (runs_ != nullptr) {
      Run* r = std::exchange(runs_, runs_->next);
      upstream_.deallocate({r->data, run});
      SystemMemory{}.deallocate({reinterpret_cast<std::byte*>(r), sizeof *r});
    }
  }
  /// Ends it, for its owner.
  void close() noexcept {
    this->~PinnedCore();
    SystemMemory{}.deallocate({reinterpret_cast<std::byte*>(this), sizeof *this});
  }

  [[nodiscard]] Result<Block> allocate(Bytes size, Bytes alignment) noexcept {
    if (size == 0) return Block{};
    if (size < 0) return failure(Errc::invalid_argument, "a negative number of bytes was asked for", size);
    Result<std::byte*> data = is_small(size, alignment) ? take_small(small_class(size, alignment), size) : take_pages(size, alignment);
    if (!data.ok()) return data.error();
    LockGuard guard(lock_);
    now_.requested += size;
    now_.peak_requested = std::max(now_.peak_requested, now_.requested);
    return Block{*data, size};
  }

  void deallocate(Block block) noexcept {
    if (block.data == nullptr) return;
    const bool small = block.size <= small_limit && number(block.data) % page != 0;  // a block of pages begins on a page
    Block gone[2];
    {
      LockGuard guard(lock_);
      now_.requested -= block.size;
      if (small) return give_small(block.data);
      const Bytes whole = rounded(block.size);
      if (whole >= exact_from || whole > options_.cache_limit) {
        gone[0] = {block.data, whole};
      } else {
        if (cached_ == most_cached) gone[0] = pop_oldest();
        cache_[cached_++] = {block.data, whole};
        now_.cached += whole;
      }
    }
    give_up(gone[0]);
    static_cast<void>(shrink_cache(options_.cache_limit));
  }

  Bytes trim(Bytes keep) noexcept {
    Bytes given = 0;
    for (Block b; (b = pop_over(keep, now_.locked)).data != nullptr; given += b.size) give_up(b);
    return given;
  }
  [[nodiscard]] PinnedStatistics statistics() noexcept {
    LockGuard guard(lock_);
    return now_;
  }

 private:
  struct Run {
    Run* next;
    std::byte* data;
  };
  static constexpr std::uint32_t most_cached = 256, classes = 17;

  [[nodiscard]] static std::uintptr_t number(const void* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }
  [[nodiscard]] static bool is_small(Bytes size, Bytes alignment) noexcept { return size <= small_limit && alignment <= small_limit; }

  // Small classes are the multiples of 64 up to 1 KiB; the one of a request is a multiple of its alignment.
  [[nodiscard]] static std::uint32_t small_class(Bytes size, Bytes alignment) noexcept {
    const Bytes of = std::max<Bytes>(alignment, 64);
    return static_cast<std::uint32_t>(align_up(size, of) / 64);
  }
  // The pages of a block: exact up to 8 and from 64 MiB on, else so that an eighth at most is more than was asked for.
  [[nodiscard]] static Bytes rounded(Bytes size) noexcept {
    const Bytes whole = align_up(size, page);
    if (whole >= exact_from || whole <= 8 * page) return whole;
    const Bytes step = static_cast<Bytes>(std::bit_floor(static_cast<std::uint64_t>(whole - 1))) / 8;
    return align_up(whole, std::max(step, page));
  }

  // The largest request that so many bytes serve.
  [[nodiscard]] static Bytes servable(Bytes left) noexcept {
    if (left <= 0) return 0;
    const Bytes step = left >= exact_from ? page : static_cast<Bytes>(std::bit_floor(static_cast<std::uint64_t>(left))) / 8;
    return left - left % std::max(step, page);
  }

  [[nodiscard]] Result<std::byte*> take_pages(Bytes size, Bytes alignment) noexcept {
    if (size > max_bytes - page) return failure(Errc::out_of_memory, "the size is larger than any memory", size);
    const Bytes whole = rounded(size);
    {
      LockGuard guard(lock_);
      for (std::uint32_t i = cached_; i-- > 0;)
        if (cache_[i].size == whole && number(cache_[i].data) % static_cast<std::uintptr_t>(alignment) == 0) return uncache(i).data;
    }
    return grow(whole, std::max(alignment, page), size);
  }

  [[nodiscard]] Result<std::byte*> take_small(std::uint32_t c, Bytes size) noexcept {
    for (;;) {
      {
        LockGuard guard(lock_);
        if (slabs_[c] == nullptr && free_pages_ != nullptr) add_slab(c);
        if (slabs_[c] != nullptr) return take_from(*slabs_[c], c);
      }
      Result<Block> own = SystemMemory{}.allocate(sizeof(Run), Alignment(alignof(Run)));
      if (!own.ok()) return own.error();
      Result<std::byte*> pages = grow(run, page, size);
      if (!pages.ok()) return SystemMemory{}.deallocate(*own), pages.error();
      LockGuard guard(lock_);
      runs_ = ::new (static_cast<void*>(own->data)) Run{runs_, *pages};
      for (Bytes at = run - page; at >= 0; at -= page) push_page(*pages + at);
    }
  }
  void push_page(std::byte* p) noexcept { free_pages_ = ::new (static_cast<void*>(p)) PinnedSlab{free_pages_, nullptr, 0, 0, 0, 0}; }
  void add_slab(std::uint32_t c) noexcept {
    PinnedSlab* s = std::exchange(free_pages_, free_pages_->next);
    // The first block lies as far from the page's start as its alignment asks, behind the header.
    const std::uint32_t size = c * 64, natural = size & (~size + 1), first = std::max<std::uint32_t>(64, natural);
    const std::uint32_t count = (static_cast<std::uint32_t>(page) - first) / size;
    *s = {nullptr, nullptr, (std::uint64_t{1} << count) - 1, size, first, count};
    link(*s, c);
  }
  [[nodiscard]] std::byte* take_from(PinnedSlab& s, std::uint32_t c) noexcept {
    std::byte* p = s.take();
    if (s.full()) unlink(s, c);
    return p;
  }
  void give_small(std::byte* p) noexcept {
    auto& s = *reinterpret_cast<PinnedSlab*>(p - number(p) % page);
    const std::uint32_t c = s.size / 64;
    if (s.full()) link(s, c);
    s.give(p);
    if (std::popcount(s.free) != static_cast<int>(s.count)) return;
    unlink(s, c);
    push_page(reinterpret_cast<std::byte*>(&s));
  }
  void link(PinnedSlab& s, std::uint32_t c) noexcept {
    s.prev = nullptr;
    s.next = slabs_[c];
    if (s.next != nullptr) s.next->prev = &s;
    slabs_[c] = &s;
  }
  void unlink(PinnedSlab& s, std::uint32_t c) noexcept {
    (s.prev == nullptr ? slabs_[c] : s.prev->next) = s.next;
    if (s.next != nullptr) s.next->prev = s.prev;
  }

  // More locked memory: first by what the budget has, then by what it has when nothing is cached.
  [[nodiscard]] HOLDFAST_COLD Result<std::byte*> grow(Bytes whole, Bytes alignment, Bytes size) noexcept {
    Error refused = reserve(whole, size);
    if (!refused.ok() && shrink_cache(0) > 0) refused = reserve(whole, size);
    if (!refused.ok()) return refused;
    const auto ask = [&]() noexcept -> Result<Block> {
      Result<Block> first = upstream_.allocate(whole, Alignment(alignment));
      if (first.ok() || status_kind(first.error()) != StatusKind::resource_exhausted || shrink_cache(0) == 0) return first;
      return upstream_.allocate(whole, Alignment(alignment));
    };
    const Result<Block> block = ask();
    LockGuard guard(lock_);
    if (block.ok()) {
      now_.peak_locked = std::max(now_.peak_locked, now_.locked);
      return block->data;
    }
    now_.locked -= whole;
    const bool out = block.error().code == Errc::out_of_memory;
    Error e = failure(block.error().code, out ? "Out of memory allocating pinned host memory" : block.error().what, size);
    e.native = block.error().native;
    e.available = block.error().available;
    return e;
  }
  // Counts bytes as locked if the budget has them: the limit, and what the system has now, but for the reserve.
  [[nodiscard]] Error reserve(Bytes whole, Bytes size) noexcept {
    const MemoryRoom room = meter_.room();
    const Bytes left = std::max<Bytes>(room.bytes - options_.reserve, 0);
    LockGuard guard(lock_);
    if (whole > options_.limit - now_.locked) {
      Error e = failure(Errc::over_budget, "the limit of pinned host memory is reached", size);
      e.available = servable(options_.limit - now_.locked);
      e.at_kind = AtKind::limit;
      e.at = static_cast<std::uint64_t>(options_.limit);
      return e;
    }
    if (room.source != LimitSource::none && whole > left) {
      Error e = failure(Errc::out_of_memory,
                        room.source == LimitSource::cgroup ? "the control group has no more memory to pin on the host"
                                                           : "the system has no more memory to pin on the host",
                        size);
      e.available = servable(left);
      return e;
    }
    now_.locked += whole;
    return {};
  }
  void give_up(Block b) noexcept {
    if (b.data == nullptr) return;
    upstream_.deallocate(b);
    LockGuard guard(lock_);
    now_.locked -= b.size;
  }

  Bytes shrink_cache(Bytes most) noexcept {
    Bytes given = 0;
    for (Block b; (b = pop_over(most, now_.cached)).data != nullptr; given += b.size) give_up(b);
    return given;
  }
  // The oldest cached block while `figure` is above `most`.
  [[nodiscard]] Block pop_over(Bytes most, const Bytes& figure) noexcept {
    LockGuard guard(lock_);
    return figure > most && cached_ > 0 ? pop_oldest() : Block{};
  }
  [[nodiscard]] Block pop_oldest() noexcept { return uncache(0); }
  [[nodiscard]] Block uncache(std::uint32_t i) noexcept {
    const Block b = cache_[i];
    std::move(cache_ + i + 1, cache_ + cached_, cache_ + i);
    --cached_;
    now_.cached -= b.size;
    return b;
  }

  [[nodiscard]] HOLDFAST_COLD static Error failure(Errc code, const char* what, Bytes size) noexcept {
    Error e = make_error(code, what);
    e.stage = Stage::allocation;
    e.requested = size;
    return e;
  }

  WordLock lock_;
  const PinnedOptions options_;
  PinnedStatistics now_;
  Run* runs_ = nullptr;
  PinnedSlab* free_pages_ = nullptr;
  PinnedSlab* slabs_[classes] = {};  // those with a free block, by size / 64
  std::uint32_t cached_ = 0;
  Block cache_[most_cached];  // oldest first
  HOLDFAST_NO_UNIQUE_ADDRESS Upstream upstream_;
  HOLDFAST_NO_UNIQUE_ADDRESS Meter meter_;
};

}  // namespace holdfast::detail
