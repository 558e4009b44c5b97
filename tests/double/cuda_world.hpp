// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "double/cuda_double.hpp"
#include "holdfast/backend/cuda/context.hpp"

namespace holdfast::testing {

using DoubleContext = BasicCudaContext<DoubleDriver>;
using DoubleStream = BasicCudaStream<DoubleDriver>;
using DoubleStreamRef = BasicCudaStreamRef<DoubleDriver>;
using DoubleEvent = BasicCudaEvent<DoubleDriver>;
using DoublePromise = BasicCudaPromise<DoubleDriver>;

/// A node that counts its runs.
struct CountingNode : Continuation {
  CountingNode() {
    run = [](Continuation& self) noexcept { static_cast<CountingNode&>(self).count += 1; };
  }
  int count = 0;
};

/// A driver's double and contexts on its devices; when it goes, nothing may have leaked, raced or been misused.
struct CudaWorld {
  explicit CudaWorld(std::uint64_t seed = 1) : CudaWorld(seeded(seed)) {}
  explicit CudaWorld(const CudaDoubleOptions& o) : cuda(o) {
    context.emplace(std::move(*DoubleContext::make(cuda.driver(), 0)));
    if (o.devices > 1) other.emplace(std::move(*DoubleContext::make(cuda.driver(), 1)));
  }
  ~CudaWorld() {
    CHECK(context->unreported().code == expected_unreported);
    other.reset();
    context.reset();
    if (check_races) CHECK(cuda.races() == expected_races);
    CHECK(cuda.leaks() == "");
    CHECK(cuda.misuse == "");
  }
  static CudaDoubleOptions seeded(std::uint64_t seed) {
    CudaDoubleOptions o;
    o.seed = seed;
    return o;
  }
  DoubleStream stream() { return std::move(*context->make_stream()); }
  DoubleEvent mark(const DoubleStreamRef& s) { return std::move(*DoubleEvent::recorded_on(s)); }
  /// Some work, so that marks after it are pending.
  void work(const DoubleStreamRef& s, std::initializer_list<MemoryTouch> touches = {}) {
    cuda.launch(s.native(), "work", touches, [] {});
  }

  CudaDouble cuda;
  std::optional<DoubleContext> context, other;
  Errc expected_unreported = Errc::ok;
  std::string expected_races;
  bool check_races = true;
};

}  // namespace holdfast::testing
