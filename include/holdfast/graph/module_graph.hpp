// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "holdfast/graph/alias.hpp"
#include "holdfast/graph/background_update.hpp"
#include "holdfast/graph/graph.hpp"
#include "holdfast/graph/graph_builder.hpp"
#include "holdfast/graph/in_place.hpp"
#include "holdfast/graph/module.hpp"

namespace holdfast {

/// How the values of a module count in its graphs.
struct ModuleGraphOptions {
  Bytes pointer_size = 8;
  Bytes alignment = 64;  ///< sizes are rounded up to it, as places in an arena are
  /// Results of the entry and of shared computations have memory of their own all the time. Else
  /// they count from their definition on, and donated parameters to their last use: temporaries may
  /// lie there while it is idle.
  bool outputs_held = true;
  /// XLA's rules: pointer tables have bytes, and a value lives as long as it stands in a tuple.
  bool compat = false;
  /// Leaves out what some plan might do without: donated parameters, and the order that an update in
  /// place needs. What no order of the graph can be below, no plan of the program can.
  bool relaxed = false;
};

/// The sizes that plans use: `byte_size`, 0 for what is unbounded.
struct ShapeBytes {
  Bytes pointer_size = 8;
  [[nodiscard]] constexpr Bytes operator()(const ShapeTable& shapes, ShapeId shape) const noexcept {
    return std::max<Bytes>(0, shapes.byte_size(shape, pointer_size));
  }
};

/// What calling a computation needs beside the values that caller and callee share.
struct CalleeMemory {
  Bytes peak = 0;   ///< of the bytes that come and go
  Bytes floor = 0;  ///< what its peak cannot be below, whatever its order
};

/// Makes the graphs of a module's computations, one at a time.
///
/// Node k is the k-th instruction as the computation stands. `SizeOf` is any `(const ShapeTable&,
/// ShapeId) -> Bytes`. A result in the memory of a parameter, or of what a loop carries, is one
/// buffer with it, so readers of the old value come first. Other updates in place and kernels that
/// may write over an operand only say that they may. Threads: one at a time. Cost: linear in the
/// instructions and positions of the computation.
template <class SizeOf = ShapeBytes>
class ModuleGraphs {
 public:
  constexpr ~ModuleGraphs() = default;  // else nvcc 13.0 takes it for no constant expression
  constexpr ModuleGraphs(const Module& module, const ValueTable& values,
                         const ModuleGraphOptions& options = {})
      : ModuleGraphs(module, values, options, SizeOf{options.pointer_size}) {}
  constexpr ModuleGraphs(const Module& module, const ValueTable& values,
                         const ModuleGraphOptions& options, SizeOf size_of)
      : m_(module),
        t_(values),
        options_(options),
        size_of_(size_of),
        rules_(module),
        node_of_(module.instructions.size(), no_id<NodeId>),
        local_(values.values.size(), Local{}),
        anchored_(values.values.size(), 0) {
    if (options_.outputs_held) find_anchored();
    if (options_.relaxed) find_readers();
  }

  /// Makes the graph of a planned computation; `callees` has what each of the module's computations
  /// needs.
  ///
  /// Errors: corrupt (an operand stands behind its user), those of `GraphBuilder::finish`.
  constexpr Result<Graph> make(ComputationId computation, std::span<const CalleeMemory> callees) {
    computation_ = computation;
    callees_ = callees;
    builder_ = GraphBuilder{};
    ++round_;
    prepare_buffers();
    const std::span<const InstructionId> body = m_.instructions_of(computation);
    for (std::uint32_t k = 0; k < body.size(); ++k)
      node_of_[index_of(body[k])] = static_cast<NodeId>(k);
    for (std::uint32_t k = 0; k < body.size(); ++k)
      if (!add(body[k], k))
        return make_error_at(Errc::corrupt, "an operand stands behind its user", m_[body[k]].where);
    const InstructionId root = m_[computation].root;
    builder_.set_root(node_of_[index_of(root)]);
    builder_.keep(node_of_[index_of(root)]);
    return builder_.finish();
  }

 private:
  /// What the graph in the making knows of a value of the module; all of another round is void.
  struct Local {
    std::uint32_t round = 0;
    ValueId value = no_id<ValueId>;
    Bytes counted = 0;
    std::uint32_t buffer = GraphBuilder::own_buffer;
    Lifetime lifetime = Lifetime::temporary;
    bool donated = false;
  };
  // Operands times results of one kernel that are looked at as candidates for overwriting.
  static constexpr std::uint64_t most_pairs = 4096;

