// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "holdfast/core/config.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"
#include "holdfast/hold/hold_state.hpp"

/// The protocol as a pure table: what each request does to a state, without atomics, waits or memory.
///
/// | held \ asked | usage | external | donation | release |
/// | --- | --- | --- | --- | --- |
/// | none | ok | ok | ok | ok |
/// | usage | ok | ok | claims, waits for usage 0 | newcomers fail at once, waits for usage 0 |
/// | external | ok | ok | fails at once | ok |
/// | donation | waits | waits | waits | waits |
/// | deleted, donated | fails | fails | fails | nothing to do |
///
/// Source: runtime.md 4.2 and 4.3.
namespace holdfast::hold_rules {

/// What comes of a request.
enum class Verdict : std::uint8_t {
  granted,  ///< `next` is the new state
  claimed,  ///< `next` is the new state; the request has it once usage is 0
  wait,     ///< ask again when the state has changed
  refused,  ///< never: see `refusal`
};

/// A verdict and the state that follows.
struct Step {
  Verdict verdict;
  HoldState next;
};

/// A request for a hold.
[[nodiscard]] constexpr Step acquire(HoldState s, HoldKind kind) noexcept {
  using S = HoldState;
  // One test on the way that nobody contests: the counters' spare top bit is never set.
  if (s.has(S::donation)) return {Verdict::wait, s};
  if (s.has(S::deleted | S::donated)) return {Verdict::refused, s};
  switch (kind) {
    case HoldKind::usage: return s.usage() == S::max_usage ? Step{Verdict::refused, s} : Step{Verdict::granted, s.plus(S::usage_one)};
    case HoldKind::external:
      return s.external() == S::max_external ? Step{Verdict::refused, s} : Step{Verdict::granted, s.plus(S::external_one)};
    case HoldKind::donation:
      if (s.external() != 0) return {Verdict::refused, s};
      // The bit goes up first and shuts newcomers out; no external hold can appear after it.
      return {s.usage() == 0 ? Verdict::granted : Verdict::claimed, s.with(S::donation)};
  }
  HOLDFAST_UNREACHABLE();
}

/// A request to delete.
[[nodiscard]] constexpr Step release(HoldState s) noexcept {
  using S = HoldState;
  if (s.has(S::donation)) return {Verdict::wait, s};
  if (s.has(S::deleted | S::donated)) return {Verdict::refused, s};
  return {s.usage() == 0 ? Verdict::granted : Verdict::claimed, s.with(S::deleted)};
}

/// The end of a usage hold, dropped or converted.
[[nodiscard]] constexpr HoldState drop_usage(HoldState s) noexcept {
  HOLDFAST_ASSERT(s.usage() > 0);
  return s.minus(HoldState::usage_one);
}

/// The end of an external hold.
[[nodiscard]] constexpr HoldState drop_external(HoldState s) noexcept {
  HOLDFAST_ASSERT(s.external() > 0);
  return s.minus(HoldState::external_one);
}

/// A donation given up, granted or still waiting: the buffer is as it was.
[[nodiscard]] constexpr HoldState abort(HoldState s) noexcept {
  HOLDFAST_ASSERT(s.has(HoldState::donation) && s.external() == 0);
  return s.without(HoldState::donation);
}

/// A granted donation carried out: the buffer is gone.
[[nodiscard]] constexpr HoldState confirm(HoldState s) noexcept {
  HOLDFAST_ASSERT(s.has(HoldState::donation) && s.usage() == 0 && s.external() == 0);
  return s.without(HoldState::donation).with(HoldState::donated);
}

/// Whether a change from one state to another can let a sleeper go on.
///
/// Sleepers wait for a donation to end, for usage to reach 0, or for the usage events to be unlocked.
[[nodiscard]] constexpr bool wakes(HoldState from, HoldState to) noexcept {
  return (from.has(HoldState::donation) && !to.has(HoldState::donation)) || (from.usage() != 0 && to.usage() == 0) ||
         (from.has(HoldState::locked) && !to.has(HoldState::locked));
}

/// Whether the contents must go: nobody uses them, nothing is pending, no external hold is left.
///
/// Newcomers have long been refused, so exactly one change makes this true, and whoever makes it drops the contents.
[[nodiscard]] constexpr bool must_empty(HoldState s) noexcept { return s.has(HoldState::settled) && s.external() == 0; }

/// Whether nothing refers to the state itself any more; of the two changes that it takes the second frees.
[[nodiscard]] constexpr bool dead(HoldState s) noexcept { return s.has(HoldState::emptied) && s.has(HoldState::orphaned); }

/// The reason why a request was refused; the text names the call and what became of the buffer.
[[nodiscard]] HOLDFAST_COLD constexpr Error refusal(HoldState s, HoldKind kind) noexcept {
  const bool gone = s.has(HoldState::deleted | HoldState::donated);
  if (!gone && kind == HoldKind::donation) {
    Error e = make_error(Errc::held, "hold(donation): Donation requested for buffer with external reference");
    e.at_kind = AtKind::count;
    e.at = s.external();
    return e;
  }
  if (!gone) return make_error(Errc::over_budget, "too many holds on one buffer");
  const bool donated = s.has(HoldState::donated);
  const Errc code = donated ? Errc::donated : Errc::deleted;
  switch (kind) {
    case HoldKind::usage:
      return make_error(code, donated ? "hold(usage): Buffer has been deleted or donated. It was donated"
                                      : "hold(usage): Buffer has been deleted or donated. It was deleted");
    case HoldKind::external:
      return make_error(code, donated ? "hold(external): Buffer has been deleted or donated. It was donated"
                                      : "hold(external): Buffer has been deleted or donated. It was deleted");
    case HoldKind::donation:
      return make_error(code, donated ? "hold(donation): Donation requested for invalid buffer: "
                                        "Buffer has been deleted or donated. It was donated"
                                      : "hold(donation): Donation requested for invalid buffer: "
                                        "Buffer has been deleted or donated. It was deleted");
  }
  HOLDFAST_UNREACHABLE();
}

/// The reason why a request that would have to wait gave up.
[[nodiscard]] HOLDFAST_COLD constexpr Error gave_up(bool tried, HoldKind kind) noexcept {
  const Errc code = tried ? Errc::would_block : Errc::deadline;
  switch (kind) {
    case HoldKind::usage: return make_error(code, "hold(usage): a donation is pending");
    case HoldKind::external: return make_error(code, "hold(external): a donation is pending");
    case HoldKind::donation: return make_error(code, "hold(donation): usage holds or another donation are outstanding");
  }
  HOLDFAST_UNREACHABLE();
}

}  // namespace holdfast::hold_rules
