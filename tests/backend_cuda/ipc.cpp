// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/ipc.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <utility>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {
using Memory = BasicCudaDeviceMemory<DoubleDriver>;
using Import = BasicCudaImport<DoubleDriver>;

// Two processes: a world each.
struct Processes {
  CudaWorld here, there;
  Memory mine{*here.context};
  Block block = *mine.allocate(1_MiB, Alignment(256));
  ~Processes() { mine.deallocate(block); }
};
}  // namespace

TEST_CASE("cuda ipc: a part of a block is seen by another process, opened twice, closed as often") {
  Processes p;
  std::memset(p.block.data, 1, 1000);
  const Block part{p.block.data + 512, 1000};
  const ShareHandle handle = *export_cuda_block(*p.here.context, part);
  CHECK(handle.size == 1000);
  CHECK(handle.offset == 512);
  Import first = std::move(*Import::open(*p.there.context, handle));
  {
    const Import second = std::move(*Import::open(*p.there.context, handle));
    CHECK(second.block() == first.block());
    CHECK(second.block().size == 1000);
    CHECK(second.block().data[0] == std::byte{1});
  }
  CHECK(p.there.cuda.leaks().find("1 opened handles") != std::string::npos);
  first = Import();
  CHECK(p.there.cuda.leaks().find("opened") == std::string::npos);
}

TEST_CASE("cuda ipc: a handle that was tampered with is corrupt, and nothing stays open") {
  Processes p;
  const ShareHandle good = *export_cuda_block(*p.here.context, p.block);
  const auto with = [&](Bytes offset, Bytes size) {
    ShareHandle h = good;
    h.offset = offset;
    h.size = size;
    return Import::open(*p.there.context, h).error();
  };
  for (const Error& e : {with(0, 0), with(0, -1), with(-1, 10), with(1, 1_MiB), with(0, 1_MiB + 1), with(max_bytes, 1), with(1, max_bytes)}) {
    CHECK(e.code == Errc::corrupt);
    CHECK(status_kind(e) == StatusKind::invalid_argument);
  }
  ShareHandle garbage = good;
  std::memset(garbage.bytes.data(), 0x5A, 64);
  CHECK(Import::open(*p.there.context, garbage).error().code == Errc::invalid_argument);
  CHECK(Import::open(*p.there.context, ShareHandle{}).error().code == Errc::corrupt);
  CHECK(p.there.cuda.leaks().find("opened") == std::string::npos);
}

TEST_CASE("cuda ipc: MD2 a blob of an earlier generation is refused, as are another host's and its own process's; nothing stays open") {
  Processes p;
  p.block.data[512] = std::byte{7};
  const ShareIdentity mine{{std::byte{1}}, 10, 3}, theirs{{std::byte{1}}, 11, 0}, far{{std::byte{2}}, 11, 0};
  const auto written = write_share_blob(*share_cuda_block(*p.here.context, {p.block.data + 512, 1000}, mine));
  const ShareBlob blob = *read_share_blob(written);
  CHECK(blob.whole == 1_MiB);
  const auto opened = [&](const ShareBlob& b, const ShareIdentity& self, std::uint64_t generation) {
    return Import::open(*p.there.context, b, self, generation).error();
  };
  const Error stale = opened(blob, theirs, 4);
  CHECK(stale.code == Errc::wrong_state);
  CHECK(status_kind(stale) == StatusKind::failed_precondition);
  CHECK(says(stale, "another generation"));
  CHECK(opened(blob, theirs, 2).code == Errc::wrong_state);
  CHECK(opened(blob, far, 3).code == Errc::unsupported);
  CHECK(says(opened(blob, mine, 3), "in the process that shares it"));
  CHECK(p.there.cuda.count("cuIpcOpenMemHandle") == 0);
  ShareBlob other = blob;
  other.kind = ShareKind::cuda_file;
  CHECK(opened(other, theirs, 3).code == Errc::corrupt);
  other = blob;
  other.whole += 256;
  CHECK(says(opened(other, theirs, 3), "has another size"));
  other.handle.size = max_bytes;
  CHECK(opened(other, theirs, 3).code == Errc::corrupt);
  CHECK(p.there.cuda.leaks().find("opened") == std::string::npos);
  const Import good = std::move(*Import::open(*p.there.context, blob, theirs, 3));
  CHECK(good.block().size == 1000);
  CHECK(good.block().data[0] == std::byte{7});
}

