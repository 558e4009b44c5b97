// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/graph/call_graph.hpp"
#include "holdfast/graph/module.hpp"

namespace holdfast {

/// What a value is to the program.
enum class ValueKind : std::uint8_t {
  ordinary,
  parameter,  ///< of the entry or of a shared computation: its memory is the caller's
  constant,
  loop,       ///< what a loop carries from one round to the next: the parameter of its body and condition
};

/// A datum with storage, defined at one place: an instruction and a node of its shape.
struct Value {
  InstructionId instruction{};
  std::uint32_t node = 0;
  ShapeId shape{};
  ValueKind kind = ValueKind::ordinary;
};

/// What one loop does with one element of its state that changes from round to round.
///
/// Before the first round `init` becomes `carried`; after each, `next` does; at the end it becomes `result`.
struct LoopCarry {
  ValueId init{}, carried{}, next{}, result{};
};

/// What a conditional does with one element of its result: each branch gives its own value.
/// The branches' values are at `node` of their roots.
struct BranchJoin {
  ValueId result{};
  std::uint32_t node = 0;
};

/// Which value is at each position (instruction, node) of the planned computations.
///
/// Forwarding operations (tuple, get-tuple-element, bitcast, call...) define nothing. An element that a
/// loop passes through unchanged is its initial value all along.
/// Source: XLA HloDataflowAnalysis (ssa), with one value for what XLA merges by force.
struct ValueTable {
  CallGraph calls;
  std::vector<Value> values;
  std::vector<std::uint32_t> base;       ///< by instruction: its first position; `no_position` outside planned computations
  std::vector<ValueId> at;               ///< by position
  std::vector<LoopCarry> carries;
  std::vector<BranchJoin> joins;
  std::vector<IndexRange> control;       ///< by instruction: run of `carries` (while) or `joins` (conditional)

  static constexpr std::uint32_t no_position = 0xFFFFFFFFu;
  /// Positions that a module may have.
  static constexpr std::size_t max_positions = std::size_t{1} << 28;

  [[nodiscard]] constexpr const Value& operator[](ValueId v) const noexcept { return values[index_of(v)]; }
  /// The value at a node of an instruction's result.
  [[nodiscard]] constexpr ValueId value(InstructionId i, std::uint32_t node = 0) const noexcept {
    return at[base[index_of(i)] + node];
  }
  [[nodiscard]] constexpr bool has(InstructionId i) const noexcept { return base[index_of(i)] != no_position; }
};

/// Tells whether an instruction only passes its operands on: it runs nothing and defines no bytes.
[[nodiscard]] constexpr bool is_forwarding(Opcode opcode) noexcept {
  switch (opcode) {
    case Opcode::tuple: case Opcode::get_tuple_element: case Opcode::bitcast: case Opcode::opt_barrier:
    case Opcode::domain: case Opcode::add_dependency: case Opcode::after_all:
      return true;
    default:
      return false;
  }
}

namespace detail {

/// Builds a `ValueTable`: one pass over computations, callees first. A callee's parameters are values of
/// their own until the caller is seen, which then forwards them.
class ValueBuilder {
 public:
  constexpr explicit ValueBuilder(const Module& module) : m_(module) {}

  constexpr Result<ValueTable> run() {
    Result<CallGraph> calls = make_call_graph(m_);
    if (!calls.ok()) return calls.error();
    t_.calls = std::move(*calls);
    t_.base.resize(m_.instructions.size(), ValueTable::no_position);
    t_.control.resize(m_.instructions.size(), IndexRange{});
    for (std::size_t c = 0; c < m_.computations.size(); ++c) {
      const auto id = static_cast<ComputationId>(c);
      if (!t_.calls.is_planned(id)) continue;
      for (const InstructionId i : m_.instructions_of(id))
        if (Error e = visit(i); !e.ok()) return e;
    }
    if (Error e = check_aliases(); !e.ok()) return e;
    compact();
    return std::move(t_);
  }

 private:
  const Module& m_;
  ValueTable t_;
  std::vector<ValueId> forward_;  // by value: itself, or what it stands for