  const Module& m_;
  const ValueTable& t_;
  ModuleGraphOptions options_;
  SizeOf size_of_;
  InPlaceRules rules_;
  std::vector<NodeId> node_of_;
  std::vector<Local> local_;
  std::vector<char> anchored_;  // values that lie where results have a place of their own
  std::vector<ComputationId> reader_;  // by value: the one computation whose kernels read it
  std::uint32_t round_ = 0;
  ComputationId computation_{};
  std::span<const CalleeMemory> callees_;
  GraphBuilder builder_;

  constexpr Local& local(ValueId v) noexcept {
    Local& l = local_[index_of(v)];
    if (l.round != round_) l = Local{.round = round_};
    return l;
  }
  [[nodiscard]] constexpr Bytes size(ValueId v) const noexcept {
    const ShapeId shape = t_[v].shape;
    return m_.shapes.is_tuple(shape) && !options_.compat
               ? 0
               : align_up(size_of_(m_.shapes, shape), options_.alignment);
  }
  [[nodiscard]] constexpr bool is_frame() const noexcept {
    return t_.calls[computation_] == CallContext::frame;
  }
  [[nodiscard]] constexpr bool is_loop_body() const noexcept {
    const InstructionId caller = t_.calls.caller[index_of(computation_)];
    return caller != no_id<InstructionId> && m_[caller].opcode == Opcode::while_ &&
           m_.called(m_[caller])[0] == computation_;
  }
  template <class F>
  constexpr void each_value(InstructionId i, F f) const {
    for (std::uint32_t n = 0, count = m_.shapes.node_count(m_[i].shape); n < count; ++n)
      f(t_.value(i, n), n);
  }

  // What a loop carries to a result lies in the result's place all along.
  constexpr void find_anchored() {
    for (std::uint32_t c = index_of(m_.entry) + 1; c-- > 0;) {
      const auto id = static_cast<ComputationId>(c);
      if (t_.calls[id] == CallContext::frame)
        each_value(m_[id].root, [this](ValueId v, std::uint32_t) { anchored_[index_of(v)] = 1; });
      if (!t_.calls.is_planned(id)) continue;
      for (const InstructionId i : m_.instructions_of(id))
        if (m_[i].opcode == Opcode::while_)
          for (std::uint32_t k = t_.control[index_of(i)].begin; k < t_.control[index_of(i)].end();
               ++k)
            if (const LoopCarry& l = t_.carries[k]; anchored_[index_of(l.result)] != 0)
              anchored_[index_of(l.carried)] = anchored_[index_of(l.next)] = 1;
    }
  }
  // A value that a loop only hands through is read by nobody there.
  constexpr void find_readers() {
    constexpr auto several = static_cast<ComputationId>(0xFFFFFFFEu);
    reader_.resize(t_.values.size(), no_id<ComputationId>);
    for (std::uint32_t c = 0; c <= index_of(m_.entry); ++c) {
      const auto id = static_cast<ComputationId>(c);
      if (!t_.calls.is_planned(id)) continue;
      for (const InstructionId i : m_.instructions_of(id))
        if (!is_forwarding(m_[i].opcode) && !is_control_flow(m_[i].opcode))
          for (const InstructionId o : m_.operands(m_[i]))
            each_value(o, [&](ValueId v, std::uint32_t) {
              ComputationId& r = reader_[index_of(v)];
              r = r == no_id<ComputationId> || r == id ? id : several;
            });
    }
  }
  // Whether a callee surely needs an operand's value.
  [[nodiscard]] constexpr bool passed(InstructionId id, ValueId v) const noexcept {
    const std::span<const ComputationId> called = m_.called(m_[id]);
    if (std::find(called.begin(), called.end(), reader_[index_of(v)]) != called.end()) return true;
    if (m_[id].opcode != Opcode::while_) return false;
    const IndexRange run = t_.control[index_of(id)];
    return std::any_of(t_.carries.begin() + run.begin, t_.carries.begin() + run.end(),
                       [v](const LoopCarry& c) { return c.init == v; });
  }
  // Values that share memory by force, and results that have a place of their own.
  constexpr void prepare_buffers() {
    const InstructionId root = m_[computation_].root;
    if (is_frame() && options_.outputs_held)
      each_value(root, [this](ValueId v, std::uint32_t) { local(v).lifetime = Lifetime::held; });
    const auto join = [this](ValueId older, ValueId younger) {
      if (older == younger || local(younger).buffer != GraphBuilder::own_buffer) return;
      if (local(older).buffer == GraphBuilder::own_buffer)
        local(older).buffer = builder_.make_buffer();
      local(younger).buffer = local(older).buffer;
    };
    if (options_.relaxed) return;
    if (computation_ == m_.entry)
      for (const ParameterAlias& a : m_.parameter_aliases) {
        const ValueId p = t_.value(m_.parameters_of(computation_)[a.parameter], a.parameter_node);
        const ValueId r = t_.value(root, a.output_node);
        if (t_[r].kind == ValueKind::ordinary) join(p, r);
        local(p).donated = !options_.outputs_held;
      }
    if (is_loop_body()) {
      const IndexRange run = t_.control[index_of(t_.calls.caller[index_of(computation_)])];
      for (std::uint32_t k = run.begin; k < run.end(); ++k)
        if (const LoopCarry& c = t_.carries[k]; t_[c.next].kind == ValueKind::ordinary)
          join(c.carried, c.next);
    }
  }

