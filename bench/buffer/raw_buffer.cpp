// SPDX-License-Identifier: Apache-2.0
// What a raw buffer costs beside a bare pointer: memory made and freed, shared, cut, and copied in and out.
#include "holdfast/buffer/raw_buffer.hpp"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "threads.hpp"

namespace {

using namespace holdfast;

void malloc_free(benchmark::State& state) {
  become_threaded();
  const auto size = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    void* p = std::aligned_alloc(64, size);
    benchmark::DoNotOptimize(p);
    std::free(p);
  }
}
template <class Own>
void make_free(benchmark::State& state) {
  become_threaded();
  for (auto _ : state) {
    auto raw = RawBuffer<SystemMemory, Own>::allocate({}, state.range(0));
    benchmark::DoNotOptimize(raw->data());
  }
}

void pointer_copy(benchmark::State& state) {
  void* p = std::aligned_alloc(64, 4096);
  for (auto _ : state) {
    void* q = p;
    benchmark::DoNotOptimize(q);
  }
  std::free(p);
}
// One more owner and one less: an atomic pair.
void owner_copy(benchmark::State& state) {
  become_threaded();
  const auto raw = *RawBuffer<SystemMemory>::allocate({}, 4096);
  for (auto _ : state) {
    RawBuffer<SystemMemory> other = raw;
    benchmark::DoNotOptimize(other.data());
  }
}
void slice(benchmark::State& state) {
  become_threaded();
  const auto raw = *RawBuffer<SystemMemory>::allocate({}, 4096);
  Bytes offset = 64;
  benchmark::DoNotOptimize(offset);
  for (auto _ : state) {
    auto part = raw.slice(offset, 512);
    benchmark::DoNotOptimize(part->data());
  }
}

void plain_memcpy(benchmark::State& state) {
  std::vector<std::byte> from(static_cast<std::size_t>(state.range(0))), to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
template <class Own>
void copy_in(benchmark::State& state) {
  std::vector<std::byte> from(static_cast<std::size_t>(state.range(0)));
  auto raw = std::move(*RawBuffer<SystemMemory, Own>::allocate({}, state.range(0)));
  for (auto _ : state) {
    if (!raw.copy_in(0, from).ok()) state.SkipWithError("refused");
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

}  // namespace

BENCHMARK(malloc_free)->Name("floor/aligned_alloc_free")->Arg(64)->Arg(4096);
BENCHMARK(make_free<Unique>)->Name("RawBuffer<Unique>/make_free/system_memory")->Arg(64)->Arg(4096);
BENCHMARK(make_free<Shared>)->Name("RawBuffer/make_free/system_memory")->Arg(64)->Arg(4096);
BENCHMARK(pointer_copy)->Name("floor/pointer_copy");
BENCHMARK(owner_copy)->Name("RawBuffer/owner_copy/system_memory");
BENCHMARK(slice)->Name("RawBuffer/slice/system_memory");
BENCHMARK(plain_memcpy)->Name("floor/memcpy")->Arg(64)->Arg(4096)->Arg(1 << 20);
BENCHMARK(copy_in<Unique>)->Name("RawBuffer<Unique>/copy_in/system_memory")->Arg(64)->Arg(4096)->Arg(1 << 20);
BENCHMARK(copy_in<Shared>)->Name("RawBuffer/copy_in/system_memory")->Arg(64)->Arg(4096)->Arg(1 << 20);
