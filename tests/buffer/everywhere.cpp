// SPDX-License-Identifier: Apache-2.0
// The catalogue's tracked-buffer entries on host memory and on a simulated device, under every hold policy that counts.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "holdfast/buffer/undonatable_buffer.hpp"
#include "support/places.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
constexpr std::string_view text = "tracked_cpu_device_buffer_test";
std::vector<std::byte> bytes_in(std::string_view s) {
  const auto bytes = std::as_bytes(std::span(s));
  return {bytes.begin(), bytes.end()};
}
template <class W>
typename W::Buffer make(typename W::Place& place, Bytes size, std::span<const typename W::Event> definition = {}) {
  return std::move(*W::Buffer::make(*W::Raw::allocate(place.backend(), size), definition));
}
}  // namespace

TEST_CASE_TEMPLATE("everywhere: T-C1 a worker writes and readies the definition event, T-C2 or fails it; blocking tells either", W,
                   HOLDFAST_TEST_PLACES) {
  for (const bool fails : {false, true}) {
    typename W::Place place;
    auto written = place.promise();
    const typename W::Event definition[] = {written.get_event()};
    auto b = make<W>(place, 30, definition);
    auto raw = typename W::Raw(b.hold(HoldKind::usage)->raw());
    std::thread worker([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (!fails) fill(raw, bytes_in(text));
      static_cast<void>(fails ? written.set_error(make_error(Errc::internal, "tracked_cpu_device_buffer_test error.")) : written.set());
    });
    const Error e = b.block_for_operations();
    worker.join();
    CHECK(e.ok() == !fails);
    if (fails) CHECK(says(e, "Error Execute: tracked_cpu_device_buffer_test error."));
    else CHECK(bytes_of(raw) == bytes_in(text));
  }
}

TEST_CASE_TEMPLATE("everywhere: T-C3 two leaves are waited for as one event, T-C4 the second's error is not masked", W, HOLDFAST_TEST_PLACES) {
  for (const bool fails : {false, true}) {
    typename W::Place place;
    auto first = place.promise(), second = place.promise();
    const typename W::Event events[] = {first.get_event(), second.get_event()};
    auto a = make<W>(place, 30, std::span(events).first(1)), b = make<W>(place, 5, std::span(events).last(1));
    fill(a.hold(HoldKind::usage)->raw(), bytes_in(text));
    fill(b.hold(HoldKind::usage)->raw(), bytes_in("tuple"));
    const typename W::Event merged = *after_all<typename W::Event>(events);
    CHECK(first.set().ok());
    CHECK(!merged.ready());
    CHECK((fails ? second.set_error(make_error(Errc::internal, "second leaf error.")) : second.set()).ok());
    CHECK(merged.wait().ok() == !fails);
    if (fails) CHECK(says(merged.wait(), "second leaf error."));
    CHECK(bytes_of(a.hold(HoldKind::usage)->raw()) == bytes_in(text));
    CHECK(bytes_of(b.hold(HoldKind::usage)->raw()) == bytes_in("tuple"));
  }
}

TEST_CASE_TEMPLATE("everywhere: T-G2 memory that a buffer does not own is as it was when the buffer is gone", W, HOLDFAST_TEST_PLACES) {
  typename W::Place place;
  auto backend = place.backend();
  const Block block = *backend.allocate(100, Alignment(64));
  for (const bool owns : {false, true}) {
    auto raw = owns ? W::Raw::allocate(place.backend(), 100) : W::Raw::import_foreign(place.backend(), block, {});
    REQUIRE(raw.ok());
    {
      auto b = std::move(*W::Buffer::make(std::move(*raw)));
      CHECK((b.hold(HoldKind::usage)->raw().block() == block) == !owns);
    }
    CHECK(place.holds_memory());
  }
  backend.deallocate(block);
  CHECK(!place.holds_memory());
}

TEST_CASE_TEMPLATE("everywhere: T-G1 moved memory keeps its address, T-G6 an external reference does not wait (R3)", W, HOLDFAST_TEST_PLACES) {
  typename W::Place place;
  auto raw = *W::Raw::allocate(place.backend(), 100);
  const std::byte* address = raw.data();
  auto moved = std::move(raw);
  CHECK(!raw);
  CHECK(moved.data() == address);
  auto written = place.promise();
  const typename W::Event definition[] = {written.get_event()};
  auto b = std::move(*W::Buffer::make(std::move(moved), definition));
  auto external = b.hold(HoldKind::external);
  REQUIRE(external.ok());
  CHECK(external->raw().data() == address);
  CHECK(!external->definition_events()[0].ready());
  CHECK(written.set().ok());
}

