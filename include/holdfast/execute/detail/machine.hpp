// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "holdfast/execute/detail/table.hpp"
#include "holdfast/execute/host_streams.hpp"
#include "holdfast/execute/kernel.hpp"
#include "holdfast/graph/alias.hpp"
#include "holdfast/plan/buffer_assignment.hpp"

namespace holdfast {

/// A planned program: the stages that were made for it, all of the same module. Threads: views.
struct PlannedProgram {
  const Module* module = nullptr;
  const ValueTable* values = nullptr;
  const Liveness* live = nullptr;
  const BufferAssignment* plan = nullptr;
};

namespace detail {

/// Where the memory of a run lies: bases that the plan's locations are relative to.
class RunMemory {
 public:
  [[nodiscard]] Error make(const PlannedProgram& p) noexcept {
    p_ = p;
    if (Error e = bases_.make(p.live->places.size()); !e.ok()) return e;
    return arenas_.make(p.plan->arenas.size());
  }
  void set_base(std::uint32_t place, std::byte* base) noexcept { bases_[place] = base; }
  void set_arena(std::uint32_t arena, std::byte* base) noexcept { arenas_[arena] = base; }
  /// The address of a place; null where it needs no bytes. A constant needs no place in the plan.
  [[nodiscard]] std::byte* at(ValueId place) const noexcept {
    const Location& l = p_.plan->locations[index_of(place)];
    return l.base == Location::Base::none ? bases_[index_of(place)] : at(l);
  }
  [[nodiscard]] std::byte* at(const Location& l) const noexcept {
    std::byte* const base = l.base == Location::Base::arena ? arenas_[l.index] : bases_[l.index];
    return base == nullptr ? nullptr : base + l.offset;
  }

 private:
  PlannedProgram p_;
  Table<std::byte*> bases_;  // by place: of parameters, results and constants
  Table<std::byte*> arenas_;
};

/// Calls `f(node, shape)` for each leaf of a shape.
template <class F>
void each_leaf(const ShapeTable& shapes, ShapeId shape, F&& f) noexcept {
  for (std::uint32_t n = 0, count = shapes.node_count(shape); n < count; ++n)
    if (const ShapeId s = shapes.node(shape, n); !shapes.is_tuple(s)) f(n, s);
}

/// Runs the steps of a program, one frame inside the other.
///
/// Between control steps it may keep many kernels going: each waits for those before it whose
/// memory it needs. Threads: one master; kernels run on it and on the helpers of its window.
template <plan_kernel Kernel>
class Machine {
 public:
  Machine(const PlannedProgram& program, RunMemory& memory, Kernel& kernel) noexcept
      : p_(program),
        m_(*program.module),
        memory_(memory),
        kernel_(kernel),
        window_(run_slot, this) {}

  /// Makes all tables that a run needs. Errors: out_of_memory.
  [[nodiscard]] Error make(std::uint32_t streams) noexcept {
    std::size_t most = 1;
    for (const Step& s : p_.live->steps)
      if (s.kind == StepKind::execute) most = std::max(most, count_arrays(s.instruction));
    // Many arrays a call: fewer calls at once, so that the tables stay small.
    slots_ = streams <= 1 ? 1
                          : static_cast<std::uint32_t>(
                                std::clamp<std::size_t>(max_arrays / most, 2, TaskWindow::slots));
    most_ = most;
    if (Error e = arrays_.make(most * slots_); !e.ok()) return e;
    if (Error e = frames_.make(p_.live->frames.size()); !e.ok()) return e;
    return index_callees();
  }
  [[nodiscard]] TaskWindow& window() noexcept { return window_; }
  [[nodiscard]] bool uses_streams() const noexcept { return slots_ > 1; }

  /// Runs the entry to its end. Errors: the kernel's first in program order.
  [[nodiscard]] Error run() noexcept {
    const Error e = run_steps();
    const Error earlier = drain();  // also after an error: nothing may run on when the memory goes
    return earlier.ok() ? e : earlier;
  }

 private:
  static constexpr std::size_t max_arrays = std::size_t{1} << 20;

  struct Activation {
    std::uint32_t frame = 0;
    std::uint32_t next = 0;  // step to go on with
    InstructionId caller = no_id<InstructionId>;
  };
  struct Slot {
    KernelCall call;
  };

  const PlannedProgram p_;
  const Module& m_;
  RunMemory& memory_;
  Kernel& kernel_;
  TaskWindow window_;
  std::uint32_t slots_ = 1;
  std::size_t most_ = 1;
  Slot slot_[TaskWindow::slots];
  Table<KernelArray> arrays_;       // `most_` for each slot
  Table<Activation> frames_;        // a stack: a frame is active once at most
  Table<std::uint32_t> callee_at_;  // by instruction: its place of kind callee
  std::uint32_t depth_ = 0;

