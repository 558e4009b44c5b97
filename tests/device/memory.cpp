// SPDX-License-Identifier: Apache-2.0
// The CUDA sources, streams, events and buffers on a real device, with a kernel that writes and
// tests patterns there. tests/backend_cuda includes this file with the double as its machine, so
// that it is known to be right where no GPU is.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#ifndef HOLDFAST_TEST_MACHINE
#include "device/real_machine.hpp"
#endif
#include "execute/planned_text.hpp"
#include "holdfast/backend/bfc/stream_pool.hpp"
#include "holdfast/backend/bfc_pool.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/host_memory.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "holdfast/backend/cuda/resource.hpp"
#include "holdfast/backend/cuda/segment_memory.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

using Driver = CudaMachine::Driver;
using Context = BasicCudaContext<Driver>;
using Stream = BasicCudaStream<Driver>;
using StreamRef = BasicCudaStreamRef<Driver>;
using Mark = BasicCudaEvent<Driver>;
using Plain = BasicCudaDeviceMemory<Driver>;
using Pool = BasicCudaPool<Driver>;
using PoolMemory = BasicCudaPoolMemory<Driver>;
using Pinned = BasicCudaHostMemory<Driver>;
using Managed = BasicCudaManagedMemory<Driver>;
using Buffer = TrackedBuffer<PoolMemory, Mark, SharedHold>;
using Checker = program::PatternDevice<Driver, decltype(std::declval<CudaMachine&>().launch())>;

struct Machine : CudaMachine {
  Machine() { REQUIRE(checker->make().ok()); }
  ~Machine() {
    CHECK(context().synchronize().ok());
    while (context().run_completions()) {
    }
    checker.reset();
  }
  Stream stream() { return std::move(*context().make_stream()); }
  Mark mark(const StreamRef& s) { return std::move(*Mark::recorded_on(s)); }
  /// Enqueues a kernel that writes a pattern.
  void write(const StreamRef& s, Block b, std::uint64_t stamp) {
    REQUIRE(launch()(s, program::PatternArguments(stamp, b, PatternCheck::full, nullptr)).ok());
  }
  /// Tests a pattern when all before it is done.
  bool holds(Block b, std::uint64_t stamp) {
    const Result<Bytes> at = checker->compare(stamp, b, PatternCheck::full);
    REQUIRE(at.ok());
    return *at == b.size;
  }
  Pool pool = std::move(*Pool::make(context()));
  std::unique_ptr<Checker> checker = std::make_unique<Checker>(pool.memory(), stream(), launch());
};
bool is_aligned(Block b, std::uintptr_t to) {
  return reinterpret_cast<std::uintptr_t>(b.data) % to == 0;
}
// Copies of a source there and back.
template <class M>
void check_copies(M memory) {
  std::vector<std::byte> in(100'003), out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(i * 7);
  const Block a = *memory.allocate(static_cast<Bytes>(in.size()), Alignment(256));
  const Block b = *memory.allocate(static_cast<Bytes>(in.size()) + 5, Alignment(256));
  CHECK(memory.copy_in(a, 0, in)->wait().ok());
  CHECK(memory.copy(b, 5, a, 0, a.size)->wait().ok());
  CHECK(memory.copy_out(b, 5, out)->wait().ok());
  CHECK(in == out);
  CHECK(memory.copy_in(a, 1, in).error().code == Errc::invalid_argument);
  memory.deallocate(a);
  memory.deallocate(b);
}

}  // namespace

