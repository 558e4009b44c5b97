// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"
#include "holdfast/graph/alias.hpp"
#include "holdfast/graph/module.hpp"
#include "holdfast/graph/module_graph.hpp"
#include "holdfast/plan/memory_scheduler.hpp"
#include "holdfast/plan/schedule_module.hpp"

namespace holdfast {

/// Bounds a module's heap from below, over all orders, offsets and alignments: no plan's
/// `heap_bytes` is lower.
///
/// It is what a scheduler proves of the module's relaxed graphs (`ScheduleSearch`; the classic ones
/// prove nothing), less all that the results' own memory can take in. Errors: those of
/// `schedule_module`. Cost: of the scheduler.
template <memory_scheduler Scheduler>
[[nodiscard]] constexpr Result<Bytes> any_order_bound(const Module& module,
                                                      const ValueTable& values,
                                                      const Scheduler& scheduler) {
  ModuleGraphOptions options;
  options.alignment = 1;
  options.outputs_held = false;
  options.relaxed = true;
  const Result<ModuleSchedule> schedule = schedule_module(module, values, scheduler, options);
  if (!schedule.ok()) return schedule.error();
  Bytes results = 0;
  const ShapeId root = module[module[module.entry].root].shape;
  for (std::uint32_t n = 0; n < module.shapes.node_count(root); ++n)
    if (const ShapeId shape = module.shapes.node(root, n); !module.shapes.is_tuple(shape))
      results = saturating_add(results, std::max<Bytes>(0, module.shapes.byte_size(shape)));
  return schedule->lower_bound - std::min(schedule->lower_bound, results);
}

}  // namespace holdfast
