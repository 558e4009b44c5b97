// SPDX-License-Identifier: Apache-2.0
// What a block of device memory costs, beside the bare calls of the driver. Without a device it says so and measures nothing.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "holdfast/backend/bfc/stream_pool.hpp"
#include "holdfast/cuda.hpp"

namespace {

using namespace holdfast;

struct Device {
  CudaContext context = std::move(*CudaContext::make());
  CudaPool pool = std::move(*CudaPool::make(context));
  CudaVmm vmm = std::move(*CudaVmm::make(context));
  CudaStream stream = std::move(*context.make_stream());
};
Device* device(benchmark::State& state) {
  static const std::unique_ptr<Device> made(CudaContext::make().ok() ? new Device : nullptr);
  if (made == nullptr) state.SkipWithError("no CUDA device");
  return made.get();
}

void floor_pool(benchmark::State& state) {
  Device* d = device(state);
  if (d == nullptr) return;
  const RealDriver driver = *RealDriver::load();
  driver(cuda_call::CtxPushCurrent{}, d->context.native());
  for (auto _ : state) {
    CUdeviceptr p = 0;
    driver(cuda_call::MemAllocFromPoolAsync{}, &p, static_cast<std::size_t>(state.range(0)), d->pool.native(), d->stream.native());
    driver(cuda_call::MemFreeAsync{}, p, d->stream.native());
  }
  CUcontext popped = nullptr;
  driver(cuda_call::CtxPopCurrent{}, &popped);
}
BENCHMARK(floor_pool)->Name("floor/cuMemAllocFromPoolAsync_pair")->ArgName("bytes")->RangeMultiplier(64)->Range(512, 128 << 20);

void floor_plain(benchmark::State& state) {
  Device* d = device(state);
  if (d == nullptr) return;
  const RealDriver driver = *RealDriver::load();
  driver(cuda_call::CtxPushCurrent{}, d->context.native());
  for (auto _ : state) {
    CUdeviceptr p = 0;
    driver(cuda_call::MemAlloc{}, &p, static_cast<std::size_t>(state.range(0)));
    driver(cuda_call::MemFree{}, p);
  }
  CUcontext popped = nullptr;
  driver(cuda_call::CtxPopCurrent{}, &popped);
}
BENCHMARK(floor_plain)->Name("floor/cuMemAlloc_pair")->ArgName("bytes")->RangeMultiplier(64)->Range(512, 128 << 20);

template <class Memory>
void pairs(benchmark::State& state, Memory memory, const CudaStreamRef& stream) {
  for (auto _ : state) {
    Result<Block> block = memory.allocate(stream, state.range(0), Alignment(256));
    if (!block.ok()) return state.SkipWithError("out of memory");
    memory.deallocate(stream, *block);
  }
}
template <StreamMarks Marks>
void bfc_pair(benchmark::State& state) {
  Device* d = device(state);
  if (d == nullptr) return;
  BfcStreamOptions options;
  options.marks = Marks;
  auto heap = std::move(*BfcStreamHeap<CudaDeviceMemory, CudaEvent>::make(CudaDeviceMemory(d->context), options));
  pairs(state, heap.pool(), d->stream);
}
BENCHMARK(bfc_pair<StreamMarks::each_free>)->Name("BfcStreamPool/pair/each_free")->ArgName("bytes")->RangeMultiplier(64)->Range(512, 128 << 20);
BENCHMARK(bfc_pair<StreamMarks::on_demand>)->Name("BfcStreamPool/pair/on_demand")->ArgName("bytes")->RangeMultiplier(64)->Range(512, 128 << 20);
void pool_pair(benchmark::State& state) {
  if (Device* d = device(state); d != nullptr) pairs(state, d->pool.memory(), d->stream);
}
BENCHMARK(pool_pair)->Name("CudaPoolMemory/pair")->ArgName("bytes")->RangeMultiplier(64)->Range(512, 128 << 20);
void vmm_pair(benchmark::State& state) {
  if (Device* d = device(state); d != nullptr) pairs(state, d->vmm.memory(), d->stream);
}
BENCHMARK(vmm_pair)->Name("CudaVmmMemory/pair")->ArgName("bytes")->RangeMultiplier(64)->Range(2 << 20, 128 << 20);

void event_record(benchmark::State& state) {
  Device* d = device(state);
  if (d == nullptr) return;
  for (auto _ : state) benchmark::DoNotOptimize(CudaEvent::recorded_on(d->stream).ok());
  static_cast<void>(d->stream.synchronize());
}
BENCHMARK(event_record)->Name("CudaEvent/record");
void floor_record(benchmark::State& state) {
  Device* d = device(state);
  if (d == nullptr) return;
  const RealDriver driver = *RealDriver::load();
  driver(cuda_call::CtxPushCurrent{}, d->context.native());
  CUevent event = nullptr;
  driver(cuda_call::EventCreate{}, &event, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
  for (auto _ : state) driver(cuda_call::EventRecord{}, event, d->stream.native());
  driver(cuda_call::EventDestroy{}, event);
  CUcontext popped = nullptr;
  driver(cuda_call::CtxPopCurrent{}, &popped);
  static_cast<void>(d->stream.synchronize());
}
BENCHMARK(floor_record)->Name("floor/cuEventRecord");

}  // namespace
