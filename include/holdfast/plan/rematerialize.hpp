// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/graph/alias.hpp"
#include "holdfast/graph/in_place.hpp"
#include "holdfast/graph/module.hpp"
#include "holdfast/plan/buffer_assignment.hpp"
#include "holdfast/plan/detail/remat_choice.hpp"
#include "holdfast/plan/detail/remat_edit.hpp"
#include "holdfast/plan/plan_module.hpp"
#include "holdfast/plan/plan_offsets.hpp"
#include "holdfast/plan/plan_summary.hpp"
#include "holdfast/plan/time_model.hpp"

namespace holdfast {

/// What `rematerialize` may do, and how far.
struct RematerializeOptions {
  Bytes limit = max_bytes;  ///< of `PlanSummary::peak_bytes`
  bool recompute = true;
  bool offload = true;
  bool wait_for_copies = true;  ///< a copy to the host may take longer than what runs meanwhile
  std::uint32_t chain = 64;     ///< instructions computed again for one value; at most 256
  std::uint32_t rounds = 12;    ///< plans that are made and looked at
  MachineSpeed machine = {};
  Bytes pointer_size = 8;
  AssignOptions assign = {};
};

/// One thing that was done.
struct RematDecision {
  std::string_view name;  ///< of what was computed again, or kept on the host; owned by the module
  bool on_host = false;
  std::uint32_t instructions = 0;  ///< computed again for it; 0 of one that only runs later
  Bytes bytes = 0;                 ///< less at the peak of its time
  double seconds = 0;              ///< added. Units: seconds
};

/// How far `rematerialize` got.
struct Rematerialized {
  bool fits = false;
  std::uint32_t recomputed = 0;  ///< instructions
  std::uint32_t offloaded = 0;   ///< values
  double seconds = 0;            ///< of one run as it was. Units: seconds
  double added_seconds = 0;      ///< by all that was done. Units: seconds
  Bytes first_peak = 0;          ///< `peak_bytes` as it was
  Bytes peak = 0;                ///< `peak_bytes` as it is now
  Bytes floor = 0;               ///< no order, recomputation or copy to the host leads below
  std::vector<RematDecision> decisions;

  [[nodiscard]] constexpr bool changed() const noexcept { return !decisions.empty(); }
};

/// A peak that no order of the same work has less than, however often it is done.
///
/// Arguments, and outputs beside them, are there from begin to end; and whatever runs has its
/// operands and results in memory, of which those that arguments do not hold come on top of
/// arguments that nobody overwrites. Where a result may take an operand's place only the larger
/// side counts. Cost: linear.
[[nodiscard]] constexpr Bytes peak_floor(const Module& module, const ValueTable& values,
                                         const Liveness& live, const BufferSet& buffers,
                                         const PlanSummary& summary) {
  Bytes constant = 0;
  for (const InstructionId p : module.parameters_of(module.entry))
    for (std::uint32_t n = 0, count = module.shapes.node_count(module[p].shape); n < count; ++n) {
      const ValueId v = values.value(p, n);
      if (module.shapes.is_tuple(values[v].shape) || buffers.is_written(buffers.root(v)) ||
          module.shapes.space(values[v].shape) == MemorySpace::host)
        continue;
      constant =
          saturating_add(constant, std::max<Bytes>(module.shapes.byte_size(values[v].shape), 0));
    }
  InPlaceRules rules(module);
  Bytes most = 0;
  std::vector<ValueId> seen;
  const auto sum = [&] {
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    Bytes out = 0;
    for (const ValueId v : seen) {
      const bool argument =
          values[v].kind == ValueKind::parameter && !buffers.is_written(buffers.root(v));
      if (argument || values[v].kind == ValueKind::constant ||
          module.shapes.is_tuple(values[v].shape) ||
          module.shapes.space(values[v].shape) == MemorySpace::host)
        continue;
      out = saturating_add(out, std::max<Bytes>(module.shapes.byte_size(values[v].shape), 0));
    }
    seen.clear();
    return out;
  };
  for (const Step& s : live.steps) {
    if (s.kind != StepKind::execute) continue;
    const Instruction& i = module[s.instruction];
    for (const InstructionId o : module.operands(i))
      for (std::uint32_t n = 0, count = module.shapes.node_count(module[o].shape); n < count; ++n)
        if (i.opcode != Opcode::copy || n == 0) seen.push_back(values.value(o, n));
    const Bytes read = sum();
    for (std::uint32_t n = 0, count = module.shapes.node_count(i.shape); n < count; ++n)
      if (const ValueId v = values.value(s.instruction, n); values[v].instruction == s.instruction)
        seen.push_back(v);
    const Bytes written = sum();
    bool in_place = InPlaceRules::overwrites(i.opcode);
    rules.for_each_pair(s.instruction,
                        [&](std::uint32_t, std::uint32_t, std::uint32_t) { in_place = true; });
    most = std::max(most, in_place ? std::max(read, written) : saturating_add(read, written));
  }
  return std::max(summary.peak_bytes - summary.stats.temp_size_in_bytes,
                  saturating_add(constant, most));
}

namespace detail {

/// The tables of a module that an edit changes, to go back to.
struct ModuleTables {
  std::vector<Computation> computations;
  std::vector<Instruction> instructions;
  std::vector<InstructionId> instruction_ids, parameter_ids, operand_ids, control_ids;
  std::vector<ComputationId> called_ids;
  std::vector<OperandAlias> operand_aliases;
  std::vector<Attribute> attributes;
  ComputationId entry;

