// SPDX-License-Identifier: Apache-2.0
#include "holdfast/concepts/memory_backend.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "holdfast/backend/bfc/stream_pool.hpp"
#include "holdfast/backend/bfc_pool.hpp"
#include "holdfast/backend/host/host_pool.hpp"
#include "holdfast/backend/host/pinned_pool.hpp"
#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/backend/jit/jit_memory.hpp"
#include "holdfast/backend/jit/probe.hpp"
#include "holdfast/backend/layer/aligned.hpp"
#include "holdfast/backend/layer/deferred.hpp"
#include "holdfast/backend/layer/guarded.hpp"
#include "holdfast/backend/layer/limited.hpp"
#include "holdfast/backend/layer/locked.hpp"
#include "holdfast/backend/layer/observed.hpp"
#include "holdfast/backend/layer/retrying.hpp"
#include "holdfast/backend/simulated/race_checked.hpp"
#include "holdfast/backend/stack.hpp"
#include "holdfast/event/host_event.hpp"

// What every memory backend promises. A source with its own set-up specialises `Make`; a new backend adds itself to the list.
#ifndef MEMORY_BACKENDS
#define MEMORY_BACKENDS                                                                             \
  EmptyMemory, SystemMemory, HostPool, SimulatedDevice, RaceCheckedDevice, Free,                    \
      Layered<Limited>, Layered<Locked<>>, Layered<Retrying<WaitForMemory<>>>,                      \
      Layered<Guarded<>>, Layered<Deferred<HostEvent>>, Starved, Deep, Pins, PinnedPool, JitMemory, \
      BfcPool<SystemMemory>, LowerEnd, UpperEnd, StreamsPool
#endif

using namespace holdfast;

namespace {
using Free = Stack<SystemMemory, Aligned<256>, Observed<NoObserver>, Locked<NoLock>, Retrying<NoHandler>>;
template <class Layer>
using Layered = Stack<SystemMemory, Layer>;
using Pins = Stack<SystemMemory, Pinned<NoPinning>>;
using Starved = Stack<EmptyMemory, Limited>;
using Deep = Stack<HostPool, Limited, Aligned<64>, Guarded<>, Locked<>>;
using LowerEnd = BfcPool<SystemMemory, BestFit, SplitByEnd<>, TwoEnded>;
using UpperEnd = BfcUpperEnd<LowerEnd>;
using StreamsPool = BfcStreamPool<SystemMemory, SimulatedEvent>;

template <class B>
struct Make {
  B backend() { return B{}; }
};
template <>
struct Make<HostPool> {
  HostHeap heap = std::move(*HostHeap::make());
  HostPool backend() { return heap.pool(); }
};
// A layer with a state over the system's memory.
template <class B>
  requires requires { typename B::state_type; }
struct Make<B> {
  typename B::state_type state = make_state();
  B backend() { return make_stack<B>(typename B::up_type{}, state); }
  static typename B::state_type make_state() {
    if constexpr (std::same_as<typename B::state_type, MemoryLimit>)
      return MemoryLimit(Bytes{1} << 20);
    else if constexpr (std::same_as<typename B::state_type, WaitForMemory<>>)
      return WaitForMemory<>(1);
    else
      return typename B::state_type{};
  }
};
template <>
struct Make<PinnedPool> {
  PinnedHeap heap = std::move(*PinnedHeap::make());
  PinnedPool backend() { return heap.pool(); }
};
template <>
struct Make<Deep> {
  HostHeap heap = std::move(*HostHeap::make());
  MemoryLimit limit{Bytes{1} << 20};
  Guard<Stack<HostPool, Limited, Aligned<64>>> guard;
  WordLock lock;
  Deep backend() { return make_stack<Deep>(heap.pool(), limit, guard, lock); }
};
template <>
struct Make<JitMemory> {
  MemoryMapper mapper = std::move(*make_mapper());
  JitHeap heap{mapper};
  JitMemory backend() { return heap.memory(); }
};
template <>
struct Make<BfcPool<SystemMemory>> {
  BfcHeap<SystemMemory> heap = std::move(*BfcHeap<SystemMemory>::make({}, {.limit = 1 << 20}));
  BfcPool<SystemMemory> backend() { return heap.pool(); }
};
template <>
struct Make<LowerEnd> {
  using Heap = BfcHeap<SystemMemory, BestFit, SplitByEnd<>, TwoEnded>;
  Heap heap = std::move(*Heap::make({}, {.limit = 1 << 20}));
  LowerEnd backend() { return heap.pool(); }
};
template <>
struct Make<UpperEnd> : Make<LowerEnd> {
  UpperEnd backend() { return UpperEnd(Make<LowerEnd>::backend()); }
};
template <>
struct Make<StreamsPool> {
  using Heap = BfcStreamHeap<SystemMemory, SimulatedEvent>;
  Heap heap = std::move(*Heap::make({}, {.pool = {.limit = 1 << 20}}));
  StreamsPool backend() { return heap.pool(); }
};
template <class Watch>
struct Make<BasicSimulatedDevice<Watch>> {
  BasicSimulatedMachine<Watch> machine;
  BasicSimulatedDevice<Watch> backend() { return *machine.add_device(1 << 20); }
};
}  // namespace

TEST_CASE_TEMPLATE("memory_backend: 0 bytes give the empty block, whose release is a no-op", B, MEMORY_BACKENDS) {
  Make<B> make;
  B b = make.backend();
  for (const Bytes alignment : {1, 64, 4096}) {
    const Result<Block> block = b.allocate(0, Alignment(alignment));
    REQUIRE(block.ok());
    CHECK(*block == Block{nullptr, 0});
    b.deallocate(*block);
  }
}

TEST_CASE_TEMPLATE("memory_backend: a negative size is invalid, a size near 2^63 is out of memory, neither changes anything", B,
                   MEMORY_BACKENDS) {
  Make<B> make;
  B b = make.backend();
  for (const Bytes size : {Bytes{-1}, -max_bytes - 1}) CHECK(b.allocate(size, Alignment(1)).error().code == Errc::invalid_argument);
  for (const Bytes size : {max_bytes, max_bytes - 1, max_bytes - 63, max_bytes - 4095, Bytes{1} << 62})
    for (const Bytes alignment : {1, 64, 4096})
      CHECK(status_kind(b.allocate(size, Alignment(alignment)).error()) == StatusKind::resource_exhausted);
}

TEST_CASE_TEMPLATE("memory_backend: live blocks are aligned, disjoint and as large as asked", B, MEMORY_BACKENDS) {
  Make<B> make;
  B b = make.backend();
  std::vector<Block> live;
  for (int i = 0; i < 100; ++i) {
    const Bytes size = 1 + i * 37 % 500, alignment = Bytes{1} << (i % 9);
    const Result<Block> block = b.allocate(size, Alignment(alignment));
    if (!block.ok()) {
      CHECK(status_kind(block.error()) == StatusKind::resource_exhausted);
      continue;
    }
    CHECK(block->size == size);
    CHECK(reinterpret_cast<std::uintptr_t>(block->data) % static_cast<std::uintptr_t>(alignment) == 0);
    if (host_accessible<B>) std::memset(block->data, i, static_cast<std::size_t>(size));
    live.push_back(*block);
  }
  for (const Block& x : live)
    for (const Block& y : live) CHECK((x == y || x.data + x.size <= y.data || y.data + y.size <= x.data));
  B copy = b;  // a handle: what one gave, another takes back
  for (const Block& block : live) copy.deallocate(block);
}
