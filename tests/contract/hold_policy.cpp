// SPDX-License-Identifier: Apache-2.0
#include "holdfast/concepts/hold_policy.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "holdfast/hold/audited_hold.hpp"
#include "holdfast/hold/local_hold.hpp"
#include "holdfast/hold/no_hold.hpp"
#include "holdfast/hold/shared_hold.hpp"
#include "holdfast/hold/striped_hold.hpp"
#include "support/gate.hpp"

// What every hold policy with counters promises; a new policy adds itself to these two lists.
#define HOLD_POLICIES LocalHold, AuditedHold<LocalHold>, CONCURRENT_POLICIES
#define CONCURRENT_POLICIES SharedHold, StripedHold, AuditedHold<SharedHold>, AuditedHold<StripedHold>

using namespace holdfast;
using namespace holdfast::testing;

namespace {
constexpr auto never = Deadline::never();
constexpr auto now = Deadline::now();
}  // namespace

TEST_CASE_TEMPLATE("hold_policy: T-D14 usage and external holds coexist and are counted", Hold, HOLD_POLICIES) {
  Hold h;
  CHECK(h.acquire(HoldKind::usage, never).ok());
  CHECK(h.acquire(HoldKind::usage, never).ok());
  CHECK(h.acquire(HoldKind::external, never).ok());
  CHECK(h.counts() == HoldCounts{2, 1, 0, false, false});
  CHECK(!h.drop(HoldKind::usage));
  CHECK(!h.drop(HoldKind::external));
  h.convert([] { return true; });
  CHECK(h.counts() == HoldCounts{});
}

TEST_CASE_TEMPLATE("hold_policy: T-D14 an external hold fails a donation at once, even without a deadline", Hold, HOLD_POLICIES) {
  Hold h;
  CHECK(h.acquire(HoldKind::external, never).ok());
  const Error e = h.acquire(HoldKind::donation, never);
  CHECK(e.code == Errc::held);
  CHECK(e.at == 1);
  CHECK(h.counts().donation == 0);
  h.drop(HoldKind::external);
  CHECK(h.acquire(HoldKind::donation, never).ok());
  h.confirm();
}

TEST_CASE_TEMPLATE("hold_policy: T-D14 beside a donation every request would block, and after its end they go by its outcome", Hold,
                   HOLD_POLICIES) {
  Hold h;
  CHECK(h.acquire(HoldKind::donation, never).ok());
  for (const HoldKind k : {HoldKind::usage, HoldKind::external, HoldKind::donation}) CHECK(h.acquire(k, now).code == Errc::would_block);
  CHECK(h.release(now).code == Errc::would_block);
  h.drop(HoldKind::donation);
  CHECK(h.acquire(HoldKind::usage, now).ok());
  CHECK(h.acquire(HoldKind::donation, now).code == Errc::would_block);
  CHECK(h.counts() == HoldCounts{1, 0, 0, false, false});
  h.drop(HoldKind::usage);
  CHECK(h.acquire(HoldKind::donation, now).ok());
  h.confirm();
  for (const HoldKind k : {HoldKind::usage, HoldKind::external, HoldKind::donation}) CHECK(h.acquire(k, never).code == Errc::donated);
  CHECK(h.release(never).code == Errc::donated);
  CHECK(h.counts() == HoldCounts{0, 0, 0, false, true});
}

TEST_CASE_TEMPLATE("hold_policy: release fails newcomers, ignores external holds and is not done twice", Hold, HOLD_POLICIES) {
  Hold h;
  CHECK(h.acquire(HoldKind::usage, never).ok());
  CHECK(h.release(now).code == Errc::would_block);
  CHECK(!h.counts().deleted);
  h.drop(HoldKind::usage);
  CHECK(h.acquire(HoldKind::external, never).ok());
  CHECK(h.release(now).ok());
  CHECK(h.release(never).code == Errc::deleted);
  for (const HoldKind k : {HoldKind::usage, HoldKind::external, HoldKind::donation}) CHECK(h.acquire(k, never).code == Errc::deleted);
  CHECK(!h.settle());
  CHECK(!h.orphan());
  CHECK(h.drop(HoldKind::external));
  CHECK(h.emptied());
}

TEST_CASE_TEMPLATE("hold_policy: one drops the contents, and of the ends of contents and handle the second frees", Hold, HOLD_POLICIES) {
  Hold h;
  CHECK(h.release(now).ok());
  CHECK(h.settle());
  CHECK(!h.emptied());
  CHECK(h.orphan());
  Hold g;
  CHECK(g.release(now).ok());
  CHECK(!g.orphan());
  CHECK(g.settle());
  CHECK(g.emptied());
}

TEST_CASE_TEMPLATE("hold_policy: a change that gives false keeps the usage hold", Hold, HOLD_POLICIES) {
  Hold h;
  CHECK(h.acquire(HoldKind::usage, never).ok());
  h.convert([] { return false; });
  CHECK(h.counts().usage == 1);
  h.convert([] { return true; });
  CHECK(h.counts().usage == 0);
}

TEST_CASE_TEMPLATE("hold_policy: T-D14 a donation waits for usage holds and shuts newcomers out meanwhile", Hold, CONCURRENT_POLICIES) {
  for (int round = 0; round < 50; ++round) {
    Hold h;
    CHECK(h.acquire(HoldKind::usage, never).ok());
    CHECK(h.acquire(HoldKind::usage, never).ok());
    Caller donor([&] { CHECK(h.acquire(HoldKind::donation, never).ok()); });
    CHECK(soon([&] { return h.counts().donation == 1; }));
    CHECK(h.acquire(HoldKind::usage, now).code == Errc::would_block);
    h.drop(HoldKind::usage);
    if (round == 0) CHECK(donor.blocks());
    h.convert([] { return true; });
    CHECK(donor.returns_soon());
    CHECK(h.counts() == HoldCounts{0, 0, 1, false, false});
  }
}

