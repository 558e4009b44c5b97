// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "holdfast/backend/cuda/driver.hpp"
#include "holdfast/concepts/lock.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast::detail {

// Calls that only put work on a stream: those that a capture of another stream does not mind.
template <class Call>
inline constexpr bool cuda_call_enqueues =
    std::is_same_v<Call, cuda_call::EventRecord> || std::is_same_v<Call, cuda_call::StreamWaitEvent> ||
    std::is_same_v<Call, cuda_call::LaunchHostFunc> || std::is_same_v<Call, cuda_call::MemcpyAsync> ||
    std::is_same_v<Call, cuda_call::MemAllocFromPoolAsync> || std::is_same_v<Call, cuda_call::MemFreeAsync>;

// Calls of a driver with a device's primary context current, and their failures that nobody could be told of. Threads: any.
template <cuda_driver Driver>
class CudaContextCalls {
 public:
  CudaContextCalls(Driver d, CUdevice dev, CUcontext c) noexcept : driver(std::move(d)), device(dev), context(c) {}
  CudaContextCalls(CudaContextCalls&&) = delete;

  template <class Call, class... Args>
  [[nodiscard]] Error call(Call c, Args... args) const noexcept {
    return cuda_error(c, driver(c, args...));
  }
  // The same with the context current to this thread, for calls that ask for one; a program's thread mostly has it already.
  template <class Call, class... Args>
  [[nodiscard]] Error inside(Call c, Args... args) noexcept {
    CUcontext current = nullptr;
    if (Error e = call(cuda_call::CtxGetCurrent{}, &current); !e.ok()) return e;
    if (current == context) return unobjected(c, args...);
    if (Error e = call(cuda_call::CtxPushCurrent{}, context); !e.ok()) return e;
    const Error e = unobjected(c, args...);
    note(call(cuda_call::CtxPopCurrent{}, &current));
    return e;
  }
  // The same for calls that give something back, or have to be made before: an error of the first try to make the context
  // current may be of earlier work.
  template <class Call, class... Args>
  void insist(Call c, Args... args) noexcept {
    note(insisted(c, args...));
  }
  // Waits for all that runs, before memory is unmapped; false: it may run on, since a stream of the context is being captured.
  [[nodiscard]] bool drain() noexcept {
    const Error e = insisted(cuda_call::CtxSynchronize{});
    note(e);
    return e.code != Errc::wrong_state;
  }

  // Keeps the first failure of a call whose caller cannot be told, or an event's, whose owner may not ask.
  void note(const Error& e) noexcept {
    if (e.ok()) return;
    const LockGuard<WordLock> guard(note_lock_);
    if (noted_.ok()) noted_ = e;
  }
  [[nodiscard]] Error noted() noexcept {
    const LockGuard<WordLock> guard(note_lock_);
    return noted_;
  }

  // While it lives this thread may make any call that is no part of a capture itself: an engine's capture of its streams, on
  // this thread or another, would be spoilt by our questions else.
  class Relaxed {
   public:
    explicit Relaxed(CudaContextCalls& calls) noexcept : calls_(calls), swapped_(swap()) {}
    Relaxed(Relaxed&&) = delete;
    ~Relaxed() {
      if (swapped_ && !swap()) swap();
    }

   private:
    bool swap() noexcept {
      const Error e = calls_.call(cuda_call::ThreadExchangeStreamCaptureMode{}, &mode_);
      calls_.note(e);
      return e.ok();
    }
    CudaContextCalls& calls_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool swapped_;
  };

  const Driver driver;
  const CUdevice device;
  const CUcontext context;

 private:
  template <class Call, class... Args>
  [[nodiscard]] Error insisted(Call c, Args... args) noexcept {
    const Error e = inside(c, args...);
    if (e.what != cuda_call::failed<cuda_call::CtxGetCurrent>.data() && e.what != cuda_call::failed<cuda_call::CtxPushCurrent>.data()) return e;
    note(e);
    return inside(c, args...);
  }
  template <class Call, class... Args>
  [[nodiscard]] Error unobjected(Call c, Args... args) noexcept {
    if constexpr (cuda_call_enqueues<Call>) {
      return call(c, args...);
    } else {
      const Relaxed relaxed(*this);
      return call(c, args...);
    }
  }

  WordLock note_lock_;
  Error noted_;
};

}  // namespace holdfast::detail
