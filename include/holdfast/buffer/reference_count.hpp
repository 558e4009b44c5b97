// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"
#include "holdfast/event/event_list.hpp"

namespace holdfast {

/// External holds counted up and down, for an interface in C that has no hold objects.
///
/// Destroy it before or after the buffer: what is left is dropped. Threads: one at a time. Source: PJRT C API (runtime.md 5.6).
template <class Buffer>
class ReferenceCount {
 public:
  /// Takes one more external hold. Errors: as the hold; out_of_memory. Threads: blocks while a donation is pending.
  [[nodiscard]] Error increase(Buffer& buffer) noexcept {
    auto hold = buffer.hold(HoldKind::external);
    if (!hold.ok()) return hold.error();
    return holds_.push_back(std::move(*hold));
  }
  /// Drops one. Errors: invalid_argument when there is none.
  [[nodiscard]] Error decrease() noexcept {
    if (holds_.empty()) return make_error(Errc::invalid_argument, "the buffer has a zero reference count");
    holds_.pop_back();
    return {};
  }
  [[nodiscard]] std::size_t count() const noexcept { return holds_.size(); }

 private:
  SmallList<typename Buffer::scoped_hold> holds_;
};

/// The address of a buffer's bytes, which is good for as long as somebody holds the buffer. Errors: as an external hold.
template <class Buffer>
[[nodiscard]] Result<std::byte*> opaque_pointer(Buffer& buffer) noexcept {
  auto hold = buffer.hold(HoldKind::external);
  if (!hold.ok()) return hold.error();
  return hold->raw().data();
}

}  // namespace holdfast