TEST_CASE_TEMPLATE("everywhere: T-G4 T-G7 T-G8 released without waiting at once, with waiting after definition and readers; then null", W,
                   HOLDFAST_TEST_PLACES) {
  for (const bool waits : {false, true}) {
    typename W::Place place;
    auto written = place.promise(), read = place.promise();
    const typename W::Event definition[] = {written.get_event()};
    auto b = make<W>(place, 100, definition);
    const std::byte* address = b.hold(HoldKind::usage)->raw().data();
    b.hold(HoldKind::usage)->convert(read.get_event());
    std::atomic<bool> both{false};
    std::optional<std::thread> worker;
    if (waits)
      worker.emplace([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        static_cast<void>(written.set());
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        both = true;
        static_cast<void>(read.set());
      });
    auto raw = b.release_ownership(waits);
    CHECK(both.load() == waits);
    if (worker) worker->join();
    REQUIRE(raw.ok());
    CHECK(raw->data() == address);
    CHECK(b.is_deleted());
    CHECK(!*b.release_ownership(false));
    if (!waits) {
      CHECK(written.set().ok());
      CHECK(read.set().ok());
    }
  }
}

TEST_CASE_TEMPLATE("everywhere: T-G9 deleted at once, freed right after the last event and not before", W, HOLDFAST_TEST_PLACES) {
  typename W::Place place;
  auto written = place.promise(), read = place.promise();
  const typename W::Event definition[] = {written.get_event()};
  auto b = make<W>(place, 100, definition);
  b.hold(HoldKind::usage)->convert(read.get_event());
  CHECK(b.release().ok());
  CHECK(b.is_deleted());
  CHECK(place.holds_memory());
  CHECK(written.set().ok());
  CHECK(place.holds_memory());
  CHECK(read.set_error(make_error(Errc::internal, "a reader's error orders all the same")).ok());
  CHECK(!place.holds_memory());
}

TEST_CASE_TEMPLATE("everywhere: T-D2 donated with a dependency the old buffer is gone at once, the new one comes after the event", W,
                   HOLDFAST_TEST_PLACES) {
  typename W::Place place;
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  auto read = place.promise(), dependency = place.promise();
  std::optional<typename W::Buffer> old(make<W>(place, 24));
  fill(old->hold(HoldKind::usage)->raw(), view_of(values));
  old->hold(HoldKind::usage)->convert(read.get_event());
  auto fresh = old->donate_with_dependency(dependency.get_event());
  REQUIRE(fresh.ok());
  CHECK(old->is_deleted());
  old.reset();
  auto ready = *fresh->ready_event();
  CHECK(!ready.ready());
  CHECK(dependency.set().ok());
  CHECK(ready.wait().ok());
  CHECK(std::memcmp(bytes_of(fresh->hold(HoldKind::usage)->raw()).data(), values.data(), 24) == 0);
  CHECK(read.set().ok());
}

TEST_CASE_TEMPLATE("everywhere: T-U1 T-U4 T-U6 T-U7 an undonatable buffer serves its source's bytes, refuses to be donated, fails as they do", W,
                   HOLDFAST_TEST_PLACES) {
  for (const bool fails : {false, true}) {
    typename W::Place place;
    auto written = place.promise();
    const typename W::Event definition[] = {written.get_event()};
    auto source = make<W>(place, 16, definition);
    const std::byte* address = source.hold(HoldKind::usage)->raw().data();
    auto served = UndonatableBuffer<typename W::Buffer>::make(source);
    REQUIRE(served.ok());
    CHECK(source.is_deleted());
    CHECK(served->raw().data() == address);
    CHECK(status_kind(served->hold(HoldKind::donation).error()) == StatusKind::invalid_argument);
    CHECK(served->hold(HoldKind::usage)->raw().data() == address);
    CHECK(served->ready_event() == served->ready_event());
    CHECK(!served->ready_event().ready());
    CHECK((fails ? written.set_error(make_error(Errc::internal, "fake error")) : written.set()).ok());
    CHECK(says(served->ready_event().wait(), "fake error") == fails);
    CHECK(UndonatableBuffer<typename W::Buffer>::make(source).error().code == Errc::donated);
  }
}

TEST_CASE_TEMPLATE("everywhere: a raw buffer for usage comes with a promise that ends it, and the memory stays until then", W, HOLDFAST_TEST_PLACES) {
  typename W::Place place;
  auto written = place.promise();
  const typename W::Event definition[] = {written.get_event()};
  auto b = make<W>(place, 16, definition);
  {
    auto use = b.raw_for_usage("CopyRaw called on deleted or donated buffer");
    REQUIRE(use.ok());
    CHECK(!use->ready.ready());
    CHECK(written.set().ok());
    CHECK(use->ready.wait().ok());
    CHECK(b.counts() == HoldCounts{});
    CHECK(b.release().ok());
    use->raw = typename W::Raw();
    CHECK(place.holds_memory());
    CHECK(use->done.set().ok());
    CHECK(!place.holds_memory());
  }
  const Error gone = b.raw_for_usage("CopyRaw called on deleted or donated buffer").error();
  CHECK(status_kind(gone) == StatusKind::invalid_argument);
  CHECK(says(gone, "CopyRaw called on deleted or donated buffer"));
}
