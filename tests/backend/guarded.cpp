// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/layer/guarded.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/backend/layer/aligned.hpp"
#include "holdfast/backend/layer/limited.hpp"
#include "holdfast/backend/layer/observed.hpp"
#include "holdfast/backend/simulated/machine.hpp"
#include "holdfast/backend/stack.hpp"
#include "support/death.hpp"
#include "support/strict_memory.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

struct Collect {
  std::vector<GuardFault>* faults;
  void on_fault(const GuardFault& fault) noexcept { faults->push_back(fault); }
};
struct Deaf {
  void on_fault(int) noexcept {}
};
static_assert(fault_reporter<Collect> && !fault_reporter<Deaf>);
// What lies where the host cannot write has no red zones; what is in the order of a stream cannot wait in quarantine.
using PinnedGuard = Guarded<>::layer<BasicSimulatedDevice<NoWatch, MemorySpace::host>>;
static_assert(!stream_ordered_backend<PinnedGuard> && memory_backend<PinnedGuard>);

struct Watched {
  StrictLog log;
  std::vector<GuardFault> faults;
  Guard<StrictMemory, Collect> guard;
  Stack<StrictMemory, Guarded<Collect>> memory;
  explicit Watched(GuardOptions options = {})
      : guard(options, Collect{&faults}), memory(make_stack<Stack<StrictMemory, Guarded<Collect>>>(StrictMemory(log), guard)) {}
  Block take(Bytes size, Bytes alignment = 16) { return *memory.allocate(size, Alignment(alignment), Tag{"seeded", 9}); }
};

void check(const GuardFault& f, GuardFaultKind kind, Block block, Bytes offset, Bytes damaged) {
  CHECK(f.kind == kind);
  CHECK(f.block == block);
  CHECK(f.offset == offset);
  CHECK(f.damaged == damaged);
}

}  // namespace

TEST_CASE("guarded: blocks are aligned, spoiled before use, and a correct program hears nothing") {
  Watched w;
  for (const Bytes alignment : {1, 16, 64, 256, 4096})
    for (const Bytes size : {1, 100, 4096}) {
      const Block block = w.take(size, alignment);
      CHECK(reinterpret_cast<std::uintptr_t>(block.data) % static_cast<std::uintptr_t>(alignment) == 0);
      CHECK(std::all_of(block.data, block.data + size, [](std::byte b) { return b == std::byte{0xCD}; }));
      std::fill_n(block.data, size, std::byte{0x11});
      CHECK(w.guard.live() == 1);
      w.memory.deallocate(block);
      CHECK(std::all_of(block.data, block.data + size, [](std::byte b) { return b == std::byte{0xDD}; }));
    }
  CHECK(w.guard.check() == 0);
  CHECK(w.guard.live() == 0);
  CHECK(w.guard.flush() == 5 * 4197);
  CHECK(w.faults.empty());
  CHECK(w.log.live.empty());
  CHECK(w.log.wrong == 0);
}

TEST_CASE("guarded: every single byte written before or behind a block is found, at its release and on demand, once") {
  Watched w;
  const Bytes size = 33;
  for (Bytes at = -64; at < size + 64; ++at) {
    if (at == 0) at = size;
    const GuardFaultKind kind = at < 0 ? GuardFaultKind::underrun : GuardFaultKind::overrun;
    const Block block = w.take(size);
    block.data[at] = std::byte{0x42};
    if (at % 2 == 0) {
      CHECK(w.guard.check() == 1);
      CHECK(w.guard.check() == 0);
    }
    w.memory.deallocate(block);
    REQUIRE(w.faults.size() == 1);
    check(w.faults[0], kind, block, at, 1);
    CHECK(w.faults[0].tag.number == 9);
    w.faults.clear();
  }
}

TEST_CASE("guarded: a run of damage tells its first byte and how far it goes, on both sides at a time") {
  Watched w;
  const Block block = w.take(10);
  block.data[-3] = block.data[-7] = block.data[10] = block.data[15] = std::byte{1};
  w.memory.deallocate(block);
  REQUIRE(w.faults.size() == 2);
  check(w.faults[0], GuardFaultKind::underrun, block, -7, 5);
  check(w.faults[1], GuardFaultKind::overrun, block, 10, 6);
}

