// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/graph/module.hpp"

namespace holdfast::detail {

/// Where the contents of each position of a program come from: another position, or a write of its
/// own.
///
/// A second reading of what operations pass on, for a checker: it shares no code with `ValueTable`.
/// A loop's state, a conditional's result and what goes in and out of a shared computation are
/// positions of their own, which control steps copy. Cost: linear in positions.
class Origins {
 public:
  /// `shared` tells whether a computation has several callers.
  template <class Shared>
  Origins(const Module& module, Shared&& shared)
      : m_(module), base_(module.instructions.size(), none) {
    std::vector<char> reached(m_.computations.size(), 0);
    reached[index_of(m_.entry)] = 1;
    std::vector<ComputationId> order;
    for (std::size_t c = index_of(m_.entry) + 1; c-- > 0;) {
      if (reached[c] == 0) continue;
      order.push_back(static_cast<ComputationId>(c));
      for (const InstructionId i : m_.instructions_of(static_cast<ComputationId>(c))) {
        base_[index_of(i)] = static_cast<std::uint32_t>(to_.size());
        for (std::uint32_t n = 0, count = m_.shapes.node_count(m_[i].shape); n < count; ++n) {
          to_.push_back(static_cast<std::uint32_t>(to_.size()));
          owner_.push_back(i);
        }
        const Opcode op = m_[i].opcode;
        if (op == Opcode::call || op == Opcode::while_ || op == Opcode::conditional ||
            op == Opcode::async_start)
          for (const ComputationId callee : m_.called(m_[i])) reached[index_of(callee)] = 1;
      }
    }
    for (const ComputationId c : order)
      for (const InstructionId i : m_.instructions_of(c)) link(i, shared);
    for (std::uint32_t p = 0; p < to_.size(); ++p) to_[p] = resolve(p);
  }

  [[nodiscard]] std::size_t size() const noexcept { return to_.size(); }
  [[nodiscard]] bool has(InstructionId i) const noexcept { return base_[index_of(i)] != none; }
  /// The number of a position itself.
  [[nodiscard]] std::uint32_t position(InstructionId i, std::uint32_t node) const noexcept {
    return base_[index_of(i)] + node;
  }
  /// The position whose write a position shows.
  [[nodiscard]] std::uint32_t origin(InstructionId i, std::uint32_t node) const noexcept {
    return to_[position(i, node)];
  }
  [[nodiscard]] InstructionId owner(std::uint32_t position) const noexcept {
    return owner_[position];
  }
  [[nodiscard]] std::uint32_t node(std::uint32_t position) const noexcept {
    return position - base_[index_of(owner_[position])];
  }

 private:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;

  const Module& m_;
  std::vector<std::uint32_t> base_;
  std::vector<std::uint32_t> to_;
  std::vector<InstructionId> owner_;

  std::uint32_t resolve(std::uint32_t p) noexcept {
    std::uint32_t end = p;
    while (to_[end] != end) end = to_[end];
    while (to_[p] != end) {
      const std::uint32_t next = to_[p];
      to_[p] = end;
      p = next;
    }
    return end;
  }
  /// Lets `count` nodes of `i` from `node` on show those of `from` from `from_node` on.
  void show(InstructionId i, std::uint32_t node, InstructionId from, std::uint32_t from_node,
            std::uint32_t count) noexcept {
    for (std::uint32_t k = 0; k < count; ++k)
      to_[position(i, node + k)] = position(from, from_node + k);
  }
  void show_all(InstructionId i, InstructionId from) noexcept {
    show(i, 0, from, 0, m_.shapes.node_count(m_[i].shape));
  }
  /// Element `k` of the tuple `i` shows `from`.
  void put(InstructionId i, std::uint32_t k, InstructionId from) noexcept {
    show(i, m_.shapes.child_node(m_[i].shape, k), from, 0, m_.shapes.node_count(m_[from].shape));
  }
  /// `i` shows element `k` of the tuple `from`.
  void take(InstructionId i, InstructionId from, std::uint32_t k) noexcept {
    show(i, 0, from, m_.shapes.child_node(m_[from].shape, k), m_.shapes.node_count(m_[i].shape));
  }

