// SPDX-License-Identifier: Apache-2.0
// What a tracked buffer does beyond holds: the catalogue's tracked-buffer, donation and undonatable entries.
#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/buffer/launch.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/buffer/transfer.hpp"
#include "holdfast/buffer/undonatable_buffer.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/hold/audited_hold.hpp"
#include "holdfast/hold/local_hold.hpp"
#include "holdfast/hold/no_hold.hpp"
#include "holdfast/hold/striped_hold.hpp"
#include "support/gate.hpp"
#include "support/texts.hpp"

#define ALL_HOLDS NoHold, COUNTING_HOLDS
#define COUNTING_HOLDS LocalHold, SharedHold, StripedHold, AuditedHold<SharedHold>

using namespace holdfast;
using namespace holdfast::testing;

namespace {

template <class Hold>
using Buffer = TrackedBuffer<LoggedMemory, HostEvent, Hold>;
HostPromise pending() { return *HostPromise::make(); }
bool is_invalid(const Error& e) { return status_kind(e) == StatusKind::invalid_argument; }

template <class Hold>
Buffer<Hold> make(MemoryLog& log, Bytes size, std::span<const HostEvent> definition = {}) {
  return std::move(*Buffer<Hold>::make(*Buffer<Hold>::raw_type::allocate(LoggedMemory(log), size), definition));
}

}  // namespace

TEST_CASE_TEMPLATE("operations: T-C1 a worker writes 30 bytes, then readies the definition event; blocking sees them", Hold, COUNTING_HOLDS) {
  constexpr std::string_view text = "tracked_cpu_device_buffer_test";
  MemoryLog log;
  HostPromise written = pending();
  const HostEvent definition[] = {written.get_event()};
  auto b = make<Hold>(log, 30, definition);
  std::byte* data = b.hold(HoldKind::usage)->raw().data();
  std::thread worker([&] {
    std::memcpy(data, text.data(), text.size());
    static_cast<void>(written.set());
  });
  CHECK(b.block_for_operations().ok());
  CHECK(std::memcmp(data, text.data(), 30) == 0);
  worker.join();
}

TEST_CASE_TEMPLATE("operations: T-C2 a worker fails the definition event; blocking and the event both tell its text", Hold, COUNTING_HOLDS) {
  MemoryLog log;
  HostPromise written = pending();
  const HostEvent definition[] = {written.get_event()};
  auto b = make<Hold>(log, 64, definition);
  std::thread worker([&] { static_cast<void>(written.set_error(make_error(Errc::internal, "tracked_cpu_device_buffer_test error."))); });
  CHECK(status_kind(b.block_for_operations()) == StatusKind::internal);
  CHECK(sentence(definition[0].wait()) == "tracked_cpu_device_buffer_test error.");
  worker.join();
}

TEST_CASE("operations: T-C3 and T-C4 two leaves are waited for as one, and one's success does not mask the other's error") {
  for (const bool fails : {false, true}) {
    MemoryLog log;
    HostPromise first = pending(), second = pending();
    const HostEvent events[] = {first.get_event(), second.get_event()};
    auto a = make<SharedHold>(log, 30, std::span(events).first(1)), b = make<SharedHold>(log, 5, std::span(events).last(1));
    std::byte *pa = a.hold(HoldKind::usage)->raw().data(), *pb = b.hold(HoldKind::usage)->raw().data();
    std::thread worker([&] {
      std::memcpy(pa, "tracked_cpu_device_buffer_test", 30);
      static_cast<void>(first.set());
      std::memcpy(pb, "tuple", 5);
      static_cast<void>(fails ? second.set_error(make_error(Errc::internal, "second leaf error.")) : second.set());
    });
    HostEvent merged = *after_all<HostEvent>(events);
    const Error e = merged.wait();
    if (fails) {
      CHECK(status_kind(e) == StatusKind::internal);
      CHECK(says(e, "second leaf error."));
    } else {
      CHECK(e.ok());
      CHECK(std::memcmp(pa, "tracked_cpu_device_buffer_test", 30) == 0);
      CHECK(std::memcmp(pb, "tuple", 5) == 0);
    }
    worker.join();
  }
}

