// SPDX-License-Identifier: Apache-2.0
// From a file to a plan: reads, schedules, plans and times each stage.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "holdfast/plan/plan_module.hpp"
#include "holdfast/plan/plan_offsets.hpp"
#include "holdfast/plan/rematerialize.hpp"
#include "input.hpp"
#include "options.hpp"

namespace program {

/// Seconds since it was made or asked last.
class Clock {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - at_).count();
    at_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now();
};

/// Ends a search when its seconds are over.
struct TimeLimit {
  std::chrono::steady_clock::time_point end;
  explicit TimeLimit(double seconds)
      : end(std::chrono::steady_clock::now() +
            std::chrono::milliseconds(static_cast<std::int64_t>(std::min(seconds, 1e9) * 1000))) {}
  [[nodiscard]] bool operator()() const noexcept { return std::chrono::steady_clock::now() >= end; }
};

/// The offset planner for an effort in seconds on a common machine.
///
/// The counted effort ends it, so that the same command gives the same plan; time only where this machine is much slower.
inline holdfast::PlanOffsets<TimeLimit> offset_planner(double seconds) {
  holdfast::PlanOffsets<TimeLimit> planner{.stop = TimeLimit(1 + 2 * seconds)};
  planner.nodes = static_cast<std::int64_t>(std::min(seconds, 1e9) * static_cast<double>(planner.nodes));
  return planner;
}

/// A module's plan and how it came about.
struct Planned : holdfast::ModulePlan {
  using ModulePlan::ModulePlan;
  holdfast::Rematerialized limited;  ///< what was done for the limit; nothing where none was passed
  std::string scheduler;
  holdfast::Bytes as_given_peak_bytes = 0;
  holdfast::Bytes any_order_bound_bytes = 0;  ///< of the heap; 0: not computed
  double parse_seconds = 0;
  double schedule_seconds = 0;
  double plan_seconds = 0;
};

/// Reads and plans a module. Null, after a message and with the exit status in `status`, when that
/// fails.
std::unique_ptr<Planned> plan_module(const Input& input, const Options& options, int& status);
/// Whether the plan is within `--limit`; if not, says to standard error how far it got and who
/// holds the peak.
bool is_within_limit(const Input& input, const Planned& p, const Options& options);

}  // namespace program
