// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/graph/alias.hpp"
#include "holdfast/plan/detail/parallel_moves.hpp"
#include "holdfast/plan/time_line.hpp"

namespace holdfast {

namespace detail {

/// Flattens computations into frames, then walks each time line once.
class LivenessBuilder {
 public:
  constexpr LivenessBuilder(const Module& module, const ValueTable& values) : m_(module), t_(values) {}

  constexpr Result<Liveness> run() {
    out_.frame_of.resize(m_.computations.size(), Liveness::no_frame);
    begin_.resize(t_.values.size(), never);
    last_.resize(t_.values.size(), never);
    for (const Value& v : t_.values) out_.places.push_back({v.instruction, v.node, v.shape, PlaceKind::value, 0});
    for (std::size_t c = 0; c <= index_of(m_.entry); ++c)
      if (t_.calls.context[c] == CallContext::frame) build_frame(static_cast<ComputationId>(c));
    return std::move(out_);
  }

 private:
  static constexpr std::uint32_t never = 0xFFFFFFFFu;

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

  const Module& m_;
  const ValueTable& t_;
  Liveness out_;
  std::uint32_t frame_ = 0;
  std::uint32_t first_step_ = 0;
  std::uint32_t loop_ = never, branch_ = never;  // around the step being added
  std::vector<std::uint32_t> begin_;     // by value: the step that defines it; `never` for parameters
  std::vector<std::uint32_t> last_;      // by value: its last piece so far, in out_.pieces
  std::vector<std::uint32_t> previous_;  // by piece: the one before it of the same value
  std::vector<LoopSpan> loops_;
  std::vector<BranchSpan> branches_;
  std::vector<std::uint32_t> loop_of_step_, branch_of_step_;
  std::vector<std::uint32_t> way_;  // scratch of cover
  std::vector<AsyncSpan> async_;

  template <class F>
  constexpr void each_value(InstructionId i, F&& f) const {
    for (std::uint32_t n = 0, count = m_.shapes.node_count(m_[i].shape); n < count; ++n) f(t_.value(i, n));
  }
  constexpr std::uint32_t now() const noexcept { return static_cast<std::uint32_t>(out_.steps.size()) - first_step_; }
  constexpr Step& step(std::uint32_t s) noexcept { return out_.steps[first_step_ + s]; }
  constexpr bool needs_bytes(ShapeId s) const noexcept {
    return m_.shapes[s].type != ElementType::tuple && m_.shapes.byte_size(s) > 0;
  }
  constexpr std::uint32_t add_step(InstructionId i, StepKind kind) {
    out_.steps.push_back({i, kind, 0, {static_cast<std::uint32_t>(out_.moves.size()), 0}});
    loop_of_step_.push_back(loop_);
    branch_of_step_.push_back(branch_);
    return now() - 1;
  }

  constexpr void build_frame(ComputationId c) {
    frame_ = static_cast<std::uint32_t>(out_.frames.size());
    first_step_ = static_cast<std::uint32_t>(out_.steps.size());
    Frame f;
    f.computation = c;
    loops_.clear(), branches_.clear(), loop_of_step_.clear(), branch_of_step_.clear(), async_.clear();
    flatten(c);
    f.results = add_finish(c);
    f.steps = {first_step_, now()};
    f.pieces.begin = static_cast<std::uint32_t>(out_.pieces.size());
    for (const InstructionId p : m_.parameters_of(c))
      each_value(p, [&](ValueId v) {
        if (t_[v].kind == ValueKind::parameter) start(v, 0);
      });
    std::sort(async_.begin(), async_.end(), [](const AsyncSpan& a, const AsyncSpan& b) { return a.start < b.start; });
    for (std::uint32_t s = 0; s < now(); ++s) walk(s);
    const auto kept = std::remove_if(out_.pieces.begin() + f.pieces.begin, out_.pieces.end(), [](const LivePiece& p) { return p.end == 0; });
    out_.pieces.erase(kept, out_.pieces.end());
    previous_.resize(out_.pieces.size(), never);
    f.pieces.count = static_cast<std::uint32_t>(out_.pieces.size()) - f.pieces.begin;
    out_.frames.push_back(f);
  }

