// SPDX-License-Identifier: Apache-2.0
// A best-fit pool in the order of CUDA's streams, over plain memory, virtual memory and a segment that grows in place.
#include "holdfast/backend/bfc/stream_pool.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "double/cuda_sources.hpp"
#include "holdfast/backend/layer/locked.hpp"
#include "holdfast/backend/stack.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "support/stream_pools.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

// A world as the support's checks want one: it keeps its streams.
template <class Of>
struct Streams : Of {
  using Of::Of;
  using Event = DoubleEvent;
  using Stream = DoubleStreamRef;
  Stream stream() {
    owned.push_back(Of::stream());
    return owned.back().ref();
  }
  void kernel(const Stream& s, Block b, const char* name) { write_kernel(*this, s, b, name); }
  auto hold(const Stream& s) { return this->cuda.hold(s.native()); }
  void step() { static_cast<void>(this->cuda.machine.pump()); }
  void drain() { this->cuda.machine.drain(); }
  std::string races() { return this->cuda.races(); }
  std::deque<DoubleStream> owned;
};
using Plain = Streams<PlainSource>;
using Virtual = Streams<VirtualSource>;
using Growing = Streams<GrowingSource>;
#define WORLDS Plain, Virtual, Growing

constexpr StreamMarks both[] = {StreamMarks::each_free, StreamMarks::on_demand};

}  // namespace

TEST_CASE_TEMPLATE("cuda bfc streams: case 06, a block of two streams' frees is waited for on both, what is left on its own, over seeds", W,
                   WORLDS) {
  using Pool = typename StreamHeapOf<W>::Pool;
  static_assert(stream_ordered_backend<Pool> && copying_backend<Pool> && std::is_same_v<typename Pool::event_type, DoubleEvent>);
  for (const StreamMarks marks : both)
    for (const bool from_host : {false, true})
      for (std::uint64_t seed = 1; seed <= 4; ++seed) check_case_06<W>(marks, from_host, seed);
}

TEST_CASE_TEMPLATE("cuda bfc streams: case 06, with one of the two still in use there is no such block", W, WORLDS) {
  check_case_06_refused<W>();
}

TEST_CASE_TEMPLATE("cuda bfc streams: a stream has its own again at once, another waits for just that, nobody once it has passed", W, WORLDS) {
  for (const StreamMarks marks : both) check_waits<W>(marks);
}

TEST_CASE_TEMPLATE("cuda bfc streams: four streams that take and free at random never meet, over seeds; each mistake is found", W, WORLDS) {
  const auto found = [](auto mistaken, StreamMarks marks) {
    using E = decltype(mistaken);
    int n = 0;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      W w(seed);
      w.check_races = std::is_same_v<E, DoubleEvent>;
      n += random_streams<W, E>(w, stream_pool_of(64_KiB, marks), seed, seed % 2 == 0);
    }
    return n;
  };
  for (const StreamMarks marks : both) {
    CHECK(found(DoubleEvent{}, marks) == 0);
    CHECK(found(MistakenEvent<DoubleEvent, Mistake::waits_for_nothing>{}, marks) == 5);
    CHECK(found(MistakenEvent<DoubleEvent, Mistake::seen_too_early>{}, marks) == 5);
    CHECK(found(MistakenEvent<DoubleEvent, Mistake::never_recorded>{}, marks) == 5);
    CHECK(found(MistakenEvent<DoubleEvent, Mistake::comes_after_anyway>{}, marks) == 5);
  }
}

TEST_CASE_TEMPLATE("cuda bfc streams: a stream may be destroyed with its kernel pending: after a free with its mark, or retired", W, WORLDS) {
  for (const StreamMarks marks : both)
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      W w(seed);
      const DoubleStreamRef b = w.stream();
      auto heap = stream_heap(w, stream_pool_of(16_KiB, marks));
      auto pool = heap.pool();
      Block p;
      for (int round = 0; round < 3; ++round) {  // a new stream may get the old one's handle
        const DoubleStream a = std::move(*w.context->make_stream());
        p = *pool.allocate(a, 16_KiB, wide);
        w.kernel(a, p, "KA");
        pool.deallocate(a, p);
        if (marks == StreamMarks::on_demand) CHECK(pool.retire(a).ok());
      }
      CHECK(pool.allocate(b, 16_KiB, wide)->data == p.data);
      w.kernel(b, p, "KB");
      pool.deallocate(b, p);
    }
}

