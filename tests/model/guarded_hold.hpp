// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "holdfast/hold/hold_state.hpp"
#include "model/explorer.hpp"

namespace model {

inline constexpr auto never = holdfast::Deadline::never();

/// A hold, the bytes that it guards, the set of usage events (here their number), and who is inside by the tests' own count.
template <class Hold>
struct GuardedHold {
  Hold hold;
  Data<int> bytes{1};   // usage reads, a donor writes
  Data<int> events{0};  // converts change it, a donor and a deleter read it
  int readers = 0, donors = 0, converted = 0;

  bool begin_reading(holdfast::Deadline deadline = never) {
    using holdfast::Errc;
    const holdfast::Error e = hold.acquire(holdfast::HoldKind::usage, deadline);
    require(e.ok() || e.code == Errc::donated || e.code == Errc::deleted || e.code == Errc::would_block, "a reader gets another error");
    if (!e.ok()) return false;
    ++readers;
    require(donors == 0, "a reader gets in beside a donor");
    require(bytes.get() > 0, "a reader sees bytes that are gone");
    return true;
  }
  void read(bool convert, holdfast::Deadline deadline = never) {
    if (!begin_reading(deadline)) return;
    --readers;
    if (!convert) return void(hold.drop(holdfast::HoldKind::usage));
    ++converted;
    hold.convert([&]() noexcept {
      events.set(events.get() + 1);
      return true;
    });
  }
  bool donate(bool confirm, holdfast::Deadline deadline = never) {
    if (!hold.acquire(holdfast::HoldKind::donation, deadline).ok()) return false;
    ++donors;
    require(readers == 0 && donors == 1, "a donation is granted beside somebody");
    require(events.get() == converted, "a donor does not see a converted event");
    bytes.set(confirm ? 0 : bytes.get() + 1);
    --donors;
    if (confirm) hold.confirm();
    else hold.drop(holdfast::HoldKind::donation);
    return true;
  }
  void invariant() { require(donors <= 1, "I1: two donors at once"); }
  void finish() {
    const holdfast::HoldCounts c = hold.counts();
    require(c.usage == 0 && c.external == 0 && c.donation == 0, "a counter is left over");
  }
};

}  // namespace model
