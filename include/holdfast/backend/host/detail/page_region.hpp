// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

#include "holdfast/backend/host/detail/slab.hpp"
#include "holdfast/core/config.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast::detail {

/// A run of free pages that a region could give, and what that would cost.
struct PageFit {
  std::uint32_t span = no_page;   ///< the free run it is cut from
  std::uint32_t first = no_page;  ///< where the aligned run of pages begins
  std::uint32_t fresh = 0;        ///< pages of it that the system does not back yet
  [[nodiscard]] bool found() const noexcept { return first != no_page; }
};

/// One reservation of address space, cut into runs of pages: best fit over binned free runs, joined as they come back.
///
/// A page is warm from when it is first given until it is purged. Its tables lie before its pages in the same reservation, which is
/// zeroed and untouched, so that a large one costs only what is used of it. Threads: one at a time, except `holds`.
class PageRegion {
 public:
  /// Bytes of tables for so many pages, in whole pages.
  [[nodiscard]] static constexpr std::uint64_t table_bytes(std::uint64_t pages) noexcept {
    const std::uint64_t n = sizeof(PageRegion) + pages * (sizeof(Run) + 4) + (pages / slab_pages + 1) * sizeof(Slab) + pages / 8 + 64;
    return (n + page_bytes - 1) & ~(page_bytes - 1);
  }

  /// Lays a region over a zeroed reservation of `size` bytes; its pages begin on a multiple of `base_alignment`.
  static PageRegion* make(std::byte* data, std::uint64_t size) noexcept {
    std::uint64_t pages = size / page_bytes;
    pages -= table_bytes(pages) / page_bytes;
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    std::uintptr_t base = (begin + table_bytes(pages) + base_alignment - 1) & ~(base_alignment - 1);
    const std::uint64_t left = (begin + size - base) / page_bytes;
    pages = (left < pages ? left : pages) & ~std::uint64_t{slab_pages - 1};  // the tables are for no more
    return ::new (static_cast<void*>(data)) PageRegion(data, size, data + (base - begin), static_cast<std::uint32_t>(pages));
  }
  /// Bytes of a reservation that surely holds a run of `pages` pages aligned to `alignment` bytes; 0: too many.
  [[nodiscard]] static constexpr std::uint64_t bytes_for(std::uint64_t pages, std::uint64_t alignment) noexcept {
    if (pages > max_pages || alignment > max_pages * page_bytes) return 0;
    pages += alignment / page_bytes + slab_pages + 1;
    pages += base_alignment / page_bytes;  // may be lost before the first; `make` sizes its tables for the whole reservation
    return pages > max_pages ? 0 : pages * page_bytes + table_bytes(pages + pages / 64) + page_bytes;
  }

  PageRegion* next = nullptr;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint32_t warm_free() const noexcept { return warm_free_; }
  [[nodiscard]] bool holds(const std::byte* p) const noexcept {
    return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(base_) < std::uint64_t{pages_} * page_bytes;
  }
  [[nodiscard]] std::uint32_t index(const std::byte* p) const noexcept { return static_cast<std::uint32_t>((p - base_) >> page_shift); }
  [[nodiscard]] std::byte* address(std::uint32_t page) const noexcept { return base_ + (std::uint64_t{page} << page_shift); }
  [[nodiscard]] Slab& slab(const std::byte* p) noexcept { return slab_[index(p) / slab_pages]; }
  /// The first byte of a slab.
  [[nodiscard]] std::byte* slab_data(const Slab& s) const noexcept {
    return address(static_cast<std::uint32_t>(&s - slab_) * slab_pages);
  }

