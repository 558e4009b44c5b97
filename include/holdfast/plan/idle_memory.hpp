// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "holdfast/plan/buffers.hpp"

namespace holdfast {

/// Puts temporaries into memory that is there anyway and idle at times: outputs before they are computed,
/// donated parameters after their last use.
///
/// As long as one of the temporaries alive at the moment of the highest load fits somewhere, the largest
/// such moves there; what does not lower the peak stays in the arena. Cost: O(log n) a temporary and a look
/// at its operands' slots and `max_tries` others. Source: XLA BufferAssigner (passes.md 9.2), which fills slots by size
/// alone and puts one buffer at a time into each.
class IdleMemory {
 public:
  /// Memory with a life of its own, and who else lives in it.
  struct Slot {
    ValueId owner{};
    Bytes size = 0;
    struct Tenant {
      ValueId root{};
      Bytes offset = 0;
      Bytes size = 0;
    };
    std::vector<Tenant> tenants;
  };
  /// A temporary.
  struct Item {
    ValueId root{};
    Bytes size = 0;
    bool movable = true;
  };
  static constexpr std::uint32_t none = 0xFFFFFFFFu;
  static constexpr std::size_t max_tries = 4096;

  /// `locations` has the owners' places; those of the temporaries that move are written there.
  constexpr IdleMemory(BufferSet& buffers, std::vector<Location>& locations, std::uint32_t steps, Bytes alignment)
      : set_(buffers), locations_(locations), alignment_(alignment) {
    while (leaves_ < steps + 1) leaves_ *= 2;
  }

