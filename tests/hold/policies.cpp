// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <type_traits>

#include "holdfast/hold/local_hold.hpp"
#include "holdfast/hold/no_hold.hpp"
#include "holdfast/hold/shared_hold.hpp"

using namespace holdfast;

TEST_CASE("no_hold: it grants whatever one owner asks, refuses to share and takes no room") {
  CHECK(NoHold::acquire(HoldKind::usage, Deadline::never()).ok());
  CHECK(NoHold::acquire(HoldKind::donation, Deadline::never()).ok());
  CHECK(NoHold::acquire(HoldKind::external, Deadline::never()).code == Errc::unsupported);
  CHECK(NoHold::counts() == HoldCounts{});
  CHECK(std::is_empty_v<NoHold>);
}

TEST_CASE("local_hold: what would have to wait for its own thread fails at once, whatever the deadline") {
  LocalHold h;
  CHECK(h.acquire(HoldKind::usage, Deadline::never()).ok());
  CHECK(h.acquire(HoldKind::donation, Deadline::never()).code == Errc::would_block);
  CHECK(h.release(Deadline::never()).code == Errc::would_block);
  CHECK(h.drop(HoldKind::usage) == false);
  CHECK(h.release(Deadline::never()).ok());
}

TEST_CASE("shared_hold: it is one word") { CHECK(sizeof(SharedHold) == 8); }