  /// Finds the shortest warm run for `n` pages at an alignment, the lowest among equals. Cost: bounded by the bins.
  [[nodiscard]] PageFit find_warm(std::uint32_t n, std::uint64_t alignment) const noexcept {
    PageFit best;
    std::uint32_t length = no_page;
    const Bins& b = bins_[false];
    for (std::uint32_t bin = b.next(bin_of(n)); bin < bins && !best.found(); bin = b.next(bin + 1)) {
      std::uint32_t looked = 0;
      for (std::uint32_t i = b.head[bin] - 1; i != no_page && looked < 64; i = run_[i].next, ++looked) {
        const std::uint32_t have = run_[i].length;
        if (have < n || have > length) continue;
        const std::uint64_t first = run_[i].first + pages_before(run_[i].first, alignment);
        if (first + n > run_[i].first + std::uint64_t{have} || (have == length && first > best.first)) continue;
        best = {i, static_cast<std::uint32_t>(first), 0};
        length = have;
      }
    }
    return best;
  }
  /// Finds the run, cold at least in part, that needs the fewest fresh pages; the shortest, then the lowest among equals.
  [[nodiscard]] PageFit find_cold(std::uint32_t n, std::uint64_t alignment) const noexcept {
    PageFit best;
    best.fresh = no_page;
    std::uint32_t length = no_page;
    const Bins& b = bins_[true];
    for (std::uint32_t bin = b.next(bin_of(n)); bin < bins && best.fresh != 0; bin = b.next(bin + 1)) {
      std::uint32_t looked = 0;
      for (std::uint32_t i = b.head[bin] - 1; i != no_page && looked < 64; i = run_[i].next, ++looked) {
        const std::uint32_t have = run_[i].length, warm = run_[i].warm;
        const std::uint64_t first = run_[i].first + pages_before(run_[i].first, alignment);
        if (first + n > run_[i].first + std::uint64_t{have} || (warm < n && n - warm > best.fresh)) continue;
        const std::uint32_t fresh = warm == 0 ? n : n - count_warm(static_cast<std::uint32_t>(first), n);
        if (fresh > best.fresh || (fresh == best.fresh && (have > length || (have == length && first > best.first)))) continue;
        best = {i, static_cast<std::uint32_t>(first), fresh};
        length = have;
      }
    }
    return best;
  }

  /// Cuts the found run out; all of it is warm from now on.
  std::byte* take(PageFit fit, std::uint32_t n) noexcept {
    const Run whole = run_[fit.span];
    const std::uint32_t before = fit.first - whole.first, after = whole.length - before - n;
    const std::uint32_t warm_before = whole.warm == whole.length ? before : whole.warm == 0 ? 0 : count_warm(whole.first, before);
    remove(fit.span);
    if (fit.fresh != 0) set_warm(fit.first, n, true);
    if (before != 0) insert(make_run(), whole.first, before, warm_before);
    if (after != 0) insert(make_run(), fit.first + n, after, whole.warm - warm_before - (n - fit.fresh));
    set_run(fit.span, fit.first, n, false);
    return address(fit.first);
  }

  /// Takes a run back and joins it with its free neighbours.
  void give(const std::byte* p, std::uint32_t n) noexcept {
    std::uint32_t first = index(p), warm = n, run = at_[first];
    // A double free, or a block that is not the pool's.
    HOLDFAST_ASSERT(run < runs_ && run_[run].first == first && run_[run].length == n && !run_[run].free);
    if (first + n < pages_)
      if (const std::uint32_t after = at_[first + n]; run_[after].free) {
        n += run_[after].length;
        warm += run_[after].warm;
        drop_run(after);
      }
    if (first > 0)
      if (const std::uint32_t before = at_[first - 1]; run_[before].free) {
        n += run_[before].length;
        warm += run_[before].warm;
        first = run_[before].first;
        drop_run(before);
      }
    insert(run, first, n, warm);
  }

  /// Gives the pages of warm free runs back to the system, longest first, until `need` are given: whole runs, as that takes the
  /// fewest calls, or exactly so many. Spares what is before `fit_end` in the run at `spare`.
  template <class Source>
  std::uint32_t purge(Source& source, std::uint32_t need, bool whole, std::uint32_t spare = no_page, std::uint32_t fit_end = 0) noexcept {
    std::uint32_t done = 0;
    for (const bool cold : {true, false})  // those in part cold first: they serve least
      for (std::uint32_t bin = bins_[cold].last(bins); bin < bins && done < need; bin = bins_[cold].last(bin))
        for (std::uint32_t i = bins_[cold].head[bin] - 1, then = 0; i != no_page && done < need; i = then) {
          const std::uint32_t begin = run_[i].first, n = run_[i].length;
          std::uint32_t first = i == spare ? fit_end : begin;
          then = run_[i].next;
          const std::uint32_t end = begin + n < warm_end_ ? begin + n : warm_end_;  // no page behind was ever warm
          if (run_[i].warm == 0 || first >= end) continue;
          if (!whole) first = warm_tail(first, end, need - done);
          const std::uint32_t warm = first != begin ? count_warm(first, end - first) : run_[i].warm;
          if (!source.purge(address(first), static_cast<Bytes>(std::uint64_t{end - first} * page_bytes))) continue;
          set_warm(first, end - first, false);
          done += warm;
          remove(i);
          insert(i, begin, n, run_[i].warm - warm);
        }
    return done;
  }

