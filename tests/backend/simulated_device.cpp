// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/simulated/device.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/backend/simulated/race_checked.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

constexpr Alignment line{64};

SimulatedOptions sole(std::uint64_t seed = 1) {
  SimulatedOptions o;
  o.seed = seed;
  o.sole_thread = true;
  return o;
}

std::vector<std::byte> bytes(std::size_t n, int value) { return std::vector<std::byte>(n, static_cast<std::byte>(value)); }

Bytes offset_in(const SimulatedDevice& d, Block b) {
  Bytes first = -1;
  d.visit_blocks([&](Block block, Tag) { first = first < 0 ? reinterpret_cast<Bytes>(block.data) : first; });
  return reinterpret_cast<Bytes>(b.data) - first;
}

// Six operations on three streams with one event between: the order they ran in.
template <class Machine>
std::string trace(std::uint64_t seed) {
  Machine m(sole(seed));
  auto d = *m.add_device(4_KiB);
  auto a = d.make_stream("a"), b = d.make_stream("b"), c = d.make_stream("c");
  std::string out;
  const auto step = [&](auto& stream, char name) { return *stream.launch("step", {}, [&out, name] { out.push_back(name); }); };
  auto a1 = step(a, '1');
  CHECK(step(a, '2').wait_on(b).ok());
  step(b, '3');
  step(c, '4');
  step(c, '5');
  step(b, '6');
  m.drain();
  return out;
}

}  // namespace

TEST_CASE("simulated_device: a seed gives one order, other seeds others, and all keep streams and events") {
  std::set<std::string> seen;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const std::string t = trace<SimulatedMachine>(seed);
    CHECK(t == trace<SimulatedMachine>(seed));
    REQUIRE(t.size() == 6);
    for (const char* before : {"12", "23", "36", "45"}) CHECK(t.find(before[0]) < t.find(before[1]));
    seen.insert(t);
  }
  CHECK(seen.size() == 15);  // all interleavings of 1236 and 45
}

TEST_CASE("simulated_device: a watch changes nothing in the order, and its absence takes no room") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) CHECK(trace<SimulatedMachine>(seed) == trace<RaceCheckedMachine>(seed));
  CHECK(sizeof(SimulatedDevice) == sizeof(void*));
  CHECK(sizeof(SimulatedEvent) == sizeof(void*));
  CHECK(sizeof(SimulatedStream) == sizeof(void*));
  CHECK(std::is_empty_v<NoWatch>);
  CHECK(sizeof(detail::SimulatedOperation<NoWatch>) < sizeof(detail::SimulatedOperation<RaceDetector>));
}

TEST_CASE("simulated_device: copies in, out, on and between devices move the bytes that they name") {
  SimulatedMachine m(sole());
  SimulatedDevice d0 = *m.add_device(64_KiB), d1 = *m.add_device(64_KiB);
  SimulatedStream s = d0.make_stream();
  Block x = *d0.allocate(256, line), y = *d1.allocate(256, line);
  const auto in = bytes(100, 7);
  auto out = bytes(256, 0);
  CHECK(d0.copy_in(s, x, 50, in).ok());
  CHECK(d0.copy(s, x, 0, x, 60, 20).ok());
  CHECK(d1.copy(s, y, 128, x, 0, 128).ok());
  SimulatedEvent done = *d1.copy_out(s, y, 0, out);
  CHECK(out[128] == std::byte{0});  // not before somebody waits
  CHECK(done.wait().ok());
  CHECK(out[128] == std::byte{7});
  CHECK(out[147] == std::byte{7});
  CHECK(out[148] == std::byte{0xCD});  // fresh memory
  CHECK(out[178] == std::byte{7});
  CHECK(out[255] == std::byte{7});
}

TEST_CASE("simulated_device: copies without a stream use the device's own, and their events tell when") {
  SimulatedMachine m(sole());
  SimulatedDevice d = *m.add_device(64_KiB);
  Block x = *d.allocate(64, line), y = *d.allocate(64, line);
  const auto in = bytes(64, 9);
  auto out = bytes(64, 0);
  CHECK((*d.copy_in(x, 0, in)).wait().ok());
  CHECK((*d.copy(y, 0, x, 0, 64)).wait().ok());
  CHECK((*d.copy_out(y, 0, out)).wait().ok());
  CHECK(out == in);
  CHECK((*d.copy_in(x, 64, {})).wait().ok());  // 0 bytes at the end
}

