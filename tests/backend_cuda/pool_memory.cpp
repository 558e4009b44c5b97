// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/pool_memory.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "double/cuda_world.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/event/combine.hpp"
#include "holdfast/event/promise.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {
using Pool = BasicCudaPool<DoubleDriver>;
using Memory = BasicCudaPoolMemory<DoubleDriver>;
static_assert(stream_ordered_backend<Memory> && copying_backend<Memory> && !std::is_copy_constructible_v<Pool>);

struct PoolWorld : CudaWorld {
  using CudaWorld::CudaWorld;
  explicit PoolWorld(Bytes capacity) : CudaWorld(sized(capacity)) {}
  static CudaDoubleOptions sized(Bytes capacity) {
    CudaDoubleOptions o;
    o.capacity = capacity;
    return o;
  }
  Pool make(const CudaPoolOptions& o = {}) { return std::move(*Pool::make(*context, o)); }
  void kernel(const DoubleStreamRef& s, std::string_view name, Block block, int value) {
    cuda.launch(s.native(), name, {writes(block)}, [block, value] { std::memset(block.data, value, static_cast<std::size_t>(block.size)); });
  }
};
}  // namespace

TEST_CASE("cuda pool: a stream has its own released block again at once, without a wait") {
  PoolWorld w;
  const Pool pool = w.make();
  Memory m = pool.memory();
  const DoubleStream s = w.stream();
  const Block a = *m.allocate(s, 1_MiB, Alignment(256));
  w.kernel(s, "write", a, 1);
  m.deallocate(s, a);
  const Block b = *m.allocate(s, 1_MiB, Alignment(256));
  CHECK(b.data == a.data);
  w.kernel(s, "write again", b, 2);
  m.deallocate(s, b);
  CHECK(w.cuda.count("cuStreamWaitEvent") == 0);
  CHECK(w.cuda.count("cuStreamSynchronize") == 0);
}

TEST_CASE("cuda pool: what is allocated without a stream is good on every stream at once (rapidsai/rmm#2156)") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    PoolWorld w(seed);
    const Pool pool = w.make();
    Memory m = pool.memory();
    const DoubleStream a = w.stream(), b = w.stream();
    const Block old = *m.allocate(a, 32_MiB, Alignment(256));
    w.kernel(a, "use of the old block", old, 1);
    m.deallocate(a, old);
    const Block fresh = *m.allocate(48_MiB, Alignment(256));  // only with the old block's memory
    w.kernel(b, "use of the new block", fresh, 2);
    CHECK(b.synchronize().ok());
    m.deallocate(fresh);
  }
}

TEST_CASE("cuda pool: a block used on a stream that does not wait for its allocation is found as a race") {
  PoolWorld w;
  const Pool pool = w.make();
  Memory m = pool.memory();
  const DoubleStream a = w.stream(), b = w.stream();
  w.work(a);
  const Block block = *m.allocate(a, 4096, Alignment(256));
  w.kernel(b, "use too early", block, 1);
  CHECK(w.context->synchronize().ok());
  m.deallocate(block);
  CHECK(w.cuda.races().find("use too early") != std::string::npos);
  w.check_races = false;
}

