// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "holdfast/backend/bfc/detail/chunk.hpp"

namespace holdfast::detail {

/// Size classes: exact up to 32 granules, then sixteen to a power of two; they rise with the size.
inline constexpr std::uint32_t bfc_classes = 832;
[[nodiscard]] constexpr std::uint32_t bfc_class_of(Bytes size) noexcept {
  const auto granules = static_cast<std::uint64_t>(size) / static_cast<std::uint64_t>(bfc_granule);
  const int shift = granules < 16 ? 0 : static_cast<int>(std::bit_width(granules)) - 5;
  return static_cast<std::uint32_t>(shift) * 16 + static_cast<std::uint32_t>(granules >> shift);
}
static_assert(bfc_class_of(max_bytes) < bfc_classes);

/// A set of small numbers of which the next from any on is found in a few instructions.
class BfcClassSet {
 public:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;
  void insert(std::uint32_t i) noexcept {
    words_[i / 64] |= bit(i);
    summary_ |= bit(i / 64);
  }
  void erase(std::uint32_t i) noexcept {
    if ((words_[i / 64] &= ~bit(i)) == 0) summary_ &= ~bit(i / 64);
  }
  [[nodiscard]] std::uint32_t from(std::uint32_t i) const noexcept {
    if (i >= bfc_classes) return none;
    if (const std::uint64_t here = words_[i / 64] & (~std::uint64_t{0} << i % 64); here != 0) return i / 64 * 64 + low(here);
    const std::uint64_t later = summary_ & ~(bit(i / 64) | (bit(i / 64) - 1));
    return later == 0 ? none : low(later) * 64 + low(words_[low(later)]);
  }
  [[nodiscard]] std::uint32_t last() const noexcept {
    if (summary_ == 0) return none;
    const auto word = static_cast<std::uint32_t>(std::bit_width(summary_) - 1);
    return word * 64 + static_cast<std::uint32_t>(std::bit_width(words_[word]) - 1);
  }

 private:
  [[nodiscard]] static constexpr std::uint64_t bit(std::uint32_t i) noexcept { return std::uint64_t{1} << i % 64; }
  [[nodiscard]] static std::uint32_t low(std::uint64_t x) noexcept { return static_cast<std::uint32_t>(std::countr_zero(x)); }
  std::uint64_t words_[bfc_classes / 64] = {};
  std::uint64_t summary_ = 0;
};
static_assert(bfc_classes % 64 == 0 && bfc_classes / 64 <= 64);

/// Orders of free chunks: their classes in the order of the search, before which size nothing fits, and behind which nothing does.
struct BfcBySize {
  static constexpr bool largest_first = false, largest_last = true;
  static constexpr std::uint32_t class_of(Bytes size) noexcept { return bfc_class_of(size); }
  static constexpr std::uint32_t first_class(Bytes least) noexcept { return bfc_class_of(least); }
  static bool less(const BfcChunk& a, const BfcChunk& b) noexcept { return a.size != b.size ? a.size < b.size : a.data < b.data; }
  static bool before(const BfcChunk& c, Bytes least) noexcept { return c.size < least; }
  static bool behind(const BfcChunk& c, Bytes, Bytes most) noexcept { return c.size > most; }
};
struct BfcByFallingSize {
  static constexpr bool largest_first = true, largest_last = false;
  static constexpr std::uint32_t class_of(Bytes size) noexcept { return bfc_classes - 1 - bfc_class_of(size); }
  static constexpr std::uint32_t first_class(Bytes) noexcept { return 0; }
  static bool less(const BfcChunk& a, const BfcChunk& b) noexcept { return a.size != b.size ? a.size > b.size : a.data < b.data; }
  static bool before(const BfcChunk&, Bytes) noexcept { return false; }
  static bool behind(const BfcChunk& c, Bytes least, Bytes) noexcept { return c.size < least; }
};
struct BfcByAddress {
  static constexpr bool largest_first = false, largest_last = false;
  static constexpr std::uint32_t class_of(Bytes) noexcept { return 0; }
  static constexpr std::uint32_t first_class(Bytes) noexcept { return 0; }
  static bool less(const BfcChunk& a, const BfcChunk& b) noexcept { return a.data < b.data; }
  static bool before(const BfcChunk&, Bytes) noexcept { return false; }
  static bool behind(const BfcChunk&, Bytes, Bytes) noexcept { return false; }
};

/// Free chunks in an order: a treap for each class, its links in the chunks. Cost: logarithmic in the chunks of the class.
template <class Order>
class BfcTree {
 public:
  void insert(BfcChunk* all, std::uint32_t c) noexcept {
    const std::uint32_t k = Order::class_of(all[c].size);
    std::uint32_t* link = &root_[k];
    std::uint32_t t = *link;
    if (t == 0) classes_.insert(k);
    while (t != 0 && rank(t) >= rank(c)) {
      link = Order::less(all[c], all[t]) ? &all[t].left : &all[t].right;
      t = *link;
    }
    *link = c;
    std::uint32_t *below = &all[c].left, *above = &all[c].right;
    while (t != 0) {
      std::uint32_t*& side = Order::less(all[t], all[c]) ? below : above;
      *side = t;
      side = &side == &below ? &all[t].right : &all[t].left;
      t = *side;
    }
    *below = *above = 0;
  }
  void erase(BfcChunk* all, std::uint32_t c) noexcept {
    const std::uint32_t k = Order::class_of(all[c].size);
    std::uint32_t* link = &root_[k];
    while (*link != c) link = Order::less(all[c], all[*link]) ? &all[*link].left : &all[*link].right;
    std::uint32_t a = all[c].left, b = all[c].right;
    while (a != 0 && b != 0) {
      std::uint32_t& top = rank(a) > rank(b) ? a : b;
      *link = top;
      link = &top == &a ? &all[top].right : &all[top].left;
      top = *link;
    }
    *link = a != 0 ? a : b;
    if (root_[k] == 0) classes_.erase(k);
  }
  /// Gives a chunk another place and size. Cost: O(1) for one alone in its class that stays in it.
  void move(BfcChunk* all, std::uint32_t c, std::byte* data, Bytes size) noexcept {
    const std::uint32_t k = Order::class_of(size);
    const bool stays = root_[k] == c && (all[c].left | all[c].right) == 0;
    if (!stays) erase(all, c);
    all[c].data = data;
    all[c].size = size;
    if (!stays) insert(all, c);
  }
  /// The first chunk of at least `least` and at most `most` bytes for which `fits` holds; 0: none.
  template <class Fits>
  [[nodiscard]] std::uint32_t find(BfcChunk* all, Bytes least, Bytes most, Fits fits) const noexcept {
    for (std::uint32_t k = classes_.from(Order::first_class(least)); k != BfcClassSet::none; k = classes_.from(k + 1))
      for (std::uint32_t c = first(all, k, [&](const BfcChunk& x) { return Order::before(x, least); }); c != 0; c = next(all, k, c)) {
        if (Order::behind(all[c], least, most)) return 0;
        if (all[c].size >= least && all[c].size <= most && fits(all[c])) return c;
      }
    return 0;
  }
  /// The size of the largest. Cost: linear for an order by address.
  [[nodiscard]] Bytes largest(BfcChunk* all) const noexcept {
    const std::uint32_t k = Order::largest_first ? classes_.from(0) : classes_.last();
    if (k == BfcClassSet::none) return 0;
    std::uint32_t c = first(all, k, [](const BfcChunk&) { return false; });
    if (Order::largest_first) return all[c].size;
    if (Order::largest_last) {
      for (c = root_[k]; all[c].right != 0;) c = all[c].right;
      return all[c].size;
    }
    Bytes most = 0;
    for (; c != 0; c = next(all, k, c)) most = all[c].size > most ? all[c].size : most;
    return most;
  }