  constexpr ValueId resolve(ValueId v) noexcept {
    while (forward_[index_of(v)] != v) {
      forward_[index_of(v)] = forward_[index_of(forward_[index_of(v)])];
      v = forward_[index_of(v)];
    }
    return v;
  }
  constexpr ValueId at(InstructionId i, std::uint32_t node) noexcept { return resolve(t_.value(i, node)); }

  constexpr void set(InstructionId i, std::uint32_t node, ValueId v) noexcept { t_.at[t_.base[index_of(i)] + node] = v; }
  constexpr ValueId define(InstructionId i, std::uint32_t node, ValueKind kind = ValueKind::ordinary) {
    const auto v = static_cast<ValueId>(t_.values.size());
    t_.values.push_back({i, node, m_.shapes.node(m_[i].shape, node), kind});
    forward_.push_back(v);
    set(i, node, v);
    return v;
  }
  constexpr void define_all(InstructionId i, ValueKind kind = ValueKind::ordinary) {
    for (std::uint32_t n = 0, count = m_.shapes.node_count(m_[i].shape); n < count; ++n) define(i, n, kind);
  }
  /// Copies the values of `count` nodes of `from`, starting at `from_node`, to `i` at `node`.
  constexpr void pass(InstructionId i, std::uint32_t node, InstructionId from, std::uint32_t from_node, std::uint32_t count) {
    for (std::uint32_t k = 0; k < count; ++k) set(i, node + k, at(from, from_node + k));
  }
  constexpr void pass_all(InstructionId i, InstructionId from) { pass(i, 0, from, 0, m_.shapes.node_count(m_[i].shape)); }
  constexpr InstructionId root(ComputationId c) const noexcept { return m_[c].root; }
  /// Gives the parameters of a flat callee the values of an operand.
  constexpr void bind(InstructionId parameter, InstructionId operand, std::uint32_t operand_node = 0) {
    for (std::uint32_t n = 0, count = m_.shapes.node_count(m_[parameter].shape); n < count; ++n)
      forward_[index_of(at(parameter, n))] = at(operand, operand_node + n);
  }
  constexpr bool same_nodes(InstructionId a, InstructionId b) const noexcept {
    return m_.shapes.node_count(m_[a].shape) == m_.shapes.node_count(m_[b].shape);
  }
  constexpr Error malformed(InstructionId i, const char* what) const noexcept {
    return make_error_at(Errc::corrupt, what, m_[i].where);
  }

