// SPDX-License-Identifier: Apache-2.0
#include "planned.hpp"

#include <cstdint>
#include <cstdio>
#include <utility>

#include "holdfast/hlo/parser.hpp"
#include "holdfast/hlo/proto_reader.hpp"
#include "holdfast/passes/host_transfer_asyncifier.hpp"
#include "holdfast/passes/memory_space_propagation.hpp"
#include "holdfast/passes/placement_annotations.hpp"
#include "holdfast/passes/verifier.hpp"
#include "holdfast/plan/any_order_bound.hpp"
#include "holdfast/plan/plan_offsets.hpp"
#include "holdfast/plan/schedule_bfs.hpp"
#include "holdfast/plan/schedule_dfs.hpp"
#include "holdfast/plan/schedule_list.hpp"
#include "holdfast/plan/schedule_module.hpp"
#include "holdfast/plan/schedule_post_order.hpp"
#include "holdfast/plan/schedule_search.hpp"
#include "progress.hpp"
#include "report.hpp"

namespace program {

namespace {

using namespace holdfast;

/// Does to a module what comes before scheduling; one that has an order was compiled and has that
/// behind it. Every pass is verified.
Error prepare(Module& m) {
  if (m.is_scheduled) return verify_module(m);
  Error failure;
  const auto run = [&](auto pass) {
    if (failure.ok()) failure = run_verified(m, pass).error();
  };
  run(PlacementAnnotations<>{.keep_metadata = true});  // reports name operations
  run(MemorySpacePropagation<>{});
  run(HostTransferAsyncifier<>{});
  return failure;
}

/// Looks at a node that a second of effort is worth, about, on a common machine.
constexpr double looks_a_second = 2e8;

/// Puts the module into the order that one scheduler finds.
template <class Scheduler>
Error reorder(Planned& p, const PlanOptions& how, const Scheduler& scheduler) {
  ModuleGraphOptions graph;
  graph.pointer_size = how.pointer_size;
  graph.alignment = how.assign.alignment;
  graph.outputs_held = false;  // temporaries may lie where an output is not yet
  Result<ModuleSchedule> schedule = schedule_module(p.module, p.values, scheduler, graph);
  if (!schedule.ok()) return schedule.error();
  apply_schedule(p.module, std::move(*schedule));
  return {};
}

/// Searches for orders and for what none can be below.
Error search(Planned& p, OrderTrials& trials, double seconds) {
  // The counted effort ends it, so that the same command gives the same plan; time only where this
  // machine is much slower.
  const double looks =
      seconds * looks_a_second / static_cast<double>(p.module.instructions.size() + 1);
  const TimeLimit stop(1 + 2 * seconds);
  const ScheduleSearch<TimeLimit> for_order{.effort = static_cast<std::uint64_t>(0.3 * looks),
                                            .stop = stop};
  const ScheduleSearch<TimeLimit> again{.effort = static_cast<std::uint64_t>(0.01 * looks),
                                        .stop = stop};
  const ScheduleSearch<TimeLimit> for_bound{.effort = static_cast<std::uint64_t>(0.2 * looks),
                                            .stop = stop};
  if (Error e = trials.add_scheduled(for_order); !e.ok()) return e;
  if (Error e = trials.add_from_each(again); !e.ok()) return e;
  const Result<Bytes> bound = any_order_bound(p.module, p.values, for_bound);
  if (bound.ok()) p.any_order_bound_bytes = *bound;
  return bound.ok() ? Error{} : bound.error();
}

/// Schedules as asked and plans that.
Error plan_asked(Planned& p, const Options& options, const PlanOptions& how, Clock& clock) {
  progress("scheduling");
  Error e;
  const bool several = p.scheduler == "best" || p.scheduler == "search";
  OrderTrials trials(p, how);
  if (several) e = trials.add_classic();
  if (p.scheduler == "search" && e.ok()) e = search(p, trials, options.effort);
  if (p.scheduler == "list") e = reorder(p, how, ScheduleList{});
  if (p.scheduler == "dfs") e = reorder(p, how, ScheduleDfs{});
  if (p.scheduler == "bfs") e = reorder(p, how, ScheduleBfs{});
  if (p.scheduler == "post-order") e = reorder(p, how, SchedulePostOrder{});
  p.schedule_seconds += clock.lap();
  if (!e.ok()) return e;
  progress("offsets");
  const auto planner = offset_planner(options.effort);
  e = several ? trials.finish(planner) : p.plan(planner, how);
  p.plan_seconds += clock.lap();
  return e;
}

/// Tries other orders, where none was asked for, and then changes the program, until the plan is
/// within the limit.
Error obey_limit(Planned& p, const Options& options, const PlanOptions& how, Clock& clock) {
  const auto over = [&] { return options.limit >= 0 && p.summary.peak_bytes > options.limit; };
  for (const char* scheduler : {"best", "search"}) {
    if (!over() || !options.scheduler.empty()) break;
    if (p.scheduler == scheduler) continue;
    p.scheduler = scheduler;
    if (Error e = plan_asked(p, options, how, clock); !e.ok()) return e;
  }
  if (!over()) return {};
  progress("recomputation");
  const auto planner = offset_planner(options.effort);
  Result<Rematerialized> done = rematerialize(
      p.module, {.limit = options.limit, .pointer_size = how.pointer_size, .assign = how.assign},
      planner);
  if (!done.ok()) return done.error();
  p.limited = std::move(*done);
  if (p.limited.changed()) p.any_order_bound_bytes = 0;  // that was of another program
  Error e = p.analyze();
  if (e.ok()) e = p.plan(planner, how);
  p.plan_seconds += clock.lap();
  return e;
}

}  // namespace

std::unique_ptr<Planned> plan_module(const Input& input, const Options& options, int& status) {
  status = bad_input;
  Clock clock;
  progress("reading");
  Result<Module> module =
      input.kind == InputKind::proto ? parse_hlo_proto(input.bytes) : parse_hlo_text(input.bytes);
  if (!module.ok()) return print_error(input, module.error()), nullptr;
  auto p = std::make_unique<Planned>(std::move(*module));
  p->parse_seconds = clock.lap();

  PlanOptions how;
  how.pointer_size = options.pointer_size;
  if (options.alignment > 0) how.assign.alignment = options.alignment;
  const bool given = p->module.is_scheduled;
  p->scheduler = !options.scheduler.empty() ? options.scheduler : given ? "as-given" : "best";
  progress("passes");
  Error e = prepare(p->module);
  progress("values");
  if (e.ok()) e = p->analyze();
  if (e.ok() && given && p->scheduler != "as-given") {
    e = p->plan(offset_planner(options.effort), how);
    p->as_given_peak_bytes = p->summary.peak_bytes;
  }
  p->plan_seconds = clock.lap();
  if (e.ok()) e = plan_asked(*p, options, how, clock);
  if (!e.ok()) return print_error(input, e), nullptr;
  if (given && p->scheduler == "as-given") p->as_given_peak_bytes = p->summary.peak_bytes;
  if (e = obey_limit(*p, options, how, clock); !e.ok()) return print_error(input, e), nullptr;
  status = done;
  return p;
}

bool is_within_limit(const Input& input, const Planned& p, const Options& options) {
  const PlanSummary& s = p.summary;
  if (options.limit < 0 || s.peak_bytes <= options.limit) return true;
  const auto number = [](Bytes bytes) { return static_cast<long long>(bytes); };
  if (p.limited.floor > options.limit)
    std::fprintf(stderr, "%s: no plan within %lld bytes: none has less than %lld; peak %lld",
                 input.file.c_str(), number(options.limit), number(p.limited.floor),
                 number(s.peak_bytes));
  else
    std::fprintf(stderr,
                 "%s: no plan within %lld bytes: peak %lld with %u instructions recomputed and %u "
                 "values kept on the host, none has less than %lld",
                 input.file.c_str(), number(options.limit), number(s.peak_bytes),
                 p.limited.recomputed, p.limited.offloaded, number(p.limited.floor));
  std::fprintf(stderr, ", heap %lld of at least %lld; at the peak:\n", number(s.heap_bytes),
               number(s.lower_bound_bytes));
  print_peak(p, 10);
  return false;
}

}  // namespace program
