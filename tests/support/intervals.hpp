// SPDX-License-Identifier: Apache-2.0
// Offset problems for tests: read from the interval CSVs of shared/, or made at random.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "holdfast/core/units.hpp"
#include "holdfast/plan/live_range.hpp"

namespace holdfast::testing {

/// Reads `id,lower,upper,size[,alignment]`, one group a row.
inline std::vector<LiveRange> parse_intervals(const std::string& text) {
  std::vector<LiveRange> ranges;
  for (std::size_t line = text.find('\n'); line != std::string::npos && line + 1 < text.size();
       line = text.find('\n', line + 1)) {
    char* at = const_cast<char*>(text.c_str()) + text.find(',', line + 1);
    LiveRange r;
    r.begin = std::strtoll(at + 1, &at, 10);
    r.end = std::strtoll(at + 1, &at, 10);
    r.size = std::strtoll(at + 1, &at, 10);
    if (*at == ',') r.alignment = std::strtoll(at + 1, &at, 10);
    r.group = static_cast<std::uint32_t>(ranges.size());
    ranges.push_back(r);
  }
  return ranges;
}

/// A small generator that gives the same numbers everywhere.
class Random {
 public:
  constexpr explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 88172645463325252ull) {}
  constexpr std::uint64_t operator()(std::uint64_t below) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return (state_ >> 11) % below;
  }

 private:
  std::uint64_t state_;
};

/// A problem that owns its arrays.
struct OwnedProblem {
  std::vector<LiveRange> ranges;
  std::vector<FixedOffset> fixed;
  std::uint32_t groups = 0;
  [[nodiscard]] OffsetProblem view() const { return {ranges, groups, fixed, max_bytes}; }
};

/// Tells, by looking at every pair, whether two groups at these offsets share a byte.
inline bool clash(const OwnedProblem& p, std::uint32_t g, Bytes at, std::uint32_t h, Bytes other) {
  for (const LiveRange& a : p.ranges)
    for (const LiveRange& b : p.ranges)
      if (a.group == g && b.group == h && std::max(a.begin, b.begin) < std::min(a.end, b.end) && at < other + b.size &&
          other < at + a.size && a.size > 0 && b.size > 0)
        return true;
  return false;
}

/// A random problem; `kind` adds alignments (1), gaps in lifetimes and fixed offsets (2), both (3).
inline OwnedProblem random_problem(std::uint64_t seed, unsigned most_ranges, unsigned kind) {
  Random random(seed);
  OwnedProblem p;
  const std::uint32_t count = 1 + static_cast<std::uint32_t>(random(most_ranges));
  p.groups = kind >= 2 ? 1 + static_cast<std::uint32_t>(random(count)) : count;
  const std::int64_t span = 3 + static_cast<std::int64_t>(random(3 + most_ranges / 2));
  for (unsigned tries = 0; p.ranges.size() < count && tries < 100 * count; ++tries) {
    LiveRange r;
    r.begin = static_cast<std::int64_t>(random(static_cast<std::uint64_t>(span)));
    r.end = r.begin + 1 + static_cast<std::int64_t>(random(4));
    r.size = 1 + static_cast<Bytes>(random(kind == 0 ? 4 : 12));
    if (kind % 2 == 1) r.alignment = 1 + static_cast<Bytes>(random(4));
    r.group = kind >= 2 ? static_cast<std::uint32_t>(random(p.groups)) : static_cast<std::uint32_t>(p.ranges.size());
    const bool free = std::none_of(p.ranges.begin(), p.ranges.end(), [&](const LiveRange& o) {
      return o.group == r.group && std::max(o.begin, r.begin) < std::min(o.end, r.end);
    });
    if (free) p.ranges.push_back(r);
  }
  if (kind < 2 || random(2) == 0) return p;
  for (std::uint64_t n = 1 + random(2); n != 0; --n) {
    const std::uint32_t g = static_cast<std::uint32_t>(random(p.groups));
    Bytes alignment = 1;
    for (const LiveRange& r : p.ranges)
      if (r.group == g) alignment = std::lcm(alignment, r.alignment);
    const FixedOffset f{g, alignment * static_cast<Bytes>(random(6))};
    const bool free = std::none_of(p.fixed.begin(), p.fixed.end(), [&](const FixedOffset& o) {
      return o.group == g || clash(p, g, f.offset, o.group, o.offset);
    });
    if (free) p.fixed.push_back(f);
  }
  return p;
}

/// The least peak of all, by placing the groups in every order, each as low as it goes.
class BruteForce {
 public:
  explicit BruteForce(const OwnedProblem& problem) : p_(problem), at_(problem.groups, -1), alignment_(problem.groups, 1) {
    for (const LiveRange& r : p_.ranges) alignment_[r.group] = std::lcm(alignment_[r.group], r.alignment);
  }
  Bytes operator()(Bytes known) {
    best_ = known;
    Bytes peak = 0;
    for (const FixedOffset& f : p_.fixed) {
      at_[f.group] = f.offset;
      peak = std::max(peak, end(f.group));
    }
    place(peak);
    return best_;
  }

 private:
  [[nodiscard]] Bytes end(std::uint32_t g) const {
    Bytes most = 0;
    for (const LiveRange& r : p_.ranges)
      if (r.group == g) most = std::max(most, at_[g] + r.size);
    return most;
  }
  void place(Bytes peak) {
    if (peak >= best_) return;
    bool all = true;
    for (std::uint32_t g = 0; g < p_.groups; ++g) {
      if (at_[g] >= 0) continue;
      all = false;
      std::vector<Bytes> starts{0};
      for (const LiveRange& r : p_.ranges)
        if (at_[r.group] >= 0) starts.push_back(align_up(at_[r.group] + r.size, alignment_[g]));
      std::sort(starts.begin(), starts.end());
      for (const Bytes start : starts) {
        bool free = true;
        for (std::uint32_t h = 0; h < p_.groups && free; ++h) free = at_[h] < 0 || !clash(p_, g, start, h, at_[h]);
        if (!free) continue;
        at_[g] = start;
        place(std::max(peak, end(g)));
        at_[g] = -1;
        break;
      }
    }
    if (all) best_ = peak;
  }

  const OwnedProblem& p_;
  std::vector<Bytes> at_;
  std::vector<Bytes> alignment_;
  Bytes best_ = max_bytes;
};

}  // namespace holdfast::testing