  constexpr Error visit(InstructionId id) {
    const Instruction& i = m_[id];
    const ShapeTable& shapes = m_.shapes;
    const std::uint32_t nodes = shapes.node_count(i.shape);
    if (t_.at.size() + nodes > ValueTable::max_positions) return make_error_at(Errc::over_budget, "too many tuple elements", i.where);
    t_.base[index_of(id)] = static_cast<std::uint32_t>(t_.at.size());
    t_.at.resize(t_.at.size() + nodes, no_id<ValueId>);
    const std::span<const InstructionId> ops = m_.operands(i);
    const auto first_is = [&](ElementType type) { return !ops.empty() && shapes[m_[ops[0]].shape].type == type; };
    switch (i.opcode) {
      case Opcode::parameter:
        define_all(id, t_.calls[i.computation] == CallContext::frame ? ValueKind::parameter : ValueKind::ordinary);
        return {};
      case Opcode::constant: define_all(id, ValueKind::constant); return {};
      case Opcode::tuple: {
        define(id, 0);
        if (ops.size() != shapes.children_of(i.shape).size()) return malformed(id, "tuple has another number of elements than its shape");
        for (std::uint32_t k = 0; k < ops.size(); ++k) {
          const std::uint32_t count = shapes.node_count(m_[ops[k]].shape);
          if (count != shapes.node_count(shapes.children_of(i.shape)[k])) return malformed(id, "tuple element has another shape than its operand");
          pass(id, shapes.child_node(i.shape, k), ops[k], 0, count);
        }
        return {};
      }
      case Opcode::get_tuple_element: {
        if (!first_is(ElementType::tuple) || i.number >= shapes.children_of(m_[ops[0]].shape).size() ||
            shapes.node_count(shapes.children_of(m_[ops[0]].shape)[i.number]) != nodes)
          return malformed(id, "get-tuple-element does not fit its operand");
        pass(id, 0, ops[0], shapes.child_node(m_[ops[0]].shape, i.number), nodes);
        return {};
      }
      case Opcode::bitcast: case Opcode::opt_barrier: case Opcode::domain: case Opcode::add_dependency:
        if (ops.empty()) return malformed(id, "operand missing");
        if (i.opcode == Opcode::opt_barrier && ops.size() > 1) return define_all(id), Error{};
        if (!same_nodes(id, ops[0])) return malformed(id, "result has another shape than operand 0");
        pass_all(id, ops[0]);
        return {};
      case Opcode::copy:
        if (ops.empty() || !same_nodes(id, ops[0])) return malformed(id, "result has another shape than operand 0");
        pass_all(id, ops[0]);
        define(id, 0);
        return {};
      case Opcode::call: return visit_call(id);
      case Opcode::while_: return visit_while(id);
      case Opcode::conditional: return visit_conditional(id);
      case Opcode::async_start: return visit_async_start(id);
      case Opcode::async_update:
        if (ops.empty() || !same_nodes(id, ops[0])) return malformed(id, "async-update has another shape than its operand");
        pass_all(id, ops[0]);
        return {};
      case Opcode::async_done: case Opcode::all_gather_done: case Opcode::collective_permute_done:
        return pass_element(id, 1);
      case Opcode::copy_done: return pass_element(id, 0);
      case Opcode::all_reduce_done:
        if (ops.empty() || !same_nodes(id, ops[0])) return malformed(id, "all-reduce-done has another shape than its operand");
        pass_all(id, ops[0]);
        return {};
      case Opcode::copy_start:
        define_all(id);
        if (!ops.empty() && shapes.is_tuple(i.shape) && shapes.children_of(i.shape).size() >= 2) return pass_into(id, 1, ops[0]);
        return malformed(id, "copy-start is a tuple of destination, source and context");
      case Opcode::send:
        define_all(id);
        return shapes.is_tuple(i.shape) && !ops.empty() ? pass_into(id, 0, ops[0]) : Error{};
      case Opcode::recv_done: {
        define_all(id);
        if (!first_is(ElementType::tuple) || !shapes.is_tuple(i.shape)) return {};
        const std::uint32_t count = shapes.node_count(shapes.children_of(i.shape)[0]);
        if (shapes.node_count(shapes.children_of(m_[ops[0]].shape)[0]) == count) pass(id, 1, ops[0], 1, count);
        return {};
      }
      case Opcode::all_gather_start: case Opcode::collective_permute_start: {
        define_all(id);
        if (!shapes.is_tuple(i.shape) || ops.empty() || shapes.children_of(i.shape).empty()) return malformed(id, "not a tuple of operands and results");
        const ShapeId sources = shapes.children_of(i.shape)[0];
        if (ops.size() == 1 || !shapes.is_tuple(sources)) return pass_into(id, 0, ops[0]);
        for (std::uint32_t k = 0; k < ops.size() && k < shapes.children_of(sources).size(); ++k)
          if (shapes.node_count(m_[ops[k]].shape) == 1) set(id, 1 + shapes.child_node(sources, k), at(ops[k], 0));
        return {};
      }
      default: define_all(id); return {};
    }
  }

  /// Passes operand `from` to element `k` of the tuple that `id` makes.
  constexpr Error pass_into(InstructionId id, std::uint32_t k, InstructionId from) {
    const std::span<const ShapeId> elements = m_.shapes.children_of(m_[id].shape);
    if (k >= elements.size() || m_.shapes.node_count(elements[k]) != m_.shapes.node_count(m_[from].shape))
      return malformed(id, "element has another shape than the operand");
    pass(id, m_.shapes.child_node(m_[id].shape, k), from, 0, m_.shapes.node_count(elements[k]));
    return {};
  }
  /// Gives `id` the values of element `k` of its operand.
  constexpr Error pass_element(InstructionId id, std::uint32_t k) {
    const std::span<const InstructionId> ops = m_.operands(m_[id]);
    if (ops.empty() || !m_.shapes.is_tuple(m_[ops[0]].shape)) return malformed(id, "operand is no start of this operation");
    const std::span<const ShapeId> elements = m_.shapes.children_of(m_[ops[0]].shape);
    if (k >= elements.size() || m_.shapes.node_count(elements[k]) != m_.shapes.node_count(m_[id].shape))
      return malformed(id, "result has another shape than its start says");
    pass(id, 0, ops[0], m_.shapes.child_node(m_[ops[0]].shape, k), m_.shapes.node_count(elements[k]));
    return {};
  }

