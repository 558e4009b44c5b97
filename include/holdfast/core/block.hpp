// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "holdfast/core/units.hpp"

namespace holdfast {

/// A piece of memory: where it starts and how long it is; owns nothing.
///
/// A request for 0 bytes gives `Block{nullptr, 0}`, whose release is a no-op.
struct Block {
  std::byte* data = nullptr;
  Bytes size = 0;
  friend constexpr bool operator==(const Block&, const Block&) noexcept = default;
};

/// An opaque name of memory that another process can open (CUDA IPC, a file descriptor, a fabric handle).
struct ShareHandle {
  std::array<std::byte, 64> bytes{};
  Bytes size = 0;
  Bytes offset = 0;
};

}  // namespace holdfast
