// SPDX-License-Identifier: Apache-2.0
#include "holdfast/hold/audited_hold.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "holdfast/hold/local_hold.hpp"
#include "holdfast/hold/shared_hold.hpp"
#include "holdfast/hold/striped_hold.hpp"
#include "support/gate.hpp"
#include "support/texts.hpp"

#define INNER LocalHold, SharedHold, StripedHold

using namespace holdfast;
using namespace holdfast::testing;

namespace {
constexpr auto never = Deadline::never();
}

static_assert(hold_policy<AuditedHold<SharedHold>> && hold_policy<AuditedHold<LocalHold>>);

TEST_CASE_TEMPLATE("audited_hold: jax#9635, a thread that would wait for its own hold is told so instead of hanging", Inner, INNER) {
  AuditedHold<Inner> h;
  CHECK(h.acquire(HoldKind::usage, never).ok());
  const Error donation = h.acquire(HoldKind::donation, never);
  CHECK(donation.code == Errc::wrong_state);
  CHECK(says(donation, "self-deadlock"));
  CHECK(h.release(never).code == Errc::wrong_state);
  CHECK(h.acquire(HoldKind::usage, never).ok());
  h.drop(HoldKind::usage);
  h.convert([] { return true; });
  CHECK(h.acquire(HoldKind::donation, never).ok());
  for (const HoldKind k : {HoldKind::usage, HoldKind::external, HoldKind::donation})
    CHECK(h.acquire(k, never).code == Errc::wrong_state);
  h.drop(HoldKind::donation);
  CHECK(h.release(never).ok());
}

TEST_CASE_TEMPLATE("audited_hold: it says who holds what, in order of age, and who ended the buffer", Inner, INNER) {
  AuditedHold<Inner> h;
  CHECK(h.acquire(HoldKind::usage, never).ok());
  CHECK(h.acquire(HoldKind::external, never).ok());
  StringSink out;
  CHECK(h.report(out).ok());
  CHECK(out.text.find("usage hold by thread ") == 0);
  CHECK(out.text.find("external hold by thread ") != std::string::npos);
  CHECK(out.text.find("request 2") != std::string::npos);
  h.drop(HoldKind::usage);
  h.drop(HoldKind::external);
  CHECK(h.acquire(HoldKind::donation, never).ok());
  h.confirm();
  StringSink after;
  CHECK(h.report(after).ok());
  CHECK(after.text.find("donated by thread ") == 0);
  CHECK(h.acquire(HoldKind::usage, never).code == Errc::donated);
  AuditedHold<Inner> g;
  CHECK(g.release(never).ok());
  StringSink gone;
  CHECK(g.report(gone).ok());
  CHECK(gone.text.find("deleted by thread ") == 0);
}

TEST_CASE("audited_hold: T-D14 with 16 threads the protocol is that of the policy inside") {
  AuditedHold<SharedHold> h;
  std::atomic<int> inside{0};
  std::atomic<bool> bad{false};
  std::vector<std::thread> pool;
  for (int t = 0; t < 16; ++t)
    pool.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        const bool donates = (i + t) % 5 == 0;
        const Error e = h.acquire(donates ? HoldKind::donation : HoldKind::usage, never);
        if (!e.ok()) bad = true;
        if (donates && inside.exchange(1) != 0) bad = true;
        if (!donates && inside.load() != 0) bad = true;
        if (donates) inside = 0;
        h.drop(donates ? HoldKind::donation : HoldKind::usage);
      }
    });
  for (auto& t : pool) t.join();
  CHECK(!bad.load());
  CHECK(h.counts() == HoldCounts{});
  StringSink out;
  CHECK(h.report(out).ok());
  CHECK(out.text.empty());
}
