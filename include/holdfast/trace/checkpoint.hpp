// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/core/hash.hpp"
#include "holdfast/core/hash_table.hpp"
#include "holdfast/trace/live_set.hpp"

namespace holdfast {

/// What blocks of one group share: whose they are, where they were allocated, how large they are.
///
/// Tags are the same by their name's address and their number: names are literals.
struct LiveGroupKey {
  Tag tag;
  StackId stack = no_id<StackId>;
  std::uint32_t size_class = 0;  ///< sizes from 2^(n-1) to 2^n - 1

  [[nodiscard]] static LiveGroupKey of(const LiveBlock& b) noexcept {
    return {b.tag, b.stack,
            static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint64_t>(b.block.size)))};
  }
  [[nodiscard]] std::uint64_t hash() const noexcept {
    const std::uint64_t h = mix_hash(reinterpret_cast<std::uintptr_t>(tag.name), tag.number);
    return mix_hash(h, std::uint64_t{index_of(stack)} << 32 | size_class);
  }
  friend bool operator==(const LiveGroupKey& a, const LiveGroupKey& b) noexcept {
    return a.tag.name == b.tag.name && a.tag.number == b.tag.number && a.stack == b.stack &&
           a.size_class == b.size_class;
  }
};

/// The live blocks of one group.
///
/// Units: `bytes` and `blocks` are unbiased estimates with sampling, exact without.
struct LiveGroup {
  LiveGroupKey key;
  double bytes = 0;
  double blocks = 0;
  Bytes smallest = 0;
  Bytes largest = 0;
  std::uint64_t first = 0;       ///< event of the oldest allocation
  std::uint32_t first_step = 0;  ///< its step

  [[nodiscard]] bool is_used() const noexcept { return first != 0; }
  [[nodiscard]] bool is_same(const LiveGroup& other) const noexcept { return key == other.key; }
  [[nodiscard]] std::uint64_t hash() const noexcept { return key.hash(); }
};

/// What lived at one moment, in groups. Threads: one.
template <memory_backend Backend>
class Checkpoint {
  static_assert(host_accessible<Backend>, "the host reads and writes what a table holds");

 public:
  /// Takes it. Errors: out_of_memory (of the backend, which the set does not observe).
  /// Cost: linear in the set's capacity; events wait meanwhile.
  template <class Set>
  [[nodiscard]] static Result<Checkpoint> take(const Set& set, Backend backend = {}) noexcept {
    Checkpoint c(std::move(backend));
    bool complete = true;
    set.visit(
        [&](const LiveBlock& b) { complete = c.add(b, set.weight(b.block.size)) && complete; });
    if (!complete) return make_error(Errc::out_of_memory, "no memory for a checkpoint");
    c.step_ = set.step();
    return c;
  }

  /// The step at which it was taken.
  [[nodiscard]] std::uint32_t step() const noexcept { return step_; }
  [[nodiscard]] std::size_t count() const noexcept { return groups_.count(); }
  /// Calls `visitor(const LiveGroup&)` for each group, in no order.
  template <class Visitor>
  void visit(Visitor&& visitor) const noexcept {
    groups_.visit(visitor);
  }
  /// The group of a key; with no blocks where there is none.
  [[nodiscard]] LiveGroup group(const LiveGroupKey& key) const noexcept {
    const LiveGroup* const g = groups_.find({key, 0, 0, 0, 0, 0, 0});
    return g != nullptr ? *g : LiveGroup{key, 0, 0, 0, 0, 0, 0};
  }

 private:
  explicit Checkpoint(Backend backend) noexcept : groups_(std::move(backend)) {}

  [[nodiscard]] bool add(const LiveBlock& b, double weight) noexcept {
    const LiveGroup one{LiveGroupKey::of(b),
                        weight * static_cast<double>(b.block.size),
                        weight,
                        b.block.size,
                        b.block.size,
                        b.allocated,
                        b.step};
    LiveGroup* const g = groups_.find(one);
    if (g == nullptr) return groups_.insert(one) != nullptr;
    g->bytes += one.bytes;
    g->blocks += one.blocks;
    g->smallest = std::min(g->smallest, one.smallest);
    g->largest = std::max(g->largest, one.largest);
    if (one.first < g->first) g->first = one.first, g->first_step = one.first_step;
    return true;
  }

  HashTable<LiveGroup, Backend> groups_;
  std::uint32_t step_ = 0;
};

/// Calls `visitor(const LiveGroup& before, const LiveGroup& after)` for each group that is not the
/// same in two checkpoints; one that was not there has no blocks. Cost: linear in the groups.
template <class Before, class After, class Visitor>
void visit_changes(const Before& before, const After& after, Visitor&& visitor) noexcept {
  after.visit([&](const LiveGroup& now) {
    const LiveGroup then = before.group(now.key);
    if (then.bytes != now.bytes || then.blocks != now.blocks) visitor(then, now);
  });
  before.visit([&](const LiveGroup& then) {
    if (const LiveGroup now = after.group(then.key); !now.is_used()) visitor(then, now);
  });
}

}  // namespace holdfast