TEST_CASE("simulated_device: a copy beyond its block is refused and moves nothing") {
  SimulatedMachine m(sole());
  SimulatedDevice d = *m.add_device(64_KiB);
  Block x = *d.allocate(64, line), y = *d.allocate(32, line);
  auto host = bytes(64, 1);
  for (const Bytes bad : {Bytes{-1}, Bytes{1}, Bytes{65}, max_bytes}) {
    CHECK(d.copy_in(x, bad, host).error().code == Errc::invalid_argument);
    CHECK(d.copy_out(x, bad, host).error().code == Errc::invalid_argument);
  }
  CHECK(d.copy(y, 0, x, 0, 33).error().code == Errc::invalid_argument);
  CHECK(d.copy(x, 0, y, 0, 33).error().code == Errc::invalid_argument);
  CHECK(d.copy(x, 0, y, 0, -1).error().code == Errc::invalid_argument);
  CHECK(!m.pump());
}

TEST_CASE("simulated_device: memory is finite and exact; what is freed is there again") {
  SimulatedMachine m(sole());
  SimulatedDevice d = *m.add_device(1000);
  CHECK(d.capacity() == 1000);
  Block a = *d.allocate(400, Alignment(1), Tag{"weights", 7}), b = *d.allocate(600, Alignment(1));
  const Error full = d.allocate(1, Alignment(1)).error();
  CHECK(full.code == Errc::out_of_memory);
  CHECK(full.stage == Stage::allocation);
  CHECK(full.requested == 1);
  CHECK(full.available == 0);
  CHECK(d.available() == 0);
  int seen = 0;
  d.visit_blocks([&](Block block, Tag tag) { seen += block == a && tag.number == 7 ? 1 : 10; });
  CHECK(seen == 11);
  d.deallocate(a);
  CHECK(a.data[0] == std::byte{0xDD});
  CHECK(d.largest_free() == 400);
  d.deallocate(b);
  d.deallocate(b);  // not there: nothing
  CHECK(d.largest_free() == 1000);
  CHECK(d.allocate(1000, Alignment(1)).ok());
}

TEST_CASE("simulated_device: case 06, a merged block carries every stream's unfinished work to its next users") {
  SimulatedMachine m(sole());
  SimulatedDevice d = *m.add_device(3_MiB);
  SimulatedStream a = d.make_stream("A"), b = d.make_stream("B"), c = d.make_stream("C"), s = d.make_stream("D");
  auto hold_a = *m.make_promise(), hold_b = *m.make_promise();
  CHECK(hold_a.get_event().wait_on(a).ok());
  CHECK(hold_b.get_event().wait_on(b).ok());
  bool ka = false, kb = false, kc = false, kd = false;

  Block p = *d.allocate(a, 1_MiB, line), q = *d.allocate(b, 2_MiB, line);
  std::byte* const start = p.data;
  CHECK(offset_in(d, q) == 1_MiB);
  CHECK(a.launch("KA", {reads(p)}, [&] { ka = true; }).ok());
  d.deallocate(a, p);
  CHECK(d.allocate(c, 5_MiB / 2, line).error().code == Errc::out_of_memory);  // also: A's block alone is too small
  CHECK(b.launch("KB", {reads(q)}, [&] { kb = true; }).ok());
  d.deallocate(b, q);

  Block r = *d.allocate(c, 5_MiB / 2, line);
  CHECK(r.data == start);
  CHECK(c.launch("KC", {writes(r)}, [&] { kc = ka && kb; }).ok());
  Block t = *d.allocate(s, 1_MiB / 2, line);
  CHECK(t.data == start + 5_MiB / 2);
  CHECK(s.launch("KD", {writes(t)}, [&] { kd = kb; }).ok());
  m.drain();
  CHECK(!ka);
  CHECK(hold_a.set().ok());
  m.drain();
  CHECK(ka);
  CHECK(!kc);
  CHECK(!kd);
  CHECK(hold_b.set().ok());
  m.drain();
  CHECK(kc);
  CHECK(kd);
}

