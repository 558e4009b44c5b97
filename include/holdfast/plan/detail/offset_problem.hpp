// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"
#include "holdfast/plan/live_range.hpp"
#include "holdfast/plan/offset_planner.hpp"

namespace holdfast::detail {

/// The checked form of an `OffsetProblem`, from which every planner starts: what each group needs.
struct OffsetInput {
  std::span<const LiveRange> ranges;
  std::vector<std::uint32_t> first;   ///< the ranges of group g are `member[first[g] .. first[g + 1])`
  std::vector<std::uint32_t> member;  ///< ranges that need something, by group, then time
  std::vector<std::uint32_t> by_begin;
  std::vector<std::uint32_t> by_end;
  /// Of each group: the least common multiple of its ranges' alignments, 0 where it needs nothing; empty where all are `unit`.
  std::vector<Bytes> alignments;
  Bytes unit = 1;                 ///< divides every alignment
  std::vector<Bytes> fixed;       ///< of each group: its decided offset or -1; empty where none is decided
  Bytes lower_bound = 0;
  Bytes fixed_end = 0;  ///< highest end of a fixed group
  Bytes room = 0;       ///< what the sizes, alignments and fixed ends of all together leave of 2^63
  bool any_fixed = false;

  constexpr ~OffsetInput() = default;  // spelled: nvcc 13.0 takes a class with a span and a vector for no literal type

  [[nodiscard]] constexpr std::uint32_t group_count() const noexcept {
    return static_cast<std::uint32_t>(first.size() - 1);
  }
  [[nodiscard]] constexpr std::span<const std::uint32_t> members(std::uint32_t group) const noexcept {
    return {member.data() + first[group], member.data() + first[group + 1]};
  }
  [[nodiscard]] constexpr bool is_fixed(std::uint32_t group) const noexcept { return any_fixed && fixed[group] >= 0; }
  /// Of a group that needs something.
  [[nodiscard]] constexpr Bytes alignment(std::uint32_t group) const noexcept {
    return alignments.empty() ? unit : alignments[group];
  }
  /// The largest size among a group's ranges; 0: the group needs nothing.
  [[nodiscard]] constexpr Bytes size(std::uint32_t group) const noexcept {
    Bytes most = 0;
    for (const std::uint32_t r : members(group)) most = std::max(most, ranges[r].size);
    return most;
  }
};

/// Tells whether a range needs bytes at any time.
[[nodiscard]] constexpr bool needs_bytes(const LiveRange& range) noexcept {
  return range.begin < range.end && range.size > 0;
}

/// Sorts range numbers by a time of theirs, stably: by digits where there are many.
///
/// Cost: O(n) for n much larger than the logarithm of the time span.
template <class Time>
constexpr void sort_by_time(std::vector<std::uint32_t>& order, const Time& time) {
  if (order.size() < 512) {
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return time(a) != time(b) ? time(a) < time(b) : a < b;
    });
    return;
  }
  std::int64_t least = time(order[0]);
  std::int64_t most = least;
  bool sorted = true;
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::int64_t t = time(order[i]);
    sorted = sorted && time(order[i - 1]) <= t;
    least = std::min(least, t);
    most = std::max(most, t);
  }
  if (sorted) return;
  const std::uint64_t span = static_cast<std::uint64_t>(most) - static_cast<std::uint64_t>(least);
  const auto key = [&](std::uint32_t r) {
    return static_cast<std::uint64_t>(time(r)) - static_cast<std::uint64_t>(least);
  };
  std::vector<std::uint32_t> other(order.size(), 0);
  std::vector<std::uint32_t> count(2049, 0);
  for (unsigned shift = 0; shift < 64 && (span >> shift) != 0; shift += 11) {
    std::fill(count.begin(), count.end(), 0u);
    for (const std::uint32_t r : order) ++count[((key(r) >> shift) & 2047) + 1];
    for (std::size_t i = 1; i < count.size(); ++i) count[i] += count[i - 1];
    for (const std::uint32_t r : order) other[count[(key(r) >> shift) & 2047]++] = r;
    order.swap(other);
  }
}