  [[nodiscard]] std::size_t count_arrays(InstructionId id) const noexcept {
    std::size_t count = m_.shapes.node_count(m_[id].shape);
    for (const InstructionId o : m_.operands(m_[id])) count += m_.shapes.node_count(m_[o].shape);
    return count;
  }
  [[nodiscard]] Error index_callees() noexcept {
    bool any = false;
    for (const Place& place : p_.live->places) any = any || place.kind == PlaceKind::callee;
    if (!any) return {};
    if (Error e = callee_at_.make(m_.instructions.size()); !e.ok()) return e;
    for (std::uint32_t k = 0; k < p_.live->places.size(); ++k)
      if (p_.live->places[k].kind == PlaceKind::callee)
        callee_at_[index_of(p_.live->places[k].instruction)] = k;
    return {};
  }

  // -- memory of a call
  // ------------------------------------------------------------------------------

  [[nodiscard]] KernelArray array_of(InstructionId i, std::uint32_t operand, std::uint32_t node,
                                     ShapeId shape) const noexcept {
    std::byte* const at = memory_.at(p_.values->value(i, node));
    return {i, operand, node, shape,
            at == nullptr ? Block{} : Block{at, m_.shapes.byte_size(shape)}};
  }
  /// Fills a slot with the memory of an instruction.
  void prepare(std::uint32_t slot, InstructionId id) noexcept {
    const Instruction& i = m_[id];
    KernelArray* const first = arrays_.begin() + most_ * slot;
    KernelArray* to = first;
    std::uint32_t number = 0;
    for (const InstructionId o : m_.operands(i)) {
      each_leaf(m_.shapes, m_[o].shape, [&](std::uint32_t n, ShapeId s) {
        if (i.opcode != Opcode::copy || n == 0) *to++ = array_of(o, number, n, s);
      });
      ++number;
    }
    KernelArray* const results = to;
    each_leaf(m_.shapes, i.shape, [&](std::uint32_t n, ShapeId s) {
      const Value& v = (*p_.values)[p_.values->value(id, n)];
      if (v.instruction == id && v.node == n) *to++ = array_of(id, 0, n, s);
    });
    slot_[slot].call = {&m_, id, {first, results}, {results, to}};
  }

  // -- kernels in flight
  // -----------------------------------------------------------------------------

  static bool overlap(const Block& a, const Block& b) noexcept {
    return a.size > 0 && b.size > 0 && a.data < b.data + b.size && b.data < a.data + a.size;
  }
  static bool any_overlap(std::span<const KernelArray> a, std::span<const KernelArray> b) noexcept {
    for (const KernelArray& x : a)
      for (const KernelArray& y : b)
        if (overlap(x.memory, y.memory)) return true;
    return false;
  }
  /// The busy slots that touch what a call writes, or write what it reads.
  [[nodiscard]] std::uint64_t hazards(const KernelCall& call, std::uint64_t busy) const noexcept {
    std::uint64_t out = 0;
    for (std::uint64_t rest = busy; rest != 0; rest &= rest - 1) {
      const auto s = static_cast<std::uint32_t>(__builtin_ctzll(rest));
      const KernelCall& before = slot_[s].call;
      if (any_overlap(call.results, before.operands) || any_overlap(call.results, before.results) ||
          any_overlap(call.operands, before.results))
        out |= std::uint64_t{1} << s;
    }
    return out;
  }
  static Error run_slot(void* self, std::uint32_t slot) noexcept {
    Machine& machine = *static_cast<Machine*>(self);
    return machine.kernel_.run(machine.slot_[slot].call);
  }
  [[nodiscard]] Error execute(InstructionId id) noexcept {
    if (slots_ == 1) {
      prepare(0, id);
      return kernel_.run(slot_[0].call);
    }
    if (Error e = window_.help_until(slots_ - 1); !e.ok()) return e;
    const std::uint64_t busy = window_.busy();
    const auto slot = static_cast<std::uint32_t>(__builtin_ctzll(~busy));
    prepare(slot, id);
    window_.put(slot, hazards(slot_[slot].call, busy));
    return {};
  }
  [[nodiscard]] Error drain() noexcept { return slots_ == 1 ? Error{} : window_.help_until(0); }

  // -- control
  // ---------------------------------------------------------------------------------------

