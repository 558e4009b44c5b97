// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/graph/alias.hpp"
#include "holdfast/plan/buffer_assignment.hpp"
#include "holdfast/plan/detail/load_tree.hpp"
#include "holdfast/plan/time_model.hpp"

namespace holdfast::detail {

/// When the entry's instructions run and read, in moments: step s is moment 3s+2; just before it,
/// in 3s copies to the host leave, in 3s+1 others come back and clones run.
///
/// Only what is flat in the entry's frame has a place here. Instructions that run anything stand in
/// `line(c)` in their order. Cost: linear in instructions and positions, times log n.
class RematTimeLine {
 public:
  static constexpr std::uint32_t never = 0xFFFFFFFFu;
  using Line = std::span<const InstructionId>;

  /// A use of a value where it is defined, by what really reads it.
  struct Use {
    ValueId value{};
    std::uint32_t moment = 0;  ///< the first of the reader's
    std::uint32_t last = 0;    ///< the last of it and all before
    InstructionId user{};
  };

  constexpr RematTimeLine(const Module& module, const ValueTable& values, const Liveness& live,
                          const BufferSet& buffers, const BufferAssignment& plan,
                          const TimeModel& time)
      : m_(module),
        t_(values),
        live_(live),
        set_(buffers),
        plan_(plan),
        load(3 * live.frames.back().steps.count + 3),
        first_(module.instructions.size(), never),
        last_(module.instructions.size(), 0),
        done_(module.instructions.size(), no_id<InstructionId>),
        clock_(module.instructions.size(), 0),
        begin_(values.values.size(), never),
        until_(values.values.size(), 0),
        bytes_(values.values.size(), 0),
        escapes_(values.values.size(), 0),
        lines_(module.computations.size(), IndexRange{}) {
    find_spans();
    find_lives();
    find_lines(time);
    find_uses();
  }

  [[nodiscard]] constexpr std::uint32_t first(InstructionId i) const noexcept {
    return first_[index_of(i)];
  }
  [[nodiscard]] constexpr std::uint32_t last(InstructionId i) const noexcept {
    return last_[index_of(i)];
  }
  [[nodiscard]] constexpr bool runs(InstructionId i) const noexcept { return first(i) != never; }
  /// Who gives a value to its readers: the copy-done for what a copy-start defines.
  [[nodiscard]] constexpr InstructionId giver(ValueId v) const noexcept {
    const InstructionId done = done_[index_of(t_[v].instruction)];
    return done != no_id<InstructionId> && t_.value(done) == v ? done : t_[v].instruction;
  }
  /// When an instruction starts, counted from the start of its computation. Units: seconds.
  [[nodiscard]] constexpr double clock(InstructionId i) const noexcept {
    return clock_[index_of(i)];
  }
  [[nodiscard]] constexpr std::span<const InstructionId> line(ComputationId c) const noexcept {
    const IndexRange r = lines_[index_of(c)];
    return {order_.data() + r.begin, r.count};
  }
  /// Where in the line the first instruction stands that starts at or after a moment.
  [[nodiscard]] constexpr std::size_t place(ComputationId c, std::uint32_t moment) const noexcept {
    const auto l = line(c);
    const auto at =
        std::lower_bound(l.begin(), l.end(), moment,
                         [this](InstructionId i, std::uint32_t m) { return first(i) < m; });
    return static_cast<std::size_t>(at - l.begin());
  }
  /// The uses of a value in its own computation, in order.
  [[nodiscard]] constexpr std::span<const Use> uses(ValueId v) const noexcept {
    const auto range =
        std::equal_range(uses_.begin(), uses_.end(), Use{v, 0, 0, {}},
                         [](const Use& a, const Use& b) { return a.value < b.value; });
    return {uses_.data() + (range.first - uses_.begin()),
            static_cast<std::size_t>(range.second - range.first)};
  }
  /// The bytes that a value holds in the arenas of the device; 0 for all others.
  [[nodiscard]] constexpr Bytes bytes(ValueId v) const noexcept { return bytes_[index_of(v)]; }
  /// Tells whether a value is read by other ways than those that lead from its definer.
  [[nodiscard]] constexpr bool escapes(ValueId v) const noexcept {
    return escapes_[index_of(v)] != 0;
  }
  /// Tells whether node `n` of an instruction's result comes from its definer by forwarding alone.
  [[nodiscard]] constexpr bool is_direct(InstructionId i, std::uint32_t n) const noexcept {
    return direct_[t_.base[index_of(i)] + n] != 0;
  }
  /// The first and last moment of a value's life; `never` when it has none.
  [[nodiscard]] constexpr std::uint32_t begin(ValueId v) const noexcept {
    return begin_[index_of(v)];
  }
  [[nodiscard]] constexpr std::uint32_t until(ValueId v) const noexcept {
    return until_[index_of(v)];
  }
  constexpr void live_until(ValueId v, std::uint32_t moment) noexcept {
    until_[index_of(v)] = moment;
  }
  /// Tells whether one piece of the buffer's life covers two moments and all between.
  [[nodiscard]] constexpr bool holds(ValueId v, std::uint32_t from,
                                     std::uint32_t to) const noexcept {
    const auto pieces = set_.pieces(set_.root(v));
    const auto p =
        std::lower_bound(pieces.begin(), pieces.end(), from,
                         [](const BufferPiece& a, std::uint32_t m) { return 3 * a.end - 1 < m; });
    return p != pieces.end() && 3 * p->begin + 2 <= from && to <= 3 * p->end - 1;
  }
  /// Tells whether a value is there at every moment and costs nothing: a constant, an argument that
  /// nobody overwrites.
  [[nodiscard]] constexpr bool is_always_there(ValueId v) const noexcept {
    const ValueKind kind = t_[v].kind;
    return kind == ValueKind::constant ||
           (kind == ValueKind::parameter && !set_.is_written(set_.root(v)));
  }