  constexpr Error visit_call(InstructionId id) {
    const Instruction& i = m_[id];
    if (i.called.count != 1) return malformed(id, "call names one computation");
    const ComputationId callee = m_.called(i)[0];
    const std::span<const InstructionId> parameters = m_.parameters_of(callee);
    if (parameters.size() != i.operands.count || !same_nodes(id, root(callee))) return malformed(id, "call does not fit its computation");
    for (std::size_t k = 0; k < parameters.size(); ++k)
      if (!same_nodes(parameters[k], m_.operands(i)[k])) return malformed(id, "call operand does not fit its parameter");
    if (t_.calls[callee] == CallContext::frame) return define_all(id), Error{};
    for (std::size_t k = 0; k < parameters.size(); ++k) bind(parameters[k], m_.operands(i)[k]);
    pass_all(id, root(callee));
    return {};
  }

  constexpr Error visit_while(InstructionId id) {
    const Instruction& i = m_[id];
    if (i.called.count != 2 || i.operands.count != 1) return malformed(id, "while has one operand, a condition and a body");
    const ComputationId body = m_.called(i)[0];
    const ComputationId condition = m_.called(i)[1];
    if (m_[body].parameters.count != 1 || m_[condition].parameters.count != 1) return malformed(id, "body and condition of a while have one parameter");
    const InstructionId in_body = m_.parameters_of(body)[0];
    const InstructionId in_condition = m_.parameters_of(condition)[0];
    const InstructionId init = m_.operands(i)[0];
    if (!same_nodes(id, init) || !same_nodes(id, in_body) || !same_nodes(id, in_condition) || !same_nodes(id, root(body)))
      return malformed(id, "operand, body and condition of a while have different shapes");
    IndexRange& run = t_.control[index_of(id)];
    run.begin = static_cast<std::uint32_t>(t_.carries.size());
    for (std::uint32_t n = 0, count = m_.shapes.node_count(i.shape); n < count; ++n) {
      const ValueId first = at(init, n);
      const ValueId carried = at(in_body, n);
      const ValueId next = at(root(body), n);
      if (next == carried) {
        forward_[index_of(carried)] = first;
        forward_[index_of(at(in_condition, n))] = first;
        set(id, n, first);
      } else {
        forward_[index_of(at(in_condition, n))] = carried;
        t_.values[index_of(carried)].kind = ValueKind::loop;
        t_.carries.push_back({first, carried, next, define(id, n)});
      }
    }
    run.count = static_cast<std::uint32_t>(t_.carries.size()) - run.begin;
    return {};
  }

  constexpr Error visit_conditional(InstructionId id) {
    const Instruction& i = m_[id];
    const std::span<const ComputationId> branches = m_.called(i);
    if (branches.empty() || i.operands.count != branches.size() + 1) return malformed(id, "conditional has one operand a branch and an index");
    for (std::size_t b = 0; b < branches.size(); ++b) {
      if (m_[branches[b]].parameters.count != 1 || !same_nodes(m_.parameters_of(branches[b])[0], m_.operands(i)[b + 1]) ||
          !same_nodes(id, root(branches[b])))
        return malformed(id, "branch does not fit its conditional");
      bind(m_.parameters_of(branches[b])[0], m_.operands(i)[b + 1]);
    }
    IndexRange& run = t_.control[index_of(id)];
    run.begin = static_cast<std::uint32_t>(t_.joins.size());
    for (std::uint32_t n = 0, count = m_.shapes.node_count(i.shape); n < count; ++n) {
      const ValueId first = at(root(branches[0]), n);
      bool same = true;
      for (const ComputationId b : branches) same = same && at(root(b), n) == first;
      if (same) set(id, n, first);
      else t_.joins.push_back({define(id, n), n});
    }
    run.count = static_cast<std::uint32_t>(t_.joins.size()) - run.begin;
    return {};
  }