TEST_CASE("guarded: every byte written after the release is found on demand, when the block leaves quarantine, and at the end") {
  Watched w({64, 1000});
  for (Bytes at = -64; at < 100 + 64; ++at) {
    const Block block = w.take(100);
    w.memory.deallocate(block);
    block.data[at] = std::byte{0x42};
    if (at % 2 == 0)
      CHECK(w.guard.check() == 1);
    else
      CHECK(w.guard.flush() > 0);
    REQUIRE(w.faults.size() == 1);
    check(w.faults[0], GuardFaultKind::use_after_free, block, at, 1);
    w.faults.clear();
  }
  CHECK(w.guard.flush() >= 0);
  const Block old = w.take(600);
  w.memory.deallocate(old);
  old.data[5] = std::byte{1};
  const Block more = w.take(600);
  CHECK(w.faults.empty());
  w.memory.deallocate(more);  // 1200 bytes wait: the oldest must go
  REQUIRE(w.faults.size() == 1);
  check(w.faults[0], GuardFaultKind::use_after_free, old, 5, 1);
  CHECK(w.log.live.size() == 1);

  std::vector<GuardFault> faults;
  StrictLog log;
  {
    Guard<StrictMemory, Collect> guard({}, Collect{&faults});
    auto memory = make_stack<Stack<StrictMemory, Guarded<Collect>>>(StrictMemory(log), guard);
    const Block last = *memory.allocate(8, Alignment(8));
    memory.deallocate(last);
    last.data[7] = std::byte{1};
  }
  CHECK(faults.size() == 1);
  CHECK(log.live.empty());
}

TEST_CASE("guarded: a double free, an unknown block and a wrong size are told, and nothing is released for them") {
  Watched w;
  const Block block = w.take(100);
  w.memory.deallocate({block.data, 50});
  REQUIRE(w.faults.size() == 1);
  check(w.faults[0], GuardFaultKind::wrong_size, block, 0, 50);  // and it is released
  w.memory.deallocate(block);
  REQUIRE(w.faults.size() == 2);
  check(w.faults[1], GuardFaultKind::double_free, block, 0, 0);
  std::byte mine[8];
  w.memory.deallocate({mine, 8});
  const Block live = w.take(100);
  w.memory.deallocate({live.data + 1, 99});  // the middle of a block is none
  REQUIRE(w.faults.size() == 4);
  check(w.faults[2], GuardFaultKind::unknown_block, {mine, 8}, 0, 0);
  CHECK(w.faults[3].kind == GuardFaultKind::unknown_block);
  CHECK(w.log.wrong == 0);
  CHECK(w.guard.live() == 1);
  w.guard.flush();
  w.memory.deallocate(block);  // long ago: no longer known, but no harm
  CHECK(w.faults.back().kind == GuardFaultKind::unknown_block);
  w.memory.deallocate(live);
  CHECK(w.log.wrong == 0);
  w.memory.deallocate(Block{});
  CHECK(w.faults.size() == 5);
}

TEST_CASE("cases/26 row 9: a double free is an error that names the block, and the figures stay") {
  std::vector<GuardFault> faults;
  StrictLog log;
  MemoryLimit limit(max_bytes);
  Guard<Stack<StrictMemory, Limited>, Collect> guard({}, Collect{&faults});
  auto memory = make_stack<Stack<StrictMemory, Limited, Guarded<Collect>>>(StrictMemory(log), limit, guard);
  const Block t2 = *memory.allocate(500, Alignment(64), Tag{"t2", 4});
  memory.deallocate(t2);
  const Bytes live = limit.live();
  memory.deallocate(t2);
  REQUIRE(faults.size() == 1);
  CHECK(faults[0].tag.name == std::string_view("t2"));
  CHECK(faults[0].tag.number == 4);
  CHECK(limit.live() == live);
  StringSink out;
  CHECK(write_fault(out, faults[0]).ok());
  CHECK(out.text == "released twice: a block of 500 bytes, allocation 1 \"t2\" 4");
}

