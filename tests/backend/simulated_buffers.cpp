// SPDX-License-Identifier: Apache-2.0
// Buffers and holds on a device whose work is late, reordered and watched: no run may race, and the bytes must be right.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/backend/simulated/race_checked.hpp"
#include "holdfast/buffer/raw_buffer.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/buffer/transfer.hpp"
#include "holdfast/event/promise.hpp"
#include "holdfast/hold/local_hold.hpp"
#include "holdfast/hold/no_hold.hpp"
#include "holdfast/hold/striped_hold.hpp"
#include "support/texts.hpp"

#define COUNTING_HOLDS SharedHold, LocalHold, StripedHold
#define ALL_HOLDS COUNTING_HOLDS, NoHold

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

using Event = RaceCheckedEvent;
using Raw = RawBuffer<RaceCheckedDevice>;
template <class Hold>
using Tracked = TrackedBuffer<RaceCheckedDevice, Event, Hold>;

struct World {
  explicit World(std::uint64_t seed = 1) : m(options(seed)) {}
  ~World() {
    m.drain();
    StringSink out;
    static_cast<void>(m.watch().write_races(out));
    CHECK(out.text == expected_races);
  }
  static SimulatedOptions options(std::uint64_t seed) {
    SimulatedOptions o;
    o.seed = seed;
    o.sole_thread = true;
    return o;
  }
  Event copy_in(const RaceCheckedStream& s, Block to, int value) {
    host.assign(static_cast<std::size_t>(to.size), static_cast<std::byte>(value));
    m.host_writes("fill", host);
    Event e = *d.copy_in(s, to, 0, host, "upload");
    return e;
  }
  int first_byte(const RaceCheckedStream& s, Block from) {
    std::array<std::byte, 1> out{};
    CHECK((*d.copy_out(s, from, 0, out)).wait().ok());
    m.host_reads("check", out);
    return std::to_integer<int>(out[0]);
  }

  std::string expected_races;
  std::vector<std::byte> host;
  RaceCheckedMachine m;
  RaceCheckedDevice d = *m.add_device(64_MiB);
  RaceCheckedStream a = d.make_stream("a"), b = d.make_stream("b"), c = d.make_stream("c");
};

void add(Block block, int n) {
  for (Bytes i = 0; i < block.size; ++i) block.data[i] = static_cast<std::byte>(std::to_integer<int>(block.data[i]) + n);
}

template <class Span>
void wait_on_all(const Span& events, const RaceCheckedStream& s) {
  for (const Event& e : events) CHECK(e.wait_on(s).ok());
}

}  // namespace

TEST_CASE("simulated_buffers: T-R3 s32[256] goes in and comes back through host memory aligned to 1024 bytes") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World w(seed);
    alignas(1024) std::array<std::int32_t, 256> in{}, out{};
    for (std::int32_t i = 0; i < 256; ++i) in[static_cast<std::size_t>(i)] = 47 + i;
    Raw raw = *Raw::allocate(w.d, 1024);
    CHECK(raw.size() == 1024);
    Event up = *raw.copy_in(0, std::as_bytes(std::span(in)));
    CHECK(up.wait().ok());
    Event down = *raw.copy_out(0, std::as_writable_bytes(std::span(out)));
    CHECK(down.wait().ok());
    w.m.host_reads("compare", std::as_bytes(std::span(out)));
    CHECK(in == out);
  }
}

TEST_CASE("simulated_buffers: T-R4 a part of the bytes comes out, and a range beyond them is refused when called") {
  World w;
  const std::array<float, 2> in{41, 42};
  std::array<float, 2> out{};
  Raw raw = *Raw::allocate(w.d, 8);
  CHECK((*raw.copy_in(0, std::as_bytes(std::span(in)))).wait().ok());
  CHECK((*raw.copy_out(0, std::as_writable_bytes(std::span(out).first(1)))).wait().ok());
  CHECK(out == std::array<float, 2>{41, 0});
  CHECK(says(raw.copy_out(1, std::as_writable_bytes(std::span(out))).error(), "invalid offset 1"));
}