TEST_CASE_TEMPLATE("operations: T-G1 and T-G2 moving memory keeps its address; memory that is not owned is not freed", Hold, COUNTING_HOLDS) {
  MemoryLog log;
  auto raw = *Buffer<Hold>::raw_type::allocate(LoggedMemory(log), 100);
  const std::byte* address = raw.data();
  auto moved = std::move(raw);
  CHECK(!raw);
  CHECK(moved.data() == address);
  CHECK(moved.owners() == 1);
  alignas(64) static std::byte foreign[100];
  {
    auto b = std::move(*Buffer<Hold>::make(*Buffer<Hold>::raw_type::import_foreign(LoggedMemory(log), Block{foreign, 100}, {})));
    CHECK(b.hold(HoldKind::usage)->raw().data() == foreign);
  }
  CHECK(log.frees == 0);
}

TEST_CASE_TEMPLATE("operations: T-G5 a buffer has the size it was made with, before and after its deletion", Hold, COUNTING_HOLDS) {
  MemoryLog log;
  auto b = make<Hold>(log, 64);
  CHECK(b.size() == 64);
  CHECK(b.hold(HoldKind::usage)->raw().memory_space() == MemorySpace::host);
  CHECK(b.release().ok());
  CHECK(b.size() == 64);
}

TEST_CASE("operations: T-G6 an external reference does not wait for the definition (R3)") {
  MemoryLog log;
  HostPromise written = pending();
  const HostEvent definition[] = {written.get_event()};
  auto b = make<SharedHold>(log, 64, definition);
  Caller caller([&] { CHECK(b.hold(HoldKind::external).ok()); });
  CHECK(caller.returns_soon());
  CHECK(written.set().ok());
}

TEST_CASE_TEMPLATE("operations: T-G7 release without waiting gives the address at once, a second one null", Hold, ALL_HOLDS) {
  MemoryLog log;
  HostPromise written = pending(), read = pending();
  const HostEvent definition[] = {written.get_event()};
  auto b = make<Hold>(log, 100, definition);
  const std::byte* address = b.hold(HoldKind::usage)->raw().data();
  b.hold(HoldKind::usage)->convert(read.get_event());
  auto raw = b.release_ownership(false);
  REQUIRE(raw.ok());
  CHECK(raw->data() == address);
  CHECK(b.is_deleted());
  const auto second = b.release_ownership(false);
  CHECK(second.ok());
  CHECK(!*second);
  CHECK(written.set().ok());
  CHECK(read.set().ok());
  CHECK(log.frees == 0);
}

TEST_CASE("operations: T-G8 release with waiting blocks for the definition and then for the usage event") {
  MemoryLog log;
  HostPromise written = pending(), read = pending();
  const HostEvent definition[] = {written.get_event()};
  auto b = make<SharedHold>(log, 100, definition);
  b.hold(HoldKind::usage)->convert(read.get_event());
  Caller caller([&] { CHECK(b.release_ownership(true).ok()); });
  CHECK(caller.blocks());
  CHECK(written.set().ok());
  CHECK(caller.blocks());
  CHECK(read.set().ok());
  CHECK(caller.returns_soon());
  CHECK(!*b.release_ownership(true));
}

TEST_CASE_TEMPLATE("operations: T-G4 after the last usage event everything resolves and the memory is as it was", Hold, COUNTING_HOLDS) {
  MemoryLog log;
  HostPromise written = pending(), read = pending();
  const HostEvent definition[] = {written.get_event()};
  auto b = make<Hold>(log, 100, definition);
  const std::byte* address = b.hold(HoldKind::usage)->raw().data();
  b.hold(HoldKind::usage)->convert(read.get_event());
  std::thread worker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    static_cast<void>(written.set());
    static_cast<void>(read.set());
  });
  CHECK(b.ready_event()->wait().ok());
  auto taken = b.take();
  REQUIRE(taken.ok());
  CHECK(taken->raw.size() == 100);
  CHECK(taken->raw.data() == address);
  const HostEvent all = *after_all<HostEvent>(std::as_const(taken->usage).span());
  CHECK(all.wait().ok());
  worker.join();
}

TEST_CASE("operations: T-G10 copying a poisoned buffer is no error, its copy's ready event has the first cause") {
  MemoryLog log;
  const HostEvent poison[] = {*HostEvent::make_failed(make_error(Errc::internal, "injected error"))};
  auto from = make<SharedHold>(log, 32, poison);
  auto target = *RawBuffer<LoggedMemory>::allocate(LoggedMemory(log), 32);
  std::optional<HostEvent> copied;
  CHECK(from.use("copy called on deleted or donated buffer",
                 [&](const RawBuffer<LoggedMemory>& raw, std::span<const HostEvent> definition) noexcept -> Result<HostEvent> {
                   auto e = copy<RawBuffer<LoggedMemory>, RawBuffer<LoggedMemory>, HostEvent>(raw, target, definition);
                   if (e.ok()) copied = *e;
                   return e;
                 })
            .ok());
  auto to = std::move(*Buffer<SharedHold>::make(target, std::span<const HostEvent>(&*copied, 1)));
  CHECK(status_kind(to.ready_event()->wait()) == StatusKind::internal);
  CHECK(says(to.ready_event()->wait(), "injected error"));
}

