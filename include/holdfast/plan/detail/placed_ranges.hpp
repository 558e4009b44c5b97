// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "holdfast/core/units.hpp"
#include "holdfast/plan/detail/address_strips.hpp"
#include "holdfast/plan/detail/offset_problem.hpp"

namespace holdfast::detail {

/// What is placed so far, as a tree over time.
///
/// Time is cut into buckets of a few ends of ranges each. A bucket keeps what begins or ends within it one by one, by address;
/// a node of the tree keeps the union of what lives anywhere in its time, as strips. What covers a whole node waits there until
/// somebody looks below. Addresses are kept in units of the input; those of `Address` that are too large are refused.
/// Threads: a value. Cost: a step looks at one bucket at each end of a life and at the strips of logarithmically many nodes,
/// which are few where blocks lie close together; memory for 40 bytes a range and the strips, which `crowded` watches.
template <class Address>
class PlacedRanges {
 public:
  /// Units: `bucket_ends` is the most ends of ranges within a bucket; 0 leaves that to what is alive at once.
  constexpr explicit PlacedRanges(const OffsetInput& in, std::size_t bucket_ends = 0) : in_(in) {
    for (const std::uint32_t r : in.member) least_ = std::min(least_, in.ranges[r].size);
    if (in.member.empty()) least_ = 1;
    least_ = in_units(least_);
    make_sections(in, left_, right_);
    bucket_ends_ = bucket_ends != 0 ? bucket_ends : good_bucket_ends();
    cut_time();
    make_buckets();
  }

  /// Tells whether an offset can be kept for a group.
  [[nodiscard]] constexpr bool serves(std::uint32_t group, Bytes offset) const noexcept {
    return offset <= max_bytes - in_.size(group) && in_units(offset + in_.size(group)) <= most;
  }

  /// Forgets everything that is placed.
  constexpr void clear() noexcept {
    std::fill(count_.begin(), count_.end(), 0u);
    for (Node& n : nodes_) {
      n.strips.clear();
      n.below.clear();
    }
  }

  /// Tells whether what is placed takes more than its share of memory. Cost: O(strips).
  [[nodiscard]] constexpr bool crowded() const noexcept {
    std::size_t bytes = placed_.size() * sizeof(Placed);
    for (const Node& n : nodes_) bytes += n.strips.bytes() + n.below.bytes();
    return count_.size() > 1 && bytes > share * in_.member.size();
  }
  /// Forgets everything that is placed and makes do with fewer buckets.
  constexpr void take_fewer_buckets() {
    bucket_ends_ += bucket_ends_ / 2 + 1;
    cut_time();
    make_buckets();
  }

  /// The offset of the lowest gap of `size` bytes that is free whenever the group is alive, or of the `smallest` one.
  [[nodiscard]] constexpr Bytes find(std::uint32_t group, Bytes size, bool smallest) {
    sources_.clear();
    for (const std::uint32_t r : in_.members(group)) look(1, 0, leaves_, r);
    return in_.unit * find(in_units(size), in_.alignment(group) / in_.unit, smallest);
  }

  /// Tells whether nothing that is alive with the group reaches into its bytes at `offset`.
  [[nodiscard]] constexpr bool is_free(std::uint32_t group, Bytes offset) {
    for (const std::uint32_t r : in_.members(group)) {
      sources_.clear();
      look(1, 0, leaves_, r);
      Bytes start = offset / in_.unit;
      if (rise(start, in_units(in_.ranges[r].size), 1); start != offset / in_.unit) return false;
    }
    return true;
  }

  constexpr void insert(std::uint32_t group, Bytes offset) {
    for (const std::uint32_t r : in_.members(group)) put(1, 0, leaves_, r, offset / in_.unit);
  }

  static constexpr Bytes most = std::numeric_limits<Address>::max();

 private:
  struct Placed {
    std::uint32_t left;
    std::uint32_t right;
    Address low;
    Address high;
  };
  struct Node {
    AddressStrips<Address> strips;  ///< an inner node: of all that lives in its time; a leaf: of what covers its time
    AddressStrips<Address> below;   ///< what its children have not been told yet
  };
  /// A list of what may be in the way, walked from low to high.
  struct Source {
    std::uint32_t list;  ///< a node, or a bucket
    bool is_bucket;
    typename AddressStrips<Address>::Cursor cursor;
    std::uint32_t left;
    std::uint32_t right;
    Strip above;
  };

