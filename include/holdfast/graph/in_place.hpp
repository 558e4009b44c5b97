// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/graph/module.hpp"

namespace holdfast {

/// Decides which results may or should take the memory of an operand, by opcode and by what fusions do inside.
///
/// Two questions: `for_each_pair` gives the pairs that the operation itself updates in place;
/// `may_overwrite` says whether a kernel may write its result over an operand that nobody reads afterwards.
/// Neither looks at lifetimes. Answers about fusions are remembered. Threads: one at a time (it caches).
/// Source: XLA HloDataflowAnalysis::GetInPlaceInputOutputPairs and CanShareOperandBufferWithUser, made
/// safe where a fusion reads the updated base elsewhere (openxla/xla#49176, #39100, #38597).
class InPlaceRules {
 public:
  constexpr explicit InPlaceRules(const Module& module)
      : m_(module), uses_begin_(module.instructions.size() + 1, 0), elementwise_(module.instructions.size(), 0) {
    for (const Instruction& i : module.instructions)
      for (const InstructionId o : module.operands(i)) ++uses_begin_[index_of(o) + 1];
    for (std::size_t k = 1; k < uses_begin_.size(); ++k) uses_begin_[k] += uses_begin_[k - 1];
    uses_.resize(uses_begin_.back(), Use{});
    std::vector<std::uint32_t> next(uses_begin_.begin(), uses_begin_.end() - 1);
    for (std::uint32_t u = 0; u < module.instructions.size(); ++u) {
      std::uint32_t number = 0;
      for (const InstructionId o : module.operands(module.instructions[u]))
        uses_[next[index_of(o)]++] = {static_cast<InstructionId>(u), number++};
    }
  }

  /// One operand position of one user.
  struct Use {
    InstructionId user{};
    std::uint32_t operand = 0;
  };
  /// Every use of an instruction within its computation.
  [[nodiscard]] constexpr std::span<const Use> uses(InstructionId i) const noexcept {
    return {uses_.data() + uses_begin_[index_of(i)], uses_begin_[index_of(i) + 1] - uses_begin_[index_of(i)]};
  }

  /// Calls `f(operand, operand_node, output_node)` for each operand that the operation updates in place.
  template <class F>
  constexpr void for_each_pair(InstructionId id, F&& f) const {
    const Instruction& i = m_[id];
    const ShapeTable& shapes = m_.shapes;
    for (const OperandAlias& a : m_.aliases(i)) f(a.operand, a.operand_node, a.output_node);
    switch (i.opcode) {
      case Opcode::dynamic_update_slice: case Opcode::set_dimension_size: f(0u, 0u, 0u); return;
      case Opcode::ragged_all_to_all: f(1u, 0u, 0u); return;
      case Opcode::scatter: case Opcode::all_reduce_start: {
        if (i.opcode == Opcode::all_reduce_start && mentions_nvshmem(m_.attribute(i, "backend_config"))) return;
        const std::uint32_t data = i.opcode == Opcode::scatter ? (i.operands.count - 1) / 2 : i.operands.count;
        if (!shapes.is_tuple(i.shape)) return f(0u, 0u, 0u);
        for (std::uint32_t k = 0; k < data && k < shapes.children_of(i.shape).size(); ++k) f(k, 0u, shapes.child_node(i.shape, k));
        return;
      }
      case Opcode::collective_permute:
        if (i.operands.count != 4) return;
        for (std::uint32_t n = 0; n < shapes.node_count(m_[m_.operands(i)[1]].shape); ++n) f(1u, n, n);
        return;
      case Opcode::collective_permute_start:
        if (i.operands.count != 4 || !shapes.is_tuple(i.shape) || shapes.children_of(i.shape).size() < 2) return;
        for (std::uint32_t n = 0; n < shapes.node_count(m_[m_.operands(i)[1]].shape); ++n) f(1u, n, shapes.child_node(i.shape, 1) + n);
        return;
      case Opcode::fusion:
        for (std::uint32_t n = 0, count = shapes.node_count(i.shape); n < count; ++n)
          if (!shapes.is_tuple(shapes.node(i.shape, n)))
            if (const Place p = updated_parameter(i, n, 0); p.instruction != no_id<InstructionId>) f(m_[p.instruction].number, p.node, n);
        return;
      default: return;
    }
  }

