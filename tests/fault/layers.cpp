// SPDX-License-Identifier: Apache-2.0
// Every layer, and stacks of them, over a source that fails at the n-th call, for every n, once and for ever.
#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "holdfast/backend/host/pinned_pool.hpp"
#include "holdfast/backend/layer/aligned.hpp"
#include "holdfast/backend/layer/guarded.hpp"
#include "holdfast/backend/layer/limited.hpp"
#include "holdfast/backend/layer/locked.hpp"
#include "holdfast/backend/layer/observed.hpp"
#include "holdfast/backend/layer/pinned.hpp"
#include "holdfast/backend/layer/retrying.hpp"
#include "holdfast/backend/stack.hpp"
#include "support/fake_pinner.hpp"
#include "support/strict_memory.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

struct Balance {
  int blocks = 0, failures = 0;
  void on_allocate(Block, Tag) noexcept { ++blocks; }
  void on_deallocate(Block) noexcept { --blocks; }
  void on_hold(HoldKind, int) noexcept {}
  void on_failure(const Error&) noexcept { ++failures; }
};
struct OnceMore {
  int asked = 0;
  bool on_out_of_memory(OutOfMemory& request) noexcept { return ++asked, request.failures == 1; }
};

using Plain = StrictMemory;
using Rounded = Stack<StrictMemory, Aligned<256>>;
using Capped = Stack<StrictMemory, Limited>;
using Seen = Stack<StrictMemory, Observed<Balance>>;
using Shut = Stack<StrictMemory, Locked<>>;
using Again = Stack<StrictMemory, Retrying<OnceMore>>;
using Fenced = Stack<StrictMemory, Guarded<>>;
using Many = Stack<StrictMemory, Limited, Aligned<64>, Observed<Balance>, Retrying<OnceMore>, Locked<>>;
using Other = Stack<StrictMemory, Retrying<OnceMore>, Limited, Guarded<>, Observed<Balance>>;

// What a stack may need, and what it must look like when all blocks are back.
template <class B>
struct Rig {
  StrictLog log;
  MemoryLimit limit{10'000};
  Balance balance;
  WordLock lock;
  OnceMore handler;

  void check_balanced() {
    CHECK(limit.live() == 0);
    CHECK(balance.blocks == 0);
    CHECK(log.wrong == 0);
  }
  template <class... States>
  B make(States&... states) {
    return make_stack<B>(StrictMemory(log), states...);
  }
  template <class Use>
  void with(Use use) {
    if constexpr (std::same_as<B, Capped>)
      use(make(limit));
    else if constexpr (std::same_as<B, Seen>)
      use(make(balance));
    else if constexpr (std::same_as<B, Shut>)
      use(make(lock));
    else if constexpr (std::same_as<B, Again>)
      use(make(handler));
    else if constexpr (std::same_as<B, Fenced>) {
      Guard<StrictMemory> guard({64, 500});
      use(make(guard));
    } else if constexpr (std::same_as<B, Many>)
      use(make(limit, balance, handler, lock));
    else if constexpr (std::same_as<B, Other>) {
      Guard<Stack<StrictMemory, Retrying<OnceMore>, Limited>> guard({32, 300});
      use(make(handler, limit, guard, balance));
    } else
      use(make());
  }
};

// Takes and releases blocks in an order that has all kinds of neighbours; how many requests were refused.
template <class B>
int script(B memory) {
  int refused = 0;
  std::vector<Block> live;
  const auto take = [&](Bytes size, Bytes alignment) {
    const Result<Block> block = memory.allocate(size, Alignment(alignment));
    if (!block.ok()) {
      CHECK(status_kind(block.error()) == StatusKind::resource_exhausted);
      ++refused;
      return;
    }
    CHECK(block->size == size);
    std::fill_n(block->data, size, std::byte{0x5A});
    live.push_back(*block);
  };
  const auto give = [&](std::size_t i) {
    if (i >= live.size()) return;
    memory.deallocate(live[i]);
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
  };
  for (const Bytes size : {100, 1, 255, 64}) take(size, 16);
  give(1), give(0);
  take(0, 1), take(300, 256), take(7, 1);
  give(2);
  for (const Bytes size : {1000, 20, 30}) take(size, 64);
  while (!live.empty()) give(live.size() / 2);
  return refused;
}

}  // namespace

TEST_CASE_TEMPLATE("fault: a source that fails at its n-th call, for every n, leaks nothing and leaves nothing half made", B, Plain,
                   Rounded, Capped, Seen, Shut, Again, Fenced, Many, Other) {
  std::size_t calls = 0;
  {
    Rig<B> rig;
    rig.with([&](B memory) { CHECK(script(memory) == 0); });
    rig.check_balanced();
    CHECK(rig.log.live.empty());
    calls = rig.log.calls.size();
  }
  REQUIRE(calls >= 9);
  for (const bool for_ever : {false, true})
    for (std::size_t n = 1; n <= calls; ++n) {
      Rig<B> rig;
      rig.log.fail_at = static_cast<long>(n);
      rig.log.fail_on = for_ever;
      rig.with([&](B memory) {
        const int refused = script(memory);
        if (for_ever) CHECK(refused > 0);
        if (!for_ever) CHECK(refused <= 1);
        if constexpr (std::same_as<B, Again>) CHECK(refused == (for_ever ? rig.handler.asked / 2 : 0));
        if constexpr (std::same_as<B, Seen>) CHECK(rig.balance.failures == refused);
        rig.log.fail_at = 0;  // and it works again
        CHECK(script(memory) == 0);
      });
      rig.check_balanced();
      CHECK(rig.log.live.empty());
    }
}

TEST_CASE("fault: a pinner that refuses its n-th call, for every n, leaves nothing pinned or half made, in the layer and in the pool") {
  for (int n = 1; n <= 12; ++n) {
    StrictLog log;
    FakePinner pinner;
    pinner.fail_at = n;
    using Memory = Stack<StrictMemory, Pinned<FakePinner>>;
    static_cast<void>(script(make_stack<Memory>(StrictMemory(log), pinner)));
    CHECK(pinner.bytes == 0);
    CHECK(log.live.empty());
    pinner.fail_at = pinner.calls + n;
    {
      using Heap = BasicPinnedHeap<Memory, NoMeter>;
      Heap heap = std::move(*Heap::make({}, make_stack<Memory>(StrictMemory(log), pinner)));
      static_cast<void>(script(heap.pool()));
      CHECK(heap.pool().statistics().requested == 0);
      CHECK(heap.pool().statistics().locked == pinner.bytes);
    }
    CHECK(pinner.bytes == 0);
    CHECK(pinner.wrong == 0);
    CHECK(log.live.empty());
    CHECK(log.wrong == 0);
  }
}
