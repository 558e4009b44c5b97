// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"
#include "holdfast/core/units.hpp"
#include "holdfast/graph/graph.hpp"

namespace holdfast {

namespace detail {

/// Where the next run of a pool begins.
template <class T>
constexpr std::uint32_t pool_end(const std::vector<T>& pool) noexcept {
  return static_cast<std::uint32_t>(pool.size());
}

}  // namespace detail

/// Collects nodes, then makes the graph.
///
/// `add`, `add_argument`, `add_view` and `add_in_place` are what an engine needs: operands are
/// nodes added before. `node` followed by `define`, `read`, `forward` and `reuse` says everything,
/// and may name what comes later. A mistake is kept and returned by `finish`. Threads: one builder,
/// one thread.
class GraphBuilder {
 public:
  /// Lets `define` make a new buffer.
  static constexpr std::uint32_t own_buffer = 0xFFFFFFFFu;

  /// Adds a node that reads the results of its operands and defines one value.
  constexpr NodeId add(std::span<const NodeId> operands, Bytes size, std::string_view name = {}) {
    const NodeId n = node(operands, name);
    read_results(operands);
    define(size);
    return n;
  }
  constexpr NodeId add(std::initializer_list<NodeId> operands, Bytes size,
                       std::string_view name = {}) {
    return add(std::span(operands.begin(), operands.size()), size, name);
  }
  /// Adds something that exists before the graph runs and belongs to the caller.
  constexpr NodeId add_argument(Bytes size, std::string_view name = {}) {
    const NodeId n = node({}, name);
    graph_.nodes.back().source = true;
    define(size, Lifetime::held);
    return n;
  }
  /// Adds a node whose result is its operand's memory seen in another way.
  constexpr NodeId add_view(NodeId of, std::string_view name = {}) {
    const NodeId n = node({&of, 1}, name);
    if (index_of(of) >= index_of(n)) return fail("an operand is not a node added before"), n;
    graph_.each_result(of, [this](ValueId v) { forward(v); });
    return n;
  }
  /// Adds a node that writes its result over its first operand, after all other readers of that
  /// operand.
  constexpr NodeId add_in_place(std::initializer_list<NodeId> operands,
                                std::string_view name = {}) {
    const std::span<const NodeId> in(operands.begin(), operands.size());
    const NodeId n = node(in, name);
    read_results(in);
    const ValueId target = in.empty() ? no_id<ValueId> : result_of(in[0]);
    if (target == no_id<ValueId>)
      return fail("an operation in place has no operand with a value"), n;
    const Graph::Value old = graph_.values[index_of(target)];
    define(old.size, old.lifetime, old.buffer);
    return n;
  }
  /// Lets the result of a node overwrite an operand of the same size where the node is its last
  /// reader.
  constexpr void may_reuse(NodeId n, NodeId operand) {
    if (n != last() || !known(operand)) return fail("may_reuse is not about the node added last");
    if (const ValueId v = result_of(operand); v != no_id<ValueId>) reuse(v);
  }
  /// Keeps the results of a node to the end.
  constexpr void keep(NodeId n) {
    if (!known(n)) return fail("no such node");
    graph_.each_result(n, [this](ValueId v) {
      if (graph_.values[index_of(v)].lifetime == Lifetime::temporary)
        graph_.values[index_of(v)].lifetime = Lifetime::output;
    });
  }

