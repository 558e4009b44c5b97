// SPDX-License-Identifier: Apache-2.0
#include "holdfast/buffer/tracked_buffer.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/backend/simulated/race_checked.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/hold/audited_hold.hpp"
#include "holdfast/hold/local_hold.hpp"
#include "holdfast/hold/no_hold.hpp"
#include "holdfast/hold/striped_hold.hpp"
#include "support/child.hpp"
#include "support/gate.hpp"
#include "support/texts.hpp"

#define ALL_HOLDS NoHold, COUNTING_HOLDS
#define COUNTING_HOLDS LocalHold, SharedHold, StripedHold, AuditedHold<SharedHold>
#define CONCURRENT_HOLDS SharedHold, StripedHold, AuditedHold<SharedHold>

using namespace holdfast;
using namespace holdfast::testing;

namespace {

template <class Hold>
using Buffer = TrackedBuffer<LoggedMemory, HostEvent, Hold>;

template <class Hold>
Buffer<Hold> filled(MemoryLog& log, Bytes size = 64, std::span<const HostEvent> definition = {}) {
  using B = Buffer<Hold>;
  auto raw = *B::raw_type::allocate(LoggedMemory(log), size);
  std::memset(raw.data(), 0x5A, static_cast<std::size_t>(size));
  return std::move(*B::make(std::move(raw), definition));
}

HostPromise pending() { return *HostPromise::make(); }

template <class B>
bool still_5a(const B& hold) {
  for (Bytes i = 0; i < hold.raw().size(); ++i)
    if (hold.raw().data()[i] != std::byte{0x5A}) return false;
  return true;
}

constexpr Error invalid(const Error& e) { return e; }
bool is_invalid(const Error& e) { return status_kind(invalid(e)) == StatusKind::invalid_argument; }

}  // namespace

// --- case 01, the eleven sequences of holds.json ---------------------------------------------------------------------

TEST_CASE_TEMPLATE("tracked_buffer: case 01 a, after a confirmed donation a usage hold fails as donated", Hold, COUNTING_HOLDS) {
  MemoryLog log;
  auto b = filled<Hold>(log);
  auto u = b.hold(HoldKind::usage);
  REQUIRE(u.ok());
  HostPromise e1 = pending();
  u->convert(e1.get_event());
  CHECK(u->status().code == Errc::invalid_argument);
  CHECK(says(u->status(), "converted"));
  auto d = b.hold(HoldKind::donation);
  REQUIRE(d.ok());
  CHECK(!b.is_deleted());  // ours: pending is not gone
  d->confirm();
  CHECK(says(d->status(), "donated"));
  const auto u2 = b.hold(HoldKind::usage);
  CHECK(is_invalid(u2.error()));
  CHECK(u2.error().code == Errc::donated);
  CHECK(b.is_deleted());
  CHECK(b.counts() == HoldCounts{0, 0, 0, false, true});
  CHECK(e1.set().ok());
}

TEST_CASE_TEMPLATE("tracked_buffer: case 01 b, a dropped donation gives the buffer back", Hold, ALL_HOLDS) {
  MemoryLog log;
  auto b = filled<Hold>(log);
  {
    auto d = b.hold(HoldKind::donation);
    REQUIRE(d.ok());
    d->drop();
    CHECK(says(d->status(), "released"));
  }
  auto u = b.hold(HoldKind::usage);
  REQUIRE(u.ok());
  CHECK(still_5a(*u));
  u->drop();
  CHECK(!b.is_deleted());
}

TEST_CASE_TEMPLATE("tracked_buffer: case 01 c, a buffer donated before cannot be donated again, twice over", Hold, ALL_HOLDS) {
  MemoryLog log;
  auto b = filled<Hold>(log);
  b.hold(HoldKind::donation)->confirm();
  for (int i = 0; i < 2; ++i) {
    const auto d = b.hold(HoldKind::donation);
    CHECK(is_invalid(d.error()));
    CHECK(says(d.error(), "Donation requested for invalid buffer"));
  }
  CHECK(b.is_deleted());
  CHECK(log.frees == 1);
}

