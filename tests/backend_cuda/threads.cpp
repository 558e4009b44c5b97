// SPDX-License-Identifier: Apache-2.0
// Threads that use one context, one pool and one source of virtual memory at once, beside one that runs continuations.
#include <doctest/doctest.h>

#include <atomic>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/event/combine.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

TEST_CASE("cuda threads: buffers, virtual memory, promises over two devices and the end of a pool beside a thread that tells") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CudaWorld w(seed);
    const auto vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*w.context));
    std::optional<BasicCudaPool<DoubleDriver>> pool(std::move(*BasicCudaPool<DoubleDriver>::make(*w.context)));
    using Buffer = TrackedBuffer<BasicCudaPoolMemory<DoubleDriver>, DoubleEvent, SharedHold>;
    std::atomic<bool> stop{false};
    std::atomic<int> told{0};
    std::thread teller([&] {
      while (!stop) {
        w.context->run_completions();
        w.other->run_completions();
      }
    });
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        const DoubleStream a = w.stream();
        const DoubleStream b = std::move(*w.other->make_stream());
        auto memory = pool->memory();
        auto virtual_memory = vmm.memory();
        for (int i = 0; i < 10; ++i) {
          Buffer x = std::move(*Buffer::allocate(memory, 1000));
          const Block granule = *virtual_memory.allocate(a, 1000, Alignment(256));
          w.cuda.launch(a.native(), "work", {}, [] {});
          w.cuda.launch(b.native(), "work", {}, [] {});
          const DoubleEvent both[] = {w.mark(a), w.mark(b)};
          for (const DoubleEvent& e : both) x.hold(HoldKind::usage)->convert(e);
          CHECK(run_when_ready(std::span<const DoubleEvent>(both), [&told]() noexcept { ++told; }).ok());
          const auto joined = after_all(std::span<const DoubleEvent>(both));
          REQUIRE(joined.ok());
          CHECK(x.release().ok());
          if (i % 2 == 0) virtual_memory.deallocate(a, granule);
          else virtual_memory.deallocate(granule);
          if (i % 3 == 0) CHECK(joined->wait().ok());
          if (i % 5 == 0) CHECK(w.context->synchronize().ok());
        }
        CHECK(a.synchronize().ok());
        CHECK(b.synchronize().ok());
      });
    for (std::thread& t : threads) t.join();
    CHECK(w.other->synchronize().ok());
    CHECK(w.context->synchronize().ok());
    CHECK(pool->memory().used() == 0);
    pool.reset();  // the teller is still at it
    stop = true;
    teller.join();
    CHECK(told.load() == 30);
  }
}
