// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/stack.hpp"

#include <doctest/doctest.h>

#include <type_traits>

#include "holdfast/backend/layer/aligned.hpp"
#include "holdfast/backend/layer/limited.hpp"
#include "holdfast/backend/layer/locked.hpp"
#include "holdfast/backend/layer/observed.hpp"
#include "holdfast/backend/layer/retrying.hpp"
#include "holdfast/backend/simulated/machine.hpp"
#include "support/strict_memory.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

// Layers that do nothing take no room, however many and though some are the same.
using Nothing = Stack<SystemMemory, Aligned<256>, Observed<NoObserver>, Observed<NoObserver>, Locked<NoLock>, Locked<NoLock>,
                      Retrying<NoHandler>>;
static_assert(std::is_empty_v<Nothing> && sizeof(Nothing) == 1 && std::is_trivially_copyable_v<Nothing>);
static_assert(std::same_as<Stack<SystemMemory>, SystemMemory>);

// One with a state takes a pointer.
using Held = Stack<SystemMemory, Aligned<64>, Limited, Locked<>, Retrying<WaitForMemory<>>>;
static_assert(sizeof(Held) == 3 * sizeof(void*) && std::is_trivially_copyable_v<Held>);

// What the source can do the stack can do, and nothing else.
using Device = Stack<SimulatedDevice, Aligned<256>, Limited, Observed<NoObserver>, Locked<>, Retrying<NoHandler>>;
static_assert(stream_ordered_backend<Device> && copying_backend<Device> && tagging_backend<Device> && inspectable_backend<Device>);
static_assert(Device::space == MemorySpace::device && !host_accessible<Device>);
static_assert(!stream_ordered_backend<Held> && !copying_backend<Held> && !tagging_backend<Held> && !inspectable_backend<Held>);
static_assert(tagging_backend<Stack<SystemMemory, Observed<NoObserver>>>, "a tag that is looked at is taken");
static_assert(host_accessible<Held>);

// A state that is left out, or one too many, does not compile.
template <class B, class... States>
concept can_be_made = std::constructible_from<B, SystemMemory, States&...>;
static_assert(can_be_made<Limited::layer<SystemMemory>, MemoryLimit> && !can_be_made<Limited::layer<SystemMemory>>);
static_assert(!can_be_made<Locked<>::layer<SystemMemory>> && can_be_made<Locked<NoLock>::layer<SystemMemory>>);

}  // namespace

TEST_CASE("stack: the source comes first and the order of the layers matters") {
  StrictLog log;
  MemoryLimit limit(1000);
  auto rounded_then_counted = make_stack<Stack<StrictMemory, Limited, Aligned<256>>>(StrictMemory(log), limit);
  const Block a = *rounded_then_counted.allocate(100, Alignment(1));
  CHECK(limit.live() == 256);
  rounded_then_counted.deallocate(a);
  CHECK(limit.live() == 0);
  auto counted_then_rounded = make_stack<Stack<StrictMemory, Aligned<256>, Limited>>(StrictMemory(log), limit);
  const Block b = *counted_then_rounded.allocate(100, Alignment(1));
  CHECK(limit.live() == 100);
  counted_then_rounded.deallocate(b);
  CHECK(limit.live() == 0);
  CHECK(log.live.empty());
  CHECK(log.wrong == 0);
}

TEST_CASE("stack: states are given source first, one for each layer that has one, and copies share them") {
  StrictLog log;
  MemoryLimit inner(1000), outer(100);
  using Both = Stack<StrictMemory, Limited, Observed<NoObserver>, Aligned<128>, Limited>;
  Both memory = make_stack<Both>(StrictMemory(log), inner, outer);
  Both copy = memory;
  const Block block = *memory.allocate(100, Alignment(1));
  CHECK(inner.live() == 128);
  CHECK(outer.live() == 100);
  const Error refused = copy.allocate(1, Alignment(1)).error();
  CHECK(refused.code == Errc::over_budget);
  CHECK(refused.at == 100);
  copy.deallocate(block);
  CHECK(inner.live() == 0);
  CHECK(outer.live() == 0);
  CHECK(memory.allocate(0, Alignment(1))->data == nullptr);
}

TEST_CASE("stack: memory in the order of a stream, its copies and its tag go through all layers") {
  SimulatedMachine machine;
  SimulatedDevice source = *machine.add_device(1 << 16);
  MemoryLimit limit(4096);
  WordLock lock;
  Device device = make_stack<Device>(source, limit, lock);
  auto stream = source.make_stream();
  const Block a = *device.allocate(stream, 1000, Alignment(1), Tag{"weights", 3});
  CHECK(limit.live() == 1000);
  const std::byte sent[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
  std::byte got[3] = {};
  CHECK(device.copy_in(stream, a, 10, sent)->wait().ok());
  CHECK(device.copy_out(stream, a, 10, got)->wait().ok());
  CHECK(got[2] == std::byte{3});
  int seen = 0;
  device.visit_blocks([&](Block block, Tag tag) {
    CHECK(block.size == 1024);
    CHECK(tag.number == 3);
    ++seen;
  });
  CHECK(seen == 1);
  CHECK(device.largest_free() == 4096 - 1000);  // the limit is nearer than the capacity
  device.deallocate(stream, a);
  CHECK(limit.live() == 0);
  CHECK(stream.synchronize().ok());
  CHECK(source.available() == 1 << 16);
}