  constexpr Error visit_async_start(InstructionId id) {
    const Instruction& i = m_[id];
    const ShapeTable& shapes = m_.shapes;
    if (i.called.count != 1 || !shapes.is_tuple(i.shape) || shapes.children_of(i.shape).size() < 2)
      return malformed(id, "async-start calls one computation and is a tuple of operands, result and context");
    const ComputationId callee = m_.called(i)[0];
    const std::span<const InstructionId> ops = m_.operands(i);
    const ShapeId sources = shapes.children_of(i.shape)[0];
    if (m_[callee].parameters.count != ops.size() || !shapes.is_tuple(sources) || shapes.children_of(sources).size() != ops.size())
      return malformed(id, "async-start does not fit its computation");
    define_all(id);
    for (std::uint32_t k = 0; k < ops.size(); ++k) {
      const std::uint32_t count = shapes.node_count(m_[ops[k]].shape);
      if (shapes.node_count(shapes.children_of(sources)[k]) != count || shapes.node_count(m_[m_.parameters_of(callee)[k]].shape) != count)
        return malformed(id, "async-start operand does not fit its parameter");
      bind(m_.parameters_of(callee)[k], ops[k]);
      pass(id, 1 + shapes.child_node(sources, k), ops[k], 0, count);
    }
    return pass_into(id, 1, root(callee));
  }

  /// A must-alias between two memory spaces cannot be honoured.
  constexpr Error check_aliases() const {
    for (const ParameterAlias& a : m_.parameter_aliases) {
      const Instruction& p = m_[m_.parameters_of(m_.entry)[a.parameter]];
      const Instruction& root = m_[m_[m_.entry].root];
      if (a.must && m_.shapes.space(m_.shapes.node(p.shape, a.parameter_node)) != m_.shapes.space(m_.shapes.node(root.shape, a.output_node)))
        return make_error_at(Errc::invalid_argument, "unusable donation: a parameter and the output that must take its memory are in different memory spaces", p.where);
    }
    return {};
  }

  /// Drops the values that only stood for others and renumbers the rest.
  constexpr void compact() {
    std::vector<ValueId> number(t_.values.size(), no_id<ValueId>);
    std::vector<char> used(t_.values.size(), 0);
    for (ValueId& v : t_.at)
      if (v != no_id<ValueId>) used[index_of(v = resolve(v))] = 1;
    const auto keep = [&](ValueId v) { return used[index_of(resolve(v))] = 1, resolve(v); };
    for (LoopCarry& c : t_.carries) c = {keep(c.init), keep(c.carried), keep(c.next), keep(c.result)};
    for (BranchJoin& j : t_.joins) j.result = keep(j.result);
    std::uint32_t next = 0;
    for (std::size_t v = 0; v < t_.values.size(); ++v)
      if (used[v] != 0) {
        t_.values[next] = t_.values[v];
        number[v] = static_cast<ValueId>(next++);
      }
    t_.values.resize(next, Value{});
    for (ValueId& v : t_.at)
      if (v != no_id<ValueId>) v = number[index_of(v)];
    for (LoopCarry& c : t_.carries)
      c = {number[index_of(c.init)], number[index_of(c.carried)], number[index_of(c.next)], number[index_of(c.result)]};
    for (BranchJoin& j : t_.joins) j.result = number[index_of(j.result)];
  }
};

}  // namespace detail

/// Finds which value is at each position of a module.
///
/// Errors: those of `make_call_graph`; corrupt (shapes of caller and callee disagree); over_budget.
/// Cost: linear in positions. Source: passes.md 3.1.
[[nodiscard]] constexpr Result<ValueTable> analyze_values(const Module& module) {
  return detail::ValueBuilder(module).run();
}

}  // namespace holdfast
