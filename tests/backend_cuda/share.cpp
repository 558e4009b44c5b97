// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/share.hpp"

#include <doctest/doctest.h>

#include <utility>

#include "double/cuda_world.hpp"
#include "holdfast/backend/bfc_pool.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/host_memory.hpp"
#include "holdfast/backend/cuda/import_cache.hpp"
#include "holdfast/backend/cuda/segment_memory.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"
#include "holdfast/backend/host/share_leases.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {
using Shared = BasicCudaShared<DoubleDriver>;
const ShareIdentity mine{{std::byte{1}}, 10, 3}, theirs{{std::byte{1}}, 11, 0};

// A process with memory of each kind.
struct Sharer : CudaWorld {
  BasicCudaDeviceMemory<DoubleDriver> plain{*context};
  BasicCudaVmm<DoubleDriver> vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*context));
  BasicCudaVmm<DoubleDriver> fabric_vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*context, {.file_handles = false, .fabric = true}));
  BasicCudaVmm<DoubleDriver> closed_vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*context, {.file_handles = false}));
  BasicCudaPool<DoubleDriver> pool = std::move(*BasicCudaPool<DoubleDriver>::make(*context, {.file_handles = true}));
  BasicCudaPool<DoubleDriver> closed_pool = std::move(*BasicCudaPool<DoubleDriver>::make(*context));
};
template <class Memory, class F>
void with_block(Memory memory, F f) {
  const Block b = *memory.allocate(3_MiB, Alignment(256));
  f(b);
  memory.deallocate(b);
}
}  // namespace

TEST_CASE("cuda share: of any address it is told by which mechanisms its memory can be shared, and nothing is kept of the question") {
  Sharer s;
  const auto ways = [&](Block b) { return *find_cuda_sharing(*s.context, b.data + 1_MiB); };
  with_block(s.plain, [&](Block b) {
    const CudaSharing w = ways(b);
    CHECK(w.ipc);
    CHECK(w.dma_buf);
    CHECK(!w.file);
    CHECK(w.pool == nullptr);
  });
  with_block(s.vmm.memory(), [&](Block b) {
    const CudaSharing w = ways(b);
    CHECK(!w.ipc);
    CHECK(w.file);
    CHECK(w.dma_buf);
    CHECK(w.pool == nullptr);
  });
  with_block(s.fabric_vmm.memory(), [&](Block b) {
    CHECK(ways(b).fabric);
    CHECK(!ways(b).file);
  });
  with_block(s.closed_vmm.memory(), [&](Block b) {
    const CudaSharing w = ways(b);
    CHECK(!w.file);
    CHECK(!w.fabric);
    CHECK(w.dma_buf);
  });
  with_block(s.pool.memory(), [&](Block b) {
    const CudaSharing w = ways(b);
    CHECK(w.pool == s.pool.native());
    CHECK(!w.ipc);
    CHECK(!w.dma_buf);
  });
  with_block(s.closed_pool.memory(), [&](Block b) { CHECK(ways(b).pool == nullptr); });
  int here = 0;
  CHECK(find_cuda_sharing(*s.context, &here).error().code == Errc::invalid_argument);
  CHECK(s.cuda.virtual_memory.allocations() == 0);
}

TEST_CASE("cuda share: one call shares a block by the way that its memory has, one call opens it, whatever it is") {
  Sharer s;
  CudaWorld there;
  const int files = open_files();
  const auto goes = [&](auto memory, ShareKind kind) {
    with_block(memory, [&](Block b) {
      b.data[2_MiB + 5] = std::byte{7};
      const CudaSharedFile shared = *share_cuda(*s.context, {b.data + 2_MiB, 100}, mine);
      CHECK(shared.blob().kind == kind);
      CHECK((shared.file() >= 0) == (kind == ShareKind::cuda_file || kind == ShareKind::cuda_pool));
      CHECK(shared.blob().handle.offset == 2_MiB);
      const Shared open = *Shared::open(*there.context, shared.file(), *read_share_blob(write_share_blob(shared.blob())), theirs, 3);
      CHECK(open.block().size == 100);
      CHECK(open.block().data[5] == std::byte{7});
    });
  };
  goes(s.plain, ShareKind::cuda_ipc);
  goes(s.vmm.memory(), ShareKind::cuda_file);
  goes(s.fabric_vmm.memory(), ShareKind::cuda_fabric);
  goes(s.pool.memory(), ShareKind::cuda_pool);
  CHECK(open_files() == files);  // the double keeps a file for each allocation, which are gone
  CHECK(there.cuda.shared_pools.imported() == 0);
  CHECK(there.cuda.leaks().find("opened") == std::string::npos);
  CHECK(s.cuda.virtual_memory.allocations() == 0);
}

