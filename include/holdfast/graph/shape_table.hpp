// graph: what a program is: shapes, modules, one DAG for schedulers, traversals, aliases.
// In the flow: hlo makes a Module; passes change it; plan reads it. Everything is plain data in pooled vectors.
// Names and texts are views into the source, which must outlive the module.
// Nothing here reads text or bytes, chooses an order or an offset.
// All of it works in a constant expression.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "holdfast/core/hash.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/shape.hpp"
#include "holdfast/core/types.hpp"

namespace holdfast {

/// How an array lies in memory. Its runs are in `ShapeTable::numbers`.
struct Layout {
  IndexRange minor_to_major;
  IndexRange tiles;   ///< each tile: its rank, then its dimensions; `unbounded_dimension` is `*`
  IndexRange splits;  ///< each split: dimension, number of cuts, the cuts
  MemorySpace space = MemorySpace::device;
  std::int64_t element_bits = 0;  ///< 0: natural
  std::int64_t tail_padding = 1;  ///< in elements
  std::int64_t prefix_bytes = 0;  ///< dynamic-shape metadata before the payload
  ElementType index_type = ElementType::invalid;
  ElementType pointer_type = ElementType::invalid;
  std::string_view levels = {};    ///< text inside `D(...)`
  std::string_view physical = {};  ///< text inside `P(...)`
};

/// One interned shape. Equal shapes, layouts included, have equal ids.
struct Shape {
  ElementType type = ElementType::invalid;
  bool has_layout = false;
  std::uint64_t dynamic = 0;     ///< bit i: dimension i is dynamic
  IndexRange dimensions;         ///< arrays: in `ShapeTable::numbers`
  IndexRange children;           ///< tuples and buffers: in `ShapeTable::children`
  IndexRange nodes;              ///< tuples: all subshapes in pre-order, itself first, in `ShapeTable::nodes`
  std::uint32_t layout = 0;      ///< in `ShapeTable::layouts` when `has_layout`
  Bytes array_bytes = 0;         ///< arrays: bytes without tiling; -1 when unbounded or too large
};

/// All shapes of a module, each once.
///
/// A shape is made by appending its runs to `numbers` or `children`, then `intern`, which takes the
/// appended tail back if the shape is known. Threads: as a vector. Cost: O(size) a shape.
struct ShapeTable {
  std::vector<Shape> shapes;
  std::vector<Layout> layouts;
  std::vector<std::int64_t> numbers;
  std::vector<ShapeId> children;
  std::vector<std::uint32_t> child_nodes;  ///< beside `children`: node number of the child within its parent
  std::vector<ShapeId> nodes;

  /// Dimensions that a shape may have.
  static constexpr std::uint32_t max_rank = 64;
  /// Entries that `nodes` may have, over all tuples.
  static constexpr std::size_t max_nodes = std::size_t{1} << 26;
  /// A lower limit on `nodes`, for a reader whose tables must stay in proportion to its input.
  std::size_t node_limit = max_nodes;

  [[nodiscard]] constexpr const Shape& operator[](ShapeId id) const noexcept { return shapes[index_of(id)]; }
  [[nodiscard]] constexpr bool is_tuple(ShapeId id) const noexcept { return (*this)[id].type == ElementType::tuple; }
  [[nodiscard]] constexpr std::span<const std::int64_t> dimensions(ShapeId id) const noexcept {
    const IndexRange r = (*this)[id].dimensions;
    return {numbers.data() + r.begin, r.count};
  }
  [[nodiscard]] constexpr std::span<const ShapeId> children_of(ShapeId id) const noexcept {
    const IndexRange r = (*this)[id].children;
    return {children.data() + r.begin, r.count};
  }
  [[nodiscard]] constexpr const Layout* layout(ShapeId id) const noexcept {
    const Shape& s = (*this)[id];
    return s.has_layout ? &layouts[s.layout] : nullptr;
  }
  /// The space of the layout; device when there is none.
  [[nodiscard]] constexpr MemorySpace space(ShapeId id) const noexcept {
    const Layout* l = layout(id);
    return l != nullptr ? l->space : MemorySpace::device;
  }

  /// How many shape indices a shape has: 1 for all but tuples, which count themselves and all below.
  [[nodiscard]] constexpr std::uint32_t node_count(ShapeId id) const noexcept {
    return is_tuple(id) ? (*this)[id].nodes.count : 1;
  }
  /// The subshape at a node number (pre-order position; 0 is the shape itself).
  [[nodiscard]] constexpr ShapeId node(ShapeId id, std::uint32_t number) const noexcept {
    return is_tuple(id) ? nodes[(*this)[id].nodes.begin + number] : id;
  }
  /// The node number of tuple element `k`.
  [[nodiscard]] constexpr std::uint32_t child_node(ShapeId tuple, std::uint32_t k) const noexcept {
    return child_nodes[(*this)[tuple].children.begin + k];
  }
  /// The node number of a shape index such as `{1,0}`; `node_count` when there is no such index.
  [[nodiscard]] constexpr std::uint32_t node_of_path(ShapeId id, std::span<const std::int64_t> path) const noexcept {
    std::uint32_t number = 0;
    ShapeId at = id;
    for (const std::int64_t k : path) {
      if (!is_tuple(at) || k < 0 || k >= static_cast<std::int64_t>(children_of(at).size())) return node_count(id);
      number += child_node(at, static_cast<std::uint32_t>(k));
      at = children_of(at)[static_cast<std::size_t>(k)];
    }
    return number;
  }
  /// Appends the shape index of a node number to `path`. Cost: O(depth log width).
  constexpr void path_of_node(ShapeId id, std::uint32_t number, std::vector<std::int64_t>& path) const {
    while (number != 0) {
      const IndexRange r = (*this)[id].children;
      const auto first = child_nodes.begin() + r.begin;
      const auto k = static_cast<std::uint32_t>(std::upper_bound(first, first + r.count, number) - first - 1);
      path.push_back(k);
      number -= child_nodes[r.begin + k];
      id = children[r.begin + k];
    }
  }

