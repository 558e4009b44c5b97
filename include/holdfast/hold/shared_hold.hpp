// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "holdfast/concepts/hold_policy.hpp"
#include "holdfast/hold/hold_rules.hpp"
#include "holdfast/hold/hold_state.hpp"

namespace holdfast {

/// The full protocol for any thread, in one 64-bit atomic word; a call parks only on a conflict.
///
/// Every change is one compare-and-swap of a rule's result, so the word never shows a state that the table does not have.
/// Memory order: a grant acquires, the end of a hold releases; since all changes are read-modify-writes of one word, who
/// sees usage 0 (or a donation ended) sees all that the holders did before.
/// Threads: any. Cost, alone: acquire one locked instruction, drop one, convert two (the usage events are changed between
/// them); one more each time others are there.
template <sync Sync>
class BasicSharedHold {
 public:
  static constexpr bool concurrent = true;
  using ownership_type = BasicShared<Sync>;

  /// Takes a hold. Errors: deleted, donated, held (external holds forbid a donation), would_block, deadline, over_budget.
  [[nodiscard]] Error acquire(HoldKind kind, Deadline deadline) noexcept {
    std::uint64_t w = nobody;
    const hold_rules::Step step = hold_rules::acquire(HoldState(w), kind);
    if (word_.compare_exchange_strong(w, step.next.bits(), std::memory_order_acquire, std::memory_order_relaxed)) return {};
    return acquire_among_others(w, kind, deadline);
  }

  /// Runs `change` on the usage events, which no other `convert` overlaps; when it gives true, the usage hold ends with it.
  template <class Change>
  void convert(Change&& change_events) noexcept {
    if ((word_.fetch_or(HoldState::locked, std::memory_order_acquire) & HoldState::locked) != 0) lock_among_others();
    subtract(change_events() ? HoldState::locked + HoldState::usage_one : HoldState::locked);
  }

  /// Ends a hold unconverted; a donation is given back. True: the caller must drop the contents.
  bool drop(HoldKind kind) noexcept {
    switch (kind) {
      case HoldKind::usage: return subtract(HoldState::usage_one), false;
      case HoldKind::external: return hold_rules::must_empty(change(HoldState(HoldState::external_one), hold_rules::drop_external));
      case HoldKind::donation: change(HoldState(HoldState::donation), hold_rules::abort); return false;
    }
    HOLDFAST_UNREACHABLE();
  }

  /// Carries the granted donation out: from now on every request fails as donated.
  void confirm() noexcept { change(HoldState(HoldState::donation), hold_rules::confirm); }

  /// Deletes: shuts newcomers out, then waits for usage holds.
  ///
  /// Errors: deleted or donated when there is nothing to delete; would_block, deadline (nothing has changed then).
  [[nodiscard]] Error release(Deadline deadline) noexcept {
    std::uint64_t w = word_.load(std::memory_order_relaxed);
    for (;;) {
      const hold_rules::Step step = hold_rules::release(HoldState(w));
      if (step.verdict == hold_rules::Verdict::refused) return hold_rules::refusal(HoldState(w), HoldKind::usage);
      if (step.verdict == hold_rules::Verdict::wait || (step.verdict == hold_rules::Verdict::claimed && !deadline.is_never())) {
        if (deadline.passed()) return hold_rules::gave_up(deadline.is_now(), HoldKind::donation);
        park(w, deadline);
        continue;
      }
      if (!word_.compare_exchange_weak(w, step.next.bits(), std::memory_order_acquire, std::memory_order_relaxed)) continue;
      if (step.verdict == hold_rules::Verdict::claimed) static_cast<void>(await_idle(deadline));
      return {};
    }
  }

  /// Says that the contents' events are over; true: the caller must drop the contents.
  bool settle() noexcept { return hold_rules::must_empty(set_flag(HoldState::settled)); }
  /// Says that the contents are gone; true: the caller must free what this lies in.
  bool emptied() noexcept { return hold_rules::dead(set_flag(HoldState::emptied)); }
  /// Says that the handle is gone; true: the caller must free what this lies in.
  bool orphan() noexcept { return hold_rules::dead(set_flag(HoldState::orphaned)); }

  /// What is out now; a moment later it may differ.
  [[nodiscard]] HoldCounts counts() const noexcept { return HoldState(word_.load(std::memory_order_acquire)).counts(); }

 protected:
  // What the first try of a change expects: that the caller is alone. To ask first would cost as much as the swap itself
  // (a load behind a locked instruction on the same line waits for it), and a wrong guess gives the true value.
  static constexpr std::uint64_t nobody = 0;