TEST_CASE("simulated_device: case 06, a synchronous allocation does not return before the old user's kernel is complete") {
  for (bool set : {false, true}) {
    SimulatedMachine m(sole());
    SimulatedDevice d = *m.add_device(1_MiB);
    SimulatedStream b = d.make_stream("B");
    auto hold = *m.make_promise();
    CHECK(hold.get_event().wait_on(b).ok());
    Block q = *d.allocate(b, 1_MiB, line);
    bool kb = false;
    CHECK(b.launch("KB", {writes(q)}, [&] { kb = true; }).ok());
    d.deallocate(b, q);
    if (set) CHECK(hold.set().ok());
    Result<Block> r = d.allocate(1_MiB, line);
    CHECK(r.ok() == set);
    CHECK(kb == set);
    if (set) continue;
    CHECK(says(r.error(), "deadlock"));
    CHECK(d.largest_free() == 1_MiB);  // as it was
    CHECK(hold.set().ok());
    CHECK(d.allocate(1_MiB, line).ok());
    CHECK(kb);
  }
}

TEST_CASE("simulated_device: a stream may have its own memory back at once, and the same address") {
  SimulatedMachine m(sole());
  SimulatedDevice d = *m.add_device(1_MiB);
  SimulatedStream a = d.make_stream(), b = d.make_stream();
  Block p = *d.allocate(a, 1024, line);
  d.deallocate(a, p);
  CHECK(*d.allocate(a, 1024, line) == p);
  d.deallocate(a, p);
  CHECK((*d.allocate(b, 1024, line)).data != p.data);  // another stream takes what needs no wait, while there is
}

TEST_CASE("simulated_device: the n-th call fails as told, once, and the others do not") {
  SimulatedMachine m(sole());
  SimulatedDevice d = *m.add_device(1_MiB);
  SimulatedStream s = d.make_stream();
  const Error told = make_error(Errc::device_fault, "told to fail");
  d.inject({SimulatedCall::allocate, 3, told});
  CHECK(d.allocate(8, line).ok());
  CHECK(d.allocate(s, 8, line).ok());
  const Error e = d.allocate(8, line).error();
  CHECK(says(e, "told to fail"));
  CHECK(e.requested == 8);
  CHECK(d.allocate(8, line).ok());

  d.inject({SimulatedCall::copy, 1, told});
  d.inject({SimulatedCall::launch, 2, told});
  d.inject({SimulatedCall::record, 1, told});
  d.inject({SimulatedCall::wait, 1, told});
  auto host = bytes(8, 1);
  Block x = *d.allocate(8, line);
  CHECK(says(d.copy_in(s, x, 0, host).error(), "told"));
  CHECK(d.copy_in(s, x, 0, host).ok());
  CHECK(s.launch("k", {}, [] {}).ok());
  bool ran = false;
  CHECK(says(s.launch("k", {}, [&] { ran = true; }).error(), "told"));
  CHECK(says(s.record().error(), "told"));
  SimulatedEvent event = *s.record();
  CHECK(says(event.wait_on(s), "told"));
  CHECK(event.wait_on(s).ok());
  CHECK(s.synchronize().ok());
  CHECK(!ran);
}

TEST_CASE("simulated_device: a late fault fails the event, moves no bytes and leaves the stream working") {
  SimulatedMachine m(sole());
  SimulatedDevice d = *m.add_device(1_MiB);
  SimulatedStream s = d.make_stream();
  Block x = *d.allocate(8, line);
  const auto ones = bytes(8, 1), twos = bytes(8, 2);
  auto out = bytes(8, 0);
  d.inject({.call = SimulatedCall::copy, .at = 2, .late = true});
  CHECK(d.copy_in(s, x, 0, ones).ok());
  SimulatedEvent lost = *d.copy_in(s, x, 0, twos);
  SimulatedEvent down = *d.copy_out(s, x, 0, out);
  CHECK(lost.wait().code == Errc::device_fault);
  CHECK(lost.wait().code == Errc::device_fault);  // again the same
  CHECK(lost.ready());
  CHECK(down.wait().ok());
  CHECK(out == ones);
}