  [[nodiscard]] constexpr Bytes in_units(Bytes bytes) const noexcept { return bytes / in_.unit + (bytes % in_.unit != 0); }

  [[nodiscard]] constexpr Bytes find(Bytes size, Bytes alignment, bool smallest) {
    Bytes start = 0;
    Bytes best = -1;
    Bytes best_length = max_bytes;
    for (;;) {
      const Strip above = rise(start, size, alignment);
      if (!smallest) return start;
      if (above.low == no_more.low) break;
      if (above.low - start < best_length) {
        best = start;
        best_length = above.low - start;
        if (best_length == size) break;
      }
      start = settle(above.high, alignment);
    }
    return best >= 0 ? best : start;
  }

  // A bucket begins where the one before it has enough ends of ranges within; those at its edges do not count.
  constexpr void cut_time() {
    cuts_.clear();
    const std::size_t total = in_.by_begin.size();
    const auto left = [&](std::size_t i) { return left_[in_.by_begin[i]]; };
    const auto right = [&](std::size_t i) { return right_[in_.by_end[i]]; };
    std::size_t inside = 0;
    for (std::size_t b = 0, e = 0; e < total;) {
      const std::uint32_t section = b < total ? std::min(left(b), right(e)) : right(e);
      std::size_t here = 0;
      for (; b < total && left(b) == section; ++b) ++here;
      for (; e < total && right(e) == section; ++e) ++here;
      inside += here;
      if (!cuts_.empty() && inside <= bucket_ends_ && e < total) continue;
      cuts_.push_back(section);
      inside = 0;
    }
    if (cuts_.empty()) cuts_.assign(2, 0u);
  }
  constexpr void make_buckets() {
    std::vector<Placed>().swap(placed_);  // before its successor is made
    nodes_.clear();
    first_.assign(cuts_.size(), 0u);
    count_.assign(cuts_.size() - 1, 0u);
    for (const std::uint32_t r : in_.member) {
      const std::size_t from = bucket_of(left_[r]);
      const std::size_t to = bucket_of(right_[r]);
      const bool begins_within = cuts_[from] != left_[r];
      first_[from + 1] += begins_within;
      if (to + 1 < cuts_.size() && cuts_[to] != right_[r]) first_[to + 1] += to != from || !begins_within;
    }
    for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    placed_.assign(first_.back(), Placed{});
    leaves_ = 1;
    while (leaves_ < count_.size()) leaves_ *= 2;
    nodes_.resize(leaves_ + count_.size());
  }
  [[nodiscard]] constexpr std::size_t bucket_of(std::uint32_t section) const noexcept {
    return static_cast<std::size_t>(std::upper_bound(cuts_.begin(), cuts_.end(), section) - cuts_.begin()) - 1;
  }
  // Long lists of strips make steps between nodes dear: the more is alive at once, the fewer buckets.
  [[nodiscard]] constexpr std::size_t good_bucket_ends() const noexcept {
    const std::size_t total = in_.by_begin.size();
    if (total <= one_bucket) return 2 * total;
    std::size_t most_alive = 0;
    for (std::size_t b = 0, e = 0; b < total; ++b) {
      while (in_.ranges[in_.by_end[e]].end <= in_.ranges[in_.by_begin[b]].begin) ++e;
      most_alive = std::max(most_alive, b + 1 - e);
    }
    std::size_t ends = 128;
    while (ends * ends < 64 * most_alive) ends *= 2;
    return ends;
  }

  // Node `n` is the root of buckets [first, first + width); those past the last one do not exist.
  [[nodiscard]] constexpr std::uint32_t end_of(std::size_t first, std::size_t width) const noexcept {
    return cuts_[std::min(first + width, cuts_.size() - 1)];
  }

  constexpr void tell(std::size_t n, const Strip& strip) {
    nodes_[n].strips.add(strip, least_);
    if (n < leaves_) nodes_[n].below.add(strip, least_);
  }
  constexpr void tell_below(std::size_t n, std::size_t first, std::size_t width) {
    nodes_[n].below.each([&](const Strip& s) {
      tell(2 * n, s);
      if (first + width / 2 < count_.size()) tell(2 * n + 1, s);
    });
    nodes_[n].below.clear();
  }

