// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <utility>

#include "holdfast/buffer/contents.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"
#include "holdfast/event/combine.hpp"

namespace holdfast {

/// Bytes that everybody may read and nobody may donate or delete: no counters, no usage events, nothing to lock.
///
/// For weights that are served from: a reader takes an owner of the memory and keeps it until its work is done.
/// Threads: any, once made. Source: PJRT undonatable buffer (runtime.md 4.6).
template <class Buffer>
class UndonatableBuffer {
 public:
  using event_type = typename Buffer::event_type;
  using raw_type = typename Buffer::raw_type;

  /// Takes the contents out of a buffer, which is deleted by this. Errors: invalid_argument (no memory); as `Buffer::take`.
  [[nodiscard]] static Result<UndonatableBuffer> make(Buffer& source) noexcept {
    auto contents = source.take();
    if (!contents.ok()) return contents.error();
    if (!contents->raw) return make_error(Errc::invalid_argument, "an undonatable buffer needs memory (null buffer)");
    Result<event_type> ready = contents->ready_event();
    if (!ready.ok()) return ready.error();
    // Whoever writes the contents may still be at it when this object goes: the bytes stay until the definition events.
    if constexpr (notifying_event<event_type>) {
      auto keep = [raw = contents->raw]() noexcept {};
      if (Error e = run_when_ready(std::as_const(contents->definition).span(), std::move(keep)); !e.ok()) return e;
    }
    return UndonatableBuffer(std::move(*contents), std::move(*ready));
  }

  /// One more owner of the bytes; the taker keeps it until its work is done. Cost: one atomic operation.
  [[nodiscard]] raw_type raw() const noexcept { return contents_.raw; }
  [[nodiscard]] std::span<const event_type> definition_events() const noexcept { return contents_.definition.span(); }
  /// The same event every time.
  [[nodiscard]] event_type ready_event() const noexcept { return ready_; }
  [[nodiscard]] Bytes size() const noexcept { return contents_.raw.size(); }
  [[nodiscard]] static constexpr bool is_deleted() noexcept { return false; }
  /// Does nothing: it stays valid.
  static constexpr void release() noexcept {}
  /// Always refused. Errors: invalid_argument.
  [[nodiscard]] static constexpr Error donate() noexcept {
    return make_error(Errc::invalid_argument, "Donation requested on Undonatable buffer");
  }

 private:
  UndonatableBuffer(Contents<raw_type, event_type> contents, event_type ready) noexcept
      : contents_(std::move(contents)), ready_(std::move(ready)) {}
  Contents<raw_type, event_type> contents_;
  event_type ready_;
};

}  // namespace holdfast
