// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/backend/bfc_pool.hpp"

namespace holdfast {

/// One step of a trace: a block is taken, or the one of that name is freed.
struct BfcEvent {
  bool take = true;
  std::uint32_t id = 0;  ///< below the number of events; free again after its release
  Bytes size = 0;
  Alignment alignment{1};
  BfcEnd end = BfcEnd::lower;  ///< of a two-ended pool
};

/// What a pool made of a trace.
struct BfcReplay {
  std::vector<Bytes> offsets;  ///< by event: where a block came to lie, -1 where there was no room; 0 for releases and empty blocks
  std::size_t failures = 0;
  std::size_t first_failure = static_cast<std::size_t>(-1);  ///< its event; the largest number: none
  BfcStatistics statistics;    ///< in the end
};

/// A source of addresses without memory behind them, each given once, from 2^40 on: what a pool would do, on any machine.
class AddressSource {
 public:
  static constexpr MemorySpace space = MemorySpace::device;
  static constexpr std::uint64_t base = std::uint64_t{1} << 40;
  struct State {
    std::uint64_t used = 0;  ///< bytes given, from `base` on
  };

  explicit AddressSource(State& state) noexcept : state_(&state) {}
  /// Errors: invalid_argument (negative size), out_of_memory (2^62 bytes are all given).
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    if (size < 0) return make_error(Errc::invalid_argument, "a negative number of bytes was asked for");
    if (size == 0) return Block{};
    Bytes at = 0, end = 0;
    if (!checked_align_up(static_cast<Bytes>(base + state_->used), alignment.value(), at) || !checked_add(at, size, end) ||
        end > Bytes{1} << 62)
      return make_error(Errc::out_of_memory, "no addresses are left");
    state_->used = static_cast<std::uint64_t>(end) - base;
    return Block{reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(at)), size};
  }
  void deallocate(Block) noexcept {}

 private:
  State* state_;
};
static_assert(memory_backend<AddressSource> && !host_accessible<AddressSource>);

/// Runs a trace through a pool with given policies; the offsets are the same on every machine.
///
/// Releases of blocks that found no room do nothing. Errors: corrupt (an id beyond the events, taken twice, or freed when it is not
/// out; `at` is the event), out_of_memory (the tables). Cost: as the pool's.
template <class Fit = BestFit, class Split = BfcSplit, class Growth = BoundedGrowth>
[[nodiscard]] Result<BfcReplay> replay_bfc(std::span<const BfcEvent> events, BfcOptions options = {}, Split split = {}, Growth growth = {}) {
  AddressSource::State addresses;
  auto heap = BfcHeap<AddressSource, Fit, Split, Growth>::make(AddressSource(addresses), options, split, growth);
  if (!heap.ok()) return heap.error();
  auto pool = heap->pool();
  enum class State : std::uint8_t { free, out, failed };
  struct Entry {
    Block block;
    State state = State::free;
  };
  std::vector<Entry> places(events.size());
  BfcReplay replay;
  replay.offsets.reserve(events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    const BfcEvent& event = events[i];
    if (event.id >= places.size() || event.take != (places[event.id].state == State::free)) {
      Error e = make_error(Errc::corrupt, "a block of a trace is unknown, taken twice or freed when it is not out");
      e.at_kind = AtKind::count;
      e.at = i;
      return e;
    }
    Entry& place = places[event.id];
    Bytes offset = 0;
    if (event.take) {
      const Result<Block> block = [&] {
        if constexpr (Growth::two_ended)
          return pool.allocate(event.size, event.alignment, event.end);
        else
          return pool.allocate(event.size, event.alignment);
      }();
      place = block.ok() ? Entry{*block, State::out} : Entry{{}, State::failed};
      if (!block.ok()) {
        offset = -1;
        if (replay.failures++ == 0) replay.first_failure = i;
      } else if (block->data != nullptr) {
        offset = static_cast<Bytes>(detail::bfc_address(block->data) - AddressSource::base);
      }
    } else {
      if (place.state == State::out) pool.deallocate(place.block);
      place = {};
    }
    replay.offsets.push_back(offset);
  }
  replay.statistics = pool.statistics();
  return replay;
}

}  // namespace holdfast