TEST_CASE_TEMPLATE("hold_policy: T-D14 newcomers wait for a pending donation, succeed after abort and fail after confirm", Hold,
                   CONCURRENT_POLICIES) {
  for (const bool confirms : {false, true}) {
    Hold h;
    CHECK(h.acquire(HoldKind::donation, never).ok());
    Error usage, external;
    Caller a([&] { usage = h.acquire(HoldKind::usage, never); });
    Caller b([&] { external = h.acquire(HoldKind::external, never); });
    CHECK(a.blocks());
    CHECK(b.blocks());
    if (confirms) h.confirm();
    else h.drop(HoldKind::donation);
    CHECK(a.returns_soon());
    CHECK(b.returns_soon());
    CHECK(usage.code == (confirms ? Errc::donated : Errc::ok));
    CHECK(external.code == (confirms ? Errc::donated : Errc::ok));
  }
}

TEST_CASE_TEMPLATE("hold_policy: T-D14 a deletion nulls at once yet waits for usage holds, not for external ones", Hold,
                   CONCURRENT_POLICIES) {
  Hold h;
  CHECK(h.acquire(HoldKind::usage, never).ok());
  CHECK(h.acquire(HoldKind::external, never).ok());
  Caller deleter([&] { CHECK(h.release(never).ok()); });
  CHECK(soon([&] { return h.counts().deleted; }));
  CHECK(h.acquire(HoldKind::usage, never).code == Errc::deleted);
  CHECK(deleter.blocks());
  h.drop(HoldKind::usage);
  CHECK(deleter.returns_soon());
  CHECK(h.counts().external == 1);
}

TEST_CASE_TEMPLATE("hold_policy: a deadline ends every kind of wait and leaves the state as it was", Hold, CONCURRENT_POLICIES) {
  const auto soon_over = [] { return Deadline::after(std::chrono::milliseconds(3)); };
  Hold h;
  CHECK(h.acquire(HoldKind::usage, never).ok());
  CHECK(h.acquire(HoldKind::donation, soon_over()).code == Errc::deadline);
  CHECK(h.release(soon_over()).code == Errc::deadline);
  CHECK(h.counts() == HoldCounts{1, 0, 0, false, false});
  CHECK(h.acquire(HoldKind::usage, now).ok());
  h.drop(HoldKind::usage);
  h.drop(HoldKind::usage);
  CHECK(h.acquire(HoldKind::donation, never).ok());
  for (const HoldKind k : {HoldKind::usage, HoldKind::external, HoldKind::donation})
    CHECK(h.acquire(k, soon_over()).code == Errc::deadline);
  CHECK(h.counts() == HoldCounts{0, 0, 1, false, false});
}

TEST_CASE_TEMPLATE("hold_policy: a donation given up at its deadline lets the waiting newcomers in", Hold, CONCURRENT_POLICIES) {
  Hold h;
  CHECK(h.acquire(HoldKind::usage, never).ok());
  Caller donor([&] { CHECK(h.acquire(HoldKind::donation, Deadline::after(std::chrono::milliseconds(30))).code == Errc::deadline); });
  CHECK(soon([&] { return h.counts().donation == 1; }));
  Caller reader([&] { CHECK(h.acquire(HoldKind::usage, never).ok()); });
  CHECK(donor.returns_soon());
  CHECK(reader.returns_soon());
}

TEST_CASE_TEMPLATE("hold_policy: T-D14 with 2 and 16 threads a granted donation is alone and no usage hold is lost", Hold,
                   CONCURRENT_POLICIES) {
  for (const int threads : {2, 16}) {
    Hold h;
    std::atomic<int> inside{0};
    std::atomic<bool> bad{false};
    std::uint64_t guarded = 0;  // plain: changed by converts, read by donors
    std::atomic<std::uint64_t> converted{0};
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t) {
      pool.emplace_back([&, t] {
        for (int i = 0; i < 3000; ++i) {
          if ((i + t) % 7 == 0) {
            if (!h.acquire(HoldKind::donation, never).ok()) bad = true;
            if (inside.exchange(1000) != 0) bad = true;
            if (guarded != converted.load()) bad = true;
            inside = 0;
            h.drop(HoldKind::donation);
          } else {
            if (!h.acquire(HoldKind::usage, never).ok()) bad = true;
            if (inside.load() == 1000) bad = true;
            if (i % 2 == 0) {
              h.convert([&] {
                ++guarded;
                converted.fetch_add(1);
                return true;
              });
            } else {
              h.drop(HoldKind::usage);
            }
          }
        }
      });
    }
    for (auto& t : pool) t.join();
    CHECK(!bad.load());
    CHECK(h.counts() == HoldCounts{});
    CHECK(guarded == converted.load());
  }
}

TEST_CASE_TEMPLATE("hold_policy: a usage hold may end on another thread than it was taken on", Hold, CONCURRENT_POLICIES) {
  Hold h;
  for (int round = 0; round < 20; ++round) {
    CHECK(h.acquire(HoldKind::usage, never).ok());
    CHECK(h.acquire(HoldKind::usage, never).ok());
    std::thread([&] { h.drop(HoldKind::usage); }).join();
    CHECK(h.counts().usage == 1);
    CHECK(h.acquire(HoldKind::donation, now).code == Errc::would_block);
    std::thread([&] { h.drop(HoldKind::usage); }).join();
    CHECK(h.acquire(HoldKind::donation, now).ok());
    h.drop(HoldKind::donation);
    CHECK(h.counts() == HoldCounts{});
  }
}
