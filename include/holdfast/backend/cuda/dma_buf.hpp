// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstddef>

#include "holdfast/backend/cuda/context.hpp"
#include "holdfast/backend/cuda/detail/cuda_copies.hpp"
#include "holdfast/backend/host/owned_file.hpp"
#include "holdfast/core/block.hpp"

namespace holdfast {

/// A file by which another driver, a network card's, reaches device memory: whole pages of the host, and where in them a block is.
///
/// Asked for anew when the memory behind the addresses changes. Threads: as a value.
struct CudaDmaBuf {
  OwnedFile file;
  Bytes offset = 0;  ///< of the block in it
  Bytes size = 0;    ///< of the block
  Bytes whole = 0;   ///< of the pages
};

/// Makes one for a block of plain device memory or of mapped virtual memory, or for a part of one.
///
/// The memory outlives all uses of it. Errors: invalid_argument (an empty block; one whose pages reach beyond its allocation),
/// unsupported (the device has no dma-buf), the driver's own (memory of another kind, or not mapped throughout).
template <cuda_driver Driver>
[[nodiscard]] Result<CudaDmaBuf> export_cuda_dma_buf(const BasicCudaContext<Driver>& context, Block block) noexcept {
  if (block.data == nullptr || block.size <= 0) return make_error(Errc::invalid_argument, "there is nothing to share");
  auto& state = context.state();
  int can = 0;
  if (Error e = state.call(cuda_call::DeviceGetAttribute{}, &can, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, state.device); !e.ok()) return e;
  if (can == 0) return make_error(Errc::unsupported, "the device shares no memory by dma-buf");

  const auto page = static_cast<CUdeviceptr>(::sysconf(_SC_PAGESIZE));
  const CUdeviceptr start = detail::cuda_address(block.data), end = start + static_cast<CUdeviceptr>(block.size);
  const CUdeviceptr first = start & ~(page - 1), last = (end + page - 1) & ~(page - 1);
  // Of what is added to come to whole pages: is it of the same allocation?
  const auto reaches = [&](CUdeviceptr inside, CUdeviceptr to, bool& yes) noexcept -> Error {
    CUdeviceptr base = 0;
    std::size_t size = 0;
    Error e = state.inside(cuda_call::MemGetAddressRange{}, &base, &size, inside);
    yes = base <= to && to <= base + size;
    return e;
  };
  bool whole = true;
  if (first != start)
    if (Error e = reaches(start, first, whole); !e.ok()) return e;
  if (last != end && whole)
    if (Error e = reaches(end - 1, last, whole); !e.ok()) return e;
  if (!whole) return make_error(Errc::invalid_argument, "the pages of a block reach beyond its allocation");

  int file = -1;
  const auto size = static_cast<std::size_t>(last - first);
  if (Error e = state.inside(cuda_call::MemGetHandleForAddressRange{}, static_cast<void*>(&file), first, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                             0ull);
      !e.ok())
    return e;
  return CudaDmaBuf{own_file(file), static_cast<Bytes>(start - first), block.size, static_cast<Bytes>(size)};
}

}  // namespace holdfast