TEST_CASE(
    "device: plain memory is aligned, holds what is copied and written there, and refuses what "
    "there is not") {
  Machine m;
  Plain memory(m.context());
  check_copies(memory);
  const Block b = *memory.allocate(3_MiB + 1, Alignment(256));
  CHECK(is_aligned(b, 256));
  CHECK(m.checker->write(11, b, PatternCheck::full).ok());
  CHECK(m.holds(b, 11));
  CHECK(!m.holds(b, 12));
  std::byte last{};
  CHECK(memory.copy_out(b, b.size - 1, {&last, 1})->wait().ok());
  memory.deallocate(b);
  CHECK(*memory.allocate(0, Alignment(1)) == Block{});
  const Error e = memory.allocate(Bytes{1} << 46, Alignment(256)).error();
  CHECK(e.code == Errc::out_of_memory);
  CHECK(e.native == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(e.requested == Bytes{1} << 46);
  CHECK(e.available > 0);
}

TEST_CASE("device: the kernel's patterns are the host's, at every size") {
  Machine m;
  Plain memory(m.context());
  for (const Bytes size : {1, 7, 8, 63, 4095, 4096, 4097, 8191, 100'001})
    for (const PatternCheck check : {PatternCheck::full, PatternCheck::page}) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(size));
      const Block block = *memory.allocate(size, Alignment(256));
      CHECK(memory.copy_in(block, 0, bytes)->wait().ok());
      CHECK(m.checker->write(3, block, check).ok());
      CHECK(memory.copy_out(block, 0, bytes)->wait().ok());
      CHECK(BytePattern(3).compare({bytes.data(), size}, check) == size);
      CHECK(*m.checker->compare(3, block, check) == size);
      CHECK(*m.checker->compare(4, block, check) ==
            BytePattern(4).compare({bytes.data(), size}, check));
      memory.deallocate(block);
    }
}

TEST_CASE(
    "device: a pool's blocks are reused in their stream's order, and what it keeps is given back") {
  Machine m;
  PoolMemory memory = m.pool.memory();
  check_copies(memory);
  const Stream s = m.stream();
  for (std::uint64_t round = 1; round <= 20; ++round) {
    const Block a = *memory.allocate(s, 1_MiB, Alignment(256));
    CHECK(is_aligned(a, 256));
    m.write(s, a, round);
    memory.deallocate(s, a);
    const Block b = *memory.allocate(s, 1_MiB, Alignment(256));
    m.write(s, b, round + 100);
    CHECK(s.synchronize().ok());
    CHECK(m.holds(b, round + 100));
    memory.deallocate(s, b);
  }
  CHECK(s.synchronize().ok());
  CHECK(memory.used() <= 512);  // the checker's word
  CHECK(memory.peak_reserved() >= 1_MiB);
  CHECK(memory.trim(0) >= 0);
  CHECK(memory.reserved() <= 32_MiB);
}

TEST_CASE("device: an event orders streams: what one wrote the other reads, fifty times") {
  Machine m;
  PoolMemory memory = m.pool.memory();
  const Stream a = m.stream(), b = m.stream();
  const Block block = *memory.allocate(1_MiB, Alignment(256));
  const Block copy = *memory.allocate(1_MiB, Alignment(256));
  for (std::uint64_t round = 1; round <= 50; ++round) {
    m.write(a, block, round);
    const Mark written = m.mark(a);
    CHECK(written.wait_on(b.ref()).ok());
    Mark copied = std::move(*memory.copy(b.ref(), copy, 0, block, 0, block.size));
    CHECK(copied.wait_on(a.ref()).ok());  // before it is written again
    CHECK(copied.wait().ok());
    CHECK(written.ready());
    CHECK(m.holds(copy, round));
  }
  memory.deallocate(block);
  memory.deallocate(copy);
}

TEST_CASE("device: continuations run when the event is done, and never before") {
  Machine m;
  PoolMemory memory = m.pool.memory();
  const Stream s = m.stream();
  const Block block = *memory.allocate(4_MiB, Alignment(256));
  struct Node : Continuation {
    int count = 0;
  } node;
  node.run = [](Continuation& self) noexcept { ++static_cast<Node&>(self).count; };
  for (std::uint64_t k = 0; k < 20; ++k) m.write(s, block, k);
  const Mark end = m.mark(s);
  const bool queued = end.then(node);
  if (queued) {
    CHECK(end.wait().ok());
    for (int k = 0; k < 1000 && node.count == 0; ++k)
      static_cast<void>(m.context().run_completions());
    CHECK(node.count == 1);
  }
  CHECK(end.ready());
  CHECK(m.holds(block, 19));
  memory.deallocate(block);
}

TEST_CASE("device: a deleted buffer's memory stays until the last use on the device is done") {
  Machine m;
  PoolMemory memory = m.pool.memory();
  const Stream s = m.stream();
  const Bytes before = memory.used();
  Block block;
  {
    Buffer b = std::move(*Buffer::allocate(memory, 8_MiB));
    auto hold = std::move(*b.hold(HoldKind::usage));
    block = hold.raw().block();
    for (std::uint64_t k = 0; k < 20; ++k) m.write(s, block, k);
    hold.convert(m.mark(s));
  }
  const Mark end = m.mark(s);
  if (!end.ready()) CHECK(memory.used() > before);
  CHECK(end.wait().ok());
  while (m.context().run_completions()) {
  }
  CHECK(s.synchronize().ok());
  CHECK(m.context().synchronize().ok());
  CHECK(memory.used() == before);
}

TEST_CASE("device: a donated buffer's memory goes on to another owner, contents and all") {
  Machine m;
  Buffer b = std::move(*Buffer::allocate(m.pool.memory(), 1_MiB));
  const Block block = b.hold(HoldKind::usage)->raw().block();
  CHECK(m.checker->write(5, block, PatternCheck::full).ok());
  auto donation = std::move(*b.hold(HoldKind::donation));
  Buffer next = std::move(*Buffer::make(donation.raw()));
  donation.confirm();
  CHECK(b.hold(HoldKind::usage).error().code == Errc::donated);
  CHECK(next.hold(HoldKind::usage)->raw().block() == block);
  CHECK(m.holds(block, 5));
}

TEST_CASE(
    "device: locked host memory moves both ways, managed memory is the host's and the device's") {
  Machine m;
  PoolMemory memory = m.pool.memory();
  Pinned pinned(m.context());
  const Block host = *pinned.allocate(1_MiB, Alignment(256));
  const Block block = *memory.allocate(1_MiB, Alignment(256));
  BytePattern(9).write(host, PatternCheck::full);
  const Stream s = m.stream();
  const auto size = static_cast<std::size_t>(host.size);
  CHECK(memory.copy_in(s.ref(), block, 0, {host.data, size})->wait().ok());
  CHECK(m.holds(block, 9));
  CHECK(m.checker->write(10, block, PatternCheck::full).ok());
  CHECK(memory.copy_out(s.ref(), block, 0, {host.data, size})->wait().ok());
  CHECK(BytePattern(10).compare(host, PatternCheck::full) == host.size);
  CHECK(m.holds(host, 10));  // the device reads it where it lies
  memory.deallocate(block);
  pinned.deallocate(host);

  Managed managed(m.context());
  const Result<Block> both = managed.allocate(1_MiB, Alignment(256));
  REQUIRE((both.ok() || both.error().code == Errc::unsupported));
  if (!both.ok()) return;
  CHECK(m.checker->write(20, *both, PatternCheck::full).ok());
  CHECK(BytePattern(20).compare(*both, PatternCheck::full) == both->size);
  managed.deallocate(*both);

  std::vector<std::byte> own(1 << 20);
  {
    auto locked = BasicCudaRegistration<Driver>::make(m.context(), {own.data(), 1_MiB});
    CHECK(locked.ok());
    CHECK(!BasicCudaRegistration<Driver>::make(m.context(), {own.data(), 1_MiB}).ok());
  }
  CHECK(BasicCudaRegistration<Driver>::make(m.context(), {own.data(), 1_MiB}).ok());
}

TEST_CASE(
    "device: a best-fit pool over device memory, and a cuda::mr resource, give blocks that do not "
    "touch") {
  Machine m;
  using Heap = BfcHeap<Plain>;
  const auto try_out = [&](auto&& give, auto&& take) {
    std::vector<Block> blocks;
    for (Bytes k = 1; k <= 40; ++k) {
      const Block b = give(k * 1000);
      REQUIRE(b.data != nullptr);
      CHECK(m.checker->write(static_cast<std::uint64_t>(k), b, PatternCheck::full).ok());
      blocks.push_back(b);
    }
    for (std::size_t k = 0; k < blocks.size(); ++k) CHECK(m.holds(blocks[k], k + 1));
    for (const Block b : blocks) take(b);
  };
  Heap heap = std::move(*Heap::make(Plain(m.context()), {}));
  auto pool = heap.pool();
  try_out([&](Bytes n) { return *pool.allocate(n, Alignment(256)); },
          [&](Block b) { pool.deallocate(b); });
  CudaResource<PoolMemory> resource(m.pool.memory(), m.context());
  const Stream s = m.stream();
  try_out(
      [&](Bytes n) {
        const auto size = static_cast<std::size_t>(n);
        auto* const p = static_cast<std::byte*>(resource.allocate(size, 256));
        return Block{p, n};
      },
      [&](Block b) {
        resource.deallocate_async(b.data, static_cast<std::size_t>(b.size), 256,
                                  to_stream_ref(s.ref()));
      });
  CHECK(s.synchronize().ok());
}

TEST_CASE(
    "device: a best-fit pool in the order of streams: three streams share memory and none writes "
    "what another still uses") {
  for (const StreamMarks marks : {StreamMarks::each_free, StreamMarks::on_demand}) {
    Machine m;
    BfcStreamOptions options;
    options.pool.limit = options.pool.region = 16_MiB;
    options.marks = marks;
    const Stream streams[] = {m.stream(), m.stream(), m.stream()};
    auto heap = std::move(*BfcStreamHeap<Plain, Mark>::make(Plain(m.context()), options));
    auto pool = heap.pool();
    struct Use {
      Block block;
      const Stream* stream;
      std::uint64_t stamp;
    };
    std::vector<Use> live;
    std::uint64_t random = 3;
    const auto next = [&](std::size_t n) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      return static_cast<std::size_t>(random >> 33) % n;
    };
    for (std::uint64_t stamp = 1; stamp <= 300; ++stamp) {
      const Stream& s = streams[next(3)];
      const Result<Block> b =
          pool.allocate(s.ref(), static_cast<Bytes>(1 + next(3'000'000)), Alignment(256));
      if (b.ok()) {
        m.write(s, *b, stamp);
        live.push_back({*b, &s, stamp});
      }
      if (b.ok() && next(3) == 0) continue;
      REQUIRE(!live.empty());
      std::swap(live[next(live.size())], live.back());
      const Use use = live.back();
      if (next(4) == 0) {
        CHECK(use.stream->synchronize().ok());
        CHECK(m.holds(use.block, use.stamp));
      }
      pool.deallocate(use.stream->ref(), use.block);
      live.pop_back();
    }
    for (const Use& use : live) pool.deallocate(use.stream->ref(), use.block);
    CHECK(pool.statistics().in_use == 0);
    CHECK(pool.stream_statistics().waits > 0);
    const Result<Block> all = pool.allocate(16_MiB, Alignment(256));  // waits for all of it
    REQUIRE(all.ok());
    pool.deallocate(*all);
  }
}

