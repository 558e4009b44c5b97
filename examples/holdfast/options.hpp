// SPDX-License-Identifier: Apache-2.0
// What the command line said.
#pragma once

#include <cstdint>
#include <string>

namespace program {

/// Exit statuses.
enum Exit : int { done = 0, usage = 1, bad_input = 2, no_plan = 3, not_verified = 4 };

struct Options {
  std::string file;
  std::string json;
  std::string csv;
  std::string scheduler;       ///< empty: as-given where the module is scheduled, else best
  std::int64_t alignment = 0;  ///< 0: 64 for HLO, the file's own or 1 for CSV
  std::int64_t limit = -1;     ///< of peak_bytes; -1: none
  double effort = 1;           ///< seconds
  std::int64_t pointer_size = 8;
  std::string backend = "host";  ///< run
  std::string replay_backend = "host-pool";
  std::string check;             ///< run, replay: full, page, or empty to choose by size; replay: none
  std::uint32_t trips = 2;       ///< run: rounds of a loop
  std::uint32_t streams = 1;     ///< run: host streams
};

/// Plans a file: `holdfast plan`.
int plan_command(const Options& options);
/// Plans a file and carries the plan out: `holdfast run`.
int run_command(const Options& options);
/// Carries a log of allocations out on a pool: `holdfast replay`.
int replay_command(const Options& options);

}  // namespace program
