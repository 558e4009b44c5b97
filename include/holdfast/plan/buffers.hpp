// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/graph/in_place.hpp"
#include "holdfast/plan/liveness.hpp"

namespace holdfast {

/// What a buffer's memory is tied to.
enum class Anchor : std::uint8_t {
  none,       ///< a temporary: the planner chooses
  parameter,  ///< the caller's parameter; written only when the module's alias table says so
  result,     ///< memory that the frame's caller has for a result
  constant,
};

/// A part of a buffer's life; `first` and `last` are the places that begin and end it.
struct BufferPiece {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  ValueId first{}, last{};
};

/// Places that share memory, kept as a forest over all places of a module.
///
/// Places are joined where the program says so (aliases, loops, branches, in-place updates) and where a
/// kernel may write over an operand that nobody reads any more, but only if their lives allow it: what
/// cannot be joined keeps places of its own and a move copies. Source: XLA HloAliasAnalysis, copy insertion
/// and HeapSimulator operand sharing, as one coalescing over live pieces.
class BufferSet {
 public:
  /// Whether kernels may write results over dying operands (XLA's optional sharing); off for comparison.
  enum class Sharing : std::uint8_t { required, all };

  constexpr BufferSet(const Module& module, const ValueTable& values, const Liveness& live, Sharing sharing = Sharing::all)
      : m_(module), t_(values), live_(live), rules_(module) {
    const std::size_t count = live.places.size();
    parent_.resize(count, ValueId{});
    for (std::uint32_t p = 0; p < count; ++p) parent_[p] = static_cast<ValueId>(p);
    runs_.resize(count, IndexRange{});
    anchors_.resize(count, Anchor::none);
    anchor_place_.resize(count, no_id<ValueId>);
    written_.resize(count, 1);
    collect_pieces();
    set_anchors();
    join_pending();
    join_moves();
    join_in_place(sharing);
  }

  /// The place that stands for the buffer of `place`.
  [[nodiscard]] constexpr ValueId root(ValueId place) const noexcept {
    while (parent_[index_of(place)] != place) place = parent_[index_of(place)];
    return place;
  }
  [[nodiscard]] constexpr Anchor anchor(ValueId root) const noexcept { return anchors_[index_of(root)]; }
  /// The parameter, result or constant that a buffer is tied to.
  [[nodiscard]] constexpr ValueId anchor_place(ValueId root) const noexcept { return anchor_place_[index_of(root)]; }
  /// Tells whether something is written into the buffer's memory while the frame runs.
  [[nodiscard]] constexpr bool is_written(ValueId root) const noexcept { return written_[index_of(root)] != 0; }
  /// The buffer's life, in order and without overlap.
  [[nodiscard]] constexpr std::span<const BufferPiece> pieces(ValueId root) const noexcept {
    return {pieces_.data() + runs_[index_of(root)].begin, runs_[index_of(root)].count};
  }
  [[nodiscard]] constexpr Bytes size(ValueId place) const noexcept { return m_.shapes.byte_size(live_.places[index_of(place)].shape); }
  [[nodiscard]] constexpr MemorySpace space(ValueId place) const noexcept { return m_.shapes.space(live_.places[index_of(place)].shape); }

