// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/import_cache.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"
#include "holdfast/backend/host/process_identity.hpp"
#include "holdfast/backend/host/share_leases.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {
using Cache = BasicCudaImportCache<DoubleDriver>;
using Import = BasicCudaCachedImport<DoubleDriver>;
const ShareIdentity mine{{std::byte{1}}, 10, 3}, theirs{{std::byte{1}}, 11, 0};

// Two processes: a world each; memory of each kind in one, a cache in the other.
struct Processes {
  CudaWorld here, there;
  BasicCudaDeviceMemory<DoubleDriver> plain{*here.context};
  BasicCudaVmm<DoubleDriver> vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*here.context));
  BasicCudaPool<DoubleDriver> pool = std::move(*BasicCudaPool<DoubleDriver>::make(*here.context, {.file_handles = true}));
  BasicCudaVmm<DoubleDriver> fabric = std::move(*BasicCudaVmm<DoubleDriver>::make(*here.context, {.file_handles = false, .fabric = true}));
  Cache cache{*there.context};

  CudaSharedFile share(Block b, std::uint64_t generation = 3) {
    ShareIdentity self = mine;
    self.generation = generation;
    return std::move(*share_cuda(*here.context, b, self));
  }
  Result<Import> open(const CudaSharedFile& s, std::uint64_t generation = 3) { return cache.open(s.file(), s.blob(), theirs, generation); }
  std::size_t opens() {
    return there.cuda.count("cuIpcOpenMemHandle") + there.cuda.count("cuMemImportFromShareableHandle") + there.cuda.count("cuMemPoolImportPointer");
  }
  std::size_t closes() { return there.cuda.count("cuIpcCloseMemHandle") + there.cuda.count("cuMemUnmap") + there.cuda.count("cuMemFree"); }
};
}  // namespace

TEST_CASE("cuda import cache: a second import of an allocation has the same mapping, whatever the part; the last user closes it, once") {
  Processes p;
  const auto once = [&](auto memory) {
    const Block b = *memory.allocate(1_MiB, Alignment(256));
    const std::size_t opens = p.opens(), closes = p.closes();
    {
      Import first = std::move(*p.open(p.share(b)));
      Import part = std::move(*p.open(p.share({b.data + 512, 100})));
      CHECK(part.block().data == first.block().data + 512);
      CHECK(part.block().size == 100);
      CHECK(p.cache.size() == 1);
      CHECK(p.opens() == opens + 1);
      first = Import();
      CHECK(p.closes() == closes);
      part.block().data[99] = std::byte{7};
      Import moved = std::move(part);
      part = std::move(moved);
      CHECK(p.cache.size() == 1);
    }
    CHECK(b.data[512 + 99] == std::byte{7});
    CHECK(p.cache.size() == 0);
    CHECK(p.opens() == opens + 1);
    CHECK(p.closes() == closes + 1);
    memory.deallocate(b);
  };
  once(p.plain);
  once(p.vmm.memory());
  once(p.fabric.memory());
  once(p.pool.memory());
}

TEST_CASE("cuda import cache: MD2 what is open already is refused too to whoever names a stale generation, or may not open it") {
  Processes p;
  const Block b = *p.plain.allocate(1000, Alignment(256));
  {
    const CudaSharedFile old = p.share(b, 3), now = p.share(b, 4);
    const Import open = std::move(*p.open(old));
    CHECK(status_kind(p.open(old, 4).error()) == StatusKind::failed_precondition);
    CHECK(p.cache.open(-1, old.blob(), mine, 3).error().code == Errc::wrong_state);
    const Import again = std::move(*p.open(now, 4));  // another generation's is another allocation
    CHECK(p.cache.size() == 2);
  }
  CHECK(p.cache.size() == 0);
  p.plain.deallocate(b);
}

TEST_CASE("cuda import cache: what its owner freed and made anew at the same address is not taken for what is open") {
  Processes p;
  const Block first = *p.plain.allocate(1_MiB, Alignment(256));
  const CudaSharedFile old = p.share(first);
  const Import open = std::move(*p.open(old));
  p.plain.deallocate(first);  // against the rules: the owner has no lease for it
  const Block again = *p.plain.allocate(1_MiB, Alignment(256));
  REQUIRE(again.data == first.data);
  const CudaSharedFile fresh = p.share(again);
  CHECK(!fresh.blob().same_allocation(old.blob()));
  const Import other = std::move(*p.open(fresh));
  CHECK(p.cache.size() == 2);
  CHECK(!p.open(CudaSharedFile({}, [&] {
           ShareBlob gone = old.blob();
           gone.allocation += 1000;  // never there
           return gone;
         }())).ok());
  p.plain.deallocate(again);
}

