// SPDX-License-Identifier: Apache-2.0
// The graphs of passes.md 7.8 and of case 19, made by hand, and what tests ask of schedules.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/graph/graph_builder.hpp"
#include "holdfast/plan/memory_scheduler.hpp"

namespace holdfast::testing {

inline std::vector<NodeId> order(std::initializer_list<std::uint32_t> numbers) {
  std::vector<NodeId> out;
  for (const std::uint32_t n : numbers) out.push_back(NodeId{n});
  return out;
}

/// The names of an order, one space between them.
inline std::string names(const Graph& graph, const std::vector<NodeId>& order) {
  std::string out;
  for (const NodeId n : order) {
    if (!out.empty()) out += ' ';
    out += graph[n].name;
  }
  return out;
}

/// The peak as XLA counts it, arguments included.
inline Bytes total(const Graph& graph, const Schedule& schedule) {
  return schedule.peak + graph.held_bytes;
}

/// `u=abs(x) v=exp(x) s=add(u,v) t=negate(v) r=subtract(s,t)`, 256 bytes each; all may overwrite
/// what dies.
constexpr Graph t7_1() {
  GraphBuilder b;
  const NodeId x = b.add_argument(256, "x");
  const NodeId u = b.add({x}, 256, "u");
  const NodeId v = b.add({x}, 256, "v");
  const NodeId s = b.add({u, v}, 256, "s");
  b.may_reuse(s, u), b.may_reuse(s, v);
  const NodeId t = b.add({v}, 256, "t");
  b.may_reuse(t, v);
  const NodeId r = b.add({s, t}, 256, "r");
  b.may_reuse(r, s), b.may_reuse(r, t);
  b.keep(r);
  b.set_root(r);
  return *b.finish();
}

/// XLA's tuple positions count as reads: a value lives as long as it stands in a tuple.
constexpr Graph t7_2() {
  GraphBuilder b;
  const NodeId q = b.add_argument(4096, "q");
  const NodeId m0 = b.add({q}, 4096, "m0"), m1 = b.add({q}, 4096, "m1");
  const NodeId tp = b.node(std::vector{m0, m1}, "tp");
  const ValueId table = b.define(16);
  const ValueId v0{1}, v1{2};
  b.read(v0), b.read(v1), b.forward(v0), b.forward(v1);
  const NodeId g0 = b.node({&tp, 1}, "g0");
  b.read(table), b.read(v0), b.forward(v0);
  const NodeId g1 = b.node({&tp, 1}, "g1");
  b.read(table), b.read(v1), b.forward(v1);
  const NodeId w = b.add({g0, g1}, 4096, "w");
  b.may_reuse(w, g0), b.may_reuse(w, g1);
  const NodeId y1 = b.add({w, g1}, 4096, "y1");
  b.may_reuse(y1, w), b.may_reuse(y1, g1);
  const NodeId y2 = b.add({w, w}, 4096, "y2");
  b.may_reuse(y2, w);
  const NodeId y3 = b.add({y2, y2}, 4096, "y3");
  b.may_reuse(y3, y2);
  const NodeId root = b.node(std::vector{y1, y2, y3}, "root");
  b.define(24);
  for (const NodeId y : {y1, y2, y3}) b.keep(y);
  for (const std::uint32_t v : {5u, 6u, 7u}) b.read(ValueId{v}), b.forward(ValueId{v});
  b.keep(root);
  b.set_root(root);
  return *b.finish();
}

/// One custom-call of a small graph: its name, its bytes, its operands; nothing is overwritten.
struct Call {
  std::string_view name;
  Bytes size = 0;
  std::vector<int> operands;  ///< 0 is the parameter, k the k-th call
};

constexpr Graph calls(const std::vector<Call>& list, Bytes parameter = 256) {
  GraphBuilder b;
  b.add_argument(parameter, "p");
  for (const Call& c : list) {
    std::vector<NodeId> operands;
    for (const int o : c.operands) operands.push_back(NodeId{static_cast<std::uint32_t>(o)});
    b.add(operands, c.size, c.name);
  }
  const NodeId root{static_cast<std::uint32_t>(list.size())};
  b.keep(root);
  b.set_root(root);
  return *b.finish();
}

constexpr Graph t7_3() {
  return calls(
      {{"a", 512, {0}}, {"b", 1536, {1}}, {"c", 1536, {2}}, {"d", 256, {1}}, {"z", 256, {3, 4}}});
}
constexpr Graph t7_4() {
  return calls({{"a", 1536, {0}}, {"b", 1536, {0, 1}}, {"c", 1024, {0}}, {"d", 1024, {3, 2}}});
}
constexpr Graph t7_5() {
  return calls(
      {{"a", 1024, {0}}, {"b", 512, {0}}, {"c", 256, {1}}, {"d", 1536, {2}}, {"z", 256, {3, 4}}});
}
constexpr Graph t7_6() {
  return calls(
      {{"a", 256, {0}}, {"b", 512, {0}}, {"c", 512, {0, 1}}, {"d", 256, {2}}, {"z", 256, {3, 4}}});
}

constexpr Graph ten_nodes() {
  return calls({{"v0", 3000, {0}},
                {"v1", 16000, {0}},
                {"v2", 8000, {1}},
                {"v3", 2000, {3}},
                {"v4", 16000, {4}},
                {"v5", 8000, {1, 2}},
                {"v6", 8000, {1}},
                {"v7", 2000, {3, 6}},
                {"v8", 3000, {1, 4}},
                {"v9", 1000, {5, 7, 8, 9}}},
               1);
}
constexpr Graph weight_gradients() {
  return calls({{"act0", 10000, {0}},
                {"act1", 10000, {1}},
                {"act2", 10000, {2}},
                {"act3", 10000, {3}},
                {"act4", 10000, {4}},
                {"dact4", 4000, {5}},
                {"dact3", 4000, {6}},
                {"dact2", 4000, {7}},
                {"dact1", 4000, {8}},
                {"dact0", 4000, {9}},
                {"gw0", 1000, {1, 10}},
                {"gw1", 1000, {2, 9}},
                {"gw2", 1000, {3, 8}},
                {"gw3", 1000, {4, 7}},
                {"gw4", 1000, {5, 6}},
                {"out", 1000, {11, 12, 13, 14, 15}}},
               1);
}
constexpr Graph concat_underflow() {
  GraphBuilder b;
  const NodeId p0 = b.add_argument(16384, "p0"), p1 = b.add_argument(4096, "p1"),
               p2 = b.add_argument(4096, "p2");
  const NodeId c = b.add({p1, p2}, 8192, "c");
  const NodeId t = b.add({p0}, 16384, "t");
  const NodeId s = b.add({t}, 1024, "s");
  const NodeId r = b.add({s, c}, 9216, "r");
  b.keep(r);
  b.set_root(r);
  return *b.finish();
}

}  // namespace holdfast::testing