/// The largest sum of live sizes, every live block but the topmost rounded up to the common alignment.
[[nodiscard]] constexpr Bytes load_bound(const OffsetInput& in) {
  struct Loss {
    Bytes bytes;
    std::int64_t end;
  };
  // What the topmost block saves is the largest rounding loss among the live; the dead leave the heap when they surface.
  std::vector<Loss> losses;
  const auto less = [](const Loss& a, const Loss& b) { return a.bytes < b.bytes; };
  Bytes load = 0;
  Bytes bound = 0;
  std::size_t ended = 0;
  for (std::size_t i = 0; i < in.by_begin.size(); ++i) {
    const LiveRange& range = in.ranges[in.by_begin[i]];
    for (; ended < in.by_end.size() && in.ranges[in.by_end[ended]].end <= range.begin; ++ended)
      load -= align_up(in.ranges[in.by_end[ended]].size, in.unit);
    const Bytes rounded = align_up(range.size, in.unit);
    load += rounded;
    const Loss loss{rounded - range.size, range.end};
    if (loss.bytes > 0 && (losses.empty() || loss.bytes > losses.front().bytes || loss.end > losses.front().end)) {
      losses.push_back(loss);
      std::push_heap(losses.begin(), losses.end(), less);
    }
    if (load <= bound) continue;
    while (!losses.empty() && losses.front().end <= range.begin) {
      std::pop_heap(losses.begin(), losses.end(), less);
      losses.pop_back();
    }
    bound = std::max(bound, load - (losses.empty() ? 0 : losses.front().bytes));
  }
  return bound;
}

/// Cuts time into sections, one for each largest set of ranges alive together, and gives each range's, `[left, right)`.
///
/// Two ranges overlap in time exactly when they share a section. Returns the number of sections. Cost: O(n).
constexpr std::uint32_t make_sections(const OffsetInput& in, std::vector<std::uint32_t>& left,
                                      std::vector<std::uint32_t>& right) {
  left.assign(in.ranges.size(), 0);
  right.assign(in.ranges.size(), 0);
  std::uint32_t count = 0;
  bool ended = true;
  std::size_t e = 0;
  for (const std::uint32_t r : in.by_begin) {
    for (; e < in.by_end.size() && in.ranges[in.by_end[e]].end <= in.ranges[r].begin; ++e) {
      right[in.by_end[e]] = count;
      ended = true;
    }
    if (ended) ++count;
    ended = false;
    left[r] = count - 1;
  }
  for (; e < in.by_end.size(); ++e) right[in.by_end[e]] = count;
  return count;
}