// The trace's rows are text for a table; here they are calls. Where a size is left out (row 6), the guard knows it.
TEST_CASE("cases/26: of the trace the source sees true sizes only, double and unknown frees change nothing, and the figures are the case's") {
  std::vector<GuardFault> faults;
  StrictLog log;
  Bytes freed = 0;
  struct Frees {  // what reaches the source
    Bytes* last;
    void on_allocate(Block, Tag) noexcept {}
    void on_deallocate(Block b) noexcept { *last = b.size; }
    void on_hold(HoldKind, int) noexcept {}
    void on_failure(const Error&) noexcept {}
  } frees{&freed};
  using Below = Stack<StrictMemory, Observed<Frees>>;
  GuardOptions options;
  options.quarantine = 100'000;
  Guard<Below, Collect> guard(options, Collect{&faults});
  auto memory = make_stack<Stack<StrictMemory, Observed<Frees>, Guarded<Collect>>>(StrictMemory(log), frees, guard);
  Bytes in_use = 0, peak = 0;
  const auto take = [&](Bytes size, std::uint64_t row) {
    in_use += size;
    peak = std::max(peak, in_use);
    return *memory.allocate(size, Alignment(16), Tag{"row", row});
  };
  const auto give = [&](Block block) {
    const std::size_t live = guard.live();
    memory.deallocate(block);
    if (guard.live() != live) in_use -= block.size;
  };
  const Block w = take(1000, 1), t1 = take(500, 2);
  give(t1);
  CHECK(in_use == 1000);
  const Block t2 = take(500, 4), t3 = take(700, 5);
  CHECK(in_use == 2200);
  in_use -= 700;
  memory.deallocate({t3.data, 0});  // row 6
  REQUIRE(faults.size() == 1);
  check(faults[0], GuardFaultKind::wrong_size, t3, 0, 0);
  guard.flush();
  CHECK(freed == 700 + 2 * 64);
  const Block g = take(200, 7);
  give(t2);
  CHECK(in_use == 1200);
  give(t2);  // row 9
  REQUIRE(faults.size() == 2);
  check(faults[1], GuardFaultKind::double_free, t2, 0, 0);
  CHECK(faults[1].tag.number == 4);
  std::byte ghost[64];
  give({ghost, 64});  // row 10
  CHECK(faults.back().kind == GuardFaultKind::unknown_block);
  CHECK(in_use == 1200);
  const Block t4 = take(300, 11);
  CHECK(in_use == 1500);
  const Block t5 = take(300, 13), t6 = take(300, 15);
  CHECK(in_use == 2100);
  give(w);
  CHECK(in_use == 1100);
  CHECK(peak == 2200);
  CHECK(guard.live() == 4);
  for (const Block& b : {g, t4, t5, t6}) give(b);
  guard.flush();
  CHECK(log.live.empty());
  CHECK(log.wrong == 0);
}

TEST_CASE("guarded: the sentences of the faults") {
  const auto sentence = [](const GuardFault& f) {
    StringSink out;
    CHECK(write_fault(out, f).ok());
    return out.text;
  };
  CHECK(sentence({GuardFaultKind::overrun, {nullptr, 10}, {}, 3, 12, 4}) ==
        "written behind a block of 10 bytes, allocation 3, 4 bytes at offset 12");
  CHECK(sentence({GuardFaultKind::underrun, {nullptr, 10}, {"kv", 2}, 3, -8, 8}) ==
        "written before a block of 10 bytes, allocation 3 \"kv\" 2, 8 bytes at offset -8");
  CHECK(sentence({GuardFaultKind::wrong_size, {nullptr, 10}, {}, 3, 0, 12}) ==
        "released with a wrong size: a block of 10 bytes, allocation 3, as 12 bytes");
  CHECK(sentence({GuardFaultKind::unknown_block, {nullptr, 10}, {}, 0, 0, 0}) == "released, but not known: a block of 10 bytes");
  CHECK(sentence({GuardFaultKind::use_after_free, {nullptr, 10}, {}, 1, 0, 1}) ==
        "written after its release: a block of 10 bytes, allocation 1, 1 bytes at offset 0");
}

