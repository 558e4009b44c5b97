// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "holdfast/backend/cuda/detail/cuda_state.hpp"
#include "holdfast/core/owned.hpp"

namespace holdfast {

/// A stream that somebody else keeps alive: a copyable handle. Default made it is no stream.
///
/// Two are equal when they are the same stream, by the number that the driver gives to no other stream of the program.
/// Threads: any. The context must outlive it.
template <cuda_driver Driver>
class BasicCudaStreamRef {
 public:
  constexpr BasicCudaStreamRef() noexcept = default;

  [[nodiscard]] constexpr CUstream native() const noexcept { return handle_; }
  /// The number that no other stream of the program has, had or will have.
  [[nodiscard]] constexpr std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return handle_ != nullptr; }

  /// Waits until all that was enqueued is done; then tells the waiters of events, but those that another thread is telling.
  /// Errors: a fault of the device. Threads: blocks.
  [[nodiscard]] Error synchronize() const noexcept {
    Error e = state_->inside(cuda_call::StreamSynchronize{}, handle_);
    state_->run_completions();
    return e;
  }
  /// Tells whether all that was enqueued is done. Errors: a fault of the device. Never blocks.
  [[nodiscard]] Result<bool> idle() const noexcept {
    const Error e = state_->inside(cuda_call::StreamQuery{}, handle_);
    if (e.native == CUDA_ERROR_NOT_READY) return false;
    if (!e.ok()) return e;
    return true;
  }
  /// Makes later work wait for a foreign event. Errors: the driver's. Stream: enqueues the wait.
  [[nodiscard]] Error wait(CUevent event) const noexcept { return state_->inside(cuda_call::StreamWaitEvent{}, handle_, event, 0u); }
  Error wait(int) const = delete;
  Error wait(std::nullptr_t) const = delete;

  friend constexpr bool operator==(const BasicCudaStreamRef& a, const BasicCudaStreamRef& b) noexcept {
    return a.handle_ == b.handle_ && a.id_ == b.id_;
  }

  // For contexts, events and memory.
  using State = detail::CudaState<Driver>;
  [[nodiscard]] static Result<BasicCudaStreamRef> make(State& state, CUstream handle) noexcept {
    if (handle == nullptr) return make_error(Errc::invalid_argument, "the null stream is no stream of the library's");
    unsigned long long id = 0;
    if (Error e = state.inside(cuda_call::StreamGetId{}, handle, &id); !e.ok()) return e;
    return BasicCudaStreamRef(state, handle, id);
  }
  [[nodiscard]] static constexpr BasicCudaStreamRef known(State& state, CUstream handle, std::uint64_t id) noexcept {
    return BasicCudaStreamRef(state, handle, id);
  }
  [[nodiscard]] State& state() const noexcept { return *state_; }

 private:
  constexpr BasicCudaStreamRef(State& state, CUstream handle, std::uint64_t id) noexcept : state_(&state), handle_(handle), id_(id) {}
  State* state_ = nullptr;
  CUstream handle_ = nullptr;
  std::uint64_t id_ = 0;
};

/// A stream with one owner, made by a context; it does not synchronise with the null stream.
///
/// Destroyed with work pending, it is gone for the host at once and for the device when the work is done; never blocks.
/// Threads: as a value. The context must outlive it.
template <cuda_driver Driver>
class BasicCudaStream {
 public:
  using ref_type = BasicCudaStreamRef<Driver>;

  constexpr BasicCudaStream() noexcept = default;

  [[nodiscard]] const ref_type& ref() const noexcept { return open_->ref; }
  operator const ref_type&() const noexcept { return ref(); }
  [[nodiscard]] CUstream native() const noexcept { return ref().native(); }
  [[nodiscard]] std::uint64_t id() const noexcept { return ref().id(); }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(ref()); }
  /// As of the reference.
  [[nodiscard]] Error synchronize() const noexcept { return ref().synchronize(); }
  [[nodiscard]] Result<bool> idle() const noexcept { return ref().idle(); }
  /// Gives the native stream up to the caller.
  [[nodiscard]] CUstream release() noexcept { return open_.release().ref.native(); }

  // For contexts.
  explicit BasicCudaStream(ref_type ref) noexcept : open_(Open{ref}) {}

 private:
  struct Open {
    ref_type ref;
    void close() noexcept {
      if (ref) ref.state().insist(cuda_call::StreamDestroy{}, ref.native());
    }
  };
  Owned<Open> open_;
};

/// The streams of this machine's driver.
using CudaStreamRef = BasicCudaStreamRef<RealDriver>;
using CudaStream = BasicCudaStream<RealDriver>;

}  // namespace holdfast