  template <class Shared>
  void link(InstructionId id, Shared& shared) noexcept {
    const Instruction& i = m_[id];
    const std::span<const InstructionId> o = m_.operands(i);
    const std::span<const ComputationId> called = m_.called(i);
    const bool tuple = m_.shapes.is_tuple(i.shape);
    switch (i.opcode) {
      case Opcode::tuple:
        for (std::uint32_t k = 0; k < o.size(); ++k) put(id, k, o[k]);
        return;
      case Opcode::get_tuple_element:
        take(id, o[0], i.number);
        return;
      case Opcode::bitcast:
      case Opcode::domain:
      case Opcode::add_dependency:
      case Opcode::async_update:
      case Opcode::all_reduce_done:
        show_all(id, o[0]);
        return;
      case Opcode::opt_barrier:
        if (o.size() == 1) show_all(id, o[0]);
        return;
      case Opcode::copy: {  // shallow: the array itself, or the table, is new
        const std::uint32_t count = m_.shapes.node_count(i.shape);
        if (count > 1) show(id, 1, o[0], 1, count - 1);
        return;
      }
      case Opcode::call:
        if (shared(called[0])) return;
        for (std::size_t k = 0; k < o.size(); ++k) show_all(m_.parameters_of(called[0])[k], o[k]);
        show_all(id, m_[called[0]].root);
        return;
      case Opcode::while_:
        for (const ComputationId c : called) show_all(m_.parameters_of(c)[0], id);
        return;
      case Opcode::conditional:
        for (std::size_t b = 0; b < called.size(); ++b)
          show_all(m_.parameters_of(called[b])[0], o[b + 1]);
        return;
      case Opcode::async_start:
        for (std::uint32_t k = 0; k < o.size(); ++k) {
          show_all(m_.parameters_of(called[0])[k], o[k]);
          const ShapeId sources = m_.shapes.children_of(i.shape)[0];
          show(id, 1 + m_.shapes.child_node(sources, k), o[k], 0,
               m_.shapes.node_count(m_[o[k]].shape));
        }
        put(id, 1, m_[called[0]].root);
        return;
      case Opcode::async_done:
      case Opcode::all_gather_done:
      case Opcode::collective_permute_done:
        take(id, o[0], 1);
        return;
      case Opcode::copy_start:
        put(id, 1, o[0]);
        return;
      case Opcode::copy_done:
        take(id, o[0], 0);
        return;
      case Opcode::send:
        if (tuple) put(id, 0, o[0]);
        return;
      case Opcode::recv_done:
        if (!tuple || o.empty()) return;
        if (const std::uint32_t count = m_.shapes.node_count(m_.shapes.children_of(i.shape)[0]);
            m_.shapes.is_tuple(m_[o[0]].shape) &&
            m_.shapes.node_count(m_.shapes.children_of(m_[o[0]].shape)[0]) == count)
          show(id, 1, o[0], 1, count);
        return;
      case Opcode::all_gather_start:
      case Opcode::collective_permute_start:
        if (!tuple || o.empty()) return;
        if (const ShapeId sources = m_.shapes.children_of(i.shape)[0];
            o.size() == 1 || !m_.shapes.is_tuple(sources)) {
          put(id, 0, o[0]);
        } else {
          for (std::uint32_t k = 0; k < o.size() && k < m_.shapes.children_of(sources).size(); ++k)
            if (m_.shapes.node_count(m_[o[k]].shape) == 1)
              show(id, 1 + m_.shapes.child_node(sources, k), o[k], 0, 1);
        }
        return;
      default:
        return;
    }
  }
};

}  // namespace holdfast::detail
