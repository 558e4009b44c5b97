// SPDX-License-Identifier: Apache-2.0
#include "planned.hpp"

#include <vector>

#include "holdfast/hlo/parser.hpp"
#include "holdfast/hlo/proto_reader.hpp"
#include "holdfast/plan/plan_offsets.hpp"
#include "holdfast/plan/schedule_as_given.hpp"
#include "holdfast/plan/schedule_best.hpp"
#include "holdfast/plan/schedule_bfs.hpp"
#include "holdfast/plan/schedule_dfs.hpp"
#include "holdfast/plan/schedule_list.hpp"
#include "holdfast/plan/schedule_module.hpp"
#include "holdfast/plan/schedule_post_order.hpp"
#include "holdfast/plan/schedule_search.hpp"
#include "progress.hpp"

namespace program {

namespace {

using namespace holdfast;

/// Puts the module into the order that a scheduler chooses.
Error reorder(Planned& p, const Options& options) {
  ModuleGraphOptions graph;
  graph.pointer_size = options.pointer_size;
  graph.outputs_held = false;  // temporaries may lie where an output is not yet
  if (options.alignment > 0) graph.alignment = options.alignment;
  const auto by = [&](const auto& scheduler) {
    Result<ModuleSchedule> schedule = schedule_module(p.module, p.values, scheduler, graph);
    if (!schedule.ok()) return schedule.error();
    apply_schedule(p.module, std::move(*schedule));
    return Error{};
  };
  if (p.scheduler == "list") return by(ScheduleList{});
  if (p.scheduler == "dfs") return by(ScheduleDfs{});
  if (p.scheduler == "bfs") return by(ScheduleBfs{});
  if (p.scheduler == "post-order") return by(SchedulePostOrder{});
  if (p.scheduler == "best") return by(ScheduleBest{});
  if (p.scheduler != "search") return {};
  const ScheduleSearch<TimeLimit> search{std::uint64_t{1} << 40, 1,
                                         TimeLimit(options.effort)};  // time alone ends it
  return by(search);
}

/// Plans the order in which the module stands.
Error plan_order(Planned& p, const Options& options) {
  progress("liveness");
  Result<Liveness> live = analyze_liveness(p.module, p.values);
  if (!live.ok()) return live.error();
  p.live = std::move(*live);
  progress("buffers");
  p.buffers.emplace(p.module, p.values, p.live);
  progress("offsets");
  const PlanOffsets<TimeLimit> planner{.stop = TimeLimit(options.effort)};
  AssignOptions assign;
  if (options.alignment > 0) assign.alignment = options.alignment;
  Result<BufferAssignment> plan = assign_buffers(p.module, p.live, *p.buffers, planner, assign);
  if (!plan.ok()) return plan.error();
  p.plan = std::move(*plan);
  p.summary = summarize_plan(p.module, p.values, p.live, *p.buffers, p.plan, options.pointer_size);
  return {};
}

}  // namespace

std::unique_ptr<Planned> plan_module(const Input& input, const Options& options, int& status) {
  status = bad_input;
  Clock clock;
  progress("reading");
  Result<Module> module =
      input.kind == InputKind::proto ? parse_hlo_proto(input.bytes) : parse_hlo_text(input.bytes);
  if (!module.ok()) return print_error(input, module.error()), nullptr;
  auto p = std::make_unique<Planned>();
  p->module = std::move(*module);
  p->parse_seconds = clock.lap();

  progress("values");
  Result<ValueTable> values = analyze_values(p->module);
  if (!values.ok()) return print_error(input, values.error()), nullptr;
  p->values = std::move(*values);
  p->plan_seconds = clock.lap();
  const bool given = p->module.is_scheduled;
  p->scheduler = !options.scheduler.empty() ? options.scheduler : given ? "as-given" : "best";
  if (given && p->scheduler != "as-given") {
    if (const Error e = plan_order(*p, options); !e.ok()) return print_error(input, e), nullptr;
    p->as_given_peak_bytes = p->summary.peak_bytes;
    p->plan_seconds += clock.lap();
  }
  progress("scheduling");
  if (const Error e = reorder(*p, options); !e.ok()) return print_error(input, e), nullptr;
  p->schedule_seconds = clock.lap();
  if (const Error e = plan_order(*p, options); !e.ok()) return print_error(input, e), nullptr;
  if (given && p->scheduler == "as-given") p->as_given_peak_bytes = p->summary.peak_bytes;
  p->plan_seconds += clock.lap();
  status = done;
  return p;
}

}  // namespace program