  /// Adds a node without values or reads.
  constexpr NodeId node(std::span<const NodeId> operands, std::string_view name = {}) {
    Graph::Node n;
    n.name = name;
    n.operands = {detail::pool_end(graph_.node_ids), static_cast<std::uint32_t>(operands.size())};
    n.values.begin = detail::pool_end(graph_.values);
    n.reads.begin = detail::pool_end(reads_);
    n.forwards.begin = detail::pool_end(graph_.value_ids);
    graph_.node_ids.insert(graph_.node_ids.end(), operands.begin(), operands.end());
    graph_.nodes.push_back(n);
    return last();
  }
  /// Gives the node added last, to set its transient bytes, urgency and the like.
  [[nodiscard]] constexpr Graph::Node& back() noexcept { return graph_.nodes.back(); }
  /// Adds a result to the node added last.
  constexpr ValueId define(Bytes size, Lifetime lifetime = Lifetime::temporary,
                           std::uint32_t buffer = own_buffer) {
    if (buffer == own_buffer) buffer = make_buffer();
    Graph::Value v;
    v.size = size;
    v.lifetime = lifetime;
    v.buffer = buffer;
    v.definer = last();
    v.reuses.begin = detail::pool_end(reuses_);
    graph_.values.push_back(v);
    ++graph_.nodes.back().values.count;
    return static_cast<ValueId>(graph_.values.size() - 1);
  }
  /// Makes a buffer that several values may name.
  constexpr std::uint32_t make_buffer() {
    graph_.buffers.emplace_back();
    return static_cast<std::uint32_t>(graph_.buffers.size() - 1);
  }
  /// Lets the node added last read a value.
  constexpr void read(ValueId v) { reads_.push_back(v), ++graph_.nodes.back().reads.count; }
  /// Makes a value of another node a result of the node added last too; what reads that result
  /// reads the value.
  constexpr void forward(ValueId v) {
    graph_.value_ids.push_back(v), ++graph_.nodes.back().forwards.count;
  }
  /// Lets the value defined last overwrite a value that its node reads.
  constexpr void reuse(ValueId v) { reuses_.push_back(v), ++graph_.values.back().reuses.count; }
  /// Puts a node before another one.
  constexpr void control(NodeId before, NodeId after) { controls_.push_back({before, after}); }
  constexpr void set_root(NodeId n) noexcept { graph_.root = n; }

  /// Checks and links everything.
  ///
  /// Values of one buffer get an order, that of their definers: whoever reads one runs before the
  /// next is defined, where the graph allows it (`hazards` counts the rest). Errors:
  /// invalid_argument (an unknown id, a negative size, a cycle), over_budget (sizes add up to more
  /// than 2^62, more than 2^32 edges). Cost: O(V + E).
  constexpr Result<Graph> finish() {
    if (error_ == nullptr) check();
    if (error_ != nullptr) return make_error(Errc::invalid_argument, error_);
    if (std::max({graph_.node_ids.size(), reads_.size() + graph_.value_ids.size(),
                  controls_.size()}) > 0x3FFFFFFFu)
      return make_error(Errc::over_budget, "graph has too many edges");
    link_values();
    if (!measure())
      return make_error(Errc::over_budget, "sizes of a graph add up to more than 2^62 bytes");
    link_users();
    if (!order_buffers()) return make_error(Errc::invalid_argument, "graph has a cycle");
    return std::move(graph_);
  }

 private:
  struct Edge {
    NodeId before{}, after{};
  };

  Graph graph_;
  std::vector<ValueId> reads_;
  std::vector<ValueId> reuses_;
  std::vector<Edge> controls_;
  std::uint32_t controls_at_ = 0;
  const char* error_ = nullptr;

  constexpr void fail(const char* what) noexcept { error_ = error_ == nullptr ? what : error_; }
  [[nodiscard]] constexpr NodeId last() const noexcept {
    return static_cast<NodeId>(graph_.nodes.size() - 1);
  }
  [[nodiscard]] constexpr bool known(NodeId n) const noexcept {
    return index_of(n) < graph_.nodes.size();
  }
  [[nodiscard]] constexpr ValueId result_of(NodeId n) const {
    ValueId first = no_id<ValueId>;
    if (known(n))
      graph_.each_result(n, [&first](ValueId v) { first = first == no_id<ValueId> ? v : first; });
    return first;
  }
  constexpr void read_results(std::span<const NodeId> operands) {
    for (const NodeId o : operands) {
      if (index_of(o) >= index_of(last())) return fail("an operand is not a node added before");
      graph_.each_result(o, [this](ValueId v) { read(v); });
    }
  }

  constexpr void check() {
    const auto value = [this](ValueId v) { return index_of(v) < graph_.values.size(); };
    for (const NodeId o : graph_.node_ids)
      if (!known(o)) fail("an operand is no node of the graph");
    for (const Edge& e : controls_)
      if (!known(e.before) || !known(e.after)) fail("a control edge names no node of the graph");
    for (const auto* pool : {&reads_, &reuses_, &graph_.value_ids})
      if (!std::all_of(pool->begin(), pool->end(), value))
        fail("a node reads, forwards or reuses no value of the graph");
    for (const Graph::Value& v : graph_.values) {
      if (v.buffer >= graph_.buffers.size()) fail("a value has no buffer of the graph");
      if (v.size < 0) fail("a value has a negative size");
    }
    for (const Graph::Node& n : graph_.nodes)
      if (n.transient < 0) fail("a node has negative transient bytes");
    if (graph_.root != no_id<NodeId> && !known(graph_.root))
      fail("the root is no node of the graph");
  }

