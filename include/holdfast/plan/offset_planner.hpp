// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <span>

#include "holdfast/core/result.hpp"
#include "holdfast/plan/live_range.hpp"

namespace holdfast {

/// What a planner says of the offsets that it wrote.
struct OffsetPlan {
  Bytes peak = 0;               ///< highest end of any range; starts are aligned, ends are not rounded
  Bytes lower_bound = 0;        ///< no offsets can have a lower peak
  bool proven_optimal = false;  ///< `peak` is known to be the least possible
};

/// Something that chooses offsets; effort and threads are members of the planner.
///
/// It writes one offset a group into `offsets` (`problem.group_count` long; groups without bytes get 0).
/// Errors: invalid_argument (negative size, empty alignment, group out of range, two live ranges of one
/// group, fixed offsets that clash), over_budget (a size sum passes 2^63), infeasible (nothing within
/// `problem.capacity`; `requested` is the least peak found, `available` the capacity).
template <class P>
concept offset_planner = requires(const P& planner, const OffsetProblem& problem, std::span<Bytes> offsets) {
  { planner(problem, offsets) } -> std::same_as<Result<OffsetPlan>>;
};

}  // namespace holdfast
