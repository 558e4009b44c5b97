// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>

#include "intervals.hpp"
#include "progress.hpp"
#include "report.hpp"

namespace program {

using namespace holdfast;

int plan_command(const Options& options) {
  Input input;
  if (!read_input(options.file, input)) return bad_input;
  if (input.kind == InputKind::csv) return plan_intervals(input, options);
  int status = done;
  const std::unique_ptr<Planned> p = plan_module(input, options, status);
  end_progress();
  if (p == nullptr) return status;
  if (!write_json(options, plan_json(*p))) return usage;
  if (!options.csv.empty() && !write_output(options.csv, offsets_csv(*p))) return usage;
  if (!is_within_limit(input, *p, options)) return no_plan;
  if (options.json != "-" && options.csv != "-") print_summary(*p);
  return done;
}

}  // namespace program