TEST_CASE("cuda pool: beyond its limit it is out of memory: how much was asked for and is free, the call, the code") {
  PoolWorld w(8_MiB);
  const Pool pool = w.make({.limit = 4_MiB});
  Memory m = pool.memory();
  const Block a = *m.allocate(3_MiB, Alignment(256));
  const Error e = m.allocate(2_MiB, Alignment(256)).error();
  CHECK(e.code == Errc::out_of_memory);
  CHECK(e.stage == Stage::allocation);
  CHECK(e.native == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(e.requested == 2_MiB);
  CHECK(e.available == 5_MiB);
  CHECK(says(e, "cuMemAllocFromPoolAsync failed"));
  m.deallocate(a);
  CHECK(Pool::make(*w.context, {.limit = -1}).error().code == Errc::invalid_argument);
}

TEST_CASE("cuda pool: memory that a continuation would give back is had before a request fails") {
  PoolWorld w(4_MiB);
  const Pool pool = w.make();
  const DoubleStream s = w.stream();
  using Buffer = TrackedBuffer<Memory, DoubleEvent, SharedHold>;
  Buffer old = std::move(*Buffer::allocate(pool.memory(), 3_MiB));
  w.work(s);
  const DoubleEvent read = w.mark(s);
  old.hold(HoldKind::usage)->convert(read);
  CHECK(old.release().ok());
  CHECK(pool.memory().used() == 3_MiB);
  while (!read.ready()) {
  }
  CHECK(pool.memory().used() == 3_MiB);  // nobody has run its continuation
  Memory m = pool.memory();
  const Result<Block> block = m.allocate(3_MiB, Alignment(256));
  REQUIRE(block.ok());
  m.deallocate(*block);
}

TEST_CASE("cuda pool: it keeps what is idle until it is trimmed, or as much as it was told to") {
  PoolWorld w;
  for (const Bytes keep : {max_bytes, Bytes{0}, 4_MiB}) {
    const Pool pool = w.make({.keep = keep});
    Memory m = pool.memory();
    m.deallocate(*m.allocate(16_MiB, Alignment(256)));
    CHECK(m.peak_used() == 16_MiB);
    CHECK(m.used() == 0);
    CHECK(w.context->synchronize().ok());
    CHECK(m.reserved() == std::min(keep, 16_MiB));
    const Bytes held = m.reserved();
    CHECK(m.trim(2_MiB) == std::max<Bytes>(held - 2_MiB, 0));
    CHECK(m.trim(0) == std::min(held, 2_MiB));
    CHECK(m.reserved() == 0);
    CHECK(m.peak_reserved() == 16_MiB);
  }
}

TEST_CASE("cuda pool: destroyed before its blocks are, it goes when the last is back") {
  PoolWorld w;
  const DoubleStream s = w.stream();
  Block block;
  {
    const Pool pool = w.make();
    block = *pool.memory().allocate(s, 4096, Alignment(256));
  }
  CHECK(w.cuda.leaks().find("1 pools") != std::string::npos);
  const DoubleDriver driver = w.cuda.driver();
  REQUIRE(driver(cuda_call::MemFreeAsync{}, detail::cuda_address(block.data), s.native()) == CUDA_SUCCESS);
}

TEST_CASE("cuda pool: bytes go in, over and out on streams in the order of events, over seeds of delays") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    PoolWorld w(seed);
    const Pool pool = w.make();
    Memory m = pool.memory();
    const DoubleStream a = w.stream(), b = w.stream();
    std::vector<std::byte> in(10'000), out(10'000);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(i * 7);
    w.cuda.host_writes(in);
    const Block x = *m.allocate(a, 10'000, Alignment(256)), y = *m.allocate(b, 10'000, Alignment(256));
    const DoubleEvent arrived = *m.copy_in(a, x, 0, in);
    CHECK(arrived.wait_on(b).ok());
    const DoubleEvent copied = *m.copy(b, y, 0, x, 0, 10'000);
    CHECK(copied.wait_on(a).ok());
    m.deallocate(a, x);
    const DoubleEvent left = *m.copy_out(b, y, 0, out);
    m.deallocate(b, y);
    CHECK(left.wait().ok());
    w.cuda.host_reads(out);
    CHECK(in == out);
  }
}

TEST_CASE("cuda pool: a copy beyond a block is refused before anything moves, an empty one is done") {
  PoolWorld w;
  const Pool pool = w.make();
  Memory m = pool.memory();
  const Block x = *m.allocate(64, Alignment(64));
  std::array<std::byte, 65> host{};
  CHECK(m.copy_in(x, 0, host).error().code == Errc::invalid_argument);
  CHECK(m.copy_out(x, 1, std::span(host).first(64)).error().code == Errc::invalid_argument);
  CHECK(m.copy(x, -1, x, 0, 1).error().code == Errc::invalid_argument);
  CHECK(m.copy(x, 0, x, 60, max_bytes).error().code == Errc::invalid_argument);
  CHECK(m.copy_in(x, 64, {})->wait().ok());
  CHECK(w.cuda.count("cuMemcpyAsync") == 0);
  m.deallocate(x);
}

TEST_CASE("cuda pool: another device is let in, or refused where it cannot") {
  for (const bool can : {true, false}) {
    CudaDoubleOptions o;
    o.peers = can;
    PoolWorld w(o);
    const Pool pool = w.make();
    CHECK(pool.allow(*w.other).code == (can ? Errc::ok : Errc::unsupported));
  }
}

