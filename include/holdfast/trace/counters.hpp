// trace: what happened to memory, and what is left: counters, records, live sets, figures, replay.
// In the flow: backends and holds tell an observer; reports and the program read what it kept.
// Level 2: it includes core and concepts only, and takes memory from a backend that it is given.
// What it keeps is bounded by what the caller gave; what did not fit is counted, never fatal.
// It never changes what it observes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "holdfast/concepts/observer.hpp"
#include "holdfast/concepts/sync.hpp"

namespace holdfast {

/// One counted quantity: what it is, the most it was, all that was ever added.
struct Figure {
  std::int64_t value = 0;
  std::int64_t peak = 0;
  std::int64_t total = 0;
  friend constexpr bool operator==(const Figure&, const Figure&) noexcept = default;
};

/// What `Counters` counted. Units: bytes, and numbers of blocks, holds and failures.
struct CounterFigures {
  Figure bytes;
  Figure blocks;
  std::array<std::int64_t, 3> holds{};  ///< in force now, by `HoldKind`
  std::int64_t failures = 0;
  friend constexpr bool operator==(const CounterFigures&, const CounterFigures&) noexcept = default;
};

/// An observer that counts: bytes and blocks with their peaks, holds, failures.
///
/// Peaks are exact under threads: each is the largest value that the counter really had; bytes and
/// blocks are counted one after the other, so a look in between may see one without the other. The
/// empty block counts as none. Threads: any. Cost: four atomic additions at an allocation, two at a
/// release. Source: RMM's statistics adaptor.
template <sync Sync>
class BasicCounters {
 public:
  void on_allocate(Block block, Tag) noexcept {
    if (block.data == nullptr) return;
    bytes_.add(block.size);
    blocks_.add(1);
  }
  void on_deallocate(Block block) noexcept {
    if (block.data == nullptr) return;
    bytes_.value.fetch_sub(block.size, std::memory_order_relaxed);
    blocks_.value.fetch_sub(1, std::memory_order_relaxed);
  }
  void on_hold(HoldKind kind, int change) noexcept {
    holds_[static_cast<std::size_t>(kind)].fetch_add(change, std::memory_order_relaxed);
  }
  void on_failure(const Error&) noexcept { failures_.fetch_add(1, std::memory_order_relaxed); }

  /// What was counted so far, or since `push` when that was called.
  [[nodiscard]] CounterFigures figures() const noexcept {
    CounterFigures f{bytes_.figure(), blocks_.figure(), {}, load(failures_)};
    for (std::size_t k = 0; k < f.holds.size(); ++k) f.holds[k] = load(holds_[k]);
    return f;
  }

  /// Begins a part of the run whose own figures `pop` gives: its peak starts at what is there now.
  ///
  /// Parts nest: the caller keeps each result until its `pop`. Threads: one; blocks that others
  /// take at that moment may count for either part.
  [[nodiscard]] CounterFigures push() noexcept {
    const CounterFigures before = figures();
    bytes_.restart_peak();
    blocks_.restart_peak();
    return before;
  }
  /// Ends the part that began with `before`; gives what it alone added, its values below 0 where it
  /// released more than it took. The whole's peak is again the largest of all.
  CounterFigures pop(const CounterFigures& before) noexcept {
    CounterFigures part = figures();
    bytes_.raise(before.bytes.peak);
    blocks_.raise(before.blocks.peak);
    part.bytes = less(part.bytes, before.bytes);
    part.blocks = less(part.blocks, before.blocks);
    for (std::size_t k = 0; k < part.holds.size(); ++k) part.holds[k] -= before.holds[k];
    part.failures -= before.failures;
    return part;
  }

 private:
  using Atomic = typename Sync::template atomic<std::int64_t>;

  struct Counter {
    Atomic value{0}, peak{0}, total{0};

    void add(std::int64_t n) noexcept {
      raise(value.fetch_add(n, std::memory_order_relaxed) + n);
      total.fetch_add(n, std::memory_order_relaxed);
    }
    void raise(std::int64_t now) noexcept {
      std::int64_t p = load(peak);
      while (p < now && !peak.compare_exchange_weak(p, now, std::memory_order_relaxed,
                                                    std::memory_order_relaxed)) {
      }
    }
    void restart_peak() noexcept {
      peak.store(load(value), std::memory_order_relaxed);
      raise(load(value));
    }
    [[nodiscard]] Figure figure() const noexcept { return {load(value), load(peak), load(total)}; }
  };

  [[nodiscard]] static std::int64_t load(const Atomic& a) noexcept {
    return a.load(std::memory_order_relaxed);
  }
  [[nodiscard]] static constexpr Figure less(const Figure& now, const Figure& before) noexcept {
    return {now.value - before.value, now.peak - before.value, now.total - before.total};
  }

  Counter bytes_, blocks_;
  std::array<Atomic, 3> holds_{};
  Atomic failures_{0};
};

/// Counters for any threads.
using Counters = BasicCounters<StdSync>;
static_assert(observer<Counters> && observer<BasicCounters<NoSync>>);

}  // namespace holdfast
