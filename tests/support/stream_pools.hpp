// SPDX-License-Identifier: Apache-2.0
// What a pool in the order of streams does on any machine whose streams are late and watched for races: a world gives streams,
// kernels, events, and a source of regions.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/backend/bfc/stream_pool.hpp"

namespace holdfast::testing {

/// Ways to be wrong about events that the race detector has to find.
enum class Mistake { none, waits_for_nothing, seen_too_early, never_recorded, comes_after_anyway };

/// An event of a world with a mistake in it.
template <class E, Mistake M>
struct MistakenEvent : E {
  using stream_type = typename E::stream_type;
  [[nodiscard]] Error record(const stream_type& s) noexcept { return M == Mistake::never_recorded ? Error{} : E::record(s); }
  [[nodiscard]] Error wait_on(const stream_type& s) const noexcept { return M == Mistake::waits_for_nothing ? Error{} : E::wait_on(s); }
  [[nodiscard]] bool passed() const noexcept { return M == Mistake::seen_too_early || E::passed(); }
  [[nodiscard]] bool is_defined_on(const stream_type& s) const noexcept {
    if constexpr (requires { { E::is_defined_on(s) }; })
      if (E::is_defined_on(s)) return true;
    return M == Mistake::comes_after_anyway;
  }
};

/// A table memory whose n-th allocation fails, and that counts what is out.
class FailingTables {
 public:
  static constexpr MemorySpace space = MemorySpace::host;
  struct State {
    std::uint64_t until_failure = 0;  // 0: never
    bool failed = false;
    int out = 0;
  };
  explicit FailingTables(State& s) noexcept : state_(&s) {}
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    if (state_->until_failure != 0 && --state_->until_failure == 0) return state_->failed = true, make_error(Errc::out_of_memory, "told to fail");
    ++state_->out;
    return SystemMemory{}.allocate(size, alignment);
  }
  void deallocate(Block b) noexcept {
    if (b.data != nullptr) --state_->out;
    SystemMemory{}.deallocate(b);
  }

 private:
  State* state_;
};

inline BfcStreamOptions stream_pool_of(Bytes size, StreamMarks marks = StreamMarks::each_free) {
  BfcStreamOptions o;
  o.pool.limit = o.pool.region = size;
  o.marks = marks;
  return o;
}

template <class World, class E = typename World::Event>
using StreamHeapOf = BfcStreamHeap<typename World::Source, E, BestFit, ExactSplit>;

template <class World>
StreamHeapOf<World> stream_heap(World& w, const BfcStreamOptions& o) {
  return std::move(*StreamHeapOf<World>::make(w.source(), o));
}

inline constexpr Bytes kilo = 1024;
inline constexpr Alignment wide{256};

// Case 06: a block made of two streams' frees is waited for on both, and what is left of it on the one it came from.
template <class World>
void check_case_06(StreamMarks marks, bool from_host, std::uint64_t seed) {
  World w(seed);
  const auto a = w.stream(), b = w.stream(), c = w.stream(), d = w.stream();
  auto heap = stream_heap(w, stream_pool_of(12 * kilo, marks));
  auto pool = heap.pool();
  const Block p = *pool.allocate(a, 4 * kilo, wide), q = *pool.allocate(b, 8 * kilo, wide);
  CHECK(q.data == p.data + 4 * kilo);
  auto finish_a = w.hold(a), finish_b = w.hold(b);
  w.kernel(a, p, "KA");
  pool.deallocate(a, p);
  w.kernel(b, q, "KB");
  pool.deallocate(b, q);
  CHECK(pool.explain(10 * kilo).reason == BfcReason::reclaims);
  CHECK(pool.explain(8 * kilo).reason == BfcReason::fits);
  const Block r = *pool.allocate(c, 10 * kilo, wide);
  CHECK(r.data == p.data);
  CHECK(pool.stream_statistics().joins == 1);
  CHECK(pool.stream_statistics().waits == 2);
  w.kernel(c, r, "KC");
  const auto used = w.mark(c);
  CHECK(pool.largest_free() == 2 * kilo);
  if (from_host) {
    w.drain();
    CHECK(!used.ready());
    CHECK(finish_b.set().ok());  // else the call would not return; A goes on holding
    const Block s = *pool.allocate(2 * kilo, wide);
    CHECK(s.data == p.data + 10 * kilo);
    CHECK(pool.stream_statistics().host_waits == 1);
    w.drain();
    CHECK(!used.ready());
    w.kernel(d, s, "KD");
    const auto end = w.mark(d);
    w.drain();
    CHECK(end.ready());
    CHECK(finish_a.set().ok());
    pool.deallocate(d, s);
  } else {
    const Block s = *pool.allocate(d, 2 * kilo, wide);
    CHECK(s.data == p.data + 10 * kilo);
    CHECK(pool.stream_statistics().waits == 3);
    w.kernel(d, s, "KD");
    const auto first = w.mark(d);
    w.drain();
    CHECK(!first.ready());
    if (seed % 2 == 0) {
      CHECK(finish_a.set().ok());  // the case's order: D is still blocked
      w.drain();
      CHECK(!first.ready());
      CHECK(finish_b.set().ok());
    } else {
      CHECK(finish_b.set().ok());  // it waits for no more than KB
      w.drain();
      CHECK(first.ready());
      CHECK(!used.ready());
      CHECK(finish_a.set().ok());
    }
    w.drain();
    CHECK(first.ready());
    pool.deallocate(d, s);
    CHECK(pool.stream_statistics().host_waits == 0);
  }
  w.drain();
  CHECK(used.ready());
  pool.deallocate(c, r);
  const Block all = *pool.allocate(a, 12 * kilo, wide);
  w.kernel(a, all, "all");
  pool.deallocate(a, all);
  CHECK(pool.stream_statistics().stranded == 0);
}

