// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/device_memory.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "double/cuda_world.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

using Memory = BasicCudaDeviceMemory<DoubleDriver>;
static_assert(memory_backend<Memory> && copying_backend<Memory> && !stream_ordered_backend<Memory>);

TEST_CASE("cuda device memory: a block for a request, of the context's device, freed as it was given") {
  CudaWorld w;
  Memory first(*w.context), second(*w.other);
  const Block a = *first.allocate(1_MiB, Alignment(256)), b = *second.allocate(2_MiB, Alignment(256));
  CHECK(w.cuda.used(0) == 1_MiB);
  CHECK(w.cuda.used(1) == 2_MiB);
  first.deallocate(a);
  second.deallocate(b);
  CHECK(!(first == second));
}

TEST_CASE("cuda device memory: out of memory says what was asked for, what is free, the call and the code") {
  CudaWorld w;
  Memory m(*w.context);
  const Block a = *m.allocate(60_MiB, Alignment(256));
  const Error e = m.allocate(5_MiB, Alignment(256)).error();
  CHECK(e.code == Errc::out_of_memory);
  CHECK(e.requested == 5_MiB);
  CHECK(e.available == 4_MiB);
  CHECK(e.native == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(says(e, "cuMemAlloc failed (requested 5242880, available 4194304) [native 2]"));
  m.deallocate(a);
}

TEST_CASE("cuda device memory: an alignment that the driver does not give is refused, and the block is given back") {
  CudaWorld w;
  Memory m(*w.context);
  const Block a = *m.allocate(256, Alignment(256));
  CHECK(m.allocate(256, Alignment(1_MiB)).error().code == Errc::unsupported);
  CHECK(w.cuda.used(0) == 256);
  m.deallocate(a);
}

TEST_CASE("cuda device memory: freed while a kernel uses it, it is found as a race: the driver only may wait") {
  CudaWorld w;
  Memory m(*w.context);
  const DoubleStream s = w.stream();
  const Block a = *m.allocate(256, Alignment(256));
  auto later = w.cuda.hold(s.native());
  w.cuda.launch(s.native(), "kernel", {writes(a)}, [] {});
  m.deallocate(a);
  static_cast<void>(later.set());
  CHECK(w.cuda.races().find("kernel") != std::string::npos);
  w.check_races = false;
}

TEST_CASE("cuda device memory: a buffer's bytes go over to another device and back, over seeds") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CudaWorld w(seed);
    Memory here(*w.context), there(*w.other);
    std::vector<std::byte> in(1000, std::byte{5}), out(1000);
    w.cuda.host_writes(in);
    const Block a = *here.allocate(1000, Alignment(256)), b = *there.allocate(1000, Alignment(256));
    CHECK(here.copy_in(a, 0, in)->wait().ok());
    CHECK(there.copy(b, 0, a, 0, 1000)->wait().ok());
    CHECK(there.copy_out(b, 0, out)->wait().ok());
    w.cuda.host_reads(out);
    CHECK(in == out);
    here.deallocate(a);
    there.deallocate(b);
  }
}
