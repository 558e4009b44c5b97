// SPDX-License-Identifier: Apache-2.0
// What a simulated operation costs with and without a watch, beside the same work called directly.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "holdfast/backend/simulated/race_checked.hpp"

namespace {

using namespace holdfast;

constexpr Bytes size = 256;

void floor_call(benchmark::State& state) {
  std::vector<std::byte> x(size), y(size);
  for (auto _ : state) {
    std::memcpy(y.data(), x.data(), size);
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(floor_call)->Name("floor/copy_256_bytes");

// A kernel and its share of a wait, `streams` streams side by side, each after the event of the one before it.
template <class Watch>
void launch(benchmark::State& state) {
  BasicSimulatedMachine<Watch> machine;
  auto device = *machine.add_device(1 << 20);
  const auto count = static_cast<std::size_t>(state.range(0));
  std::vector<BasicSimulatedStream<Watch>> streams;
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < count; ++i) {
    streams.push_back(device.make_stream());
    blocks.push_back(*device.allocate(size, Alignment(64)));
  }
  std::int64_t operations = 0;
  BasicSimulatedEvent<Watch> last;
  for (auto _ : state) {
    for (std::size_t i = 0; i < count; ++i) {
      const Block from = blocks[i], to = blocks[(i + 1) % count];
      static_cast<void>(last.wait_on(streams[i]));
      last = *streams[i].launch("copy", {reads(from), writes(to)}, [from, to] { std::memmove(to.data, from.data, size); });
      operations += 2;
    }
    static_cast<void>(last.wait());
  }
  state.SetItemsProcessed(operations);
}
BENCHMARK(launch<NoWatch>)->Name("SimulatedStream/launch/no_watch")->ArgName("streams")->Arg(1)->Arg(8)->Arg(64);
BENCHMARK(launch<RaceDetector>)->Name("SimulatedStream/launch/race_detector")->ArgName("streams")->Arg(1)->Arg(8)->Arg(64);

// One access of a detector that already keeps `ranges` ranges.
void touch(benchmark::State& state) {
  RaceDetector detector;
  const ActorId actor = detector.add_actor("a", 1);
  std::vector<std::byte> memory(1 << 20);
  const auto ranges = static_cast<std::size_t>(state.range(0));
  const std::size_t stride = memory.size() / ranges;
  std::size_t at = 0;
  for (auto _ : state) {
    detector.begin(actor, "op");
    detector.touch(actor, writes({memory.data() + at * stride, static_cast<Bytes>(stride / 2)}));
    at = (at + 7) % ranges;
  }
}
BENCHMARK(touch)->Name("RaceDetector/touch")->ArgName("ranges")->Arg(1)->Arg(64)->Arg(4096);

}  // namespace