  [[nodiscard]] Error tell(const ControlPoint& point) noexcept {
    if constexpr (watching_kernel<Kernel>)
      return kernel_.on_control(point);
    else
      return static_cast<void>(point), Error{};
  }
  [[nodiscard]] Error move(const Step& step) noexcept {
    for (const Move& move : p_.live->moves_of(step)) {
      std::byte* const from = memory_.at(move.from);
      std::byte* const to = memory_.at(move.to);
      const Bytes size = m_.shapes.byte_size(p_.live->places[index_of(move.to)].shape);
      if (from == to || from == nullptr || to == nullptr) continue;
      if (Error e = copy_with(kernel_, Block{to, size}, from); !e.ok()) return e;
      if constexpr (watching_kernel<Kernel>) kernel_.on_move(move, Block{to, size});
    }
    return {};
  }
  /// Lays a called frame's memory over its caller's.
  void enter(InstructionId call) noexcept {
    const Instruction& i = m_[call];
    const ComputationId callee = m_.called(i)[0];
    const std::uint32_t number = p_.live->frame_of[index_of(callee)];
    const Frame& frame = p_.live->frames[number];
    const std::span<const InstructionId> parameters = m_.parameters_of(callee);
    for (std::size_t k = 0; k < parameters.size(); ++k)
      each_leaf(m_.shapes, m_[parameters[k]].shape, [&](std::uint32_t n, ShapeId) {
        memory_.set_base(index_of(p_.values->value(parameters[k], n)),
                         memory_.at(p_.values->value(m_.operands(i)[k], n)));
      });
    for (std::uint32_t r = frame.results.begin; r < frame.results.end(); ++r)
      memory_.set_base(r, memory_.at(p_.values->value(call, p_.live->places[r].node)));
    const auto place = static_cast<ValueId>(callee_at_[index_of(call)]);
    const auto& callees = p_.plan->callees;
    for (auto c = std::lower_bound(callees.begin(), callees.end(), place,
                                   [](const CalleeArena&a, ValueId v) { return a.place < v; });
         c != callees.end() && c->place == place; ++c)
      memory_.set_arena(c->arena, memory_.at(c->location));
    frames_[++depth_] = {number, 0, call};
  }
  [[nodiscard]] KernelCall question(InstructionId about, InstructionId answer) noexcept {
    KernelArray& a = arrays_[0];
    a = array_of(answer, 0, 0, m_[answer].shape);
    return {&m_, about, {&a, 1}, {}};
  }

  [[nodiscard]] Error run_steps() noexcept {
    depth_ = 0;
    frames_[0] = {static_cast<std::uint32_t>(p_.live->frames.size() - 1), 0, no_id<InstructionId>};
    for (;;) {
      Activation& now = frames_[depth_];
      const Frame& frame = p_.live->frames[now.frame];
      const Step& step = p_.live->steps[frame.steps.begin + now.next++];
      if (step.kind == StepKind::execute) {
        if (Error e = execute(step.instruction); !e.ok()) return e;
        continue;
      }
      if (Error e = drain(); !e.ok()) return e;
      ControlPoint point{step.kind, step.instruction, 0, now.caller};
      switch (step.kind) {
        case StepKind::execute:
          break;
        case StepKind::loop_test: {
          const Result<bool> more = kernel_.test_loop(
              question(step.instruction, m_[m_.called(m_[step.instruction])[1]].root));
          if (!more.ok()) return more.error();
          if (!*more) now.next = step.target;
          break;
        }
        case StepKind::branch_begin: {
          const Result<std::uint32_t> branch = kernel_.choose_branch(
              question(step.instruction, m_.operands(m_[step.instruction])[0]));
          if (!branch.ok()) return branch.error();
          if (*branch >= m_[step.instruction].called.count)
            return make_error(Errc::invalid_argument, "a kernel chose a branch that there is not");
          point.branch = *branch;
          for (std::uint32_t k = 0; k < *branch; ++k)
            now.next = p_.live->steps[frame.steps.begin + now.next - 1].target + 1;
          break;
        }
        case StepKind::branch_end:
          point.branch = branch_of(frame, now.next - 1, step.instruction);
          [[fallthrough]];
        case StepKind::loop_back:
          now.next = step.target;
          break;
        default:
          break;
      }
      if (Error e = tell(point); !e.ok()) return e;
      if (Error e = move(step); !e.ok()) return e;
      if (step.kind == StepKind::call) enter(step.instruction);
      if (step.kind == StepKind::finish && depth_-- == 0) return {};
    }
  }

  /// Which branch of a conditional a step ends: one before each branch_begin that stands behind it.
  [[nodiscard]] std::uint32_t branch_of(const Frame& frame, std::uint32_t end,
                                        InstructionId conditional) const noexcept {
    std::uint32_t behind = 0;
    for (std::uint32_t s = end + 1;;) {
      const Step& next = p_.live->steps[frame.steps.begin + s];
      if (next.instruction != conditional || next.kind != StepKind::branch_begin) break;
      ++behind;
      s = next.target;
    }
    return m_[conditional].called.count - 1 - behind;
  }
};

}  // namespace detail
}  // namespace holdfast
