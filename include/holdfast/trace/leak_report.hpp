// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "holdfast/concepts/sink.hpp"
#include "holdfast/trace/checkpoint.hpp"
#include "holdfast/trace/detail/report_text.hpp"
#include "holdfast/trace/growth.hpp"
#include "holdfast/trace/live_set.hpp"

namespace holdfast {

/// What a live group is held to be, the worst last.
enum class LeakVerdict : std::uint8_t {
  expected,    ///< live for ever by its owner's word
  alive,       ///< live, and its owner may be as well
  suspicious,  ///< grows steadily
  leaked,      ///< live, and its owner is gone
};

/// How a report judges.
struct LeakRules {
  std::span<const std::string_view> expected = {};  ///< names of tags that may stay for ever
  bool owners_gone = false;  ///< at the end: whatever is live and not expected is leaked
  GrowthRules growth = {};
  std::size_t rows = 20;  ///< groups that are written out
};

/// Groups and bytes by verdict.
struct LeakSummary {
  std::array<std::size_t, 4> groups{};  ///< by `LeakVerdict`
  std::array<double, 4> bytes{};

  [[nodiscard]] std::size_t count(LeakVerdict v) const noexcept {
    return groups[static_cast<std::size_t>(v)];
  }
};

/// Judges one group; `watch` has noted the checkpoint.
template <memory_backend Backend>
[[nodiscard]] LeakVerdict leak_verdict(const LiveGroup& group, std::uint32_t step,
                                       const GrowthWatch<Backend>& watch,
                                       const LeakRules& rules) noexcept {
  const std::string_view name = group.key.tag.name != nullptr ? group.key.tag.name : "";
  if (std::find(rules.expected.begin(), rules.expected.end(), name) != rules.expected.end())
    return LeakVerdict::expected;
  if (rules.owners_gone) return LeakVerdict::leaked;
  return watch.is_suspicious(group, step, rules.growth) ? LeakVerdict::suspicious
                                                        : LeakVerdict::alive;
}

namespace detail {

template <sink S>
ReportText<S>& operator<<(ReportText<S>& text, const LiveGroupKey& key) noexcept {
  text << "tag " << (key.tag.name != nullptr ? std::string_view(key.tag.name) : "none");
  if (key.tag.number != 0) text << " " << static_cast<std::int64_t>(key.tag.number);
  if (key.stack != no_id<StackId>) text << ", stack " << std::int64_t{index_of(key.stack)};
  return text;
}

}  // namespace detail

/// Writes what is live, judged, the worst first and of these most bytes: on demand or at the end.
///
/// A line a group: verdict, bytes, blocks, sizes, tag, stack, age, and what it grows by. Errors:
/// the sink's. Cost: rows times groups; it allocates nothing.
template <memory_backend Backend, memory_backend Watched, sink S>
Error write_leaks(const Checkpoint<Backend>& now, const GrowthWatch<Watched>& watch,
                  const LeakRules& rules, S& out, LeakSummary* summary = nullptr) noexcept {
  static constexpr std::string_view words[] = {"expected", "still alive", "suspicious", "leaked"};
  const auto verdict = [&](const LiveGroup& g) {
    return leak_verdict(g, now.step(), watch, rules);
  };
  LeakSummary sum;
  now.visit([&](const LiveGroup& g) {
    const auto v = static_cast<std::size_t>(verdict(g));
    ++sum.groups[v];
    sum.bytes[v] += g.bytes;
  });
  if (summary != nullptr) *summary = sum;
  detail::ReportText<S> text{out};
  for (std::size_t v = sum.groups.size(); v-- > 0;)
    if (const std::size_t n = sum.groups[v]; n != 0)
      text << words[v] << ": " << sum.bytes[v] << " bytes in " << static_cast<std::int64_t>(n)
           << (n == 1 ? " group\n" : " groups\n");
  // The next row is the first that comes after the last one; equal ones go by their first event.
  const auto before = [&](const LiveGroup& a, const LiveGroup& b) {
    const LeakVerdict va = verdict(a);
    const LeakVerdict vb = verdict(b);
    if (va != vb) return va > vb;
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.first < b.first;
  };
  LiveGroup last;
  for (std::size_t row = 0; row < rules.rows && row < now.count() && text.failure.ok(); ++row) {
    LiveGroup next;
    now.visit([&](const LiveGroup& g) {
      if ((row == 0 || before(last, g)) && (!next.is_used() || before(g, next))) next = g;
    });
    last = next;
    const LeakVerdict v = verdict(next);
    text << words[static_cast<std::size_t>(v)] << ": " << next.bytes << " bytes in " << next.blocks
         << (next.blocks == 1 ? " block of " : " blocks of ") << next.smallest;
    if (next.largest != next.smallest) text << " to " << next.largest;
    text << " bytes, " << next.key << ", since step " << std::int64_t{next.first_step} << " (event "
         << static_cast<std::int64_t>(next.first) << ")";
    if (const Growth* const g = watch.find(next.key); v == LeakVerdict::suspicious && g != nullptr)
      text << ": grows by " << g->bytes.slope() << " bytes in " << g->blocks.slope()
           << (g->blocks.slope() == 1 ? " block a step" : " blocks a step");
    text << "\n";
  }
  if (now.count() > rules.rows) {
    const std::size_t n = now.count() - rules.rows;
    text << static_cast<std::int64_t>(n) << (n == 1 ? " group more\n" : " groups more\n");
  }
  return text.failure;
}

/// Writes one fault in a sentence, with the events that led to it. Errors: the sink's.
template <sink S>
Error write_fault(const LiveFault& fault, S& out) noexcept {
  static constexpr std::string_view words[] = {"released twice", "released but not allocated here",
                                               "released with another size than it has",
                                               "allocated while it is live"};
  detail::ReportText<S> text{out};
  text << "event " << static_cast<std::int64_t>(fault.event) << ": a block of " << fault.given.size
       << " bytes is " << words[static_cast<std::size_t>(fault.kind)];
  if (fault.kind != LiveFault::Kind::foreign) {
    text << ": " << fault.known.block.size << " bytes, " << LiveGroupKey::of(fault.known)
         << ", allocated at event " << static_cast<std::int64_t>(fault.known.allocated);
    if (fault.known.released != 0)
      text << ", released at event " << static_cast<std::int64_t>(fault.known.released);
  }
  text << "\n";
  return text.failure;
}

}  // namespace holdfast
