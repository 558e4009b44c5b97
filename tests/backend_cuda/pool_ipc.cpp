// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/pool_ipc.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <utility>

#include "double/cuda_world.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {
using Pool = BasicCudaPool<DoubleDriver>;
using PoolImport = BasicCudaPoolImport<DoubleDriver>;
using PoolBlock = BasicCudaPoolBlock<DoubleDriver>;
const ShareIdentity mine{{std::byte{1}}, 10, 3}, theirs{{std::byte{1}}, 11, 0};

// Two processes: a world each; a pool of one with a block.
struct Processes {
  CudaWorld here, there;
  Pool pool = std::move(*Pool::make(*here.context, {.file_handles = true}));
  BasicCudaPoolMemory<DoubleDriver> memory = pool.memory();
  Block block = *memory.allocate(1_MiB, Alignment(256));
  OwnedFile file = std::move(*share_cuda_pool(memory));
  ShareBlob blob = *share_cuda_pool_block(memory, block, mine);
  ~Processes() { memory.deallocate(block); }
  PoolImport open() { return std::move(*PoolImport::open(*there.context, file->number, blob, theirs, 3)); }
};
}  // namespace

TEST_CASE("cuda pool ipc: a pool's file goes once, its blocks by blobs alone; what one process writes the other's kernels read") {
  Processes p;
  const PoolImport pool = p.open();
  p.file = OwnedFile();
  p.block.data[512] = std::byte{7};
  const Block second = *p.memory.allocate(1000, Alignment(256));
  second.data[999] = std::byte{8};
  {
    const auto part = write_share_blob(*share_cuda_pool_block(p.memory, {p.block.data + 512, 100}, mine));
    const auto whole = write_share_blob(*share_cuda_pool_block(p.memory, second, mine));
    const PoolBlock a = *pool.block(*read_share_blob(part), theirs, 3), b = *pool.block(*read_share_blob(whole), theirs, 3);
    CHECK(a.block().size == 100);
    CHECK(a.block().data[0] == std::byte{7});
    CHECK(b.block().size == 1000);
    CHECK(b.block().data[999] == std::byte{8});
    const DoubleStream s = p.there.stream();
    p.there.cuda.launch(s.native(), "kernel", {writes(a.block())}, [x = a.block()] { std::memset(x.data, 1, 100); });
  }  // waits for the kernel
  CHECK(p.block.data[512] == std::byte{1});
  CHECK(p.there.cuda.shared_pools.imported() == 0);
  p.memory.deallocate(second);
}

TEST_CASE("cuda pool ipc: a block given back in a stream's order is free for its owner when the stream has come so far") {
  Processes p;
  const PoolImport pool = p.open();
  const DoubleStream s = p.there.stream();
  PoolBlock b = std::move(*pool.block(p.blob, theirs, 3));
  p.there.cuda.launch(s.native(), "kernel", {writes(b.block())}, [x = b.block()] { std::memset(x.data, 1, 1_MiB); });
  b.release(s);
  CHECK(b.block().data == nullptr);
  CHECK(s.synchronize().ok());
  CHECK(p.there.cuda.count("cuMemFree") == 0);
}

TEST_CASE("cuda pool ipc: an owner that releases a block before its importers is what the double calls misuse; a pool may go before its blocks") {
  Processes p;
  const Block lent = *p.memory.allocate(100, Alignment(256));
  const ShareBlob blob = *share_cuda_pool_block(p.memory, lent, mine);
  PoolBlock b;
  {
    const PoolImport pool = p.open();
    b = std::move(*pool.block(blob, theirs, 3));
  }
  p.memory.deallocate(lent);
  CHECK(p.here.cuda.misuse.find("other processes have imported") != std::string::npos);
  p.here.cuda.misuse.clear();
}