TEST_CASE_TEMPLATE("tracked_buffer: case 01 d, a donation waits until a usage hold is converted and sees its event", Hold,
                   CONCURRENT_HOLDS) {
  MemoryLog log;
  auto b = filled<Hold>(log);
  HostPromise e1 = pending();
  auto u = b.hold(HoldKind::usage);
  Caller donor([&] {
    auto d = b.hold(HoldKind::donation);
    CHECK(d.ok());
    CHECK(d->usage_events().size() == 1);
    CHECK(d->usage_events()[0] == e1.get_event());
    d->confirm();
  });
  CHECK(donor.blocks());
  u->convert(e1.get_event());
  CHECK(donor.returns_soon());
  CHECK(e1.set().ok());
}

TEST_CASE_TEMPLATE("tracked_buffer: case 01 e and f, a usage hold waits for a pending donation and goes by its end", Hold,
                   CONCURRENT_HOLDS) {
  for (const bool confirms : {false, true}) {
    MemoryLog log;
    auto b = filled<Hold>(log);
    auto d = b.hold(HoldKind::donation);
    Caller reader([&] {
      auto u = b.hold(HoldKind::usage);
      CHECK(u.ok() != confirms);
      if (confirms) CHECK(u.error().code == Errc::donated);
    });
    CHECK(reader.blocks());
    if (confirms) d->confirm();
    else d->drop();
    CHECK(reader.returns_soon());
  }
}

TEST_CASE_TEMPLATE("tracked_buffer: case 01 g, a moved-from hold is not valid and never decrements", Hold, COUNTING_HOLDS) {
  MemoryLog log;
  auto b = filled<Hold>(log);
  auto u = std::move(*b.hold(HoldKind::usage));
  auto v = std::move(u);
  CHECK(is_invalid(u.status()));
  CHECK(says(u.status(), "moved"));
  u.drop();
  CHECK(b.counts().usage == 1);
  v.drop();
  CHECK(b.counts().usage == 0);
}

TEST_CASE_TEMPLATE("tracked_buffer: case 01 j, an unconfirmed donation gives back definition and usage events", Hold, ALL_HOLDS) {
  MemoryLog log;
  HostPromise defined = pending(), read = pending();
  const HostEvent definition[] = {defined.get_event()};
  auto b = filled<Hold>(log, 64, definition);
  b.hold(HoldKind::usage)->convert(read.get_event());
  b.hold(HoldKind::donation)->drop();
  auto d = b.hold(HoldKind::donation);
  REQUIRE(d.ok());
  REQUIRE(d->definition_events().size() == 1);
  CHECK(d->definition_events()[0] == definition[0]);
  REQUIRE(d->usage_events().size() == 1);
  CHECK(d->usage_events()[0] == read.get_event());
  CHECK(defined.set().ok());
  CHECK(read.set().ok());
  d->confirm();
}

TEST_CASE_TEMPLATE("tracked_buffer: case 01 k, deleting twice is no error, a usage hold then fails as deleted", Hold, ALL_HOLDS) {
  MemoryLog log;
  auto b = filled<Hold>(log);
  CHECK(b.release().ok());
  CHECK(b.release().ok());
  const auto u = b.hold(HoldKind::usage);
  CHECK(u.error().code == Errc::deleted);
  CHECK(says(u.error(), "deleted"));
  CHECK(log.frees == 1);
}