/// Checks a problem and brings it into the planners' form.
///
/// Errors: as `offset_planner` lists them, but for fixed offsets that clash. Cost: O(n log n).
[[nodiscard]] constexpr Error prepare_offsets(const OffsetProblem& problem, std::size_t offset_count, OffsetInput& in) {
  const auto wrong = [](const char* what, std::uint64_t at) {
    Error e = make_error(Errc::invalid_argument, what);
    e.stage = Stage::plan;
    e.at_kind = AtKind::argument;
    e.at = at;
    return e;
  };
  if (offset_count != problem.group_count) return wrong("one offset a group is needed", offset_count);
  if (problem.ranges.size() > 0x7FFFFFFFu) return wrong("more live ranges than 2^31 - 1", problem.ranges.size());
  if (problem.capacity < 0) return wrong("the capacity is negative", 0);
  in.ranges = problem.ranges;
  in.first.assign(static_cast<std::size_t>(problem.group_count) + 1, 0);
  if (!problem.fixed.empty()) in.fixed.assign(problem.group_count, -1);
  Bytes sum = 0;
  Bytes alike = 0;  // the alignment of all, as far as they have been seen
  std::size_t used = 0;
  for (std::size_t i = 0; i < problem.ranges.size(); ++i) {
    const LiveRange& r = problem.ranges[i];
    if (r.group >= problem.group_count) return wrong("a live range names a group that does not exist", i);
    if (r.size < 0) return wrong("a live range has a negative size", i);
    if (r.alignment <= 0) return wrong("a live range has an alignment below 1", i);
    if (r.begin > r.end) return wrong("a live range ends before it begins", i);
    if (!needs_bytes(r)) continue;
    ++used;
    ++in.first[r.group + 1];
    if (alike == 0) alike = r.alignment;
    if (in.alignments.empty() && r.alignment != alike) {
      in.alignments.assign(problem.group_count, 0);
      for (std::size_t k = 0; k < i; ++k)
        if (needs_bytes(problem.ranges[k])) in.alignments[problem.ranges[k].group] = alike;
    }
    Bytes& a = in.alignments.empty() ? alike : in.alignments[r.group];
    if (a == 0) a = r.alignment;
    if (a != r.alignment && a % r.alignment != 0 && !checked_multiply(a, r.alignment / std::gcd(a, r.alignment), a)) a = -1;
    if (a < 0 || !checked_add(sum, r.size, sum) || !checked_add(sum, a - 1, sum)) {
      Error e = make_error(Errc::over_budget, "the sizes of all blocks together pass 2^63 bytes");
      e.stage = Stage::plan;
      return e;
    }
  }
  for (std::size_t g = 1; g < in.first.size(); ++g) in.first[g] += in.first[g - 1];
  in.member.assign(used, 0);
  in.by_begin.assign(used, 0);
  std::size_t next = 0;
  for (std::size_t i = 0; i < problem.ranges.size(); ++i)
    if (needs_bytes(problem.ranges[i])) in.by_begin[next++] = static_cast<std::uint32_t>(i);
  in.by_end = in.by_begin;
  sort_by_time(in.by_begin, [&](std::uint32_t r) { return problem.ranges[r].begin; });
  sort_by_time(in.by_end, [&](std::uint32_t r) { return problem.ranges[r].end; });
  {
    std::vector<std::uint32_t> fill(in.first.begin(), in.first.end() - 1);
    for (const std::uint32_t r : in.by_begin) {
      const std::uint32_t g = problem.ranges[r].group;
      if (fill[g] != in.first[g] && problem.ranges[in.member[fill[g] - 1]].end > problem.ranges[r].begin)
        return wrong("two live ranges of one group overlap in time", r);
      in.member[fill[g]++] = r;
    }
  }
  for (std::size_t i = 0; i < problem.fixed.size(); ++i) {
    const FixedOffset& f = problem.fixed[i];
    if (f.group >= problem.group_count) return wrong("a fixed offset names a group that does not exist", i);
    if (f.offset < 0) return wrong("a fixed offset is negative", i);
    if (in.fixed[f.group] >= 0 && in.fixed[f.group] != f.offset) return wrong("a group has two fixed offsets", i);
    const Bytes size = in.size(f.group);
    if (size == 0) continue;
    if (f.offset % (in.alignments.empty() ? alike : in.alignments[f.group]) != 0) return wrong("a fixed offset is not aligned", i);
    in.fixed[f.group] = f.offset;
    in.any_fixed = true;
    Bytes end = 0;
    if (!checked_add(f.offset, size, end) || !checked_add(end, sum, sum)) {
      Error e = make_error(Errc::over_budget, "the sizes of all blocks together pass 2^63 bytes");
      e.stage = Stage::plan;
      return e;
    }
    in.fixed_end = std::max(in.fixed_end, end);
  }
  Bytes unit = in.alignments.empty() ? alike : 0;
  for (const Bytes a : in.alignments)
    if (a != unit) unit = std::gcd(unit, a);
  in.unit = std::max<Bytes>(unit, 1);
  in.room = max_bytes - sum;
  in.lower_bound = std::max(load_bound(in), in.fixed_end);
  return {};
}

/// The highest end of any range.
[[nodiscard]] constexpr Bytes highest_end(const OffsetInput& in, std::span<const Bytes> offsets) noexcept {
  Bytes peak = 0;
  for (const std::uint32_t r : in.member) peak = std::max(peak, offsets[in.ranges[r].group] + in.ranges[r].size);
  return peak;
}

/// Writes the plan's figures once every group has its offset.
[[nodiscard]] constexpr Result<OffsetPlan> finish_offsets(const OffsetProblem& problem, Bytes lower_bound,
                                                          std::span<const Bytes> offsets) {
  OffsetPlan plan;
  plan.lower_bound = lower_bound;
  for (const LiveRange& r : problem.ranges)
    if (needs_bytes(r)) plan.peak = std::max(plan.peak, offsets[r.group] + r.size);
  plan.proven_optimal = plan.peak == plan.lower_bound;
  if (plan.peak <= problem.capacity) return plan;
  Error e = make_error(Errc::infeasible, plan.lower_bound > problem.capacity
                                             ? "no plan fits: the blocks alive together are larger than the capacity"
                                             : "no plan within the capacity was found; one may exist");
  e.stage = Stage::plan;
  e.requested = plan.peak;
  e.available = problem.capacity;
  return e;
}

}  // namespace holdfast::detail
