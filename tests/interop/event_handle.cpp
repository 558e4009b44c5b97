// SPDX-License-Identifier: Apache-2.0
#include "holdfast/interop/event_handle.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <string_view>
#include <thread>
#include <vector>

#include "holdfast/backend/simulated/machine.hpp"
#include "holdfast/event/any_event.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/event/immediate_event.hpp"
#include "holdfast/event/sequencing_event.hpp"

using namespace holdfast;

namespace {

struct Stream {
  struct driver_event {
    [[nodiscard]] static bool passed() noexcept { return true; }
  };
  void* handle = nullptr;
  static Result<driver_event> record() noexcept { return driver_event{}; }
  static Error wait(const driver_event&) noexcept { return {}; }
  [[nodiscard]] void* native_handle() const noexcept { return handle; }
  [[maybe_unused]] friend bool operator==(const Stream&, const Stream&) = default;
};
using Sequenced = SequencingEvent<Stream>;

void count(void* argument) { ++*static_cast<std::atomic<int>*>(argument); }

}  // namespace

TEST_CASE("event_handle: T-E3 the definition stream of an event recorded with a default mark is null, and overwrites the caller's number with 0") {
  Sequenced e = *Sequenced::make();
  std::uint64_t sequence = 0xdeadbeef;
  EventHandle handle = std::move(*EventHandle::make(e));
  CHECK(handle.table()->definition_stream(handle.event(), &sequence) == nullptr);  // not yet recorded
  CHECK(sequence == 0);
  CHECK(e.set_recorded({}, {}).ok());
  sequence = 0xdeadbeef;
  CHECK(handle.table()->definition_stream(handle.event(), &sequence) == nullptr);
  CHECK(sequence == 0);
  int there = 0;
  EventPool<Stream> pool;
  Stream stream{&there};
  Sequenced on_stream = *Sequenced::make();
  CHECK(on_stream.set_recorded(std::move(*pool.record(stream)), stream).ok());
  EventHandle second = std::move(*EventHandle::make(on_stream));
  CHECK(second.table()->definition_stream(second.event(), &sequence) == &there);
  CHECK(sequence == 1);
  EventHandle host = std::move(*EventHandle::make(HostEvent()));
  CHECK(host.table()->definition_stream(host.event(), &sequence) == nullptr);
  CHECK(sequence == 0);
}

TEST_CASE("event_handle: state and error go from pending to done or failed, with kind and text") {
  for (const bool fails : {false, true}) {
    HostPromise p = *HostPromise::make();
    EventHandle h = std::move(*EventHandle::make(p.get_event()));
    const EventTable& table = *h.table();
    CHECK(table.struct_size == sizeof(EventTable));
    CHECK(table.state(h.event()) == 0);
    CHECK(table.error(h.event()).code == 0);
    std::atomic<int> calls{0};
    table.and_then(h.event(), count, &calls);
    table.and_then(h.event(), count, &calls);
    CHECK(calls == 0);
    CHECK((fails ? p.set_error(make_error(Errc::device_fault, "link down")) : p.set()).ok());
    CHECK(calls == 2);
    table.and_then(h.event(), count, &calls);
    CHECK(calls == 3);
    CHECK(table.state(h.event()) == (fails ? 2 : 1));
    const EventHandleError e = table.error(h.event());
    CHECK(e.code == (fails ? 13 : 0));
    CHECK((e.message != nullptr) == fails);
    if (fails) CHECK(std::string_view(e.message) == "link down");
  }
}

TEST_CASE("event_handle: shares are counted, the event goes with the last, and a handle knows its type") {
  HostPromise p = *HostPromise::make();
  EventHandle a = std::move(*EventHandle::make(p.get_event()));
  REQUIRE(a.get_if<HostEvent>() != nullptr);
  CHECK(*a.get_if<HostEvent>() == p.get_event());
  CHECK(a.get_if<ImmediateEvent>() == nullptr);
  EventHandle b = a;
  a.table()->retain(a.event());
  EventHandle foreign(a.table(), a.event());  // as if C had given it
  a = EventHandle();
  b = std::move(foreign);
  CHECK(b.table()->state(b.event()) == 0);
  CHECK(EventHandle().table() == nullptr);
  CHECK(EventHandle().get_if<HostEvent>() == nullptr);
  EventHandle simulated = std::move(*EventHandle::make(SimulatedEvent()));
  CHECK(simulated.table()->state(simulated.event()) == 1);
  EventHandle any = std::move(*EventHandle::make(AnyEvent(p.get_event())));
  CHECK(any.table()->state(any.event()) == 0);
}

TEST_CASE("event_handle: callbacks asked for while the event completes run exactly once") {
  for (int round = 0; round < 200; ++round) {
    HostPromise p = *HostPromise::make();
    EventHandle h = std::move(*EventHandle::make(p.get_event()));
    std::atomic<int> calls{0};
    std::vector<std::thread> askers;
    for (int t = 0; t < 3; ++t)
      askers.emplace_back([&calls, h] {
        for (int i = 0; i < 10; ++i) h.table()->and_then(h.event(), count, &calls);
      });
    static_cast<void>(p.set());
    for (auto& t : askers) t.join();
    CHECK(calls == 30);
  }
}
