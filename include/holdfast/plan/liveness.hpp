// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/graph/alias.hpp"
#include "holdfast/graph/background_update.hpp"
#include "holdfast/plan/detail/flattener.hpp"
#include "holdfast/plan/time_line.hpp"

namespace holdfast {

namespace detail {

/// Flattens computations into frames and walks each time line once, from definition to last use.
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
  const Module& m_;
  const ValueTable& t_;
  Liveness out_;
  std::uint32_t frame_ = 0;
  std::uint32_t first_step_ = 0;
  TimeSpans spans_;
  std::vector<std::uint32_t> begin_;     // by value: the step that defines it; `never` for parameters
  std::vector<std::uint32_t> last_;      // by value: its last piece so far, in out_.pieces
  std::vector<std::uint32_t> previous_;  // by piece: the one before it of the same value
  std::vector<std::uint32_t> way_;       // scratch of cover

  template <class F>
  constexpr void each_value(InstructionId i, F&& f) const {
    for (std::uint32_t n = 0, count = m_.shapes.node_count(m_[i].shape); n < count; ++n) f(t_.value(i, n));
  }

  constexpr void build_frame(ComputationId c) {
    frame_ = static_cast<std::uint32_t>(out_.frames.size());
    Flattener flattener(m_, t_, out_);
    Frame f = flattener.run(c);
    spans_ = std::move(flattener).spans();
    first_step_ = f.steps.begin;
    f.pieces.begin = static_cast<std::uint32_t>(out_.pieces.size());
    for (const InstructionId p : m_.parameters_of(c))
      each_value(p, [&](ValueId v) {
        if (t_[v].kind == ValueKind::parameter) start(v, 0);
      });
    for (std::uint32_t s = 0; s < f.steps.count; ++s) walk(s);
    const auto kept = std::remove_if(out_.pieces.begin() + f.pieces.begin, out_.pieces.end(), [](const LivePiece& p) { return p.end == 0; });
    out_.pieces.erase(kept, out_.pieces.end());
    previous_.resize(out_.pieces.size(), never);
    f.pieces.count = static_cast<std::uint32_t>(out_.pieces.size()) - f.pieces.begin;
    out_.frames.push_back(f);
  }

  constexpr void add_piece(ValueId v, std::uint32_t begin, std::uint32_t end) {
    out_.pieces.push_back({v, begin, end});
    previous_.push_back(never);
  }
  constexpr void start(ValueId v, std::uint32_t s) {
    if (!needs_bytes(m_, t_[v].shape)) return;
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
    for (std::uint32_t l = spans_.loop_of_step[s]; l != never && is_before(v, spans_.loops[l].enter); l = spans_.loops[l].parent) until = spans_.loops[l].back;
    cover(v, until);
  }
  /// Makes a value live from its definition to step `s`, but not in branches that do not lead there.
  constexpr void cover(ValueId v, std::uint32_t s) {
    if (last_[index_of(v)] == never) return;  // a constant, or nothing to keep
    way_.clear();
    for (std::uint32_t b = spans_.branch_of_step[s]; b != never && is_before(v, spans_.branches[b].conditional); b = spans_.branches[b].parent) {
      way_.push_back(b);
      if (out_.pieces[last_[index_of(v)]].end > spans_.branches[b].conditional) break;
    }
    std::uint32_t from = begin_[index_of(v)] == never ? 0 : begin_[index_of(v)];
    if (!way_.empty() && out_.pieces[last_[index_of(v)]].end > spans_.branches[way_.back()].conditional) {
      from = spans_.branches[way_.back()].begin;
      way_.pop_back();
    }
    for (; !way_.empty(); way_.pop_back()) {
      extend(v, from, spans_.branches[way_.back()].conditional + 1);
      from = spans_.branches[way_.back()].begin;
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
    const Step st = out_.steps[first_step_ + s];
    const Instruction& i = m_[st.instruction];
    const auto moves = out_.moves_of(st);
    switch (st.kind) {
      case StepKind::execute: case StepKind::call: {
        const BackgroundUpdate update = background_update(m_, t_, st.instruction);
        for (const InstructionId o : m_.operands(i)) {
          if (i.opcode == Opcode::copy) use(t_.value(o), s);
          else each_value(o, [&](ValueId v) {
            if (v != update.base) use(v, s);
          });
        }
        each_value(st.instruction, [&](ValueId v) {
          if (t_[v].instruction == st.instruction) define(v, s);
        });
        if (st.kind == StepKind::call) add_piece(add_place(out_, {st.instruction, 0, ShapeId{}, PlaceKind::callee, frame_}), s, s + 1);
        if (i.opcode == Opcode::async_done) keep_async(i, s), note_pending(update, s);
        if (i.opcode == Opcode::all_reduce_done && !m_.operands(i).empty()) note_pending(m_.operands(i)[0], s);
        return;
      }
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

  constexpr void note_pending(const BackgroundUpdate& update, std::uint32_t s) {
    if (update.base == no_id<ValueId> || last_[index_of(update.base)] == never || last_[index_of(update.result)] == never) return;
    out_.pending.push_back({update.base, update.result, begin_[index_of(update.result)], s, update.alone});
  }

  /// Keeps everything that an asynchronous computation defines until it is done.
  constexpr void keep_async(const Instruction& done, std::uint32_t s) noexcept {
    const Instruction* at = &done;
    InstructionId begun = no_id<InstructionId>;
    while (at->opcode != Opcode::async_start && at->operands.count > 0) at = &m_[begun = m_.operands(*at)[0]];
    const auto span = std::lower_bound(spans_.async.begin(), spans_.async.end(), begun, [](const AsyncSpan& a, InstructionId i) { return a.start < i; });
    if (span == spans_.async.end() || span->start != begun) return;
    for (std::uint32_t k = span->first; k < span->last; ++k)
      each_value(out_.steps[first_step_ + k].instruction, [&](ValueId v) {
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
