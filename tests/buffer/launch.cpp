// SPDX-License-Identifier: Apache-2.0
#include "holdfast/buffer/launch.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <thread>
#include <vector>

#include "holdfast/backend/simulated/race_checked.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/hold/local_hold.hpp"
#include "holdfast/hold/striped_hold.hpp"
#include "support/gate.hpp"
#include "support/texts.hpp"

#define COUNTING_HOLDS LocalHold, SharedHold, StripedHold

using namespace holdfast;
using namespace holdfast::testing;

namespace {

template <class Hold>
using Buffer = TrackedBuffer<LoggedMemory, HostEvent, Hold>;
template <class Hold>
using Argument = LaunchArgument<Buffer<Hold>>;

template <class Hold>
Buffer<Hold> make(MemoryLog& log, std::span<const HostEvent> definition = {}, Bytes size = 4) {
  return std::move(*Buffer<Hold>::make(*Buffer<Hold>::raw_type::allocate(LoggedMemory(log), size), definition));
}
template <class Hold>
Result<LaunchHolds<Buffer<Hold>>> acquire(const std::vector<Argument<Hold>>& arguments, const LaunchOptions& options = {}) {
  return acquire_arguments<Buffer<Hold>>(arguments, options);
}
bool free_again(const HoldCounts& c) { return c == HoldCounts{}; }

}  // namespace

TEST_CASE_TEMPLATE("launch: T-D1 and case 01 h, i, one buffer donated and used in a call fails before any hold, by the right name",
                   Hold, COUNTING_HOLDS) {
  MemoryLog log;
  auto a = make<Hold>(log);
  CHECK(acquire<Hold>({{&a}, {&a}}).ok());
  const struct {
    bool first, second;
    const char* text;
  } rows[] = {{true, false, "f(donate(a), a)"}, {false, true, "f(a, donate(a))"}, {true, true, "f(donate(a), donate(a))"}};
  for (const auto& row : rows) {
    StringSink details;
    const std::vector<Argument<Hold>> arguments = {{&a, row.first}, {&a, row.second}};
    const auto launch = acquire_arguments<Buffer<Hold>>(arguments, {}, details);
    CHECK(status_kind(launch.error()) == StatusKind::invalid_argument);
    CHECK(says(launch.error(), row.text));
    CHECK(launch.error().at == 1);
    CHECK(details.text == "first used as argument 0");
    CHECK(free_again(a.counts()));
    CHECK(!a.is_deleted());
  }
  auto b = make<Hold>(log);
  StringSink details;
  const std::vector<Argument<Hold>> far = {{&a}, {&b, true}, {&a}, {&a, true}};
  CHECK(acquire_arguments<Buffer<Hold>>(far, {}, details).error().at == 3);
  CHECK(details.text == "first used as argument 0");
}

TEST_CASE_TEMPLATE("launch: all or none, a buffer that is gone or referenced leaves the others as they were", Hold, COUNTING_HOLDS) {
  MemoryLog log;
  auto a = make<Hold>(log), gone = make<Hold>(log), referenced = make<Hold>(log);
  CHECK(gone.release().ok());
  const auto x = referenced.hold(HoldKind::external);
  const auto deleted = acquire<Hold>({{&a, true}, {&gone}, {&referenced}});
  CHECK(deleted.error().code == Errc::deleted);
  CHECK(deleted.error().at == 1);
  const auto held = acquire<Hold>({{&a, true}, {&referenced, true}});
  CHECK(held.error().code == Errc::held);
  CHECK(held.error().at == 1);
  CHECK(acquire<Hold>({{&a}, {nullptr}}).error().code == Errc::invalid_argument);
  CHECK(free_again(a.counts()));
}