  /// Tells whether `may_overwrite` can be true for an opcode at all.
  [[nodiscard]] static constexpr bool overwrites(Opcode opcode) noexcept {
    return is_elementwise(opcode) || opcode == Opcode::fusion || opcode == Opcode::sort || opcode == Opcode::scatter || opcode == Opcode::map ||
           opcode == Opcode::dynamic_update_slice || opcode == Opcode::set_dimension_size || opcode == Opcode::triangular_solve;
  }
  /// Tells whether the result of `id` at `output_node` may be written over the top-level array of `operand`.
  constexpr bool may_overwrite(InstructionId id, std::uint32_t operand, std::uint32_t output_node) {
    const Instruction& i = m_[id];
    const std::span<const InstructionId> ops = m_.operands(i);
    const ShapeTable& shapes = m_.shapes;
    if (i.opcode == Opcode::copy || m_[ops[operand]].opcode == Opcode::constant) return false;
    if (i.opcode == Opcode::fusion ? !same_bytes(m_[ops[operand]].shape, shapes.node(i.shape, output_node))
                                   : !same_footprint(m_[ops[operand]].shape, shapes.node(i.shape, output_node)))
      return false;
    const auto once = [&] {
      std::uint32_t count = 0;
      for (const InstructionId o : ops) count += o == ops[operand] ? 1u : 0u;
      return count == 1;
    };
    switch (i.opcode) {
      case Opcode::fusion: {
        if (i.called.count != 1) return false;
        const std::span<const InstructionId> parameters = m_.parameters_of(m_.called(i)[0]);
        if (operand >= parameters.size()) return false;
        if (i.fusion_kind == FusionKind::loop || i.fusion_kind == FusionKind::input) return only_elementwise(parameters[operand], 0);
        return i.fusion_kind == FusionKind::output && same_footprint(m_[ops[operand]].shape, shapes.node(i.shape, output_node)) &&
               adds_to_product(i, parameters[operand]);
      }
      case Opcode::dynamic_update_slice: case Opcode::scatter: case Opcode::set_dimension_size: return operand == 0 && once();
      case Opcode::triangular_solve: return operand == 1 && once();
      case Opcode::sort:
        return once() && (shapes.is_tuple(i.shape) ? operand < shapes.children_of(i.shape).size() && output_node == shapes.child_node(i.shape, operand)
                                                   : operand == 0);
      case Opcode::map: return output_node == 0;
      default: return is_elementwise(i.opcode);
    }
  }

  /// Tells whether two arrays place the same number of equally wide elements the same way.
  [[nodiscard]] constexpr bool same_footprint(ShapeId a, ShapeId b) const noexcept {
    if (a == b) return true;
    const ShapeTable& t = m_.shapes;
    if (!is_array(t[a].type) || !is_array(t[b].type) || bit_width(t[a].type) != bit_width(t[b].type)) return false;
    const Layout* const x = t.layout(a);
    const Layout* const y = t.layout(b);
    const auto run = [&](IndexRange r) { return std::span<const std::int64_t>(t.numbers.data() + r.begin, r.count); };
    if (!std::ranges::equal(t.dimensions(a), t.dimensions(b)) || (x == nullptr) != (y == nullptr)) return false;
    return x == nullptr || (std::ranges::equal(run(x->minor_to_major), run(y->minor_to_major)) && std::ranges::equal(run(x->tiles), run(y->tiles)) &&
                            x->element_bits == y->element_bits && x->space == y->space);
  }

 private:
  struct Place {
    InstructionId instruction = no_id<InstructionId>;
    std::uint32_t node = 0;
  };
  static constexpr int max_nesting = 16;  // of fusions in fusions

  const Module& m_;
  std::vector<std::uint32_t> uses_begin_;
  std::vector<Use> uses_;
  std::vector<signed char> elementwise_;  // by fused instruction: 0 unknown, 1 only elementwise uses, -1 not

  static constexpr bool mentions_nvshmem(std::string_view text) noexcept {
    constexpr std::string_view word = "nvshmem";
    for (std::size_t at = 0; at + word.size() <= text.size(); ++at) {
      std::size_t k = 0;
      while (k < word.size() && (text[at + k] | 0x20) == word[k]) ++k;
      if (k == word.size()) return true;
    }
    return false;
  }

  /// Follows a result back through tuples, elements and bitcasts to where its bytes are made.
  constexpr Place source_of(Place p) const noexcept {
    for (;;) {
      const Instruction& i = m_[p.instruction];
      const ShapeTable& shapes = m_.shapes;
      const std::span<const InstructionId> ops = m_.operands(i);
      if (i.opcode == Opcode::tuple && p.node != 0) {
        std::uint32_t k = 0;
        while (k + 1 < ops.size() && shapes.child_node(i.shape, k + 1) <= p.node) ++k;
        p = {ops[k], p.node - shapes.child_node(i.shape, k)};
      } else if (i.opcode == Opcode::get_tuple_element) {
        p = {ops[0], p.node + shapes.child_node(m_[ops[0]].shape, i.number)};
      } else if (i.opcode == Opcode::bitcast && p.node == 0) {
        p.instruction = ops[0];
      } else {
        return p;
      }
    }
  }

  /// The fused parameter that a fusion's output updates in place, if there is one and nothing reads it otherwise.
  constexpr Place updated_parameter(const Instruction& fusion, std::uint32_t output_node, int nesting) const {
    if (fusion.called.count != 1 || nesting > max_nesting) return {};
    const Place update = source_of({m_[m_.called(fusion)[0]].root, output_node});
    const Instruction& i = m_[update.instruction];
    const std::span<const InstructionId> ops = m_.operands(i);
    Place base;
    if (i.opcode == Opcode::fusion) {
      const Place inner = updated_parameter(i, update.node, nesting + 1);
      if (inner.instruction != no_id<InstructionId>) base = source_of({ops[m_[inner.instruction].number], inner.node});
    } else if (i.opcode == Opcode::dynamic_update_slice || i.opcode == Opcode::set_dimension_size) {
      base = source_of({ops[0], 0});
    } else if (i.opcode == Opcode::scatter) {
      std::uint32_t k = 0;
      if (m_.shapes.is_tuple(i.shape))
        while (k + 1 < (ops.size() - 1) / 2 && m_.shapes.child_node(i.shape, k + 1) <= update.node) ++k;
      base = source_of({ops[k], 0});
    }
    if (base.instruction == no_id<InstructionId> || m_[base.instruction].opcode != Opcode::parameter) return {};
    return reads_only_what_it_writes(base.instruction, update.instruction, 0) ? base : Place{};
  }

