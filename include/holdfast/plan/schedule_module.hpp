// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "holdfast/graph/alias.hpp"
#include "holdfast/graph/module.hpp"
#include "holdfast/graph/module_graph.hpp"
#include "holdfast/plan/memory_scheduler.hpp"
#include "holdfast/plan/schedule_best.hpp"
#include "holdfast/plan/simulate.hpp"

namespace holdfast {

/// An order of the instructions of every computation of a module.
struct ModuleSchedule {
  std::vector<InstructionId> instruction_ids;  ///< takes the place of `Module::instruction_ids`
  std::vector<CalleeMemory> needs;  ///< by computation; nothing for those that need no plan
  Bytes peak = 0;                   ///< of the entry's bytes that come and go, callees included
  Bytes held_bytes = 0;             ///< of the entry: what is there all the time
  Bytes lower_bound = 0;  ///< no order of any computation has a lower peak; 0: not computed
  bool proven_optimal = false;
};

namespace detail {

/// Schedules the planned computations, callees first.
template <class SizeOf, class F>
constexpr Result<ModuleSchedule> schedule_planned(const Module& module, const ValueTable& values,
                                                  ModuleGraphs<SizeOf>& graphs, const F& schedule) {
  ModuleSchedule out;
  out.instruction_ids = module.instruction_ids;
  out.needs.resize(module.computations.size(), CalleeMemory{});
  for (std::uint32_t c = 0; c <= index_of(module.entry); ++c) {
    const auto id = static_cast<ComputationId>(c);
    if (!values.calls.is_planned(id)) continue;
    const Result<Graph> graph = graphs.make(id, out.needs);
    if (!graph.ok()) return graph.error();
    const Result<Schedule> order = schedule(*graph);
    if (!order.ok()) return order.error();
    const Result<Simulation> cost = simulate(*graph, order->order);
    if (!cost.ok()) return cost.error();
    const IndexRange run = module.computations[c].instructions;
    for (std::uint32_t k = 0; k < run.count; ++k)
      out.instruction_ids[run.begin + k] =
          module.instruction_ids[run.begin + index_of(order->order[k])];
    out.needs[c] = {cost->peak, order->lower_bound};
    out.proven_optimal = order->proven_optimal;
    out.held_bytes = graph->held_bytes;
  }
  out.peak = out.needs[index_of(module.entry)].peak;
  out.lower_bound = out.needs[index_of(module.entry)].floor;
  return out;
}

}  // namespace detail

/// Orders the instructions of all planned computations, callees first: a callee's peak counts where
/// it is called.
///
/// Computations inside kernels (fusions, reducers) keep their order. The order found is verified.
/// Errors: those of the scheduler and of `ModuleGraphs::make`, invalid_argument (the scheduler's
/// order is none). Cost: of the scheduler. Source: XLA's ScheduleModule; counting callees is better
/// than it (passes.md 7.6, 7.7).
template <memory_scheduler Scheduler, class SizeOf = ShapeBytes>
[[nodiscard]] constexpr Result<ModuleSchedule> schedule_module(
    const Module& module, const ValueTable& values, const Scheduler& scheduler,
    const ModuleGraphOptions& options = {}, SizeOf size_of = {}) {
  ModuleGraphs<SizeOf> graphs(module, values, options, size_of);
  return detail::schedule_planned(module, values, graphs, scheduler);
}

/// What XLA's default scheduler says of its three candidates.
struct ModuleComparison {
  ModuleSchedule schedule;
  Bytes peaks[3] = {};     ///< list, depth-first, post-order: for the whole module
  std::size_t chosen = 0;  ///< the first with the least peak
};

/// Chooses one classic scheduler for the whole module, as XLA does; `schedule_module` with
/// `ScheduleBest` chooses for each computation.
///
/// Errors: as `schedule_module`. Source: XLA's DefaultMemoryScheduler, passes.md 7.5.
[[nodiscard]] constexpr Result<ModuleComparison> compare_schedules(
    const Module& module, const ValueTable& values, const ModuleGraphOptions& options = {}) {
  ModuleComparison out;
  for (std::size_t k = 0; k < 3; ++k) {
    Result<ModuleSchedule> s = k == 0 ? schedule_module(module, values, ScheduleList{true}, options)
                               : k == 1
                                   ? schedule_module(module, values, ScheduleDfs{}, options)
                                   : schedule_module(module, values, SchedulePostOrder{}, options);
    if (!s.ok()) return s.error();
    out.peaks[k] = s->peak;
    if (k > 0 && out.peaks[k] >= out.peaks[out.chosen]) continue;
    out.chosen = k;
    out.schedule = std::move(*s);
  }
  return out;
}

/// Puts the instructions of a module into the order of a schedule of it.
constexpr void apply_schedule(Module& m, ModuleSchedule&& schedule) {
  m.instruction_ids = std::move(schedule.instruction_ids);
  m.is_scheduled = true;
}

/// Says that the order of a module's instructions means nothing any more; false when it meant
/// nothing before.
constexpr bool deschedule(Module& m) noexcept { return std::exchange(m.is_scheduled, false); }

}  // namespace holdfast