TEST_CASE_TEMPLATE("launch: T-D11 with a view alive the launch may use instead of donate, and the buffer is not deleted", Hold,
                   COUNTING_HOLDS) {
  MemoryLog log;
  auto b = make<Hold>(log);
  auto view = b.hold(HoldKind::external);
  LaunchOptions options;
  options.copy_if_referenced = true;
  auto launch = acquire<Hold>({{&b, true}}, options);
  REQUIRE(launch.ok());
  CHECK(!launch->reusable(0));  // so the output gets a new address
  launch->enqueued(HostEvent());
  CHECK(!b.is_deleted());
  CHECK(view->raw().size() == 4);
}

TEST_CASE_TEMPLATE("launch: T-D10 a donation hands the same address to the output, and a second one fails", Hold, COUNTING_HOLDS) {
  MemoryLog log;
  auto b = make<Hold>(log, {}, 4000);
  const std::byte* address = b.hold(HoldKind::usage)->raw().data();
  auto launch = acquire<Hold>({{&b, true, 4000}});
  REQUIRE(launch.ok());
  auto reused = launch->reusable(0);
  CHECK(reused.data() == address);
  launch->enqueued(HostEvent());
  CHECK(b.is_deleted());
  CHECK(acquire<Hold>({{&b, true}}).error().code == Errc::donated);
  CHECK(b.release().ok());
  auto out = Buffer<Hold>::make(std::move(reused));
  CHECK(out->hold(HoldKind::usage)->raw().data() == address);
  CHECK(log.allocations == 1);
}

TEST_CASE_TEMPLATE("launch: T-D4 an argument denied at run time is used, not deleted; without the denial it is donated", Hold,
                   COUNTING_HOLDS) {
  MemoryLog log;
  auto b = make<Hold>(log, {}, 16);
  const std::uint32_t denied[] = {0};
  LaunchOptions options;
  options.not_donated = denied;
  acquire<Hold>({{&b, true}}, options)->enqueued(HostEvent());
  CHECK(!b.is_deleted());
  acquire<Hold>({{&b, true}})->enqueued(HostEvent());
  CHECK(b.is_deleted());
}

TEST_CASE_TEMPLATE("launch: T-D3 a failed definition event predetermines the error of the outputs, the call itself is fine", Hold,
                   COUNTING_HOLDS) {
  MemoryLog log;
  const HostEvent failed[] = {*HostEvent::make_failed(make_error(Errc::internal, "test error"))};
  auto bad = std::move(*Buffer<Hold>::make({}, failed)), good = make<Hold>(log);
  for (int i = 0; i < 2; ++i) {
    auto launch = acquire<Hold>({{&good}, {&bad}});
    REQUIRE(launch.ok());
    const Error e = launch->predetermined_error();
    CHECK(status_kind(e) == StatusKind::internal);
    const HostEvent outputs_fail = *HostEvent::make_failed(e);
    auto out = Buffer<Hold>::make({}, std::span(&outputs_fail, 1));
    launch->enqueued(outputs_fail);
    CHECK(says(out->ready_event()->wait(), "test error"));
    CHECK(status_kind(out->ready_event()->wait()) == StatusKind::internal);
  }
  CHECK(log.allocations == 1);
  CHECK(!good.is_deleted());
}

TEST_CASE_TEMPLATE("launch: T-D5 a donation whose kernel fails is a donation all the same", Hold, COUNTING_HOLDS) {
  MemoryLog log;
  auto b = make<Hold>(log, {}, 16);
  HostPromise run = *HostPromise::make();
  const HostEvent done[] = {run.get_event()};
  auto launch = acquire<Hold>({{&b, true}});
  auto out = Buffer<Hold>::make(launch->reusable(0), done);
  launch->enqueued(done[0]);
  CHECK(run.set_error(make_error(Errc::device_fault, "test error.")).ok());
  CHECK(says(out->ready_event()->wait(), "test error."));
  const auto again = acquire<Hold>({{&b, true}});
  CHECK(says(again.error(), "Buffer has been deleted or donated."));
}

