// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"

extern "C" {
void __register_frame(void* frames);    // of the unwinder that comes with the compiler
void __deregister_frame(void* frames);
}

namespace holdfast {

/// Tells the unwinder about call frames, and takes it back.
template <class P>
concept frame_policy = requires(std::byte* frames) {
  { P::add(frames) } noexcept;
  { P::remove(frames) } noexcept;
};

/// Registers with the compiler's unwinder, so that exceptions pass through the code.
struct RegisterFrames {
  static void add(std::byte* frames) noexcept { __register_frame(frames); }
  static void remove(std::byte* frames) noexcept { __deregister_frame(frames); }
};
static_assert(frame_policy<RegisterFrames>);

/// Registers nothing: for code that never throws.
struct NoFrames {
  static void add(std::byte*) noexcept {}
  static void remove(std::byte*) noexcept {}
};
static_assert(frame_policy<NoFrames>);

/// Checks that a frame section is a chain of records that ends with its terminator: the unwinder walks it unbounded.
///
/// Errors: invalid_argument, with the offset of the record that leaves the section.
[[nodiscard]] inline Error check_frames(const std::byte* frames, Bytes size) noexcept {
  Bytes at = 0;
  while (size - at >= 4) {
    std::uint32_t length = 0;
    std::memcpy(&length, frames + at, sizeof length);
    if (length == 0) return {};
    Bytes next = 0;
    if (length == 0xFFFFFFFF || !checked_add(at + 4, static_cast<Bytes>(length), next) || next > size) break;  // 64-bit records: no compiler makes them
    at = next;
  }
  return make_error_at(Errc::invalid_argument, "the call frame section has no end", static_cast<std::uint64_t>(at));
}

}  // namespace holdfast