  // Moves `reads_` and `reuses_` into the pool of values, each value once a run, and makes the
  // readers.
  constexpr void link_values() {
    std::vector<std::uint32_t> seen(graph_.values.size(), 0);
    for (std::uint32_t at = 0; at < graph_.nodes.size(); ++at) {
      Graph::Node& n = graph_.nodes[at];
      const IndexRange given = n.reads;
      n.reads = {detail::pool_end(graph_.value_ids), 0};
      for (std::uint32_t i = given.begin; i < given.end(); ++i) {
        Graph::Value& v = graph_.values[index_of(reads_[i])];
        if (index_of(v.definer) == at || std::exchange(seen[index_of(reads_[i])], at + 1) == at + 1)
          continue;
        graph_.value_ids.push_back(reads_[i]);
        ++n.reads.count;
        ++v.readers.count;
      }
      for (std::uint32_t k = n.values.begin; k < n.values.end(); ++k) {
        const IndexRange wanted =
            std::exchange(graph_.values[k].reuses, {detail::pool_end(graph_.value_ids), 0});
        for (std::uint32_t i = wanted.begin; i < wanted.end(); ++i) {
          const std::uint32_t old = index_of(reuses_[i]);
          if (seen[old] != at + 1 || graph_.values[old].size != graph_.values[k].size) continue;
          graph_.value_ids.push_back(reuses_[i]);
          ++graph_.values[k].reuses.count;
        }
      }
    }
    std::uint32_t at = detail::pool_end(graph_.node_ids);
    for (Graph::Value& v : graph_.values)
      v.readers.begin = at, at += v.readers.count, v.readers.count = 0;
    graph_.node_ids.resize(at, NodeId{});
    for (std::uint32_t i = 0; i < graph_.nodes.size(); ++i)
      for (const ValueId id : graph_.reads(static_cast<NodeId>(i))) {
        Graph::Value& v = graph_.values[index_of(id)];
        graph_.node_ids[v.readers.begin + v.readers.count++] = static_cast<NodeId>(i);
      }
  }

  constexpr bool measure() {
    for (const Graph::Value& v : graph_.values) {
      Graph::Buffer& b = graph_.buffers[v.buffer];
      b.size = std::max(b.size, v.size);
      b.counted = b.counted && v.lifetime != Lifetime::held && v.lifetime != Lifetime::ignored;
      ++b.members;
    }
    std::vector<char> held(graph_.buffers.size(), 0);
    Bytes sum = 0;
    for (const Graph::Value& v : graph_.values) {
      const Graph::Buffer& b = graph_.buffers[v.buffer];
      if (!checked_add(sum, b.size, sum)) return false;
      if (v.lifetime != Lifetime::held || held[v.buffer] != 0) continue;
      held[v.buffer] = 1;
      graph_.held_bytes += b.size;
    }
    for (const Graph::Node& n : graph_.nodes)
      if (!checked_add(sum, n.transient, sum)) return false;
    return sum <= max_bytes / 2;
  }

  constexpr void link_users() {
    std::vector<std::uint32_t> newest(graph_.nodes.size(), 0);
    const auto each_edge = [&](auto f) {
      std::fill(newest.begin(), newest.end(), 0xFFFFFFFFu);
      for (std::uint32_t i = 0; i < graph_.nodes.size(); ++i)
        for (const NodeId o : graph_.operands(static_cast<NodeId>(i)))
          if (std::exchange(newest[index_of(o)], i) != i)
            f(graph_.nodes[index_of(o)].users, static_cast<NodeId>(i));
    };
    each_edge([](IndexRange& r, NodeId) { ++r.count; });
    std::uint32_t at = detail::pool_end(graph_.node_ids);
    for (Graph::Node& n : graph_.nodes) n.users.begin = at, at += std::exchange(n.users.count, 0u);
    graph_.node_ids.resize(at, NodeId{});
    each_edge([this](IndexRange& r, NodeId user) { graph_.node_ids[r.begin + r.count++] = user; });
    controls_at_ = at;
    link_controls();
  }

  constexpr void link_controls() {
    std::uint32_t at = controls_at_;
    for (Graph::Node& n : graph_.nodes) n.controls = n.followers = {};
    for (const Edge& e : controls_)
      ++graph_.nodes[index_of(e.before)].followers.count,
          ++graph_.nodes[index_of(e.after)].controls.count;
    for (Graph::Node& n : graph_.nodes) {
      n.controls.begin = at, at += std::exchange(n.controls.count, 0u);
      n.followers.begin = at, at += std::exchange(n.followers.count, 0u);
    }
    graph_.node_ids.resize(at, NodeId{});
    for (const Edge& e : controls_) {
      IndexRange& before = graph_.nodes[index_of(e.after)].controls;
      IndexRange& after = graph_.nodes[index_of(e.before)].followers;
      graph_.node_ids[before.begin + before.count++] = e.before;
      graph_.node_ids[after.begin + after.count++] = e.after;
    }
  }