  /// The bytes of a value of this shape: arrays without tiling, a pointer table for tuples, a pointer for
  /// opaque, 0 for token. -1 when unbounded.
  ///
  /// Source: XLA ShapeUtil::ByteSizeOf.
  [[nodiscard]] constexpr Bytes byte_size(ShapeId id, Bytes pointer_size = 8) const noexcept {
    const Shape& s = (*this)[id];
    if (s.type == ElementType::tuple) return pointer_size * s.children.count;
    if (s.type == ElementType::opaque) return pointer_size;
    if (s.type == ElementType::token) return 0;
    if (s.type == ElementType::buffer) return byte_size(children_of(id)[0], pointer_size);
    return s.array_bytes;
  }

  /// Tells whether two shapes agree in everything but layouts and which dimensions are dynamic; their bounds count.
  ///
  /// Cost: O(size). Source: XLA ShapeUtil::Compatible.
  [[nodiscard]] constexpr bool compatible(ShapeId a, ShapeId b) const noexcept {
    if (a == b) return true;
    const std::uint32_t count = node_count(a);
    if (count != node_count(b)) return false;
    for (std::uint32_t i = 0; i < count; ++i)
      if (!same_but_layout(node(a, i), node(b, i))) return false;
    return true;
  }

  /// Interns a tuple of the children appended to `children` since `mark`.
  ///
  /// Errors: over_budget (more than `max_nodes` shape indices).
  constexpr Result<ShapeId> intern_tuple(std::uint32_t mark) {
    Shape s;
    s.type = ElementType::tuple;
    s.children = {mark, static_cast<std::uint32_t>(children.size()) - mark};
    return intern(s, 0);
  }

  /// Interns a shape whose runs were appended last; `numbers_mark` is where its numbers begin.
  ///
  /// A layout, if any, is given beside it. Errors: over_budget (rank, number of shape indices).
  constexpr Result<ShapeId> intern(Shape s, std::uint32_t numbers_mark, const Layout* layout = nullptr) {
    if (s.dimensions.count > max_rank) return make_error(Errc::over_budget, "shape has more than 64 dimensions");
    s.has_layout = layout != nullptr;
    const std::uint64_t hash = hash_of(s, layout);
    if (const ShapeId known = find(s, layout, hash); known != no_id<ShapeId>) {
      if (s.type == ElementType::tuple || s.type == ElementType::buffer) children.resize(s.children.begin, ShapeId{});
      else numbers.resize(numbers_mark, 0);
      return known;
    }
    if (s.type == ElementType::tuple) {
      std::size_t count = 1;
      for (std::uint32_t k = 0; k < s.children.count; ++k) count += node_count(children[s.children.begin + k]);
      if (nodes.size() + count > node_limit) return make_error(Errc::over_budget, "too many tuple elements in all shapes");
      const auto id = static_cast<ShapeId>(shapes.size());
      s.nodes = {static_cast<std::uint32_t>(nodes.size()), static_cast<std::uint32_t>(count)};
      nodes.push_back(id);
      child_nodes.resize(children.size(), 0);
      for (std::uint32_t k = 0; k < s.children.count; ++k) {
        const ShapeId child = children[s.children.begin + k];
        child_nodes[s.children.begin + k] = static_cast<std::uint32_t>(nodes.size()) - s.nodes.begin;
        for (std::uint32_t i = 0, n = node_count(child); i < n; ++i) nodes.push_back(node(child, i));
      }
    } else if (s.type == ElementType::buffer) {
      child_nodes.resize(children.size(), 0);
    } else if (is_array(s.type)) {
      s.array_bytes = bytes_of(s, layout != nullptr ? layout->element_bits : 0);
    }
    if (layout != nullptr) {
      s.layout = static_cast<std::uint32_t>(layouts.size());
      layouts.push_back(*layout);
    }
    shapes.push_back(s);
    hashes_.push_back(hash);
    insert(static_cast<std::uint32_t>(shapes.size() - 1));
    return static_cast<ShapeId>(shapes.size() - 1);
  }

 private:
  std::vector<std::uint64_t> hashes_;
  std::vector<std::uint32_t> buckets_;  // open addressing; 0: free, else shape + 1
  std::uint64_t seed_ = 0;

