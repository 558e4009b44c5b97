// SPDX-License-Identifier: Apache-2.0
#include "holdfast/event/promise.hpp"

#include <doctest/doctest.h>

#include "holdfast/event/host_event.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

TEST_CASE("promise: a forwarded event follows its source, success and first cause alike") {
  HostPromise source = *HostPromise::make(), target = *HostPromise::make();
  HostEvent e = target.get_event();
  forward(source.get_event(), std::move(target));
  CHECK(!e.ready());
  CHECK(source.set().ok());
  CHECK(e.wait().ok());

  HostPromise source2 = *HostPromise::make(), target2 = *HostPromise::make();
  HostEvent f = target2.get_event();
  forward(source2.get_event(), std::move(target2));
  CHECK(source2.set_error(make_error(Errc::internal, "first cause")).ok());
  CHECK(says(f.wait(), "first cause"));
}

TEST_CASE("promise: forwarding to a ready or failed event resolves at once") {
  HostPromise a = *HostPromise::make(), b = *HostPromise::make();
  HostEvent ea = a.get_event(), eb = b.get_event();
  forward(HostEvent(), std::move(a));
  forward(*HostEvent::make_failed(make_error(Errc::aborted, "dead")), std::move(b));
  CHECK(ea.wait().ok());
  CHECK(eb.wait().code == Errc::aborted);
}

TEST_CASE("promise: a chain of forwards resolves from its far end") {
  HostPromise first = *HostPromise::make();
  HostEvent last = first.get_event();
  for (int i = 0; i < 1000; ++i) {
    HostPromise next = *HostPromise::make();
    HostEvent e = next.get_event();
    forward(last, std::move(next));
    last = e;
  }
  CHECK(!last.ready());
  CHECK(first.set_error(make_error(Errc::internal, "root")).ok());
  CHECK(says(last.wait(), "root"));
}
