// SPDX-License-Identifier: Apache-2.0
// Each program is run twice over many seeds: as it should be, and with one synchronisation left out or misplaced.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/backend/simulated/race_checked.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {

constexpr Bytes n = 256;
constexpr Alignment line{64};

struct World {
  explicit World(std::uint64_t seed) : machine(options(seed)), staging(n), result(n) {}
  static SimulatedOptions options(std::uint64_t seed) {
    SimulatedOptions o;
    o.seed = seed;
    o.sole_thread = true;
    return o;
  }
  // A kernel that reads one block and writes another, byte by byte one more.
  RaceCheckedEvent kernel(const RaceCheckedStream& s, std::string_view name, Block from, Block to) {
    return *s.launch(name, {reads(from), writes(to)}, [from, to] {
      for (Bytes i = 0; i < to.size; ++i) to.data[i] = static_cast<std::byte>(std::to_integer<int>(from.data[i]) + 1);
    });
  }
  void fill(std::string_view name, int value) {
    machine.host_writes(name, staging);
    for (std::byte& byte : staging) byte = static_cast<std::byte>(value);
  }
  int look(std::string_view name) {
    machine.host_reads(name, result);
    return std::to_integer<int>(result[n - 1]);
  }

  RaceCheckedMachine machine;
  RaceCheckedDevice d0 = *machine.add_device(64_KiB), d1 = *machine.add_device(64_KiB);
  RaceCheckedStream a = d0.make_stream("a"), b = d0.make_stream("b"), c = d0.make_stream("c"), far = d1.make_stream("far");
  Block x = *d0.allocate(n, line), y = *d0.allocate(n, line), z = *d0.allocate(n, line), w = *d1.allocate(n, line);
  std::vector<std::byte> staging, result;
};

// `right`: with the synchronisation that the wrong program lacks.
void missing_wait_on_copy(World& m, bool right) {
  m.fill("fill", 1);
  RaceCheckedEvent up = *m.d0.copy_in(m.a, m.x, 0, m.staging, "upload");
  if (right) CHECK(up.wait_on(m.b).ok());
  m.kernel(m.b, "matmul", m.x, m.y);
}

void event_before_the_work(World& m, bool right) {
  RaceCheckedEvent e;
  if (!right) CHECK(e.record(m.a).ok());
  m.kernel(m.a, "produce", m.x, m.y);
  if (right) CHECK(e.record(m.a).ok());
  CHECK(e.wait_on(m.b).ok());
  m.kernel(m.b, "consume", m.y, m.z);
}

void event_on_the_wrong_stream(World& m, bool right) {
  m.kernel(m.a, "produce", m.x, m.y);
  RaceCheckedEvent e = *(right ? m.a : m.c).record();
  CHECK(e.wait_on(m.b).ok());
  m.kernel(m.b, "consume", m.y, m.z);
}

void stale_event(World& m, bool right) {
  RaceCheckedEvent produced, consumed;
  for (int step = 0; step < 3; ++step) {
    CHECK(consumed.wait_on(m.a).ok());
    m.kernel(m.a, step == 0 ? "produce" : "produce again", m.x, m.y);
    if (right || step == 0) CHECK(produced.record(m.a).ok());
    CHECK(produced.wait_on(m.b).ok());
    m.kernel(m.b, step == 0 ? "consume" : "consume again", m.y, m.z);
    CHECK(consumed.record(m.b).ok());
  }
}

void freed_before_last_use(World& m, bool right) {
  Block t = *m.d0.allocate(m.a, n, line);
  RaceCheckedEvent e = m.kernel(m.a, "produce", m.x, t);
  CHECK(e.wait_on(m.b).ok());
  RaceCheckedEvent used = m.kernel(m.b, "last use", t, m.y);
  if (right) CHECK(used.wait_on(m.a).ok());
  m.d0.deallocate(m.a, t);
}

void reused_across_streams(World& m, bool right) {
  // The engine's own pool hands y from stream a to stream b.
  RaceCheckedEvent used = m.kernel(m.a, "old user", m.x, m.y);
  if (right) CHECK(used.wait_on(m.b).ok());
  m.kernel(m.b, "new user", m.z, m.y);
}

void host_reads_too_early(World& m, bool right) {
  RaceCheckedEvent down = *m.d0.copy_out(m.a, m.x, 0, m.result, "download");
  if (right) CHECK(down.wait().ok());
  m.look("check result");
}

void staging_reused_too_early(World& m, bool right) {
  m.fill("fill", 1);
  RaceCheckedEvent up = *m.d0.copy_in(m.a, m.x, 0, m.staging, "upload");
  if (right) CHECK(up.wait().ok());
  m.fill("refill", 2);
}

