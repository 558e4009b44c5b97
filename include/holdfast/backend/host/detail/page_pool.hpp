// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "holdfast/backend/host/detail/page_region.hpp"
#include "holdfast/backend/host/detail/thread_cache.hpp"
#include "holdfast/backend/host/page_source.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast::detail {

struct PoolLimits {
  std::uint64_t limit_pages, region_bytes;
  std::uint32_t cache_pages;
  std::uint64_t idle;  // for 65536 pages in use at the peak, how many more may be reserved
  bool huge_pages, ask_source;
};

/// Why there is no run of pages.
struct Refusal {
  Errc code = Errc::out_of_memory;
  const char* what = "Out of memory allocating";
  Bytes available = -1;
};

/// Runs of pages: the regions, freed runs kept for their size, and how much may be reserved.
///
/// What is reserved is held to the peak in use and an idle share more: where no warm run fits and that is reached, everything kept is
/// joined, and if need be what lies idle elsewhere is given back. Threads: one at a time, except `region_of`.
template <page_source Source>
class PagePool {
 public:
  PagePool(Source source, PoolLimits limits) noexcept : source_(source), limits_(limits) {}

  [[nodiscard]] PageRegion* regions() const noexcept { return first_.load(std::memory_order_acquire); }
  [[nodiscard]] PageRegion* region_of(const std::byte* p) const noexcept {
    PageRegion* r = regions();
    while (r != nullptr && !r->holds(p)) r = r->next;
    return r;
  }
  [[nodiscard]] Source& source() noexcept { return source_; }
  [[nodiscard]] const PoolLimits& limits() const noexcept { return limits_; }
  [[nodiscard]] std::uint64_t reserved() const noexcept { return reserved_; }
  [[nodiscard]] std::uint64_t peak_reserved() const noexcept { return peak_reserved_; }

  /// Gives a run of `n` pages; null, and why, when there is none.
  [[nodiscard]] std::byte* take(ThreadCache* own, std::uint32_t n, std::uint64_t alignment, Refusal& why) noexcept {
    if (alignment <= page_bytes)
      if (const std::uint32_t i = kept_.find(n); i != kept_.none && !kept_.stack[i].empty()) {
        refill(own, kept_.stack[i], n);
        kept_pages_ -= n;
        return kept_.stack[i].pop();
      }
    PageFit fit;
    PageRegion* r = find_warm(n, alignment, fit);
    if (r == nullptr && reserved_ < mark()) r = find_cold(n, alignment, fit);
    if (r == nullptr || fit.fresh != 0) {
      const std::uint64_t used = allocated_ + n - kept_pages_ - kept_by(own), peak_before = peak_;
      if (used > peak_) peak_ = used;
      const auto refuse = [&]() -> std::byte* {
        peak_ = peak_before;  // what was never given does not raise the mark
        return nullptr;
      };
      // Least first: a longer run that is kept for its size, then all long ones, then short ones too.
      const auto too_much = [&] { return r == nullptr || reserved_ + fit.fresh > mark(); };
      if (too_much()) {
        if (join_longer(own, n)) r = find_warm(n, alignment, fit);
        if (too_much()) {
          flush(own, near_pages);
          r = find(n, alignment, fit);
        }
        if (too_much() && flush(own)) r = find(n, alignment, fit);
        if (r == nullptr && (add_region(n, alignment) == nullptr || (r = find(n, alignment, fit)) == nullptr)) return refuse();
        if (reserved_ + fit.fresh > mark()) {
          purge(reserved_ + fit.fresh - mark(), true, r, fit.span, fit.first + n);
          careful_ = careful_frees;
        }
      }
      if (fit.fresh != 0 && !may_grow(fit.fresh, why)) {
        flush(own);
        purge(reserved_, true);
        r = find(n, alignment, fit);
        if (!may_grow(fit.fresh, why)) return refuse();
      }
      reserved_ += fit.fresh;
      if (reserved_ > peak_reserved_) peak_reserved_ = reserved_;
    }
    allocated_ += n;
    return r->take(fit, n);
  }
  /// Takes a run back, into the thread's cache where it has room.
  void give(ThreadCache* own, std::uint32_t n, std::byte* p) noexcept {
    if (careful_ != 0) --careful_;
    if (own == nullptr) return keep(p, n);
    if (n <= near_pages) {
      auto& stack = own->near[small_classes + n - 1];
      if (stack.full()) stack.drain(near_batch, [&](std::byte* q) { keep(q, n); });
      return stack.push(p);
    }
    own->far_limit = n > run_limit() ? 0 : limits_.cache_pages;
    if (own->far_pages + std::uint64_t{n} > own->far_limit) {
      if (n > own->far_limit || ++own->refused < 256) return keep(p, n);
      own->refused = 0;  // what is kept may be of sizes that are no longer asked for
      own->far.each([&](auto& stack, std::uint32_t pages) {
        stack.drain(stack.count, [&](std::byte* q) { keep(q, pages); });
      });
      own->far_pages = 0;
    }
    const std::uint32_t i = own->far.claim(n), held = own->far.key[i];
    auto& stack = own->far.stack[i];
    if (const std::uint64_t out = held != n ? stack.count : stack.full() ? far_batch : 0; out != 0) {
      stack.drain(out, [&](std::byte* q) { keep(q, held); });
      own->far_pages -= static_cast<std::uint32_t>(out) * held;
      own->far.key[i] = n;
    }
    stack.push(p);
    own->far_pages += n;
  }
  /// Takes a run back, kept for its size while there is room.
  void keep(std::byte* p, std::uint32_t n) noexcept {
    if (n > run_limit()) return join(p, n);
    const std::uint32_t i = kept_.claim(n);
    if (kept_.key[i] != n || kept_.stack[i].full()) return join(p, n);
    kept_.stack[i].push(p);
    kept_pages_ += n;
  }
  /// Takes a run back and joins it.
  void join(std::byte* p, std::uint32_t n) noexcept {
    PageRegion* r = region_of(p);
    HOLDFAST_ASSERT(r != nullptr);  // not a block of this pool
    allocated_ -= n;
    r->give(p, n);
  }
  /// Joins the runs above `least` pages that are kept here and by the thread; tells whether there was any.
  bool flush(ThreadCache* own, std::uint32_t least = 0) noexcept {
    bool any = false;
    const auto join_all = [&](auto& stack, std::uint32_t n) {
      any |= !stack.empty();
      while (!stack.empty()) join(stack.pop(), n);
    };
    const auto join_stacks = [&](auto& stacks, auto& pages) {
      if (pages == 0) return;
      stacks.each([&](auto& stack, std::uint32_t n) {
        if (n <= least) return;
        pages -= static_cast<std::uint32_t>(stack.count) * n;
        join_all(stack, n);
      });
    };
    join_stacks(kept_, kept_pages_);
    if (own == nullptr) return any;
    join_stacks(own->far, own->far_pages);
    for (std::uint32_t n = least + 1; n <= near_pages; ++n) join_all(own->near[small_classes + n - 1], n);
    return any;
  }
  /// Joins the shortest run of `n` pages or more that is kept here or by the thread for its size; tells whether there was any.
  bool join_longer(ThreadCache* own, std::uint32_t n) noexcept {
    std::uint32_t length = no_page;
    BlockStack<255>* here = nullptr;
    BlockStack<31>* there = nullptr;
    const auto look = [&](auto& stacks, auto*& shortest) {
      stacks.each([&](auto& stack, std::uint32_t pages) {
        if (pages >= n && pages < length && !stack.empty()) length = pages, shortest = &stack;
      });
    };
    if (kept_pages_ >= n) look(kept_, here);
    if (own != nullptr && own->far_pages >= n) look(own->far, there);
    if (there != nullptr) {
      own->far_pages -= length;
      join(there->pop(), length);
    } else if (here != nullptr) {
      kept_pages_ -= length;
      join(here->pop(), length);
    }
    return length != no_page;
  }

