// SPDX-License-Identifier: Apache-2.0
#include "holdfast/event/immediate_event.hpp"

#include <doctest/doctest.h>

#include <type_traits>

#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/event/host_event.hpp"

using namespace holdfast;

namespace {
struct Eventful : EmptyMemory {
  using event_type = HostEvent;
};
}  // namespace

TEST_CASE("immediate_event: it is ready, without error, queues nothing and takes no room") {
  Continuation node;
  CHECK(ImmediateEvent::ready());
  CHECK(ImmediateEvent::wait().ok());
  CHECK(!ImmediateEvent::then(node));
  CHECK(std::is_empty_v<ImmediateEvent>);
}

TEST_CASE("immediate_event: the default event is the backend's own, else the immediate one") {
  CHECK(std::is_same_v<default_event<EmptyMemory>, ImmediateEvent>);
  CHECK(std::is_same_v<default_event<Eventful>, HostEvent>);
}