 private:
  const Module& m_;
  const ValueTable& t_;
  const Liveness& live_;
  const BufferSet& set_;
  const BufferAssignment& plan_;

 public:
  LoadTree load;  ///< bytes in the device's arenas by moment

 private:
  std::vector<std::uint32_t> first_, last_;   // moments, by instruction
  std::vector<InstructionId> done_;           // by instruction
  std::vector<double> clock_;                 // by instruction
  std::vector<std::uint32_t> begin_, until_;  // moments, by value
  std::vector<Bytes> bytes_;                  // by value
  std::vector<char> escapes_;                 // by value
  std::vector<char> direct_;                  // by position of the value table
  std::vector<IndexRange> lines_;             // by computation, in order_
  std::vector<InstructionId> order_;
  std::vector<Use> uses_;

  constexpr std::uint32_t frame() const noexcept {
    return static_cast<std::uint32_t>(live_.frames.size() - 1);
  }
  constexpr bool is_here(ComputationId c) const noexcept {
    return live_.frame_of[index_of(c)] == frame();
  }

  constexpr void find_spans() {
    const auto steps = live_.steps_of(live_.frames.back());
    for (std::uint32_t s = 0; s < steps.size(); ++s) {
      if (steps[s].kind == StepKind::finish) continue;
      const std::uint32_t i = index_of(steps[s].instruction);
      first_[i] = std::min(first_[i], 3 * s + 2);
      last_[i] = std::max(last_[i], 3 * s + 2);
      // What a copy reads, it reads until it is done.
      if (const Instruction& done = m_[steps[s].instruction]; done.opcode == Opcode::copy_done) {
        last_[index_of(m_.operands(done)[0])] = 3 * s + 2;
        done_[index_of(m_.operands(done)[0])] = steps[s].instruction;
      }
    }
    for (std::uint32_t c = 0; c < m_.computations.size(); ++c) {
      const auto id = static_cast<ComputationId>(c);
      const InstructionId caller = t_.calls.caller[c];
      if (!is_here(id) || caller == no_id<InstructionId> ||
          t_.calls.context[c] != CallContext::flat)
        continue;
      for (const InstructionId i : m_.instructions_of(id)) {
        first_[index_of(caller)] = std::min(first_[index_of(caller)], first(i));
        last_[index_of(caller)] = std::max(last_[index_of(caller)], last(i));
      }
    }
  }
  constexpr void find_lives() {
    const Frame& f = live_.frames.back();
    std::vector<char> seen(live_.places.size(), 0);
    for (const LivePiece& p : live_.pieces_of(f)) {
      const std::uint32_t v = index_of(p.value);
      if (live_.places[v].kind == PlaceKind::callee) {
        auto c =
            std::lower_bound(plan_.callees.begin(), plan_.callees.end(), p.value,
                             [](const CalleeArena& a, ValueId place) { return a.place < place; });
        for (; c != plan_.callees.end() && c->place == p.value; ++c)
          if (plan_.arenas[c->arena].space != MemorySpace::host)
            load.add(3 * p.begin + 2, 3 * p.end, plan_.arenas[c->arena].size);
        continue;
      }
      const ValueId root = set_.root(p.value);
      const bool counts = plan_.locations[index_of(root)].base == Location::Base::arena &&
                          set_.space(root) != MemorySpace::host;
      if (v < begin_.size()) {
        begin_[v] =
            std::min(begin_[v], t_.values[v].kind == ValueKind::parameter ? 0 : 3 * p.begin + 2);
        until_[v] = std::max(until_[v], 3 * p.end - 1);
        if (counts) bytes_[v] = set_.size(p.value);
      }
      if (!counts || seen[index_of(root)] != 0) continue;
      seen[index_of(root)] = 1;
      for (const BufferPiece& b : set_.pieces(root))
        load.add(3 * b.begin + 2, 3 * b.end, set_.size(root));
    }
  }
  constexpr void find_lines(const TimeModel& time) {
    for (std::uint32_t c = 0; c < m_.computations.size(); ++c) {
      const auto id = static_cast<ComputationId>(c);
      if (!is_here(id)) continue;
      lines_[c].begin = static_cast<std::uint32_t>(order_.size());
      double now = 0;
      for (const InstructionId i : m_.instructions_of(id)) {
        clock_[index_of(i)] = now;
        now += time.seconds(i);
        if (runs(i)) order_.push_back(i);
      }
      lines_[c].count = static_cast<std::uint32_t>(order_.size()) - lines_[c].begin;
    }
  }

