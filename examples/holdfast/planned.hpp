// SPDX-License-Identifier: Apache-2.0
// From a file to a plan: reads, schedules, plans and times each stage.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/graph/alias.hpp"
#include "holdfast/graph/module.hpp"
#include "holdfast/plan/buffer_assignment.hpp"
#include "holdfast/plan/buffers.hpp"
#include "holdfast/plan/liveness.hpp"
#include "holdfast/plan/plan_summary.hpp"
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

/// A module and its plan. Each stage refers to the one before, so it stays where it was made.
struct Planned {
  holdfast::Module module;
  holdfast::ValueTable values;
  holdfast::Liveness live;
  std::optional<holdfast::BufferSet> buffers;
  holdfast::BufferAssignment plan;
  holdfast::PlanSummary summary;
  std::string scheduler;
  holdfast::Bytes as_given_peak_bytes = 0;
  double parse_seconds = 0;
  double schedule_seconds = 0;
  double plan_seconds = 0;
};

/// Reads and plans a module. Null, after a message and with the exit status in `status`, when that
/// fails.
std::unique_ptr<Planned> plan_module(const Input& input, const Options& options, int& status);

}  // namespace program