  // Applies a rule and wakes whom it lets go on. The waiting bit falls in the same step as the change: after it, the word
  // may be gone, for whoever it let go on may free it; `notify_all` uses the address alone.
  template <class Rule>
  HoldState change(HoldState guess, Rule rule) noexcept {
    std::uint64_t w = guess.bits();
    const HoldState next = rule(guess);
    if (word_.compare_exchange_strong(w, next.bits(), std::memory_order_acq_rel, std::memory_order_relaxed)) return next;
    return change_among_others(w, rule);
  }
  template <class Rule>
  HOLDFAST_COLD HoldState change_among_others(std::uint64_t w, Rule rule) noexcept {
    for (;;) {
      HoldState next = rule(HoldState(w));
      const bool wake = HoldState(w).has(HoldState::waiting) && hold_rules::wakes(HoldState(w), next);
      if (wake) next = next.without(HoldState::waiting);
      if (!word_.compare_exchange_weak(w, next.bits(), std::memory_order_acq_rel, std::memory_order_relaxed)) continue;
      if (wake) Sync::notify_all(word_);
      return next;
    }
  }

  // Ends a usage hold, a lock or both: their bits are surely set, so one subtraction does it whatever else goes on, where a
  // swap would fail beside other readers. The waiting bit stays, for the word may be gone; whoever was woken takes it off.
  void subtract(std::uint64_t ended) noexcept {
    const HoldState before(word_.fetch_sub(ended, std::memory_order_acq_rel)), after = before.minus(ended);
    HOLDFAST_ASSERT((ended & HoldState::usage_one) == 0 || before.usage() > 0);
    if (before.has(HoldState::waiting) && hold_rules::wakes(before, after)) [[unlikely]] Sync::notify_all(word_);
  }

  // Takes the waiting bit off with the lock and wakes all once more: one may have gone to sleep under the old bit.
  HOLDFAST_COLD void lock_among_others() noexcept {
    std::uint64_t w = word_.load(std::memory_order_relaxed);
    for (;;) {
      if (HoldState(w).has(HoldState::locked)) {
        park(w, Deadline::never());
      } else if (word_.compare_exchange_weak(w, HoldState(w).with(HoldState::locked).without(HoldState::waiting).bits(),
                                             std::memory_order_acquire, std::memory_order_relaxed)) {
        if (HoldState(w).has(HoldState::waiting)) Sync::notify_all(word_);
        return;
      }
    }
  }

  HoldState set_flag(HoldState::Flag flag) noexcept {
    return change(HoldState(nobody), [flag](HoldState s) noexcept { return s.with(flag); });
  }

  [[nodiscard]] HOLDFAST_COLD Error acquire_among_others(std::uint64_t w, HoldKind kind, Deadline deadline) noexcept {
    for (;;) {
      const hold_rules::Step step = hold_rules::acquire(HoldState(w), kind);
      if (step.verdict == hold_rules::Verdict::refused) return hold_rules::refusal(HoldState(w), kind);
      if (step.verdict == hold_rules::Verdict::wait || (step.verdict == hold_rules::Verdict::claimed && deadline.is_now())) {
        if (deadline.passed()) return hold_rules::gave_up(deadline.is_now(), kind);
        park(w, deadline);
        continue;
      }
      if (!word_.compare_exchange_weak(w, step.next.bits(), std::memory_order_acquire, std::memory_order_relaxed)) continue;
      if (step.verdict == hold_rules::Verdict::granted || await_idle(deadline)) return {};
      change(HoldState(HoldState::donation), hold_rules::abort);
      return hold_rules::gave_up(false, kind);
    }
  }

  // Sleeps until the word differs from `w` in anything but the bit that says so; reloads it.
  void park(std::uint64_t& w, Deadline deadline) noexcept {
    const std::uint64_t sleeping = HoldState(w).with(HoldState::waiting).bits();
    if (w != sleeping && !word_.compare_exchange_strong(w, sleeping, std::memory_order_relaxed, std::memory_order_relaxed)) return;
    Sync::wait_until(word_, sleeping, deadline);
    w = word_.load(std::memory_order_relaxed);
  }

  // Waits, with newcomers shut out, until no usage hold is left; the acquire load sees all that their holders did.
  bool await_idle(Deadline deadline) noexcept {
    for (;;) {
      std::uint64_t w = word_.load(std::memory_order_acquire);
      if (HoldState(w).usage() == 0) return true;
      if (deadline.passed()) return false;
      park(w, deadline);
    }
  }

  typename Sync::template atomic<std::uint64_t> word_{0};
};

/// The shared hold of real threads: the default policy of a tracked buffer.
using SharedHold = BasicSharedHold<StdSync>;
static_assert(hold_policy<SharedHold> && sizeof(SharedHold) == 8);

}  // namespace holdfast
