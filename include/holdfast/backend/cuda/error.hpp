// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "holdfast/backend/cuda/calls.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// The reason that a native code stands for. Source: the comments of `CUresult` in cuda.h.
[[nodiscard]] constexpr Errc cuda_errc(CUresult code) noexcept {
  switch (code) {
    case CUDA_SUCCESS: return Errc::ok;
    case CUDA_ERROR_OUT_OF_MEMORY: return Errc::out_of_memory;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE:
    case CUDA_ERROR_INVALID_CLUSTER_SIZE:
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: return Errc::invalid_argument;
    case CUDA_ERROR_NOT_INITIALIZED:  // no driver was loaded
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_DEVICE_NOT_LICENSED:
    case CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_INVALID_PTX:  // a kernel that this driver or device cannot take
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
    case CUDA_ERROR_UNSUPPORTED_LIMIT:
    case CUDA_ERROR_NOT_SUPPORTED: return Errc::unsupported;
    case CUDA_ERROR_MPS_MAX_CLIENTS_REACHED:
    case CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED:
    case CUDA_ERROR_TOO_MANY_PEERS: return Errc::over_budget;
    case CUDA_ERROR_NOT_READY: return Errc::would_block;
    case CUDA_ERROR_TIMEOUT: return Errc::deadline;
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_CONTEXT_ALREADY_IN_USE:
    case CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE:
    case CUDA_ERROR_ILLEGAL_STATE:
    case CUDA_ERROR_SYSTEM_NOT_READY:  // a daemon that multicast or the fabric needs does not run
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:  // a stream is being captured
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_CAPTURED_EVENT:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
    case CUDA_ERROR_ALREADY_MAPPED:
    case CUDA_ERROR_NOT_MAPPED:
    case CUDA_ERROR_PEER_ACCESS_NOT_ENABLED: return Errc::wrong_state;
    case CUDA_ERROR_NOT_FOUND:
    case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: return Errc::not_found;
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
    case CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: return Errc::already_exists;
    case CUDA_ERROR_NOT_PERMITTED: return Errc::permission_denied;
    case CUDA_ERROR_DEINITIALIZED: return Errc::aborted;  // the process ends
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_EXTERNAL_DEVICE: return Errc::device_fault;
    default: return Errc::internal;
  }
}

/// The error of a driver's call: the reason, "NAME failed", the native code; `ok` for success.
template <class Call>
[[nodiscard]] constexpr Error cuda_error(Call, CUresult code) noexcept {
  if (code == CUDA_SUCCESS) return {};
  Error e = make_error(cuda_errc(code), cuda_call::failed<Call>.data());
  e.native = static_cast<std::int32_t>(code);
  return e;
}

}  // namespace holdfast
