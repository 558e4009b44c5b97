// SPDX-License-Identifier: Apache-2.0
// The real striped hold, with two stripes, under every interleaving.
#include "holdfast/hold/striped_hold.hpp"

#include <doctest/doctest.h>

#include "model/guarded_hold.hpp"

using namespace holdfast;
using model::check_all;
using model::never;
using model::require;

namespace {

using Guarded = model::GuardedHold<BasicStripedHold<model::Sync, 2>>;

template <bool Convert, bool Confirm>
struct ReaderDonor : Guarded {
  static constexpr int threads = 2;
  void run(int t) { t == 0 ? read(Convert) : void(donate(Confirm)); }
};
struct TwoReadersDonor : Guarded {
  static constexpr int threads = 3;
  void run(int t) { t < 2 ? read(false) : void(donate(false)); }
};
// Taken on one thread's stripe, ended on another's, while a donation closes both.
struct Migrates : Guarded {
  static constexpr int threads = 2;
  Migrates() { static_cast<void>(begin_reading()); }
  void run(int t) {
    if (t == 1) return void(donate(false));
    --readers;
    hold.drop(HoldKind::usage);
  }
};
struct GivesUp : Guarded {
  static constexpr int threads = 2;
  void run(int t) { t == 0 ? read(false) : void(donate(false, Deadline::at(1))); }
};
struct MigratesAgainstOneOutOfTime : Guarded {
  static constexpr int threads = 3;
  MigratesAgainstOneOutOfTime() { static_cast<void>(begin_reading()); }
  void run(int t) {
    if (t == 2) return void(donate(false, Deadline::at(1)));
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