// --- case 02 ---------------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("tracked_buffer: case 02, external references refuse donation, not deletion, and keep the bytes", Hold,
                   COUNTING_HOLDS) {
  MemoryLog log;
  auto b = filled<Hold>(log);
  std::optional<ScopedHold<Buffer<Hold>>> x(std::move(*b.hold(HoldKind::external)));
  auto y = std::move(*b.hold(HoldKind::external));
  CHECK(b.counts().external == 2);
  const auto d = b.hold(HoldKind::donation);
  CHECK(is_invalid(d.error()));
  CHECK(d.error().code == Errc::held);
  CHECK(says(d.error(), "external reference"));
  CHECK(says(d.error(), "count 2"));
  HostPromise e1 = pending();
  {
    auto u = b.hold(HoldKind::usage);
    REQUIRE(u.ok());
    u->convert(e1.get_event());
  }
  y.drop();
  CHECK(says(b.hold(HoldKind::donation).error(), "count 1"));
  CHECK(e1.set().ok());
  CHECK(b.release().ok());
  CHECK(b.is_deleted());
  CHECK(log.frees == 0);
  CHECK(still_5a(*x));
  CHECK(is_invalid(b.hold(HoldKind::external).error()));
  x.reset();
  CHECK(log.frees == 1);
  CHECK(log.live_bytes == 0);

  auto fresh = filled<Hold>(log);
  fresh.hold(HoldKind::external)->drop();
  auto donation = fresh.hold(HoldKind::donation);
  REQUIRE(donation.ok());
  donation->confirm();
  CHECK(log.frees == 2);
}

TEST_CASE_TEMPLATE("tracked_buffer: I5, an external hold may outlive the buffer's handle and is the last to free", Hold,
                   COUNTING_HOLDS) {
  MemoryLog log;
  std::optional<ScopedHold<Buffer<Hold>>> x;
  {
    auto b = filled<Hold>(log);
    x.emplace(std::move(*b.hold(HoldKind::external)));
  }
  CHECK(log.frees == 0);
  CHECK(still_5a(*x));
  x.reset();
  CHECK(log.frees == 1);
}

// --- events ----------------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("tracked_buffer: T-G9 a deletion frees right after the last event, not before", Hold, COUNTING_HOLDS) {
  MemoryLog log;
  HostPromise defined = pending(), read = pending();
  const HostEvent definition[] = {defined.get_event()};
  auto b = filled<Hold>(log, 100, definition);
  b.hold(HoldKind::usage)->convert(read.get_event());
  CHECK(b.release().ok());
  CHECK(b.is_deleted());
  CHECK(log.frees == 0);
  CHECK(defined.set().ok());
  CHECK(log.frees == 0);
  CHECK(read.set().ok());
  CHECK(log.frees == 1);
}

TEST_CASE_TEMPLATE("tracked_buffer: case 03 D, a failed definition event is the ready event's error; readers are waited for before the free",
                   Hold, COUNTING_HOLDS) {
  MemoryLog log;
  HostPromise copy = pending(), read = pending();
  const HostEvent definition[] = {HostEvent(), copy.get_event()};
  {
    auto b = filled<Hold>(log, 64, definition);
    HostEvent ready = *b.ready_event();
    b.hold(HoldKind::usage)->convert(read.get_event());
    CHECK(!ready.ready());
    CHECK(copy.set_error(make_error(Errc::internal, "copy failed")).ok());
    CHECK(status_kind(ready.wait()) == StatusKind::internal);
    CHECK(says(ready.wait(), "copy failed"));
    CHECK(*b.ready_event() == ready);
  }
  CHECK(log.frees == 0);
  CHECK(read.set().ok());
  CHECK(log.frees == 1);
}

TEST_CASE_TEMPLATE("tracked_buffer: case 03 C, a callback may drop the last reference to the buffer that owns its event", Hold,
                   COUNTING_HOLDS) {
  struct Drop : Continuation {
    std::optional<Buffer<Hold>> buffer;
    int inner = 0;
  };
  MemoryLog log;
  HostPromise p = pending();
  const HostEvent definition[] = {p.get_event()};
  Drop node;
  node.buffer.emplace(filled<Hold>(log, 64, definition));
  node.run = [](Continuation& c) noexcept {
    auto& self = static_cast<Drop&>(c);
    {
      auto u = self.buffer->hold(HoldKind::usage);
      static Continuation again;
      if (!u->definition_events()[0].then(again)) ++self.inner;
    }
    self.buffer.reset();
  };
  CHECK(definition[0].then(node));
  CHECK(p.set().ok());
  CHECK(node.inner == 1);
  CHECK(log.frees == 1);
}