TEST_CASE("simulated_buffers: T-R7 bytes go from the device to pinned memory and back") {
  World w;
  auto pinned = *w.m.add_host_memory(4096);
  RawBuffer<decltype(pinned)> home = *RawBuffer<decltype(pinned)>::allocate(pinned, 16);
  Raw x = *Raw::allocate(w.d, 16), y = *Raw::allocate(w.d, 16);
  const std::array<std::int32_t, 4> in{1, 2, 3, 4};
  std::array<std::int32_t, 4> out{};
  CHECK((*x.copy_in(0, std::as_bytes(std::span(in)))).wait().ok());
  CHECK((*w.d.copy(w.a, home.block(), 0, x.block(), 0, 16)).wait_on(w.b).ok());
  CHECK((*w.d.copy(w.b, y.block(), 0, home.block(), 0, 16)).wait().ok());
  CHECK((*y.copy_out(0, std::as_writable_bytes(std::span(out)))).wait().ok());
  CHECK(in == out);
  CHECK(home.memory_space() == MemorySpace::host);
}

TEST_CASE("simulated_buffers: T-R9 chunks of 3 bytes are accepted, the buffer dropped before they move, and all arrive") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World w(seed);
    const std::vector<std::byte> in(64, std::byte{3});
    Event last;
    {
      auto go = *w.m.make_promise();
      const Event start = go.get_event();
      Raw raw = *Raw::allocate(w.d, 64);
      for (std::size_t at = 0; at < 64; at += 3) {
        const auto chunk = std::span(in).subspan(at, std::min<std::size_t>(3, 64 - at));
        last = *copy_in<Raw, Event>(raw, static_cast<Bytes>(at), chunk, {&start, 1});
      }
      CHECK(!last.ready());
      CHECK(go.set().ok());
    }
    CHECK(last.wait().ok());
    w.m.drain();
    CHECK(w.d.available() == 64_MiB);
  }
}

TEST_CASE("simulated_buffers: copies in and out that name the events they come after, and keep the memory, race under no seed") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    World w(seed);
    const std::vector<std::byte> in(64, std::byte{9});
    std::vector<std::byte> out(64);
    Event down;
    {
      Raw raw = *Raw::allocate(w.d, 64);
      const Event up = *copy_in<Raw, Event>(raw, 0, in, {});
      down = *copy_out<Raw, Event>(raw, 0, out, {&up, 1});
    }
    CHECK(down.wait().ok());  // drives the copy that has not begun, too
    w.m.host_reads("compare", out);
    CHECK(out == in);
  }
}

TEST_CASE("simulated_buffers: T-R9 of four copies with errors on two, each event gets its own, as case 03 D those that depend on it") {
  World w;
  const std::vector<std::byte> in(8, std::byte{1});
  std::vector<std::byte> out(8);
  Raw raw = *Raw::allocate(w.d, 32);
  w.d.inject({SimulatedCall::copy, 2, make_error(Errc::device_fault, "first fault"), false, true});
  w.d.inject({SimulatedCall::copy, 3, make_error(Errc::device_fault, "second fault"), false, true});
  std::vector<Event> up;
  for (Bytes i = 0; i < 4; ++i) up.push_back(*raw.copy_in(i * 8, in));
  const Event after = *copy_out<Raw, Event>(raw, 0, out, up);
  CHECK(up[0].wait().ok());
  CHECK(says(up[1].wait(), "first fault"));
  CHECK(says(up[2].wait(), "second fault"));
  CHECK(up[3].wait().ok());
  CHECK(says(after.wait(), "first fault"));
  CHECK(out == std::vector<std::byte>(8));
}

TEST_CASE("simulated_buffers: a raw buffer dropped while a copy into it is pending is found") {
  World w;
  const std::array<std::byte, 8> in{};
  {
    Raw raw = *Raw::allocate(w.d, 8);
    CHECK(raw.copy_in(0, in).ok());
  }
  w.m.drain();
  REQUIRE(w.m.watch().count() == 1);
  CHECK(w.m.watch().races()[0].kind == RaceKind::freed_in_use);
  w.m.watch().clear();
}

