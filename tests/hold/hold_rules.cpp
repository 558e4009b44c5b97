// SPDX-License-Identifier: Apache-2.0
#include "holdfast/hold/hold_rules.hpp"

#include <doctest/doctest.h>

#include "support/child.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;
using hold_rules::Verdict;
using S = HoldState;

namespace {
constexpr S fresh{};
constexpr S used = fresh.plus(S::usage_one);
constexpr S referenced = fresh.plus(S::external_one);
constexpr S donating = fresh.with(S::donation);
constexpr S was_donated = fresh.with(S::donated);
constexpr S was_deleted = fresh.with(S::deleted);
constexpr Verdict verdict(S s, HoldKind k) { return hold_rules::acquire(s, k).verdict; }
}  // namespace

// T-D14: the coexistence matrix of runtime.md 4.2, row held, column asked. The table is pure, so it holds at compile time.
static_assert(verdict(fresh, HoldKind::usage) == Verdict::granted && verdict(fresh, HoldKind::external) == Verdict::granted &&
              verdict(fresh, HoldKind::donation) == Verdict::granted && hold_rules::release(fresh).verdict == Verdict::granted);
static_assert(verdict(used, HoldKind::usage) == Verdict::granted && verdict(used, HoldKind::external) == Verdict::granted &&
              verdict(used, HoldKind::donation) == Verdict::claimed && hold_rules::release(used).verdict == Verdict::claimed);
static_assert(verdict(referenced, HoldKind::usage) == Verdict::granted &&
              verdict(referenced, HoldKind::external) == Verdict::granted &&
              verdict(referenced, HoldKind::donation) == Verdict::refused &&
              hold_rules::release(referenced).verdict == Verdict::granted);
static_assert(verdict(donating, HoldKind::usage) == Verdict::wait && verdict(donating, HoldKind::external) == Verdict::wait &&
              verdict(donating, HoldKind::donation) == Verdict::wait && hold_rules::release(donating).verdict == Verdict::wait);
static_assert(verdict(was_donated, HoldKind::usage) == Verdict::refused &&
              verdict(was_donated, HoldKind::external) == Verdict::refused &&
              verdict(was_donated, HoldKind::donation) == Verdict::refused &&
              hold_rules::release(was_donated).verdict == Verdict::refused);
static_assert(verdict(was_deleted, HoldKind::usage) == Verdict::refused &&
              verdict(was_deleted, HoldKind::donation) == Verdict::refused);

TEST_CASE("hold_rules: T-D14 usage and external held together still refuse a donation at once, not after the wait") {
  const S both = used.plus(S::external_one);
  CHECK(verdict(both, HoldKind::donation) == Verdict::refused);
  CHECK(hold_rules::acquire(both, HoldKind::donation).next == both);
}

TEST_CASE("hold_rules: every reachable state keeps I1 and I2, and no grant comes beside a donation") {
  for (std::uint64_t usage = 0; usage < 3; ++usage)
    for (std::uint64_t external = 0; external < 3; ++external)
      for (const std::uint64_t flags : {std::uint64_t{0}, std::uint64_t{S::donation}, std::uint64_t{S::deleted}, std::uint64_t{S::donated}}) {
        const S s = S(usage * S::usage_one + external * S::external_one).with(flags);
        for (const HoldKind kind : {HoldKind::usage, HoldKind::external, HoldKind::donation}) {
          const hold_rules::Step step = hold_rules::acquire(s, kind);
          if (step.verdict == Verdict::wait || step.verdict == Verdict::refused) {
            CHECK(step.next == s);
            continue;
          }
          CHECK(flags == 0);
          if (kind == HoldKind::donation) {
            CHECK(external == 0);
            CHECK((step.verdict == Verdict::granted) == (usage == 0));
            CHECK(hold_rules::abort(step.next) == s);
          } else {
            CHECK(step.verdict == Verdict::granted);
            CHECK((kind == HoldKind::usage ? hold_rules::drop_usage(step.next) : hold_rules::drop_external(step.next)) == s);
          }
        }
      }
}