TEST_CASE_TEMPLATE("tracked_buffer: a buffer without definition events is ready, one with several gives one event for all", Hold,
                   COUNTING_HOLDS) {
  MemoryLog log;
  CHECK(filled<Hold>(log).ready_event()->ready());
  HostPromise p = pending(), q = pending();
  const HostEvent definition[] = {p.get_event(), q.get_event()};
  auto b = filled<Hold>(log, 64, definition);
  HostEvent first = *b.ready_event();
  CHECK(first == *b.ready_event());
  CHECK(q.set_error(make_error(Errc::internal, "second")).ok());
  CHECK(!first.ready());
  CHECK(p.set_error(make_error(Errc::aborted, "first")).ok());
  CHECK(says(first.wait(), "first"));
  CHECK(b.release().ok());
  CHECK(b.ready_event().error().code == Errc::deleted);
}

TEST_CASE_TEMPLATE("tracked_buffer: block_for_operations ignores usage errors and reports a definition error as INTERNAL", Hold,
                   COUNTING_HOLDS) {
  MemoryLog log;
  auto good = filled<Hold>(log);
  HostPromise read = pending();
  good.hold(HoldKind::usage)->convert(read.get_event());
  CHECK(read.set_error(make_error(Errc::aborted, "reader died")).ok());
  CHECK(good.block_for_operations().ok());
  const HostEvent definition[] = {*HostEvent::make_failed(make_error(Errc::invalid_argument, "bad input"))};
  auto bad = filled<Hold>(log, 64, definition);
  CHECK(status_kind(bad.block_for_operations()) == StatusKind::internal);
  CHECK(sentence(bad.block_for_operations()) == "Error Execute: bad input");
  CHECK(bad.release().ok());
  CHECK(bad.block_for_operations().code == Errc::deleted);
}

TEST_CASE_TEMPLATE("tracked_buffer: a confirmed donation keeps the memory for whoever took it, and until its event", Hold,
                   COUNTING_HOLDS) {
  MemoryLog log;
  auto b = filled<Hold>(log);
  auto d = b.hold(HoldKind::donation);
  std::optional<typename Buffer<Hold>::raw_type> reused(d->raw());
  const std::byte* address = reused->data();
  HostPromise run = pending();
  d->confirm(run.get_event());
  auto out = Buffer<Hold>::make(*reused, {});
  reused.reset();
  CHECK(out->hold(HoldKind::usage)->raw().data() == address);
  CHECK(out->release().ok());
  CHECK(log.frees == 0);
  CHECK(run.set().ok());
  CHECK(log.frees == 1);
}

// --- handles ---------------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("tracked_buffer: T-D13 a buffer of 0 bytes has no address, is there, and donation deletes it", Hold, ALL_HOLDS) {
  MemoryLog log;
  auto b = std::move(*Buffer<Hold>::allocate(LoggedMemory(log), 0));
  CHECK(!b.is_deleted());
  CHECK(b.size() == 0);
  {
    auto u = b.hold(HoldKind::usage);
    REQUIRE(u.ok());
    CHECK(u->raw().block() == Block{nullptr, 0});
    u->convert();
  }
  b.hold(HoldKind::donation)->confirm();
  CHECK(b.is_deleted());
  CHECK(log.allocations == 0);
}

