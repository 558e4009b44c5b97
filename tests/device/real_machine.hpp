// SPDX-License-Identifier: Apache-2.0
// This machine's first GPU. Without a driver or a device the program ends before its tests,
// skipped.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

#include "../../examples/holdfast/cuda_place.hpp"

namespace holdfast::testing {

/// A machine as tests/device asks for one.
struct CudaMachine {
  using Driver = RealDriver;
  CudaMachine() {
    const Error e = module_.load();
    CAPTURE(std::string(e.ok() ? "" : e.what));
    CAPTURE(e.native);
    REQUIRE(e.ok());
  }
  ~CudaMachine() {
    CHECK(context_.synchronize().ok());
    while (context_.run_completions()) {
    }
    CHECK(context_.unreported().ok());
  }
  CudaContext& context() { return context_; }
  program::CudaPlace::Launch launch() { return {&module_}; }

 private:
  static CudaContext make() {
    Result<CudaContext> c = CudaContext::make();
    REQUIRE(c.ok());
    return std::move(*c);
  }
  CudaContext context_ = make();
  program::PatternModule module_{context_};
};

/// Ends the program with the status of a skipped test where there is nothing to run on.
struct SkipWithoutDevice {
  SkipWithoutDevice() {
    const Result<RealDriver> driver = RealDriver::load();
    int count = 0;
    if (driver.ok()) static_cast<void>((*driver)(cuda_call::DeviceGetCount{}, &count));
    if (driver.ok() ? count > 0 : driver.error().code != Errc::unsupported) return;
    std::printf("skipped: no GPU: %s\n",
                driver.ok() ? "the driver has no device" : driver.error().what);
    std::fflush(stdout);
    std::_Exit(77);
  }
};
inline const SkipWithoutDevice skip_without_device;

}  // namespace holdfast::testing