TEST_CASE("device: virtual memory gives blocks and takes them back in a stream's order") {
  Machine m;
  const Stream s = m.stream();
  auto owner = BasicCudaVmm<Driver>::make(m.context(), {});
  REQUIRE((owner.ok() || owner.error().code == Errc::unsupported));
  if (!owner.ok()) return;
  auto memory = owner->memory();
  for (std::uint64_t round = 1; round <= 5; ++round) {
    const Block b = *memory.allocate(s, 5_MiB, Alignment(256));
    m.write(s, b, round);
    CHECK(s.synchronize().ok());
    CHECK(m.holds(b, round));
    memory.deallocate(s, b);
  }
  CHECK(s.synchronize().ok());
  CHECK(memory.trim(0) >= 5_MiB);
}

TEST_CASE("device: a pool over a segment grows in place and gives its granules back") {
  Machine m;
  using Source = BasicCudaSegmentMemory<Driver>;
  auto segment = BasicCudaSegment<Driver>::reserve(m.context(), 32_MiB);
  if (!segment.ok() && segment.error().code == Errc::unsupported) return;
  REQUIRE(segment.ok());
  const Stream s = m.stream();
  {
    BfcOptions options;
    options.region = segment->granule();
    auto heap = std::move(
        *BfcHeap<Source, BestFit, ExactSplit, ExactGrowth>::make(Source(*segment), options));
    auto pool = heap.pool();
    const Block a = *pool.allocate(4_MiB, Alignment(256)), b = *pool.allocate(4_MiB, Alignment(256));
    CHECK(b.data == a.data + 4_MiB);
    m.write(s, a, 1);
    m.write(s, b, 2);
    CHECK(s.synchronize().ok());
    CHECK(m.holds(a, 1));
    CHECK(m.holds(b, 2));
    pool.deallocate(a);
    pool.deallocate(b);
    const Block both = *pool.allocate(8_MiB, Alignment(256));  // over what were two regions
    CHECK(both.data == a.data);
    m.write(s, both, 3);
    CHECK(s.synchronize().ok());
    CHECK(m.holds(both, 3));
    pool.deallocate(both);
    CHECK(pool.trim(0) == 8_MiB);
  }
  CHECK(segment->mapped() == 0);
}