  /// Calls `visit(address, pages, free)` for every run, in address order.
  template <class Visit>
  void visit(Visit&& visit_run) const noexcept {
    for (std::uint32_t i = 0; i < pages_;) {
      const Run& run = run_[at_[i]];
      visit_run(address(i), run.length, run.free);
      i += run.length;
    }
  }
  /// The longest run of warm free pages. Cost: the free runs and the warm pages among them.
  [[nodiscard]] std::uint32_t largest_warm() const noexcept {
    std::uint32_t best = 0;
    for (const Bins& b : bins_)
      for (std::uint32_t bin = b.next(0); bin < bins; bin = b.next(bin + 1))
        for (std::uint32_t i = b.head[bin] - 1; i != no_page; i = run_[i].next) {
          if (run_[i].warm <= best) continue;
          std::uint32_t run = 0, end = run_[i].first + run_[i].length;
          for (std::uint32_t p = run_[i].first; p < end && p < warm_end_; ++p) {
            run = (warm_[p / 64] >> (p % 64) & 1) != 0 ? run + 1 : 0;
            if (run > best) best = run;
          }
        }
    return best;
  }

 private:
  struct Run {
    std::uint32_t first, length, warm;
    std::uint32_t next, prev;  // in its bin, while free; `next` also links unused entries
    bool free;
  };
  static constexpr std::uint32_t max_pages = 1u << 30, bins = 32 + 26 * 16;
  static constexpr std::uintptr_t base_alignment = 2u << 20;

  struct Bins {
    std::uint32_t head[bins] = {};  // first run of a bin, counted from 1
    std::uint64_t full[bins / 64] = {};
    /// The first bin from `bin` on that has a run; `bins` if none.
    [[nodiscard]] std::uint32_t next(std::uint32_t bin) const noexcept {
      for (std::uint32_t word = bin / 64; word < bins / 64; ++word, bin = word * 64)
        if (const std::uint64_t bits = full[word] >> (bin % 64); bits != 0) return bin + static_cast<std::uint32_t>(std::countr_zero(bits));
      return bins;
    }
    /// The last bin before `end` that has a run; `bins` if none.
    [[nodiscard]] std::uint32_t last(std::uint32_t end) const noexcept {
      for (std::uint32_t word = (end + 63) / 64; word-- > 0; end = word * 64)
        if (const std::uint64_t bits = full[word] << (word * 64 + 64 - end); bits != 0)
          return end - 1 - static_cast<std::uint32_t>(std::countl_zero(bits));
      return bins;
    }
  };

  PageRegion(std::byte* data, std::uint64_t size, std::byte* base, std::uint32_t pages) noexcept
      : data_(data), base_(base), size_(size), pages_(pages) {
    run_ = reinterpret_cast<Run*>(data + (sizeof(PageRegion) + 63) / 64 * 64);
    slab_ = reinterpret_cast<Slab*>(run_ + pages);
    warm_ = reinterpret_cast<std::uint64_t*>(slab_ + pages / slab_pages + 1);
    at_ = reinterpret_cast<std::uint32_t*>(warm_ + (pages + 63) / 64);
    insert(make_run(), 0, pages, 0);
  }

