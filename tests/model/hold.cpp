// SPDX-License-Identifier: Apache-2.0
// The real shared hold under every interleaving: who gets in, who waits, who is woken, and what they see.
#include <doctest/doctest.h>

#include <optional>

#include "holdfast/hold/shared_hold.hpp"
#include "model/guarded_hold.hpp"

using namespace holdfast;
using model::check_all;
using model::Data;
using model::never;
using model::require;

namespace {

using Hold = BasicSharedHold<model::Sync>;
constexpr auto now = Deadline::now();

struct Guarded : model::GuardedHold<Hold> {
  bool deleted = false;

  void refer() {
    const Error e = hold.acquire(HoldKind::external, never);
    if (e.ok()) hold.drop(HoldKind::external);
    else require(e.code == Errc::donated || e.code == Errc::deleted, "an external hold gets another error");
  }
  void release() {
    const Error e = hold.release(never);
    if (!e.ok()) return require(e.code == Errc::donated || e.code == Errc::deleted, "a deletion gets another error");
    require(!deleted && readers == 0 && donors == 0, "a deletion returns beside a holder");
    deleted = true;
    require(events.get() == converted, "a deleter does not see a converted event");
    bytes.set(0);
  }
  // I1 to I3 of runtime.md 4.1, at every step.
  void invariant() {
    const HoldCounts c = HoldState(hold_bits()).counts();
    require(c.donation <= 1, "I1: more than one donation");
    require(donors <= 1, "I1: two donors at once");
    require(donors == 0 || (c.donation == 1 && c.usage == 0 && c.external == 0), "I2: a granted donation is not alone");
    require(static_cast<int>(c.usage) >= readers, "I3: a valid usage hold is not counted");
  }
  [[nodiscard]] std::uint64_t hold_bits() const { return reinterpret_cast<const model::Sync::atomic<std::uint64_t>&>(hold).peek(); }
};

template <bool Convert, bool Confirm>
struct ReaderDonor : Guarded {
  static constexpr int threads = 2;
  void run(int t) { t == 0 ? read(Convert) : void(donate(Confirm)); }
};
template <bool Confirm>
struct TwoReadersDonor : Guarded {
  static constexpr int threads = 3;
  void run(int t) { t < 2 ? read(true) : void(donate(Confirm)); }
};
struct ConvertDropDonor : Guarded {
  static constexpr int threads = 3;
  void run(int t) { t < 2 ? read(t == 0) : void(donate(false)); }
};
template <bool Confirm>
struct TwoDonors : Guarded {
  static constexpr int threads = 2;
  int granted = 0;
  void run(int) { granted += donate(Confirm) ? 1 : 0; }
  void finish() {
    Guarded::finish();
    require(granted == (Confirm ? 1 : 2), "two donors: a wrong number is granted");
  }
};
struct TwoDonorsReader : Guarded {
  static constexpr int threads = 3;
  void run(int t) { t == 2 ? read(false) : void(donate(t == 0)); }
};
struct ReaderDeleter : Guarded {
  static constexpr int threads = 2;
  void run(int t) { t == 0 ? read(true) : release(); }
};
struct DonorDeleterReader : Guarded {
  static constexpr int threads = 3;
  void run(int t) { t == 0 ? void(donate(false)) : t == 1 ? release() : read(true); }
};
struct TwoDeleters : Guarded {
  static constexpr int threads = 3;
  void run(int t) { t == 2 ? read(true) : release(); }
};
struct ExternalDonor : Guarded {
  static constexpr int threads = 2;
  void run(int t) {
    if (t == 0) return refer();
    const Error e = hold.acquire(HoldKind::donation, never);
    if (!e.ok()) return require(e.code == Errc::held, "a donation beside an external hold gets another error");
    hold.drop(HoldKind::donation);
  }
};
struct ExternalDonorReader : Guarded {
  static constexpr int threads = 3;
  void run(int t) { t == 0 ? refer() : t == 1 ? void(donate(true)) : read(true); }
};
// The donor's time is over before it begins: it claims, gives up and must let everybody go on.
struct GivesUp : Guarded {
  static constexpr int threads = 3;
  void run(int t) { t == 1 ? void(donate(false, Deadline::at(1))) : read(t == 0); }
};
struct Tries : Guarded {
  static constexpr int threads = 3;
  void run(int t) { t == 0 ? void(donate(false, now)) : t == 1 ? read(true, now) : read(false); }
};
// Contents, handle and the last external hold go at the same time: exactly one of them must free.
struct WhoFrees : Guarded {
  static constexpr int threads = 3;
  int emptied = 0, freed = 0;
  Data<int> contents{1};
  WhoFrees() {
    require(hold.acquire(HoldKind::external, never).ok() && hold.release(never).ok(), "set-up");
  }
  void run(int t) {
    if (t == 1) return void(freed += hold.orphan() ? 1 : 0);
    if (!(t == 0 ? hold.settle() : hold.drop(HoldKind::external))) return;
    ++emptied;
    contents.set(0);
    freed += hold.emptied() ? 1 : 0;
  }
  void finish() { require(emptied == 1 && freed == 1, "not exactly one drops the contents, and one frees"); }
};

}  // namespace

TEST_CASE("model: T-D14 a donation waits for a usage hold, dropped or converted, and sees all that it did") {
  check_all<ReaderDonor<false, false>>("SharedHold usage dropped | donation aborted");
  check_all<ReaderDonor<true, false>>("SharedHold usage converted | donation aborted");
  check_all<ReaderDonor<true, true>>("SharedHold usage converted | donation confirmed");
  check_all<TwoReadersDonor<false>>("SharedHold converted | converted | donation aborted");
  check_all<TwoReadersDonor<true>>("SharedHold converted | converted | donation confirmed");
  check_all<ConvertDropDonor>("SharedHold converted | dropped | donation aborted");
}
TEST_CASE("model: T-D14 of two donors one at a time is granted, the second by the first's outcome") {
  check_all<TwoDonors<false>>("SharedHold donation aborted | donation aborted");
  check_all<TwoDonors<true>>("SharedHold donation confirmed | donation confirmed");
  check_all<TwoDonorsReader>("SharedHold donation confirmed | aborted | usage");
}
TEST_CASE("model: T-D14 a deletion waits for usage and donation and is done once") {
  check_all<ReaderDeleter>("SharedHold usage converted | release");
  check_all<DonorDeleterReader>("SharedHold donation aborted | release | converted");
  check_all<TwoDeleters>("SharedHold release | release | converted");
}
TEST_CASE("model: T-D14 an external hold and a donation never coexist, and neither waits for the other in vain") {
  check_all<ExternalDonor>("SharedHold external | donation");
  check_all<ExternalDonorReader>("SharedHold external | donation confirmed | converted");
}
TEST_CASE("model: T-D14 a donation given up at its deadline and tries that would block strand nobody") {
  check_all<GivesUp>("SharedHold converted | donation out of time | dropped");
  check_all<Tries>("SharedHold try donation | try usage | usage");
}
TEST_CASE("model: exactly one of contents, handle and last external hold frees") {
  check_all<WhoFrees>("SharedHold settle | orphan | drop external");
}
