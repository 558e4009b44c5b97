// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "holdfast/concepts/hold_policy.hpp"
#include "holdfast/hold/hold_rules.hpp"
#include "holdfast/hold/hold_state.hpp"

namespace holdfast {

/// The full protocol for one thread: plain counters.
///
/// A request that would have to wait gives `would_block`, whatever its deadline: the only thread cannot wait for itself.
/// Threads: one.
class LocalHold {
 public:
  static constexpr bool concurrent = false;
  using ownership_type = BasicShared<NoSync>;

  /// Takes a hold. Errors: deleted, donated, held, would_block, over_budget.
  [[nodiscard]] Error acquire(HoldKind kind, Deadline) noexcept {
    return apply(hold_rules::acquire(state_, kind), kind, kind);
  }
  /// Runs a change of the usage events; when it gives true, the usage hold ends with it.
  template <class Change>
  void convert(Change&& change) noexcept {
    if (change()) state_ = hold_rules::drop_usage(state_);
  }
  /// Ends a hold unconverted. True: the caller must drop the contents.
  bool drop(HoldKind kind) noexcept {
    switch (kind) {
      case HoldKind::usage: state_ = hold_rules::drop_usage(state_); return false;
      case HoldKind::external: state_ = hold_rules::drop_external(state_); return hold_rules::must_empty(state_);
      case HoldKind::donation: state_ = hold_rules::abort(state_); return false;
    }
    HOLDFAST_UNREACHABLE();
  }
  void confirm() noexcept { state_ = hold_rules::confirm(state_); }
  /// Deletes. Errors: deleted or donated when there is nothing to delete; would_block.
  [[nodiscard]] Error release(Deadline) noexcept {
    return apply(hold_rules::release(state_), HoldKind::usage, HoldKind::donation);
  }
  bool settle() noexcept { return hold_rules::must_empty(set_flag(HoldState::settled)); }
  bool emptied() noexcept { return hold_rules::dead(set_flag(HoldState::emptied)); }
  bool orphan() noexcept { return hold_rules::dead(set_flag(HoldState::orphaned)); }
  [[nodiscard]] HoldCounts counts() const noexcept { return state_.counts(); }

 private:
  [[nodiscard]] Error apply(hold_rules::Step step, HoldKind refused_as, HoldKind blocked_as) noexcept {
    switch (step.verdict) {
      case hold_rules::Verdict::granted: state_ = step.next; return {};
      case hold_rules::Verdict::refused: return hold_rules::refusal(state_, refused_as);
      case hold_rules::Verdict::claimed:
      case hold_rules::Verdict::wait: return hold_rules::gave_up(true, blocked_as);
    }
    HOLDFAST_UNREACHABLE();
  }
  HoldState set_flag(HoldState::Flag flag) noexcept { return state_ = state_.with(flag); }
  HoldState state_;
};
static_assert(hold_policy<LocalHold> && sizeof(LocalHold) == 8);

}  // namespace holdfast