TEST_CASE("hold_rules: a confirmed donation is over and leaves the buffer donated; an aborted one leaves nothing") {
  CHECK(hold_rules::confirm(donating) == was_donated);
  CHECK(hold_rules::abort(donating) == fresh);
}

TEST_CASE("hold_rules: a full counter refuses one more hold instead of running over") {
  const S full = fresh.plus(S::max_usage), full_external = fresh.plus(S::max_external * S::external_one);
  CHECK(verdict(full, HoldKind::usage) == Verdict::refused);
  CHECK(hold_rules::refusal(full, HoldKind::usage).code == Errc::over_budget);
  CHECK(verdict(full_external, HoldKind::external) == Verdict::refused);
  CHECK(full.external() == 0);
  CHECK(full_external.usage() == 0);
  CHECK(!full_external.has(S::donation));
}

TEST_CASE("hold_rules: sleepers are woken by the end of a donation, the last usage hold and the unlock, by nothing else") {
  CHECK(hold_rules::wakes(donating, hold_rules::abort(donating)));
  CHECK(hold_rules::wakes(donating, hold_rules::confirm(donating)));
  CHECK(hold_rules::wakes(used, fresh));
  CHECK(!hold_rules::wakes(used.plus(1), used));
  CHECK(!hold_rules::wakes(referenced, fresh));
  CHECK(hold_rules::wakes(used.with(S::locked), used));
  CHECK(!hold_rules::wakes(fresh, used));
}

TEST_CASE("hold_rules: contents go when settled and unreferenced, the state when they and the handle are gone, not before") {
  const S settled = fresh.with(S::deleted).with(S::settled);
  CHECK(hold_rules::must_empty(settled));
  CHECK(!hold_rules::must_empty(settled.plus(S::external_one)));
  CHECK(!hold_rules::must_empty(was_deleted));
  CHECK(hold_rules::dead(settled.with(S::emptied).with(S::orphaned)));
  CHECK(!hold_rules::dead(settled.with(S::orphaned)));
  CHECK(!hold_rules::dead(settled.with(S::emptied)));
}

TEST_CASE("hold_rules: case 01 a refusal says deleted or donated, names the call and is INVALID_ARGUMENT") {
  for (const HoldKind kind : {HoldKind::usage, HoldKind::external, HoldKind::donation}) {
    const Error d = hold_rules::refusal(was_deleted, kind), g = hold_rules::refusal(was_donated, kind);
    CHECK(status_kind(d) == StatusKind::invalid_argument);
    CHECK(status_kind(g) == StatusKind::invalid_argument);
    CHECK(d.code == Errc::deleted);
    CHECK(g.code == Errc::donated);
    CHECK(says(d, "was deleted"));
    CHECK(says(g, "was donated"));
    CHECK(says(d, "Buffer has been deleted or donated."));
    const char* call = kind == HoldKind::usage ? "hold(usage)" : kind == HoldKind::external ? "hold(external)" : "hold(donation)";
    CHECK(says(d, call));
    CHECK(says(g, call));
  }
  CHECK(says(hold_rules::refusal(was_donated, HoldKind::donation), "Donation requested for invalid buffer"));
  const Error held = hold_rules::refusal(referenced.plus(S::external_one), HoldKind::donation);
  CHECK(held.code == Errc::held);
  CHECK(says(held, "with external reference"));
  CHECK(says(held, "count 2"));
}

TEST_CASE("hold_rules: T-D14 ends of holds that do not exist are broken preconditions") {
  CHECK(aborts([] { static_cast<void>(hold_rules::drop_usage(fresh)); }));
  CHECK(aborts([] { static_cast<void>(hold_rules::drop_external(used)); }));
  CHECK(aborts([] { static_cast<void>(hold_rules::abort(used)); }));
  CHECK(aborts([] { static_cast<void>(hold_rules::confirm(fresh)); }));
  CHECK(aborts([] { static_cast<void>(hold_rules::confirm(used.with(S::donation))); }));
  CHECK(!aborts([] { static_cast<void>(hold_rules::confirm(donating)); }));
}
