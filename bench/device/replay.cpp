// SPDX-License-Identifier: Apache-2.0
// Machine-learning traces replayed on a GPU: events a second, and the most that is held of the
// device, beside the driver's own pool (cudaMallocAsync), its plain memory (cudaMalloc) and CCCL's
// caching allocator. One host thread, one stream, no kernels: what is measured is the allocator.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#ifdef HOLDFAST_BENCH_CUB
#include <cub/util_allocator.cuh>
#endif

#include "holdfast/backend/bfc/stream_pool.hpp"
#include "holdfast/backend/bfc_pool.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "holdfast/trace/memory_log.hpp"

namespace {

using namespace holdfast;

/// The first device; without one the program ends with the status of a skipped test.
CudaContext& context() {
  static CudaContext made = [] {
    Result<CudaContext> c = CudaContext::make();
    if (c.ok()) return std::move(*c);
    std::printf("skipped: no GPU: %s\n", c.error().what);
    std::fflush(stdout);
    std::_Exit(c.error().code == Errc::unsupported ? 77 : 1);
  }();
  return made;
}

struct Trace {
  std::string name;
  MemoryLog log;
};

/// Best fit over regions of plain device memory: each twice as large as the last, or each as large
/// as the request that needs it.
template <class Growth>
class BestFitPool {
  using Heap = BfcHeap<CudaDeviceMemory, BestFit, BfcSplit, Growth>;

 public:
  Block allocate(Bytes size) {
    const Result<Block> b = pool_.allocate(size, Alignment(256));
    return b.ok() ? *b : Block{};
  }
  void release(Block b) { pool_.deallocate(b); }
  void look() {}
  void finish() {}
  Bytes peak() { return pool_.statistics().peak_reserved; }

 private:
  Heap heap_ = std::move(*Heap::make(CudaDeviceMemory(context())));
  decltype(heap_.pool()) pool_ = heap_.pool();
};

/// The same in a stream's order, as cudaMallocAsync: with an event at each free, or on demand.
template <StreamMarks Marks>
class BestFitStreamPool {
  using Heap = BfcStreamHeap<CudaDeviceMemory, CudaEvent, BestFit, BfcSplit, ExactGrowth>;

 public:
  Block allocate(Bytes size) {
    const Result<Block> b = pool_.allocate(stream_.ref(), size, Alignment(256));
    return b.ok() ? *b : Block{};
  }
  void release(Block b) { pool_.deallocate(stream_.ref(), b); }
  void look() {}
  void finish() { static_cast<void>(stream_.synchronize()); }
  Bytes peak() { return pool_.statistics().peak_reserved; }

 private:
  static BfcStreamOptions options() {
    BfcStreamOptions o;
    o.marks = Marks;
    return o;
  }
  CudaStream stream_ = std::move(*context().make_stream());
  Heap heap_ = std::move(*Heap::make(CudaDeviceMemory(context()), options()));
  decltype(heap_.pool()) pool_ = heap_.pool();
};

/// The driver's pool through the library, in a stream's order.
class OrderedPool {
 public:
  Block allocate(Bytes size) {
    const Result<Block> b = memory_.allocate(stream_.ref(), size, Alignment(256));
    return b.ok() ? *b : Block{};
  }
  void release(Block b) { memory_.deallocate(stream_.ref(), b); }
  void look() {}
  void finish() { static_cast<void>(stream_.synchronize()); }
  Bytes peak() { return memory_.peak_reserved(); }

 private:
  CudaPool pool_ = std::move(*CudaPool::make(context()));
  CudaPoolMemory memory_ = pool_.memory();
  CudaStream stream_ = std::move(*context().make_stream());
};

/// Calls of the driver with the context current throughout, as a program of the runtime's has it.
class Current {
 public:
  Current() { static_cast<void>(driver(cuda_call::CtxPushCurrent{}, context().native())); }
  Current(Current&&) = delete;
  ~Current() {
    CUcontext popped = nullptr;
    static_cast<void>(driver(cuda_call::CtxPopCurrent{}, &popped));
  }
  RealDriver driver;
};

/// The floor: cudaMallocAsync and cudaFreeAsync on a pool that keeps what it has.
class MallocAsync : Current {
 public:
  Block allocate(Bytes size) {
    CUdeviceptr p = 0;
    const CUresult code = driver(cuda_call::MemAllocFromPoolAsync{}, &p,
                                 static_cast<std::size_t>(size), pool_.native(), stream_.native());
    return code == CUDA_SUCCESS ? Block{reinterpret_cast<std::byte*>(p), size} : Block{};
  }
  void release(Block b) {
    static_cast<void>(
        driver(cuda_call::MemFreeAsync{}, reinterpret_cast<CUdeviceptr>(b.data), stream_.native()));
  }
  void look() {}
  void finish() { static_cast<void>(stream_.synchronize()); }
  Bytes peak() { return pool_.memory().peak_reserved(); }

 private:
  CudaPool pool_ = std::move(*CudaPool::make(context()));
  CudaStream stream_ = std::move(*context().make_stream());
};

/// The floor: cudaMalloc and cudaFree. What it holds is what the device has less.
class Malloc : Current {
 public:
  Malloc() : free_(free()) {}
  Block allocate(Bytes size) {
    CUdeviceptr p = 0;
    const CUresult code = driver(cuda_call::MemAlloc{}, &p, static_cast<std::size_t>(size));
    return code == CUDA_SUCCESS ? Block{reinterpret_cast<std::byte*>(p), size} : Block{};
  }
  void release(Block b) {
    static_cast<void>(driver(cuda_call::MemFree{}, reinterpret_cast<CUdeviceptr>(b.data)));
  }
  void look() { peak_ = std::max(peak_, free_ - free()); }
  void finish() {}
  Bytes peak() const { return peak_; }

