// SPDX-License-Identifier: Apache-2.0
// Best fit with coalescing over CUDA memory: on plain memory, on virtual memory and on a segment that grows in place; reused
// across streams as the numbers of frees and their events allow.
#include "holdfast/backend/bfc_pool.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/segment_memory.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

// Sources of regions, each in its world.
struct Plain : CudaWorld {
  using CudaWorld::CudaWorld;
  using Source = BasicCudaDeviceMemory<DoubleDriver>;
  Source source() { return Source(*context); }
};
struct Virtual : CudaWorld {
  using CudaWorld::CudaWorld;
  using Source = BasicCudaVmmMemory<DoubleDriver>;
  Source source() { return vmm.memory(); }
  BasicCudaVmm<DoubleDriver> vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*context));
};
struct Growing : CudaWorld {
  using CudaWorld::CudaWorld;
  using Source = BasicCudaSegmentMemory<DoubleDriver>;
  Source source() { return Source(segment); }
  BasicCudaSegment<DoubleDriver> segment = std::move(*BasicCudaSegment<DoubleDriver>::reserve(*context, 64_MiB));
};
#define SOURCES Plain, Virtual, Growing

template <class World>
using HeapOf = BfcHeap<typename World::Source, BestFit, ExactSplit>;

BfcOptions fixed(Bytes size) {
  BfcOptions o;
  o.limit = o.region = size;
  return o;
}

enum class Mistake { none, no_wait, early_frontier, forgets_merged };

// Frees in the order of streams: each has a number, which stamps its block, and an event; the pool's frontier follows the events.
template <class Pool>
class Frees {
 public:
  explicit Frees(Pool pool, Mistake mistake = Mistake::none) : pool_(pool), mistake_(mistake) {}

  void release(CudaWorld& w, const DoubleStreamRef& stream, Block block) {
    freed_.push_back(w.mark(stream));
    pool_.set_now(freed_.size());
    pool_.deallocate(block);
  }
  // Takes what the stream comes after anyway, else what it has to wait for least, else all that is free, joined.
  Result<Block> take(const DoubleStreamRef& stream, Bytes size) {
    return take_after(size, [&](const DoubleEvent& e) { return e.ready() || e.is_defined_on(stream); },
                      [&](const DoubleEvent& e) { CHECK(e.wait_on(stream).ok()); });
  }
  // For all streams: the host waits.
  Result<Block> take_now(Bytes size) {
    return take_after(size, [](const DoubleEvent& e) { return e.ready(); }, [](const DoubleEvent& e) { CHECK(e.wait().ok()); });
  }

 private:
  template <class Comes, class Wait>
  Result<Block> take_after(Bytes size, Comes comes_after, Wait wait) {
    while (done_ < freed_.size() && freed_[done_].ready()) ++done_;
    pool_.set_safe_frontier((mistake_ == Mistake::early_frontier ? freed_.size() : done_) + 1);
    std::size_t n = done_;
    while (n < freed_.size() && comes_after(freed_[n])) ++n;
    for (; n <= freed_.size(); ++n)
      if (Result<Block> got = pool_.allocate_freed_before(n, size, Alignment(256)); got.ok()) {
        wait_up_to(n, wait);
        return got;
      }
    Result<Block> joined = pool_.allocate(size, Alignment(256));
    if (!joined.ok()) return joined;
    wait_up_to(freed_.size(), wait);
    // As if the block that was joined had the events of the stream that took it, which has recorded none.
    if (mistake_ == Mistake::forgets_merged) freed_.assign(freed_.size(), DoubleEvent{});
    return joined;
  }
  template <class Wait>
  void wait_up_to(std::size_t n, Wait wait) {
    if (mistake_ != Mistake::no_wait)
      while (n-- > done_) wait(freed_[n]);  // a stream's last one implies those before
  }
  Pool pool_;
  Mistake mistake_;
  std::vector<DoubleEvent> freed_;  // number n at n - 1
  std::size_t done_ = 0;            // those up to it have passed
};

