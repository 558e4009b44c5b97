// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "holdfast/concepts/clock.hpp"
#include "holdfast/concepts/observer.hpp"
#include "holdfast/concepts/sync.hpp"

namespace holdfast {

/// What a record tells.
enum class RecordKind : std::uint8_t { allocate, deallocate, failure, hold };

/// One event in the life of memory.
struct Record {
  std::uint64_t id = 0;   ///< number of the event, from 0
  std::int64_t time = 0;  ///< Units: nanoseconds of the recorder's clock
  std::uint64_t thread = 0;
  Block block;  ///< failure: no address, and the size that was asked for
  Tag tag;
  std::uint32_t step = 0;
  RecordKind kind = RecordKind::allocate;
  HoldKind hold = HoldKind::usage;
  std::int16_t change = 0;  ///< of holds
  Errc code = Errc::ok;     ///< of a failure
};

/// One place of a recorder's ring: a cache line.
///
/// `state` is 0 before the first event, 2n + 1 while event n is written, 2n + 2 when it is there.
template <sync Sync>
struct alignas(64) RecordSlot {
  using Word = typename Sync::template atomic<std::uint64_t>;
  Word state{0};
  Word words[7]{};
};

/// An observer that keeps the last events in a ring of fixed size and counts those it lost.
///
/// The memory is the caller's, often a backend's block: a power of two of slots is used, and it
/// must outlive the recorder. Without a slot every event is lost. Events are numbered in the order
/// in which they took their number; a reader beside writers sees whole events only. Threads: any;
/// no event waits for another. Cost: two atomic read-modify-writes, seven stores and the clock.
template <sync Sync, clock Clock>
class BasicRecorder {
 public:
  using Slot = RecordSlot<Sync>;

  /// Takes memory from a backend or from anywhere: a block aligned to 64 bytes.
  explicit BasicRecorder(Block memory, Clock clock = {}) noexcept : clock_(clock) {
    void* at = memory.data;
    std::size_t room = static_cast<std::size_t>(std::max<Bytes>(memory.size, 0));
    if (at == nullptr || std::align(alignof(Slot), sizeof(Slot), at, room) == nullptr) return;
    std::size_t count = 1;
    while (count * 2 <= room / sizeof(Slot)) count *= 2;
    slots_ = {static_cast<Slot*>(at), count};
    std::uninitialized_value_construct(slots_.begin(), slots_.end());
  }
  BasicRecorder(const BasicRecorder&) = delete;
  BasicRecorder& operator=(const BasicRecorder&) = delete;

  void on_allocate(Block block, Tag tag) noexcept { put(RecordKind::allocate, block, tag, 0); }
  void on_deallocate(Block block) noexcept { put(RecordKind::deallocate, block, {}, 0); }
  void on_failure(const Error& e) noexcept {
    put(RecordKind::failure, {nullptr, e.requested}, {}, static_cast<std::uint64_t>(e.code));
  }
  void on_hold(HoldKind kind, int change) noexcept {
    put(RecordKind::hold, {}, {},
        static_cast<std::uint64_t>(kind) |
            (std::uint64_t{static_cast<std::uint16_t>(change)} << 8));
  }

  /// Sets the step of the events that follow. Units: the caller's, such as training steps.
  void set_step(std::uint32_t step) noexcept { step_.store(step, std::memory_order_relaxed); }

  [[nodiscard]] std::size_t capacity() const noexcept { return slots_.size(); }
  /// Events so far, kept or not.
  [[nodiscard]] std::uint64_t count() const noexcept {
    return next_.load(std::memory_order_acquire);
  }
  /// Events that are not kept: overwritten, or dropped where a slower thread still wrote in their
  /// slot.
  [[nodiscard]] std::uint64_t lost() const noexcept {
    std::uint64_t kept = 0;
    visit([&](const Record&) { ++kept; });
    return count() - std::min(kept, count());
  }

  /// Calls `visitor(const Record&)` for the kept events, oldest first. Cost: linear in the slots.
  ///
  /// Threads: any; an event that is written meanwhile is passed over.
  template <class Visitor>
  void visit(Visitor&& visitor) const noexcept {
    const std::uint64_t end = count();
    for (std::uint64_t n = end < slots_.size() ? 0 : end - slots_.size(); n < end; ++n)
      if (Record r; read(n, r)) visitor(static_cast<const Record&>(r));
  }

 private:
  enum Field : std::size_t { time, thread, data, size, name, number, rest };

  void put(RecordKind kind, Block block, Tag tag, std::uint64_t extra) noexcept {
    const std::uint64_t n = next_.fetch_add(1, std::memory_order_relaxed);
    if (slots_.empty()) return;
    Slot& slot = slots_[n & (slots_.size() - 1)];
    std::uint64_t state = slot.state.load(std::memory_order_relaxed);
    // Who is a whole round late, or finds one that is still writing, drops its event: none waits.
    if (state % 2 != 0 || state > 2 * n ||
        !slot.state.compare_exchange_strong(state, 2 * n + 1, std::memory_order_acquire,
                                            std::memory_order_relaxed))
      return;
    // Release: a reader that sees one of these words sees the odd state as well.
    const auto set = [&](Field f, std::uint64_t w) {
      slot.words[f].store(w, std::memory_order_release);
    };
    set(time, static_cast<std::uint64_t>(clock_.now()));
    set(thread, Sync::thread_slot());
    set(data, reinterpret_cast<std::uintptr_t>(block.data));
    set(size, static_cast<std::uint64_t>(block.size));
    set(name, reinterpret_cast<std::uintptr_t>(tag.name));
    set(number, tag.number);
    set(rest, std::uint64_t{step_.load(std::memory_order_relaxed)} << 32 |
                  static_cast<std::uint64_t>(kind) | extra << 8);
    slot.state.store(2 * n + 2, std::memory_order_release);
  }

  [[nodiscard]] bool read(std::uint64_t n, Record& r) const noexcept {
    const Slot& slot = slots_[n & (slots_.size() - 1)];
    if (slot.state.load(std::memory_order_acquire) != 2 * n + 2) return false;
    const auto get = [&](Field f) { return slot.words[f].load(std::memory_order_acquire); };
    r.id = n;
    r.time = static_cast<std::int64_t>(get(time));
    r.thread = get(thread);
    r.block = {reinterpret_cast<std::byte*>(get(data)), static_cast<Bytes>(get(size))};
    r.tag = {reinterpret_cast<const char*>(get(name)), get(number)};
    const std::uint64_t w = get(rest);
    r.step = static_cast<std::uint32_t>(w >> 32);
    r.kind = static_cast<RecordKind>(w & 0xFF);
    if (r.kind == RecordKind::failure) r.code = static_cast<Errc>(w >> 8 & 0xFF);
    if (r.kind == RecordKind::hold) {
      r.hold = static_cast<HoldKind>(w >> 8 & 0xFF);
      r.change = static_cast<std::int16_t>(static_cast<std::uint16_t>(w >> 16));
    }
    return slot.state.load(std::memory_order_relaxed) == 2 * n + 2;
  }

  std::span<Slot> slots_;
  HOLDFAST_NO_UNIQUE_ADDRESS Clock clock_;
  typename Sync::template atomic<std::uint32_t> step_{0};
  alignas(64) typename Sync::template atomic<std::uint64_t> next_{0};
};

/// The recorder of real threads, on the machine's clock.
using Recorder = BasicRecorder<StdSync, MonotonicClock>;
static_assert(observer<Recorder> && sizeof(RecordSlot<StdSync>) == 64);

}  // namespace holdfast