TEST_CASE_TEMPLATE("tracked_buffer: a handle that was moved from is gone and says so; the new one has the bytes", Hold, ALL_HOLDS) {
  MemoryLog log;
  auto a = filled<Hold>(log);
  Buffer<Hold> b = std::move(a);
  CHECK(a.is_deleted());
  CHECK(is_invalid(a.hold(HoldKind::usage).error()));
  CHECK(a.release().ok());
  CHECK(still_5a(*b.hold(HoldKind::usage)));
  a = std::move(b);
  CHECK(still_5a(*a.hold(HoldKind::usage)));
  a = filled<Hold>(log, 8);
  CHECK(log.frees == 1);
  CHECK(a.size() == 8);
  Buffer<Hold> none;
  CHECK(none.is_deleted());
}

TEST_CASE_TEMPLATE("tracked_buffer: T-D14 what the table calls fatal is a broken precondition", Hold, COUNTING_HOLDS) {
  MemoryLog log;
  auto b = filled<Hold>(log);
  CHECK(aborts([&] { b.hold(HoldKind::usage)->confirm(); }));
  CHECK(aborts([&] { b.hold(HoldKind::external)->confirm(); }));
  CHECK(aborts([&] { b.hold(HoldKind::external)->convert(); }));
  CHECK(aborts([&] { b.hold(HoldKind::donation)->convert(); }));
  CHECK(aborts([&] {
    auto u = b.hold(HoldKind::usage);
    u->convert();
    u->convert();
  }));
  CHECK(aborts([&] { ScopedHold<Buffer<Hold>>().confirm(); }));
  CHECK(aborts([&] { static_cast<void>(ScopedHold<Buffer<Hold>>().raw()); }));
  CHECK(says(ScopedHold<Buffer<Hold>>().status(), "not been initialized"));
}

TEST_CASE("tracked_buffer: I5, LocalHold asserts that no usage hold is left at destruction") {
  MemoryLog log;
  CHECK(aborts([&] {
    std::optional<Buffer<LocalHold>> b(filled<LocalHold>(log));
    auto u = b->hold(HoldKind::usage);
    b.reset();
  }));
}

TEST_CASE_TEMPLATE("tracked_buffer: no memory for the tracked buffer's parts is an error and leaks nothing", Hold, ALL_HOLDS) {
  MemoryLog log;
  log.fail_at = 0;
  CHECK(Buffer<Hold>::allocate(LoggedMemory(log), 64).error().code == Errc::out_of_memory);
  CHECK(log.live_bytes == 0);
}

// --- threads ---------------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("tracked_buffer: T-D14 a deletion nulls at once, waits for the usage hold, and the destructor does so too", Hold,
                   CONCURRENT_HOLDS) {
  MemoryLog log;
  std::optional<Buffer<Hold>> b(filled<Hold>(log));
  auto u = b->hold(HoldKind::usage);
  Caller deleter([&] { b.reset(); });
  CHECK(deleter.blocks());
  CHECK(log.frees == 0);
  CHECK(still_5a(*u));
  HostPromise done = pending();
  u->convert(done.get_event());
  CHECK(deleter.returns_soon());
  CHECK(log.frees == 0);
  CHECK(done.set().ok());
  CHECK(log.frees == 1);
}

TEST_CASE_TEMPLATE("tracked_buffer: T-D14 with 16 threads readers, donors, externals and a deleter free the memory once", Hold,
                   CONCURRENT_HOLDS) {
  for (int round = 0; round < 20; ++round) {
    MemoryLog log;
    std::atomic<bool> bad{false};
    {
      auto b = filled<Hold>(log);
      std::vector<std::thread> threads;
      for (int t = 0; t < 16; ++t) {
        threads.emplace_back([&, t] {
          std::optional<ScopedHold<Buffer<Hold>>> kept;
          for (int i = 0; i < 200; ++i) {
            const int what = (i * 16 + t) % 11;
            if (what == 0) {
              auto d = b.hold(HoldKind::donation);
              if (!d.ok() && d.error().code != Errc::held && d.error().code != Errc::deleted) bad = true;
            } else if (what == 1) {
              auto x = b.hold(HoldKind::external);
              if (x.ok() && !still_5a(*x)) bad = true;
              if (x.ok() && i > 190) kept.emplace(std::move(*x));
            } else if (what == 2 && i > 150) {
              static_cast<void>(b.release());
            } else {
              auto u = b.hold(HoldKind::usage);
              if (!u.ok()) continue;
              if (!still_5a(*u)) bad = true;
              HostPromise p = pending();
              u->convert(p.get_event());
              static_cast<void>(p.set());
            }
          }
        });
      }
      for (auto& t : threads) t.join();
    }
    CHECK(!bad.load());
    CHECK(log.frees == 1);
  }
}

