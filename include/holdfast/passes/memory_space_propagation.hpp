// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "holdfast/concepts/sink.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/graph/graph_pass.hpp"
#include "holdfast/graph/make_shape.hpp"
#include "holdfast/graph/module.hpp"
#include "holdfast/passes/detail/fused_values.hpp"

namespace holdfast {

namespace detail {

/// Says inside fusions where their operands and results live.
template <sink S>
class PlacementSpreader {
 public:
  constexpr PlacementSpreader(Module& module, S& diagnostics)
      : m_(module), diagnostics_(diagnostics) {}

  constexpr Error build() {
    if (!values_.build(m_)) return make_error(Errc::over_budget, "too many tuple elements");
    const std::size_t count = values_.positions();
    from_.assign(count, no_id<ShapeId>);
    by_update_.assign(count, 0);
    visited_.assign(count * 2, 0);
    effort_ = 1'000'000 + 64 * (static_cast<std::uint64_t>(count) + values_.link_count());
    return {};
  }
  /// Takes the placements of a fusion's operands and result into it.
  constexpr Error enter(const Instruction& fusion) {
    const ComputationId inside = m_.called(fusion)[0];
    for (std::size_t k = 0; k < fusion.operands.count; ++k)
      if (Error e = spread(m_.parameters_of(inside)[k], m_.operands(fusion)[k]); !e.ok()) return e;
    const InstructionId root = m_[inside].root;
    for (std::uint32_t n = 0, count = m_.shapes.node_count(fusion.shape); n < count; ++n)
      if (Error e = push(root, n, m_.shapes.node(fusion.shape, n)); !e.ok()) return e;
    return check(fusion);
  }
  /// Spreads what a fused computation says of its own parameters and result.
  constexpr Error settle(ComputationId inside) {
    for (const InstructionId p : m_.parameters_of(inside))
      if (Error e = spread(p, p); !e.ok()) return e;
    return spread(m_[inside].root, m_[inside].root);
  }
  /// Gives the new layouts to the module: true when there are any.
  constexpr Result<bool> finish() {
    struct Change {
      InstructionId id;
      ShapeId shape;
    };
    std::vector<Change> changes;
    for (const InstructionId id : values_.inside()) {
      const ShapeId old = m_[id].shape;
      bool differs = false;
      for (std::uint32_t n = 0, count = m_.shapes.node_count(old); n < count && !differs; ++n)
        differs = placed_anew(id, n);
      if (!differs) continue;
      const Result<ShapeId> shape =
          map_leaves(m_.shapes, old, [&](std::uint32_t n, ShapeId leaf) -> Result<ShapeId> {
            if (!placed_anew(id, n)) return leaf;
            return with_placement(m_.shapes, leaf,
                                  placement_of(m_.shapes, from_[values_.value(id, n)]));
          });
      if (!shape.ok()) return shape.error();
      changes.push_back({id, *shape});
    }
    for (const Change& c : changes) m_[c.id].shape = c.shape;
    return !changes.empty();
  }

 private:
  struct Visit {
    std::uint32_t value;
    bool update;
  };

  constexpr bool same(ShapeId a, ShapeId b) const noexcept {
    return a == b ||
           same_placement(m_.shapes, placement_of(m_.shapes, a), placement_of(m_.shapes, b));
  }
  /// What a position will be: an array that is placed as it.
  constexpr ShapeId now(InstructionId i, std::uint32_t node) noexcept {
    const ShapeId own = m_.shapes.node(m_[i].shape, node);
    if (!values_.has(i)) return own;
    const ShapeId from = from_[values_.value(i, node)];
    return from != no_id<ShapeId> ? from : own;
  }
  constexpr bool placed_anew(InstructionId i, std::uint32_t node) noexcept {
    const ShapeId own = m_.shapes.node(m_[i].shape, node);
    return is_array(m_.shapes[own].type) && !same(now(i, node), own);
  }
  constexpr Error spread(InstructionId to, InstructionId source) {
    for (std::uint32_t n = 0, count = m_.shapes.node_count(m_[source].shape); n < count; ++n)
      if (Error e = push(to, n, now(source, n)); !e.ok()) return e;
    return {};
  }
  constexpr Error push(InstructionId to, std::uint32_t node, ShapeId source) {
    if (!is_array(m_.shapes[source].type)) return {};
    // What went before with the same placement need not be visited again.
    if (round_ == 0 || !same(source, last_)) ++round_;
    last_ = source;
    stack_.push_back({values_.value(to, node), false});
    while (!stack_.empty()) {
      const Visit at = stack_.back();
      stack_.pop_back();
      std::uint32_t& visited = visited_[at.value * 2 + (at.update ? 1 : 0)];
      if (visited == round_) continue;
      visited = round_;
      from_[at.value] = source;
      by_update_[at.value] = at.update || visited_[at.value * 2 + 1] == round_;
      const auto links = values_.links(at.value);
      if (effort_ < links.size() + 1)
        return make_error(Errc::over_budget, "placements of fusions change too often");
      effort_ -= links.size() + 1;
      for (const FusedValues::Link& l : links) stack_.push_back({l.to, at.update || l.update});
    }
    return {};
  }