TEST_CASE("cuda bfc streams: what a stream comes after anyway it has without a wait of the pool's, asked of no driver") {
  Plain w(1);
  const auto a = w.stream(), b = w.stream();
  auto heap = stream_heap(w, stream_pool_of(16_KiB));
  auto pool = heap.pool();
  const Block p = *pool.allocate(a, 8_KiB, wide);
  auto finish = w.hold(a);
  w.kernel(a, p, "KA");
  pool.deallocate(a, p);
  const DoubleEvent later = w.mark(a);
  CHECK(later.wait_on(b).ok());
  const auto calls = w.cuda.calls();
  const Block q = *pool.allocate(b, 8_KiB, wide);
  CHECK(w.cuda.calls() == calls);
  CHECK(pool.stream_statistics().waits == 0);
  w.kernel(b, q, "KB");
  CHECK(finish.set().ok());
  pool.deallocate(b, q);
}

TEST_CASE("cuda bfc streams: one stream records an event a free, or makes no call of the driver") {
  for (const StreamMarks marks : both) {
    Plain w(1);
    const auto a = w.stream();
    auto heap = stream_heap(w, stream_pool_of(64_KiB, marks));
    auto pool = heap.pool();
    const auto round = [&] {
      const Block p = *pool.allocate(a, 4_KiB, wide), q = *pool.allocate(a, 8_KiB, wide);
      pool.deallocate(a, p);
      pool.deallocate(a, q);
    };
    for (int i = 0; i < 20; ++i) round();
    const auto calls = w.cuda.calls(), records = w.cuda.count("cuEventRecord");
    for (int i = 0; i < 100; ++i) round();
    CHECK(w.cuda.count("cuEventRecord") - records == (marks == StreamMarks::each_free ? 200 : 0));
    if (marks == StreamMarks::on_demand) CHECK(w.cuda.calls() == calls);
    CHECK(w.cuda.count("cuEventCreate") < 20);  // they are used again
  }
}

TEST_CASE_TEMPLATE("cuda bfc streams: every call fails once wherever it is made: no race, nothing lost", W, Plain, Growing) {
  for (const StreamMarks marks : both)
    for (std::uint64_t n = 1;; n += std::is_same_v<W, Plain> ? 7 : 31) {  // a call comes with four about its context: the step meets each kind
      W w(n);
      std::vector<DoubleStreamRef> streams;
      for (int i = 0; i < 3; ++i) streams.push_back(w.stream());
      w.cuda.fail_at(n, CUDA_ERROR_UNKNOWN);
      CAPTURE(n);
      {
        auto heap = stream_heap(w, stream_pool_of(64_KiB, marks));
        auto pool = heap.pool();
        std::vector<std::pair<DoubleStreamRef, Block>> live;
        std::uint64_t random = 5;
        for (int step = 0; step < 20; ++step) {
          random = random * 6364136223846793005u + 1442695040888963407u;
          const DoubleStreamRef s = streams[(random >> 33) % 3];
          const auto size = static_cast<Bytes>(1 + (random >> 36) % 24'000);
          const Result<Block> b = step % 9 == 0 ? pool.allocate(size, wide) : pool.allocate(s, size, wide);
          if (b.ok()) w.kernel(s, *b, "kernel"), live.emplace_back(s, *b);
          if (live.empty() || (b.ok() && step % 3 == 0)) continue;
          std::swap(live[(random >> 20) % live.size()], live.back());
          pool.deallocate(live.back().first, live.back().second);
          live.pop_back();
        }
        for (const auto& [s, b] : live) pool.deallocate(s, b);
        CHECK(pool.statistics().in_use == 0);
        CHECK(pool.stream_statistics().stranded == 0);
        const Bytes held = pool.statistics().reserved;
        if (held != 0) {
          const Result<Block> all = pool.allocate(streams[0], held, wide);
          if (w.cuda.failed_call.empty()) CHECK(all.ok());
          if (all.ok()) w.kernel(streams[0], *all, "all"), pool.deallocate(streams[0], *all);
        }
      }
      w.expected_unreported = w.context->unreported().code;
      if (w.cuda.failed_call.empty()) break;
    }
}

TEST_CASE_TEMPLATE("cuda bfc streams: tracked buffers on it are written and read by copies of streams, over seeds", W, WORLDS) {
  using Pool = typename StreamHeapOf<W>::Pool;
  using Buffer = TrackedBuffer<Pool, DoubleEvent, SharedHold>;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    W w(seed);
    const auto a = w.stream(), b = w.stream();
    BfcStreamOptions options;
    options.pool.limit = 4_MiB;
    auto heap = stream_heap(w, options);
    Pool pool = heap.pool();
    std::vector<std::byte> out(1000);
    const std::vector<std::byte> in(1000, static_cast<std::byte>(seed));
    for (int round = 0; round < 5; ++round) {
      const Block scratch = *pool.allocate(b, 3_MiB, wide);
      w.kernel(b, scratch, "scratch");
      pool.deallocate(b, scratch);
      Buffer x = std::move(*Buffer::allocate(pool, 1000)), y = std::move(*Buffer::allocate(pool, 1000));
      const Block from = x.hold(HoldKind::usage)->raw().block(), to = y.hold(HoldKind::usage)->raw().block();
      const DoubleEvent written = *pool.copy_in(a, from, 0, in);
      CHECK(written.wait_on(b).ok());
      x.hold(HoldKind::usage)->convert(*pool.copy(b, to, 0, from, 0, 1000));
      CHECK(x.release().ok());
      const DoubleEvent read = *pool.copy_out(b, to, 0, out);
      y.hold(HoldKind::usage)->convert(read);
      CHECK(y.release().ok());
      CHECK(read.wait().ok());
      CHECK(out == in);
    }
    CHECK(w.context->synchronize().ok());
    CHECK(pool.statistics().in_use == 0);
  }
}