// --- memory in the order of a stream ---------------------------------------------------------------------------------

TEST_CASE("tracked_buffer: memory in the order of a stream is valid after what was enqueued for it, and goes after it") {
  using B = TrackedBuffer<RaceCheckedDevice, RaceCheckedEvent>;
  for (std::uint64_t seed = 1; seed <= 10; ++seed)
    for (const bool waits : {true, false}) {
      SimulatedOptions options;
      options.seed = seed;
      RaceCheckedMachine machine(options);
      RaceCheckedDevice device = *machine.add_device(4096);
      const auto a = device.make_stream("a"), b = device.make_stream("b");
      const auto write = [&](const RaceCheckedStream& s, const char* name) {
        return [&s, name](Block block) noexcept {
          return s.launch(name, {writes(block)}, [block]() noexcept { std::memset(block.data, 0x5A, 4096); });
        };
      };
      {
        B first = std::move(*B::allocate_on(device, a, 4096, Alignment(64), write(a, "write")));
        auto use = std::move(*first.hold(HoldKind::usage));
        REQUIRE(use.definition_events().size() == 1);
        if (waits) CHECK(use.definition_events()[0].wait_on(b).ok());
        const Block block = use.raw().block();
        bool right = false;
        auto read = b.launch("read", {reads(block)}, [&right, block]() noexcept { right = block.data[4095] == std::byte{0x5A}; });
        use.convert(*read);
        CHECK(first.release().ok());
        CHECK(device.available() == 0);  // its reader is still to come
        CHECK(read->wait().ok());
        CHECK((right || !waits));
      }
      machine.drain();
      CHECK(device.available() == 4096);
      CHECK((machine.watch().count() != 0) == !waits);
    }
}

TEST_CASE("tracked_buffer: memory in the order of a stream goes back in that order when nothing could be enqueued") {
  using B = TrackedBuffer<RaceCheckedDevice, RaceCheckedEvent>;
  RaceCheckedMachine machine;
  RaceCheckedDevice device = *machine.add_device(4096);
  const auto a = device.make_stream("a"), b = device.make_stream("b");
  const Error refusal = make_error(Errc::device_fault, "told to fail");
  for (const RaceCheckedStream& s : {a, b, a}) {
    const Result<B> failed = B::allocate_on(device, s, 4096, Alignment(64), [&](Block block) noexcept -> Result<RaceCheckedEvent> {
      CHECK(s.launch("half of it", {writes(block)}, []() noexcept {}).ok());
      return refusal;
    });
    CHECK(failed.error().what == refusal.what);
    CHECK(device.available() == 4096);
  }
  bool written = false;
  const auto note = [&](Block) noexcept -> Result<RaceCheckedEvent> { return written = true, a.record(); };
  CHECK(B::allocate_on(device, a, 8192, Alignment(64), note).error().code == Errc::out_of_memory);
  CHECK(!written);
  machine.drain();
  CHECK(machine.watch().count() == 0);
}