  /// Gives `need` pages of free runs back, or all; where whole runs are cheaper, more. Spares what the run at `span` has before
  /// `fit_end`.
  std::uint64_t purge(std::uint64_t need, bool whole, PageRegion* spared = nullptr, std::uint32_t span = no_page,
                      std::uint32_t fit_end = 0) noexcept {
    std::uint64_t done = 0;
    for (PageRegion* r = regions(); r != nullptr && done < need; r = r->next)
      done += r->purge(source_, static_cast<std::uint32_t>(need - done), whole, r == spared ? span : no_page, fit_end);
    reserved_ -= done;
    return done;
  }

  /// Releases all address space.
  void close() noexcept {
    for (PageRegion* r = first_.exchange(nullptr, std::memory_order_relaxed); r != nullptr;) {
      PageRegion* next = r->next;
      source_.release(r->data(), static_cast<Bytes>(r->size()));
      r = next;
    }
  }

 private:
  static constexpr std::uint32_t near_batch = 32, far_batch = 8, careful_frees = 1u << 16, most_unasked = 1u << 14;

  [[nodiscard]] PageRegion* find(std::uint32_t n, std::uint64_t alignment, PageFit& fit) const noexcept {
    PageRegion* r = find_warm(n, alignment, fit);
    return r != nullptr ? r : find_cold(n, alignment, fit);
  }
  [[nodiscard]] PageRegion* find_warm(std::uint32_t n, std::uint64_t alignment, PageFit& fit) const noexcept {
    for (PageRegion* r = regions(); r != nullptr; r = r->next)
      if (fit = r->find_warm(n, alignment); fit.found()) return r;
    return nullptr;
  }
  [[nodiscard]] PageRegion* find_cold(std::uint32_t n, std::uint64_t alignment, PageFit& fit) const noexcept {
    PageRegion* best = nullptr;
    for (PageRegion* r = regions(); r != nullptr; r = r->next) {
      const PageFit f = r->find_cold(n, alignment);
      if (f.found() && (best == nullptr || f.fresh < fit.fresh)) best = r, fit = f;
    }
    return best;
  }
  // Whether so many more pages may be backed, by the user's limit and by what the source has room for. The source is asked anew after
  // 64 MiB or an eighth of its room, so that other users of the machine are seen in time and asking costs nothing beside page faults.
  [[nodiscard]] bool may_grow(std::uint64_t fresh, Refusal& why) noexcept {
    if (reserved_ + fresh > limits_.limit_pages) {
      why = {Errc::over_budget, "The host pool's limit is reached", bytes(limits_.limit_pages - reserved_)};
      return false;
    }
    if constexpr (metered_page_source<Source>)
      if (limits_.ask_source && fresh > unasked_) {
        const MemoryRoom room = source_.room();
        const std::uint64_t pages = room.bytes > 0 ? static_cast<std::uint64_t>(room.bytes) / page_bytes : 0;
        unasked_ = 0;
        if (fresh > pages) {
          why = {Errc::out_of_memory,
                 room.source == LimitSource::cgroup ? "The control group's memory limit is reached" : "The system has no more memory available",
                 bytes(pages)};
          return false;
        }
        const std::uint64_t step = pages / 8 < most_unasked ? pages / 8 : most_unasked;
        unasked_ = pages - fresh < step ? pages : fresh + step;
      }
    unasked_ -= fresh < unasked_ ? fresh : unasked_;
    return true;
  }
  // A large reservation first; half as much as long as it is refused, at last just enough.
  PageRegion* add_region(std::uint32_t n, std::uint64_t alignment) noexcept {
    const std::uint64_t least = (PageRegion::bytes_for(n, alignment) + page_bytes - 1) & ~(page_bytes - 1);
    if (least == 0) return nullptr;
    for (std::uint64_t size = limits_.region_bytes > least ? limits_.region_bytes : least;; size = size / 2 > least ? size / 2 : least) {
      size = (size + page_bytes - 1) & ~(page_bytes - 1);
      if (std::byte* p = source_.reserve(static_cast<Bytes>(size)); p != nullptr) {
        PageRegion* r = PageRegion::make(p, size);
        if (limits_.huge_pages) source_.advise_huge(p, static_cast<Bytes>(size));
        r->next = regions();
        first_.store(r, std::memory_order_release);
        return r;
      }
      if (size == least) return nullptr;
    }
  }
  // Moves a few more to the thread, whose own are used up, and leaves one.
  void refill(ThreadCache* own, BlockStack<255>& stack, std::uint32_t n) noexcept {
    if (own == nullptr) return;
    std::uint32_t moved = 0;
    if (n <= near_pages) {
      auto& to = own->near[small_classes + n - 1];
      for (; stack.count > 1 && to.count < near_batch; ++moved) to.push(stack.pop());
    } else if (const std::uint32_t i = own->far.claim(n); own->far.key[i] == n) {
      auto& to = own->far.stack[i];
      for (; stack.count > 1 && to.count < far_batch && own->far_pages + std::uint64_t{n} <= own->far_limit; ++moved) {
        to.push(stack.pop());
        own->far_pages += n;
      }
    }
    kept_pages_ -= std::uint64_t{moved} * n;
  }