TEST_CASE("guarded: quarantine makes no request fail, and without it a released block goes back at once") {
  Watched w;
  w.log.capacity = 2000;
  w.memory.deallocate(w.take(800));
  w.memory.deallocate(w.take(800));  // 928 and 928 of 2000 wait
  CHECK(w.log.live.size() == 2);
  const Block block = w.take(1500);
  CHECK(w.log.live.size() == 1);
  CHECK(w.memory.allocate(1500, Alignment(1)).error().code == Errc::out_of_memory);
  CHECK(w.memory.largest_free() == 2000 - 1628 - 128);
  w.memory.deallocate(block);
  CHECK(w.memory.trim(0) == 0);
  CHECK(w.log.live.empty());
  Watched none({64, 0});
  none.memory.deallocate(none.take(100));
  CHECK(none.log.live.empty());
  CHECK(w.faults.empty());
}

TEST_CASE("guarded: sizes that do not fit with their red zones are refused before the source is asked") {
  Watched w;
  CHECK(w.memory.allocate(max_bytes - 100, Alignment(1)).error().code == Errc::out_of_memory);
  CHECK(w.memory.allocate(1, Alignment(Bytes{1} << 62)).error().code == Errc::out_of_memory);
  CHECK(w.log.calls.size() == 1);  // 2^62 and a zone is a size, if a large one
  CHECK(w.memory.allocate(-1, Alignment(1)).error().code == Errc::invalid_argument);
  CHECK(w.memory.allocate(0, Alignment(1))->data == nullptr);
}

TEST_CASE("guarded: thousands of blocks in any order, each damage found among them") {
  Watched w({16, 20'000});
  std::mt19937 random(5);
  std::vector<Block> live;
  std::size_t seeded = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (live.size() < 500 && random() % 2 == 0) {
      live.push_back(w.take(1 + static_cast<Bytes>(random() % 200), Bytes{1} << (random() % 7)));
      continue;
    }
    if (live.empty()) continue;
    std::swap(live[random() % live.size()], live.back());
    const Block block = live.back();
    live.pop_back();
    if (random() % 100 == 0) block.data[block.size] = std::byte{1}, ++seeded;
    w.memory.deallocate(block);
    if (random() % 100 == 0) block.data[0] = std::byte{1}, ++seeded;
  }
  for (const Block& b : live) w.memory.deallocate(b);
  w.guard.flush();
  CHECK(seeded > 100);
  CHECK(w.faults.size() == seeded);
  CHECK(w.log.live.empty());
  CHECK(w.log.wrong == 0);
}

TEST_CASE("guarded: threads share a guard") {
  StrictLog log;
  std::vector<GuardFault> faults;
  {
    Guard<StrictMemory, Collect> guard({32, 4096}, Collect{&faults});
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        auto memory = make_stack<Stack<StrictMemory, Guarded<Collect>>>(StrictMemory(log), guard);
        for (unsigned i = 0; i < 1000; ++i) {
          const Block block = *memory.allocate(1 + (i * 7 + t) % 100, Alignment(8));
          *block.data = std::byte{1};
          if (i % 100 == 0) guard.check();
          memory.deallocate(block);
        }
      });
    for (auto& t : threads) t.join();
  }
  CHECK(faults.empty());
  CHECK(log.live.empty());
}

TEST_CASE("guarded: by default a fault ends the process") {
  CHECK(aborts([] {
    if (std::freopen("/dev/null", "w", stderr) == nullptr) return;
    Guard<SystemMemory> guard;
    auto memory = make_stack<Stack<SystemMemory, Guarded<>>>(SystemMemory{}, guard);
    const Block block = *memory.allocate(8, Alignment(8));
    block.data[8] = std::byte{1};
    memory.deallocate(block);
  }));
}
