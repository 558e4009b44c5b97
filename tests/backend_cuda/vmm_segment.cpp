// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/vmm_segment.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <utility>

#include "double/cuda_world.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {
using Segment = BasicCudaSegment<DoubleDriver>;
Segment reserve(CudaWorld& w, Bytes size, Bytes granule = 0) { return std::move(*Segment::reserve(*w.context, size, granule)); }
void touch(const Segment& s, Bytes offset, Bytes size) { std::memset(s.range().data + offset, 1, static_cast<std::size_t>(size)); }
}  // namespace

TEST_CASE("cuda segment: addresses are reserved once, memory comes and goes by granules, addresses and contents stay") {
  CudaWorld w;
  Segment s = reserve(w, 63_MiB);
  CHECK(s.range().size == 64_MiB);
  CHECK(s.mapped() == 0);
  CHECK(w.cuda.used(0) == 0);
  CHECK(s.map(0, 3_MiB).ok());
  CHECK(s.mapped() == 4_MiB);
  touch(s, 0, 4_MiB);
  CHECK(s.map(0, 8_MiB).ok());  // only what is not there yet
  CHECK(w.cuda.used(0) == 8_MiB);
  CHECK(s.range().data[100] == std::byte{1});
  touch(s, 4_MiB, 4_MiB);
  CHECK(s.unmap(1_MiB, 6_MiB) == 4_MiB);  // the granules that lie inside as a whole
  CHECK(s.is_mapped(0));
  CHECK(!s.is_mapped(2_MiB));
  CHECK(!s.is_mapped(5_MiB));
  CHECK(s.is_mapped(6_MiB));
  CHECK(s.map(0, 8_MiB).ok());
  CHECK(s.range().data[100] == std::byte{1});
  CHECK(w.cuda.count("cuMemAddressReserve") == 1);
  Segment moved = std::move(s);
  CHECK(moved.mapped() == 8_MiB);
  CHECK(s.mapped() == 0);
}

TEST_CASE("cuda segment: a map that fails at any of its calls leaves everything as it was") {
  int failures = 0;
  for (std::uint64_t n = 1;; ++n) {
    CudaWorld w;
    Segment s = reserve(w, 64_MiB);
    REQUIRE(s.map(4_MiB, 2_MiB).ok());
    touch(s, 4_MiB, 2_MiB);
    w.cuda.fail_at(n, CUDA_ERROR_OUT_OF_MEMORY);
    const Error e = s.map(0, 10_MiB);
    const std::string failed = w.cuda.failed_call;
    w.cuda.fail_at(0, CUDA_SUCCESS);
    if (failed.empty()) break;
    ++failures;
    CHECK(e.code == Errc::out_of_memory);
    CHECK(e.native == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(says(e, failed + " failed"));
    CHECK(s.mapped() == 2_MiB);
    CHECK(w.cuda.virtual_memory.mappings() == 1);
    CHECK(w.cuda.used(0) == 2_MiB);
    for (Bytes at = 0; at < 10_MiB; at += 2_MiB) CHECK(s.is_mapped(at) == (at == 4_MiB));
    CHECK(s.range().data[4_MiB] == std::byte{1});
    CHECK(s.map(0, 10_MiB).ok());
    touch(s, 0, 10_MiB);
  }
  CHECK(failures == 12);  // create, map, set access for each of four granules
}

TEST_CASE("cuda segment: it ends where the device does, and says how much is left") {
  CudaWorld w;
  Segment s = reserve(w, 128_MiB);
  REQUIRE(s.map(0, 60_MiB).ok());
  const Error e = s.map(0, 128_MiB);
  CHECK(e.code == Errc::out_of_memory);
  CHECK(s.mapped() == 60_MiB);
  CHECK(s.map(60_MiB, 4_MiB).ok());
}

TEST_CASE("cuda segment: bad sizes, granules and ranges are refused, and nothing is kept") {
  CudaWorld w;
  for (const Bytes size : {Bytes{0}, Bytes{-1}, max_bytes}) CHECK(Segment::reserve(*w.context, size).error().code == Errc::invalid_argument);
  for (const Bytes granule : {Bytes{-1}, 1_MiB, 3_MiB}) CHECK(Segment::reserve(*w.context, 8_MiB, granule).error().code == Errc::invalid_argument);
  Segment s = reserve(w, 64_MiB, 16_MiB);
  CHECK(s.granule() == 16_MiB);
  CHECK(s.map(-1, 1).code == Errc::invalid_argument);
  CHECK(s.map(0, 64_MiB + 1).code == Errc::invalid_argument);
  CHECK(s.map(max_bytes, max_bytes).code == Errc::invalid_argument);
  CHECK(s.unmap(-1, 5) == 0);
  CHECK(s.map(0, 0).ok());
  CHECK(s.mapped() == 0);
  CHECK(!s.is_mapped(-1));
  CHECK(!s.is_mapped(64_MiB));
}

TEST_CASE("cuda segment: destroyed with work on it, it waits for that") {
  CudaWorld w;
  const DoubleStream stream = w.stream();
  Segment s = reserve(w, 2_MiB);
  REQUIRE(s.map(0, 2_MiB).ok());
  const Block b = s.range();
  w.cuda.launch(stream.native(), "kernel", {writes(b)}, [b] { std::memset(b.data, 1, static_cast<std::size_t>(b.size)); });
}
