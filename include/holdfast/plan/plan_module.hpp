// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "holdfast/graph/alias.hpp"
#include "holdfast/graph/module.hpp"
#include "holdfast/plan/buffer_assignment.hpp"
#include "holdfast/plan/buffers.hpp"
#include "holdfast/plan/liveness.hpp"
#include "holdfast/plan/offset_planner.hpp"
#include "holdfast/plan/offsets_fast.hpp"
#include "holdfast/plan/plan_summary.hpp"
#include "holdfast/plan/schedule_best.hpp"
#include "holdfast/plan/schedule_module.hpp"

namespace holdfast {

/// How a module is planned.
struct PlanOptions {
  AssignOptions assign;
  Bytes pointer_size = 8;
};

/// A module and the plan of its memory, with every stage between: what one call makes of a program.
///
/// Each stage refers to those before, so it stays where it was made. Threads: one at a time.
struct ModulePlan {
  Module module;
  ValueTable values;
  Liveness live;
  std::vector<BufferSet> buffer_sets;  ///< one, once planned (nvcc has no constexpr std::optional)
  BufferAssignment assignment;
  PlanSummary summary;

  constexpr explicit ModulePlan(Module&& m) : module(std::move(m)) {}
  ModulePlan(const ModulePlan&) = delete;
  ModulePlan& operator=(const ModulePlan&) = delete;

  [[nodiscard]] constexpr const BufferSet& buffers() const noexcept { return buffer_sets.front(); }

  /// Finds the module's values: once, whatever its order. Errors: those of `analyze_values`.
  constexpr Error analyze() {
    Result<ValueTable> found = analyze_values(module);
    if (!found.ok()) return found.error();
    values = std::move(*found);
    return {};
  }
  /// Plans the order in which the module stands, after `analyze`.
  ///
  /// Errors: those of `analyze_liveness` and `assign_buffers`.
  template <offset_planner Planner>
  constexpr Error plan(const Planner& planner, const PlanOptions& options = {}) {
    Result<Liveness> found = analyze_liveness(module, values);
    if (!found.ok()) return found.error();
    live = std::move(*found);
    buffer_sets.clear();
    buffer_sets.emplace_back(module, values, live);
    Result<BufferAssignment> placed =
        assign_buffers(module, live, buffer_sets.front(), planner, options.assign);
    if (!placed.ok()) return placed.error();
    assignment = std::move(*placed);
    summary = summarize_plan(module, values, live, buffers(), assignment, options.pointer_size);
    return {};
  }
};

/// Orders of one module, of which the one whose plan is lowest is kept.
///
/// What counts is the plan, not what a graph of the module lets expect: `peak_bytes`, then
/// `heap_bytes`. Threads: one at a time.
class OrderTrials {
 public:
  /// For an analyzed module; `plan` and `options` are referred to.
  constexpr OrderTrials(ModulePlan& plan, const PlanOptions& options)
      : p_(plan), options_(options) {}

