// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <type_traits>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/backend/layer/limited.hpp"
#include "holdfast/backend/layer/observed.hpp"
#include "holdfast/backend/stack.hpp"
#include "holdfast/buffer/tracked_buffer.hpp"
#include "holdfast/event/host_event.hpp"
#include "holdfast/hold/local_hold.hpp"
#include "holdfast/hold/no_hold.hpp"

using namespace holdfast;

// What costs nothing takes no room.
static_assert(sizeof(TrackedBuffer<SystemMemory, ImmediateEvent, NoHold>) == sizeof(Block));
static_assert(sizeof(RawBuffer<SystemMemory, Unique>) == sizeof(Block));
static_assert(std::is_empty_v<ImmediateEvent> && std::is_empty_v<NoHold> && std::is_empty_v<EmptyMemory>);

// Layers that do nothing neither; one with a state is a pointer more.
using Unobserved = Stack<SystemMemory, Observed<NoObserver>>;
static_assert(std::is_empty_v<Unobserved> && sizeof(TrackedBuffer<Unobserved, ImmediateEvent, NoHold>) == sizeof(Block));
static_assert(sizeof(Stack<SystemMemory, Limited>) == sizeof(void*) && std::is_trivially_copyable_v<Stack<SystemMemory, Limited>>);
static_assert(sizeof(RawBuffer<Stack<SystemMemory, Limited>, Unique>) == sizeof(Block) + sizeof(void*));

// Handles are one pointer, so they move for nothing and holds survive the move.
static_assert(sizeof(TrackedBuffer<SystemMemory, HostEvent, SharedHold>) == sizeof(void*));
static_assert(sizeof(TrackedBuffer<SystemMemory, ImmediateEvent, LocalHold>) == sizeof(void*));
static_assert(sizeof(HostEvent) == sizeof(void*) && sizeof(HostPromise) == sizeof(void*));
static_assert(sizeof(SharedHold) == 8 && sizeof(LocalHold) == 8);
static_assert(std::is_trivially_copyable_v<Error> && std::is_trivially_copyable_v<HoldState>);

// Who owns memory, a promise or a hold does not copy.
static_assert(!std::is_copy_constructible_v<TrackedBuffer<SystemMemory>> && !std::is_copy_constructible_v<HostPromise>);
static_assert(!std::is_copy_constructible_v<ScopedHold<TrackedBuffer<SystemMemory>>>);
static_assert(!std::is_move_assignable_v<ScopedHold<TrackedBuffer<SystemMemory>>>);
static_assert(!std::is_copy_constructible_v<RawBuffer<SystemMemory, Unique>> && std::is_copy_constructible_v<RawBuffer<SystemMemory>>);
static_assert(std::is_nothrow_move_constructible_v<TrackedBuffer<SystemMemory>>);

TEST_CASE("layout: the run side's sizes and copies are as designed (static_assert)") {
  CHECK(sizeof(TrackedBuffer<SystemMemory, ImmediateEvent, NoHold>) == sizeof(Block));
}