  // Pages from `page` to the next that is aligned.
  [[nodiscard]] std::uint64_t pages_before(std::uint32_t page, std::uint64_t alignment) const noexcept {
    return (-reinterpret_cast<std::uintptr_t>(address(page)) & (alignment - 1)) >> page_shift;
  }
  // Exact below 32 pages, then 16 bins a power of two.
  [[nodiscard]] static constexpr std::uint32_t bin_of(std::uint32_t n) noexcept {
    if (n < 32) return n;
    const auto log = static_cast<std::uint32_t>(std::bit_width(n) - 1);
    return 32 + (log - 5) * 16 + ((n >> (log - 4)) & 15);
  }
  [[nodiscard]] std::uint32_t make_run() noexcept {
    if (unused_ == no_page) return runs_++;
    const std::uint32_t i = unused_;
    unused_ = run_[i].next;
    return i;
  }
  void drop_run(std::uint32_t i) noexcept {
    remove(i);
    run_[i].next = unused_;
    unused_ = i;
  }
  void set_run(std::uint32_t i, std::uint32_t first, std::uint32_t n, bool free) noexcept {
    run_[i].first = first;
    run_[i].length = n;
    run_[i].free = free;
    at_[first] = at_[first + n - 1] = i;
  }
  void insert(std::uint32_t i, std::uint32_t first, std::uint32_t n, std::uint32_t warm) noexcept {
    const std::uint32_t bin = bin_of(n);
    Bins& b = bins_[warm != n];
    set_run(i, first, n, true);
    warm_free_ += warm;
    run_[i].warm = warm;
    run_[i].prev = no_page;
    run_[i].next = b.head[bin] - 1;
    if (b.head[bin] != 0) run_[b.head[bin] - 1].prev = i;
    b.head[bin] = i + 1;
    b.full[bin / 64] |= std::uint64_t{1} << (bin % 64);
  }
  void remove(std::uint32_t i) noexcept {
    const Run& s = run_[i];
    const std::uint32_t bin = bin_of(s.length);
    Bins& b = bins_[s.warm != s.length];
    warm_free_ -= s.warm;
    if (s.next != no_page) run_[s.next].prev = s.prev;
    if (s.prev != no_page)
      run_[s.prev].next = s.next;
    else if ((b.head[bin] = s.next + 1) == 0)
      b.full[bin / 64] &= ~(std::uint64_t{1} << (bin % 64));
  }

  // Calls `f(word, mask)` for the words of the warm map over a run.
  template <class F>
  void words(std::uint32_t first, std::uint32_t n, F&& f) const noexcept {
    for (std::uint32_t i = first, end = first + n; i < end;) {
      const std::uint32_t bit = i % 64, left = end - i, here = left < 64 - bit ? left : 64 - bit;
      f(warm_[i / 64], (here == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << here) - 1) << bit);
      i += here;
    }
  }
  [[nodiscard]] std::uint32_t count_warm(std::uint32_t first, std::uint32_t n) const noexcept {
    if (first >= warm_end_) return 0;
    int count = 0;
    words(first, n < warm_end_ - first ? n : warm_end_ - first,
          [&](std::uint64_t word, std::uint64_t mask) { count += std::popcount(word & mask); });
    return static_cast<std::uint32_t>(count);
  }
  // Where the last `n` warm pages before `end` begin; `first` if there are not so many.
  [[nodiscard]] std::uint32_t warm_tail(std::uint32_t first, std::uint32_t end, std::uint32_t n) const noexcept {
    for (; end > first && n != 0; --end) n -= static_cast<std::uint32_t>(warm_[(end - 1) / 64] >> ((end - 1) % 64) & 1);
    return end;
  }
  void set_warm(std::uint32_t first, std::uint32_t n, bool on) noexcept {
    if (on && first + n > warm_end_) warm_end_ = first + n;
    words(first, n, [&](std::uint64_t& word, std::uint64_t mask) { word = on ? word | mask : word & ~mask; });
  }

  std::byte* data_;
  std::byte* base_;
  Run* run_;  // compact, so that lists stay in the nearest cache
  Slab* slab_;
  std::uint64_t* warm_;
  std::uint32_t* at_;  // the run of its first and of its last page
  std::uint64_t size_;
  std::uint32_t pages_, warm_end_ = 0, warm_free_ = 0;
  std::uint32_t runs_ = 0, unused_ = no_page;
  Bins bins_[2];  // runs that are warm throughout, and the others
};

}  // namespace holdfast::detail
