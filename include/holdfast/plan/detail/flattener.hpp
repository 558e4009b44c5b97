// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "holdfast/graph/alias.hpp"
#include "holdfast/plan/detail/parallel_moves.hpp"
#include "holdfast/plan/time_line.hpp"

namespace holdfast::detail {

/// "No loop", "no branch", "never defined", beside numbers of steps, spans and pieces.
inline constexpr std::uint32_t never = 0xFFFFFFFFu;

/// A loop's steps on the time line, for what is defined outside and used inside.
struct LoopSpan {
  std::uint32_t enter = 0, back = 0, parent = never;
};
/// A branch's first step, its conditional's first step, and the branch around it.
struct BranchSpan {
  std::uint32_t begin = 0, conditional = 0, parent = never;
};
/// The steps of an asynchronous computation.
struct AsyncSpan {
  InstructionId start{};
  std::uint32_t first = 0, last = 0;
};

/// What encloses each step of one frame's time line.
struct TimeSpans {
  std::vector<LoopSpan> loops;
  std::vector<BranchSpan> branches;
  std::vector<AsyncSpan> async;
  std::vector<std::uint32_t> loop_of_step, branch_of_step;
};

/// Tells whether values of a shape are placed: tuples, tokens and empty arrays are not.
[[nodiscard]] constexpr bool needs_bytes(const Module& module, ShapeId shape) noexcept {
  return module.shapes[shape].type != ElementType::tuple && module.shapes.byte_size(shape) > 0;
}

/// Appends a place that no instruction defines.
constexpr ValueId add_place(Liveness& out, const Place& place) {
  out.places.push_back(place);
  return static_cast<ValueId>(out.places.size() - 1);
}

/// Lays one computation, and what is flat below it, out as the steps and moves of a frame.
///
/// Nested computations are kept on a stack of its own: depth costs memory, not call depth.
class Flattener {
 public:
  constexpr Flattener(const Module& module, const ValueTable& values, Liveness& out)
      : m_(module), t_(values), out_(out), frame_(static_cast<std::uint32_t>(out.frames.size())), first_step_(static_cast<std::uint32_t>(out.steps.size())) {}

  /// Appends the steps of `frame` to the output and gives it with its steps and results.
  constexpr Frame run(ComputationId frame) {
    flatten(frame);
    Frame f;
    f.computation = frame;
    f.results = add_finish(frame);
    f.steps = {first_step_, now()};
    std::sort(spans_.async.begin(), spans_.async.end(), [](const AsyncSpan& a, const AsyncSpan& b) { return a.start < b.start; });
    return f;
  }
  /// What encloses each step.
  [[nodiscard]] constexpr TimeSpans&& spans() && noexcept { return std::move(spans_); }

 private:
  /// A computation being flattened, and how far.
  struct Walk {
    ComputationId computation{};
    InstructionId caller = no_id<InstructionId>;
    std::uint32_t next = 0;     // in its instructions
    std::uint32_t stage = 0;    // which of its caller's computations it is
    std::uint32_t mark = 0;     // step where the caller's part began
    std::uint32_t link = 0;     // the branch_begin or loop_test that waits for its target
    std::uint32_t ends = never; // chain of branch_ends that wait for the join, through their targets
  };
  const Module& m_;
  const ValueTable& t_;
  Liveness& out_;
  std::uint32_t frame_;
  std::uint32_t first_step_;
  std::uint32_t loop_ = never, branch_ = never;  // around the step being added
  TimeSpans spans_;

  constexpr std::uint32_t now() const noexcept { return static_cast<std::uint32_t>(out_.steps.size()) - first_step_; }
  constexpr Step& step(std::uint32_t s) noexcept { return out_.steps[first_step_ + s]; }
  constexpr std::uint32_t add_step(InstructionId i, StepKind kind) {
    out_.steps.push_back({i, kind, 0, {static_cast<std::uint32_t>(out_.moves.size()), 0}});
    spans_.loop_of_step.push_back(loop_);
    spans_.branch_of_step.push_back(branch_);
    return now() - 1;
  }
  template <class Span>
  static constexpr std::uint32_t push(std::vector<Span>& to, const Span& span) {
    to.push_back(span);
    return static_cast<std::uint32_t>(to.size() - 1);
  }

