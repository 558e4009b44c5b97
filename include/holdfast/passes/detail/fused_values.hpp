// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "holdfast/graph/module.hpp"

namespace holdfast::detail {

/// The values inside fused computations and what they call: which positions (instruction, node) are
/// one value, and which values have to be placed alike though they are not one.
///
/// Bitcasts define values; what loops and conditionals merge is one value. A link leads from the
/// result of an in-place update to its base, and both ways between a nested fusion and its inside;
/// an outermost fusion is no position. Source: XLA HloDataflowAnalysis with ssa=false and
/// bitcast_defines=true, passes.md 3.1 and 4.1.
class FusedValues {
 public:
  static constexpr std::uint32_t no_position = 0xFFFFFFFFu;
  static constexpr std::size_t max_positions = std::size_t{1} << 28;

  struct Link {
    std::uint32_t from, to;  // values
    bool update;             // leads to the base of an in-place update
  };

  /// False when there are more than `max_positions`.
  constexpr bool build(const Module& module) {
    m_ = &module;
    if (!place()) return false;
    for (const InstructionId id : inside_) join_all(id);
    for (const InstructionId id : inside_) link_all(id);
    std::sort(links_.begin(), links_.end(), [](const Link& a, const Link& b) {
      return a.from != b.from ? a.from < b.from : a.to != b.to ? a.to < b.to : a.update < b.update;
    });
    return true;
  }
  /// The instructions that have positions.
  [[nodiscard]] constexpr std::span<const InstructionId> inside() const noexcept { return inside_; }
  [[nodiscard]] constexpr bool has(InstructionId i) const noexcept {
    return base_[index_of(i)] != no_position;
  }
  /// The value at a position: the number of one of its positions.
  [[nodiscard]] constexpr std::uint32_t value(InstructionId i, std::uint32_t node) noexcept {
    return find(base_[index_of(i)] + node);
  }
  [[nodiscard]] constexpr std::size_t positions() const noexcept { return parent_.size(); }
  [[nodiscard]] constexpr std::size_t link_count() const noexcept { return links_.size(); }
  /// The links that leave a value. Cost: O(log links).
  [[nodiscard]] constexpr std::span<const Link> links(std::uint32_t value) const noexcept {
    const auto first = std::lower_bound(links_.begin(), links_.end(), value,
                                        [](const Link& l, std::uint32_t v) { return l.from < v; });
    auto last = first;
    while (last != links_.end() && last->from == value) ++last;
    return {links_.data() + (first - links_.begin()), static_cast<std::size_t>(last - first)};
  }

 private:
  constexpr bool place() {
    std::vector<std::uint8_t> in(m_->computations.size(), 0);
    base_.assign(m_->instructions.size(), no_position);
    for (std::size_t c = m_->computations.size(); c-- > 0;) {  // callers first
      if (m_->computations[c].is_fusion) in[c] = 1;
      if (in[c] == 0) continue;
      for (const InstructionId id : m_->instructions_of(static_cast<ComputationId>(c))) {
        const Instruction& i = (*m_)[id];
        if (i.opcode == Opcode::call || i.opcode == Opcode::while_ ||
            i.opcode == Opcode::conditional || i.opcode == Opcode::async_start)
          for (const ComputationId k : m_->called(i)) in[index_of(k)] = 1;
      }
    }
    for (std::size_t c = 0; c < in.size(); ++c) {
      if (in[c] == 0) continue;
      for (const InstructionId id : m_->instructions_of(static_cast<ComputationId>(c))) {
        base_[index_of(id)] = static_cast<std::uint32_t>(parent_.size());
        const std::uint32_t nodes = nodes_of(id);
        if (parent_.size() + nodes > max_positions) return false;
        for (std::uint32_t n = 0; n < nodes; ++n)
          parent_.push_back(static_cast<std::uint32_t>(parent_.size()));
        inside_.push_back(id);
      }
    }
    return true;
  }
  [[nodiscard]] constexpr std::uint32_t nodes_of(InstructionId i) const noexcept {
    return m_->shapes.node_count((*m_)[i].shape);
  }
  [[nodiscard]] constexpr InstructionId root_of(ComputationId c) const noexcept {
    return (*m_)[c].root;
  }
  constexpr std::uint32_t find(std::uint32_t p) noexcept {
    while (parent_[p] != p) p = parent_[p] = parent_[parent_[p]];
    return p;
  }
  /// Makes the positions of `count` nodes of two instructions one value each.
  constexpr void join(InstructionId a, std::uint32_t a_node, InstructionId b, std::uint32_t b_node,
                      std::uint32_t count) noexcept {
    if (!has(a) || !has(b) || a_node + count > nodes_of(a) || b_node + count > nodes_of(b)) return;
    for (std::uint32_t n = 0; n < count; ++n) {
      const std::uint32_t x = value(a, a_node + n);
      const std::uint32_t y = value(b, b_node + n);
      parent_[std::max(x, y)] = std::min(x, y);
    }
  }
  constexpr void join(InstructionId a, InstructionId b) noexcept { join(a, 0, b, 0, nodes_of(a)); }