TEST_CASE("cuda import cache: hostile blobs beside an open allocation: refused, or a block of it; nothing stays, and leases end with what failed") {
  Processes p;
  const auto try_all = [&](auto memory) {
    const Block b = *memory.allocate(3000, Alignment(256));
    {
      const CudaSharedFile shared = p.share({b.data + 512, 1000});
      const Import open = std::move(*p.open(shared));
      ShareLeases<decltype(memory)> leases(memory);
      const int files = open_files();
      const std::size_t opened = opened_of_tampered(shared.blob(), [&](const ShareBlob& blob) -> Result<Block> {
        const auto import = p.cache.open(shared.file(), blob, theirs, 3, std::move(*leases.lend(b)));
        CHECK((leases.collect() == 1) == import.ok());
        if (!import.ok()) return import.error();
        return import->block();
      });
      CHECK(opened > 0);
      CHECK(leases.collect() == 0);
      CHECK(open_files() == files);
      CHECK(p.cache.size() == 1);
    }
    memory.deallocate(b);
  };
  try_all(p.plain);
  try_all(p.vmm.memory());
  try_all(p.fabric.memory());
  try_all(p.pool.memory());
  CHECK(p.there.cuda.virtual_memory.allocations() == 0);
}

TEST_CASE("cuda import cache: threads that open and close one allocation share its mapping; in the end none is open") {
  Processes p;
  const Block b = *p.plain.allocate(1_MiB, Alignment(256));
  const CudaSharedFile shared = p.share(b);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const auto import = p.cache.open(-1, shared.blob(), theirs, 3);
        if (!import.ok() || import->block().size != 1_MiB) FAIL_CHECK("thread " << t);
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(p.cache.size() == 0);
  CHECK(p.opens() == p.closes());
  p.plain.deallocate(b);
}

TEST_CASE("cuda import cache: MD3 an importer that has memory mapped is killed: its lease ends within a second and the memory is freed") {
  CudaWorld here;
  const auto vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*here.context));
  auto memory = vmm.memory();
  const Block block = *memory.allocate(2_MiB, Alignment(256));
  ShareLeases<decltype(memory)> leases(memory);
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  ::pid_t child = 0;
  {
    OwnedFile lease = std::move(*leases.lend(block));
    const CudaSharedFile shared = std::move(*share_cuda(*here.context, block, *process_identity(1)));
    block.data[5] = std::byte{5};
    child = ::fork();
    if (child == 0) {
      CudaDouble cuda;
      const auto context = std::move(*DoubleContext::make(cuda.driver(), 0));
      Cache cache(context);
      const auto import = cache.open(shared.file(), shared.blob(), *process_identity(0), 1, std::move(lease));
      if (!import.ok()) ::_exit(1);
      const char seen = static_cast<char>(import->block().data[5]);
      if (::write(ready[1], &seen, 1) != 1) ::_exit(2);
      for (;;) ::pause();
    }
  }  // the files are closed here
  char seen = 0;
  REQUIRE(::read(ready[0], &seen, 1) == 1);
  CHECK(seen == 5);
  leases.deallocate(block);
  CHECK(memory.held() == 2_MiB);
  CHECK(leases.wait(Deadline::after(std::chrono::milliseconds(20))).code == Errc::deadline);
  const auto start = std::chrono::steady_clock::now();
  ::kill(child, SIGKILL);
  CHECK(leases.wait(Deadline::after(std::chrono::seconds(1))).ok());
  MESSAGE("memory freed ", std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count(),
          " us after the kill");
  CHECK(memory.held() == 0);
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("cuda import cache: an importer that closes what it has and runs on ends its lease too") {
  Processes p;
  auto memory = p.vmm.memory();
  const Block b = *memory.allocate(100, Alignment(256));
  ShareLeases<decltype(memory)> leases(memory);
  {
    const Import import = std::move(*p.cache.open(p.share(b).file(), p.share(b).blob(), theirs, 3, std::move(*leases.lend(b))));
    leases.deallocate(b);
    CHECK(leases.collect() == 1);
    CHECK(memory.held() == 2_MiB);
    CHECK(import.block().size == 100);
  }
  CHECK(leases.collect() == 0);
  CHECK(memory.held() == 0);
}
