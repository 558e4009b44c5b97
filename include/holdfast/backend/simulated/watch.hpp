// backend/simulated: devices on the host that reorder whatever nothing orders, and the detector of what that reveals.
// In the flow: sources of memory like any other backend; programs under test run on them instead of real devices.
// A timeline runs operations by a seeded virtual clock, on the thread that waits; the bytes are real.
// A watch sees every access and every order; `NoWatch` sees nothing and costs nothing.
// Nothing here starts a thread. Bookkeeping comes from the heap, as in any testing tool.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "holdfast/core/block.hpp"

namespace holdfast {

/// What an operation does to bytes; reading and writing them is a write.
enum class Touch : std::uint8_t { read, write, allocate, free };

/// Bytes and what is done to them.
struct MemoryTouch {
  Block block;
  Touch touch = Touch::read;
};

/// Declares that an operation reads bytes.
[[nodiscard]] constexpr MemoryTouch reads(Block block) noexcept { return {block, Touch::read}; }
/// Declares that an operation writes bytes, or reads and writes them.
[[nodiscard]] constexpr MemoryTouch writes(Block block) noexcept { return {block, Touch::write}; }

/// Something whose operations follow one another: the host, or a stream.
enum class ActorId : std::uint32_t {};
/// All host code, callbacks included: what one host thread has seen, all have. Races among threads are not looked for.
inline constexpr ActorId host_actor{0};

/// Something that is shown all accesses to memory and all that orders them.
///
/// `release` gives what an actor has seen until now, `acquire` makes another see it too; `begin` starts an actor's next
/// operation, to which the following `touch`es belong; `name_region` says what to call some bytes. Names must outlive the
/// watch. The caller serialises all calls.
template <class W>
concept order_watch = std::default_initializable<W> && std::copyable<typename W::clock_type> &&
    requires(W& watch, ActorId actor, const typename W::clock_type& clock, std::string_view name, std::uint64_t number,
             Block block, const MemoryTouch& touch) {
      { W::enabled } -> std::convertible_to<bool>;
      { watch.add_actor(name, number) } noexcept -> std::same_as<ActorId>;
      { watch.name_region(name, number, block) } noexcept -> std::same_as<void>;
      { watch.release(actor) } noexcept -> std::same_as<typename W::clock_type>;
      { watch.acquire(actor, clock) } noexcept -> std::same_as<void>;
      { watch.begin(actor, name) } noexcept -> std::same_as<void>;
      { watch.touch(actor, touch) } noexcept -> std::same_as<void>;
    };

/// Sees nothing: the do-nothing model, takes no room.
struct NoWatch {
  static constexpr bool enabled = false;
  struct clock_type {};

  static constexpr ActorId add_actor(std::string_view, std::uint64_t) noexcept { return host_actor; }
  static constexpr void name_region(std::string_view, std::uint64_t, Block) noexcept {}
  static constexpr clock_type release(ActorId) noexcept { return {}; }
  static constexpr void acquire(ActorId, clock_type) noexcept {}
  static constexpr void begin(ActorId, std::string_view) noexcept {}
  static constexpr void touch(ActorId, const MemoryTouch&) noexcept {}
};
static_assert(order_watch<NoWatch>);

}  // namespace holdfast
