// SPDX-License-Identifier: Apache-2.0
// Guarded memory over the host pool under real threads for a while: HOLDFAST_STRESS_SECONDS, 2 unless set. Each thread seeds faults
// into its own guard's blocks, and every one must be found, with its block and offset, and no other.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/backend/host/host_pool.hpp"
#include "holdfast/backend/layer/guarded.hpp"
#include "holdfast/backend/layer/limited.hpp"
#include "holdfast/backend/stack.hpp"

using namespace holdfast;

namespace {

double seconds() {
  const char* set = std::getenv("HOLDFAST_STRESS_SECONDS");
  return set != nullptr ? std::atof(set) : 2;
}

struct Expect {
  std::vector<GuardFault>* found;
  void on_fault(const GuardFault& fault) noexcept { found->push_back(fault); }
};

using Shared = Stack<HostPool, Limited>;
using Memory = Stack<HostPool, Limited, Guarded<Expect>>;

struct Seeded {
  std::array<long, 4> seeded{}, found{};  // overrun, underrun, use after free, double free
  long strange = 0, done = 0;
};

// Takes, spoils now and then, and gives back, until told to stop.
void live(HostPool pool, MemoryLimit& limit, unsigned seed, const std::atomic<bool>& stop, Seeded& out) {
  std::mt19937 random(seed);
  std::vector<GuardFault> faults;
  std::vector<Block> blocks;
  Guard<Shared, Expect> guard({64, 1 << 16}, Expect{&faults});
  Memory memory = make_stack<Memory>(pool, limit, guard);
  const auto expect = [&](GuardFaultKind kind, Block block, Bytes offset) {
    ++out.seeded[static_cast<std::size_t>(kind)];
    if (faults.size() == 1 && faults[0].kind == kind && faults[0].block == block && faults[0].offset == offset)
      ++out.found[static_cast<std::size_t>(kind)];
    else
      ++out.strange;
    faults.clear();
  };
  while (!stop.load(std::memory_order_relaxed)) {
    ++out.done;
    if (blocks.size() < 64 && random() % 2 == 0) {
      const Result<Block> block = memory.allocate(1 + static_cast<Bytes>(random() % 3000), Alignment(Bytes{1} << (random() % 9)));
      if (block.ok()) blocks.push_back(*block);
      continue;
    }
    if (blocks.empty()) continue;
    std::swap(blocks[random() % blocks.size()], blocks.back());
    const Block block = blocks.back();
    blocks.pop_back();
    const Bytes off = static_cast<Bytes>(random() % 64);
    switch (random() % 16) {
      case 0:
        block.data[block.size + off] = std::byte{1};
        memory.deallocate(block);
        expect(GuardFaultKind::overrun, block, block.size + off);
        break;
      case 1:
        block.data[-1 - off] = std::byte{1};
        if (guard.check() != 1) ++out.strange;
        memory.deallocate(block);
        expect(GuardFaultKind::underrun, block, -1 - off);
        break;
      case 2:
        memory.deallocate(block);
        block.data[off % block.size] = std::byte{1};
        guard.flush();
        expect(GuardFaultKind::use_after_free, block, off % block.size);
        break;
      case 3:
        memory.deallocate(block);
        memory.deallocate(block);
        expect(GuardFaultKind::double_free, block, 0);
        break;
      default: memory.deallocate(block);
    }
    out.strange += static_cast<long>(faults.size());
    faults.clear();
  }
  for (const Block& b : blocks) memory.deallocate(b);
  guard.flush();
  out.strange += static_cast<long>(faults.size());
}

}  // namespace

TEST_CASE("guarded: 8 threads on one pool find each seeded overrun, underrun, use after free and double free, and nothing else") {
  HostHeap heap = std::move(*HostHeap::make());
  MemoryLimit limit(Bytes{1} << 30);
  std::atomic<bool> stop{false};
  std::array<Seeded, 8> all;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < all.size(); ++t)
    threads.emplace_back([&, t] { live(heap.pool(), limit, t, stop, all[t]); });
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds()));
  stop = true;
  for (auto& t : threads) t.join();
  for (std::size_t kind = 0; kind < 4; ++kind) {
    long seeded = 0, found = 0;
    for (const Seeded& s : all) seeded += s.seeded[kind], found += s.found[kind];
    CHECK(seeded > 0);
    CHECK(found == seeded);
  }
  for (const Seeded& s : all) CHECK(s.strange == 0);
  CHECK(limit.live() == 0);
  CHECK(heap.pool().statistics().live == 0);
}