  /// Marks which positions lead back to the definer by forwarding alone; a computation's
  /// instructions stand in order.
  constexpr void mark_direct(InstructionId id) {
    const Instruction& i = m_[id];
    const auto ops = m_.operands(i);
    const std::uint32_t base = t_.base[index_of(id)];
    const auto pass = [&](std::uint32_t node, InstructionId from, std::uint32_t from_node,
                          std::uint32_t count) {
      for (std::uint32_t k = 0; k < count; ++k)
        direct_[base + node + k] = direct_[t_.base[index_of(from)] + from_node + k];
    };
    const std::uint32_t nodes = m_.shapes.node_count(i.shape);
    if (i.opcode == Opcode::tuple) {
      for (std::uint32_t k = 0; k < ops.size(); ++k)
        pass(m_.shapes.child_node(i.shape, k), ops[k], 0, m_.shapes.node_count(m_[ops[k]].shape));
    } else if (i.opcode == Opcode::get_tuple_element) {
      pass(0, ops[0], m_.shapes.child_node(m_[ops[0]].shape, i.number), nodes);
    } else if (i.opcode == Opcode::copy_done) {
      pass(0, ops[0], m_.shapes.child_node(m_[ops[0]].shape, 0), nodes);
    } else if (is_forwarding(i.opcode) && !ops.empty() &&
               m_.shapes.node_count(m_[ops[0]].shape) == nodes) {
      pass(0, ops[0], 0, nodes);
    } else {
      for (std::uint32_t n = 0; n < nodes; ++n)
        direct_[base + n] = t_[t_.value(id, n)].instruction == id;
    }
  }
  constexpr void find_uses() {
    direct_.resize(t_.at.size(), 0);
    for (std::uint32_t c = 0; c < m_.computations.size(); ++c) {
      const auto id = static_cast<ComputationId>(c);
      if (!is_here(id)) continue;
      const auto note = [&](InstructionId o, std::uint32_t n, InstructionId user) {
        const ValueId v = t_.value(o, n);
        if (begin(v) == never || m_[t_[v].instruction].computation != id) return;
        if (user == no_id<InstructionId> || !runs(user) || !is_direct(o, n))
          escapes_[index_of(v)] = 1;
        else
          uses_.push_back({v, first(user), last(user), user});
      };
      for (const InstructionId i : m_.instructions_of(id)) {
        mark_direct(i);
        if (is_forwarding(m_[i].opcode)) continue;
        if (m_[i].opcode == Opcode::copy_done) continue;
        const bool pending =
            m_[i].opcode == Opcode::all_reduce_start || m_[i].opcode == Opcode::async_start;
        for (const InstructionId o : m_.operands(m_[i]))
          for (std::uint32_t n = 0, count = m_.shapes.node_count(m_[o].shape); n < count; ++n)
            note(o, n, pending ? no_id<InstructionId> : i);
      }
      const InstructionId root = m_[id].root;
      for (std::uint32_t n = 0, count = m_.shapes.node_count(m_[root].shape); n < count; ++n)
        note(root, n, no_id<InstructionId>);
    }
    std::sort(uses_.begin(), uses_.end(), [](const Use& a, const Use& b) {
      return a.value != b.value ? a.value < b.value : a.moment < b.moment;
    });
    for (std::size_t k = 1; k < uses_.size(); ++k)
      if (uses_[k].value == uses_[k - 1].value)
        uses_[k].last = std::max(uses_[k].last, uses_[k - 1].last);
  }
};

}  // namespace holdfast::detail