  constexpr bool add(InstructionId id, std::uint32_t number) {
    const Instruction& i = m_[id];
    std::vector<NodeId> operands;
    for (const InstructionId o : m_.operands(i)) {
      if (index_of(node_of_[index_of(o)]) >= number) return false;
      operands.push_back(node_of_[index_of(o)]);
    }
    const NodeId n = builder_.node(operands, i.name);
    for (const InstructionId c : m_.controls(i)) builder_.control(node_of_[index_of(c)], n);
    builder_.back().source = i.opcode == Opcode::parameter || i.opcode == Opcode::constant;
    builder_.back().urgency = urgency(i);
    add_reads(id);
    Bytes defined = 0;
    each_value(id, [&](ValueId v, std::uint32_t node) {
      Local& l = local(v);
      const Bytes bytes = size(v);
      if (bytes == 0 && !options_.compat) return;
      if (l.value != no_id<ValueId>) return builder_.forward(l.value);
      const Lifetime life = lifetime(i, v);
      l.value = builder_.define(bytes, life, l.buffer);
      l.counted = life == Lifetime::held || life == Lifetime::ignored ? 0 : bytes;
      if (i.opcode != Opcode::while_ || anchored_[index_of(v)] == 0) defined += bytes;
      if (!builder_.back().source) add_reuses(id, v, node);
    });
    add_callees(i, defined);
    return true;
  }

  [[nodiscard]] constexpr Lifetime lifetime(const Instruction& i, ValueId v) noexcept {
    if (t_[v].kind == ValueKind::constant) return Lifetime::ignored;
    if (i.opcode == Opcode::parameter && !local(v).donated &&
        (!is_loop_body() || t_[v].kind != ValueKind::loop || anchored_[index_of(v)] != 0))
      return Lifetime::held;
    return local(v).lifetime;
  }
  [[nodiscard]] constexpr Urgency urgency(const Instruction& i) const noexcept {
    const auto configured = [&](std::string_view key) { return m_.attribute(i, key).size() > 2; };
    if (is_array(m_.shapes[i.shape].type)) {
      const std::span<const std::int64_t> dimensions = m_.shapes.dimensions(i.shape);
      if (std::all_of(dimensions.begin(), dimensions.end(), [](std::int64_t d) { return d == 1; }))
        return Urgency::first;
    }
    if (i.opcode == Opcode::outfeed && configured("outfeed_config")) return Urgency::early;
    if (i.opcode == Opcode::infeed && configured("infeed_config")) return Urgency::late;
    return Urgency::normal;
  }

  constexpr void read(ValueId v) {
    if (const ValueId known = local(v).value; known != no_id<ValueId>) builder_.read(known);
  }
  constexpr void add_reads(InstructionId id) {
    const Instruction& i = m_[id];
    const std::span<const InstructionId> operands = m_.operands(i);
    if (is_forwarding(i.opcode)) {
      if (!options_.compat) return;
      if (i.opcode == Opcode::get_tuple_element) read(t_.value(operands[0]));
      each_value(id, [this](ValueId v, std::uint32_t) { read(v); });
      return;
    }
    const bool partly = options_.relaxed && is_control_flow(i.opcode);
    BackgroundUpdate update;
    if (i.opcode != Opcode::async_start) update = background_update(m_, t_, id);
    for (const InstructionId o : operands) {
      if (partly)
        each_value(o, [&](ValueId v, std::uint32_t) {
          if (passed(id, v)) read(v);
        });
      else if (i.opcode == Opcode::copy)
        read(t_.value(o));
      else
        each_value(o, [&](ValueId v, std::uint32_t) {
          if (v != update.base || !update.alone) read(v);
        });
    }
  }

