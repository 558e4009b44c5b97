// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/error.hpp"

#include <doctest/doctest.h>

#include <string>

#include "double/cuda_world.hpp"
#include "holdfast/backend/cuda/device_memory.hpp"
#include "holdfast/backend/cuda/pool_memory.hpp"
#include "holdfast/backend/cuda/vmm_memory.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

TEST_CASE("cuda error: codes after which cuda.h wants the process to end are faults of the device") {
  for (const CUresult code :
       {CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE, CUDA_ERROR_CONTAINED, CUDA_ERROR_ILLEGAL_ADDRESS,
        CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_ASSERT, CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC, CUDA_ERROR_LAUNCH_FAILED,
        CUDA_ERROR_TENSOR_MEMORY_LEAK, CUDA_ERROR_EXTERNAL_DEVICE, CUDA_ERROR_MPS_CLIENT_TERMINATED}) {
    CAPTURE(static_cast<int>(code));
    CHECK(cuda_errc(code) == Errc::device_fault);
  }
}

TEST_CASE("cuda error: all codes of a capture are a wrong state, a kernel that the driver cannot take is unsupported") {
  for (int code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; code <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD; ++code)
    CHECK(cuda_errc(static_cast<CUresult>(code)) == Errc::wrong_state);
  for (const CUresult code : {CUDA_ERROR_INVALID_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_NO_BINARY_FOR_GPU,
                              CUDA_ERROR_JIT_COMPILER_NOT_FOUND, CUDA_ERROR_JIT_COMPILATION_DISABLED})
    CHECK(cuda_errc(code) == Errc::unsupported);
  CHECK(cuda_errc(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED) == Errc::over_budget);
}

TEST_CASE("cuda error: no code but success is no error; one that nobody knows is internal, with its number and its call") {
  for (int code = 1; code <= 1000; ++code) CHECK(cuda_errc(static_cast<CUresult>(code)) != Errc::ok);
  const Error e = cuda_error(cuda_call::MemAlloc{}, static_cast<CUresult>(1000));
  CHECK(e.code == Errc::internal);
  CHECK(e.native == 1000);
  CHECK(says(e, "cuMemAlloc failed"));
  CHECK(cuda_error(cuda_call::MemAlloc{}, CUDA_SUCCESS).ok());
}

TEST_CASE("cuda error: out of memory says how much the device has free, whatever the memory is; a fault is not tried again") {
  CudaWorld w;
  const auto pool = std::move(*BasicCudaPool<DoubleDriver>::make(*w.context));
  const auto vmm = std::move(*BasicCudaVmm<DoubleDriver>::make(*w.context));
  const DoubleStream s = w.stream();
  for (const Error& e : {BasicCudaDeviceMemory<DoubleDriver>(*w.context).allocate(65_MiB, Alignment(256)).error(),
                         pool.memory().allocate(s, 65_MiB, Alignment(256)).error(), vmm.memory().allocate(66_MiB, Alignment(256)).error()}) {
    CHECK(e.code == Errc::out_of_memory);
    CHECK(e.available == 64_MiB);
    CHECK(e.requested >= 65_MiB);
  }
  const auto before = w.cuda.count("cuMemAllocFromPoolAsync");
  w.cuda.fail_at(3, CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(pool.memory().allocate(s, 100, Alignment(256)).error().code == Errc::device_fault);
  CHECK(w.cuda.count("cuMemAllocFromPoolAsync") == before + 1);
}
