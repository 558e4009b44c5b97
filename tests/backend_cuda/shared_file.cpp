// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/shared_file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <utility>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"
#include "holdfast/backend/host/process_identity.hpp"
#include "support/child.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {
using Import = BasicCudaFileImport<DoubleDriver>;
const ShareIdentity mine{{std::byte{1}}, 10, 3}, theirs{{std::byte{1}}, 11, 0};

struct Sharer : CudaWorld {
  BasicCudaVmm<DoubleDriver> vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*context));
  BasicCudaVmmMemory<DoubleDriver> memory = vmm.memory();
  Block block = *memory.allocate(3_MiB, Alignment(256));
  ~Sharer() { memory.deallocate(block); }
};
bool is_open(int file) { return ::fcntl(file, F_GETFD) >= 0; }
}  // namespace

TEST_CASE("cuda shared file: MD1 what one process writes another reads, and back; the file may be closed once it is imported") {
  Sharer here;
  const int file = here.memory.share(here.block, *process_identity(1))->release();
  const ShareBlobBytes blob = write_share_blob(here.memory.share(here.block, *process_identity(1))->blob());
  here.block.data[3_MiB - 1] = std::byte{7};
  CHECK(status_in_child([&] {
          CudaDouble cuda;
          const auto context = std::move(*DoubleContext::make(cuda.driver(), 0));
          const Result<Import> got = Import::open(context, file, *read_share_blob(blob), *process_identity(0), 1);
          ::close(file);
          if (!got.ok()) return 1;
          if (got->block().size != 3_MiB || got->block().data[3_MiB - 1] != std::byte{7}) return 2;
          std::memset(got->block().data, 8, 3_MiB);
          return 0;
        }) == 0);
  CHECK((::fcntl(file, F_GETFD) & FD_CLOEXEC) != 0);  // programs that are started do not inherit it
  CHECK(here.block.data[0] == std::byte{8});
  CHECK(here.block.data[3_MiB - 1] == std::byte{8});
  ::close(file);
}

TEST_CASE("cuda shared file: MD1 a file that the exporter has closed is the driver's error, named; nothing is left of the attempt") {
  Sharer here;
  CudaWorld there;
  std::optional<CudaSharedFile> shared = std::move(*here.memory.share(here.block, mine));
  const ShareBlob blob = shared->blob();
  const int file = shared->file();
  CHECK(is_open(file));
  shared.reset();
  CHECK(!is_open(file));
  const Error e = Import::open(*there.context, file, blob, theirs, 3).error();
  CHECK(e.code == Errc::invalid_argument);
  CHECK(says(e, "cuMemImportFromShareableHandle failed"));
}

TEST_CASE("cuda shared file: the memory outlives its owner's release while another process has it mapped") {
  Sharer here;
  CudaWorld there;
  const Block lent = *here.memory.allocate(100, Alignment(256));
  lent.data[99] = std::byte{5};
  Import import;
  {
    const CudaSharedFile shared = *here.memory.share(lent, mine);
    import = std::move(*Import::open(*there.context, shared.file(), shared.blob(), theirs, 3));
  }
  here.memory.deallocate(lent);
  CHECK(import.block().size == 100);
  CHECK(import.block().data[99] == std::byte{5});
  const Import moved = std::move(import);
  CHECK(import.block().data == nullptr);
  CHECK(there.cuda.virtual_memory.mappings() == 1);
}

TEST_CASE("cuda shared file: MD2 a stale generation, another kind and sizes that the memory has not are refused, and nothing stays") {
  Sharer here;
  CudaWorld there;
  const CudaSharedFile shared = *here.memory.share(here.block, mine);
  CHECK(shared.blob().whole == 4_MiB);
  const auto opened = [&](const ShareBlob& b, std::uint64_t generation) {
    return Import::open(*there.context, shared.file(), b, theirs, generation).error();
  };
  CHECK(status_kind(opened(shared.blob(), 4)) == StatusKind::failed_precondition);
  ShareBlob bad = shared.blob();
  bad.kind = ShareKind::cuda_ipc;
  CHECK(opened(bad, 3).code == Errc::corrupt);
  bad = shared.blob();
  bad.whole += 1;
  CHECK(opened(bad, 3).code == Errc::corrupt);
  bad.whole = 6_MiB;  // more than there is
  CHECK(says(opened(bad, 3), "cuMemMap failed"));
  bad.whole = bad.handle.size = max_bytes & -(4_MiB);
  CHECK(says(opened(bad, 3), "cuMemAddressReserve failed"));
  CHECK(there.cuda.virtual_memory.allocations() == 0);
  CHECK(there.cuda.virtual_memory.reservations() == 0);
  CHECK(opened(shared.blob(), 3).ok());
}

TEST_CASE("cuda shared file: only a block that is out can be shared, and only from a source whose memory is made for it") {
  Sharer here;
  CHECK(here.memory.share({here.block.data, 100}, mine).error().code == Errc::not_found);
  CHECK(here.memory.share(Block{}, mine).error().code == Errc::not_found);
  const auto closed = std::move(*BasicCudaVmm<DoubleDriver>::make(*here.context, {.file_handles = false}));
  auto memory = closed.memory();
  const Block b = *memory.allocate(100, Alignment(256));
  CHECK(says(memory.share(b, mine).error(), "cuMemExportToShareableHandle failed"));
  memory.deallocate(b);
}

TEST_CASE("cuda shared file: an import that goes under a kernel waits for it") {
  Sharer here;
  CudaWorld there;
  const DoubleStream s = there.stream();
  const CudaSharedFile shared = *here.memory.share(here.block, mine);
  const Import import = std::move(*Import::open(*there.context, shared.file(), shared.blob(), theirs, 3));
  const Block b = import.block();
  there.cuda.launch(s.native(), "kernel", {writes(b)}, [b] { std::memset(b.data, 1, static_cast<std::size_t>(b.size)); });
}

TEST_CASE("cuda shared file: hostile blobs, every byte changed and the checksum right: refused, or a block of that memory; nothing stays") {
  Sharer here;
  CudaWorld there;
  const CudaSharedFile shared = *here.memory.share(here.block, mine);
  const std::size_t opened = opened_of_tampered(shared.blob(), [&](const ShareBlob& b) -> Result<Block> {
    const auto import = Import::open(*there.context, shared.file(), b, theirs, 3);
    if (!import.ok()) return import.error();
    return import->block();
  });
  CHECK(opened > 0);
  CHECK(opened < 400);
  CHECK(there.cuda.virtual_memory.allocations() == 0);
  CHECK(there.cuda.virtual_memory.reservations() == 0);
}

TEST_CASE("cuda shared file: a device that cannot access the memory's is told so before anything is mapped") {
  Sharer here;
  CudaDoubleOptions apart;
  apart.peers = false;
  CudaWorld there(apart);
  const CudaSharedFile shared = *here.memory.share(here.block, mine);
  CHECK(says(Import::open(*there.other, shared.file(), shared.blob(), theirs, 3).error(), "cannot access"));
  CHECK(there.cuda.count("cuMemImportFromShareableHandle") == 0);
  CHECK(Import::open(*there.context, shared.file(), shared.blob(), theirs, 3).ok());
}
