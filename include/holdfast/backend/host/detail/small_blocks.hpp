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
  [[nodiscard]] std::byte* take(ThreadCache* own, std::uint32_t c, Refusal& why) noexcept {
    auto& kept = kept_[c];
    if (own == nullptr) return kept.empty() ? take_from_slab(own, c, why) : kept.pop();
    auto& stack = own->near[c];
    while (stack.count < batch) {
      std::byte* p = kept.empty() ? take_from_slab(own, c, why) : kept.pop();
      if (p == nullptr) break;
      stack.push(p);
    }
    return stack.empty() ? nullptr : stack.pop();
  }
  /// Takes a block back, into the thread's cache where there is one.
  void give(ThreadCache* own, std::uint32_t c, std::byte* p) noexcept {
    auto& kept = kept_[c];
    const auto keep = [&](std::byte* q) { kept.full() ? give_to_slab(q) : kept.push(q); };
    if (own == nullptr) return keep(p);
    auto& stack = own->near[c];
    if (stack.full()) stack.drain(batch, keep);
    stack.push(p);
  }
  /// Returns everything that is kept here and by the thread to the slabs.
  void flush(ThreadCache* own) noexcept {
    for (std::uint32_t c = 0; c < small_classes; ++c) {
      while (!kept_[c].empty()) give_to_slab(kept_[c].pop());
      while (own != nullptr && !own->near[c].empty()) give_to_slab(own->near[c].pop());
    }
  }

 private:
  static constexpr std::uint32_t batch = 32;

  std::byte* take_from_slab(ThreadCache* own, std::uint32_t c, Refusal& why) noexcept {
    while (slabs_[c] != nullptr) {
      Slab& s = *slabs_[c];
      if (std::byte* p = s.take(data_of(s)); p != nullptr) return p;
      unlink(s);
    }
    std::byte* data = pool_.take(own, slab_pages, slab_bytes, why);
    if (data == nullptr) return nullptr;
    Slab& s = pool_.region_of(data)->slab(data);
    s = Slab{nullptr, nullptr, 0, 0, 0, c, false};
    link(s);
    return s.take(data);
  }
  void give_to_slab(std::byte* p) noexcept {
    PageRegion* r = pool_.region_of(p);
    HOLDFAST_ASSERT(r != nullptr);  // not a block of this pool
    Slab& s = r->slab(p);
    if (!s.listed) link(s);
    std::byte* data = r->slab_data(s);
    s.give(data, p);
    if (!s.empty()) return;
    unlink(s);
    pool_.join(data, slab_pages);
  }
  [[nodiscard]] std::byte* data_of(const Slab& s) const noexcept {
    const auto* at = reinterpret_cast<const std::byte*>(&s);
    PageRegion* r = pool_.regions();
    while (at < r->data() || at >= r->data() + r->size()) r = r->next;
    return r->slab_data(s);
  }
  void link(Slab& s) noexcept {
    Slab*& head = slabs_[s.size_class];
    s.prev = nullptr;
    s.next = head;
    if (head != nullptr) head->prev = &s;
    head = &s;
    s.listed = true;
  }
  void unlink(Slab& s) noexcept {
    (s.prev != nullptr ? s.prev->next : slabs_[s.size_class]) = s.next;
    if (s.next != nullptr) s.next->prev = s.prev;
    s.listed = false;
  }

  PagePool<Source>& pool_;
  Slab* slabs_[small_classes] = {};  // those that may have a free block
  BlockStack<511> kept_[small_classes];  // zero in a fresh reservation
};

}  // namespace holdfast::detail
