// SPDX-License-Identifier: Apache-2.0
// Captures of streams into graphs, as far as they hinder others: what a thread may call meanwhile, and what spoils one.
#pragma once

#include <cuda.h>

#include <memory>
#include <thread>
#include <vector>

namespace holdfast::testing {

/// One capture; streams and events that belong to it share it. The graph is not kept: nothing captured ever runs.
struct Capture {
  CUstreamCaptureMode mode;
  std::thread::id thread;
  bool valid = true;
};

class Captures {
 public:
  std::shared_ptr<Capture> begin(CUstreamCaptureMode mode) {
    return all_.emplace_back(std::make_shared<Capture>(Capture{mode, std::this_thread::get_id()}));
  }
  void end(const std::shared_ptr<Capture>& c) { std::erase(all_, c); }
  /// A call that is "potentially unsafe": CUDA_SUCCESS where this thread may make it, else the captures it spoils are spoilt.
  CUresult permit() {
    bool permitted = true;
    for (auto& c : all_) {
      const bool own = c->thread == std::this_thread::get_id() && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
      const bool others = c->thread != std::this_thread::get_id() && c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
      if (mode() == CU_STREAM_CAPTURE_MODE_RELAXED || !(own || (others && mode() == CU_STREAM_CAPTURE_MODE_GLOBAL))) continue;
      permitted = c->valid = false;
    }
    return permitted ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  CUresult exchange(CUstreamCaptureMode* with) {
    if (with == nullptr || static_cast<unsigned>(*with) > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    std::swap(mode(), *with);
    return CUDA_SUCCESS;
  }
  /// Of this thread.
  static CUstreamCaptureMode& mode() {
    static thread_local CUstreamCaptureMode of_thread = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return of_thread;
  }

 private:
  std::vector<std::shared_ptr<Capture>> all_;
};

}  // namespace holdfast::testing
