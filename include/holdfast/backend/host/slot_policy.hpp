// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/concepts/lock.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// How far apart slots lie: as near as their size allows.
struct PackedSlots {
  static constexpr Bytes multiple = 1;
};
/// A cache line each: two holders do not slow each other. The default.
struct CacheLineSlots {
  static constexpr Bytes multiple = 64;
};
/// Two cache lines each, which is what some processors fetch at a time.
struct SpacedSlots {
  static constexpr Bytes multiple = 128;
};

/// Takes and gives slots without a lock.
struct LockFree {};

/// A request when all slots are out fails at once. The default.
struct FailWhenFull {
  using default_lock = LockFree;
};
/// It waits for one, first come first served, up to `SlotPoolOptions::timeout`; that needs a lock.
struct WaitWhenFull {
  using default_lock = WordLock;
};
/// The pool grows by blocks as large as the first, up to `SlotPoolOptions::max_count`; slots do not move.
struct GrowWhenFull {
  using default_lock = LockFree;
};

/// A slot has the bytes that its last holder left. The default.
struct KeepBytes {};
/// A slot is zero when it is handed out.
struct ZeroOnAcquire {};
/// A slot is filled with 0xA5 when it comes back, and looked at when it goes out: who wrote after the release is reported.
struct PoisonOnRelease {};

/// Names a slot and which of its holders: what a handle is, as plain data.
struct SlotId {
  std::uint32_t index = 0;
  std::uint64_t generation = 0;  ///< odd while it is held
  friend constexpr bool operator==(const SlotId&, const SlotId&) noexcept = default;
};

/// What a slot pool reports.
enum class SlotReportKind : std::uint8_t {
  live_at_end,   ///< the pool went and this slot was still held
  damaged,       ///< written after its release; the tag is the last holder's
  stale_release  ///< released by a handle of an earlier holder, or released before
};

/// A report of a slot pool. Units: `age` is nanoseconds since the slot was handed out, 0 where it is not held.
struct SlotReport {
  SlotReportKind kind = SlotReportKind::live_at_end;
  std::uint32_t index = 0;
  Tag tag;
  std::int64_t age = 0;
};

/// How a slot pool is made.
struct SlotPoolOptions {
  Bytes size = 0;              ///< of a slot; `make_for<T>` says it itself
  Bytes alignment = 1;         ///< of a slot
  std::int64_t count = 128;    ///< of slots, 32767 at most
  std::int64_t max_count = 0;  ///< for GrowWhenFull; 0: no growth
  std::int64_t timeout = 0;    ///< for WaitWhenFull. Units: nanoseconds
  bool leak_at_end = false;    ///< memory of slots that outlive the pool is never given back: for backends that may be gone by then
  void (*report)(void* context, const SlotReport&) noexcept = nullptr;  ///< called under the pool's lock, where there is one
  void* context = nullptr;
};

/// What a slot pool has and did. Units: counts; `wait_*` nanoseconds.
struct SlotPoolStatistics {
  std::int64_t capacity = 0, in_use = 0, peak_in_use = 0, acquires = 0, failures = 0, waits = 0;
  std::int64_t wait_total = 0, wait_max = 0, growths = 0, stale_releases = 0, damaged = 0;
};

}  // namespace holdfast
