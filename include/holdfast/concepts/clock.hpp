// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <atomic>
#include <concepts>
#include <cstdint>

#include "holdfast/concepts/sync.hpp"

namespace holdfast {

/// A clock and the sleep that goes by it, so that tests wait for ten seconds in no time.
///
/// `now` never goes back; `coarse_now` is cheaper and some milliseconds late; `wait_until` returns when the word is no longer
/// `old`, at the moment, or for no reason. Units: nanoseconds.
template <class C>
concept clock = std::copyable<C> && requires(const C& c, const std::atomic<std::uint32_t>& word, std::uint32_t old, std::int64_t at) {
  { c.now() } noexcept -> std::same_as<std::int64_t>;
  { c.coarse_now() } noexcept -> std::same_as<std::int64_t>;
  { c.wait_until(word, old, at) } noexcept -> std::same_as<void>;
};

/// The system's monotonic clock. Stateless. Threads: any.
struct MonotonicClock {
  [[nodiscard]] std::int64_t now() const noexcept { return read(CLOCK_MONOTONIC); }
  [[nodiscard]] std::int64_t coarse_now() const noexcept { return read(CLOCK_MONOTONIC_COARSE); }
  void wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t old, std::int64_t at) const noexcept {
    StdSync::wait_until(word, old, Deadline::at(at));
  }

 private:
  static std::int64_t read(clockid_t which) noexcept {
    timespec t{};
    ::clock_gettime(which, &t);
    return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  }
};

/// No clock: it is always 0 o'clock and a wait returns at once; the do-nothing model.
struct NoClock {
  [[nodiscard]] constexpr std::int64_t now() const noexcept { return 0; }
  [[nodiscard]] constexpr std::int64_t coarse_now() const noexcept { return 0; }
  constexpr void wait_until(const std::atomic<std::uint32_t>&, std::uint32_t, std::int64_t) const noexcept {}
};
static_assert(clock<MonotonicClock> && clock<NoClock>);

}  // namespace holdfast
