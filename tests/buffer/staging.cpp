// SPDX-License-Identifier: Apache-2.0
#include "holdfast/buffer/staging.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "support/places.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
const std::vector<float> ones(1024, 1.f);
}

TEST_CASE_TEMPLATE("staging: T-R8 f32[1024] of 1.0 comes back equal with staging on and off, and the predicate follows the option", W,
                   HOLDFAST_TEST_PLACES) {
  using Raw = typename W::Raw;
  using Event = typename W::Event;
  typename W::Place place;
  for (const bool enabled : {false, true}) {
    const Staging<SystemMemory> staging{SystemMemory{}, enabled};
    CHECK(staging.applies_to<typename W::Backend>() == (enabled && !host_accessible<typename W::Backend>));
    Raw raw = *Raw::allocate(place.backend(), 4096);
    std::vector<float> in = ones, out(1024, 0.f);
    Event written = *copy_in_staged<Raw, Event>(raw, 0, view_of(in), {}, staging);
    if (staging.applies_to<typename W::Backend>()) std::fill(in.begin(), in.end(), 2.f);  // the bytes are in the stage
    Event read = *copy_out_staged<Raw, Event>(raw, 0, std::as_writable_bytes(std::span(out)), std::span<const Event>(&written, 1), staging);
    CHECK(read.wait().ok());
    CHECK(out == ones);
    CHECK(says((copy_in_staged<Raw, Event>(raw, 1, view_of(in), {}, staging).error()), "invalid offset 1"));
    CHECK(says((copy_out_staged<Raw, Event>(raw, 8, std::as_writable_bytes(std::span(out)), {}, staging).error()), "invalid offset 8"));
  }
}

TEST_CASE("staging: without memory to stage in a staged copy is INVALID_ARGUMENT, at once") {
  DevicePlace place;
  using Raw = RawBuffer<RaceCheckedDevice>;
  using Event = RaceCheckedEvent;
  const Staging<SystemMemory> nowhere{{}, true};
  Raw raw = *Raw::allocate(place.backend(), 8);
  std::vector<std::byte> bytes(8);
  CHECK(status_kind(copy_in_staged<Raw, Event>(raw, 0, bytes, {}, nowhere).error()) == StatusKind::invalid_argument);
  CHECK(status_kind(copy_out_staged<Raw, Event>(raw, 0, bytes, {}, nowhere).error()) == StatusKind::invalid_argument);
  CHECK(status_kind(copy_through<Raw, Raw, Event>(raw, raw, {}, nowhere).error()) == StatusKind::invalid_argument);
}

TEST_CASE("staging: two memories that the host cannot use exchange bytes through it; a failure before leaves the target alone") {
  DevicePlace place;
  using Raw = RawBuffer<RaceCheckedDevice>;
  using Event = RaceCheckedEvent;
  const Staging<SystemMemory> staging{SystemMemory{}, false};
  Raw from = *Raw::allocate(place.backend(), 4096), to = *Raw::allocate(place.backend(), 4096);
  fill(from, view_of(ones));
  fill(to, std::vector<std::byte>(4096, std::byte{7}));
  CHECK(copy_through<Raw, Raw, Event>(from, *to.slice(0, 4095), {}, staging).error().code == Errc::invalid_argument);
  auto go = place.promise();
  const Event failed[] = {go.get_event()};
  Event poisoned = *copy_through<Raw, Raw, Event>(from, to, failed, staging);
  CHECK(go.set_error(make_error(Errc::internal, "copy failed")).ok());
  CHECK(says(poisoned.wait(), "copy failed"));
  CHECK(bytes_of(to)[0] == std::byte{7});
  Event done = *copy_through<Raw, Raw, Event>(from, to, {}, staging);
  from = Raw();
  CHECK(done.wait().ok());
  const std::vector<std::byte> bytes = bytes_of(to);
  CHECK(std::memcmp(bytes.data(), ones.data(), 4096) == 0);
}
