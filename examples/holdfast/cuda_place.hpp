// SPDX-License-Identifier: Apache-2.0
// Where `holdfast run --backend cuda` runs: a pool of this machine's first device.
#pragma once

#include <optional>

#include <dlfcn.h>

#include "device_patterns.hpp"
#include "holdfast/backend/cuda/context.hpp"
#include "pattern_ptx.hpp"

namespace program {

namespace driver_call {
struct ModuleLoadData : holdfast::cuda_call::Call<decltype(::cuModuleLoadData)> {
  static constexpr char name[] = "cuModuleLoadData";
};
struct ModuleGetFunction : holdfast::cuda_call::Call<decltype(::cuModuleGetFunction)> {
  static constexpr char name[] = "cuModuleGetFunction";
};
struct ModuleUnload : holdfast::cuda_call::Call<decltype(::cuModuleUnload)> {
  static constexpr char name[] = "cuModuleUnload";
};
struct LaunchKernel : holdfast::cuda_call::Call<decltype(::cuLaunchKernel)> {
  static constexpr char name[] = "cuLaunchKernel";
};
}  // namespace driver_call

/// The kernel of `pattern_ptx` on the context's device; entries of the driver that the library has
/// no use for are looked up here. Threads: one makes and destroys it, any launches.
class PatternModule {
 public:
  explicit PatternModule(const holdfast::CudaContext& context) noexcept : context_(context) {}
  PatternModule(PatternModule&&) = delete;
  ~PatternModule() {
    if (module_ != nullptr) static_cast<void>(call(driver_call::ModuleUnload{}, module_));
  }
  /// Loads the kernel. Errors: unsupported (a driver that does not take its text), the driver's.
  [[nodiscard]] holdfast::Error load() noexcept {
    library_ = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // open already, and stays so
    if (holdfast::Error e = call(driver_call::ModuleLoadData{}, &module_,
                                 static_cast<const void*>(&pattern_ptx[0]));
        !e.ok())
      return e;
    return call(driver_call::ModuleGetFunction{}, &function_, module_, "holdfast_pattern");
  }
  [[nodiscard]] holdfast::Error launch(const holdfast::CudaStreamRef& stream,
                                       PatternArguments a) noexcept {
    constexpr unsigned threads = 256, most = 4096;
    const auto blocks = static_cast<unsigned>(
        std::clamp<std::uint64_t>((a.units + threads - 1) / threads, 1, most));
    void* arguments[] = {&a.at, &a.units, &a.last, &a.paged, &a.shift, &a.first, &a.wrong};
    return call(driver_call::LaunchKernel{}, function_, blocks, 1u, 1u, threads, 1u, 1u, 0u,
                stream.native(), &arguments[0], static_cast<void**>(nullptr));
  }

 private:
  template <class Call, class... Args>
  [[nodiscard]] holdfast::Error call(Call c, Args... args) noexcept {
    auto* const entry = library_ == nullptr
                            ? nullptr
                            : reinterpret_cast<typename Call::type*>(::dlsym(library_, Call::name));
    if (entry == nullptr) return holdfast::cuda_error(c, CUDA_ERROR_NOT_SUPPORTED);
    const holdfast::RealDriver driver;
    if (const CUresult code = driver(holdfast::cuda_call::CtxPushCurrent{}, context_.native());
        code != CUDA_SUCCESS)
      return holdfast::cuda_error(holdfast::cuda_call::CtxPushCurrent{}, code);
    const CUresult code = entry(args...);
    CUcontext popped = nullptr;
    static_cast<void>(driver(holdfast::cuda_call::CtxPopCurrent{}, &popped));
    return holdfast::cuda_error(c, code);
  }

  const holdfast::CudaContext& context_;
  void* library_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

/// A device with all that a run needs.
class CudaPlace {
 public:
  struct Launch {
    PatternModule* module;
    [[nodiscard]] holdfast::Error operator()(const holdfast::CudaStreamRef& stream,
                                             const PatternArguments& a) const noexcept {
      return module->launch(stream, a);
    }
  };
  using Device = PatternDevice<holdfast::RealDriver, Launch>;
  using Memory = holdfast::CudaPoolMemory;
  using Event = holdfast::CudaEvent;
  using Patterns = DevicePatterns<Device>;

  /// Opens the first device. Errors: unsupported (no driver), the driver's.
  [[nodiscard]] holdfast::Error open() noexcept {
    auto context = holdfast::CudaContext::make();
    if (!context.ok()) return context.error();
    context_.emplace(std::move(*context));
    auto pool = holdfast::CudaPool::make(*context_);
    if (!pool.ok()) return pool.error();
    pool_.emplace(std::move(*pool));
    module_.emplace(*context_);
    if (holdfast::Error e = module_->load(); !e.ok()) return e;
    auto stream = context_->make_stream();
    if (!stream.ok()) return stream.error();
    device_.emplace(pool_->memory(), std::move(*stream), Launch{&*module_});
    return device_->make();
  }
  CudaPlace() = default;
  CudaPlace(CudaPlace&&) = delete;
  ~CudaPlace() {
    // Memory goes when the events of its last uses are told.
    if (context_) static_cast<void>(context_->synchronize());
    while (context_ && context_->run_completions()) {
    }
  }
  [[nodiscard]] Memory memory() noexcept { return pool_->memory(); }
  [[nodiscard]] Patterns patterns() noexcept { return {&*device_}; }
  /// What is free on the device.
  [[nodiscard]] holdfast::Bytes available() const noexcept {
    std::size_t free = 0, total = 0;
    const holdfast::Error e =
        context_->state().inside(holdfast::cuda_call::MemGetInfo{}, &free, &total);
    return e.ok() ? static_cast<holdfast::Bytes>(free) : 0;
  }

 private:
  std::optional<holdfast::CudaContext> context_;
  std::optional<holdfast::CudaPool> pool_;
  std::optional<PatternModule> module_;
  std::optional<Device> device_;
};

}  // namespace program
