// SPDX-License-Identifier: Apache-2.0
// A clock that stands still until somebody waits, and things that happen at a time of it. One thread.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "holdfast/concepts/clock.hpp"

namespace holdfast::testing {

struct FakeTime {
  std::int64_t now = 1'000'000'000;
  int waits = 0;
  std::vector<std::pair<std::int64_t, std::function<void()>>> events;  ///< by time

  void at(std::int64_t when, std::function<void()> what) {
    const auto later = [](std::int64_t t, const auto& event) { return t < event.first; };
    events.emplace(std::upper_bound(events.begin(), events.end(), when, later), when, std::move(what));
  }
  /// Goes to `when`, or to the next event before it, which happens.
  void advance(std::int64_t when) {
    if (events.empty() || events.front().first > when) {
      now = std::max(now, when);
      return;
    }
    auto [then, what] = std::move(events.front());
    events.erase(events.begin());
    now = std::max(now, then);
    what();
  }
};

class FakeClock {
 public:
  explicit FakeClock(FakeTime& time) noexcept : time_(&time) {}
  [[nodiscard]] std::int64_t now() const noexcept { return time_->now; }
  [[nodiscard]] std::int64_t coarse_now() const noexcept { return time_->now; }
  void wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t old, std::int64_t at) const noexcept {
    ++time_->waits;
    if (word.load() == old) time_->advance(at);
  }

 private:
  FakeTime* time_;
};
static_assert(clock<FakeClock>);

inline constexpr std::int64_t millisecond = 1'000'000;

}  // namespace holdfast::testing
