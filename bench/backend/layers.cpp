// SPDX-License-Identifier: Apache-2.0
// What each layer adds to an allocation and its release: a stack beside its bare source. The source hands out one block, so that
// what is measured is the layer.
#include "holdfast/backend/stack.hpp"

#include <benchmark/benchmark.h>

#include <cstddef>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/backend/layer/aligned.hpp"
#include "holdfast/backend/layer/guarded.hpp"
#include "holdfast/backend/layer/limited.hpp"
#include "holdfast/backend/layer/locked.hpp"
#include "holdfast/backend/layer/observed.hpp"
#include "holdfast/backend/layer/retrying.hpp"

namespace {

using namespace holdfast;

alignas(4096) std::byte memory[8192];

struct OneBlock {
  static constexpr MemorySpace space = MemorySpace::host;
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment) noexcept { return Block{memory, size}; }
  void deallocate(Block block) noexcept { benchmark::DoNotOptimize(block.data); }
};

struct Count {
  long blocks = 0, bytes = 0;
  void on_allocate(Block b, Tag) noexcept { ++blocks, bytes += b.size; }
  void on_deallocate(Block b) noexcept { --blocks, bytes -= b.size; }
  void on_hold(HoldKind, int) noexcept {}
  void on_failure(const Error&) noexcept {}
};

template <class B>
void measure(benchmark::State& state, B backend) {
  const Bytes size = state.range(0);
  for (auto _ : state) {
    Block block = *backend.allocate(size, Alignment(64));
    benchmark::DoNotOptimize(block.data);
    backend.deallocate(block);
  }
}
template <class B, class... States>
void pair(benchmark::State& state, States&... states) {
  measure(state, make_stack<B>(OneBlock{}, states...));
}

void floor_pair(benchmark::State& state) { measure(state, OneBlock{}); }
BENCHMARK(floor_pair)->Name("floor/pair/one_block")->Arg(1024);

void no_layers(benchmark::State& state) {
  measure(state, Stack<OneBlock, Observed<NoObserver>, Locked<NoLock>>{});
}
BENCHMARK(no_layers)->Name("NoObserver+NoLock/pair/one_block")->Arg(1024);

void aligned(benchmark::State& state) { measure(state, Stack<OneBlock, Aligned<256>>{}); }
BENCHMARK(aligned)->Name("Aligned/pair/one_block")->Arg(1024);

void limited(benchmark::State& state) {
  static MemoryLimit limit(Bytes{1} << 30);
  pair<Stack<OneBlock, Limited>>(state, limit);
}
BENCHMARK(limited)->Name("Limited/pair/one_block")->Arg(1024);
BENCHMARK(limited)->Name("Limited/pair/one_block")->Arg(1024)->Threads(2)->UseRealTime();

void observed(benchmark::State& state) {
  static Count count;
  pair<Stack<OneBlock, Observed<Count>>>(state, count);
}
BENCHMARK(observed)->Name("Observed/pair/one_block")->Arg(1024);

void locked(benchmark::State& state) {
  static WordLock lock;
  pair<Stack<OneBlock, Locked<>>>(state, lock);
}
BENCHMARK(locked)->Name("Locked/pair/one_block")->Arg(1024);

void retrying(benchmark::State& state) {
  static WaitForMemory<> wait;
  pair<Stack<OneBlock, Retrying<WaitForMemory<>>>>(state, wait);
}
BENCHMARK(retrying)->Name("Retrying/pair/one_block")->Arg(1024);

void floor_system(benchmark::State& state) { measure(state, SystemMemory{}); }
BENCHMARK(floor_system)->Name("floor/pair/system")->Arg(64)->Arg(65536);

void guarded(benchmark::State& state) {
  static Guard<SystemMemory> guard;
  measure(state, make_stack<Stack<SystemMemory, Guarded<>>>(SystemMemory{}, guard));
}
BENCHMARK(guarded)->Name("Guarded/pair/system")->Arg(64)->Arg(65536);

}  // namespace