  // -- the time line ---------------------------------------------------------------------------------

  constexpr void flatten(ComputationId frame) {
    std::vector<Walk> stack{Walk{frame}};
    loop_ = branch_ = never;
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
          loops_.push_back({at, 0, loop_});
          loop_ = static_cast<std::uint32_t>(loops_.size() - 1);
          enter({.computation = m_.called(i)[1], .caller = id, .mark = at});
        } else if (i.opcode == Opcode::conditional) {
          const std::uint32_t at = add_step(id, StepKind::branch_begin);
          branches_.push_back({at, at, branch_});
          branch_ = static_cast<std::uint32_t>(branches_.size() - 1);
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
        loops_[loop_].back = back;
        loop_ = loops_[loop_].parent;
        step(done.link).target = add_step(done.caller, StepKind::loop_exit);
        add_carry_moves(done.caller, &LoopCarry::carried, &LoopCarry::result);
      } else if (caller.opcode == Opcode::conditional) {
        const std::uint32_t end = add_step(done.caller, StepKind::branch_end);
        step(end).target = done.ends;
        add_join_moves(done.caller, done.stage);
        const std::span<const ComputationId> branches = m_.called(caller);
        const bool last = done.stage + 1 == branches.size();
        branch_ = branches_[branch_].parent;
        const std::uint32_t following = add_step(done.caller, last ? StepKind::join : StepKind::branch_begin);
        step(done.link).target = following;
        if (!last) {
          branches_.push_back({following, done.mark, branch_});
          branch_ = static_cast<std::uint32_t>(branches_.size() - 1);
          enter({.computation = branches[done.stage + 1], .caller = done.caller, .stage = done.stage + 1, .mark = done.mark, .link = following, .ends = end});
        }
        for (std::uint32_t e = last ? end : never; e != never;) {
          const std::uint32_t previous = step(e).target;
          step(e).target = following;
          e = previous;
        }
      } else if (caller.opcode == Opcode::async_start) {
        async_.push_back({done.caller, done.mark, add_step(done.caller, StepKind::execute)});
      }
    }
  }

  constexpr ValueId new_place(InstructionId i, std::uint32_t node, ShapeId shape, PlaceKind kind) {
    out_.places.push_back({i, node, shape, kind, frame_});
    return static_cast<ValueId>(out_.places.size() - 1);
  }
  constexpr void close_moves() noexcept {
    IndexRange& r = out_.steps.back().moves;
    r.count = static_cast<std::uint32_t>(out_.moves.size()) - r.begin;
  }
  constexpr void add_carry_moves(InstructionId loop, ValueId LoopCarry::*from, ValueId LoopCarry::*to) {
    const IndexRange run = t_.control[index_of(loop)];
    std::vector<Move> moves;
    for (std::uint32_t k = run.begin; k < run.end(); ++k)
      if (needs_bytes(t_[t_.carries[k].carried].shape)) moves.push_back({t_.carries[k].*from, t_.carries[k].*to});
    order_moves(moves, loop);
  }
  constexpr void add_join_moves(InstructionId conditional, std::uint32_t branch) {
    const IndexRange run = t_.control[index_of(conditional)];
    const InstructionId root = m_[m_.called(m_[conditional])[branch]].root;
    for (std::uint32_t k = run.begin; k < run.end(); ++k)
      if (needs_bytes(t_[t_.joins[k].result].shape)) out_.moves.push_back({t_.value(root, t_.joins[k].node), t_.joins[k].result});
    close_moves();
  }

