// SPDX-License-Identifier: Apache-2.0
// Schedules graphs that an engine has, without any HLO: one written by hand at compile time, one
// translated from tensors as ggml keeps them (an operation, up to two sources, a view or in-place
// flag).
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "holdfast/graph/graph_builder.hpp"
#include "holdfast/plan/schedule_best.hpp"
#include "holdfast/plan/schedule_search.hpp"

using namespace holdfast;

// Two branches of which the second should go first: its large part is gone before the first one's
// result is needed.
constexpr Graph by_hand() {
  GraphBuilder b;
  const NodeId x = b.add_argument(1 << 20, "x");
  const NodeId small = b.add({x}, 64 << 10, "small");
  const NodeId large = b.add({x}, 1 << 20, "large");
  b.back().transient = 256 << 10;  // workspace
  const NodeId reduced = b.add({large}, 4 << 10, "reduced");
  const NodeId y = b.add({small, reduced}, 64 << 10, "y");
  b.may_reuse(y, small);
  b.keep(y);
  return *b.finish();
}
static_assert(ScheduleSearch<>{}(by_hand())->peak == (1 << 20) + (256 << 10));

/// A tensor in the manner of ggml.
struct Tensor {
  enum Kind { leaf, op, view, in_place } kind;
  Bytes size;
  int sources[2];  // -1: none
};

Result<Graph> translate(const std::vector<Tensor>& tensors) {
  GraphBuilder b;
  for (const Tensor& t : tensors) {
    std::vector<NodeId> sources;
    for (const int s : t.sources)
      if (s >= 0) sources.push_back(NodeId{static_cast<std::uint32_t>(s)});
    if (t.kind == Tensor::leaf)
      b.add_argument(t.size);
    else if (t.kind == Tensor::view)
      b.add_view(sources[0]);
    else if (t.kind == Tensor::in_place)
      b.add_in_place({sources[0], sources.back()});
    else
      b.add(sources, t.size);
  }
  b.keep(NodeId{static_cast<std::uint32_t>(tensors.size() - 1)});
  return b.finish();
}

int main() {
  // Attention: three projections of one input, scores scaled and normalised in place, a view of the
  // values.
  constexpr Bytes kib = 1024;
  const std::vector<Tensor> attention = {
      {Tensor::leaf, 512 * kib, {-1, -1}}, {Tensor::leaf, 256 * kib, {-1, -1}},  // weights, input
      {Tensor::op, 256 * kib, {0, 1}},     {Tensor::op, 256 * kib, {0, 1}},      // q, k
      {Tensor::op, 256 * kib, {0, 1}},     {Tensor::view, 0, {4, -1}},           // v, transposed
      {Tensor::op, 1024 * kib, {2, 3}},    {Tensor::in_place, 0, {6, -1}},       // scores, scale
      {Tensor::in_place, 0, {7, -1}},      {Tensor::op, 256 * kib, {5, 8}},      // softmax, mix
  };
  const Result<Graph> graph = translate(attention);
  if (!graph.ok()) return EXIT_FAILURE;
  const Result<Schedule> classic = ScheduleBest{}(*graph), best = ScheduleSearch<>{}(*graph);
  if (!classic.ok() || !best.ok()) return EXIT_FAILURE;
  std::printf(
      "attention: as given %lld KiB, best %lld KiB, proven optimal: %s\n",
      static_cast<long long>(simulate(*graph, ScheduleAsGiven{}(*graph)->order)->peak / kib),
      static_cast<long long>(best->peak / kib), best->proven_optimal ? "yes" : "no");
  return best->peak == 1536 * kib && best->peak <= classic->peak && best->proven_optimal
             ? EXIT_SUCCESS
             : EXIT_FAILURE;
}
