// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/backend/simulated/watch.hpp"
#include "holdfast/core/types.hpp"

namespace holdfast {

/// One operation at the bytes it touched: whose it was, which of that actor's, what it did.
struct AccessSite {
  std::string_view operation;            ///< its name
  ActorId actor = no_id<ActorId>;        ///< none: there was no such access
  Touch touch = Touch::read;
  std::uint64_t number = 0;              ///< the actor's operations counted from 1

  [[nodiscard]] constexpr bool exists() const noexcept { return actor != no_id<ActorId>; }
  friend constexpr bool operator==(const AccessSite& a, const AccessSite& b) noexcept {
    return a.actor == b.actor && a.number == b.number && a.touch == b.touch;
  }
};

/// The accesses that later ones to the same bytes must be ordered after.
struct LastAccess {
  std::vector<AccessSite> sites;  ///< since the bytes were freed, without those that a later one stands for
  AccessSite freed;               ///< the last release, kept after the bytes were allocated anew
  bool is_free = false;

  friend bool operator==(const LastAccess&, const LastAccess&) noexcept = default;
};

/// The last accesses of all bytes, kept by ranges: a range is split where an access begins or ends, and merged with an
/// equal neighbour afterwards.
///
/// Threads: as any container. Cost: logarithmic, and linear in the ranges that an access covers.
class AccessMap {
 public:
  /// Calls `visit(Block, LastAccess&)` for each range of a block, in order; untouched bytes have an empty record.
  template <class Visit>
  void visit(Block block, Visit visitor) noexcept {
    if (block.size <= 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(block.data);
    const std::uintptr_t end = begin + static_cast<std::uintptr_t>(block.size);
    split(begin);
    split(end);
    auto at = ranges_.lower_bound(begin);
    for (std::uintptr_t from = begin; from < end; ++at) {
      if (at == ranges_.end() || at->first > from) {
        const std::uintptr_t gap_end = at == ranges_.end() || at->first > end ? end : at->first;
        at = ranges_.emplace_hint(at, from, Range{gap_end, {}});
      }
      visitor(Block{block.data + (from - begin), static_cast<Bytes>(at->second.end - from)}, at->second.last);
      from = at->second.end;
    }
    merge(begin, end);
  }
  /// The ranges kept now. Units: count.
  [[nodiscard]] std::size_t size() const noexcept { return ranges_.size(); }

 private:
  struct Range {
    std::uintptr_t end;
    LastAccess last;
  };

  void split(std::uintptr_t at) noexcept {
    auto after = ranges_.lower_bound(at);
    if (after == ranges_.begin()) return;
    auto before = std::prev(after);
    if (before->second.end <= at) return;
    ranges_.emplace_hint(after, at, before->second);
    before->second.end = at;
  }
  void merge(std::uintptr_t begin, std::uintptr_t end) noexcept {
    auto at = ranges_.lower_bound(begin);
    if (at != ranges_.begin()) --at;
    while (at != ranges_.end() && at->first <= end) {
      auto next = std::next(at);
      if (next == ranges_.end()) return;
      if (at->second.end == next->first && at->second.last == next->second.last) {
        at->second.end = next->second.end;
        ranges_.erase(next);
      } else {
        at = next;
      }
    }
  }

  std::map<std::uintptr_t, Range> ranges_;
};

}  // namespace holdfast