  constexpr void flatten(ComputationId frame) {
    std::vector<Walk> stack{Walk{frame}};
    out_.frame_of[index_of(frame)] = frame_;
    const auto enter = [&](Walk w) {
      out_.frame_of[index_of(w.computation)] = frame_;
      stack.push_back(w);
    };
    for (;;) {
      Walk& top = stack.back();
      const std::span<const InstructionId> body = m_.instructions_of(top.computation);
      if (top.next < body.size()) {
        const InstructionId id = body[top.next++];
        const Instruction& i = m_[id];
        if (is_forwarding(i.opcode) || i.opcode == Opcode::parameter || i.opcode == Opcode::constant) continue;
        if (i.opcode == Opcode::while_) {
          const std::uint32_t at = add_step(id, StepKind::loop_enter);
          add_carry_moves(id, &LoopCarry::init, &LoopCarry::carried);
          loop_ = push(spans_.loops, {at, 0, loop_});
          enter({.computation = m_.called(i)[1], .caller = id, .mark = at});
        } else if (i.opcode == Opcode::conditional) {
          const std::uint32_t at = add_step(id, StepKind::branch_begin);
          branch_ = push(spans_.branches, {at, at, branch_});
          enter({.computation = m_.called(i)[0], .caller = id, .mark = at, .link = at});
        } else if (i.opcode == Opcode::async_start || (i.opcode == Opcode::call && t_.calls[m_.called(i)[0]] == CallContext::flat)) {
          enter({.computation = m_.called(i)[0], .caller = id, .mark = now()});
        } else {
          add_step(id, i.opcode == Opcode::call ? StepKind::call : StepKind::execute);
        }
        continue;
      }
      Walk done = top;
      stack.pop_back();
      if (stack.empty()) return;
      const Instruction& caller = m_[done.caller];
      if (caller.opcode == Opcode::while_ && done.stage == 0) {
        const std::uint32_t test = add_step(done.caller, StepKind::loop_test);
        enter({.computation = m_.called(caller)[0], .caller = done.caller, .stage = 1, .mark = done.mark, .link = test});
      } else if (caller.opcode == Opcode::while_) {
        const std::uint32_t back = add_step(done.caller, StepKind::loop_back);
        step(back).target = done.mark + 1;
        add_carry_moves(done.caller, &LoopCarry::next, &LoopCarry::carried);
        spans_.loops[loop_].back = back;
        loop_ = spans_.loops[loop_].parent;
        step(done.link).target = add_step(done.caller, StepKind::loop_exit);
        add_carry_moves(done.caller, &LoopCarry::carried, &LoopCarry::result);
      } else if (caller.opcode == Opcode::conditional) {
        const std::uint32_t end = add_step(done.caller, StepKind::branch_end);
        step(end).target = done.ends;
        add_join_moves(done.caller, done.stage);
        const std::span<const ComputationId> branches = m_.called(caller);
        const bool last = done.stage + 1 == branches.size();
        branch_ = spans_.branches[branch_].parent;
        const std::uint32_t following = add_step(done.caller, last ? StepKind::join : StepKind::branch_begin);
        step(done.link).target = following;
        if (!last) {
          branch_ = push(spans_.branches, {following, done.mark, branch_});
          enter({.computation = branches[done.stage + 1], .caller = done.caller, .stage = done.stage + 1, .mark = done.mark, .link = following, .ends = end});
        }
        for (std::uint32_t e = last ? end : never; e != never;) {
          const std::uint32_t previous = step(e).target;
          step(e).target = following;
          e = previous;
        }
      } else if (caller.opcode == Opcode::async_start) {
        spans_.async.push_back({done.caller, done.mark, add_step(done.caller, StepKind::execute)});
      }
    }
  }

  constexpr void close_moves() noexcept {
    IndexRange& r = out_.steps.back().moves;
    r.count = static_cast<std::uint32_t>(out_.moves.size()) - r.begin;
  }
  constexpr void add_carry_moves(InstructionId loop, ValueId LoopCarry::*from, ValueId LoopCarry::*to) {
    const IndexRange run = t_.control[index_of(loop)];
    std::vector<Move> moves;
    for (std::uint32_t k = run.begin; k < run.end(); ++k)
      if (needs_bytes(m_, t_[t_.carries[k].carried].shape)) moves.push_back({t_.carries[k].*from, t_.carries[k].*to});
    order_moves(moves, loop);
  }
  constexpr void add_join_moves(InstructionId conditional, std::uint32_t branch) {
    const IndexRange run = t_.control[index_of(conditional)];
    const InstructionId root = m_[m_.called(m_[conditional])[branch]].root;
    for (std::uint32_t k = run.begin; k < run.end(); ++k)
      if (needs_bytes(m_, t_[t_.joins[k].result].shape)) out_.moves.push_back({t_.value(root, t_.joins[k].node), t_.joins[k].result});
    close_moves();
  }

  constexpr void order_moves(std::vector<Move>& moves, InstructionId at) {
    sequence_moves(moves, out_.moves, [&](ValueId to) {
      const Place p = out_.places[index_of(to)];
      return add_place(out_, {at, p.node, p.shape, PlaceKind::spare, frame_});
    });
    close_moves();
  }

  /// Adds the step that brings the frame's results to where its caller wants them.
  constexpr IndexRange add_finish(ComputationId c) {
    const InstructionId root = m_[c].root;
    add_step(root, StepKind::finish);
    const std::uint32_t count = m_.shapes.node_count(m_[root].shape);
    // An output in a parameter's memory overwrites the parameter: while ordering, that is its target.
    std::vector<ValueId> parameter(count, no_id<ValueId>);
    if (c == m_.entry)
      for (const ParameterAlias& a : m_.parameter_aliases) parameter[a.output_node] = t_.value(m_.parameters_of(c)[a.parameter], a.parameter_node);
    const auto first = static_cast<std::uint32_t>(out_.places.size());
    std::vector<Move> moves;
    for (std::uint32_t n = 0; n < count; ++n)
      if (needs_bytes(m_, m_.shapes.node(m_[root].shape, n))) {
        const ValueId place = add_place(out_, {root, n, m_.shapes.node(m_[root].shape, n), PlaceKind::result, frame_});
        moves.push_back({t_.value(root, n), parameter[n] != no_id<ValueId> ? parameter[n] : place});
      }
    const IndexRange results{first, static_cast<std::uint32_t>(out_.places.size()) - first};
    std::vector<std::pair<ValueId, ValueId>> result_of;
    for (std::uint32_t r = results.begin; r < results.end(); ++r)
      if (const ValueId p = parameter[out_.places[r].node]; p != no_id<ValueId>) result_of.push_back({p, static_cast<ValueId>(r)});
    std::sort(result_of.begin(), result_of.end());
    order_moves(moves, root);
    for (std::uint32_t k = out_.steps.back().moves.begin; k < out_.moves.size(); ++k) {
      const auto found = std::lower_bound(result_of.begin(), result_of.end(), std::pair{out_.moves[k].to, ValueId{0}});
      if (found != result_of.end() && found->first == out_.moves[k].to) out_.moves[k].to = found->second;
    }
    return results;
  }
};

}  // namespace holdfast::detail
