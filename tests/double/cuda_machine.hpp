// SPDX-License-Identifier: Apache-2.0
// The double with the program's checking kernel: what tests/device runs on where there is no GPU.
#pragma once

#include "../../examples/holdfast/device_patterns.hpp"
#include "double/cuda_world.hpp"
#include "double/pattern_launch.hpp"

namespace holdfast::testing {

/// Puts the kernel on a stream of the double.
struct DoubleLaunch {
  CudaDouble* cuda;
  [[nodiscard]] Error operator()(const DoubleStreamRef& stream,
                                 const program::PatternArguments& a) const noexcept {
    return launch_pattern(*cuda, stream.native(), a), Error{};
  }
};

/// A machine as tests/device asks for one.
struct CudaMachine {
  using Driver = DoubleDriver;
  CudaWorld world;
  ~CudaMachine() {
    CHECK(context().synchronize().ok());
    while (context().run_completions()) {
    }
  }
  DoubleContext& context() { return *world.context; }
  DoubleLaunch launch() { return {&world.cuda}; }
};

}  // namespace holdfast::testing
