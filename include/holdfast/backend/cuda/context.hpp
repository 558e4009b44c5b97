// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "holdfast/backend/cuda/cuda_event.hpp"

namespace holdfast {

/// The primary context of a device: makes streams and promises, runs continuations, lets devices see each other's memory.
///
/// It never stays current to a thread: each call makes it so and puts back what was. It must outlive all that was made
/// with it. Destroying it waits for the events that have continuations. While a thread waits for what a promise completes it
/// runs the continuations of all contexts of the driver. Threads: any; one at a time moves or destroys it.
template <cuda_driver Driver>
class BasicCudaContext {
 public:
  using driver_type = Driver;
  using stream_type = BasicCudaStream<Driver>;
  using stream_ref = BasicCudaStreamRef<Driver>;
  using event_type = BasicCudaEvent<Driver>;
  using promise_type = BasicCudaPromise<Driver>;

  /// Retains the primary context of a device. Errors: the driver's; out_of_memory.
  [[nodiscard]] static Result<BasicCudaContext> make(Driver driver, int ordinal) noexcept {
    CUdevice device = 0;
    CUcontext context = nullptr;
    if (Error e = cuda_error(cuda_call::DeviceGet{}, driver(cuda_call::DeviceGet{}, &device, ordinal)); !e.ok()) return e;
    if (Error e = cuda_error(cuda_call::DevicePrimaryCtxRetain{}, driver(cuda_call::DevicePrimaryCtxRetain{}, &context, device)); !e.ok())
      return e;
    std::unique_ptr<State> state(new (std::nothrow) State(driver, device, context));
    if (state != nullptr) return BasicCudaContext(std::move(state));
    static_cast<void>(driver(cuda_call::DevicePrimaryCtxRelease{}, device));
    return make_error(Errc::out_of_memory, "no memory for a context");
  }
  /// The same on this machine's driver. Errors: also unsupported, where there is none.
  [[nodiscard]] static Result<BasicCudaContext> make(int ordinal = 0) noexcept
    requires requires { { Driver::load() } -> std::same_as<Result<Driver>>; }
  {
    const Result<Driver> driver = Driver::load();
    if (!driver.ok()) return driver.error();
    return make(*driver, ordinal);
  }

  /// Makes a stream. Errors: the driver's.
  [[nodiscard]] Result<stream_type> make_stream() const noexcept {
    CUstream made = nullptr;
    if (Error e = state_->inside(cuda_call::StreamCreate{}, &made, static_cast<unsigned>(CU_STREAM_NON_BLOCKING)); !e.ok()) return e;
    return adopt_stream(made);
  }
  /// Takes over a native stream of this context. Errors: invalid_argument (null), the driver's; it is destroyed then.
  [[nodiscard]] Result<stream_type> adopt_stream(CUstream native) const noexcept {
    Result<stream_ref> ref = stream(native);
    if (ref.ok()) return stream_type(*ref);
    if (native != nullptr) state_->insist(cuda_call::StreamDestroy{}, native);
    return ref.error();
  }
  Result<stream_type> adopt_stream(int) const = delete;
  Result<stream_type> adopt_stream(std::nullptr_t) const = delete;
  /// Names a native stream that its owner keeps; each thread's default stream (`CU_STREAM_PER_THREAD`) for the calling thread
  /// alone. Errors: invalid_argument (null); the driver's.
  [[nodiscard]] Result<stream_ref> stream(CUstream native) const noexcept { return stream_ref::make(*state_, native); }
  Result<stream_ref> stream(int) const = delete;
  Result<stream_ref> stream(std::nullptr_t) const = delete;
  /// Makes an event that the host completes and whose waits run this context's continuations. Errors: out_of_memory.
  [[nodiscard]] Result<promise_type> make_promise() const noexcept { return promise_type::make(state_.get()); }

  /// Runs the continuations of events that are done; false: there were none. Never blocks on the device.
  bool run_completions() const noexcept { return state_->run_completions(); }
  /// Waits until all work of the context is done, then until all continuations that were due have run, also those that other
  /// threads were at. What they enqueue is work anew. Errors: a fault of the device.
  /// Threads: blocks; in a continuation it does not wait for other threads.
  [[nodiscard]] Error synchronize() const noexcept {
    Error e = state_->inside(cuda_call::CtxSynchronize{});
    state_->settle();
    return e;
  }
  /// Lets this device read and write what lies on another; once given it stays. Errors: unsupported (they cannot), the driver's.
  [[nodiscard]] Error enable_peer(const BasicCudaContext& other) const noexcept {
    int can = 0;
    if (Error e = state_->call(cuda_call::DeviceCanAccessPeer{}, &can, state_->device, other.state_->device); !e.ok()) return e;
    if (can == 0) return make_error(Errc::unsupported, "the devices cannot access each other's memory");
    Error e = state_->inside(cuda_call::CtxEnablePeerAccess{}, other.state_->context, 0u);
    return e.code == Errc::already_exists ? Error{} : e;
  }
  /// The first failure of a call that gives something back, which nobody could be told of, or of an event, for which perhaps
  /// nobody waits; `ok`: there was none.
  [[nodiscard]] Error unreported() const noexcept { return state_->noted(); }

  [[nodiscard]] CUcontext native() const noexcept { return state_->context; }
  [[nodiscard]] CUdevice device() const noexcept { return state_->device; }

  // For memory.
  using State = detail::CudaState<Driver>;
  [[nodiscard]] State& state() const noexcept { return *state_; }

 private:
  explicit BasicCudaContext(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
  std::unique_ptr<State> state_;
};

/// A device of this machine's driver.
using CudaContext = BasicCudaContext<RealDriver>;

}  // namespace holdfast