  // The edges that keep a value of a shared buffer from being overwritten before it is read.
  [[nodiscard]] constexpr std::vector<Edge> wishes(
      const std::vector<std::uint32_t>& position) const {
    std::vector<std::uint32_t> shared;
    for (std::uint32_t v = 0; v < graph_.values.size(); ++v)
      if (graph_.buffers[graph_.values[v].buffer].members > 1) shared.push_back(v);
    const auto key = [&](std::uint32_t v) {
      const NodeId n = graph_.values[v].definer;
      return std::tuple(graph_.values[v].buffer, !graph_[n].source, position[index_of(n)]);
    };
    std::sort(shared.begin(), shared.end(),
              [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
    std::vector<Edge> out;
    for (std::size_t i = 1; i < shared.size(); ++i) {
      const Graph::Value& old = graph_.values[shared[i - 1]];
      const Graph::Value& young = graph_.values[shared[i]];
      if (old.buffer != young.buffer || old.definer == young.definer) continue;
      if (old.readers.empty()) out.push_back({old.definer, young.definer});
      for (const NodeId r : graph_.readers(static_cast<ValueId>(shared[i - 1])))
        if (r != young.definer) out.push_back({r, young.definer});
    }
    return out;
  }

  // Orders all nodes by their edges, and by wishes where these allow it; empty when there is a
  // cycle.
  [[nodiscard]] constexpr std::vector<std::uint32_t> positions(
      const std::vector<Edge>& wished) const {
    const std::size_t count = graph_.nodes.size();
    std::vector<std::uint32_t> pending = graph_.pending(), soft(count, 0),
                               position(count, 0xFFFFFFFFu), first(count + 1, 0);
    for (const Edge& e : wished) ++soft[index_of(e.after)], ++first[index_of(e.before) + 1];
    for (std::size_t i = 0; i < count; ++i) first[i + 1] += first[i];
    std::vector<std::uint32_t> after(wished.size(), 0), fill = first;
    for (const Edge& e : wished) after[fill[index_of(e.before)]++] = index_of(e.after);
    std::vector<std::uint32_t> queue, waiting;
    const auto offer = [&](std::uint32_t n) {
      if (pending[n] == 0 && position[n] == 0xFFFFFFFFu)
        (soft[n] == 0 ? queue : waiting).push_back(n);
    };
    for (std::uint32_t n = 0; n < count; ++n) offer(n);
    std::uint32_t next = 0;
    for (std::size_t q = 0, w = 0; q < queue.size() || w < waiting.size();) {
      const std::uint32_t n = q < queue.size() ? queue[q++] : waiting[w++];
      if (position[n] != 0xFFFFFFFFu) continue;
      position[n] = next++;
      for (const NodeId u : graph_.users(static_cast<NodeId>(n)))
        --pending[index_of(u)], offer(index_of(u));
      for (const NodeId f : graph_.followers(static_cast<NodeId>(n)))
        --pending[index_of(f)], offer(index_of(f));
      for (std::uint32_t i = first[n]; i < first[n + 1]; ++i) --soft[after[i]], offer(after[i]);
    }
    if (next != count) position.clear();
    return position;
  }

  constexpr bool order_buffers() {
    std::vector<std::uint32_t> position = positions({});
    if (position.size() != graph_.nodes.size()) return false;
    const bool given = in_given_order();
    if (given)
      for (std::uint32_t i = 0; i < position.size(); ++i) position[i] = i;
    std::vector<Edge> wished = wishes(position);
    if (wished.empty()) return true;
    position = positions(wished);
    for (const Edge& e : wished) {
      if (position[index_of(e.before)] < position[index_of(e.after)])
        controls_.push_back(e);
      else
        ++graph_.hazards;
    }
    link_controls();
    return true;
  }
  [[nodiscard]] constexpr bool in_given_order() const noexcept {
    for (std::uint32_t i = 0; i < graph_.nodes.size(); ++i)
      for (const NodeId u : graph_.users(static_cast<NodeId>(i)))
        if (index_of(u) <= i) return false;
    return std::all_of(controls_.begin(), controls_.end(),
                       [](const Edge& e) { return e.before < e.after; });
  }
};

}  // namespace holdfast
