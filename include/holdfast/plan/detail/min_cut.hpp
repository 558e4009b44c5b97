// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "holdfast/core/units.hpp"

namespace holdfast::detail {

/// A cut of least capacity between a source and a sink of a small network.
///
/// Node 0 is the source, node 1 the sink. Source: Dinic's algorithm. Threads: one object, one
/// thread.
class MinCut {
 public:
  /// More than any cut costs.
  static constexpr Bytes unlimited = max_bytes / 4;

  constexpr void reset() {
    first_.assign(2, none);
    arcs_.clear();
  }
  constexpr std::uint32_t add_node() {
    first_.push_back(none);
    return static_cast<std::uint32_t>(first_.size() - 1);
  }
  /// Costs `capacity` where `from` is on the source's side and `to` on the sink's.
  constexpr void add_arc(std::uint32_t from, std::uint32_t to, Bytes capacity) {
    arcs_.push_back({capacity, to, first_[from]});
    first_[from] = static_cast<std::uint32_t>(arcs_.size() - 1);
    arcs_.push_back({0, from, first_[to]});
    first_[to] = static_cast<std::uint32_t>(arcs_.size() - 1);
  }
  /// Finds the least cut; `work` grows by the arcs looked at.
  constexpr void solve(std::uint64_t& work) {
    while (layer(work)) push_all(work);
  }
  /// After `solve`: whether a node is on the source's side of the cut nearest to the source.
  [[nodiscard]] constexpr bool near_source(std::uint32_t node) const noexcept {
    return level_[node] != none;
  }
  /// After `solve`: marks the nodes on the sink's side of the cut nearest to the sink.
  [[nodiscard]] constexpr std::vector<char> near_sink() {
    std::vector<char> marked(first_.size(), 0);
    queue_.assign(1, 1);
    marked[1] = 1;
    for (std::size_t q = 0; q < queue_.size(); ++q)
      for (std::uint32_t a = first_[queue_[q]]; a != none; a = arcs_[a].next)
        if (const std::uint32_t from = arcs_[a].to;
            arcs_[a ^ 1u].capacity > 0 && marked[from] == 0) {
          marked[from] = 1;
          queue_.push_back(from);
        }
    return marked;
  }

 private:
  struct Arc {
    Bytes capacity = 0;  // left
    std::uint32_t to = 0;
    std::uint32_t next = 0;
  };
  static constexpr std::uint32_t none = 0xFFFFFFFFu;
  std::vector<Arc> arcs_;  // an arc and its reverse are neighbours
  std::vector<std::uint32_t> first_, level_, current_, queue_, path_;

  constexpr bool layer(std::uint64_t& work) {
    level_.assign(first_.size(), none);
    level_[0] = 0;
    queue_.assign(1, 0);
    for (std::size_t q = 0; q < queue_.size(); ++q)
      for (std::uint32_t a = first_[queue_[q]]; a != none; a = arcs_[a].next) {
        ++work;
        if (arcs_[a].capacity == 0 || level_[arcs_[a].to] != none) continue;
        level_[arcs_[a].to] = level_[queue_[q]] + 1;
        queue_.push_back(arcs_[a].to);
      }
    return level_[1] != none;
  }
  constexpr void push_all(std::uint64_t& work) {
    current_ = first_;
    path_.clear();
    for (std::uint32_t at = 0;;) {
      if (at == 1) {
        Bytes amount = unlimited;
        for (const std::uint32_t a : path_) amount = std::min(amount, arcs_[a].capacity);
        std::size_t keep = path_.size();
        for (std::size_t i = path_.size(); i-- > 0;) {
          arcs_[path_[i]].capacity -= amount;
          arcs_[path_[i] ^ 1u].capacity += amount;
          if (arcs_[path_[i]].capacity == 0) keep = i;
        }
        work += path_.size();
        at = arcs_[path_[keep] ^ 1u].to;
        path_.resize(keep, 0);
        continue;
      }
      std::uint32_t& a = current_[at];
      while (a != none && (arcs_[a].capacity == 0 || level_[arcs_[a].to] != level_[at] + 1))
        a = arcs_[a].next, ++work;
      if (a != none) {
        path_.push_back(a);
        at = arcs_[a].to;
      } else {
        if (path_.empty()) return;
        level_[at] = none;  // nothing more goes through here in this phase
        at = arcs_[path_.back() ^ 1u].to;
        path_.pop_back();
      }
    }
  }
};

}  // namespace holdfast::detail