TEST_CASE("simulated_device: a fault that sticks kills the device: pending work, later calls, not the other device") {
  SimulatedMachine m(sole());
  SimulatedDevice d = *m.add_device(1_MiB), other = *m.add_device(1_MiB);
  SimulatedStream s = d.make_stream(), t = d.make_stream();
  Block x = *d.allocate(8, line);
  bool ran = false;
  d.inject({.call = SimulatedCall::launch, .sticks = true, .late = true});
  SimulatedEvent bad = *s.launch("bad", {}, [] {});
  CHECK(bad.wait_on(t).ok());
  SimulatedEvent after = *t.launch("after", {}, [&] { ran = true; });
  CHECK(after.wait().code == Errc::device_fault);
  CHECK(!ran);
  CHECK(d.allocate(8, line).error().code == Errc::device_fault);
  CHECK(s.launch("k", {}, [] {}).error().code == Errc::device_fault);
  CHECK(s.record().error().code == Errc::device_fault);
  CHECK(d.copy_in(x, 0, bytes(8, 0)).error().code == Errc::device_fault);
  d.deallocate(x);
  d.deallocate(s, x);
  CHECK(other.allocate(8, line).ok());
}

TEST_CASE("simulated_device: a fault that sticks at a call kills the device from that call on") {
  SimulatedMachine m(sole());
  SimulatedDevice d = *m.add_device(1_MiB);
  SimulatedStream s = d.make_stream();
  SimulatedEvent before = *s.launch("k", {}, [] {});
  d.inject({.call = SimulatedCall::record, .at = 2, .error = make_error(Errc::device_fault, "fell off the bus"), .sticks = true});
  CHECK(s.record().ok());
  CHECK(says(s.record().error(), "fell off the bus"));
  CHECK(says(d.allocate(8, line).error(), "fell off the bus"));
  CHECK(says(before.wait(), "fell off the bus"));
}

TEST_CASE("simulated_device: a kernel may fail with an error of its own") {
  SimulatedMachine m(sole());
  SimulatedDevice d = *m.add_device(4096);
  SimulatedEvent e = *d.make_stream().launch("k", {}, [] { return make_error(Errc::internal, "NaN in the loss"); });
  CHECK(says(e.wait(), "NaN in the loss"));
}

TEST_CASE("simulated_device: pinned host memory is a backend, too, and copies reach it") {
  SimulatedMachine m(sole());
  SimulatedDevice d = *m.add_device(4096);
  auto pinned = *m.add_host_memory(4096);
  static_assert(host_accessible<decltype(pinned)> && !host_accessible<SimulatedDevice>);
  Block x = *d.allocate(64, line), h = *pinned.allocate(64, line);
  std::memset(h.data, 5, 64);
  SimulatedStream s = d.make_stream();
  CHECK(d.copy(s, x, 0, h, 0, 64).ok());
  auto out = bytes(64, 0);
  CHECK((*d.copy_out(s, x, 0, out)).wait().ok());
  CHECK(out == bytes(64, 5));
}

TEST_CASE("simulated_device: a machine refuses sizes that cannot be") {
  SimulatedMachine m;
  CHECK(m.add_device(-1).error().code == Errc::invalid_argument);
  CHECK(m.add_device(max_bytes).error().code == Errc::out_of_memory);
  SimulatedDevice none = *m.add_device(0);
  CHECK(none.allocate(0, line).ok());
  CHECK(none.allocate(1, line).error().code == Errc::out_of_memory);
}

TEST_CASE("simulated_device: host threads may share a machine: each sees its own streams in order") {
  RaceCheckedMachine m;
  RaceCheckedDevice d = *m.add_device(1_MiB);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      RaceCheckedStream s = d.make_stream(), u = d.make_stream();
      for (int i = 0; i < 100; ++i) {
        Block x = *d.allocate(s, 64, line);
        const auto in = bytes(64, t * 50 + i % 50);
        auto out = bytes(64, 0);
        RaceCheckedEvent up = *d.copy_in(s, x, 0, in);
        bool good = up.wait_on(u).ok();
        RaceCheckedEvent down = *d.copy_out(u, x, 0, out);
        good = good && down.wait_on(s).ok();
        d.deallocate(s, x);
        if (i % 2 == 0) {
          while (!down.ready()) std::this_thread::yield();
        }
        good = good && down.wait().ok() && out == in;
        right += good ? 1 : 0;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  m.drain();
  CHECK(right == 400);
  StringSink out;
  CHECK(m.watch().write_races(out).ok());
  CHECK(out.text == "");
}