  [[nodiscard]] static std::uint64_t kept_by(const ThreadCache* own) noexcept {
    if (own == nullptr) return 0;
    std::uint64_t pages = own->far_pages;
    for (std::uint32_t n = 1; n <= near_pages; ++n) pages += own->near[small_classes + n - 1].count * n;
    return pages;
  }
  [[nodiscard]] static Bytes bytes(std::uint64_t pages) noexcept { return static_cast<Bytes>(pages * page_bytes); }
  // What may be reserved without giving idle memory back.
  [[nodiscard]] std::uint64_t mark() const noexcept {
    const std::uint64_t mark = peak_ + (peak_ * limits_.idle >> 16) + 64;
    return mark < limits_.limit_pages ? mark : limits_.limit_pages;
  }
  // The longest run that is kept for its size.
  [[nodiscard]] std::uint32_t run_limit() const noexcept {
    return careful_ == 0 ? no_page : peak_ / 64 < no_page ? static_cast<std::uint32_t>(peak_ / 64) : no_page;
  }

  HOLDFAST_NO_UNIQUE_ADDRESS Source source_;
  const PoolLimits limits_;
  std::atomic<PageRegion*> first_{nullptr};
  // In pages. `allocated_` counts runs cut from regions, those kept in stacks too; `peak_` is its highest with nothing kept.
  std::uint64_t reserved_ = 0, peak_reserved_ = 0, allocated_ = 0, kept_pages_ = 0, peak_ = 0;
  std::uint64_t unasked_ = 0;  // pages to grow by before the source is asked for its room again
  std::uint32_t careful_ = 0;  // frees to come of which long runs are joined at once: keeping them for their size has cost memory
  PageStacks<255> kept_;  // zero in a fresh reservation
};

}  // namespace holdfast::detail