  constexpr void put(std::size_t n, std::size_t first, std::size_t width, std::uint32_t r, Bytes low) {
    if (first >= count_.size() || right_[r] <= cuts_[first] || left_[r] >= end_of(first, width)) return;
    const Bytes high = low + in_units(in_.ranges[r].size);
    if (left_[r] <= cuts_[first] && right_[r] >= end_of(first, width)) return tell(n, {low, high});
    if (width == 1) {
      const auto from = placed_.begin() + first_[first];
      const auto to = from + count_[first]++;
      const auto at = std::upper_bound(from, to, low, [](Bytes a, const Placed& b) { return a < b.low; });
      std::move_backward(at, to, to + 1);
      *at = Placed{left_[r], right_[r], static_cast<Address>(low), static_cast<Address>(high)};
      return;
    }
    nodes_[n].strips.add({low, high}, least_);
    put(2 * n, first, width / 2, r, low);
    put(2 * n + 1, first + width / 2, width / 2, r, low);
  }

  // Lists all that is alive with a range.
  constexpr void look(std::size_t n, std::size_t first, std::size_t width, std::uint32_t r) {
    if (first >= count_.size() || right_[r] <= cuts_[first] || left_[r] >= end_of(first, width)) return;
    const bool covers = left_[r] <= cuts_[first] && right_[r] >= end_of(first, width);
    if (width == 1 || covers) add_source(static_cast<std::uint32_t>(n), false, r);
    if (width == 1) add_source(static_cast<std::uint32_t>(first), true, r);
    if (width == 1 || covers) return;
    tell_below(n, first, width);
    look(2 * n, first, width / 2, r);
    look(2 * n + 1, first + width / 2, width / 2, r);
  }
  constexpr void add_source(std::uint32_t list, bool is_bucket, std::uint32_t r) {
    if (is_bucket ? count_[list] != 0 : !nodes_[list].strips.empty())
      sources_.push_back({list, is_bucket, {}, left_[r], right_[r], {0, 0}});
  }

  // Raises `start` to where `size` units are free and gives what is above them.
  constexpr Strip rise(Bytes& start, Bytes size, Bytes alignment) {
    std::size_t agreed = 0;
    for (std::size_t i = 0; agreed < sources_.size(); i = i + 1 < sources_.size() ? i + 1 : 0) {
      Source& s = sources_[i];
      ++agreed;
      if (s.above.low > start && s.above.low - start >= size) continue;
      const Bytes before = start;
      s.above = s.is_bucket ? rise_in_bucket(s, start, size, alignment)
                            : nodes_[s.list].strips.rise(s.cursor, start, size, alignment);
      if (start != before) agreed = 1;
    }
    Strip above = no_more;
    for (const Source& s : sources_)
      if (s.above.low < above.low) above = s.above;
    return above;
  }
  // Whether a block is alive is up to chance, so the walk does not branch on it.
  constexpr Strip rise_in_bucket(Source& s, Bytes& start, Bytes size, Bytes alignment) const noexcept {
    const std::uint32_t left = s.left;
    const std::uint32_t right = s.right;
    const std::size_t end = first_[s.list] + count_[s.list];
    std::size_t i = first_[s.list] + s.cursor.strip;
    Bytes top = start;
    Strip above = no_more;
    for (; i < end; ++i) {
      const Placed& p = placed_[i];
      const Bytes alive = Bytes{p.left < right} & Bytes{p.right > left};
      const Bytes high = Bytes{p.high} & -alive;
      if (((p.low - top >= size) & (high > top)) != 0) {
        start = settle(top, alignment);
        if (p.low - start >= size) {
          above = {Bytes{p.low}, Bytes{p.high}};
          break;
        }
      }
      top = std::max(top, high);
    }
    s.cursor.strip = static_cast<std::uint32_t>(i - first_[s.list]);
    start = settle(top, alignment);
    return above;
  }

  static constexpr Strip no_more = AddressStrips<Address>::no_more;
  static constexpr std::size_t one_bucket = 256;
  static constexpr std::size_t share = sizeof(Address) == 4 ? 66 : 60;  // bytes a range for buckets and strips

  const OffsetInput& in_;
  Bytes least_ = max_bytes;  // no block is smaller; in units
  std::vector<std::uint32_t> left_, right_;  // sections of each range
  std::size_t bucket_ends_ = 0;
  std::vector<std::uint32_t> cuts_;          // bucket i is [cuts_[i], cuts_[i + 1])
  std::vector<std::uint32_t> first_;         // its blocks begin at placed_[first_[i]]
  std::vector<std::uint32_t> count_;
  std::vector<Placed> placed_;
  std::size_t leaves_ = 1;
  std::vector<Node> nodes_;
  std::vector<Source> sources_;
};

}  // namespace holdfast::detail