TEST_CASE_TEMPLATE("cuda bfc streams: a tracked buffer deleted in a stream's order gives its memory to that stream at once, and the host waits for nothing",
                   W, WORLDS) {
  using Pool = typename StreamHeapOf<W>::Pool;
  using Buffer = TrackedBuffer<Pool, DoubleEvent, SharedHold>;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    W w(seed);
    const auto compute = w.stream(), copies = w.stream();
    auto heap = stream_heap(w, stream_pool_of(1_MiB, StreamMarks::each_free));
    Pool pool = heap.pool();
    std::vector<std::vector<std::byte>> out(20, std::vector<std::byte>(1000));
    {
      const auto made = [&] {
        return std::move(*Buffer::allocate_on(pool, compute, 1000, wide, [&](Block block) noexcept {
          w.kernel(compute, block, "write");
          return DoubleEvent::recorded_on(compute);
        }));
      };
      const std::byte* place = nullptr;
      for (auto& bytes : out) {
        Buffer x = made();
        auto use = std::move(*x.hold(HoldKind::usage));
        place = place == nullptr ? use.raw().data() : place;
        CHECK(use.raw().data() == place);
        CHECK(use.definition_events()[0].wait_on(copies).ok());
        use.convert(*pool.copy_out(copies, use.raw().block(), 0, bytes));
        CHECK(x.release_on(compute).ok());
      }
      CHECK(w.cuda.count("cuEventSynchronize") + w.cuda.count("cuStreamSynchronize") + w.cuda.count("cuCtxSynchronize") == 0);
    }
    CHECK(w.context->synchronize().ok());
    for (const auto& bytes : out) CHECK(bytes == std::vector<std::byte>(1000, std::byte{1}));
    CHECK(pool.statistics().in_use == 0);
  }
}

TEST_CASE("cuda bfc streams: under a lock, what was dropped comes back within the request that needs the room") {
  using Memory = Stack<StreamHeapOf<Plain>::Pool, Locked<ReentrantLock>>;
  using Buffer = TrackedBuffer<Memory, DoubleEvent, SharedHold>;
  Plain w(1);
  const auto s = w.stream();
  BfcStreamOptions options;
  options.pool.region = 32_MiB;
  auto heap = stream_heap(w, options);
  ReentrantLock lock;
  auto memory = make_stack<Memory>(heap.pool(), lock);
  {
    Buffer x = std::move(*Buffer::allocate(memory, 32_MiB));
    auto use = std::move(*x.hold(HoldKind::usage));
    w.kernel(s, use.raw().block(), "use");
    use.convert(*DoubleEvent::recorded_on(s));
  }
  w.drain();
  CHECK(heap.pool().statistics().in_use == 32_MiB);  // the device is done; the host has not looked
  const Result<Buffer> y = Buffer::allocate(memory, 48_MiB);
  CHECK(y.ok());
  CHECK(heap.pool().statistics().in_use == 48_MiB);
}