  constexpr void order_moves(std::vector<Move>& moves, InstructionId at) {
    sequence_moves(moves, out_.moves, [&](ValueId to) {
      const Place p = out_.places[index_of(to)];
      return new_place(at, p.node, p.shape, PlaceKind::spare);
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
      if (needs_bytes(m_.shapes.node(m_[root].shape, n))) {
        const ValueId place = new_place(root, n, m_.shapes.node(m_[root].shape, n), PlaceKind::result);
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

  // -- lives -------------------------------------------------------------------------------------------

  constexpr void add_piece(ValueId v, std::uint32_t begin, std::uint32_t end) {
    out_.pieces.push_back({v, begin, end});
    previous_.push_back(never);
  }
  constexpr void start(ValueId v, std::uint32_t s) {
    if (!needs_bytes(t_[v].shape)) return;
    last_[index_of(v)] = static_cast<std::uint32_t>(out_.pieces.size());
    out_.places[index_of(v)].frame = frame_;
    add_piece(v, s, s + 1);
  }
  constexpr void define(ValueId v, std::uint32_t s) {
    begin_[index_of(v)] = s;
    start(v, s);
  }
  constexpr bool is_before(ValueId v, std::uint32_t s) const noexcept { return begin_[index_of(v)] == never || begin_[index_of(v)] < s; }
  /// A use at a step. What was defined outside a loop and is used inside is needed until the last round.
  constexpr void use(ValueId v, std::uint32_t s) {
    std::uint32_t until = s;
    for (std::uint32_t l = loop_of_step_[s]; l != never && is_before(v, loops_[l].enter); l = loops_[l].parent) until = loops_[l].back;
    cover(v, until);
  }
  /// Makes a value live from its definition to step `s`, but not in branches that do not lead there.
  constexpr void cover(ValueId v, std::uint32_t s) {
    if (last_[index_of(v)] == never) return;  // a constant, or nothing to keep
    way_.clear();
    for (std::uint32_t b = branch_of_step_[s]; b != never && is_before(v, branches_[b].conditional); b = branches_[b].parent) {
      way_.push_back(b);
      if (out_.pieces[last_[index_of(v)]].end > branches_[b].conditional) break;
    }
    std::uint32_t from = begin_[index_of(v)] == never ? 0 : begin_[index_of(v)];
    if (!way_.empty() && out_.pieces[last_[index_of(v)]].end > branches_[way_.back()].conditional) {
      from = branches_[way_.back()].begin;
      way_.pop_back();
    }
    for (; !way_.empty(); way_.pop_back()) {
      extend(v, from, branches_[way_.back()].conditional + 1);
      from = branches_[way_.back()].begin;
    }
    extend(v, from, s + 1);
  }
  constexpr void extend(ValueId v, std::uint32_t from, std::uint32_t end) {
    std::uint32_t& last = last_[index_of(v)];
    while (out_.pieces[last].begin > from && previous_[last] != never) {
      end = std::max(end, out_.pieces[last].end);
      out_.pieces[last].end = 0;  // swallowed by the one before
      last = previous_[last];
    }
    if (out_.pieces[last].end > from) {
      out_.pieces[last].end = std::max(out_.pieces[last].end, end);
    } else {
      const std::uint32_t before = last;
      last = static_cast<std::uint32_t>(out_.pieces.size());
      add_piece(v, from, end);
      previous_[last] = before;
    }
  }
  constexpr void walk(std::uint32_t s) {
    const Step st = step(s);
    const Instruction& i = m_[st.instruction];
    const auto moves = out_.moves_of(st);
    switch (st.kind) {
      case StepKind::execute: case StepKind::call:
        for (const InstructionId o : m_.operands(i)) {
          if (i.opcode == Opcode::copy) use(t_.value(o), s);
          else each_value(o, [&](ValueId v) { use(v, s); });
        }
        each_value(st.instruction, [&](ValueId v) {
          if (t_[v].instruction == st.instruction) define(v, s);
        });
        if (st.kind == StepKind::call) add_piece(new_place(st.instruction, 0, ShapeId{}, PlaceKind::callee), s, s + 1);
        if (i.opcode == Opcode::async_done) keep_async(i, s);
        if (i.opcode == Opcode::all_reduce_done && !m_.operands(i).empty()) note_pending(m_.operands(i)[0], s);
        return;
      case StepKind::loop_enter:
        for (const Move& m : moves) use_or_spare(m.from, s), define_or_spare(m.to, s);
        return;
      case StepKind::loop_test: {
        use(t_.value(m_[m_.called(i)[1]].root), s);
        const IndexRange run = t_.control[index_of(st.instruction)];
        for (std::uint32_t k = run.begin; k < run.end(); ++k) use(t_.carries[k].carried, s);
        return;
      }
      case StepKind::loop_back:
        for (const Move& m : moves) {
          use_or_spare(m.from, s);
          add_piece(m.to, s, is_place(m.to) ? s + 1 : s + 2);  // carried on to the loop_exit behind it
        }
        return;
      case StepKind::loop_exit:
        for (const Move& m : moves) define(m.to, s);
        return;
      case StepKind::branch_begin:
        use(t_.value(m_.operands(i)[0]), s);
        return;
      case StepKind::branch_end:
        for (const Move& m : moves) use(m.from, s), add_piece(m.to, s, s + 1);
        return;
      case StepKind::join: {
        const IndexRange run = t_.control[index_of(st.instruction)];
        for (std::uint32_t k = run.begin; k < run.end(); ++k) define(t_.joins[k].result, s);
        return;
      }
      case StepKind::finish:
        for (const Move& m : moves) use_or_spare(m.from, s), define_or_spare(m.to, s);
        return;
    }
  }
  [[nodiscard]] constexpr bool is_place(ValueId v) const noexcept { return index_of(v) >= t_.values.size(); }
  constexpr void use_or_spare(ValueId v, std::uint32_t s) noexcept {
    if (!is_place(v)) use(v, s);
  }
  constexpr void define_or_spare(ValueId v, std::uint32_t s) {
    if (is_place(v)) add_piece(v, s, s + 1);
    else define(v, s);
  }

  /// Notes what an all-reduce reads until it is done: it defines its whole result, so its end does not name it.
  constexpr void note_pending(InstructionId begun, std::uint32_t s) {
    const std::span<const InstructionId> ops = m_.operands(m_[begun]);
    const ShapeId shape = m_[begun].shape;
    std::vector<ValueId> read;
    for (const InstructionId o : ops) read.push_back(t_.value(o));
    std::sort(read.begin(), read.end());
    for (std::uint32_t k = 0; k < ops.size(); ++k) {
      const std::uint32_t node = !m_.shapes.is_tuple(shape) ? 0 : k < m_.shapes.children_of(shape).size() ? m_.shapes.child_node(shape, k) : 0;
      const ValueId v = t_.value(ops[k]);
      const ValueId result = t_.value(begun, node);
      if (last_[index_of(v)] == never || last_[index_of(result)] == never) continue;
      const auto same = std::equal_range(read.begin(), read.end(), v);
      out_.pending.push_back({v, result, begin_[index_of(result)], s, same.second - same.first == 1});
    }
  }

  /// Keeps everything that an asynchronous computation defines until it is done.
  constexpr void keep_async(const Instruction& done, std::uint32_t s) noexcept {
    const Instruction* at = &done;
    InstructionId begun = no_id<InstructionId>;
    while (at->opcode != Opcode::async_start && at->operands.count > 0) at = &m_[begun = m_.operands(*at)[0]];
    const auto span = std::lower_bound(async_.begin(), async_.end(), begun, [](const AsyncSpan& a, InstructionId i) { return a.start < i; });
    if (span == async_.end() || span->start != begun) return;
    for (std::uint32_t k = span->first; k < span->last; ++k)
      each_value(step(k).instruction, [&](ValueId v) {
        if (begin_[index_of(v)] >= span->first && begin_[index_of(v)] != never) cover(v, s);
      });
  }
};

}  // namespace detail

/// Lays a module out on time lines: each computation's instructions in the order in which they stand.
///
/// Cost: linear in instructions and positions, times the depth of loops that a use crosses.
/// Source: XLA HloLiveRange; tighter where a value only passes through (passes.md 8.1).
[[nodiscard]] constexpr Result<Liveness> analyze_liveness(const Module& module, const ValueTable& values) {
  return detail::LivenessBuilder(module, values).run();
}

}  // namespace holdfast