TEST_CASE("cuda ipc: in the exporting process it is refused, after the memory was freed, too") {
  Processes p;
  const ShareHandle handle = *export_cuda_block(*p.here.context, p.block);
  CHECK(Import::open(*p.here.context, handle).error().code == Errc::wrong_state);
  const Block other = *p.mine.allocate(1_MiB, Alignment(256));
  const ShareHandle stale = *export_cuda_block(*p.here.context, other);
  p.mine.deallocate(other);
  CHECK(!Import::open(*p.there.context, stale).ok());
}

TEST_CASE("cuda ipc: what cannot be shared so is refused: nothing, too much, a pool's memory") {
  Processes p;
  CHECK(export_cuda_block(*p.here.context, Block{}).error().code == Errc::invalid_argument);
  CHECK(export_cuda_block(*p.here.context, {p.block.data, -1}).error().code == Errc::invalid_argument);
  CHECK(export_cuda_block(*p.here.context, {p.block.data + 1, 1_MiB}).error().code == Errc::invalid_argument);
  CHECK(export_cuda_block(*p.here.context, {p.block.data + 2_MiB, 1}).error().code == Errc::not_found);
  const auto pool = std::move(*BasicCudaPool<DoubleDriver>::make(*p.here.context));
  auto m = pool.memory();
  const Block b = *m.allocate(100, Alignment(256));
  CHECK(export_cuda_block(*p.here.context, b).error().code == Errc::invalid_argument);
  m.deallocate(b);
}

TEST_CASE("cuda ipc: hostile blobs, every byte changed and the checksum right: refused, or a block of that allocation; nothing stays open") {
  Processes p;
  const ShareIdentity mine{{std::byte{1}}, 10, 3}, theirs{{std::byte{1}}, 11, 0};
  const ShareBlob blob = *share_cuda_block(*p.here.context, {p.block.data + 512, 1000}, mine);
  const std::size_t opened = opened_of_tampered(blob, [&](const ShareBlob& b) -> Result<Block> {
    const auto import = Import::open(*p.there.context, b, theirs, 3);
    if (!import.ok()) return import.error();
    return import->block();
  });
  CHECK(opened > 0);    // another size in the allocation, another process
  CHECK(opened < 300);
  CHECK(p.there.cuda.leaks().find("opened") == std::string::npos);
}

TEST_CASE("cuda ipc: memory of another device is opened where it can be accessed; one that the process does not see is named as that") {
  CudaDoubleOptions apart, elsewhere;
  apart.peers = false;
  elsewhere.first_device = 5;
  CudaWorld here, peers, alone(apart), blind(elsewhere);
  Memory memory(*here.context);
  const Block block = *memory.allocate(1000, Alignment(256));
  const ShareIdentity mine{{std::byte{1}}, 10, 3}, theirs{{std::byte{1}}, 11, 0};
  const ShareBlob blob = *share_cuda_block(*here.context, block, mine);
  CHECK(Import::open(*peers.other, blob, theirs, 3).ok());
  const Error e = Import::open(*alone.other, blob, theirs, 3).error();
  CHECK(e.code == Errc::unsupported);
  CHECK(says(e, "cannot access"));
  CHECK(Import::open(*alone.context, blob, theirs, 3).ok());
  CHECK(Import::open(*blind.context, blob, theirs, 3).ok());  // its driver knows the device
  memory.deallocate(block);
  const Error unseen = Import::open(*blind.context, blob, theirs, 3).error();
  CHECK(unseen.native == CUDA_ERROR_INVALID_VALUE);
  CHECK(says(unseen, "does not see"));
}