void kernel(CudaWorld& w, const DoubleStreamRef& s, Block block, const char* name) {
  w.cuda.launch(s.native(), name, {writes(block)}, [block] { std::memset(block.data, 1, static_cast<std::size_t>(block.size)); });
}
bool passed(CudaWorld& w, const DoubleEvent& e) {
  w.cuda.machine.drain();
  return e.ready();
}

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
    if constexpr (std::is_same_v<World, Growing>) CHECK(w.segment.mapped() == 0);
  }
}

TEST_CASE("cuda bfc: over a segment regions join, so a block may be larger than any of them; trimmed, its addresses come again") {
  Growing w;
  BfcOptions o;
  o.region = 2_MiB;
  auto heap = std::move(*BfcHeap<Growing::Source, BestFit, BfcSplit, ExactGrowth>::make(w.source(), o));
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
  Growing w;
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
  Growing w;
  const DoubleStream s = w.stream();
  auto memory = w.source();
  const Block b = *memory.allocate(2_MiB, Alignment(256));
  kernel(w, s, b, "kernel");
  memory.deallocate(b);
  CHECK(w.segment.mapped() == 0);
}

TEST_CASE_TEMPLATE("cuda bfc: case 06, a block merged of two streams' frees is waited for on both, and so is what is left of it", World, SOURCES) {
  for (const bool now : {false, true})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      CAPTURE(now);
      World w(seed);
      const DoubleStream a = w.stream(), b = w.stream(), c = w.stream(), d = w.stream();
      HeapOf<World> heap = std::move(*HeapOf<World>::make(w.source(), fixed(3_MiB)));
      auto pool = heap.pool();
      Frees frees(pool);
      const Block p = *frees.take(a, 1_MiB), q = *frees.take(b, 2_MiB);
      CHECK(q.data == p.data + 1_MiB);
      auto finish_a = std::optional(w.cuda.hold(a.native())), finish_b = std::optional(w.cuda.hold(b.native()));
      kernel(w, a, p, "KA");
      frees.release(w, a, p);
      kernel(w, b, q, "KB");
      frees.release(w, b, q);
      const auto before = w.cuda.count("cuCtxSynchronize") + w.cuda.count("cuEventSynchronize") + w.cuda.count("cuStreamSynchronize");
      const Block r = *frees.take(c, 2560_KiB);
      CHECK(r.data == p.data);
      kernel(w, c, r, "KC");
      const DoubleEvent used = w.mark(c);
      CHECK(pool.largest_free() == 512_KiB);
      if (now) {
        CHECK(!passed(w, used));
        CHECK(finish_a->set().ok());
        CHECK(finish_b->set().ok());  // else the call would not return
        const Block s = *frees.take_now(512_KiB);
        CHECK(s.data == p.data + 2560_KiB);
        kernel(w, d, s, "KD");
        frees.release(w, d, s);
      } else {
        const Block s = *frees.take(d, 512_KiB);
        CHECK(s.data == p.data + 2560_KiB);
        kernel(w, d, s, "KD");
        const DoubleEvent first = w.mark(d);
        CHECK(!passed(w, first));
        CHECK(finish_a->set().ok());
        CHECK(!passed(w, first));
        CHECK(!used.ready());
        CHECK(finish_b->set().ok());
        CHECK(passed(w, first));
        CHECK(used.ready());
        frees.release(w, d, s);
        CHECK(w.cuda.count("cuCtxSynchronize") + w.cuda.count("cuEventSynchronize") + w.cuda.count("cuStreamSynchronize") == before);
      }
      frees.release(w, c, r);
      CHECK(w.context->synchronize().ok());
      CHECK(frees.take(d, 3_MiB).ok());  // all of it is one again
      pool.deallocate({p.data, 3_MiB});
    }
}