TEST_CASE_TEMPLATE("operations: T-D2 donating with a dependency deletes the old buffer at once and delivers after the event", Hold, ALL_HOLDS) {
  MemoryLog log;
  const float values[6] = {1, 2, 3, 4, 5, 6};
  std::optional<Buffer<Hold>> old(make<Hold>(log, 24));
  std::memcpy(old->hold(HoldKind::usage)->raw().data(), values, 24);
  HostPromise read = pending(), dependency = pending();
  old->hold(HoldKind::usage)->convert(read.get_event());
  auto fresh = old->donate_with_dependency(dependency.get_event());
  REQUIRE(fresh.ok());
  CHECK(old->is_deleted());
  CHECK(is_invalid(old->donate_with_dependency(HostEvent()).error()));
  old.reset();
  auto hold = fresh->hold(HoldKind::usage);
  REQUIRE(hold->definition_events().size() == 1);
  CHECK(hold->definition_events()[0] == dependency.get_event());
  HostEvent delivered = hold->definition_events()[0];
  CHECK(!delivered.ready());
  CHECK(dependency.set().ok());
  CHECK(delivered.wait().ok());
  CHECK(std::memcmp(hold->raw().data(), values, 24) == 0);
  hold->drop();
  CHECK(read.set().ok());
}

TEST_CASE_TEMPLATE("operations: an external hold forbids to take the contents, which stay", Hold, COUNTING_HOLDS) {
  MemoryLog log;
  auto b = make<Hold>(log, 8);
  auto x = b.hold(HoldKind::external);
  CHECK(b.take().error().code == Errc::held);
  CHECK(b.donate_with_dependency(HostEvent()).error().code == Errc::held);
  CHECK(!b.is_deleted());
  CHECK(b.release_ownership(false)->size() == 8);
  CHECK(b.is_deleted());
  CHECK(x->raw().size() == 8);
  CHECK(log.frees == 0);
  x->drop();
  CHECK(log.frees == 1);
}

TEST_CASE_TEMPLATE("operations: use converts with the reader's event, drops on its error, and names the caller on a gone buffer", Hold,
                   ALL_HOLDS) {
  MemoryLog log;
  auto b = make<Hold>(log, 8);
  HostPromise read = pending();
  const auto reader = [&](const auto&, std::span<const HostEvent>) noexcept -> Result<HostEvent> { return read.get_event(); };
  CHECK(b.use("CopyRaw called on deleted or donated buffer", reader).ok());
  CHECK(b.counts().usage == 0);
  const Error failed = b.use("x", [](const auto&, std::span<const HostEvent>) noexcept -> Result<HostEvent> {
    return make_error(Errc::device_fault, "enqueue failed");
  });
  CHECK(failed.code == Errc::device_fault);
  CHECK(b.counts().usage == 0);
  CHECK(read.set().ok());
  CHECK(b.release().ok());
  const Error gone = b.use("CopyRaw called on deleted or donated buffer", reader);
  CHECK(is_invalid(gone));
  CHECK(says(gone, "CopyRaw called on deleted or donated buffer"));
}

TEST_CASE("operations: a stream waits for the definition events in order, the first failure is returned") {
  struct Stream {
    int waits = 0;
  };
  struct StreamEvent {
    bool broken = false;
    [[nodiscard]] static bool ready() noexcept { return false; }
    [[nodiscard]] static Error wait() noexcept { return {}; }
    [[nodiscard]] static Error record(Stream&) noexcept { return {}; }
    [[nodiscard]] Error wait_on(Stream& s) noexcept { return ++s.waits, broken ? make_error(Errc::device_fault, "stream is gone") : Error{}; }
  };
  using B = TrackedBuffer<SystemMemory, StreamEvent, SharedHold>;
  const StreamEvent definition[] = {{}, {true}, {}};
  auto b = std::move(*B::make(*B::raw_type::allocate({}, 4), definition));
  Stream s;
  CHECK(b.wait_until_ready_on(s).code == Errc::device_fault);
  CHECK(s.waits == 2);
}