  /// Calls `f` with the buffer of each array operand of the instruction that first defines a buffer.
  template <class F>
  constexpr void for_each_operand(ValueId root, F&& f) const {
    const Place& p = live_.places[index_of(pieces(root).front().first)];
    for (const InstructionId o : m_.operands(m_[p.instruction]))
      if (t_.has(o) && !m_.shapes.is_tuple(m_[o].shape)) f(this->root(t_.value(o)));
  }
  /// Tells whether two sorted lives are disjoint but for steps where one may be written over the other.
  [[nodiscard]] constexpr bool compatible(std::span<const BufferPiece> a, std::span<const BufferPiece> b) {
    if (a.size() > b.size()) std::swap(a, b);
    for (const BufferPiece& x : a) {
      auto y = std::lower_bound(b.begin(), b.end(), x.begin, [](const BufferPiece& p, std::uint32_t s) { return p.end <= s; });
      for (; y != b.end() && y->begin < x.end; ++y)
        if (!may_touch(x, *y)) return false;
    }
    return true;
  }
  /// Merges two compatible lives into `out`, joining what touches.
  static constexpr void merge(std::span<const BufferPiece> a, std::span<const BufferPiece> b, std::vector<BufferPiece>& out) {
    const std::size_t start = out.size();
    std::size_t i = 0;
    std::size_t k = 0;
    while (i < a.size() || k < b.size()) {
      const bool left = k == b.size() || (i < a.size() && (a[i].begin < b[k].begin || (a[i].begin == b[k].begin && a[i].end < b[k].end)));
      const BufferPiece next = left ? a[i++] : b[k++];
      if (out.size() > start && next.begin < out.back().end) {
        if (next.end >= out.back().end) out.back().last = next.last, out.back().end = next.end;
      } else {
        out.push_back(next);
      }
    }
  }

 private:
  const Module& m_;
  const ValueTable& t_;
  const Liveness& live_;
  InPlaceRules rules_;
  std::vector<ValueId> parent_;
  std::vector<IndexRange> runs_;  // by root, in pieces_
  std::vector<BufferPiece> pieces_;
  std::vector<Anchor> anchors_;
  std::vector<ValueId> anchor_place_;
  std::vector<char> written_;
  std::vector<BufferPiece> scratch_;

  constexpr ValueId find(ValueId p) noexcept {  // as root, but shortens the way for the next one
    while (parent_[index_of(p)] != p) {
      parent_[index_of(p)] = parent_[index_of(parent_[index_of(p)])];
      p = parent_[index_of(p)];
    }
    return p;
  }

  constexpr void collect_pieces() {
    std::vector<LivePiece> sorted(live_.pieces.begin(), live_.pieces.end());
    std::sort(sorted.begin(), sorted.end(), [](const LivePiece& a, const LivePiece& b) { return a.value != b.value ? a.value < b.value : a.begin < b.begin; });
    for (std::size_t k = 0; k < sorted.size();) {
      const ValueId v = sorted[k].value;
      IndexRange& run = runs_[index_of(v)];
      run.begin = static_cast<std::uint32_t>(pieces_.size());
      for (; k < sorted.size() && sorted[k].value == v; ++k) {
        if (pieces_.size() > run.begin && sorted[k].begin < pieces_.back().end) pieces_.back().end = std::max(pieces_.back().end, sorted[k].end);
        else pieces_.push_back({sorted[k].begin, sorted[k].end, v, v});
      }
      run.count = static_cast<std::uint32_t>(pieces_.size()) - run.begin;
    }
  }

  constexpr void tie(ValueId place, Anchor anchor, bool written) noexcept {
    anchors_[index_of(place)] = anchor;
    anchor_place_[index_of(place)] = place;
    written_[index_of(place)] = written ? 1 : 0;
  }
  constexpr void set_anchors() {
    for (std::uint32_t v = 0; v < t_.values.size(); ++v) {
      if (t_.values[v].kind == ValueKind::parameter) tie(static_cast<ValueId>(v), Anchor::parameter, false);
      if (t_.values[v].kind == ValueKind::constant) tie(static_cast<ValueId>(v), Anchor::constant, false);
    }
    for (const Frame& f : live_.frames)
      for (std::uint32_t r = f.results.begin; r < f.results.end(); ++r) tie(static_cast<ValueId>(r), Anchor::result, true);
    if (m_.parameter_aliases.empty()) return;
    const Frame& entry = live_.frames.back();
    std::vector<ValueId> result_of(m_.shapes.node_count(m_[m_[m_.entry].root].shape), no_id<ValueId>);
    for (std::uint32_t r = entry.results.begin; r < entry.results.end(); ++r) result_of[live_.places[r].node] = static_cast<ValueId>(r);
    for (const ParameterAlias& a : m_.parameter_aliases) {
      const ValueId p = t_.value(m_.parameters_of(m_.entry)[a.parameter], a.parameter_node);
      const ValueId r = result_of[a.output_node];
      if (r == no_id<ValueId> || space(p) != space(r)) continue;  // a may-alias that cannot be used
      anchors_[index_of(r)] = Anchor::none;
      unite(p, r);
      written_[index_of(p)] = 1;
    }
  }

