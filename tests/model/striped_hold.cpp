// SPDX-License-Identifier: Apache-2.0
// The real striped hold, with two stripes, under every interleaving.
#include "holdfast/hold/striped_hold.hpp"

#include <doctest/doctest.h>

#include "model/explorer.hpp"

using namespace holdfast;
using model::check_all;
using model::Data;
using model::require;

namespace {

constexpr auto never = Deadline::never();

struct Guarded {
  BasicStripedHold<model::Sync, 2> hold;
  Data<int> bytes{1}, events{0};
  int readers = 0, donors = 0, converted = 0;

  bool begin_reading(Deadline deadline = never) {
    if (!hold.acquire(HoldKind::usage, deadline).ok()) return false;
    ++readers;
    require(donors == 0, "a reader gets in beside a donor");
    require(bytes.get() > 0, "a reader sees bytes that are gone");
    return true;
  }
  void read(bool convert) {
    if (!begin_reading()) return;
    --readers;
    if (!convert) return void(hold.drop(HoldKind::usage));
    ++converted;
    hold.convert([&]() noexcept {
      events.set(events.get() + 1);
      return true;
    });
  }
  void donate(bool confirm, Deadline deadline = never) {
    if (!hold.acquire(HoldKind::donation, deadline).ok()) return;
    ++donors;
    require(readers == 0 && donors == 1, "a donation is granted beside somebody");
    require(events.get() == converted, "a donor does not see a converted event");
    bytes.set(confirm ? 0 : bytes.get() + 1);
    --donors;
    if (confirm) hold.confirm();
    else hold.drop(HoldKind::donation);
  }
  void invariant() { require(donors <= 1, "I1: two donors at once"); }
  void finish() {
    const HoldCounts c = hold.counts();
    require(c.usage == 0 && c.external == 0 && c.donation == 0, "a counter is left over");
  }
};

template <bool Convert, bool Confirm>
struct ReaderDonor : Guarded {
  static constexpr int threads = 2;
  void run(int t) { t == 0 ? read(Convert) : donate(Confirm); }
};
struct TwoReadersDonor : Guarded {
  static constexpr int threads = 3;
  void run(int t) { t < 2 ? read(false) : donate(false); }
};
// Taken on one thread's stripe, ended on another's, while a donation closes both.
struct Migrates : Guarded {
  static constexpr int threads = 2;
  Migrates() { static_cast<void>(begin_reading()); }
  void run(int t) {
    if (t == 1) return donate(false);
    --readers;
    hold.drop(HoldKind::usage);
  }
};
struct GivesUp : Guarded {
  static constexpr int threads = 2;
  void run(int t) { t == 0 ? read(false) : donate(false, Deadline::at(1)); }
};
struct MigratesAgainstOneOutOfTime : Guarded {
  static constexpr int threads = 3;
  MigratesAgainstOneOutOfTime() { static_cast<void>(begin_reading()); }
  void run(int t) {
    if (t == 2) return donate(false, Deadline::at(1));
    if (t == 1) return read(false);
    --readers;
    hold.drop(HoldKind::usage);
  }
};
struct TwoDonors : Guarded {
  static constexpr int threads = 2;
  void run(int t) { donate(t == 0); }
};
struct ReaderDeleter : Guarded {
  static constexpr int threads = 2;
  void run(int t) {
    if (t == 0) return read(true);
    require(hold.release(never).ok(), "a deletion fails");
    require(readers == 0, "a deletion returns beside a reader");
    bytes.set(0);
  }
};

}  // namespace

TEST_CASE("model: T-D14 StripedHold, a donation gathers the stripes, waits for their readers and sees what they did") {
  check_all<ReaderDonor<false, false>>("StripedHold usage dropped | donation aborted");
  check_all<ReaderDonor<true, false>>("StripedHold usage converted | donation aborted");
  check_all<ReaderDonor<true, true>>("StripedHold usage converted | donation confirmed");
  check_all<TwoReadersDonor>("StripedHold usage | usage | donation aborted");
  check_all<TwoDonors>("StripedHold donation confirmed | donation aborted");
  check_all<ReaderDeleter>("StripedHold usage converted | release");
}
TEST_CASE("model: T-D14 StripedHold, a hold that ends on another stripe and a donation that gives up lose no count") {
  check_all<Migrates>("StripedHold usage ends elsewhere | donation aborted");
  check_all<GivesUp>("StripedHold usage | donation out of time");
  check_all<MigratesAgainstOneOutOfTime>("StripedHold ends elsewhere | usage | donation out of time");
}