TEST_CASE("cuda share: a segment's granules are shared one by one, a block over two of them not at all") {
  Sharer s;
  CudaWorld there;
  auto segment = std::move(*BasicCudaSegment<DoubleDriver>::reserve(*s.context, 8_MiB));
  REQUIRE(segment.map(0, 4_MiB).ok());
  const Block all = segment.range();
  CHECK(share_cuda(*s.context, {all.data, 100}, mine).error().code == Errc::unsupported);  // its memory has no handles
  CHECK(find_cuda_sharing(*s.context, all.data)->dma_buf);
  with_block(s.vmm.memory(), [&](Block b) {
    CHECK(share_cuda(*s.context, {b.data, 4_MiB}, mine).ok());  // whole granules
    CHECK(says(share_cuda(*s.context, {b.data, 4_MiB + 1}, mine).error(), "beyond its allocation"));
  });
}

TEST_CASE("cuda share: memory that was not made for it, and what the driver does not know, are refused") {
  Sharer s;
  with_block(s.closed_vmm.memory(), [&](Block b) { CHECK(share_cuda(*s.context, b, mine).error().code == Errc::unsupported); });
  with_block(s.closed_pool.memory(), [&](Block b) { CHECK(share_cuda(*s.context, b, mine).error().code == Errc::unsupported); });
  with_block(BasicCudaHostMemory<DoubleDriver>(*s.context), [&](Block b) { CHECK(share_cuda(*s.context, b, mine).error().code == Errc::unsupported); });
  std::byte here{};
  CHECK(share_cuda(*s.context, {&here, 1}, mine).error().code == Errc::invalid_argument);
  CHECK(share_cuda(*s.context, Block{}, mine).error().code == Errc::invalid_argument);
  ShareBlob none;
  none.kind = static_cast<ShareKind>(77);
  CHECK(Shared::open(*s.context, -1, none, theirs, 3).error().code == Errc::corrupt);
  none.kind = ShareKind::multicast_file;
  CHECK(Shared::open(*s.context, -1, none, theirs, 3).error().code == Errc::corrupt);
}

TEST_CASE("cuda share: blocks of a best-fit pool are parts of one allocation: shared one by one, open once, lent each by itself") {
  Sharer s;
  CudaWorld there;
  using Plain = BasicCudaDeviceMemory<DoubleDriver>;
  const auto heap = std::move(*BfcHeap<Plain>::make(Plain(*s.context), {.region = 8_MiB}));
  auto pool = heap.pool();
  const Block a = *pool.allocate(1000, Alignment(256)), b = *pool.allocate(5000, Alignment(256));
  BasicCudaImportCache<DoubleDriver> cache(*there.context);
  ShareLeases<decltype(pool)> leases(pool);
  const auto import = [&](Block block) {
    const CudaSharedFile shared = *share_cuda(*s.context, block, mine);
    CHECK(shared.blob().whole == 8_MiB);
    return cache.open(shared.file(), shared.blob(), theirs, 3, std::move(*leases.lend(block)));
  };
  {
    auto first = std::move(*import(a));
    const auto second = std::move(*import(b));
    CHECK(cache.size() == 1);
    CHECK(second.block().data - first.block().data == b.data - a.data);
    CHECK(second.block().size == 5000);
    leases.deallocate(a);
    leases.deallocate(b);
    CHECK(leases.collect() == 2);
    first = {};
    CHECK(leases.collect() == 1);
    const Block again = *pool.allocate(1000, Alignment(256));
    CHECK(again.data == a.data);  // free once more, though its allocation is open still
    pool.deallocate(again);
  }
  CHECK(leases.collect() == 0);
  CHECK(cache.size() == 0);
}

TEST_CASE("cuda share: a blob names the device that the memory lies on, not the one whose context shares it") {
  Sharer s;
  BasicCudaDeviceMemory<DoubleDriver> there(*s.other);
  const Block near = *s.plain.allocate(100, Alignment(256)), far = *there.allocate(100, Alignment(256));
  const auto device = [](const Result<CudaSharedFile>& shared) { return shared->blob().device; };
  CHECK(device(share_cuda(*s.context, far, mine)) == device(share_cuda(*s.other, far, mine)));
  CHECK(device(share_cuda(*s.context, near, mine)) != device(share_cuda(*s.context, far, mine)));
  there.deallocate(far);
  s.plain.deallocate(near);
}