  /// Where inside and outside disagree, two results wanted one value in different places.
  constexpr Error check(const Instruction& fusion) {
    const ComputationId inside = m_.called(fusion)[0];
    for (std::size_t k = 0; k < fusion.operands.count; ++k) {
      const InstructionId o = m_.operands(fusion)[k];
      const InstructionId p = m_.parameters_of(inside)[k];
      for (std::uint32_t n = 0, count = m_.shapes.node_count(m_[o].shape); n < count; ++n) {
        if (!differ(p, n, now(o, n))) continue;
        report(fusion, m_[o].name, now(o, n), m_[p].name, now(p, n));
        if (by_update_[values_.value(p, n)] != 0)
          return make_error_at(
              Errc::invalid_argument,
              "an update inside this fusion has its base in another memory space than its result",
              fusion.where);
      }
    }
    const InstructionId root = m_[inside].root;
    for (std::uint32_t n = 0, count = m_.shapes.node_count(fusion.shape); n < count; ++n)
      if (const ShapeId leaf = m_.shapes.node(fusion.shape, n); differ(root, n, leaf))
        report(fusion, fusion.name, leaf, m_[root].name, now(root, n));
    return {};
  }
  constexpr bool differ(InstructionId i, std::uint32_t node, ShapeId outside) noexcept {
    return is_array(m_.shapes[outside].type) && !same(now(i, node), outside);
  }
  constexpr void report(const Instruction& fusion, std::string_view outside, ShapeId wanted,
                        std::string_view inside, ShapeId found) {
    const auto put = [&](std::string_view text) { static_cast<void>(diagnostics_.write(text)); };
    const auto space = [&](ShapeId s) {
      static_cast<void>(write_number(diagnostics_, static_cast<std::int64_t>(m_.shapes.space(s))));
    };
    put("fusion "), put(fusion.name), put(": "), put(outside), put(" is in memory space ");
    space(wanted), put(", "), put(inside), put(" inside in "), space(found), put("\n");
  }

  Module& m_;
  S& diagnostics_;
  FusedValues values_;
  std::vector<ShapeId> from_;            // by value: the array whose placement it takes
  std::vector<std::uint8_t> by_update_;  // by value: it took it as the base of an update
  std::vector<std::uint32_t> visited_;   // by value and way: the round
  std::vector<Visit> stack_;
  std::uint32_t round_ = 0;
  ShapeId last_ = no_id<ShapeId>;  // what was pushed before
  std::uint64_t effort_ = 0;
};

}  // namespace detail

/// Copies memory space and split config of fusions' operands and results into the fused
/// computations, down to nested fusions and to the bases of in-place updates.
///
/// The outermost fusion says where values live and never changes. Where two results want one value
/// in different places the last one wins, and `diagnostics` says so; a base that would be elsewhere
/// than its update's result is an error. Threads: as its members. Source: XLA's
/// MemorySpacePropagation, passes.md 4.
template <sink S = NullSink>
struct MemorySpacePropagation {
  static constexpr std::string_view name = "memory-space-propagation";
  std::span<const std::string_view>
      threads{};    ///< execution threads that count, `main` too; empty: all
  S diagnostics{};  ///< conflicts, a line each

  /// Errors: invalid_argument (an update changes the space of its base), over_budget. Cost: linear,
  /// but where results of one fusion want the same values in different places.
  [[nodiscard]] constexpr Result<bool> run(Module& m) {
    if (std::none_of(m.computations.begin(), m.computations.end(),
                     [](const Computation& c) { return c.is_fusion; }))
      return false;
    detail::PlacementSpreader<S> spreader(m, diagnostics);
    if (Error e = spreader.build(); !e.ok()) return e;
    for (std::size_t c = 0; c < m.computations.size(); ++c) {
      if (m.computations[c].is_fusion || !counts(m.computations[c].thread)) continue;
      for (const InstructionId id : m.instructions_of(static_cast<ComputationId>(c)))
        if (m[id].opcode == Opcode::fusion)
          if (Error e = spreader.enter(m[id]); !e.ok()) return e;
    }
    return spreader.finish();
  }
  /// Does the same inside one fused computation, whose parameters and root say where values live.
  [[nodiscard]] constexpr Result<bool> run(Module& m, ComputationId fused) {
    detail::PlacementSpreader<S> spreader(m, diagnostics);
    if (Error e = spreader.build(); !e.ok()) return e;
    if (!m[fused].is_fusion)
      return make_error(Errc::invalid_argument, "the computation is not that of a fusion");
    if (Error e = spreader.settle(fused); !e.ok()) return e;
    return spreader.finish();
  }

 private:
  constexpr bool counts(std::string_view thread) const noexcept {
    const std::string_view named = thread.empty() ? "main" : thread;
    return threads.empty() || std::find(threads.begin(), threads.end(), named) != threads.end();
  }
};
static_assert(graph_pass<MemorySpacePropagation<>>);

}  // namespace holdfast