  /// Fills the slots with items, all of one memory space.
  constexpr void fill(std::vector<Slot>& slots, std::vector<Item>& items) {
    if (slots.empty() || items.empty()) return;
    std::sort(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) { return a.size != b.size ? a.size < b.size : a.owner < b.owner; });
    std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.size != b.size ? a.size > b.size : a.root < b.root; });
    load_.assign(2 * leaves_, 0);
    most_.assign(2 * leaves_, 0);
    alive_.assign(2 * leaves_, {});
    cursor_.assign(2 * leaves_, 0);
    std::vector<char> tried(items.size(), 0);
    slot_of_.clear();
    for (std::uint32_t k = 0; k < slots.size(); ++k) slot_of_.push_back({locations_[index_of(slots[k].owner)].index, k});
    std::sort(slot_of_.begin(), slot_of_.end());
    for (std::uint32_t k = 0; k < items.size(); ++k)
      for (const BufferPiece& p : set_.pieces(items[k].root)) add(p, items[k].size, k);
    for (;;) {
      const std::uint32_t k = largest_at(peak_step(), tried);
      if (k == none) return;
      tried[k] = 1;
      Item& item = items[k];
      if (!item.movable || !find_slot(slots, item)) continue;
      for (const BufferPiece& p : set_.pieces(item.root)) add(p, -item.size, none);
    }
  }

 private:
  BufferSet& set_;
  std::vector<Location>& locations_;
  Bytes alignment_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> slot_of_;  // by anchor: its slot
  std::size_t leaves_ = 1;
  std::vector<Bytes> load_;  // segment tree over steps: what a node adds to all below it
  std::vector<Bytes> most_;  // and the highest sum below it
  std::vector<std::vector<std::uint32_t>> alive_;  // items that cover a node whole, largest first
  std::vector<std::uint32_t> cursor_;

  constexpr void add(const BufferPiece& p, Bytes size, std::uint32_t item) {
    std::size_t lo = leaves_ + p.begin;
    std::size_t hi = leaves_ + p.end;
    const auto touch = [&](std::size_t node) {
      load_[node] += size;
      most_[node] += size;
      if (item != none) alive_[node].push_back(item);
    };
    const std::size_t first = lo;
    const std::size_t last = hi - 1;
    for (; lo < hi; lo /= 2, hi /= 2) {
      if ((lo & 1) != 0) touch(lo++);
      if ((hi & 1) != 0) touch(--hi);
    }
    for (const std::size_t leaf : {first, last})
      for (std::size_t node = leaf / 2; node >= 1; node /= 2) most_[node] = load_[node] + std::max(most_[2 * node], most_[2 * node + 1]);
  }
  constexpr std::size_t peak_step() const noexcept {
    std::size_t node = 1;
    while (node < leaves_) node = most_[2 * node] >= most_[2 * node + 1] ? 2 * node : 2 * node + 1;
    return node;
  }
  constexpr std::uint32_t largest_at(std::size_t leaf, const std::vector<char>& tried) noexcept {
    std::uint32_t best = none;
    for (std::size_t node = leaf; node >= 1; node /= 2) {
      std::uint32_t& at = cursor_[node];
      while (at < alive_[node].size() && tried[alive_[node][at]] != 0) ++at;
      if (at < alive_[node].size()) best = std::min(best, alive_[node][at]);
    }
    return best;
  }

  /// Moves an item into the memory of an operand, or else into the least slot that holds it, there
  /// where least time before and after is lost.
  constexpr bool find_slot(std::vector<Slot>& slots, Item& item) {
    bool found = false;
    set_.for_each_operand(item.root, [&](ValueId operand) {
      const Location& l = locations_[index_of(operand)];
      if (found || (l.base != Location::Base::result && l.base != Location::Base::parameter)) return;
      const auto at = std::lower_bound(slot_of_.begin(), slot_of_.end(), std::pair{l.index, 0u});
      found = at != slot_of_.end() && at->first == l.index && try_slot(slots[at->second], item);
    });
    auto slot = std::lower_bound(slots.begin(), slots.end(), item.size, [](const Slot& s, Bytes size) { return s.size < size; });
    std::size_t tries = 0;
    while (!found && slot != slots.end() && tries < max_tries) {
      auto best = slots.end();
      std::uint64_t least = ~std::uint64_t{0};
      const Bytes size = slot->size;
      for (; slot != slots.end() && slot->size == size && tries < max_tries; ++slot, ++tries)
        if (place(*slot, item) >= 0)
          if (const std::uint64_t rest = idle_around(*slot, item); rest < least) least = rest, best = slot;
      found = best != slots.end() && try_slot(*best, item);
    }
    return found;
  }
  constexpr bool try_slot(Slot& slot, const Item& item) {
    const Bytes offset = item.size <= slot.size ? place(slot, item) : -1;
    if (offset < 0) return false;
    slot.tenants.push_back({item.root, offset, item.size});
    locations_[index_of(item.root)] = locations_[index_of(slot.owner)];
    locations_[index_of(item.root)].offset = offset;
    return true;
  }
  /// The lowest offset at which an item fits into a slot; -1 for none.
  constexpr Bytes place(const Slot& slot, const Item& item) {
    const auto life = set_.pieces(item.root);
    const bool whole = item.size == slot.size;  // only then may it hand over to the owner in one step
    if (whole ? !set_.compatible(life, set_.pieces(slot.owner)) : !disjoint(life, set_.pieces(slot.owner))) return -1;
    busy_.clear();
    for (const Slot::Tenant& t : slot.tenants) {
      const bool same = whole && t.size == item.size;
      if (same ? !set_.compatible(life, set_.pieces(t.root)) : !disjoint(life, set_.pieces(t.root))) busy_.push_back({t.offset, t.offset + t.size});
    }
    std::sort(busy_.begin(), busy_.end(), [](const Taken& a, const Taken& b) { return a.begin < b.begin; });
    Bytes at = 0;
    for (const Taken& b : busy_) {
      if (at + item.size <= b.begin) break;
      at = std::max(at, align_up(b.end, alignment_));
    }
    return at <= slot.size - item.size ? at : -1;
  }
  /// How long a slot's memory is idle before and after an item's life, until its next user.
  constexpr std::uint64_t idle_around(const Slot& slot, const Item& item) const noexcept {
    const auto life = set_.pieces(item.root);
    std::uint32_t before = 0;
    std::uint32_t after = static_cast<std::uint32_t>(leaves_);
    const auto look = [&](std::span<const BufferPiece> other) {
      const auto next = std::lower_bound(other.begin(), other.end(), life.back().end, [](const BufferPiece& p, std::uint32_t s) { return p.begin < s; });
      if (next != other.end()) after = std::min(after, next->begin);
      const auto last = std::lower_bound(other.begin(), other.end(), life.front().begin, [](const BufferPiece& p, std::uint32_t s) { return p.end <= s; });
      if (last != other.begin()) before = std::max(before, std::prev(last)->end);
    };
    look(set_.pieces(slot.owner));
    for (const Slot::Tenant& t : slot.tenants) look(set_.pieces(t.root));
    return std::uint64_t{life.front().begin} - std::min(before, life.front().begin) + after - std::min(after, life.back().end);
  }
  static constexpr bool disjoint(std::span<const BufferPiece> a, std::span<const BufferPiece> b) noexcept {
    if (a.size() > b.size()) std::swap(a, b);
    for (const BufferPiece& x : a) {
      const auto y = std::lower_bound(b.begin(), b.end(), x.begin, [](const BufferPiece& p, std::uint32_t s) { return p.end <= s; });
      if (y != b.end() && y->begin < x.end) return false;
    }
    return true;
  }
  struct Taken {
    Bytes begin = 0, end = 0;
  };
  std::vector<Taken> busy_;
};

}  // namespace holdfast