TEST_CASE("cuda pool: cases/06 merged blocks bring all their streams' work along, and the left-over part does, too") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed)
    for (const bool sync : {false, true})
      for (const bool skip_b : {false, true}) {
        CudaDoubleOptions o = PoolWorld::sized(3_MiB);
        o.seed = seed;
        PoolWorld w(o);
        const Pool pool = w.make();
        Memory m = pool.memory();
        const DoubleStream a = w.stream(), b = w.stream(), c = w.stream(), d = w.stream();
        const Block p = *m.allocate(a, 1_MiB, Alignment(256)), q = *m.allocate(b, 2_MiB, Alignment(256));
        CHECK(q.data == p.data + 1_MiB);
        auto finish_a = w.cuda.hold(a.native()), finish_b = w.cuda.hold(b.native());
        w.kernel(a, "KA", p, 1);
        w.kernel(b, "KB", q, 2);
        m.deallocate(a, p);
        if (skip_b) {
          CHECK(m.allocate(c, 5_MiB / 2, Alignment(256)).error().code == Errc::out_of_memory);
          static_cast<void>(finish_a.set());
          static_cast<void>(finish_b.set());
          m.deallocate(b, q);
          continue;
        }
        m.deallocate(b, q);
        const Block r = *m.allocate(c, 5_MiB / 2, Alignment(256));
        CHECK(r.data == p.data);
        bool ran_c = false, ran_d = false;
        w.cuda.launch(c.native(), "C's first use", {writes(r)}, [&ran_c] { ran_c = true; });
        if (sync) {
          std::atomic<bool> completed{false};
          static_cast<void>(finish_a.set());
          std::thread worker([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            completed = true;
            static_cast<void>(finish_b.set());
          });
          const Result<Block> s = m.allocate(1_MiB / 2, Alignment(256));
          CHECK(completed.load());
          worker.join();
          REQUIRE(s.ok());
          CHECK(s->data == p.data + 5_MiB / 2);
          m.deallocate(*s);
        } else {
          const Block s = *m.allocate(d, 1_MiB / 2, Alignment(256));
          CHECK(s.data == p.data + 5_MiB / 2);
          w.cuda.launch(d.native(), "D's first use", {writes(s)}, [&ran_d] { ran_d = true; });
          static_cast<void>(finish_a.set());
          w.cuda.machine.drain();
          CHECK(!ran_d);
          CHECK(!ran_c);
          static_cast<void>(finish_b.set());
          w.cuda.machine.drain();
          CHECK(ran_d);
          CHECK(ran_c);
          m.deallocate(d, s);
        }
        m.deallocate(c, r);
      }
}

TEST_CASE("cuda pool: T-E10 a buffer defined by a promise has the literal when the copy that the promise follows is done, over seeds") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    PoolWorld w(seed);
    const Pool pool = w.make();
    Memory m = pool.memory();
    const DoubleStream up = w.stream(), down = w.stream();
    DoublePromise promise = std::move(*w.context->make_promise());
    const DoubleEvent defined = promise.get_event();
    using Buffer = TrackedBuffer<Memory, DoubleEvent, SharedHold>;
    auto raw = *Buffer::raw_type::allocate(m, 16);
    const Block block = raw.block();
    Buffer buffer = std::move(*Buffer::make(std::move(raw), {&defined, 1}));
    CHECK(!buffer.ready_event()->ready());
    const std::array<float, 4> literal{41, 42, 43, 44};
    std::array<float, 4> out{};
    auto later = w.cuda.hold(up.native());
    forward(*m.copy_in(up, block, 0, std::as_bytes(std::span(literal))), std::move(promise));
    w.cuda.machine.drain();
    static_cast<void>(w.context->run_completions());
    CHECK(!buffer.ready_event()->ready());
    CHECK(later.set().ok());
    CHECK(buffer.ready_event()->wait().ok());
    CHECK(m.copy_out(down, block, 0, std::as_writable_bytes(std::span(out)))->wait().ok());
    CHECK(out == literal);
  }
}

TEST_CASE("cuda pool: T-E11 ten rounds of allocate, write, two kernels, read give 0..9, at an address that comes again, over seeds") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    PoolWorld w(seed);
    const Pool pool = w.make();
    Memory m = pool.memory();
    const DoubleStream compute = w.stream(), out = w.stream();
    std::array<std::array<std::byte, 4>, 10> results{};
    std::vector<DoubleEvent> ends;
    std::vector<const std::byte*> addresses;
    for (int i = 0; i < 10; ++i) {
      const Block x = *m.allocate(compute, 16_MiB, Alignment(256));
      addresses.push_back(x.data);
      w.cuda.launch(compute.native(), "write i", {writes(x)}, [x, i] { std::memset(x.data, i, 64); });
      for (int k = 0; k < 2; ++k) w.cuda.launch(compute.native(), "matmul", {reads(x)}, [] {});
      CHECK(w.mark(compute).wait_on(out).ok());
      ends.push_back(*m.copy_out(out, x, 0, results[static_cast<std::size_t>(i)]));
      m.deallocate(out, x);
    }
    CHECK(wait_all(std::span<const DoubleEvent>(ends)).ok());
    bool again = false;
    for (int i = 0; i < 10; ++i) {
      CHECK(results[static_cast<std::size_t>(i)][0] == static_cast<std::byte>(i));
      for (int k = 0; k < i; ++k) again = again || addresses[static_cast<std::size_t>(k)] == addresses[static_cast<std::size_t>(i)];
    }
    CHECK(again);
  }
}
