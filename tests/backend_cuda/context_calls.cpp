// SPDX-License-Identifier: Apache-2.0
// What the library does around a call of the driver: the context is made current only where it is not, and an engine's
// captures of streams are let be.
#include <doctest/doctest.h>

#include <array>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/host_memory.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"
#include "holdfast/backend/cuda/vmm_segment.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

constexpr CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};

// All that the library does without being told to touch the stream that is captured.
void do_all(CudaWorld& w, BasicCudaPoolMemory<DoubleDriver> pool, BasicCudaVmmMemory<DoubleDriver> vmm, const DoubleEvent& pending) {
  const DoubleStream s = w.stream();
  std::array<std::byte, 100> host{};
  const auto use = [&](auto memory) {
    const Block x = *memory.allocate(100, Alignment(256));
    if constexpr (copying_backend<decltype(memory)>) CHECK(memory.copy_in(x, 0, host)->wait().ok());
    memory.deallocate(x);
  };
  use(BasicCudaDeviceMemory<DoubleDriver>(*w.context));
  use(BasicCudaManagedMemory<DoubleDriver>(*w.context));
  use(BasicCudaHostMemory<DoubleDriver>(*w.context));
  use(pool);
  for (int i = 0; i < 2; ++i) {
    const Block x = *vmm.allocate(s, 100, Alignment(256));
    vmm.deallocate(s, x);
    const Block y = *pool.allocate(s, 100, Alignment(256));
    pool.deallocate(s, y);
  }
  CHECK(vmm.trim(0) >= 0);
  { CHECK(BasicCudaRegistration<DoubleDriver>::make(*w.context, {host.data(), 100}).ok()); }
  w.work(s);
  CountingNode node;
  const DoubleEvent e = w.mark(s);
  const bool queued = e.then(node);
  CHECK(!pending.ready());
  w.context->run_completions();
  CHECK(e.wait_until(Deadline::after(std::chrono::seconds(20))).ok());
  CHECK(w.mark(s).wait().ok());
  CHECK(s.synchronize().ok());
  CHECK(s.idle().ok());
  w.context->run_completions();
  CHECK(node.count == (queued ? 1 : 0));
}

}  // namespace

TEST_CASE("cuda calls: a thread that has the context current pays for no change of it, any other gets back what it had") {
  CudaWorld w;
  const auto pool = std::move(*BasicCudaPool<DoubleDriver>::make(*w.context));
  auto memory = pool.memory();
  const DoubleStream a = w.stream(), b = w.stream();
  DoubleEvent warm = w.mark(a);
  warm = DoubleEvent();
  const auto calls = [&](auto f) {
    const auto before = w.cuda.calls();
    f();
    return w.cuda.calls() - before;
  };
  const auto cost = [&] {
    Block x;
    DoubleEvent e;
    std::vector<std::uint64_t> all;
    all.push_back(calls([&] { x = *memory.allocate(a, 100, Alignment(256)); }));
    all.push_back(calls([&] { memory.deallocate(a, x); }));
    all.push_back(calls([&] { e = w.mark(a); }));
    all.push_back(calls([&] { CHECK(e.wait_on(b).ok()); }));
    all.push_back(calls([&] { static_cast<void>(e.ready()); }));
    return all;
  };
  CHECK(cost() == std::vector<std::uint64_t>{4, 4, 5, 4, 3});
  const DoubleDriver driver = w.cuda.driver();
  CUcontext popped = nullptr;
  CHECK(driver(cuda_call::CtxPushCurrent{}, w.context->native()) == CUDA_SUCCESS);
  CHECK(cost() == std::vector<std::uint64_t>{2, 2, 3, 2, 3});
  CHECK(w.other->make_stream().ok());
  CHECK(driver(cuda_call::CtxPopCurrent{}, &popped) == CUDA_SUCCESS);
  CHECK(popped == w.context->native());
}

TEST_CASE("cuda calls: an engine captures a stream, in any mode, on this thread or another: nothing that the library does spoils it") {
  for (const CUstreamCaptureMode mode : modes)
    for (const bool elsewhere : {false, true}) {
      CAPTURE(static_cast<int>(mode));
      CAPTURE(elsewhere);
      CudaWorld w;
      const auto pool = std::move(*BasicCudaPool<DoubleDriver>::make(*w.context));
      const auto vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*w.context));
      const DoubleStream held = w.stream(), captured = w.stream();
      auto later = w.cuda.hold(held.native());
      w.work(held);
      const DoubleEvent pending = w.mark(held);
      w.cuda.begin_capture(captured.native(), mode);
      const auto work = [&] { do_all(w, pool.memory(), vmm.memory(), pending); };
      if (elsewhere) std::thread(work).join();
      else work();
      CHECK(w.cuda.end_capture(captured.native()));
      static_cast<void>(later.set());
      CHECK(pending.wait().ok());
      CHECK(pending.ready());
    }
}

TEST_CASE("cuda calls: a mark, and a copy that ends in one, are refused in a stream that is captured, and nothing is put there") {
  CudaWorld w;
  const auto pool = std::move(*BasicCudaPool<DoubleDriver>::make(*w.context));
  auto memory = pool.memory();
  const DoubleStream s = w.stream();
  const Block x = *memory.allocate(100, Alignment(256));
  std::array<std::byte, 100> host{};
  w.cuda.begin_capture(s.native(), CU_STREAM_CAPTURE_MODE_GLOBAL);
  const auto copies = w.cuda.count("cuMemcpyAsync"), marks = w.cuda.count("cuEventRecord");
  const Error refused = DoubleEvent::recorded_on(s).error();
  CHECK(refused.code == Errc::wrong_state);
  CHECK(says(refused, "captured"));
  CHECK(memory.copy_in(s, x, 0, host).error().code == Errc::wrong_state);
  CHECK(w.cuda.count("cuMemcpyAsync") == copies);
  CHECK(w.cuda.count("cuEventRecord") == marks);
  CHECK(w.cuda.end_capture(s.native()));
  CHECK(DoubleEvent::recorded_on(s)->wait().ok());
  memory.deallocate(x);
}

TEST_CASE("cuda calls: virtual memory that is given back while a stream is captured stays mapped, as its work may run") {
  CudaWorld w;
  w.expected_unreported = Errc::wrong_state;
  {
    const auto vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*w.context));
    auto memory = vmm.memory();
    auto segment = std::move(*BasicCudaSegment<DoubleDriver>::reserve(*w.context, 4_MiB));
    const DoubleStream running = w.stream(), captured = w.stream();
    const Block x = *memory.allocate(100, Alignment(256));
    CHECK(segment.map(0, 2_MiB).ok());
    auto later = w.cuda.hold(running.native());
    w.cuda.launch(running.native(), "kernel", {writes(x)}, [x] { *x.data = std::byte{1}; });
    w.cuda.begin_capture(captured.native(), CU_STREAM_CAPTURE_MODE_RELAXED);
    memory.deallocate(x);
    CHECK(memory.held() == memory.granularity());
    CHECK(!w.cuda.end_capture(captured.native()));  // to wait for the context is what no capture stands
    static_cast<void>(later.set());
    CHECK(running.synchronize().ok());
  }
}
