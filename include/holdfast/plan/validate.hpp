// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"
#include "holdfast/plan/live_range.hpp"

namespace holdfast {

/// What a checker makes of a value that is last read in the step that first writes another.
enum class TouchRule : std::uint8_t {
  apart,          ///< ranges that overlap in time never share a byte
  same_slice_ok,  ///< two that overlap in that one step only may be the very same slice
};

/// Checks offsets against the problem they answer, by a sweep of its own.
///
/// Returns ok, or what is wrong first: `at` is the group at fault.
/// Errors: invalid_argument (a bad problem, no offset for a group, negative or unaligned, a fixed one ignored,
/// two ranges that share a byte), over_budget (an end passes the capacity). Cost: O(n log n).
[[nodiscard]] constexpr Error validate_offsets(const OffsetProblem& problem, std::span<const Bytes> offsets,
                                               TouchRule touch = TouchRule::apart) {
  const auto fault = [](Errc code, const char* what, std::uint64_t group) {
    Error e = make_error(code, what);
    e.stage = Stage::verify;
    e.at_kind = AtKind::argument;
    e.at = group;
    return e;
  };
  struct Slice {
    Bytes low;
    Bytes high;
    std::int64_t begin;
    std::int64_t end;
    std::uint32_t group;
  };
  if (offsets.size() != problem.group_count)
    return fault(Errc::invalid_argument, "the plan has not one offset a group", offsets.size());
  std::vector<Slice> slices;
  slices.reserve(problem.ranges.size());
  for (const LiveRange& r : problem.ranges) {
    if (r.group >= problem.group_count || r.size < 0 || r.alignment < 1 || r.end < r.begin)
      return fault(Errc::invalid_argument, "a live range is malformed", r.group);
    if (r.size == 0 || r.begin == r.end) continue;
    const Bytes low = offsets[r.group];
    if (low < 0) return fault(Errc::invalid_argument, "an offset is negative", r.group);
    if (low % r.alignment != 0) return fault(Errc::invalid_argument, "an offset is not aligned", r.group);
    if (r.size > problem.capacity || low > problem.capacity - r.size)
      return fault(Errc::over_budget, "a block ends beyond the capacity", r.group);
    slices.push_back({low, low + r.size, r.begin, r.end, r.group});
  }
  if (!problem.fixed.empty()) {
    std::vector<bool> used(problem.group_count, false);
    for (const Slice& s : slices) used[s.group] = true;
    for (const FixedOffset& f : problem.fixed) {
      if (f.group >= problem.group_count) return fault(Errc::invalid_argument, "a fixed offset is malformed", f.group);
      if (used[f.group] && offsets[f.group] != f.offset)
        return fault(Errc::invalid_argument, "a fixed offset is not kept", f.group);
    }
  }
  std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
    if (a.low != b.low) return a.low < b.low;
    if (a.high != b.high) return a.high < b.high;
    if (a.begin != b.begin) return a.begin < b.begin;
    return a.group < b.group;
  });
  if (touch == TouchRule::same_slice_ok)
    // The operand gives its last step to the result that takes over its slice: then they only meet.
    for (std::size_t i = 1; i < slices.size(); ++i) {
      Slice& before = slices[i - 1];
      const Slice& after = slices[i];
      if (before.low == after.low && before.high == after.high && before.begin < after.begin &&
          before.end - 1 == after.begin)
        --before.end;
    }
  // By rising low end, each slice is checked against the highest end so far within its life: a maximum over time
  // sections, kept in a tree whose `all` is the least known to hold for a whole node.
  std::vector<std::int64_t> times;
  times.reserve(slices.size());
  for (const Slice& s : slices) times.push_back(s.begin);
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  std::size_t leaves = 1;
  while (leaves < times.size()) leaves *= 2;
  struct Node {
    Bytes some = 0;  ///< highest end anywhere below
    Bytes all = 0;   ///< highest end that covers all of the node
  };
  std::vector<Node> tree(2 * leaves, Node{});
  const auto section = [&](std::int64_t time) {
    return static_cast<std::size_t>(std::lower_bound(times.begin(), times.end(), time) - times.begin());
  };
  for (const Slice& s : slices) {
    const std::size_t first = section(s.begin) + leaves;
    const std::size_t last = section(s.end) + leaves - 1;
    Bytes top = 0;
    for (std::size_t l = first, r = last + 1; l < r; l /= 2, r /= 2) {
      if (l & 1) top = std::max(top, tree[l++].some);
      if (r & 1) top = std::max(top, tree[--r].some);
    }
    for (std::size_t n = first; n != 0; n /= 2) top = std::max(top, tree[n].all);
    for (std::size_t n = last; n != 0; n /= 2) top = std::max(top, tree[n].all);
    if (top > s.low) return fault(Errc::invalid_argument, "two blocks alive together share a byte", s.group);
    for (std::size_t l = first, r = last + 1; l < r; l /= 2, r /= 2) {
      if (l & 1) {
        tree[l].all = std::max(tree[l].all, s.high);
        tree[l].some = std::max(tree[l].some, s.high);
        ++l;
      }
      if (r & 1) {
        --r;
        tree[r].all = std::max(tree[r].all, s.high);
        tree[r].some = std::max(tree[r].some, s.high);
      }
    }
    for (std::size_t n = first / 2; n != 0; n /= 2) tree[n].some = std::max(tree[n].some, s.high);
    for (std::size_t n = last / 2; n != 0; n /= 2) tree[n].some = std::max(tree[n].some, s.high);
  }
  return {};
}

}  // namespace holdfast
