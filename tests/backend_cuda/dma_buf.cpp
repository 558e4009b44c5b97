// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/dma_buf.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>

#include <utility>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "holdfast/backend/cuda/segment_memory.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {
// A page that begins in a block, and the rest of it.
Block from_page(Block b) {
  const Bytes skip = static_cast<Bytes>((4096 - (reinterpret_cast<std::uintptr_t>(b.data) & 4095)) & 4095);
  return {b.data + skip, b.size - skip};
}
}  // namespace

TEST_CASE("cuda dma-buf: whole pages around a block, the offset says where in them it is; the file is closed with its owner") {
  CudaWorld w;
  BasicCudaDeviceMemory<DoubleDriver> m(*w.context);
  const Block all = *m.allocate(1_MiB, Alignment(256)), pages = from_page(all);
  const int files = open_files();
  {
    const CudaDmaBuf buf = std::move(*export_cuda_dma_buf(*w.context, {pages.data + 5000, 5000}));
    CHECK(buf.offset == 904);
    CHECK(buf.size == 5000);
    CHECK(buf.whole == 8192);
    CHECK(::fcntl(buf.file->number, F_GETFD) >= 0);
    CHECK(open_files() == files + 1);
    const CudaDmaBuf exact = std::move(*export_cuda_dma_buf(*w.context, {pages.data, 8192}));
    CHECK(exact.offset == 0);
    CHECK(exact.whole == 8192);
  }
  CHECK(open_files() == files);
  m.deallocate(all);
}

TEST_CASE("cuda dma-buf: pages that reach beyond the allocation, memory that has none, and nothing at all are refused") {
  CudaWorld w;
  BasicCudaDeviceMemory<DoubleDriver> m(*w.context);
  const Block b = *m.allocate(9000, Alignment(256)), pages = from_page(b);
  const auto refused = [&](Block block) { return export_cuda_dma_buf(*w.context, block).error(); };
  CHECK(refused(Block{}).code == Errc::invalid_argument);
  CHECK(refused({b.data, -5}).code == Errc::invalid_argument);
  CHECK(says(refused({pages.data, pages.size}), "beyond its allocation"));  // 9000 bytes end in no page
  if (pages.data != b.data) CHECK(says(refused({b.data, 100}), "beyond its allocation"));
  CHECK(refused({pages.data + 1_MiB, 100}).code == Errc::not_found);
  CHECK(says(refused({pages.data + 1_MiB, 4096}), "cuMemGetHandleForAddressRange failed"));
  const auto pool = std::move(*BasicCudaPool<DoubleDriver>::make(*w.context));
  auto pooled = pool.memory();
  const Block p = *pooled.allocate(64_KiB, Alignment(256));
  CHECK(says(refused({from_page(p).data, 4096}), "cuMemGetHandleForAddressRange failed"));
  pooled.deallocate(p);
  m.deallocate(b);
}

TEST_CASE("cuda dma-buf: a device without it is asked first") {
  CudaDoubleOptions o;
  o.dma_buf = false;
  CudaWorld w(o);
  BasicCudaDeviceMemory<DoubleDriver> m(*w.context);
  const Block b = *m.allocate(64_KiB, Alignment(256));
  CHECK(export_cuda_dma_buf(*w.context, {from_page(b).data, 4096}).error().code == Errc::unsupported);
  CHECK(w.cuda.count("cuMemGetHandleForAddressRange") == 0);
  m.deallocate(b);
}

TEST_CASE("cuda dma-buf: virtual memory, over the borders of its granules, where it is mapped") {
  CudaWorld w;
  auto s = std::move(*BasicCudaSegment<DoubleDriver>::reserve(*w.context, 8_MiB));
  REQUIRE(s.map(0, 4_MiB).ok());
  const Block all = s.range();
  const CudaDmaBuf buf = std::move(*export_cuda_dma_buf(*w.context, {all.data + 2_MiB - 100, 200}));
  CHECK(buf.whole == 8192);
  CHECK(buf.offset == 3996);
  CHECK(says(export_cuda_dma_buf(*w.context, {all.data + 4_MiB - 4096, 8192}).error(), "cuMemGetHandleForAddressRange failed"));
  const auto vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*w.context));
  auto m = vmm.memory();
  const Block b = *m.allocate(100, Alignment(256));
  CHECK(export_cuda_dma_buf(*w.context, b)->whole == 4096);
  m.deallocate(b);
}
