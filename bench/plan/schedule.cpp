// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "holdfast/graph/graph_builder.hpp"
#include "holdfast/plan/schedule_best.hpp"
#include "holdfast/plan/schedule_search.hpp"

namespace {

using namespace holdfast;

/// A training step: layers forward, then backward with a weight gradient each, all updates at the
/// end of the file.
Graph training(std::int64_t nodes) {
  GraphBuilder b;
  const NodeId x = b.add_argument(4096);
  std::vector<NodeId> activations{x}, weights, gradients;
  for (std::int64_t i = 0; i * 6 < nodes; ++i) {
    weights.push_back(b.add_argument(8192));
    const NodeId wide = b.add({activations.back(), weights.back()}, 16384);
    const NodeId next = b.add({wide}, 4096 + (i % 7) * 512);
    activations.push_back(next);
  }
  NodeId error = activations.back();
  for (std::size_t i = weights.size(); i-- > 0;) {
    gradients.push_back(b.add({activations[i], error}, 8192));
    error = b.add({error, weights[i], activations[i + 1]}, 4096);
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const NodeId update = b.add({weights[weights.size() - 1 - i], gradients[i]}, 8192);
    b.may_reuse(update, gradients[i]);
    if (i % 2 == 0) b.keep(update);
  }
  return *b.finish();
}
/// One node that all others read, and one that reads all others.
Graph fan(std::int64_t nodes) {
  GraphBuilder b;
  const NodeId x = b.add({}, 1 << 20);
  std::vector<NodeId> middle;
  for (std::int64_t i = 2; i < nodes; ++i) middle.push_back(b.add({x}, 64 * (i % 100)));
  b.add(middle, 64);
  return *b.finish();
}
/// A tuple of everything, taken apart again.
Graph tuple(std::int64_t nodes) {
  GraphBuilder b;
  const auto count = static_cast<std::uint32_t>(nodes / 3);
  std::vector<NodeId> parts;
  for (std::uint32_t i = 0; i < count; ++i) parts.push_back(b.add({}, 64));
  const NodeId all = b.node(parts);
  for (std::uint32_t i = 0; i < count; ++i) b.forward(ValueId{i});
  for (std::uint32_t i = 0; i < count; ++i) {
    const NodeId element = b.node({&all, 1});
    b.forward(ValueId{i});
    b.add({element}, 64);
  }
  return *b.finish();
}

template <Graph (*Make)(std::int64_t), auto Scheduler>
void schedule(benchmark::State& state) {
  const Graph graph = Make(state.range(0));
  Bytes peak = 0, bound = 0;
  for (auto _ : state) {
    const Result<Schedule> s = Scheduler(graph);
    peak = s->peak, bound = s->lower_bound;
  }
  state.counters["nodes"] = static_cast<double>(graph.size());
  state.counters["peak"] = static_cast<double>(peak);
  state.counters["lower_bound"] = static_cast<double>(bound);
}
template <Graph (*Make)(std::int64_t)>
void build(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Make(state.range(0)).size());
}

void sizes(benchmark::internal::Benchmark* b) {
  b->RangeMultiplier(10)->Range(1000, 1000000)->Unit(benchmark::kMillisecond);
}

BENCHMARK(build<training>)->Name("Graph/build/training")->Apply(sizes);
BENCHMARK(schedule<training, ScheduleList{}>)->Name("ScheduleList/schedule/training")->Apply(sizes);
BENCHMARK(schedule<training, ScheduleList{true}>)
    ->Name("ScheduleList/schedule/training/compat")
    ->Apply(sizes);
BENCHMARK(schedule<training, ScheduleDfs{}>)->Name("ScheduleDfs/schedule/training")->Apply(sizes);
BENCHMARK(schedule<training, SchedulePostOrder{}>)
    ->Name("SchedulePostOrder/schedule/training")
    ->Apply(sizes);
BENCHMARK(schedule<training, ScheduleBfs{}>)->Name("ScheduleBfs/schedule/training")->Apply(sizes);
BENCHMARK(schedule<training, ScheduleBest{}>)->Name("ScheduleBest/schedule/training")->Apply(sizes);
BENCHMARK(schedule<fan, ScheduleBest{}>)->Name("ScheduleBest/schedule/fan")->Apply(sizes);
BENCHMARK(schedule<tuple, ScheduleBest{}>)->Name("ScheduleBest/schedule/tuple")->Apply(sizes);
BENCHMARK(schedule<training, ScheduleSearch<>{2000}>)
    ->Name("ScheduleSearch/schedule/training/effort:2000")
    ->RangeMultiplier(10)
    ->Range(1000, 100000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