void copy_without_wait_on_its_source(World& m, bool right) {
  RaceCheckedEvent made = m.kernel(m.a, "produce", m.x, m.y);
  if (right) CHECK(made.wait_on(m.c).ok());
  CHECK(m.d0.copy(m.c, m.z, 0, m.y, 0, n, "copy on device").ok());
}

void missing_wait_after_copy_between_devices(World& m, bool right) {
  RaceCheckedEvent moved = *m.d0.copy(m.a, m.w, 0, m.x, 0, n, "send");
  if (right) CHECK(moved.wait_on(m.far).ok());
  CHECK(m.far.launch("reduce", {reads(m.w)}, [] {}).ok());
}

void allocated_on_another_stream(World& m, bool right) {
  Block t = *m.d0.allocate(m.a, n, line, Tag{"scratch", 0});
  RaceCheckedEvent there = *m.a.record();
  if (right) CHECK(there.wait_on(m.b).ok());
  m.kernel(m.b, "first use", m.x, t);
}

void freed_by_the_host_in_use(World& m, bool right) {
  RaceCheckedEvent used = m.kernel(m.a, "last use", m.x, m.y);
  if (right) CHECK(used.wait().ok());
  m.d0.deallocate(m.x);
}

void used_after_it_was_freed(World& m, bool right) {
  if (!right) m.d0.deallocate(m.a, m.x);
  m.kernel(m.a, "late use", m.x, m.y);
  if (right) m.d0.deallocate(m.a, m.x);
}

void never_allocated(World& m, bool right) {
  const Block beyond{m.y.data, right ? n : n + 8192};
  CHECK(m.a.launch("overrun", {writes(beyond)}, [] {}).ok());
}

void second_reader_overlooked(World& m, bool right) {
  RaceCheckedEvent r1 = *m.a.launch("reader 1", {reads(m.x)}, [] {}), r2 = *m.b.launch("reader 2", {reads(m.x)}, [] {});
  CHECK(r1.wait_on(m.c).ok());
  if (right) CHECK(r2.wait_on(m.c).ok());
  CHECK(m.c.launch("overwrite", {writes(m.x)}, [] {}).ok());
}

struct Case {
  void (*program)(World&, bool right);
  std::string_view one, other;
  RaceKind kind = RaceKind::unordered;
};

constexpr Case cases[] = {
    // The ten of the brief.
    {missing_wait_on_copy, "upload", "matmul"},
    {event_before_the_work, "produce", "consume"},
    {event_on_the_wrong_stream, "produce", "consume"},
    {stale_event, "produce again", "consume again"},
    {freed_before_last_use, "last use", "deallocate", RaceKind::freed_in_use},
    {reused_across_streams, "old user", "new user"},
    {host_reads_too_early, "download", "check result"},
    {staging_reused_too_early, "upload", "refill"},
    {copy_without_wait_on_its_source, "produce", "copy on device"},
    {missing_wait_after_copy_between_devices, "send", "reduce"},
    // And more.
    {allocated_on_another_stream, "scratch", "first use"},
    {freed_by_the_host_in_use, "last use", "deallocate", RaceKind::freed_in_use},
    {used_after_it_was_freed, "deallocate", "late use", RaceKind::use_after_free},
    {never_allocated, "nobody: never allocated", "overrun", RaceKind::use_after_free},
    {second_reader_overlooked, "reader 2", "overwrite"},
};

std::string all_races(RaceCheckedMachine& machine) {
  StringSink out;
  static_cast<void>(machine.watch().write_races(out));
  return out.text;
}

}  // namespace

TEST_CASE("race_detector: each of ten seeded missing synchronisations, and five more, is found under every seed, by name") {
  for (const Case& c : cases) {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
      World m(seed);
      c.program(m, false);
      m.machine.drain();
      CAPTURE(c.one);
      CAPTURE(seed);
      CAPTURE(all_races(m.machine));
      REQUIRE(m.machine.watch().count() >= 1);
      bool found = false;
      for (const Race& r : m.machine.watch().races())
        found = found || (r.kind == c.kind && ((r.first.operation == c.one && r.second.operation == c.other) ||
                                               (r.first.operation == c.other && r.second.operation == c.one)));
      CHECK(found);
      CHECK(m.machine.watch().count() <= 4);  // no flood after it
    }
  }
}

TEST_CASE("race_detector: the same programs with their synchronisation give no report under any seed") {
  for (const Case& c : cases) {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
      World m(seed);
      c.program(m, true);
      m.machine.drain();
      CAPTURE(c.one);
      CAPTURE(seed);
      CHECK(all_races(m.machine) == "");
      CHECK(m.machine.watch().count() == 0);
    }
  }
}