TEST_CASE_TEMPLATE("cuda bfc: case 06, with one of the two still in use there is no such block, and the error says so", World, SOURCES) {
  World w;
  const DoubleStream a = w.stream(), b = w.stream(), c = w.stream();
  HeapOf<World> heap = std::move(*HeapOf<World>::make(w.source(), fixed(3_MiB)));
  Frees frees(heap.pool());
  const Block p = *frees.take(a, 1_MiB), q = *frees.take(b, 2_MiB);
  frees.release(w, a, p);
  const Error e = frees.take(c, 2560_KiB).error();
  CHECK(status_kind(e) == StatusKind::resource_exhausted);
  CHECK(e.available == 1_MiB);
  frees.release(w, b, q);
}

TEST_CASE_TEMPLATE("cuda bfc: a stream has its own frees again at once, another's without a wait once they have passed", World, SOURCES) {
  World w;
  const DoubleStream a = w.stream(), b = w.stream();
  HeapOf<World> heap = std::move(*HeapOf<World>::make(w.source(), fixed(3_MiB)));
  Frees frees(heap.pool());
  const auto waits = [&] { return w.cuda.count("cuStreamWaitEvent"); };
  const Block p = *frees.take(a, 1_MiB), q = *frees.take(a, 2_MiB);
  auto finish = w.cuda.hold(a.native());
  kernel(w, a, p, "KA");
  frees.release(w, a, p);
  CHECK(*frees.take(a, 1_MiB) == p);
  CHECK(waits() == 0);
  frees.release(w, a, p);
  CHECK(*frees.take(b, 1_MiB) == p);  // pending: it waits for frees up to the block's, by one wait
  CHECK(waits() == 1);
  frees.release(w, b, p);
  CHECK(finish.set().ok());
  w.cuda.machine.drain();
  const DoubleStream c = w.stream();
  CHECK(*frees.take(c, 1_MiB) == p);
  CHECK(waits() == 1);
  frees.release(w, c, p);
  frees.release(w, a, q);
}

TEST_CASE_TEMPLATE("cuda bfc: four streams that take and free at random never meet, over seeds; each way to forget a wait is found", World,
                   SOURCES) {
  for (const Mistake mistake : {Mistake::none, Mistake::no_wait, Mistake::early_frontier, Mistake::forgets_merged}) {
    int found = 0;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      World w(seed);
      w.check_races = mistake == Mistake::none;
      std::vector<DoubleStream> streams;
      for (int i = 0; i < 4; ++i) streams.push_back(w.stream());
      HeapOf<World> heap = std::move(*HeapOf<World>::make(w.source(), fixed(64_KiB)));
      Frees frees(heap.pool(), mistake);
      std::vector<std::pair<std::size_t, Block>> live;
      std::uint64_t random = seed * 0x9E3779B97F4A7C15u;
      const auto next = [&](std::size_t n) { return static_cast<std::size_t>((random = random * 6364136223846793005u + 1442695040888963407u) >> 33) % n; };
      for (int step = 0; step < 100; ++step) {
        const std::size_t s = next(4);
        const Result<Block> got = frees.take(streams[s], static_cast<Bytes>(1 + next(24'000)));
        if (got.ok()) {
          kernel(w, streams[s], *got, "kernel");
          live.emplace_back(s, *got);
        }
        if (!got.ok() || next(3) == 0) {
          REQUIRE(!live.empty());
          std::swap(live[next(live.size())], live.back());
          frees.release(w, streams[live.back().first], live.back().second);
          live.pop_back();
        }
        if (next(8) == 0) static_cast<void>(w.cuda.machine.pump());
      }
      for (const auto& [s, block] : live) frees.release(w, streams[s], block);
      found += w.cuda.races().find("kernel") != std::string::npos;
      CHECK(w.context->synchronize().ok());
    }
    CAPTURE(static_cast<int>(mistake));
    CHECK(found == (mistake == Mistake::none ? 0 : 10));
  }
}