TEST_CASE("operations: T-U1..9 T-U1 T-U2 T-U3 T-U4 an undonatable buffer shares its source's bytes and refuses what it must") {
  MemoryLog log;
  auto source = make<SharedHold>(log, 16);
  const std::byte* address = source.hold(HoldKind::usage)->raw().data();
  auto served = UndonatableBuffer<Buffer<SharedHold>>::make(source);
  REQUIRE(served.ok());
  CHECK(source.is_deleted());
  CHECK(served->raw().data() == address);               // T-U1
  CHECK(served->size() == 16);                          // T-U2
  CHECK(served->raw().shares_memory(served->raw()));    // T-U3
  auto null = std::move(*Buffer<SharedHold>::make({}));
  CHECK(is_invalid(UndonatableBuffer<Buffer<SharedHold>>::make(null).error()));    // T-U4
  CHECK(is_invalid(UndonatableBuffer<Buffer<SharedHold>>::make(source).error()));  // gone already
  served->release();
  CHECK(!served->is_deleted());                         // T-U5
  CHECK(is_invalid(served->donate()));                  // T-U6
  CHECK(says(served->donate(), "Donation requested on Undonatable"));
  CHECK(served->ready_event().ready());
}

TEST_CASE("operations: T-U5 T-U6 T-U7 T-U8 T-U9 an undonatable buffer's ready event is one, pending then its definition's outcome") {
  for (const bool fails : {false, true}) {
    MemoryLog log;
    HostPromise written = pending();
    const HostEvent definition[] = {written.get_event()};
    auto source = make<SharedHold>(log, 16, definition);
    {
      auto served = UndonatableBuffer<Buffer<SharedHold>>::make(source);
      CHECK(served->ready_event() == served->ready_event());
      CHECK(!served->ready_event().ready());
      if (fails) {
        CHECK(written.set_error(make_error(Errc::internal, "Simulated upstream error")).ok());
        CHECK(status_kind(served->ready_event().wait()) == StatusKind::internal);
        CHECK(says(served->ready_event().wait(), "Simulated upstream error"));
      }
      CHECK(says(first_error<HostEvent>(served->definition_events()), "Simulated upstream error") == fails);
    }
    CHECK(log.frees == (fails ? 1 : 0));  // the bytes stay until the definition events are over
    if (!fails) CHECK(written.set().ok());
    CHECK(log.frees == 1);
  }
}

TEST_CASE_TEMPLATE("operations: T-U7 T-U8 T-U9 a launch uses an undonatable buffer, may not donate it, and sees its failed definition", Hold,
                   COUNTING_HOLDS) {
  MemoryLog log;
  HostPromise written = pending(), run = pending();
  const HostEvent definition[] = {written.get_event()};
  auto source = make<Hold>(log, 16, definition);
  using Served = UndonatableBuffer<Buffer<Hold>>;
  std::optional<Served> served(std::move(*Served::make(source)));
  const LaunchArgument<Served> used[] = {{&*served, false, 16}, {&*served}}, donated[] = {{&*served, true}}, wrong[] = {{&*served, false, 15}};
  const Error refused = acquire_arguments<Served>(donated).error();
  CHECK(is_invalid(refused));
  CHECK(says(refused, "Donation requested on Undonatable"));
  CHECK(is_invalid(acquire_arguments<Served>(wrong).error()));
  {
    auto launch = acquire_arguments<Served>(used);
    REQUIRE(launch.ok());
    CHECK((*launch)[0].raw().shares_memory(served->raw()));
    EventList<HostEvent> extra, control;
    CHECK(launch->append_dependencies(extra, control).ok());
    CHECK(extra.size() == 1);
    CHECK(control.empty());
    CHECK(launch->predetermined_error().ok());
    launch->enqueued(run.get_event());
  }
  CHECK(written.set_error(make_error(Errc::internal, "Simulated upstream error")).ok());
  {
    auto launch = acquire_arguments<Served>(used);
    REQUIRE(launch.ok());
    CHECK(status_kind(launch->predetermined_error()) == StatusKind::internal);
    CHECK(says(launch->predetermined_error(), "Simulated upstream error"));
  }
  served.reset();
  CHECK(log.frees == 0);  // the run still reads them
  CHECK(run.set().ok());
  CHECK(log.frees == 1);
}