TEST_CASE_TEMPLATE("launch: T-D6 of two devices' launches one with the wrong size stops both before either runs, 50 rounds", Hold,
                   COUNTING_HOLDS) {
  MemoryLog log;
  auto a = make<Hold>(log, {}, 4), b = make<Hold>(log, {}, 8);
  int launched = 0;
  for (int round = 0; round < 50; ++round) {
    auto first = acquire<Hold>({{&a, false, 4}}), second = acquire<Hold>({{&b, false, 4}});
    if (first.ok() && second.ok()) ++launched;
    CHECK(says(second.error(), "input mismatch"));
    CHECK(says(second.error(), "requested 4, available 8"));
  }
  CHECK(launched == 0);
  CHECK(free_again(a.counts()));
}

TEST_CASE_TEMPLATE("launch: dependencies are pending or failed definitions and donated arguments' pending readers, each once", Hold,
                   COUNTING_HOLDS) {
  MemoryLog log;
  HostPromise defined = *HostPromise::make(), read = *HostPromise::make(), other = *HostPromise::make();
  const HostEvent definition[] = {defined.get_event(), HostEvent()};
  auto used = make<Hold>(log, definition), donated = make<Hold>(log, definition);
  used.hold(HoldKind::usage)->convert(other.get_event());
  donated.hold(HoldKind::usage)->convert(read.get_event());
  auto launch = acquire<Hold>({{&used}, {&donated, true}});
  EventList<HostEvent> extra, control;
  CHECK(launch->append_dependencies(extra, control).ok());
  REQUIRE(extra.size() == 1);
  CHECK(extra.span()[0] == definition[0]);
  REQUIRE(control.size() == 1);
  CHECK(control.span()[0] == read.get_event());
  CHECK(launch->predetermined_error().ok());
  HostPromise run = *HostPromise::make();
  launch->enqueued(run.get_event());
  CHECK(used.counts().usage == 0);
  CHECK(donated.is_deleted());
  CHECK(defined.set().ok());
  CHECK(read.set().ok());
  CHECK(log.frees == 0);
  CHECK(run.set().ok());
  CHECK(log.frees == 1);
}

TEST_CASE("launch: launches that donate and use each other's buffers never wait for one another") {
  MemoryLog log;
  auto a = make<SharedHold>(log), b = make<SharedHold>(log);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        std::vector<Argument<SharedHold>> arguments = {{&a, t % 2 == 0}, {&b, t % 2 == 1}};
        if (t >= 2) std::swap(arguments[0], arguments[1]);
        CHECK(acquire<SharedHold>(arguments).ok());  // dropped: the buffers stay
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(free_again(a.counts()));
}

TEST_CASE_TEMPLATE("launch: T-D9 a portable launch on a device that is not addressable is refused, and so is an argument on another", Hold,
                   COUNTING_HOLDS) {
  SimulatedMachine machine;
  const SimulatedDevice first = *machine.add_device(4096), second = *machine.add_device(4096), remote = *machine.add_device(4096);
  const SimulatedDevice addressable[] = {first, second};
  using Placed = TrackedBuffer<SimulatedDevice, SimulatedEvent, Hold>;
  auto a = std::move(*Placed::allocate(first, 64)), b = std::move(*Placed::allocate(second, 64)), null = std::move(*Placed::make({}));
  const LaunchArgument<Placed> alone[] = {{&a}, {&null}}, mixed[] = {{&a}, {&b}};
  {
    auto launch = acquire_arguments<Placed>(alone);
    const Error e = launch->check_device(remote, std::span<const SimulatedDevice>(addressable));
    CHECK(status_kind(e) == StatusKind::invalid_argument);
    CHECK(says(e, "not addressable"));
    CHECK(launch->check_device(first, std::span<const SimulatedDevice>(addressable)).ok());
    CHECK(launch->check_device(second, std::span<const SimulatedDevice>(addressable)).at == 0);
  }
  {
    auto launch = acquire_arguments<Placed>(mixed);
    const Error e = launch->check_device(first, std::span<const SimulatedDevice>(addressable));
    CHECK(status_kind(e) == StatusKind::invalid_argument);
    CHECK(e.at == 1);
  }
  CHECK(free_again(a.counts()));
  CHECK(free_again(b.counts()));
}