  /// Adds the order in which the module stands.
  constexpr void add_current() { add(std::vector(p_.module.instruction_ids)); }
  /// Adds what a scheduler finds with results counted from their definition on, and with `held_too`
  /// also with results held throughout: either may plan lower.
  ///
  /// Errors: those of `schedule_module`. Cost: of the scheduler.
  template <memory_scheduler Scheduler>
  constexpr Error add_scheduled(const Scheduler& scheduler, bool held_too = true) {
    ModuleGraphOptions graph;
    graph.pointer_size = options_.pointer_size;
    graph.alignment = options_.assign.alignment;
    for (const bool held : {false, true}) {
      if (held && !held_too) break;
      graph.outputs_held = held;
      Result<ModuleSchedule> s = schedule_module(p_.module, p_.values, scheduler, graph);
      if (!s.ok()) return s.error();
      add(std::move(s->instruction_ids));
    }
    return {};
  }
  /// Adds the module's own order, if it has one, and those of the classic schedulers.
  constexpr Error add_classic() {
    if (p_.module.is_scheduled) add_current();
    Error e = add_scheduled(ScheduleBest{});
    if (e.ok()) e = add_scheduled(ScheduleList{}, false);
    if (e.ok()) e = add_scheduled(ScheduleDfs{}, false);
    if (e.ok()) e = add_scheduled(ScheduleBfs{}, false);
    return e.ok() ? add_scheduled(SchedulePostOrder{}, false) : e;
  }
  /// Adds what a scheduler makes of each order added so far.
  ///
  /// Orders that are as good in a graph differ in their plans. Errors: those of `schedule_module`.
  template <memory_scheduler Scheduler>
  constexpr Error add_from_each(const Scheduler& scheduler) {
    const std::vector<InstructionId> own = p_.module.instruction_ids;
    Error e;
    for (std::size_t k = 0, count = trials_.size(); k < count && e.ok(); ++k) {
      p_.module.instruction_ids = trials_[k].order;
      e = add_scheduled(scheduler);
    }
    p_.module.instruction_ids = own;
    return e;
  }
  /// Leaves the module with the order whose plan is lowest, and that plan; after one order at
  /// least.
  ///
  /// Not above what `planner` makes of any of the orders. Errors: those of `ModulePlan::plan`.
  /// Cost: a plan by `FastPlanner` for each order; `planner` only looks at those that may be
  /// lowest.
  template <offset_planner Planner>
  constexpr Error finish(const Planner& planner) {
    if (trials_.size() > 1)
      for (Trial& t : trials_) {
        if (Error e = use(t, FastPlanner{}); !e.ok()) return e;
        const Bytes excess = p_.summary.heap_bytes - p_.summary.lower_bound_bytes;
        t.least = {p_.summary.peak_bytes - excess, p_.summary.lower_bound_bytes};
      }
    std::sort(trials_.begin(), trials_.end(), [](const Trial& a, const Trial& b) {
      return std::pair(a.least, a.number) < std::pair(b.least, b.number);
    });
    std::size_t best = 0;
    std::size_t k = 0;
    Height lowest{max_bytes, max_bytes};
    for (; k < trials_.size() && trials_[k].least < lowest; ++k) {
      if (Error e = use(trials_[k], planner); !e.ok()) return e;
      const Height height{p_.summary.peak_bytes, p_.summary.heap_bytes};
      if (height < lowest) best = k, lowest = height;
    }
    return best + 1 == k ? Error{} : use(trials_[best], planner);
  }

 private:
  using Height = std::pair<Bytes, Bytes>;  // peak, heap over all spaces
  struct Trial {
    std::vector<InstructionId> order;
    Height least;  // no offsets are lower
    std::size_t number = 0;
  };
  ModulePlan& p_;
  const PlanOptions& options_;
  std::vector<Trial> trials_;

  constexpr void add(std::vector<InstructionId>&& order) {
    for (const Trial& t : trials_)
      if (t.order == order) return;
    trials_.push_back({std::move(order), {}, trials_.size()});
  }
  template <offset_planner Planner>
  constexpr Error use(const Trial& t, const Planner& planner) {
    p_.module.instruction_ids = t.order;
    p_.module.is_scheduled = true;
    return p_.plan(planner, options_);
  }
};

/// Gives an analyzed module the order whose plan is lowest among its own, if it has one, those of
/// the classic schedulers, and those of `schedulers`, and plans it.
///
/// Errors: those of the schedulers and of `ModulePlan::plan`; the module may have another order
/// then. Cost: as `OrderTrials` says.
template <offset_planner Planner, memory_scheduler... Schedulers>
constexpr Error plan_lowest(ModulePlan& p, const Planner& planner, const PlanOptions& options = {},
                            const Schedulers&... schedulers) {
  OrderTrials trials(p, options);
  Error e = trials.add_classic();
  ((e = e.ok() ? trials.add_scheduled(schedulers) : e), ...);
  return e.ok() ? trials.finish(planner) : e;
}

}  // namespace holdfast