  constexpr Bytes bytes_of(const Shape& s, std::int64_t element_bits) const noexcept {
    std::int64_t count = 1;
    for (std::uint32_t i = 0; i < s.dimensions.count; ++i)
      if (numbers[s.dimensions.begin + i] == 0) return 0;
    for (std::uint32_t i = 0; i < s.dimensions.count; ++i)
      if (!checked_multiply(count, numbers[s.dimensions.begin + i], count)) return -1;
    Bytes out = -1;
    return elements_to_bytes(s.type, count, element_bits, out) ? out : -1;
  }
  constexpr bool same_but_layout(ShapeId a, ShapeId b) const noexcept {
    const Shape& x = (*this)[a];
    const Shape& y = (*this)[b];
    if (x.type != y.type || x.children.count != y.children.count) return false;
    if (x.type == ElementType::buffer) return same_but_layout(children_of(a)[0], children_of(b)[0]);
    return std::ranges::equal(dimensions(a), dimensions(b));
  }
  constexpr bool same_run(IndexRange a, IndexRange b) const noexcept {
    if (a.count != b.count) return false;
    for (std::uint32_t i = 0; i < a.count; ++i)
      if (numbers[a.begin + i] != numbers[b.begin + i]) return false;
    return true;
  }
  constexpr bool same(const Shape& a, const Layout* x, const Shape& b, const Layout* y) const noexcept {
    if (a.type != b.type || a.dynamic != b.dynamic || a.children.count != b.children.count) return false;
    for (std::uint32_t k = 0; k < a.children.count; ++k)
      if (children[a.children.begin + k] != children[b.children.begin + k]) return false;
    if (!same_run(a.dimensions, b.dimensions) || (x == nullptr) != (y == nullptr)) return false;
    return x == nullptr ||
           (same_run(x->minor_to_major, y->minor_to_major) && same_run(x->tiles, y->tiles) &&
            same_run(x->splits, y->splits) && x->space == y->space && x->element_bits == y->element_bits &&
            x->tail_padding == y->tail_padding && x->prefix_bytes == y->prefix_bytes &&
            x->index_type == y->index_type && x->pointer_type == y->pointer_type && x->levels == y->levels &&
            x->physical == y->physical);
  }
  constexpr std::uint64_t hash_of(const Shape& s, const Layout* l) const noexcept {
    std::uint64_t h = static_cast<std::uint64_t>(s.type) * 0x9E3779B97F4A7C15u + s.dynamic;
    const auto mix = [&h](std::uint64_t x) { h = mix_hash(h, x); };
    const auto run = [&](IndexRange r) {
      for (std::uint32_t i = 0; i < r.count; ++i) mix(static_cast<std::uint64_t>(numbers[r.begin + i]));
    };
    for (std::uint32_t k = 0; k < s.children.count; ++k) mix(index_of(children[s.children.begin + k]));
    run(s.dimensions);
    if (l == nullptr) return h;
    mix(static_cast<std::uint64_t>(l->space) + 1);
    run(l->minor_to_major), run(l->tiles), run(l->splits);
    mix(static_cast<std::uint64_t>(l->element_bits)), mix(static_cast<std::uint64_t>(l->tail_padding));
    mix(static_cast<std::uint64_t>(l->prefix_bytes)), mix(hash_text(l->levels)), mix(hash_text(l->physical));
    return h;
  }
  constexpr ShapeId find(const Shape& s, const Layout* l, std::uint64_t hash) const noexcept {
    if (buckets_.empty()) return no_id<ShapeId>;
    for (std::size_t at = bucket_of(hash); buckets_[at] != 0; at = (at + 1) & (buckets_.size() - 1)) {
      const std::uint32_t i = buckets_[at] - 1;
      if (hashes_[i] == hash && same(s, l, shapes[i], shapes[i].has_layout ? &layouts[shapes[i].layout] : nullptr))
        return static_cast<ShapeId>(i);
    }
    return no_id<ShapeId>;
  }
  constexpr void insert(std::uint32_t shape) {
    if (shapes.size() * 2 > buckets_.size()) return rebuild(std::max<std::size_t>(16, buckets_.size() * 2));
    if (put(shape) <= longest_probe || seed_ == most_seeds) return;
    ++seed_;  // hostile shapes crowd one place: another function spreads them
    rebuild(buckets_.size());
  }
  constexpr void rebuild(std::size_t size) {
    buckets_.assign(size, 0);
    for (std::uint32_t i = 0; i < shapes.size(); ++i) put(i);
  }
  constexpr std::size_t bucket_of(std::uint64_t hash) const noexcept { return mix_hash(hash, seed_) & (buckets_.size() - 1); }
  constexpr std::size_t put(std::uint32_t shape) noexcept {
    std::size_t at = bucket_of(hashes_[shape]), steps = 0;
    for (; buckets_[at] != 0; ++steps) at = (at + 1) & (buckets_.size() - 1);
    buckets_[at] = shape + 1;
    return steps;
  }

  static constexpr std::size_t longest_probe = 256;
  static constexpr std::uint64_t most_seeds = 16;
};

}  // namespace holdfast
