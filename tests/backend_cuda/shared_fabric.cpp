// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/shared_fabric.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <utility>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"
#include "support/child.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {
using Import = BasicCudaFabricImport<DoubleDriver>;
const ShareIdentity mine{{std::byte{1}}, 10, 3}, theirs{{std::byte{2}}, 10, 0};  // the same process number on two hosts

CudaDoubleOptions that_permits(CUresult what) {
  CudaDoubleOptions o;
  o.fabric = what;
  return o;
}
struct Sharer : CudaWorld {
  explicit Sharer(CUresult permitted = CUDA_SUCCESS) : CudaWorld(that_permits(permitted)) {}
  BasicCudaVmm<DoubleDriver> vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*context, {.fabric = true}));
  BasicCudaVmmMemory<DoubleDriver> memory = vmm.memory();
  Block block = *memory.allocate(3_MiB, Alignment(256));
  ~Sharer() { memory.deallocate(block); }
};
}  // namespace

TEST_CASE("cuda fabric: MD1 what one process writes another reads, and back, by the blob's bytes alone, on whatever host") {
  Sharer here;
  const ShareBlobBytes bytes = write_share_blob(*here.memory.share_fabric(here.block, mine));
  here.block.data[3_MiB - 1] = std::byte{7};
  CHECK(status_in_child([&] {
          CudaDouble cuda;
          const auto context = std::move(*DoubleContext::make(cuda.driver(), 0));
          const Result<Import> got = Import::open(context, *read_share_blob(bytes), theirs, 3);
          if (!got.ok()) return 1;
          if (got->block().size != 3_MiB || got->block().data[3_MiB - 1] != std::byte{7}) return 2;
          std::memset(got->block().data, 8, 3_MiB);
          return 0;
        }) == 0);
  CHECK(here.block.data[0] == std::byte{8});
  CHECK(here.block.data[3_MiB - 1] == std::byte{8});
}

TEST_CASE("cuda fabric: MD2 the own process, a stale generation and another kind are refused, and nothing stays") {
  Sharer here;
  CudaWorld there;
  const ShareBlob blob = *here.memory.share_fabric(here.block, mine);
  CHECK(blob.kind == ShareKind::cuda_fabric);
  CHECK(blob.whole == 4_MiB);
  const auto opened = [&](const ShareBlob& b, const ShareIdentity& self, std::uint64_t generation) {
    return Import::open(*there.context, b, self, generation).error();
  };
  CHECK(opened(blob, mine, 3).code == Errc::wrong_state);
  CHECK(status_kind(opened(blob, theirs, 4)) == StatusKind::failed_precondition);
  ShareBlob bad = blob;
  bad.whole += 1;
  CHECK(opened(bad, theirs, 3).code == Errc::corrupt);
  bad.whole = 6_MiB;  // more than there is
  CHECK(says(opened(bad, theirs, 3), "cuMemMap failed"));
  bad = blob;
  bad.handle.bytes[0] ^= std::byte{1};
  CHECK(says(opened(bad, theirs, 3), "cuMemImportFromShareableHandle failed"));
  bad = blob;
  bad.kind = ShareKind::cuda_file;
  CHECK(opened(bad, theirs, 3).code == Errc::unsupported);  // another host's file
  bad.from.host = theirs.host;
  bad.from.process = 11;
  CHECK(opened(bad, theirs, 3).code == Errc::corrupt);
  CHECK(there.cuda.virtual_memory.allocations() == 0);
  CHECK(there.cuda.virtual_memory.reservations() == 0);
  CHECK(opened(blob, theirs, 3).ok());
}

TEST_CASE("cuda fabric: any byte of a blob changed by a hostile process: refused, or a block inside of the memory that there is") {
  Sharer here;
  CudaWorld there;
  const ShareBlob blob = *here.memory.share_fabric(here.block, mine);
  const std::size_t opened = opened_of_tampered(blob, [&](const ShareBlob& b) -> Result<Block> {
    const auto import = Import::open(*there.context, b, theirs, 3);
    if (!import.ok()) return import.error();
    std::memset(import->block().data, 1, static_cast<std::size_t>(import->block().size));
    return import->block();
  });
  CHECK(opened > 0);
  CHECK(there.cuda.virtual_memory.allocations() == 0);
}

TEST_CASE("cuda fabric: VM1 where the driver permits no fabric handles memory is there with a file alone, and sharing it by fabric says so") {
  for (const CUresult refusal : {CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED}) {
    Sharer here(refusal);
    const Error e = here.memory.share_fabric(here.block, mine).error();
    CHECK(e.code == Errc::unsupported);
    CHECK(says(e, "the driver permits none"));
    CHECK(here.cuda.count("cuMemExportToShareableHandle") == 0);
    CHECK(here.memory.share(here.block, mine).ok());
  }
}

TEST_CASE("cuda fabric: a process without the exporter's IMEX channel is denied, by the name of the call") {
  Sharer here;
  CudaWorld there(that_permits(CUDA_ERROR_NOT_PERMITTED));
  const Error e = Import::open(*there.context, *here.memory.share_fabric(here.block, mine), theirs, 3).error();
  CHECK(status_kind(e) == StatusKind::permission_denied);
  CHECK(says(e, "cuMemImportFromShareableHandle failed"));
}

TEST_CASE("cuda fabric: a handle keeps no memory: what its owner has given back is gone, what is mapped stays") {
  Sharer here;
  CudaWorld there;
  const Block lent = *here.memory.allocate(100, Alignment(256));
  lent.data[99] = std::byte{5};
  const ShareBlob blob = *here.memory.share_fabric(lent, mine);
  {
    const Import import = std::move(*Import::open(*there.context, blob, theirs, 3));
    here.memory.deallocate(lent);
    CHECK(import.block().data[99] == std::byte{5});
  }
  CHECK(says(Import::open(*there.context, blob, theirs, 3).error(), "cuMemImportFromShareableHandle failed"));
  CHECK(here.memory.share_fabric(lent, mine).error().code == Errc::not_found);
  CHECK(here.memory.share_fabric(Block{}, mine).error().code == Errc::not_found);
}

TEST_CASE("cuda fabric: an import that goes under a kernel waits for it") {
  Sharer here;
  CudaWorld there;
  const DoubleStream s = there.stream();
  const Import import = std::move(*Import::open(*there.context, *here.memory.share_fabric(here.block, mine), theirs, 3));
  const Block b = import.block();
  there.cuda.launch(s.native(), "kernel", {writes(b)}, [b] { std::memset(b.data, 1, static_cast<std::size_t>(b.size)); });
}