  explicit constexpr ModuleTables(const Module& m)
      : computations(m.computations),
        instructions(m.instructions),
        instruction_ids(m.instruction_ids),
        parameter_ids(m.parameter_ids),
        operand_ids(m.operand_ids),
        control_ids(m.control_ids),
        called_ids(m.called_ids),
        operand_aliases(m.operand_aliases),
        attributes(m.attributes),
        entry(m.entry) {}
  constexpr void restore(Module& m) && {
    m.computations = std::move(computations), m.instructions = std::move(instructions);
    m.instruction_ids = std::move(instruction_ids), m.parameter_ids = std::move(parameter_ids);
    m.operand_ids = std::move(operand_ids), m.control_ids = std::move(control_ids);
    m.called_ids = std::move(called_ids), m.operand_aliases = std::move(operand_aliases);
    m.attributes = std::move(attributes);
    m.entry = entry;
  }
};

/// Plans, changes and plans again.
template <offset_planner Planner>
class Rematerializer {
 public:
  constexpr Rematerializer(ModulePlan& plan, const RematerializeOptions& options,
                           const Planner& planner)
      : p_(plan), m_(plan.module), options_(options), planner_(planner) {}

  constexpr Result<Rematerialized> run() {
    double link = 0;
    Bytes margin = 0;
    std::uint32_t vain = 0;  // rounds without gain, one after another
    std::vector<RematDecision> decisions;
    for (std::uint32_t round = 0;; ++round) {
      Error e = p_.analyze();
      if (e.ok()) e = p_.plan(planner_, {options_.assign, options_.pointer_size});
      if (!e.ok()) return e;
      const PlanSummary& summary = p_.summary;
      if (round == 0) {
        out_.first_peak = out_.peak = summary.peak_bytes;
        out_.floor = peak_floor(m_, p_.values, p_.live, p_.buffers(), summary);
      }
      if (round == 0 || summary.peak_bytes < out_.peak) {
        out_.peak = summary.peak_bytes;
        out_.decisions = decisions;
        best_.clear();
        vain = 0;
      } else if (++vain == most_vain) {
        break;
      }
      out_.fits = out_.peak <= options_.limit;
      if (out_.fits || round == options_.rounds || out_.floor > options_.limit) break;
      const TimeModel time(m_, options_.machine);
      if (round == 0) out_.seconds = time.total();
      const RematRules rules(m_);
      RematTimeLine line(m_, p_.values, p_.live, p_.buffers(), p_.assignment, time);
      const Bytes fixed = summary.peak_bytes - summary.stats.temp_size_in_bytes;
      // The arenas may be a little higher than what is alive, and other orders of sharing come with
      // the changes.
      const Bytes loss = std::max<Bytes>(0, summary.stats.temp_size_in_bytes - line.load.most());
      if (round > 0) margin += std::max<Bytes>(1, (options_.limit - fixed) / 100);
      const Bytes target = options_.limit - fixed - loss - margin;
      const RematLimits limits{options_.recompute, options_.offload, options_.wait_for_copies,
                               std::min(options_.chain, 256u)};
      RematChoice choice(m_, p_.values, time, rules, line, limits, link);
      const std::vector<RematEdit> edits = choice.run(std::max<Bytes>(target, 0));
      if (edits.empty()) break;
      link = choice.link_seconds();
      for (const RematEdit& edit : edits)
        if (!edit.dropped) {
          const auto again = static_cast<std::uint32_t>(edit.chain.size());
          decisions.push_back({m_[edit.unit].name, again == 0, again - (edit.moved ? 1u : 0u),
                               edit.bytes, edit.seconds});
        }
      if (best_.empty()) best_.emplace_back(m_);
      if (e = RematEditor(m_, rules).run(edits); !e.ok()) return e;
    }
    if (!best_.empty()) std::move(best_.front()).restore(m_);
    for (const RematDecision& d : out_.decisions) {
      out_.added_seconds += d.seconds;
      out_.offloaded += d.on_host ? 1u : 0u;
      out_.recomputed += d.instructions;
    }
    return std::move(out_);
  }

 private:
  static constexpr std::uint32_t most_vain = 3;

  ModulePlan& p_;
  Module& m_;
  const RematerializeOptions& options_;
  const Planner& planner_;
  Rematerialized out_;
  std::vector<ModuleTables> best_;  // one, when the module is not at its best
};

}  // namespace detail

/// Brings the peak of a scheduled module's plan below a limit: values are computed again, or wait
/// on the host, where that costs the least time.
///
/// What is between two readers of a value at the peak gives way: it is recomputed before the later
/// one, with what it needs and is not there, or copied to the host and back. Calls, loops, custom
/// calls, collectives, random numbers and everything with side effects or control edges run as
/// often as before; what was added is not changed again. A module that does not fit is left with
/// the least peak that was reached. Clones share the computations of fusions. Errors: those of the
/// analyses and of the planner. Cost: `rounds` plans, and for each peak moment a look at all
/// values. Source: XLA's HloRematerialization; it takes what saves the most bytes, whatever it
/// costs (passes.md 11).
template <offset_planner Planner = PlanOffsets<>>
[[nodiscard]] constexpr Result<Rematerialized> rematerialize(Module& module,
                                                             const RematerializeOptions& options,
                                                             const Planner& planner = {}) {
  ModulePlan plan(std::move(module));
  Result<Rematerialized> out = detail::Rematerializer<Planner>(plan, options, planner).run();
  module = std::move(plan.module);
  return out;
}

}  // namespace holdfast
