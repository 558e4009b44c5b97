// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"
#include "holdfast/plan/detail/offset_problem.hpp"
#include "holdfast/plan/detail/valley_fill.hpp"
#include "holdfast/plan/offsets_fast.hpp"
#include "holdfast/plan/offsets_greedy.hpp"

namespace holdfast::detail {

/// The best plan that any rule finds: online passes, fills, and greedy orders; of more than `greedy_groups` groups the best fills only.
///
/// Lowers `peak`, stops once the bound is met, or after the first plan when `stop` says so.
/// Units: `fills` counts passes whose keys are blurred by chance, after one by each rule; 0 is the first rule alone.
/// Errors: invalid_argument (fixed offsets that clash).
template <class Stop>
constexpr Error first_offsets(const OffsetInput& in, std::uint32_t fills, std::uint32_t greedy_groups, const Stop& stop,
                              std::span<Bytes> offsets, Bytes& peak) {
  std::vector<Bytes> trial(offsets.size(), 0);
  const auto keep = [&](Bytes found) {
    if (found >= peak) return;
    peak = found;
    std::copy(trial.begin(), trial.end(), offsets.begin());
  };
  const auto place = [&](PlacementOrder order, Fit fit) {
    const std::vector<std::uint32_t> groups = greedy_order(in, order);
    const Error e = place_in_order(in, groups, fit, {}, trial);
    if (e.ok()) keep(highest_end(in, trial));
    return e;
  };
  if (in.any_fixed) {
    if (const Error e = place(PlacementOrder::size, Fit::lowest); !e.ok()) return e;
  } else {
    if (in.member.size() >= long_program) {
      std::vector<Bytes> other(offsets.size(), 0);
      if (place_online(in, trial, other)) keep(highest_end(in, trial));
      std::fill(trial.begin(), trial.end(), Bytes{0});
    }
    if (peak > in.lower_bound) {
      ValleyFill fill(in);
      keep(fill.run(fill_rules[0], 0, trial));
      // Long programs get all passes only where little is missing.
      const std::uint32_t all = fills == 0 ? 1 : fill_rule_count + fills;
      const auto few = [&] { return in.group_count() > greedy_groups && peak - in.lower_bound > in.lower_bound / 8192; };
      for (std::uint32_t i = 1; i < (few() ? std::min(all, good_rule_count) : all) && peak > in.lower_bound && !stop(); ++i)
        keep(fill.run(fill_rules[i % fill_rule_count], i / fill_rule_count, trial));
    }
  }
  if (in.group_count() <= greedy_groups)
    for (const PlacementOrder order : {PlacementOrder::size, PlacementOrder::lifetime, PlacementOrder::area,
                                       PlacementOrder::conflicts, PlacementOrder::start, PlacementOrder::end})
      for (const Fit fit : {Fit::best, Fit::lowest})
        if (peak > in.lower_bound && !stop()) {
          if (const Error e = place(order, fit); !e.ok()) return e;
        }
  return {};
}

}  // namespace holdfast::detail