TEST_CASE("device: virtual memory shared by a file is the same memory where it is mapped again") {
  Machine m;
  auto owner = BasicCudaVmm<Driver>::make(m.context(), {});
  if (!owner.ok() && owner.error().code == Errc::unsupported) return;
  REQUIRE(owner.ok());
  auto memory = owner->memory();
  const Block block = *memory.allocate(3_MiB, Alignment(256));
  const ShareIdentity here{{}, 1, 5}, there{{}, 2, 0};
  {
    const Stream s = m.stream();
    auto shared = memory.share(block, here);
    REQUIRE(shared.ok());
    auto import = BasicCudaFileImport<Driver>::open(m.context(), shared->file(), shared->blob(),
                                                    there, 5);
    REQUIRE(import.ok());
    CHECK(import->block().size == 3_MiB);
    CHECK(import->block().data != block.data);
    m.write(s, import->block(), 9);
    CHECK(s.synchronize().ok());
    CHECK(m.holds(block, 9));
    m.write(s, block, 10);
    CHECK(s.synchronize().ok());
    CHECK(m.holds(import->block(), 10));
  }
  memory.deallocate(block);
}

TEST_CASE("device: a plan with a loop is carried out on device memory, every value checked there") {
  constexpr char text[] = R"(HloModule loop, input_output_alias={ {}: (0, {}, may-alias) }
body {
  s = (f32[70000], f32[70000]) parameter(0)
  a = f32[70000] get-tuple-element(s), index=0
  b = f32[70000] get-tuple-element(s), index=1
  c = f32[70000] custom-call(a, b), custom_call_target="C"
  ROOT t = (f32[70000], f32[70000]) tuple(b, c)
}
condition {
  s = (f32[70000], f32[70000]) parameter(0)
  a = f32[70000] get-tuple-element(s), index=0
  ROOT p = pred[] custom-call(a), custom_call_target="P"
}
ENTRY e {
  x = f32[70000] parameter(0)
  y = f32[70000] parameter(1)
  s = (f32[70000], f32[70000]) tuple(x, y)
  w = (f32[70000], f32[70000]) while(s), condition=condition, body=body
  r = f32[70000] get-tuple-element(w), index=1
  ROOT o = f32[70000] custom-call(r, x), custom_call_target="C"
}
)";
  const PlannedText p(text);
  Machine m;
  using Executor = PlanExecutor<PoolMemory, Mark>;
  BasicPatternKernel<program::DevicePatterns<Checker>> kernel(p.program(), PatternCheck::full, 3, 1,
                                                              {m.checker.get()});
  Executor executor = std::move(*Executor::make(p.program(), m.pool.memory(), kernel));
  std::vector<Executor::buffer_type> results;
  CHECK(testing::run_once(p, executor, m.pool.memory(), kernel, results, [](Block) {}).ok());
  CHECK(kernel.fault().kind == PatternFault::Kind::none);
  CHECK(kernel.values_checked() > 10);
}