TEST_CASE("cuda pool ipc: the importer may not allocate from the pool, nor share it on") {
  Processes p;
  const PoolImport pool = p.open();
  const PoolBlock b = *pool.block(p.blob, theirs, 3);
  CHECK(p.there.cuda.count("cuMemPoolSetAccess") == 1);  // given anew; without it the double complains of the kernel
  CHECK(says(pool.block(p.blob, theirs, 3).error(), "cuMemPoolImportPointer failed"));  // open already
  CHECK(detail::cuda_pool_blob(p.there.context->state(), b.block(), theirs).error().code == Errc::invalid_argument);
}

TEST_CASE("cuda pool ipc: MD2 a stale generation, another owner's block, another kind and sizes that are not are refused; nothing stays open") {
  Processes p, q;
  const PoolImport pool = p.open();
  const auto opened = [&](const ShareBlob& b, std::uint64_t generation) { return pool.block(b, theirs, generation).error(); };
  CHECK(status_kind(opened(p.blob, 4)) == StatusKind::failed_precondition);
  CHECK(status_kind(PoolImport::open(*p.there.context, p.file->number, p.blob, theirs, 4).error()) == StatusKind::failed_precondition);
  CHECK(says(PoolImport::open(*p.there.context, p.file->number, p.blob, mine, 3).error(), "in the process that shares it"));
  ShareBlob bad = p.blob;
  bad.from.generation = 4;
  CHECK(says(opened(bad, 4), "another owner"));
  bad = p.blob;
  bad.from.process = 12;
  CHECK(opened(bad, 3).code == Errc::wrong_state);
  CHECK(says(opened(q.blob, 3), "cuMemPoolImportPointer failed"));  // the same names, another pool
  bad = p.blob;
  bad.kind = ShareKind::cuda_ipc;
  CHECK(opened(bad, 3).code == Errc::corrupt);
  bad = p.blob;
  bad.whole = bad.handle.size = 2_MiB;
  CHECK(says(opened(bad, 3), "beyond its allocation"));
  CHECK(PoolImport::open(*p.there.context, -1, p.blob, theirs, 3).error().code == Errc::invalid_argument);
  CHECK(PoolImport().block(p.blob, theirs, 3).error().code == Errc::wrong_state);
  CHECK(p.there.cuda.shared_pools.imported() == 0);
}

TEST_CASE("cuda pool ipc: hostile blobs, every byte changed and the checksum right: refused, or a block of that pool; nothing stays open") {
  Processes p;
  const PoolImport pool = p.open();
  const int files = open_files();
  const std::size_t opened = opened_of_tampered(p.blob, [&](const ShareBlob& b) -> Result<Block> {
    const auto alone = PoolImport::open(*p.there.context, p.file->number, b, theirs, 3);
    const auto import = pool.block(b, theirs, 3);
    if (!import.ok()) return import.error();
    CHECK(alone.ok());
    return import->block();
  });
  CHECK(opened > 0);
  CHECK(p.there.cuda.shared_pools.imported() == 0);
  CHECK(open_files() == files);
}

TEST_CASE("cuda pool ipc: what cannot be shared so: a pool that was not made for it, a block of no pool, too much of one") {
  Processes p;
  const Pool plain = std::move(*Pool::make(*p.here.context));
  CHECK(says(share_cuda_pool(plain.memory()).error(), "cuMemPoolExportToShareableHandle failed"));
  const Pool unshared = std::move(*Pool::make(*p.here.context, {.file_handles = true}));
  auto m = unshared.memory();
  const Block b = *m.allocate(100, Alignment(256));
  CHECK(says(share_cuda_pool_block(m, b, mine).error(), "cuMemPoolExportPointer failed"));  // its file comes first
  CHECK(share_cuda_pool_block(m, {b.data, 101}, mine).error().code == Errc::invalid_argument);
  CHECK(share_cuda_pool_block(m, Block{}, mine).error().code == Errc::invalid_argument);
  CHECK(share_cuda_pool_block(m, {b.data + 8_MiB, 100}, mine).error().code == Errc::not_found);
  m.deallocate(b);
}