  /// First of all, as what cannot be joined here is needed for longer.
  constexpr void join_pending() {
    for (const PendingRead& p : live_.pending) {
      if (p.alone && try_join(p.operand, p.result)) continue;
      const ValueId r = find(p.operand);
      const BufferPiece kept{p.start, p.done + 1, p.operand, p.operand};
      scratch_.clear();
      merge(pieces(r), {&kept, 1}, scratch_);
      set_run(r);
    }
  }
  constexpr void join_moves() {
    for (const StepKind kind : {StepKind::finish, StepKind::loop_back, StepKind::loop_exit, StepKind::loop_enter, StepKind::branch_end})
      for (const Step& s : live_.steps)
        if (s.kind == kind)
          for (const Move& m : live_.moves_of(s)) try_join(m.from, m.to);
  }
  constexpr void join_in_place(Sharing sharing) {
    for (const bool optional : {false, true}) {
      if (optional && sharing == Sharing::required) return;
      for (const Step& s : live_.steps) {
        if (s.kind != StepKind::execute) continue;
        const std::span<const InstructionId> ops = m_.operands(m_[s.instruction]);
        if (!optional) {
          rules_.for_each_pair(s.instruction, [&](std::uint32_t operand, std::uint32_t node, std::uint32_t out) {
            if (operand < ops.size() && alone(s.instruction, operand, node)) try_join(t_.value(ops[operand], node), t_.value(s.instruction, out));
          });
        } else {
          join_overwritten(s.instruction, ops);
        }
      }
    }
  }
  constexpr void join_overwritten(InstructionId id, std::span<const InstructionId> ops) {
    if (!InPlaceRules::overwrites(m_[id].opcode)) return;
    for (std::uint32_t n = 0, count = m_.shapes.node_count(m_[id].shape); n < count; ++n) {
      const ValueId v = t_.value(id, n);
      if (t_[v].instruction != id || runs_[index_of(find(v))].count == 0) continue;
      for (std::uint32_t o = 0; o < ops.size(); ++o)
        if (is_overwritten(id, o, n) && try_join(t_.value(ops[o]), v)) break;
    }
  }
  constexpr bool is_overwritten(InstructionId id, std::uint32_t operand, std::uint32_t node) {
    return !m_.shapes.is_tuple(m_[m_.operands(m_[id])[operand]].shape) && rules_.may_overwrite(id, operand, node);
  }
  /// Tells whether no other operand of an in-place update reads the same value.
  constexpr bool alone(InstructionId id, std::uint32_t operand, std::uint32_t node) const noexcept {
    const std::span<const InstructionId> ops = m_.operands(m_[id]);
    const ValueId v = t_.value(ops[operand], node);
    for (std::uint32_t o = 0; o < ops.size(); ++o)
      if (o != operand && !m_.shapes.is_tuple(m_[ops[o]].shape) && t_.value(ops[o]) == v) return false;
    return true;
  }