TEST_CASE("race_detector: a pipelined program of two devices and five streams is right in bytes and without report") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    World m(seed);
    RaceCheckedEvent uploaded, made, moved, reduced, downloaded;
    for (int step = 1; step <= 5; ++step) {
      CHECK(uploaded.wait().ok());  // staging
      m.fill("fill", step * 10);
      CHECK(made.wait_on(m.a).ok());  // x is read
      uploaded = *m.d0.copy_in(m.a, m.x, 0, m.staging, "upload");
      CHECK(uploaded.wait_on(m.b).ok());
      CHECK(moved.wait_on(m.b).ok());  // y is read
      Block scratch = *m.d0.allocate(m.b, n, line);
      m.kernel(m.b, "one", m.x, scratch);
      made = m.kernel(m.b, "two", scratch, m.y);
      m.d0.deallocate(m.b, scratch);
      CHECK(made.wait_on(m.c).ok());
      CHECK(reduced.wait_on(m.c).ok());  // w is read
      moved = *m.d0.copy(m.c, m.w, 0, m.y, 0, n, "send");
      CHECK(moved.wait_on(m.far).ok());
      Block out = *m.d1.allocate(m.far, n, line);
      reduced = m.kernel(m.far, "three", m.w, out);
      downloaded = *m.d1.copy_out(m.far, out, 0, m.result, "download");
      m.d1.deallocate(m.far, out);
      CHECK(downloaded.wait().ok());
      CHECK(m.look("check") == step * 10 + 3);
    }
    m.machine.drain();
    CAPTURE(all_races(m.machine));
    REQUIRE(m.machine.watch().count() == 0);
  }
}

TEST_CASE("race_detector: what order the wrong program ran in does not matter, its bytes may even be right") {
  int right_bytes = 0, wrong_bytes = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    World m(seed);
    m.fill("fill", 7);
    CHECK(m.d0.copy_in(m.a, m.x, 0, m.staging, "upload").ok());
    m.kernel(m.b, "matmul", m.x, m.y);
    RaceCheckedEvent down = *m.d0.copy_out(m.b, m.y, 0, m.result, "download");
    CHECK(down.wait().ok());
    (m.look("check") == 8 ? right_bytes : wrong_bytes) += 1;
    m.machine.drain();
    CHECK(m.machine.watch().count() == 1);
  }
  CHECK(right_bytes > 10);
  CHECK(wrong_bytes > 10);
}

TEST_CASE("race_detector: a race is told as one sentence with both operations, their streams and the bytes") {
  World m(3);
  m.fill("fill", 1);
  CHECK(m.d0.copy_in(m.a, m.x, 0, m.staging, "upload").ok());
  CHECK(m.b.launch("matmul", {reads({m.x.data + 64, 128})}, [] {}).ok());
  m.machine.drain();
  REQUIRE(m.machine.watch().races().size() == 1);
  const Race& r = m.machine.watch().races()[0];
  CHECK(r.bytes == Block{m.x.data + 64, 128});
  const std::string text = all_races(m.machine);
  const bool upload_first = r.first.operation == "upload";
  CHECK(text == (upload_first ? "unordered: write by 'upload' (a #1) and read by 'matmul' (b #1) touch 128 bytes at 64 of device 0, "
                                "and no event orders them\n"
                              : "unordered: read by 'matmul' (b #1) and write by 'upload' (a #1) touch 128 bytes at 64 of device 0, "
                                "and no event orders them\n"));
  m.machine.watch().clear();
  CHECK(m.machine.watch().count() == 0);
}

TEST_CASE("race_detector: a loop that races tells it once, and what is kept is bounded") {
  World m(1);
  std::vector<std::string> names;
  for (int i = 0; i < 400; ++i) names.push_back("writer " + std::to_string(i));
  for (int i = 0; i < 400; ++i) {
    CHECK(m.a.launch("writer", {writes(m.x)}, [] {}).ok());
    CHECK(m.b.launch("reader", {reads(m.x)}, [] {}).ok());
    CHECK(m.a.launch(names[static_cast<std::size_t>(i)], {writes(m.y)}, [] {}).ok());
    CHECK(m.b.launch("other reader", {reads(m.y)}, [] {}).ok());
  }
  m.machine.drain();
  int loops = 0;
  for (const Race& r : m.machine.watch().races()) loops += r.first.operation == "writer" || r.second.operation == "writer" ? 1 : 0;
  CHECK(loops == 1);
  CHECK(m.machine.watch().races().size() == RaceDetector::limit);
  CHECK(m.machine.watch().count() >= RaceDetector::limit);
}
