// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/layer/locked.hpp"

#include <doctest/doctest.h>

#include <thread>
#include <utility>
#include <vector>

#include "holdfast/backend/stack.hpp"
#include "support/strict_memory.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
// For one thread only: a plain counter that a second caller inside would spoil, as ThreadSanitizer sees.
struct OneThread {
  static constexpr MemorySpace space = MemorySpace::host;
  long* calls;
  Result<Block> allocate(Bytes size, Alignment alignment) noexcept { return ++*calls, SystemMemory{}.allocate(size, alignment); }
  void deallocate(Block block) noexcept { ++*calls, SystemMemory{}.deallocate(block); }
  template <class V>
  void visit_blocks(V) noexcept {
    ++*calls;
  }
  Bytes largest_free() noexcept { return ++*calls; }
  Bytes trim(Bytes) noexcept { return ++*calls; }
};

// Gives a block back through the lock while it is asked for one, as a source does that runs continuations.
struct Giving {
  static constexpr MemorySpace space = MemorySpace::host;
  static constexpr bool runs_continuations = true;
  struct State {
    Block waiting;
    void (*give)(State&, Block) noexcept = nullptr;
    ReentrantLock* lock = nullptr;
    int given = 0;
  };
  State* state;
  Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    if (Block b = std::exchange(state->waiting, Block{}); b.data != nullptr) state->give(*state, b);
    return SystemMemory{}.allocate(size, alignment);
  }
  void deallocate(Block block) noexcept { ++state->given, SystemMemory{}.deallocate(block); }
};
using Reentered = Stack<Giving, Locked<ReentrantLock>>;
static_assert(runs_continuations<Reentered> && !runs_continuations<Stack<OneThread, Locked<>>>);

struct CountedLock {
  int locks = 0, held = 0;
  void lock() noexcept { ++locks, ++held; }
  void unlock() noexcept { --held; }
};
}  // namespace

TEST_CASE("locked: every call that changes or looks at the source is made under the lock") {
  long calls = 0;
  CountedLock lock;
  auto memory = make_stack<Stack<OneThread, Locked<CountedLock>>>(OneThread{&calls}, lock);
  memory.deallocate(*memory.allocate(8, Alignment(1)));
  memory.visit_blocks([](auto&&...) {});
  static_cast<void>(memory.largest_free());
  memory.trim(0);
  CHECK(calls == 5);
  CHECK(lock.locks == 5);
  CHECK(lock.held == 0);
}

TEST_CASE("locked: threads together do not spoil a source made for one") {
  long calls = 0;
  WordLock lock;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      auto memory = make_stack<Stack<OneThread, Locked<>>>(OneThread{&calls}, lock);
      for (int i = 0; i < 2000; ++i) memory.deallocate(*memory.allocate(64, Alignment(64)));
    });
  for (auto& t : threads) t.join();
  CHECK(calls == 4 * 2000 * 2);
}

TEST_CASE("locked: what a request runs may release memory through a reentrant lock") {
  ReentrantLock lock;
  Giving::State state;
  state.lock = &lock;
  state.give = [](Giving::State& s, Block b) noexcept { make_stack<Reentered>(Giving{&s}, *s.lock).deallocate(b); };
  auto memory = make_stack<Reentered>(Giving{&state}, lock);
  state.waiting = *memory.allocate(8, Alignment(8));
  const Block b = *memory.allocate(8, Alignment(8));
  CHECK(state.given == 1);
  memory.deallocate(b);
  CHECK(state.given == 2);
  std::thread([&] { memory.deallocate(*memory.allocate(8, Alignment(8))); }).join();  // free for others after it all
  CHECK(state.given == 3);
}

TEST_CASE("locked: a reentrant lock keeps others out until its holder has given it back as often as it took it") {
  ReentrantLock lock;
  long count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const LockGuard outer(lock);
        { const LockGuard inner(lock); }
        ++count;
      }
    });
  for (auto& t : threads) t.join();
  CHECK(count == 4 * 2000);
}
