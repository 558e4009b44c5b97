// SPDX-License-Identifier: Apache-2.0
// The program's checking kernel on the double.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../../examples/holdfast/device_patterns.hpp"
#include "double/cuda_double.hpp"

namespace holdfast::testing {

// The text of the kernel, read by a person: unit by unit.
inline void carry_out(const program::PatternArguments& a) {
  for (std::uint64_t u = 0; u < a.units; ++u) {
    std::uint64_t b = u + a.shift;
    if (u < a.paged)
      b = ((u & 8) == 0 ? u / 16 * 512 : std::min(u / 16 * 512 + 511, a.last)) * 8 + (u & 7);
    const std::uint64_t word = a.first + b / 8 * BytePattern::step;
    const auto value = static_cast<std::byte>(word >> (b % 8 * 8));
    auto* const byte = reinterpret_cast<std::byte*>(a.at + b);
    auto* const wrong = reinterpret_cast<std::uint64_t*>(a.wrong);
    if (wrong == nullptr)
      *byte = value;
    else if (*byte != value)
      *wrong = std::min(*wrong, b);
  }
}

/// Puts the kernel on a stream of the double, which is told what it touches.
inline void launch_pattern(CudaDouble& cuda, CUstream stream, const program::PatternArguments& a) {
  const Bytes n = a.paged != 0 ? static_cast<Bytes>(a.last + 1) * 8 : static_cast<Bytes>(a.units);
  const Block value{reinterpret_cast<std::byte*>(a.at), n};
  const Block wrong{reinterpret_cast<std::byte*>(a.wrong), 8};
  if (a.wrong == 0)
    cuda.launch(stream, "write", {writes(value)}, [a] { carry_out(a); });
  else
    cuda.launch(stream, "test", {reads(value), writes(wrong)}, [a] { carry_out(a); });
}

}  // namespace holdfast::testing
