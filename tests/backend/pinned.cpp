// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/layer/pinned.hpp"

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "holdfast/backend/layer/limited.hpp"
#include "holdfast/backend/stack.hpp"
#include "support/death.hpp"
#include "support/fake_pinner.hpp"
#include "support/strict_memory.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
struct NoUnpin {
  Error pin(Block) noexcept { return {}; }
};
struct Throwing : NoPinning {
  Error pin(Block) { return {}; }
};
static_assert(pinner<FakePinner> && !pinner<NoUnpin> && !pinner<Throwing>);

// The bytes that the system locks for this process.
long locked() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmLck:", 0) == 0) return std::atol(line.c_str() + 6) * 1024;
  return -1;
}
}  // namespace

TEST_CASE("pinned: whole pages are pinned while a block is out, and a layer below counts them") {
  StrictLog log;
  FakePinner pinner;
  MemoryLimit limit(max_bytes);
  auto memory = make_stack<Stack<StrictMemory, Limited, Pinned<FakePinner>>>(StrictMemory(log), limit, pinner);
  const Block a = *memory.allocate(1, Alignment(1)), b = *memory.allocate(4097, Alignment(8192));
  CHECK(a.size == 1);
  CHECK(b.size == 4097);
  CHECK(reinterpret_cast<std::uintptr_t>(b.data) % 8192 == 0);
  CHECK(pinner.bytes == 3 * 4096);
  CHECK(limit.live() == 3 * 4096);
  memory.deallocate(a);
  memory.deallocate(b);
  CHECK(pinner.bytes == 0);
  CHECK(pinner.wrong == 0);
  CHECK(log.live.empty());
  CHECK(log.wrong == 0);
  CHECK(memory.allocate(0, Alignment(1))->data == nullptr);
  memory.deallocate(Block{});
  CHECK(memory.allocate(-1, Alignment(1)).error().code == Errc::invalid_argument);
  CHECK(status_kind(memory.allocate(max_bytes, Alignment(1)).error()) == StatusKind::resource_exhausted);
}

TEST_CASE("pinned: what cannot be pinned is given back, and the error has the native number") {
  StrictLog log;
  FakePinner pinner;
  pinner.fail_at = 1;
  auto memory = make_stack<Stack<StrictMemory, Pinned<FakePinner>>>(StrictMemory(log), pinner);
  const Error e = memory.allocate(10, Alignment(1)).error();
  CHECK(e.native == 12);
  CHECK(e.requested == 10);
  CHECK(log.live.empty());
  CHECK(memory.allocate(10, Alignment(1)).ok());
}

TEST_CASE("pinned: mlock really locks, and says RLIMIT_MEMLOCK when that is passed") {
  Stack<SystemMemory, Pinned<MemoryLock>> memory;
  const long before = locked();
  REQUIRE(before >= 0);
  const Result<Block> block = memory.allocate(3 * 4096, Alignment(4096));
  if (block.ok()) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // under these the C library's mlock does nothing
    CHECK(locked() == before + 3 * 4096);
#endif
    memory.deallocate(*block);
    CHECK(locked() == before);
  } else {
    CHECK(block.error().native != 0);  // this machine lets nobody lock
  }
  // Root may lock more than the limit, so this is told only where the system really refuses.
  const rlimit none{0, 0};
  CHECK(aborts([&] {
    if (setrlimit(RLIMIT_MEMLOCK, &none) != 0) return;
    const Result<Block> refused = memory.allocate(4096, Alignment(1));
    if (refused.ok() || (refused.error().code == Errc::over_budget && refused.error().native != 0)) std::abort();
  }));
}