  constexpr void reuse(ValueId v) {
    if (const ValueId known = local(v).value; known != no_id<ValueId>) builder_.reuse(known);
  }
  // What the value just defined may be written over.
  constexpr void add_reuses(InstructionId id, ValueId v, std::uint32_t node) {
    const Instruction& i = m_[id];
    if (i.opcode == Opcode::while_) {
      const IndexRange run = t_.control[index_of(id)];
      const auto first = t_.carries.begin() + run.begin;
      const auto at = std::lower_bound(first, first + run.count, v,
                                       [](const LoopCarry& c, ValueId x) { return c.result < x; });
      if (at != first + run.count && at->result == v) reuse(at->init);
      return;
    }
    const InstructionId maker = t_[v].instruction;
    const Instruction& kernel = m_[maker];
    const std::span<const InstructionId> operands = m_.operands(kernel);
    // Inside a call, an operand may be written over only if nothing else in the callee reads it.
    const auto mine = [&](std::uint32_t operand) {
      return maker == id || (m_[operands[operand]].opcode == Opcode::parameter &&
                             rules_.uses(operands[operand]).size() == 1);
    };
    if (maker != id && kernel.computation != callee_of(i)) return;
    node = t_[v].node;
    rules_.for_each_pair(
        maker, [&](std::uint32_t operand, std::uint32_t operand_node, std::uint32_t output_node) {
          if (output_node == node && operand < operands.size() && mine(operand))
            reuse(t_.value(operands[operand], operand_node));
        });
    if (!InPlaceRules::overwrites(kernel.opcode)) return;
    if (operands.size() * m_.shapes.node_count(kernel.shape) > most_pairs) {
      if (options_.relaxed) builder_.back().slack = operand_bytes(i);
      return;
    }
    for (std::uint32_t o = 0; o < operands.size(); ++o)
      if (!m_.shapes.is_tuple(m_[operands[o]].shape) && mine(o) &&
          rules_.may_overwrite(maker, o, node))
        reuse(t_.value(operands[o]));
  }
  [[nodiscard]] constexpr ComputationId callee_of(const Instruction& i) const noexcept {
    return i.opcode == Opcode::call || i.opcode == Opcode::async_start ? m_.called(i)[0]
                                                                       : no_id<ComputationId>;
  }

  // Bytes of operands that a callee may be done with before it is over.
  [[nodiscard]] constexpr Bytes given_up(const Instruction& i,
                                         ComputationId callee) noexcept {
    std::size_t kernels = 0;
    for (const InstructionId k : m_.instructions_of(callee)) {
      const Opcode opcode = m_[k].opcode;
      kernels += opcode != Opcode::parameter && opcode != Opcode::constant && !is_forwarding(opcode)
                     ? 1u
                     : 0u;
    }
    return kernels > 1 ? operand_bytes(i) : 0;
  }
  [[nodiscard]] constexpr Bytes operand_bytes(const Instruction& i) noexcept {
    Bytes sum = 0;
    for (const InstructionId o : m_.operands(i))
      each_value(o, [&](ValueId v, std::uint32_t) { sum = saturating_add(sum, local(v).counted); });
    return sum;
  }
  // A callee's peak becomes transient bytes of the call; what it defines for its caller is the
  // call's own.
  constexpr void add_callees(const Instruction& i, Bytes defined) {
    if (!is_control_flow(i.opcode)) return;
    Graph::Node& node = builder_.back();
    if (options_.relaxed) {  // operands may be gone before the callee's peak, results come after it
      for (const ComputationId c : m_.called(i))
        node.transient = std::max(node.transient, callees_[index_of(c)].floor);
      node.slack = saturating_add(operand_bytes(i), defined);
      return;
    }
    Bytes floor = 0;
    const bool loop = i.opcode == Opcode::while_;
    for (const ComputationId c : m_.called(i)) {
      const CalleeMemory need = callees_[index_of(c)];
      // A loop's condition and a shared computation do not count what the caller defines.
      const Bytes mine =
          t_.calls[c] == CallContext::flat && !(loop && c != m_.called(i)[0]) ? defined : 0;
      node.transient = std::max(node.transient, need.peak - std::min(need.peak, mine));
      floor = std::max(
          floor,
          need.floor - std::min(need.floor, saturating_add(mine, loop ? 0 : given_up(i, c))));
    }
    node.slack = node.transient - std::min(floor, node.transient);
  }
};

}  // namespace holdfast