  /// Two pieces that overlap may share memory if they do so for one step only, and that step turns what
  /// the earlier one holds into what the later one begins with.
  constexpr bool may_touch(const BufferPiece& x, const BufferPiece& y) {
    const bool in_order = x.begin < y.begin || (x.begin == y.begin && is_parameter(x.first));
    const BufferPiece& early = in_order ? x : y;
    const BufferPiece& late = in_order ? y : x;
    if ((early.begin == late.begin && !is_parameter(early.first)) || early.end != late.begin + 1) return false;
    const Place& made = live_.places[index_of(late.first)];
    const Step& s = live_.steps[live_.frames[made.frame].steps.begin + late.begin];
    const ValueId from = find(early.last);
    const ValueId to = find(late.first);
    for (const Move& m : live_.moves_of(s))
      if (find(m.from) == from && find(m.to) == to) return true;
    if (s.kind != StepKind::execute || made.instruction != s.instruction) return false;
    if (live_.places[index_of(early.last)].instruction == s.instruction) return false;  // another result is there already
    const std::span<const InstructionId> ops = m_.operands(m_[s.instruction]);
    bool found = false;
    rules_.for_each_pair(s.instruction, [&](std::uint32_t operand, std::uint32_t node, std::uint32_t out) {
      found = found || (out == made.node && operand < ops.size() && find(t_.value(ops[operand], node)) == from && alone(s.instruction, operand, node));
    });
    if (!InPlaceRules::overwrites(m_[s.instruction].opcode)) return found;
    for (std::uint32_t o = 0; o < ops.size() && !found; ++o)
      found = find(t_.value(ops[o])) == from && is_overwritten(s.instruction, o, made.node);
    return found;
  }

  /// Parameters are there before the first step, which is where their life is written to begin.
  constexpr bool is_parameter(ValueId v) const noexcept {
    return index_of(v) < t_.values.size() && t_[v].kind == ValueKind::parameter;
  }

  constexpr bool try_join(ValueId from, ValueId to) {
    const ValueId a = find(from);
    const ValueId b = find(to);
    if (a == b) return true;
    if (runs_[index_of(a)].count == 0 || runs_[index_of(b)].count == 0 || size(a) != size(b) || space(a) != space(b)) return false;
    if (live_.places[index_of(a)].frame != live_.places[index_of(b)].frame) return false;
    if (!is_returned_parameter(a, b)) {
      if (anchors_[index_of(a)] != Anchor::none && anchors_[index_of(b)] != Anchor::none) return false;
      if (!is_written(a) || !is_written(b)) return false;
    }
    if (!compatible(pieces(a), pieces(b))) return false;
    unite(a, b);
    return true;
  }
  /// An output of the entry that is an unaliased parameter as it came, and nothing else: it stays where it is.
  constexpr bool is_returned_parameter(ValueId a, ValueId b) const noexcept {
    return anchors_[index_of(a)] == Anchor::parameter && !is_written(a) && anchors_[index_of(b)] == Anchor::result &&
           pieces(b).size() == 1 && pieces(b)[0].first == b && live_.places[index_of(b)].frame + 1 == live_.frames.size();
  }

  constexpr void unite(ValueId a, ValueId b) {
    ValueId keep = find(a);
    ValueId drop = find(b);
    if (anchors_[index_of(keep)] == Anchor::none) std::swap(keep, drop);
    const IndexRange x = runs_[index_of(keep)];
    const IndexRange y = runs_[index_of(drop)];
    scratch_.clear();
    merge({pieces_.data() + x.begin, x.count}, {pieces_.data() + y.begin, y.count}, scratch_);
    set_run(keep);
    parent_[index_of(drop)] = keep;
  }
  /// Gives a buffer the life in scratch_.
  constexpr void set_run(ValueId root) {
    IndexRange& run = runs_[index_of(root)];
    if (scratch_.size() > run.count) {
      run.begin = static_cast<std::uint32_t>(pieces_.size());
      pieces_.resize(pieces_.size() + scratch_.size(), BufferPiece{});
    }
    run.count = static_cast<std::uint32_t>(scratch_.size());
    std::copy(scratch_.begin(), scratch_.end(), pieces_.begin() + run.begin);
  }
};

}  // namespace holdfast
