// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <tuple>

#include "holdfast/backend/cuda/calls.hpp"
#include "holdfast/backend/cuda/detail/cuda_contexts.hpp"
#include "holdfast/backend/cuda/error.hpp"
#include "holdfast/concepts/sync.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// The driver as a policy: a copyable handle that makes any call of `cuda_call::All`.
///
/// `pause` lets a host thread sleep until a word that host functions change is no longer `old`, or for a while: at the
/// latest until the deadline. `contexts` is where the contexts of the driver know of each other.
template <class D>
concept cuda_driver = std::copyable<D> && requires(const D& d, int* n, CUcontext c, CUstream s, const std::atomic<std::uint32_t>& word,
                                                   std::uint32_t old, Deadline deadline) {
  { d(cuda_call::DeviceGetCount{}, n) } noexcept -> std::same_as<CUresult>;
  { d(cuda_call::CtxPushCurrent{}, c) } noexcept -> std::same_as<CUresult>;
  { d(cuda_call::StreamSynchronize{}, s) } noexcept -> std::same_as<CUresult>;
  { d.pause(word, old, deadline) } noexcept -> std::same_as<void>;
  { d.contexts() } noexcept -> std::same_as<detail::CudaContexts&>;
};

namespace detail {

template <class Call>
struct CudaEntry {
  typename Call::type* function = nullptr;
};

template <class Calls>
struct CudaTableOf;
template <class... Calls>
struct CudaTableOf<std::tuple<Calls...>> {
  std::tuple<CudaEntry<Calls>...> entries;
  // Asks a driver for all. The first refusal; none: those that it lacks, or that came after it, stay null.
  CUresult fill(decltype(&::cuGetProcAddress) find) noexcept {
    CUresult problem = CUDA_SUCCESS;
    (fill<Calls>(find, problem), ...);
    return problem;
  }
  template <class Entry>
  void fill(decltype(&::cuGetProcAddress) find, CUresult& problem) noexcept {
    void* function = nullptr;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const CUresult code = find(Entry::name, &function, Entry::version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
    if (code == CUDA_SUCCESS && found == CU_GET_PROC_ADDRESS_SUCCESS)
      std::get<CudaEntry<Entry>>(entries).function = reinterpret_cast<typename Entry::type*>(function);
    // A driver calls a version that is newer than its own an invalid value.
    const bool too_new = code == CUDA_ERROR_INVALID_VALUE && Entry::version > cuda_call::base_version;
    if (!too_new && problem == CUDA_SUCCESS) problem = code;
  }
};

}  // namespace detail

/// The entry points of one driver library; what it lacks is null and its call `CUDA_ERROR_NOT_SUPPORTED`.
///
/// The library stays open for ever. Threads: made by one, then constant.
class CudaTable {
 public:
  /// Loads a library and initialises the driver.
  ///
  /// Errors, as `error()`: unsupported (no such library, a driver before CUDA 12.0, no device), cuInit's own.
  explicit CudaTable(const char* library) noexcept {
    void* const opened = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      error_ = make_error(Errc::unsupported, "there is no CUDA driver (libcuda.so.1)");
      return;
    }
    const auto find = reinterpret_cast<decltype(&::cuGetProcAddress)>(::dlsym(opened, "cuGetProcAddress_v2"));
    if (find == nullptr) {
      error_ = make_error(Errc::unsupported, "the CUDA driver is older than CUDA 12.0");
      return;
    }
    if (const CUresult problem = table_.fill(find); problem != CUDA_SUCCESS) {
      error_ = make_error(cuda_errc(problem), "cuGetProcAddress failed");
      error_.native = static_cast<std::int32_t>(problem);
      return;
    }
    error_ = cuda_error(cuda_call::Init{}, call(cuda_call::Init{}, 0u));
  }

  /// Why the driver cannot be used; `ok` if it can.
  [[nodiscard]] const Error& error() const noexcept { return error_; }
  template <class Call, class... Args>
  CUresult call(Call, Args... args) const noexcept {
    auto* const function = std::get<detail::CudaEntry<Call>>(table_.entries).function;
    return function != nullptr ? function(args...) : CUDA_ERROR_NOT_SUPPORTED;
  }

 private:
  detail::CudaTableOf<cuda_call::All> table_;
  Error error_;
};

/// The driver of this machine, loaded when it is first asked for; no program depends on it to start.
///
/// Threads: any.
class RealDriver {
 public:
  /// Loads it. Errors: unsupported (no driver, too old a one, no device); cuInit's own. Cost: once a process.
  [[nodiscard]] static Result<RealDriver> load() noexcept {
    const CudaTable& t = table();
    if (!t.error().ok()) return t.error();
    return RealDriver{};
  }
  template <class Call, class... Args>
  CUresult operator()(Call call, Args... args) const noexcept {
    return table().call(call, args...);
  }
  static void pause(const std::atomic<std::uint32_t>& word, std::uint32_t old, Deadline deadline) noexcept {
    StdSync::wait_until(word, old, deadline);
  }
  [[nodiscard]] static detail::CudaContexts& contexts() noexcept {
    static constinit detail::CudaContexts all;
    return all;
  }

 private:
  [[nodiscard]] static const CudaTable& table() noexcept {
    static const CudaTable loaded("libcuda.so.1");
    return loaded;
  }
};
static_assert(cuda_driver<RealDriver>);

}  // namespace holdfast
