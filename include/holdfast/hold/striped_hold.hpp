// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/concepts/hold_policy.hpp"
#include "holdfast/hold/hold_rules.hpp"
#include "holdfast/hold/hold_state.hpp"
#include "holdfast/hold/shared_hold.hpp"

namespace holdfast {

/// The full protocol for what every thread reads (weights): usage is counted in stripes, one cache line each.
///
/// A reader counts on its own thread's stripe and meets nobody. A donation or deletion closes the stripes and gathers their
/// counts in the shared word, where the holds that are still out end; a donation given up opens them again. A hold may end
/// on another thread, so one stripe may count below 0 (it wraps in 63 bits); the sum of all is what is out.
/// Threads: any. Cost: usage as `SharedHold`, but without contention; a pending event still goes through the shared word;
/// donation and deletion visit every stripe.
template <sync Sync, std::size_t Stripes = 16>
class BasicStripedHold : private BasicSharedHold<Sync> {
  using Base = BasicSharedHold<Sync>;
  using Base::word_;

 public:
  using Base::concurrent;
  using typename Base::ownership_type;
  using Base::confirm, Base::emptied, Base::orphan, Base::settle;

  /// Takes a hold. Errors: as `SharedHold::acquire`.
  [[nodiscard]] Error acquire(HoldKind kind, Deadline deadline) noexcept {
    if (kind == HoldKind::usage && count(Sync::thread_slot() % Stripes, 1)) return {};
    if (kind != HoldKind::donation) return Base::acquire(kind, deadline);
    return acquire_alone([](HoldState s) noexcept { return hold_rules::acquire(s, HoldKind::donation); }, HoldKind::donation, deadline);
  }
  /// Runs `change` on the usage events, which no other `convert` overlaps; when it gives true, the usage hold ends with it.
  template <class Change>
  void convert(Change&& change_events) noexcept {
    bool ends = false;
    Base::convert([&]() noexcept {
      ends = change_events();
      return false;
    });
    if (ends) drop(HoldKind::usage);
  }
  /// Ends a hold unconverted; a donation is given back. True: the caller must drop the contents.
  bool drop(HoldKind kind) noexcept {
    if (kind == HoldKind::external) return Base::drop(kind);
    if (kind == HoldKind::donation) return give_back(), false;
    while (!count(Sync::thread_slot() % Stripes, ~std::uint64_t{0}) && !drop_among_gathered()) {}
    return false;
  }
  /// Deletes. Errors: deleted or donated when there is nothing to delete; would_block, deadline (nothing has changed then).
  [[nodiscard]] Error release(Deadline deadline) noexcept {
    if (deadline.is_never()) return acquire_alone(hold_rules::release, HoldKind::usage, deadline);
    // With a deadline it must be possible to give up: the buffer is claimed as for a donation first, whatever is external.
    const auto claim = [](HoldState s) noexcept {
      hold_rules::Step step = hold_rules::release(s);
      if (step.verdict == hold_rules::Verdict::granted || step.verdict == hold_rules::Verdict::claimed) step.next = s.with(HoldState::donation);
      return step;
    };
    if (Error e = acquire_alone(claim, HoldKind::usage, deadline); !e.ok()) return e;
    this->change(HoldState(HoldState::donation),
                 [](HoldState s) noexcept { return s.without(HoldState::donation).with(HoldState::deleted); });
    return {};
  }
  /// What is out now; a moment later it may differ.
  [[nodiscard]] HoldCounts counts() const noexcept {
    const HoldState s(word_.load(std::memory_order_acquire));
    std::uint64_t usage = s.usage() - (s.usage() >= gathering / 2 ? gathering : 0);
    for (const Stripe& stripe : stripes_) usage += stripe.word.load(std::memory_order_acquire) & ~closed;
    HoldCounts c = s.counts();
    c.usage = static_cast<std::uint32_t>(usage);
    return c;
  }

 private:
  struct alignas(64) Stripe {
    typename Sync::template atomic<std::uint64_t> word{0};
  };
  static constexpr std::uint64_t closed = std::uint64_t{1} << 63;
  // While stripes are closed or opened one by one the shared count stands this much higher, so that the end of a hold whose
  // stripe is not gathered yet neither takes it below 0 nor finds it at 0.
  static constexpr std::uint64_t gathering = std::uint64_t{1} << 22;
  static constexpr std::uint64_t alone = HoldState::donation | HoldState::deleted | HoldState::donated;

