// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "holdfast/core/types.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// How long the memory of a value is needed.
enum class Lifetime : std::uint8_t {
  temporary,  ///< from its definer to its last reader
  output,     ///< from its definer to the end
  held,     ///< before, during and after: arguments, state, outputs that have a place of their own
  ignored,  ///< never: constants
};

/// What a list scheduler does with a node that is ready, whatever its bytes.
enum class Urgency : std::uint8_t { late, normal, early, first };

/// One directed acyclic graph of work and the memory it needs: all that schedulers know of a
/// program.
///
/// Made by `GraphBuilder`. Nodes are numbered in insertion order, values in the order of their
/// definition. A node *reads* the values that must be alive while it runs. Values with one buffer
/// share their memory. Threads: plain data.
struct Graph {
  struct Node {
    IndexRange operands;   ///< as given, repeats included
    IndexRange users;      ///< distinct, ascending
    IndexRange controls;   ///< predecessors by order alone
    IndexRange followers;  ///< successors by order alone
    IndexRange values;     ///< what it defines: consecutive value numbers
    IndexRange reads;      ///< distinct values of other nodes
    IndexRange forwards;   ///< values of other nodes that are its result too (views, tuples)
    Bytes transient =
        0;            ///< needed beside reads and results while it runs: workspace, a callee's peak
    Bytes slack = 0;  ///< how much of `transient` another order of a callee might save
    std::string_view name;  ///< breaks ties; may be empty
    Urgency urgency = Urgency::normal;
    bool source = false;  ///< parameter or constant: no work
  };
  struct Value {
    Bytes size = 0;
    NodeId definer{};
    std::uint32_t buffer = 0;
    Lifetime lifetime = Lifetime::temporary;
    IndexRange readers;  ///< distinct nodes, ascending
    IndexRange reuses;   ///< values of its size that it may overwrite where its definer is their
                         ///< last reader
  };
  struct Buffer {
    Bytes size = 0;             ///< of its largest value
    std::uint32_t members = 0;  ///< values
    bool counted = true;        ///< no member is held or ignored
  };

  std::vector<Node> nodes;
  std::vector<Value> values;
  std::vector<Buffer> buffers;
  std::vector<NodeId> node_ids;    ///< the pool of runs of nodes
  std::vector<ValueId> value_ids;  ///< the pool of runs of values
  NodeId root = no_id<NodeId>;     ///< the node that gives the result, if one does
  Bytes held_bytes = 0;            ///< of held buffers: the same at every moment
  std::size_t hazards = 0;         ///< reads that no order can put before the value is overwritten

  [[nodiscard]] constexpr std::size_t size() const noexcept { return nodes.size(); }
  [[nodiscard]] constexpr const Node& operator[](NodeId n) const noexcept {
    return nodes[index_of(n)];
  }
  [[nodiscard]] constexpr const Value& operator[](ValueId v) const noexcept {
    return values[index_of(v)];
  }
  [[nodiscard]] constexpr std::span<const NodeId> operands(NodeId n) const noexcept {
    return run((*this)[n].operands);
  }
  [[nodiscard]] constexpr std::span<const NodeId> users(NodeId n) const noexcept {
    return run((*this)[n].users);
  }
  [[nodiscard]] constexpr std::span<const NodeId> controls(NodeId n) const noexcept {
    return run((*this)[n].controls);
  }
  [[nodiscard]] constexpr std::span<const NodeId> followers(NodeId n) const noexcept {
    return run((*this)[n].followers);
  }
  [[nodiscard]] constexpr std::span<const ValueId> reads(NodeId n) const noexcept {
    return list((*this)[n].reads);
  }
  [[nodiscard]] constexpr std::span<const ValueId> forwards(NodeId n) const noexcept {
    return list((*this)[n].forwards);
  }
  [[nodiscard]] constexpr std::span<const NodeId> readers(ValueId v) const noexcept {
    return run((*this)[v].readers);
  }
  [[nodiscard]] constexpr std::span<const ValueId> reuses(ValueId v) const noexcept {
    return list((*this)[v].reuses);
  }
  /// Calls `f` with each result of a node: what it defines, then what it forwards.
  template <class F>
  constexpr void each_result(NodeId n, F&& f) const {
    const Node& node = (*this)[n];
    for (std::uint32_t i = 0; i < node.values.count; ++i)
      f(static_cast<ValueId>(node.values.begin + i));
    for (std::uint32_t i = 0; i < node.forwards.count; ++i) f(value_ids[node.forwards.begin + i]);
  }
  /// Tells whether the bytes of a value come and go with the order.
  [[nodiscard]] constexpr bool counted(ValueId v) const noexcept {
    return buffers[(*this)[v].buffer].counted;
  }
  /// How many distinct nodes must run before a node, counting one that is operand and control
  /// twice.
  [[nodiscard]] constexpr std::vector<std::uint32_t> pending() const {
    std::vector<std::uint32_t> count(nodes.size(), 0);
    for (const Node& n : nodes) {
      for (const NodeId u : run(n.users)) ++count[index_of(u)];
      for (const NodeId f : run(n.followers)) ++count[index_of(f)];
    }
    return count;
  }

 private:
  [[nodiscard]] constexpr std::span<const NodeId> run(IndexRange r) const noexcept {
    return {node_ids.data() + r.begin, r.count};
  }
  [[nodiscard]] constexpr std::span<const ValueId> list(IndexRange r) const noexcept {
    return {value_ids.data() + r.begin, r.count};
  }
};

}  // namespace holdfast