  /// Tells whether every use of `value` is the update itself or a read of just the slice that it overwrites.
  constexpr bool reads_only_what_it_writes(InstructionId value, InstructionId update, int depth) const {
    if (depth > 64) return false;
    for (const Use& u : uses(value)) {
      const Instruction& user = m_[u.user];
      if (u.user == update && u.operand == 0) continue;
      if (u.user == update && m_[update].opcode == Opcode::fusion) continue;  // judged inside
      if (user.opcode == Opcode::bitcast || user.opcode == Opcode::get_tuple_element || user.opcode == Opcode::tuple) {
        if (m_[user.computation].root == u.user) return false;  // returned unchanged as well
        if (!reads_only_what_it_writes(u.user, update, depth + 1)) return false;
        continue;
      }
      if (!reads_same_slice(user, m_[update])) return false;
    }
    return true;
  }
  constexpr bool reads_same_slice(const Instruction& read, const Instruction& update) const {
    if (read.opcode != Opcode::dynamic_slice || update.opcode != Opcode::dynamic_update_slice) return false;
    const std::span<const InstructionId> r = m_.operands(read);
    const std::span<const InstructionId> w = m_.operands(update);
    if (r.size() + 1 != w.size()) return false;
    for (std::size_t k = 1; k < r.size(); ++k)
      if (!same_index(r[k], w[k + 1])) return false;
    return std::ranges::equal(m_.shapes.dimensions(read.shape), m_.shapes.dimensions(m_[w[1]].shape));
  }
  constexpr bool same_index(InstructionId a, InstructionId b) const {
    if (a == b) return true;
    const Instruction& x = m_[a];
    const Instruction& y = m_[b];
    return x.opcode == Opcode::constant && y.opcode == Opcode::constant && m_.attribute(x, "") == m_.attribute(y, "");
  }

  /// Tells whether two arrays have equally many, equally wide elements.
  constexpr bool same_bytes(ShapeId a, ShapeId b) const noexcept {
    const ShapeTable& t = m_.shapes;
    return is_array(t[a].type) && bit_width(t[a].type) == bit_width(t[b].type) && t.byte_size(a) == t.byte_size(b) && t.space(a) == t.space(b);
  }

  /// Tells whether everything that a fused value flows into computes each element from the same place of it:
  /// no step on the way moves an element to another byte.
  constexpr bool only_elementwise(InstructionId value, int depth) {
    signed char& known = elementwise_[index_of(value)];
    if (known != 0) return known > 0;
    if (depth > 256) return false;
    bool yes = true;
    for (const Use& u : uses(value)) {
      const Instruction& user = m_[u.user];
      if (user.opcode == Opcode::tuple) continue;
      const bool same = user.opcode == Opcode::bitcast ? same_bytes(m_[value].shape, user.shape)
                                                       : (is_elementwise(user.opcode) || user.opcode == Opcode::map ||
                                                          (user.opcode == Opcode::dynamic_update_slice && u.operand == 0)) &&
                                                             same_place(value, user);
      if (yes = same && only_elementwise(u.user, depth + 1); !yes) break;
    }
    elementwise_[index_of(value)] = yes ? 1 : -1;
    return yes;
  }
  constexpr bool same_place(InstructionId value, const Instruction& user) const noexcept {
    const ShapeTable& t = m_.shapes;
    const ShapeId a = m_[value].shape;
    const Layout* const x = t.layout(a);
    const Layout* const y = t.layout(user.shape);
    const auto run = [&](IndexRange r) { return std::span<const std::int64_t>(t.numbers.data() + r.begin, r.count); };
    return std::ranges::equal(t.dimensions(a), t.dimensions(user.shape)) &&
           (x == nullptr || y == nullptr || std::ranges::equal(run(x->minor_to_major), run(y->minor_to_major)));
  }

  /// An output fusion `dot + p`, where p is read nowhere else.
  constexpr bool adds_to_product(const Instruction& fusion, InstructionId parameter) const {
    const Instruction& root = m_[m_[m_.called(fusion)[0]].root];
    if (root.opcode != Opcode::add || uses(parameter).size() != 1 || uses(parameter)[0].user != m_[m_.called(fusion)[0]].root) return false;
    const Instruction& other = m_[m_.operands(root)[1 - uses(parameter)[0].operand]];
    return other.opcode == Opcode::dot || other.opcode == Opcode::convolution;
  }
};

}  // namespace holdfast
