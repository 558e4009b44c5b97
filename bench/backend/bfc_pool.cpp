// SPDX-License-Identifier: Apache-2.0
// What a block of a best-fit pool costs beside the C library's and the host pool's: a pair at once, and one of many live
// blocks replaced by another, which finds its place among thousands of holes.
#include "holdfast/backend/bfc_pool.hpp"

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "holdfast/backend/bfc/replay.hpp"
#include "holdfast/backend/bfc/stream_pool.hpp"
#include "holdfast/backend/host/host_pool.hpp"

namespace {

using namespace holdfast;

template <class Pool>
void pair(benchmark::State& state, Pool pool) {
  const Bytes size = state.range(0);
  const Block neighbour = *pool.allocate(size, Alignment(64));
  for (auto _ : state) {
    Block block = *pool.allocate(size, Alignment(64));
    benchmark::DoNotOptimize(block.data);
    pool.deallocate(block);
  }
  pool.deallocate(neighbour);
}

// Each step frees one of the live blocks and takes one of another size; sizes from 256 B to 256 KiB, evenly in their logarithm.
template <class Pool>
void replace(benchmark::State& state, Pool pool) {
  std::uint64_t seed = 1;
  const auto random = [&] { return seed = seed * 6364136223846793005u + 1442695040888963407u, seed >> 33; };
  const auto size = [&] { return static_cast<Bytes>(256 + (random() & 255)) << (random() % 10); };
  std::vector<Block> live(static_cast<std::size_t>(state.range(0)));
  for (Block& b : live) b = *pool.allocate(size(), Alignment(64));
  for (std::size_t i = 0; i < 20 * live.size(); ++i) {
    Block& b = live[random() % live.size()];
    pool.deallocate(b);
    b = *pool.allocate(size(), Alignment(64));
  }
  for (auto _ : state) {
    Block& b = live[random() % live.size()];
    pool.deallocate(b);
    b = *pool.allocate(size(), Alignment(64));
    benchmark::DoNotOptimize(b.data);
  }
  for (const Block& b : live) pool.deallocate(b);
}

template <class Fit, class Split = BfcSplit>
struct Arena {
  AddressSource::State addresses;
  BfcHeap<AddressSource, Fit, Split> heap = std::move(*BfcHeap<AddressSource, Fit, Split>::make(AddressSource(addresses)));
};

struct Malloc {
  static constexpr MemorySpace space = MemorySpace::host;
  Result<Block> allocate(Bytes size, Alignment) noexcept {
    return Block{static_cast<std::byte*>(std::malloc(static_cast<std::size_t>(size))), size};
  }
  void deallocate(Block block) noexcept { std::free(block.data); }
};

void pair_floor(benchmark::State& state) { pair(state, Malloc{}); }
void pair_host_pool(benchmark::State& state) {
  static HostHeap heap = std::move(*HostHeap::make());
  pair(state, heap.pool());
}
template <class Fit>
void pair_bfc(benchmark::State& state) {
  Arena<Fit> arena;
  pair(state, arena.heap.pool());
}
BENCHMARK(pair_floor)->Name("floor/malloc_pair")->ArgName("bytes")->Arg(256)->Arg(65536)->Arg(16 << 20);
BENCHMARK(pair_host_pool)->Name("HostPool/pair")->ArgName("bytes")->Arg(256)->Arg(65536)->Arg(16 << 20);
BENCHMARK(pair_bfc<BestFit>)->Name("BfcPool/pair/best_fit")->ArgName("bytes")->Arg(256)->Arg(65536)->Arg(16 << 20);
BENCHMARK(pair_bfc<TwoLevelFit>)->Name("BfcPool/pair/two_level")->ArgName("bytes")->Arg(256)->Arg(65536)->Arg(16 << 20);

// A pool in the order of streams whose events cost nothing and never pass by themselves: what the pool itself adds.
struct Tick {
  struct stream_type {
    int id = 0;
    friend bool operator==(const stream_type&, const stream_type&) noexcept = default;
  };
  static Error record(const stream_type&) noexcept { return {}; }
  static Error wait_on(const stream_type&) noexcept { return {}; }
  static inline bool all_over = false;
  static bool ready() noexcept { return all_over; }
  static Error wait() noexcept { return {}; }
};
template <StreamMarks Marks>
void stream_pair(benchmark::State& state) {
  Tick::all_over = false;
  AddressSource::State addresses;
  BfcStreamOptions options;
  options.marks = Marks;
  options.pool.limit = options.pool.region = 8 * state.range(0);
  const auto streams = static_cast<std::size_t>(state.range(1));
  auto heap = std::move(*BfcStreamHeap<AddressSource, Tick>::make(AddressSource(addresses), options));
  auto pool = heap.pool();
  const Tick::stream_type stream[2] = {{1}, {2}};
  const Block neighbour = *pool.allocate(stream[0], state.range(0), Alignment(64));
  std::size_t i = 0;
  for (auto _ : state) {
    const auto& s = stream[i++ % streams];
    Block block = *pool.allocate(s, state.range(0), Alignment(64));
    benchmark::DoNotOptimize(block.data);
    pool.deallocate(s, block);
  }
  pool.deallocate(stream[0], neighbour);
  Tick::all_over = true;  // the pool's end waits for it
}
BENCHMARK(stream_pair<StreamMarks::each_free>)->Name("BfcStreamPool/pair/each_free")->ArgNames({"bytes", "streams"})->Args({65536, 1})->Args({65536, 2});
BENCHMARK(stream_pair<StreamMarks::on_demand>)->Name("BfcStreamPool/pair/on_demand")->ArgNames({"bytes", "streams"})->Args({65536, 1})->Args({65536, 2});

void replace_floor(benchmark::State& state) { replace(state, Malloc{}); }
void replace_host_pool(benchmark::State& state) {
  HostHeap heap = std::move(*HostHeap::make());
  replace(state, heap.pool());
}
template <class Fit>
void replace_bfc(benchmark::State& state) {
  Arena<Fit, ExactSplit> arena;
  replace(state, arena.heap.pool());
}
BENCHMARK(replace_floor)->Name("floor/malloc_replace")->ArgName("live")->Arg(100)->Arg(10000);
BENCHMARK(replace_host_pool)->Name("HostPool/replace")->ArgName("live")->Arg(100)->Arg(10000);
BENCHMARK(replace_bfc<BestFit>)->Name("BfcPool/replace/best_fit")->ArgName("live")->Arg(100)->Arg(10000)->Arg(100000);
BENCHMARK(replace_bfc<TwoLevelFit>)->Name("BfcPool/replace/two_level")->ArgName("live")->Arg(100)->Arg(10000)->Arg(100000);

}  // namespace