 private:
  Bytes free() const {
    std::size_t now = 0, total = 0;
    static_cast<void>(driver(cuda_call::MemGetInfo{}, &now, &total));
    return static_cast<Bytes>(now);
  }
  Bytes free_, peak_ = 0;
};

#ifdef HOLDFAST_BENCH_CUB
/// CCCL's allocator: powers of two from 512 bytes on, all kept.
class CubCaching : Current {
 public:
  Block allocate(Bytes size) {
    void* p = nullptr;
    const cudaError_t code =
        allocator_.DeviceAllocate(&p, static_cast<std::size_t>(size), stream_.native());
    return code == cudaSuccess ? Block{static_cast<std::byte*>(p), size} : Block{};
  }
  void release(Block b) { static_cast<void>(allocator_.DeviceFree(b.data)); }
  void look() {
    Bytes now = 0;
    for (const auto& [device, bytes] : allocator_.cached_bytes)
      now += static_cast<Bytes>(bytes.live + bytes.free);
    peak_ = std::max(peak_, now);
  }
  void finish() { static_cast<void>(stream_.synchronize()); }
  Bytes peak() const { return peak_; }

 private:
  CudaStream stream_ = std::move(*context().make_stream());
  cub::CachingDeviceAllocator allocator_{2, 9, 36, ~std::size_t{0}};
  Bytes peak_ = 0;
};
#endif

/// Carries a log out; false where an allocation failed.
template <class Source>
bool carry_out(Source& source, const MemoryLog& log, std::vector<Block>& blocks, bool look) {
  bool good = true;
  for (const LogEvent& e : log.events) {
    if (e.block == MemoryLog::no_block || e.fault != LogFault::none) continue;
    if (e.op == LogOp::allocate) {
      blocks[e.block] = source.allocate(e.size);
      good = good && (e.size == 0 || blocks[e.block].data != nullptr);
      if (look) source.look();
    } else if (e.op == LogOp::release) {
      if (blocks[e.block].data != nullptr) source.release(blocks[e.block]);
      blocks[e.block] = {};
    }
  }
  for (Block& b : blocks) {
    if (b.data != nullptr) source.release(b);
    b = {};
  }
  source.finish();
  return good;
}

template <class Source>
void replay(benchmark::State& state, const Trace& trace) {
  const Current current;  // for all sources alike
  Source source;
  std::vector<Block> blocks(trace.log.block_count);
  bool good = carry_out(source, trace.log, blocks, true);  // also the warm-up
  for (auto _ : state) good = carry_out(source, trace.log, blocks, false) && good;
  if (!good) state.SkipWithError("an allocation failed");
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(trace.log.events.size()));
  state.counters["reserved_MiB"] = static_cast<double>(source.peak()) / (1 << 20);
  state.counters["live_MiB"] = static_cast<double>(live_peak(trace.log)) / (1 << 20);
}

std::string read(const std::string& path) {
  const bool packed = path.size() > 3 && path.compare(path.size() - 3, 3, ".gz") == 0;
  std::FILE* f =
      packed ? popen(("gzip -dc '" + path + "'").c_str(), "r") : std::fopen(path.c_str(), "rb");
  std::string text;
  if (f == nullptr) return text;
  char chunk[1 << 16];
  for (std::size_t n = 0; (n = std::fread(chunk, 1, sizeof chunk, f)) > 0;) text.append(chunk, n);
  packed ? pclose(f) : std::fclose(f);
  return text;
}

const bool registered = [] {
  static_cast<void>(context());
  const char* set = std::getenv("HOLDFAST_SHARED");
  const std::string shared = std::string(set != nullptr ? set : HOLDFAST_SHARED) + "/data/traces/";
  static std::vector<std::unique_ptr<Trace>> traces;
  const auto add = [](const std::string& name, const std::string& path) {
    const std::string text = read(path);
    if (text.empty()) return;
    Result<MemoryLog> log = read_memory_log(text);
    if (!log.ok()) return;
    traces.push_back(std::make_unique<Trace>(Trace{name, std::move(*log)}));
    const Trace& t = *traces.back();
    const auto put = [&](const char* source, auto* f) {
      benchmark::RegisterBenchmark((name + "/" + source).c_str(),
                                   [f, &t](benchmark::State& s) { f(s, t); })
          ->UseRealTime()
          ->MinTime(0.3)
          ->Unit(benchmark::kMillisecond);
    };
    put("BfcPool", replay<BestFitPool<BoundedGrowth>>);
    put("BfcPool_exact", replay<BestFitPool<ExactGrowth>>);
    put("BfcStreamPool_each_free", replay<BestFitStreamPool<StreamMarks::each_free>>);
    put("BfcStreamPool_on_demand", replay<BestFitStreamPool<StreamMarks::on_demand>>);
    put("CudaPoolMemory", replay<OrderedPool>);
    put("floor_cudaMallocAsync", replay<MallocAsync>);
    put("floor_cudaMalloc", replay<Malloc>);
#ifdef HOLDFAST_BENCH_CUB
    put("cub_CachingDeviceAllocator", replay<CubCaching>);
#endif
  };
  add("small_step", HOLDFAST_TEST_DATA "/trace/small_step.events.csv");
  for (const char* name :
       {"xla_trinf_16", "xla_conv_24", "xla_train_12", "iopddl_G_1", "mindspore_resnet50"})
    add(name, shared + name + ".events.csv");
  add("mindspore_pangu_2.6B", shared + "mindspore_pangu_2.6B.events.csv.gz");
  return true;
}();

}  // namespace