TEST_CASE_TEMPLATE("simulated_buffers: readers and a donor on three streams, with holds and events, race under no seed", Hold, ALL_HOLDS) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    World w(seed);
    Tracked<Hold> buffer;
    {
      auto raw = *Tracked<Hold>::raw_type::allocate(w.d, 64);
      const Event defined = w.copy_in(w.a, raw.block(), 10);
      buffer = std::move(*Tracked<Hold>::make(std::move(raw), {&defined, 1}));
    }
    for (const RaceCheckedStream& s : {w.b, w.c}) {
      auto use = *buffer.hold(HoldKind::usage);
      wait_on_all(use.definition_events(), s);
      const Block bytes = use.raw().block();
      use.convert(*s.launch("reader", {reads(bytes)}, [bytes] { CHECK(bytes.data[63] == std::byte{10}); }));
    }
    auto gift = *buffer.hold(HoldKind::donation);
    wait_on_all(gift.definition_events(), w.a);
    wait_on_all(gift.usage_events(), w.a);
    const Block bytes = gift.raw().block();
    Event done = *w.a.launch("donor", {writes(bytes)}, [bytes] { add(bytes, 5); });
    CHECK(w.first_byte(w.a, bytes) == 15);
    gift.confirm(done);
    CHECK(buffer.is_deleted());
    w.m.drain();
    CHECK(w.d.available() == 64_MiB);
  }
}

TEST_CASE_TEMPLATE("simulated_buffers: a donor that forgets the usage events, and a reader that forgets the definition events, are found",
                   Hold, COUNTING_HOLDS) {
  // Not both under every seed: converting a hold asks whether the reader is done, which orders the host after it if it
  // is; and a donor that overtakes the reader hides the definition from it.
  int readers = 0, donors = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    World w(seed);
    auto raw = *Tracked<Hold>::raw_type::allocate(w.d, 64);
    const Block bytes = raw.block();
    const Event defined = w.copy_in(w.a, bytes, 10);
    Tracked<Hold> buffer = std::move(*Tracked<Hold>::make(std::move(raw), {&defined, 1}));
    {
      auto use = *buffer.hold(HoldKind::usage);
      use.convert(*w.b.launch("reader", {reads(bytes)}, [] {}));
    }
    auto gift = *buffer.hold(HoldKind::donation);
    wait_on_all(gift.definition_events(), w.c);
    gift.confirm(*w.c.launch("donor", {writes(bytes)}, [] {}));
    w.m.drain();
    bool reader_early = false, donor_early = false;
    for (const Race& r : w.m.watch().races()) {
      const auto pair = std::array{r.first.operation, r.second.operation};
      reader_early = reader_early || pair == std::array<std::string_view, 2>{"upload", "reader"} ||
                     pair == std::array<std::string_view, 2>{"reader", "upload"};
      donor_early = donor_early || pair == std::array<std::string_view, 2>{"donor", "reader"} ||
                    pair == std::array<std::string_view, 2>{"reader", "donor"};
    }
    CHECK((reader_early || donor_early));
    readers += reader_early ? 1 : 0;
    donors += donor_early ? 1 : 0;
    w.m.watch().clear();
  }
  CHECK(readers > 25);
  CHECK(donors > 25);
}

