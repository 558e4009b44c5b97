// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/backend/host/detail/page_pool.hpp"
#include "holdfast/backend/host/detail/slab.hpp"
#include "holdfast/backend/host/detail/thread_cache.hpp"

namespace holdfast::detail {

/// Small blocks, cut from slabs of pages; those that threads hand back are kept by class and handed on untouched.
///
/// Threads: one at a time.
template <page_source Source>
class SmallBlocks {
 public:
  explicit SmallBlocks(PagePool<Source>& pages) noexcept : pool_(pages) {}

  /// Gives a block of a class and fills the thread's stack up; null, and why, when there is none.
  [[nodiscard]] std::byte* take(ThreadCache* own, std::uint32_t c, Errc& why) noexcept {
    auto& kept = small_[c];
    if (own == nullptr) return kept.count != 0 ? kept.pop() : take_from_slab(own, c, why);
    auto& bin = own->small[c];
    while (bin.count < batch) {
      std::byte* p = kept.count != 0 ? kept.pop() : take_from_slab(own, c, why);
      if (p == nullptr) break;
      bin.push(p);
    }
    return bin.count != 0 ? bin.pop() : nullptr;
  }
  /// Takes a block back, into the thread's cache where it has room.
  void give(ThreadCache* own, std::uint32_t c, std::byte* p) noexcept {
    auto& kept = small_[c];
    auto keep = [&](std::byte* q) { kept.full() ? give_to_slab(q) : kept.push(q); };
    if (own == nullptr) return keep(p);
    auto& bin = own->small[c];
    if (bin.full()) {
      for (std::uint32_t i = 0; i < batch; ++i) keep(bin.slot[i]);  // the oldest
      for (std::uint32_t i = batch; i < bin.count; ++i) bin.slot[i - batch] = bin.slot[i];
      bin.count -= batch;
    }
    bin.push(p);
  }
  /// Returns everything that is kept here and by the thread to the slabs.
  void flush(ThreadCache* own) noexcept {
    for (std::uint32_t c = 0; c < small_classes; ++c) {
      while (small_[c].count != 0) give_to_slab(small_[c].pop());
      while (own != nullptr && own->small[c].count != 0) give_to_slab(own->small[c].pop());
    }
  }

 private:
  static constexpr std::uint32_t batch = 32;

  std::byte* take_from_slab(ThreadCache* own, std::uint32_t c, Errc& why) noexcept {
    if (partial_[c] == nullptr) {
      std::byte* p = pool_.take(own, slab_pages, slab_bytes, why);
      if (p == nullptr) return nullptr;
      PageRegion* r = pool_.region_of(p);
      Slab& s = r->slab(p);
      s = Slab{nullptr, nullptr, 0, 0, 0, c};
      r->mark_slab(p, true);
      link(s);
    }
    Slab& s = *partial_[c];
    std::byte* p = s.take(slab_data(s));
    if (s.full()) unlink(s);
    return p;
  }
  void give_to_slab(std::byte* p) noexcept {
    PageRegion* r = pool_.region_of(p);
    HOLDFAST_ASSERT(r != nullptr);  // not a block of this pool
    Slab& s = r->slab(p);
    if (s.full()) link(s);
    std::byte* data = r->slab_data(s);
    s.give(data, p);
    if (s.used != 0) return;
    unlink(s);
    r->mark_slab(data, false);
    pool_.join(data, slab_pages);
  }
  [[nodiscard]] std::byte* slab_data(const Slab& s) const noexcept {
    const auto* at = reinterpret_cast<const std::byte*>(&s);
    PageRegion* r = pool_.regions();
    while (at < r->data() || at >= r->data() + r->size()) r = r->next;
    return r->slab_data(s);
  }
  void link(Slab& s) noexcept {
    Slab*& head = partial_[s.size_class];
    s.prev = nullptr;
    s.next = head;
    if (head != nullptr) head->prev = &s;
    head = &s;
  }
  void unlink(Slab& s) noexcept {
    (s.prev != nullptr ? s.prev->next : partial_[s.size_class]) = s.next;
    if (s.next != nullptr) s.next->prev = s.prev;
  }

  PagePool<Source>& pool_;
  Slab* partial_[small_classes] = {};
  BlockStack<511> small_[small_classes];  // zero in a fresh reservation
};

}  // namespace holdfast::detail
