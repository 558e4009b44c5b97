// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/cuda/driver.hpp"

#include <doctest/doctest.h>

#include <string_view>
#include <tuple>

#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

TEST_CASE("cuda driver: where there is none, loading says so and every call fails, the program runs") {
  if (::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr) return;  // tests/device is for such machines
  const Result<RealDriver> driver = RealDriver::load();
  REQUIRE(!driver.ok());
  CHECK(driver.error().code == Errc::unsupported);
  CHECK(says(driver.error(), "there is no CUDA driver (libcuda.so.1)"));
  int count = 7;
  CHECK(RealDriver{}(cuda_call::DeviceGetCount{}, &count) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(count == 7);
}

TEST_CASE("cuda driver: a library that is not there, or is no driver, is unsupported") {
  CHECK(CudaTable("libholdfast_no_such.so").error().code == Errc::unsupported);
  CHECK(says(CudaTable("libc.so.6").error(), "the CUDA driver is older than CUDA 12.0"));
}

namespace {
// A driver of CUDA 12.0 as the documentation has it, that has everything but one call.
CUresult find_in_12_0(const char* name, void** function, int version, cuuint64_t, CUdriverProcAddressQueryResult* status) {
  if (version > 12000) return CUDA_ERROR_INVALID_VALUE;
  const bool has = std::string_view(name) != "cuStreamGetId";
  *function = has ? reinterpret_cast<void*>(&find_in_12_0) : nullptr;
  *status = has ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}
CUresult find_nothing(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*) { return CUDA_ERROR_INVALID_VALUE; }
}  // namespace

TEST_CASE("cuda driver: what an older driver lacks is asked of it by the version that has it, and is null; the rest is there") {
  using Table = detail::CudaTableOf<cuda_call::All>;
  const auto has = [](const Table& t, auto call) { return std::get<detail::CudaEntry<decltype(call)>>(t.entries).function != nullptr; };
  Table t;
  CHECK(t.fill(&find_in_12_0) == CUDA_SUCCESS);
  CHECK(has(t, cuda_call::MemMap{}));
  CHECK(!has(t, cuda_call::StreamGetId{}));
  CHECK(!has(t, cuda_call::MulticastCreate{}));
  CHECK(!has(t, cuda_call::MulticastGetGranularity{}));
  Table none;
  CHECK(none.fill(&find_nothing) == CUDA_ERROR_INVALID_VALUE);
  CHECK(!has(none, cuda_call::Init{}));
}

TEST_CASE("cuda driver: an error names the call and carries the native code") {
  const Error e = cuda_error(cuda_call::MemAlloc{}, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(e.code == Errc::out_of_memory);
  CHECK(e.native == 2);
  CHECK(says(e, "cuMemAlloc failed"));
  CHECK(says(e, "[native 2]"));
  CHECK(cuda_error(cuda_call::MemAlloc{}, CUDA_SUCCESS).ok());
}

TEST_CASE("cuda driver: native codes have the kinds that their comments in cuda.h describe") {
  const struct {
    CUresult code;
    StatusKind kind;
  } known[] = {
      {CUDA_ERROR_OUT_OF_MEMORY, StatusKind::resource_exhausted}, {CUDA_ERROR_INVALID_VALUE, StatusKind::invalid_argument},
      {CUDA_ERROR_INVALID_HANDLE, StatusKind::invalid_argument},  {CUDA_ERROR_NOT_READY, StatusKind::unavailable},
      {CUDA_ERROR_NO_DEVICE, StatusKind::unimplemented},          {CUDA_ERROR_STUB_LIBRARY, StatusKind::unimplemented},
      {CUDA_ERROR_NOT_SUPPORTED, StatusKind::unimplemented},      {CUDA_ERROR_NOT_PERMITTED, StatusKind::permission_denied},
      {CUDA_ERROR_INVALID_CONTEXT, StatusKind::failed_precondition},
      {CUDA_ERROR_SYSTEM_NOT_READY, StatusKind::failed_precondition},
      {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, StatusKind::already_exists},
      {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, StatusKind::not_found},
      {CUDA_ERROR_DEINITIALIZED, StatusKind::aborted},            {CUDA_ERROR_TIMEOUT, StatusKind::deadline_exceeded},
      {CUDA_ERROR_ILLEGAL_ADDRESS, StatusKind::internal},         {CUDA_ERROR_LAUNCH_FAILED, StatusKind::internal},
      {CUDA_ERROR_UNKNOWN, StatusKind::internal},
  };
  for (const auto& k : known) CHECK(status_kind(cuda_error(cuda_call::Init{}, k.code)) == k.kind);
  CHECK(cuda_errc(CUDA_ERROR_ILLEGAL_ADDRESS) == Errc::device_fault);
}