TEST_CASE_TEMPLATE("simulated_buffers: T-G9 a deletion shows at once, the memory goes after definition and usage, in whatever order", Hold,
                   COUNTING_HOLDS) {
  for (const bool usage_first : {false, true}) {
    World w;
    auto definition = *w.m.make_promise(), usage = *w.m.make_promise();
    const Event defined = definition.get_event();
    Tracked<Hold> buffer = std::move(*Tracked<Hold>::make(*Tracked<Hold>::raw_type::allocate(w.d, 64), {&defined, 1}));
    (*buffer.hold(HoldKind::usage)).convert(usage.get_event());
    CHECK(buffer.release().ok());
    CHECK(buffer.is_deleted());
    w.m.drain();
    CHECK(w.d.available() == 64_MiB - 64);
    CHECK((usage_first ? usage : definition).set().ok());
    w.m.drain();
    CHECK(w.d.available() == 64_MiB - 64);
    CHECK((usage_first ? definition : usage).set().ok());
    CHECK(w.d.available() == 64_MiB);
  }
}

TEST_CASE_TEMPLATE("simulated_buffers: T-G8 waiting for operations runs the machine until readers and contents are done, T-G7 release does not",
                   Hold, ALL_HOLDS) {
  World w;
  auto raw = *Tracked<Hold>::raw_type::allocate(w.d, 64);
  const Block bytes = raw.block();
  const Event defined = w.copy_in(w.a, bytes, 1);
  Tracked<Hold> buffer = std::move(*Tracked<Hold>::make(std::move(raw), {&defined, 1}));
  {
    auto use = *buffer.hold(HoldKind::usage);
    wait_on_all(use.definition_events(), w.b);
    use.convert(*w.b.launch("reader", {reads(bytes)}, [] {}));
  }
  CHECK(buffer.block_for_operations().ok());
  CHECK(!w.m.pump());  // nothing is left to run
  CHECK(buffer.release().ok());
  CHECK(buffer.release().ok());
  CHECK(w.d.available() == 64_MiB);
}

TEST_CASE_TEMPLATE("simulated_buffers: T-D5 a donation stays a donation though the kernel that it was for fails", Hold, COUNTING_HOLDS) {
  World w;
  Tracked<Hold> buffer = std::move(*Tracked<Hold>::allocate(w.d, 16));
  auto gift = *buffer.hold(HoldKind::donation);
  auto raw = gift.raw();
  const Event failed = *w.a.launch("k", {writes(raw.block())}, [] { return make_error(Errc::internal, "test error."); });
  gift.confirm(failed);
  Tracked<Hold> output = std::move(*Tracked<Hold>::make(std::move(raw), {&failed, 1}));
  CHECK(says((*output.ready_event()).wait(), "test error."));
  CHECK(says(output.block_for_operations(), "Error Execute: test error."));
  CHECK(buffer.hold(HoldKind::usage).error().code == Errc::donated);
}

TEST_CASE_TEMPLATE("simulated_buffers: T-E10 a buffer defined by a promise is valid when the copy that the promise follows is done", Hold,
                   COUNTING_HOLDS) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World w(seed);
    auto promise = *w.m.make_promise();
    const Event defined = promise.get_event();
    auto raw = *Tracked<Hold>::raw_type::allocate(w.d, 16);
    Tracked<Hold> buffer = std::move(*Tracked<Hold>::make(raw, {&defined, 1}));
    CHECK(!(*buffer.ready_event()).ready());
    forward(w.copy_in(w.a, raw.block(), 41), std::move(promise));
    CHECK((*buffer.ready_event()).wait().ok());
    CHECK(w.first_byte(w.b, raw.block()) == 41);
  }
}

TEST_CASE_TEMPLATE("simulated_buffers: one ready event for two copies carries both orders to the host", Hold, COUNTING_HOLDS) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    World w(seed);
    auto raw = *Tracked<Hold>::raw_type::allocate(w.d, 128);
    const Block left{raw.data(), 64}, right{raw.data() + 64, 64};
    const std::vector<std::byte> ones(64, std::byte{1}), twos(64, std::byte{2});
    const std::vector<Event> defined{*w.d.copy_in(w.a, left, 0, ones), *w.d.copy_in(w.b, right, 0, twos)};
    Tracked<Hold> buffer = std::move(*Tracked<Hold>::make(raw, defined));
    CHECK((*buffer.ready_event()).wait().ok());
    CHECK(w.first_byte(w.c, left) == 1);
    CHECK(w.first_byte(w.c, right) == 2);
    CHECK(buffer.release().ok());
  }
}

