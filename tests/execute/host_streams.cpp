// SPDX-License-Identifier: Apache-2.0
#include "holdfast/execute/host_streams.hpp"

#include <atomic>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace holdfast;

namespace {

/// Work that notes the order in which it ran.
struct Log {
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  std::atomic<int> count{0};
  std::vector<int> at = std::vector<int>(TaskWindow::slots, -1);
  int fail_slot = -1;
  int also_fail = -1;

  static Error run(void* self, std::uint32_t slot) noexcept {
    auto& log = *static_cast<Log*>(self);
    const int now = ++log.running;
    for (int known = log.most; known < now && !log.most.compare_exchange_weak(known, now);) {
    }
    log.at[slot] = log.count++;
    --log.running;
    const int s = static_cast<int>(slot);
    if (s != log.fail_slot && s != log.also_fail) return {};
    Error e = make_error(Errc::internal, "the test says so");
    e.at = slot;
    return e;
  }
};

constexpr std::uint64_t bit(int slot) { return std::uint64_t{1} << slot; }

struct Signal : Continuation {
  std::atomic<bool> done{false};
  Signal() {
    run = [](Continuation& node) noexcept {
      static_cast<Signal&>(node).done = true;
      static_cast<Signal&>(node).done.notify_all();
    };
  }
  void wait() { done.wait(false); }
};

}  // namespace

TEST_CASE("host_streams: a window runs each piece of work after those it waits for") {
  Log log;
  TaskWindow window(Log::run, &log);
  window.put(5, 0);
  window.put(3, bit(5));
  window.put(9, bit(3) | bit(5));
  window.put(1, bit(9));
  CHECK(window.help_until(0).ok());
  CHECK(log.at[5] < log.at[3]);
  CHECK(log.at[3] < log.at[9]);
  CHECK(log.at[9] < log.at[1]);
  CHECK(window.busy() == 0);
}

TEST_CASE("host_streams: work that waits for nobody is run in the order in which it was put in") {
  Log log;
  TaskWindow window(Log::run, &log);
  for (const int slot : {7, 2, 40, 63, 0}) window.put(static_cast<std::uint32_t>(slot), 0);
  CHECK(window.help_until(0).ok());
  CHECK(log.at[7] == 0);
  CHECK(log.at[2] == 1);
  CHECK(log.at[40] == 2);
  CHECK(log.at[63] == 3);
  CHECK(log.at[0] == 4);
}

TEST_CASE("host_streams: help_until leaves as much behind as it is told") {
  Log log;
  TaskWindow window(Log::run, &log);
  for (std::uint32_t slot = 0; slot < 10; ++slot) window.put(slot, 0);
  CHECK(window.help_until(4).ok());
  CHECK(log.count == 6);
  CHECK(window.help_until(0).ok());
  CHECK(log.count == 10);
}

TEST_CASE(
    "host_streams: after an error nothing more is begun, and the earliest error is the one that is "
    "given") {
  Log log;
  log.fail_slot = 2;
  TaskWindow window(Log::run, &log);
  window.put(1, 0);
  window.put(2, bit(1));
  window.put(3, bit(2));
  const Error e = window.help_until(0);
  CHECK(e.code == Errc::internal);
  CHECK(e.at == 2);
  CHECK(log.at[3] == -1);
  window.put(4, 0);
  CHECK(window.help_until(0).at == 2);
  CHECK(log.at[4] == -1);
}

TEST_CASE(
    "host_streams: threads run nodes in the order of their queue and help a window that is lent") {
  HostStreams streams;
  REQUIRE(streams.start(3).ok());
  CHECK(streams.count() == 3);
  Signal nodes[20];
  for (Signal& n : nodes) streams.execute(n);
  for (Signal& n : nodes) n.wait();

  Log log;
  TaskWindow window(Log::run, &log);
  CHECK(streams.lend(window));
  TaskWindow other(Log::run, &log);
  CHECK_FALSE(streams.lend(other));
  for (int round = 0; round < 200; ++round) {
    for (std::uint32_t slot = 0; slot < TaskWindow::slots; ++slot)
      window.put(slot, slot == 0 ? 0 : bit(static_cast<int>(slot) / 2));
    CHECK(window.help_until(0).ok());
  }
  streams.withdraw(window);
  CHECK(log.count == 200 * static_cast<int>(TaskWindow::slots));
  Signal last;
  streams.execute(last);
  last.wait();
}

TEST_CASE("host_streams: no streams, or more than 64, are refused") {
  HostStreams streams;
  CHECK(streams.start(0).code == Errc::invalid_argument);
  CHECK(streams.start(65).code == Errc::invalid_argument);
  CHECK(streams.count() == 0);
}

TEST_CASE("host_streams: destroying them waits for what is queued") {
  Signal nodes[50];
  {
    HostStreams streams;
    REQUIRE(streams.start(2).ok());
    for (Signal& n : nodes) streams.execute(n);
  }
  for (Signal& n : nodes) CHECK(n.done);
}
