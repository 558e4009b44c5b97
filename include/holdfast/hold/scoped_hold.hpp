// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "holdfast/core/config.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"

namespace holdfast {

/// What became of one hold.
enum class HoldStatus : std::uint8_t { uninitialized, valid, moved, converted, released, donated };

/// A hold on a buffer for as long as it lives: usage to read, an external reference, or a donation.
///
/// `Buffer` names the guarded type: `Buffer::guard_type` carries the holds out, `Buffer::event_type` is what a usage hold
/// is converted with, `Buffer::raw_type` is the bytes. An external hold may outlive the buffer, the others may not.
/// Dropped unconverted, a usage hold ends without an event, a donation is given back.
/// Threads: one at a time; may be taken and ended on different threads. Source: PJRT ScopedHold.
template <class Buffer>
class [[nodiscard]] ScopedHold {
 public:
  using guard_type = typename Buffer::guard_type;
  using event_type = typename Buffer::event_type;
  using raw_type = typename Buffer::raw_type;

  constexpr ScopedHold() noexcept = default;
  /// Takes over a hold that the guard has granted.
  constexpr ScopedHold(guard_type& guard, HoldKind kind) noexcept : guard_(&guard), kind_(kind), status_(HoldStatus::valid) {}
  ScopedHold(ScopedHold&& other) noexcept : guard_(other.guard_), kind_(other.kind_), status_(other.status_) {
    other.status_ = HoldStatus::moved;
  }
  ScopedHold& operator=(ScopedHold&&) = delete;
  ~ScopedHold() { drop(); }

  [[nodiscard]] bool ok() const noexcept { return status_ == HoldStatus::valid; }
  [[nodiscard]] HoldKind kind() const noexcept { return kind_; }
  /// OK while the hold is valid, else what became of it. Errors: invalid_argument.
  [[nodiscard]] Error status() const noexcept {
    switch (status_) {
      case HoldStatus::valid: return {};
      case HoldStatus::uninitialized: return make_error(Errc::invalid_argument, "the hold has not been initialized");
      case HoldStatus::moved: return make_error(Errc::invalid_argument, "the hold was moved");
      case HoldStatus::converted: return make_error(Errc::invalid_argument, "the hold was converted");
      case HoldStatus::released: return make_error(Errc::invalid_argument, "the hold was released");
      case HoldStatus::donated: return make_error(Errc::invalid_argument, "the hold was donated");
    }
    HOLDFAST_UNREACHABLE();
  }

  /// What is held; a hold that is not valid is a broken precondition.
  [[nodiscard]] guard_type& guard() const noexcept {
    HOLDFAST_ASSERT(ok());
    return *guard_;
  }
  /// The bytes; they stay for as long as the hold, an external one even after the buffer.
  [[nodiscard]] const raw_type& raw() const noexcept { return std::as_const(guard()).raw(); }
  /// The events after which the contents are valid.
  [[nodiscard]] auto definition_events() const noexcept {
    return guard().definition_events();
  }
  /// The events of the readers that are not finished; for the holder of a donation, who alone may look.
  [[nodiscard]] auto usage_events() const noexcept {
    HOLDFAST_ASSERT(kind_ == HoldKind::donation);
    return guard().usage_events();
  }

  /// Ends a usage hold whose reader was enqueued: the buffer's next owner waits for this event.
  ///
  /// Cost: one atomic operation when the event is ready, two when it is pending.
  void convert(const event_type& event) noexcept {
    HOLDFAST_ASSERT(ok() && kind_ == HoldKind::usage);
    status_ = HoldStatus::converted;
    guard_->convert(event);
  }
  /// The same with a handle to give away, which spares the count of one more.
  void convert(event_type&& event) noexcept {
    HOLDFAST_ASSERT(ok() && kind_ == HoldKind::usage);
    status_ = HoldStatus::converted;
    guard_->convert(std::move(event));
  }
  /// Ends a usage hold whose reader is already ordered otherwise.
  void convert() noexcept {
    HOLDFAST_ASSERT(ok() && kind_ == HoldKind::usage);
    status_ = HoldStatus::converted;
    static_cast<void>(guard_->drop(HoldKind::usage));
  }
  /// Carries a donation out: the buffer is gone, its memory goes after its events unless somebody kept a reference.
  void confirm() noexcept {
    HOLDFAST_ASSERT(ok() && kind_ == HoldKind::donation);
    status_ = HoldStatus::donated;
    guard_->confirm();
  }
  /// The same, and keeps the memory until one more event: that of the work that the donation was for.
  void confirm(const event_type& event) noexcept {
    HOLDFAST_ASSERT(ok() && kind_ == HoldKind::donation);
    status_ = HoldStatus::donated;
    guard_->confirm(event);
  }
  /// Ends the hold with nothing done; on a hold that is not valid, nothing.
  void drop() noexcept {
    if (!ok()) return;
    status_ = HoldStatus::released;
    guard_->drop(kind_);
  }

 private:
  guard_type* guard_ = nullptr;
  HoldKind kind_ = HoldKind::usage;
  HoldStatus status_ = HoldStatus::uninitialized;
};

}  // namespace holdfast