TEST_CASE("simulated_buffers: T-E11 ten rounds of allocate, write, two kernels, read give 0..9, at an address that comes again") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    World w(seed);
    std::vector<std::byte*> addresses;
    std::array<std::array<std::byte, 1>, 10> results{};
    std::vector<Event> read;
    for (int i = 0; i < 10; ++i) {
      Block x = *w.d.allocate(w.a, 16_MiB, Alignment(64));  // the compute stream's own
      addresses.push_back(x.data);
      CHECK(w.a.launch("write", {writes(x)}, [x, i] { x.data[0] = static_cast<std::byte>(i); }).ok());
      for (const char* matmul : {"matmul 1", "matmul 2"}) CHECK(w.a.launch(matmul, {writes(x)}, [x] { add({x.data, 1}, 0); }).ok());
      CHECK((*w.a.record()).wait_on(w.b).ok());
      read.push_back(*w.d.copy_out(w.b, x, 0, results[static_cast<std::size_t>(i)]));
      CHECK(read.back().wait_on(w.a).ok());
      w.d.deallocate(w.a, x);
    }
    int repeats = 0;
    for (std::size_t i = 1; i < 10; ++i) repeats += addresses[i] == addresses[0] ? 1 : 0;
    CHECK(repeats > 0);
    for (std::size_t i = 0; i < 10; ++i) {
      CHECK(read[i].wait().ok());
      CHECK(std::to_integer<std::size_t>(results[i][0]) == i);
    }
  }
}

TEST_CASE("simulated_buffers: the allocator of T-E11 without its wait is found: memory freed before the copy out of it") {
  World w;
  Block x = *w.d.allocate(w.a, 1_MiB, Alignment(64));
  CHECK(w.a.launch("write", {writes(x)}, [] {}).ok());
  CHECK((*w.a.record()).wait_on(w.b).ok());
  std::array<std::byte, 1> out{};
  CHECK(w.d.copy_out(w.b, x, 0, out, "read").ok());
  w.d.deallocate(w.a, x);
  Block y = *w.d.allocate(w.a, 1_MiB, Alignment(64));
  CHECK(y == x);
  CHECK(w.a.launch("next write", {writes(y)}, [] {}).ok());
  w.m.drain();
  REQUIRE(w.m.watch().count() >= 1);
  bool named = false;
  for (const Race& r : w.m.watch().races())
    named = named || (r.kind == RaceKind::freed_in_use && (r.first.operation == "read" || r.second.operation == "read"));
  CHECK(named);
  w.m.watch().clear();
}

TEST_CASE("simulated_buffers: threads that share a buffer through holds, each with its own stream, race in nothing") {
  RaceCheckedMachine m;
  RaceCheckedDevice d = *m.add_device(1_MiB);
  RaceCheckedStream up = d.make_stream("up");
  const std::vector<std::byte> host(64, std::byte{7});
  auto raw = *Raw::allocate(d, 64);
  const Event defined = *d.copy_in(up, raw.block(), 0, host);
  Tracked<SharedHold> buffer = std::move(*Tracked<SharedHold>::make(std::move(raw), {&defined, 1}));
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      RaceCheckedStream s = d.make_stream();
      for (int i = 0; i < 50; ++i) {
        auto use = *buffer.hold(HoldKind::usage);
        for (const Event& e : use.definition_events()) static_cast<void>(e.wait_on(s));
        const Block bytes = use.raw().block();
        Event read = *s.launch("reader", {reads(bytes)}, [&, bytes] { right += bytes.data[63] == std::byte{7} ? 1 : 0; });
        use.convert(read);
        if (i % 10 == 0) static_cast<void>(read.wait());
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(buffer.release().ok());
  m.drain();
  CHECK(right == 150);
  CHECK(d.available() == 1_MiB);
  StringSink out;
  CHECK(m.watch().write_races(out).ok());
  CHECK(out.text == "");
}