  constexpr void join_all(InstructionId id) noexcept {
    const Instruction& i = (*m_)[id];
    const ShapeTable& shapes = m_->shapes;
    const auto operands = m_->operands(i);
    const auto called = m_->called(i);
    const auto element = [&](InstructionId of, std::uint32_t k) {  // node; past the end: none
      const ShapeId s = (*m_)[of].shape;
      return shapes.is_tuple(s) && k < shapes.children_of(s).size() ? shapes.child_node(s, k)
                                                                    : nodes_of(of);
    };
    switch (i.opcode) {
      case Opcode::tuple:
        for (std::uint32_t k = 0; k < operands.size(); ++k)
          join(id, element(id, k), operands[k], 0, nodes_of(operands[k]));
        return;
      case Opcode::get_tuple_element:
        return join(id, 0, operands[0], element(operands[0], i.number), nodes_of(id));
      case Opcode::add_dependency:
      case Opcode::domain:
      case Opcode::async_update:
        return join(id, operands[0]);
      case Opcode::opt_barrier:
        if (operands.size() == 1) join(id, operands[0]);
        return;
      case Opcode::copy:
        return join(id, 1, operands[0], 1, nodes_of(id) - 1);
      case Opcode::copy_start:
        return join(id, element(id, 1), operands[0], 0, nodes_of(operands[0]));
      case Opcode::copy_done:
        return join(id, 0, operands[0], element(operands[0], 0), nodes_of(id));
      case Opcode::call:
        for (std::uint32_t k = 0; k < operands.size(); ++k)
          join(m_->parameters_of(called[0])[k], operands[k]);
        return join(id, root_of(called[0]));
      case Opcode::while_:
        for (const ComputationId c : called) join(m_->parameters_of(c)[0], id);
        join(id, operands[0]);
        return join(id, root_of(called[0]));
      case Opcode::conditional:
        for (std::uint32_t k = 0; k < called.size(); ++k) {
          join(m_->parameters_of(called[k])[0], operands[k + 1]);
          join(id, root_of(called[k]));
        }
        return;
      case Opcode::async_start:
        for (std::uint32_t k = 0; k < operands.size(); ++k) {
          const ShapeId sources = shapes.children_of(i.shape)[0];
          join(id, 1 + shapes.child_node(sources, k), operands[k], 0, nodes_of(operands[k]));
          join(m_->parameters_of(called[0])[k], operands[k]);
        }
        return join(id, element(id, 1), root_of(called[0]), 0, nodes_of(root_of(called[0])));
      case Opcode::async_done:
        return join(id, 0, operands[0], element(operands[0], 1), nodes_of(id));
      default:
        return;
    }
  }

  constexpr void link(InstructionId a, InstructionId b, bool update = false) {
    if (nodes_of(a) != nodes_of(b)) return;
    for (std::uint32_t n = 0; n < nodes_of(a); ++n)
      if (!m_->shapes.is_tuple(m_->shapes.node((*m_)[a].shape, n)))
        links_.push_back({value(a, n), value(b, n), update});
  }
  constexpr void link_all(InstructionId id) {
    const Instruction& i = (*m_)[id];
    const auto operands = m_->operands(i);
    if (i.opcode == Opcode::dynamic_update_slice) link(id, operands[0], true);
    if (i.opcode != Opcode::fusion) return;
    const ComputationId callee = m_->called(i)[0];
    const bool nested = (*m_)[i.computation].is_fusion;  // else it is what says where values live
    const auto parameters = m_->parameters_of(callee);
    for (std::size_t k = 0; k < operands.size(); ++k) {
      link(operands[k], parameters[k]);
      if (nested) link(parameters[k], operands[k]);
    }
    link(id, root_of(callee));
    if (nested) link(root_of(callee), id);
  }

  const Module* m_ = nullptr;
  std::vector<std::uint32_t> base_;  // by instruction: its first position
  std::vector<std::uint32_t> parent_;
  std::vector<InstructionId> inside_;
  std::vector<Link> links_;
};

}  // namespace holdfast::detail
