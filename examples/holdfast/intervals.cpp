// SPDX-License-Identifier: Apache-2.0
#include "intervals.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/buffer/raw_buffer.hpp"
#include "holdfast/core/byte_pattern.hpp"
#include "holdfast/plan/interval_csv.hpp"
#include "holdfast/plan/plan_offsets.hpp"
#include "machine_memory.hpp"
#include "progress.hpp"
#include "report.hpp"

namespace program {

using namespace holdfast;
using namespace holdfast::literals;

namespace {

struct PlannedTable {
  IntervalTable table;
  std::vector<Bytes> offsets;  ///< by row
  std::vector<Bytes> heights;  ///< by arena
  Bytes heap = 0;
  Bytes bound = 0;
  Bytes live = 0;
  bool optimal = true;
  Json json;
};

std::unique_ptr<PlannedTable> plan_table(const Input& input, const Options& options) {
  Clock clock;
  Result<IntervalTable> table = parse_interval_csv(input.bytes);
  if (!table.ok()) return print_error(input, table.error()), nullptr;
  auto p = std::make_unique<PlannedTable>();
  p->json = empty_json();
  p->json["parse_seconds"] = clock.lap();
  p->table = std::move(*table);
  p->offsets.resize(p->table.rows.size(), 0);
  std::vector<LiveRange> ranges;
  const auto planner = offset_planner(options.effort);
  for (std::uint32_t a = 0; a < p->table.group_counts.size(); ++a) {
    progress("offsets");
    OffsetProblem problem = p->table.problem(a, ranges, options.alignment);
    // What fits a limit is found sooner than what is least; where nothing does, the least is told.
    if (options.limit >= 0 && p->table.group_counts.size() == 1) problem.capacity = options.limit;
    std::vector<Bytes> offsets(problem.group_count, 0);
    const auto solve = [&] {
      Result<OffsetPlan> within = planner(problem, offsets);
      if (within.ok() || within.error().code != Errc::infeasible) return within;
      problem.capacity = max_bytes;
      return planner(problem, offsets);
    };
    const Result<OffsetPlan> plan = solve();
    if (!plan.ok()) return print_error(input, plan.error()), nullptr;
    for (std::size_t r = 0; r < p->table.rows.size(); ++r)
      if (p->table.rows[r].arena == a) p->offsets[r] = offsets[p->table.rows[r].range.group];
    p->heights.push_back(plan->peak);
    p->heap = saturating_add(p->heap, plan->peak);
    p->bound = saturating_add(p->bound, plan->lower_bound);
    p->live = saturating_add(p->live, live_peak(ranges));
    p->optimal = p->optimal && (plan->proven_optimal || plan->peak == plan->lower_bound);
  }
  p->json["plan_seconds"] = clock.lap();
  p->json["module"] = input.file;
  p->json["instructions"] = p->table.rows.size();
  p->json["scheduler"] = "as-given";
  p->json["peak_bytes"] = p->json["heap_bytes"] = p->heap;
  p->json["live_peak_bytes"] = p->live;
  p->json["lower_bound_bytes"] = p->bound;
  p->json["proven_optimal"] = p->optimal;
  return p;
}

/// Writes files and the line for people; the exit status.
int report(const Input& input, const Options& options, const PlannedTable& p) {
  end_progress();
  if (!write_json(options, p.json)) return usage;
  if (!options.csv.empty()) {
    std::string text;
    StringSink sink{&text};
    static_cast<void>(write_interval_csv(p.table, p.offsets, sink));
    if (!write_output(options.csv, text)) return usage;
  }
  if (options.limit >= 0 && p.heap > options.limit) {
    std::fprintf(stderr, "%s: no plan within %lld bytes: found %lld, lower bound %lld\n",
                 input.file.c_str(), static_cast<long long>(options.limit),
                 static_cast<long long>(p.heap), static_cast<long long>(p.bound));
    return no_plan;
  }
  if (options.json != "-" && options.csv != "-")
    std::printf("%s: %zu blocks, height %lld bytes, lower bound %lld%s\n", input.file.c_str(),
                p.table.rows.size(), static_cast<long long>(p.heap),
                static_cast<long long>(p.bound), p.optimal ? ": proven optimal" : "");
  return done;
}

/// What happens to a row's block at a time: it ends before others begin.
struct Moment {
  std::int64_t time;
  bool begins;
  std::uint32_t row;
};

/// Writes each block when it begins and tests it when it ends; the row that is not what was
/// written, or none.
std::uint32_t carry_out(PlannedTable& p, PatternCheck check,
                        std::vector<RawBuffer<SystemMemory, Unique>>& arenas, Bytes& measured,
                        std::uint64_t& checked) {
  std::vector<Moment> moments;
  for (std::uint32_t r = 0; r < p.table.rows.size(); ++r) {
    const LiveRange& range = p.table.rows[r].range;
    if (range.size == 0 || range.begin == range.end) continue;
    moments.push_back({range.begin, true, r});
    moments.push_back({range.end, false, r});
  }
  std::sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
    return a.time != b.time ? a.time < b.time : a.begins < b.begins;
  });
  std::vector<Bytes> tops(arenas.size(), 0);
  for (const Moment& m : moments) {
    const IntervalRow& row = p.table.rows[m.row];
    const Block block{arenas[row.arena].data() + p.offsets[m.row], row.range.size};
    const BytePattern pattern(m.row + 1);
    progress("running");
    if (m.begins) {
      pattern.write(block, check);
      tops[row.arena] = std::max(tops[row.arena], p.offsets[m.row] + block.size);
    } else if (++checked; pattern.compare(block, check) != block.size) {
      return m.row;
    }
  }
  for (const Bytes top : tops) measured += top;
  return 0xFFFFFFFFu;
}

}  // namespace