  // Adds to a stripe; false when it is closed. A stripe that counts acquires the end of the donation that opened it; the
  // release half is for the closer's exchange.
  [[nodiscard]] bool count(std::size_t slot, std::uint64_t n) noexcept {
    auto& word = stripes_[slot].word;
    std::uint64_t w = n == 1 ? 0 : 1;  // a guess, as in SharedHold
    do {
      if ((w & closed) != 0) return false;
    } while (!word.compare_exchange_weak(w, (w + n) & ~closed, std::memory_order_acq_rel, std::memory_order_acquire));
    return true;
  }
  // Ends a hold whose stripe was closed; false when it is open again by now and counts the hold itself.
  [[nodiscard]] bool drop_among_gathered() noexcept {
    std::uint64_t w = word_.load(std::memory_order_relaxed);
    for (;;) {
      if (!HoldState(w).has(alone)) return false;
      HoldState next = hold_rules::drop_usage(HoldState(w));
      const bool wake = HoldState(w).has(HoldState::waiting) && hold_rules::wakes(HoldState(w), next);
      if (wake) next = next.without(HoldState::waiting);
      if (!word_.compare_exchange_weak(w, next.bits(), std::memory_order_acq_rel, std::memory_order_relaxed)) continue;
      if (wake) Sync::notify_all(word_);
      return true;
    }
  }
  // Claims by a rule, gathers all usage in the shared word and waits for its end.
  template <class Rule>
  [[nodiscard]] Error acquire_alone(Rule rule, HoldKind as, Deadline deadline) noexcept {
    std::uint64_t w = word_.load(std::memory_order_relaxed);
    for (;;) {
      const hold_rules::Step step = rule(HoldState(w));
      if (step.verdict == hold_rules::Verdict::refused) return hold_rules::refusal(HoldState(w), as);
      if (step.verdict == hold_rules::Verdict::wait) {
        if (deadline.passed()) return hold_rules::gave_up(deadline.is_now(), HoldKind::donation);
        this->park(w, deadline);
      } else if (word_.compare_exchange_weak(w, step.next.plus(gathering).bits(), std::memory_order_acq_rel, std::memory_order_relaxed)) {
        break;
      }
    }
    std::uint64_t sum = 0;
    for (Stripe& stripe : stripes_) sum += stripe.word.exchange(closed, std::memory_order_acq_rel);
    this->change(HoldState(HoldState::donation).plus(gathering),
                 [sum](HoldState s) noexcept { return HoldState(s.bits() + signed_count(sum) - gathering); });
    if (this->await_idle(deadline)) return {};
    give_back();
    return hold_rules::gave_up(deadline.is_now(), HoldKind::donation);
  }
  // Opens the stripes and ends the donation; what the shared word has counted goes to a stripe in the same step.
  void give_back() noexcept {
    this->change(HoldState(HoldState::donation), [](HoldState s) noexcept { return s.plus(gathering); });
    for (Stripe& stripe : stripes_) stripe.word.store(0, std::memory_order_release);
    std::uint64_t folded = 0;
    std::uint64_t w = word_.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint64_t out = HoldState(w).usage() - gathering;
      static_cast<void>(count(0, out - folded));  // cannot be closed: only whoever has the donation closes
      folded = out;
      HoldState next = hold_rules::abort(HoldState(w).minus(HoldState(w).usage()));
      const bool wake = next.has(HoldState::waiting);
      next = next.without(HoldState::waiting);
      if (!word_.compare_exchange_weak(w, next.bits(), std::memory_order_acq_rel, std::memory_order_relaxed)) continue;
      if (wake) Sync::notify_all(word_);
      return;
    }
  }
  static constexpr std::uint64_t signed_count(std::uint64_t sum) noexcept {
    const std::uint64_t value = sum & ~closed;
    return (value >> 62) != 0 ? value | closed : value;
  }

  Stripe stripes_[Stripes];
};

/// The striped hold of real threads.
using StripedHold = BasicStripedHold<StdSync>;
static_assert(hold_policy<StripedHold>);

}  // namespace holdfast
