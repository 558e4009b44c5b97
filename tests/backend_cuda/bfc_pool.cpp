// SPDX-License-Identifier: Apache-2.0
// Best fit with coalescing over CUDA memory: on plain memory, on virtual memory and on a segment that grows in place.
#include "holdfast/backend/bfc_pool.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "double/cuda_sources.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

#define SOURCES PlainSource, VirtualSource, GrowingSource

template <class World>
using HeapOf = BfcHeap<typename World::Source, BestFit, ExactSplit>;

}  // namespace

TEST_CASE_TEMPLATE("cuda bfc: buffers of a pool are written and read by copies of streams, over seeds; a pool of nothing gives all back", World,
                   SOURCES) {
  using Pool = typename HeapOf<World>::Pool;
  using Buffer = TrackedBuffer<Pool, DoubleEvent, SharedHold>;
  static_assert(copying_backend<typename World::Source> && std::is_same_v<typename Pool::event_type, DoubleEvent>);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    World w(seed);
    const DoubleStream a = w.stream(), b = w.stream();
    {
      HeapOf<World> heap = std::move(*HeapOf<World>::make(w.source()));
      Pool pool = heap.pool();
      std::vector<std::byte> out(1000);
      const std::vector<std::byte> in(1000, static_cast<std::byte>(seed));
      for (int round = 0; round < 5; ++round) {
        Buffer x = std::move(*Buffer::allocate(pool, 1000)), y = std::move(*Buffer::allocate(pool, 1000));
        const Block from = x.hold(HoldKind::usage)->raw().block(), to = y.hold(HoldKind::usage)->raw().block();
        const DoubleEvent written = *pool.copy_in(a, from, 0, in);
        CHECK(written.wait_on(b).ok());
        const DoubleEvent moved = *pool.copy(b, to, 0, from, 0, 1000);
        x.hold(HoldKind::usage)->convert(moved);
        CHECK(x.release().ok());
        const DoubleEvent read = *pool.copy_out(b, to, 0, out);
        y.hold(HoldKind::usage)->convert(read);
        CHECK(y.release().ok());
        CHECK(read.wait().ok());
        CHECK(out == in);
      }
      CHECK(w.context->synchronize().ok());
      CHECK(pool.statistics().in_use == 0);
      CHECK(pool.statistics().reserved == 2_MiB);
      CHECK(w.cuda.used(0) == 2_MiB);
    }
    if constexpr (std::is_same_v<World, GrowingSource>) CHECK(w.segment.mapped() == 0);
  }
}

TEST_CASE("cuda bfc: over a segment regions join, so a block may be larger than any of them; trimmed, its addresses come again") {
  GrowingSource w;
  BfcOptions o;
  o.region = 2_MiB;
  auto heap = std::move(*BfcHeap<GrowingSource::Source, BestFit, BfcSplit, ExactGrowth>::make(w.source(), o));
  auto pool = heap.pool();
  const Block a = *pool.allocate(2_MiB, Alignment(256)), b = *pool.allocate(2_MiB, Alignment(256)), c = *pool.allocate(2_MiB, Alignment(256));
  CHECK(b.data == a.data + 2_MiB);
  CHECK(c.data == b.data + 2_MiB);
  pool.deallocate(a);
  pool.deallocate(b);
  CHECK(pool.allocate(4_MiB, Alignment(256))->data == a.data);
  pool.deallocate({a.data, 4_MiB});
  pool.deallocate(c);
  CHECK(w.segment.mapped() == 6_MiB);
  CHECK(pool.trim(0) == 6_MiB);
  CHECK(w.segment.mapped() == 0);
  const Block again = *pool.allocate(2_MiB, Alignment(256));
  CHECK(again.data == a.data);
  pool.deallocate(again);
}

TEST_CASE("cuda segment memory: the lowest run that fits, aligned; a full segment and a full device say so and change nothing") {
  GrowingSource w;
  auto memory = w.source();
  const Block a = *memory.allocate(3_MiB, Alignment(256)), b = *memory.allocate(1, Alignment(256)), c = *memory.allocate(2_MiB, Alignment(8_MiB));
  CHECK(a.data == w.segment.range().data);
  CHECK(b.data == a.data + 4_MiB);
  CHECK(reinterpret_cast<std::uintptr_t>(c.data) % (8_MiB) == 0);
  memory.deallocate(a);
  CHECK(w.segment.mapped() == 4_MiB);
  CHECK(*memory.allocate(4_MiB, Alignment(256)) == Block{a.data, 4_MiB});
  CHECK(memory.allocate(0, Alignment(256))->data == nullptr);
  CHECK(memory.allocate(-1, Alignment(256)).error().code == Errc::invalid_argument);
  const Error full = memory.allocate(62_MiB, Alignment(256)).error();
  CHECK(full.code == Errc::over_budget);
  CHECK(full.available > 0);
  CHECK(full.available < 62_MiB);
  BasicCudaDeviceMemory<DoubleDriver> plain(*w.context);
  const Block rest = *plain.allocate(55_MiB, Alignment(256));
  CHECK(memory.allocate(full.available, Alignment(256)).error().code == Errc::out_of_memory);
  CHECK(w.segment.mapped() == 8_MiB);
  plain.deallocate(rest);
  CHECK(memory.allocate(max_bytes, Alignment(256)).error().code == Errc::over_budget);
}

TEST_CASE("cuda segment memory: a block that is given back under a kernel loses its memory after it") {
  GrowingSource w;
  const DoubleStream s = w.stream();
  auto memory = w.source();
  const Block b = *memory.allocate(2_MiB, Alignment(256));
  write_kernel(w, s, b, "kernel");
  memory.deallocate(b);
  CHECK(w.segment.mapped() == 0);
}