// Case 06, the other way round: with one of the two still in use there is no such block.
template <class World>
void check_case_06_refused() {
  World w(1);
  const auto a = w.stream(), b = w.stream(), c = w.stream();
  auto heap = stream_heap(w, stream_pool_of(12 * kilo));
  auto pool = heap.pool();
  const Block p = *pool.allocate(a, 4 * kilo, wide), q = *pool.allocate(b, 8 * kilo, wide);
  w.kernel(a, p, "KA");
  pool.deallocate(a, p);
  const Error e = pool.allocate(c, 10 * kilo, wide).error();
  CHECK(status_kind(e) == StatusKind::resource_exhausted);
  CHECK(e.available == 4 * kilo);
  CHECK(pool.explain(10 * kilo).reason == BfcReason::limit);
  CHECK(pool.stream_statistics().waits == 0);
  pool.deallocate(b, q);
}

// A stream has its own again at once; another waits for just what was freed; once the host has seen it pass nobody does.
template <class World>
void check_waits(StreamMarks marks) {
  World w(1);
  const auto a = w.stream(), b = w.stream(), c = w.stream(), t = w.stream();
  auto heap = stream_heap(w, stream_pool_of(12 * kilo, marks));
  auto pool = heap.pool();
  const auto waits = [&] { return pool.stream_statistics().waits; };
  const Block p = *pool.allocate(a, 4 * kilo, wide), q = *pool.allocate(b, 8 * kilo, wide);
  auto finish_a = w.hold(a), finish_b = w.hold(b);
  w.kernel(a, p, "KA");
  pool.deallocate(a, p);
  CHECK(*pool.allocate(a, 4 * kilo, wide) == p);
  CHECK(waits() == 0);
  pool.deallocate(a, p);
  w.kernel(b, q, "KB");
  pool.deallocate(b, q);
  CHECK(*pool.allocate(t, 4 * kilo, wide) == p);  // what A freed makes T wait for A, not for B
  CHECK(waits() == 1);
  w.kernel(t, p, "KT");
  const auto used = w.mark(t);
  w.drain();
  CHECK(!used.ready());
  CHECK(finish_a.set().ok());
  w.drain();
  CHECK(used.ready());
  pool.deallocate(t, p);
  w.drain();
  if (marks == StreamMarks::each_free) {  // else there is no mark that could have passed
    CHECK(*pool.allocate(c, 4 * kilo, wide) == p);
    CHECK(waits() == 1);
    pool.deallocate(c, p);
  }
  CHECK(finish_b.set().ok());
}

// Four streams that take and free at random never meet; says whether the detector found a race.
template <class World, class E>
bool random_streams(World& w, const BfcStreamOptions& options, std::uint64_t seed, bool with_host) {
  std::vector<typename World::Stream> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(w.stream());
  {
    auto heap = std::move(*StreamHeapOf<World, E>::make(w.source(), options));
    auto pool = heap.pool();
    std::vector<std::pair<std::size_t, Block>> live;
    std::uint64_t random = seed * 0x9E3779B97F4A7C15u;
    const auto next = [&](std::size_t n) { return static_cast<std::size_t>((random = random * 6364136223846793005u + 1442695040888963407u) >> 33) % n; };
    for (int step = 0; step < 150; ++step) {
      const std::size_t s = next(4);
      const auto size = static_cast<Bytes>(1 + next(24'000));
      const bool host = with_host && next(10) == 0;
      const Result<Block> got = host ? pool.allocate(size, wide) : pool.allocate(streams[s], size, wide);
      if (got.ok()) {
        w.kernel(streams[s], *got, "kernel");
        live.emplace_back(s, *got);
      }
      if (!got.ok() || next(3) == 0) {
        REQUIRE(!live.empty());
        std::swap(live[next(live.size())], live.back());
        pool.deallocate(streams[live.back().first], live.back().second);
        live.pop_back();
      }
      if (next(8) == 0) w.step();
    }
    for (const auto& [s, block] : live) pool.deallocate(streams[s], block);
    CHECK(pool.statistics().in_use == 0);
    if (w.check_races) {
      Bytes sum = 0;
      pool.visit_blocks([&](Block b, bool free) { sum += free ? b.size : 0; });
      CHECK(sum == pool.statistics().reserved);
    }
    w.drain();
    const Bytes held = pool.statistics().reserved;
    if (options.marks == StreamMarks::each_free) CHECK(pool.trim(0) == held);
  }
  return w.races().find("kernel") != std::string::npos;
}

}  // namespace holdfast::testing