 private:
  // Of a chunk's number, which says nothing of its key; the same on every machine.
  [[nodiscard]] static std::uint32_t rank(std::uint32_t c) noexcept { return (c ^ c >> 15) * 0x2C1B3C6Du; }

  // The first chunk of a class that is not `before`.
  template <class Before>
  [[nodiscard]] std::uint32_t first(BfcChunk* all, std::uint32_t k, Before before) const noexcept {
    std::uint32_t best = 0;
    for (std::uint32_t t = root_[k]; t != 0;)
      t = before(all[t]) ? all[t].right : (best = t, all[t].left);
    return best;
  }
  [[nodiscard]] std::uint32_t next(BfcChunk* all, std::uint32_t k, std::uint32_t c) const noexcept {
    return first(all, k, [&](const BfcChunk& x) { return !Order::less(all[c], x); });
  }

  std::uint32_t root_[bfc_classes] = {};
  BfcClassSet classes_;
};

/// Free chunks in a list for each class, the last freed first. Cost: O(1), and linear in a class whose chunks may be too small.
class BfcLists {
 public:
  void insert(BfcChunk* all, std::uint32_t c) noexcept {
    std::uint32_t& head = head_[bfc_class_of(all[c].size)];
    if (head == 0) classes_.insert(bfc_class_of(all[c].size));
    all[c].left = 0;
    all[c].right = head;
    if (head != 0) all[head].left = c;
    head = c;
  }
  void erase(BfcChunk* all, std::uint32_t c) noexcept {
    const std::uint32_t left = all[c].left, right = all[c].right, k = bfc_class_of(all[c].size);
    (left != 0 ? all[left].right : head_[k]) = right;
    if (right != 0) all[right].left = left;
    if (head_[k] == 0) classes_.erase(k);
  }
  void move(BfcChunk* all, std::uint32_t c, std::byte* data, Bytes size) noexcept {
    const bool stays = bfc_class_of(size) == bfc_class_of(all[c].size);
    if (!stays) erase(all, c);
    all[c].data = data;
    all[c].size = size;
    if (!stays) insert(all, c);
  }
  template <class Fits>
  [[nodiscard]] std::uint32_t find(BfcChunk* all, Bytes least, Bytes most, Fits fits) const noexcept {
    const std::uint32_t own = bfc_class_of(least);
    const bool surely = own == 0 || bfc_class_of(least - bfc_granule) != own;  // the smallest of its class
    const std::uint32_t end = bfc_class_of(most) + 1;
    for (std::uint32_t k = classes_.from(surely ? own : own + 1); k < end; k = classes_.from(k + 1))
      if (const std::uint32_t c = find_in(all, k, least, most, fits); c != 0) return c;
    return surely ? 0 : find_in(all, own, least, most, fits);
  }
  /// The size of the largest. Cost: linear in the chunks of its class.
  [[nodiscard]] Bytes largest(BfcChunk* all) const noexcept {
    Bytes most = 0;
    if (const std::uint32_t k = classes_.last(); k != BfcClassSet::none)
      for (std::uint32_t c = head_[k]; c != 0; c = all[c].right)
        if (all[c].size > most) most = all[c].size;
    return most;
  }

 private:
  template <class Fits>
  [[nodiscard]] std::uint32_t find_in(BfcChunk* all, std::uint32_t k, Bytes least, Bytes most, Fits& fits) const noexcept {
    for (std::uint32_t c = head_[k]; c != 0; c = all[c].right)
      if (all[c].size >= least && all[c].size <= most && fits(all[c])) return c;
    return 0;
  }
  std::uint32_t head_[bfc_classes] = {};
  BfcClassSet classes_;
};

}  // namespace holdfast::detail
