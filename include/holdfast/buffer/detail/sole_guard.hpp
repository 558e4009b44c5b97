// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <utility>

#include "holdfast/buffer/contents.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/concepts/hold_policy.hpp"
#include "holdfast/concepts/sync.hpp"
#include "holdfast/core/block.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"
#include "holdfast/hold/hold_rules.hpp"

namespace holdfast::detail {

// Contents without a hold policy, inside the handle: one owner, so a request only asks whether they are still there.
template <class Raw, class Event>
class SoleGuard {
 public:
  SoleGuard() noexcept { mark_gone(); }
  explicit SoleGuard(Contents<Raw, Event> contents) noexcept : contents_(std::move(contents)) {}
  SoleGuard(SoleGuard&& other) noexcept : contents_(std::move(other.contents_)) { other.mark_gone(); }
  SoleGuard& operator=(SoleGuard&& other) noexcept {
    if (this == &other) return *this;
    end();
    contents_.raw = std::move(other.contents_.raw);
    contents_.definition = std::move(other.contents_.definition);
    contents_.usage = std::move(other.contents_.usage);
    other.mark_gone();
    return *this;
  }
  ~SoleGuard() { contents_.block_until_unused(); }

  [[nodiscard]] constexpr bool gone() const noexcept { return contents_.raw.block().size < 0; }
  [[nodiscard]] constexpr Raw& raw() noexcept { return contents_.raw; }
  [[nodiscard]] constexpr const Raw& raw() const noexcept { return contents_.raw; }
  [[nodiscard]] std::span<const Event> definition_events() const noexcept { return contents_.definition.span(); }
  [[nodiscard]] std::span<const Event> usage_events() const noexcept { return contents_.usage.span(); }
  [[nodiscard]] constexpr Contents<Raw, Event>& contents() noexcept { return contents_; }
  [[nodiscard]] constexpr HoldCounts counts() const noexcept { return {.deleted = gone()}; }

  [[nodiscard]] Error acquire(HoldKind kind, Deadline) noexcept {
    if (gone()) return hold_rules::refusal(HoldState(HoldState::deleted), kind);
    if (kind == HoldKind::external) return make_error(Errc::unsupported, "hold(external): a buffer without holds has one owner");
    return {};
  }
  constexpr void drop(HoldKind) noexcept {}
  void convert(const Event& event) noexcept {
    if (!contents_.usage.add(event).ok()) static_cast<void>(event.wait());
  }
  void confirm() noexcept { end(); }
  void confirm(const Event& event) noexcept {
    convert(event);
    end();
  }
  [[nodiscard]] Error release(Deadline) noexcept {
    if (gone()) return hold_rules::refusal(HoldState(HoldState::deleted), HoldKind::usage);
    end();
    return {};
  }
  [[nodiscard]] Result<Event> ready_event() const noexcept {
    if (gone()) return hold_rules::refusal(HoldState(HoldState::deleted), HoldKind::usage);
    return contents_.ready_event();
  }
  [[nodiscard]] Result<Contents<Raw, Event>> release_to_caller() noexcept { return take(Deadline::now()); }
  [[nodiscard]] Result<Contents<Raw, Event>> take(Deadline) noexcept {
    if (gone()) return hold_rules::refusal(HoldState(HoldState::deleted), HoldKind::donation);
    Result<Contents<Raw, Event>> taken(std::move(contents_));
    mark_gone();
    return taken;
  }
  template <class Read>
  [[nodiscard]] Error inspect(Deadline deadline, Read read) noexcept {
    if (Error e = acquire(HoldKind::usage, deadline); !e.ok()) return e;
    read(contents_);
    return {};
  }

 private:
  // A size below 0 says "gone", so that a buffer of 0 bytes can still be there.
  void mark_gone() noexcept { contents_.raw = *Raw::adopt(contents_.raw.backend(), Block{nullptr, -1}); }
  void end() noexcept {
    contents_.block_until_unused();
    contents_.definition.clear();
    contents_.usage.clear();
    mark_gone();
  }
  Contents<Raw, Event> contents_;
};

}  // namespace holdfast::detail