int plan_intervals(const Input& input, const Options& options) {
  const std::unique_ptr<PlannedTable> p = plan_table(input, options);
  return p == nullptr ? static_cast<int>(bad_input) : report(input, options, *p);
}

int run_intervals(const Input& input, const Options& options) {
  const std::unique_ptr<PlannedTable> p = plan_table(input, options);
  if (p == nullptr) return bad_input;
  p->json["backend"] = options.backend;
  p->json["measured_peak_bytes"] = Bytes{0};
  p->json["values_checked"] = 0;
  p->json["verified"] = false;
  const auto too_large = [&] {
    std::fprintf(stderr, "%s: the plan needs %lld bytes, this machine has %lld available\n",
                 input.file.c_str(), static_cast<long long>(p->heap),
                 static_cast<long long>(available_memory()));
    return report(input, options, *p) == usage ? usage : no_plan;
  };
  if (p->heap > available_memory()) return too_large();
  std::vector<RawBuffer<SystemMemory, Unique>> arenas;
  for (const Bytes height : p->heights) {
    Result<RawBuffer<SystemMemory, Unique>> arena =
        RawBuffer<SystemMemory, Unique>::allocate(SystemMemory{}, height);
    if (!arena.ok()) return too_large();
    arenas.push_back(std::move(*arena));
  }
  Bytes values = 0;
  for (const IntervalRow& r : p->table.rows) values = saturating_add(values, r.range.size);
  const bool page = options.check == "page" || (options.check.empty() && values >= 4_GiB);
  Bytes measured = 0;
  std::uint64_t checked = 0;
  const std::uint32_t wrong =
      carry_out(*p, page ? PatternCheck::page : PatternCheck::full, arenas, measured, checked);
  p->json["measured_peak_bytes"] = measured;
  p->json["values_checked"] = checked;
  const bool good = wrong == 0xFFFFFFFFu && measured == p->heap;
  p->json["verified"] = good;
  if (!good)
    std::fprintf(
        stderr, "%s: %s\n", input.file.c_str(),
        wrong == 0xFFFFFFFFu
            ? "the run did not reach the plan's height"
            : ("overwritten while alive: " + std::string(p->table.rows[wrong].line)).c_str());
  const int status = report(input, options, *p);
  return status == done && !good ? static_cast<int>(not_verified) : status;
}

}  // namespace program
