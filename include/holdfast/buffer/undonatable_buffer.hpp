// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <utility>

#include "holdfast/buffer/contents.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/concepts/hold_policy.hpp"
#include "holdfast/concepts/sync.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"
#include "holdfast/event/combine.hpp"
#include "holdfast/hold/scoped_hold.hpp"

namespace holdfast {

/// Bytes that everybody may read and nobody may donate or delete: no counters, no usage events, nothing to lock.
///
/// For weights that are served from: a reader takes an owner of the memory and keeps it until its work is done. A launch
/// takes it as an argument (`acquire_arguments`): its holds count nothing and are never in the way; it must stay, unmoved,
/// while they live. Threads: any, once made. Source: PJRT undonatable buffer (runtime.md 4.6).
template <class Buffer>
class UndonatableBuffer {
 public:
  using event_type = typename Buffer::event_type;
  using raw_type = typename Buffer::raw_type;
  using guard_type = UndonatableBuffer;
  using scoped_hold = ScopedHold<UndonatableBuffer>;

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

  /// Its bytes; a copy is one more owner, which the taker keeps until its work is done. Cost: one atomic operation.
  [[nodiscard]] const raw_type& raw() const noexcept { return contents_.raw; }
  [[nodiscard]] std::span<const event_type> definition_events() const noexcept { return contents_.definition.span(); }
  /// The same event every time.
  [[nodiscard]] event_type ready_event() const noexcept { return ready_; }
  [[nodiscard]] Bytes size() const noexcept { return contents_.raw.size(); }
  [[nodiscard]] static constexpr bool is_deleted() noexcept { return false; }
  [[nodiscard]] const void* identity() const noexcept { return this; }
  /// Does nothing: it stays valid.
  static constexpr void release() noexcept {}
  /// Always refused. Errors: invalid_argument.
  [[nodiscard]] static constexpr Error donate() noexcept {
    return make_error(Errc::invalid_argument, "Donation requested on Undonatable buffer");
  }
  /// Gives a hold at once. Errors: invalid_argument (a donation).
  [[nodiscard]] Result<scoped_hold> hold(HoldKind kind, Deadline = Deadline::never()) noexcept {
    if (kind == HoldKind::donation) return donate();
    return scoped_hold(*this, kind);
  }
  [[nodiscard]] Result<scoped_hold> try_hold(HoldKind kind) noexcept { return hold(kind); }

  // For its holds: a reader's event keeps the memory, nothing else is left of them.
  void convert(const event_type& done) const noexcept {
    if (done.ready()) return;
    if constexpr (notifying_event<event_type>)
      if (run_when_ready(std::span<const event_type>(&done, 1), [raw = contents_.raw]() noexcept {}).ok()) return;
    static_cast<void>(done.wait());
  }
  static constexpr void drop(HoldKind) noexcept {}
  static constexpr void confirm() noexcept { HOLDFAST_UNREACHABLE(); }
  static constexpr void confirm(const event_type&) noexcept { HOLDFAST_UNREACHABLE(); }
  [[nodiscard]] static constexpr std::span<const event_type> usage_events() noexcept { return {}; }

 private:
  UndonatableBuffer(Contents<raw_type, event_type> contents, event_type ready) noexcept
      : contents_(std::move(contents)), ready_(std::move(ready)) {}
  Contents<raw_type, event_type> contents_;
  event_type ready_;
};

}  // namespace holdfast