TEST_CASE_TEMPLATE("tracked_buffer: deleted in the order of a stream, the stream has the memory next, after every reader", Hold, SharedHold, LocalHold,
                   StripedHold, NoHold) {
  using B = TrackedBuffer<RaceCheckedDevice, RaceCheckedEvent, Hold>;
  for (std::uint64_t seed = 1; seed <= 10; ++seed)
    for (const bool told : {true, false}) {
      SimulatedOptions options;
      options.seed = seed;
      RaceCheckedMachine machine(options);
      RaceCheckedDevice device = *machine.add_device(4096);
      const auto a = device.make_stream("a"), b = device.make_stream("b");
      const auto write = [&](Block block) noexcept {
        return a.launch("write", {writes(block)}, [block]() noexcept { std::memset(block.data, 0x5A, 4096); });
      };
      bool right = false;
      {
        B first = std::move(*B::allocate_on(device, a, 4096, Alignment(64), write));
        auto use = std::move(*first.hold(HoldKind::usage));
        CHECK(use.definition_events()[0].wait_on(b).ok());
        const Block block = use.raw().block();
        auto read = b.launch("read", {reads(block)}, [&right, block]() noexcept { right = block.data[4095] == std::byte{0x5A}; });
        use.convert(told ? *read : RaceCheckedEvent{});
        CHECK(first.release_on(a).ok());
        CHECK(first.is_deleted());
        CHECK(first.release_on(a).ok());
        B second = std::move(*B::allocate_on(device, a, 4096, Alignment(64), write));  // the same bytes; nothing has run yet
        CHECK(!right);
        CHECK(second.release_on(a).ok());
      }
      machine.drain();
      CHECK((right || !told));
      CHECK(device.available() == 4096);
      CHECK((machine.watch().count() != 0) == !told);
    }
}

TEST_CASE("tracked_buffer: what others own too, or a stream cannot wait for, goes after all events instead") {
  using B = TrackedBuffer<RaceCheckedDevice, RaceCheckedEvent>;
  RaceCheckedMachine machine;
  RaceCheckedDevice device = *machine.add_device(4096);
  const auto a = device.make_stream("a"), b = device.make_stream("b");
  const auto write = [&](Block block) noexcept { return b.launch("write", {writes(block)}, []() noexcept {}); };
  const auto made = [&] {
    Result<Block> block = device.allocate(4096, Alignment(64));
    const RaceCheckedEvent written = *write(*block);
    return std::move(*B::make(std::move(*B::raw_type::adopt(device, *block)), {&written, 1}));
  };
  SUBCASE("an external hold refuses it") {
    B buffer = made();
    auto outside = std::move(*buffer.hold(HoldKind::external));
    CHECK(buffer.release_on(a).code == Errc::held);
    CHECK(!buffer.is_deleted());
    outside.drop();
    CHECK(buffer.release_on(a).ok());
  }
  SUBCASE("a slice keeps the memory") {
    B buffer = made();
    auto slice = std::optional(*buffer.hold(HoldKind::usage)->raw().slice(0, 16));
    CHECK(buffer.release_on(a).ok());
    CHECK(buffer.is_deleted());
    machine.drain();
    CHECK(device.available() == 0);
    slice.reset();
  }
  SUBCASE("a wait that fails") {
    B buffer = made();
    device.inject({.call = SimulatedCall::wait});
    CHECK(buffer.release_on(a).code == Errc::device_fault);
    CHECK(buffer.is_deleted());
    CHECK(device.available() == 0);
  }
  SUBCASE("memory of somebody else") {
    Result<Block> block = device.allocate(4096, Alignment(64));
    int given_back = 0;
    const ForeignRelease release{[](void* count, Block) noexcept { ++*static_cast<int*>(count); }, &given_back};
    const RaceCheckedEvent written = *write(*block);
    B buffer = std::move(*B::make(std::move(*B::raw_type::import_foreign(device, *block, release)), {&written, 1}));
    CHECK(buffer.release_on(a).ok());
    CHECK(given_back == 0);
    CHECK(written.wait().ok());
    CHECK(given_back == 1);
    device.deallocate(*block);
  }
  SUBCASE("a buffer without memory carries its error away") {
    B buffer = std::move(*B::make(B::raw_type()));
    CHECK(buffer.release_on(a).ok());
    CHECK(buffer.is_deleted());
  }
  machine.drain();
  CHECK(device.available() == 4096);
  CHECK(machine.watch().count() == 0);
}
