// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <atomic>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace holdfast {

/// When a call stops waiting: never, at once, or at a moment of the monotonic clock. Threads: a value.
class Deadline {
 public:
  /// Waits as long as it takes.
  [[nodiscard]] static constexpr Deadline never() noexcept { return Deadline(std::numeric_limits<std::int64_t>::max()); }
  /// Does not wait at all: what `try_` calls use.
  [[nodiscard]] static constexpr Deadline now() noexcept { return Deadline(0); }
  /// Waits for a `std::chrono` duration from now.
  template <class Duration>
  [[nodiscard]] static Deadline after(const Duration& d) noexcept {
    const double wait = static_cast<double>(d.count()) * 1e9 * static_cast<double>(Duration::period::num) /
                        static_cast<double>(Duration::period::den);
    return wait >= 4e18 ? never() : at(clock() + static_cast<std::int64_t>(wait));
  }

  /// Waits until a moment of the monotonic clock. Units: nanoseconds, above 0.
  [[nodiscard]] static constexpr Deadline at(std::int64_t nanoseconds) noexcept { return Deadline(nanoseconds < 1 ? 1 : nanoseconds); }

  [[nodiscard]] constexpr bool is_never() const noexcept { return at_ == std::numeric_limits<std::int64_t>::max(); }
  [[nodiscard]] constexpr bool is_now() const noexcept { return at_ == 0; }
  /// Tells whether the moment has passed.
  [[nodiscard]] bool passed() const noexcept {
    if (is_never() || at_ <= 1) return !is_never();  // what needs no clock asks none
    return clock() >= at_;
  }

 private:
  constexpr explicit Deadline(std::int64_t at) noexcept : at_(at) {}
  static std::int64_t clock() noexcept {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  }
  std::int64_t at_;
};

/// Atomics and waits, as a seam: `tests/model` puts a scheduler behind it and so runs the real code.
///
/// `wait` returns when the value is no longer `old`, or for no reason. `notify_*` use the atomic's address only: the
/// object may already be gone, because who was woken by the change of the value may have destroyed it.
/// `wait_until` is `wait` that gives up at a deadline; the caller looks at the clock. `thread_slot` is a number that a
/// thread keeps and shares with no other, good to hash by its low bits.
template <class S>
concept sync = requires(typename S::template atomic<std::uint64_t>& a, std::uint64_t v, Deadline d) {
  { a.load(std::memory_order_acquire) } noexcept -> std::same_as<std::uint64_t>;
  { a.store(v, std::memory_order_release) } noexcept;
  { a.exchange(v, std::memory_order_acq_rel) } noexcept -> std::same_as<std::uint64_t>;
  { a.fetch_add(v, std::memory_order_acq_rel) } noexcept -> std::same_as<std::uint64_t>;
  { a.fetch_sub(v, std::memory_order_acq_rel) } noexcept -> std::same_as<std::uint64_t>;
  { a.fetch_or(v, std::memory_order_acq_rel) } noexcept -> std::same_as<std::uint64_t>;
  { a.compare_exchange_weak(v, v, std::memory_order_acq_rel, std::memory_order_acquire) } noexcept -> std::same_as<bool>;
  { a.compare_exchange_strong(v, v, std::memory_order_acq_rel, std::memory_order_acquire) } noexcept -> std::same_as<bool>;
  { S::wait(a, v) } noexcept;
  { S::wait_until(a, v, d) } noexcept;
  { S::notify_one(a) } noexcept;
  { S::notify_all(a) } noexcept;
  { S::fence(std::memory_order_seq_cst) } noexcept;
  { S::thread_slot() } noexcept -> std::convertible_to<std::size_t>;
};

/// The real thing: `std::atomic` and its waits.
struct StdSync {
  template <class T>
  using atomic = std::atomic<T>;

  template <class T>
  static void wait(const std::atomic<T>& a, T old) noexcept {
    a.wait(old, std::memory_order_acquire);
  }
  /// Sleeps for short and growing times: the standard has no wait on an atomic with a deadline.
  template <class T>
  static void wait_until(const std::atomic<T>& a, T old, Deadline deadline) noexcept {
    if (deadline.is_never()) return wait(a, old);
    for (long pause = 1'000; a.load(std::memory_order_acquire) == old && !deadline.passed();) {
      const timespec t{0, pause};
      ::nanosleep(&t, nullptr);
      if (pause < 500'000) pause *= 2;
    }
  }
  template <class T>
  static void notify_one(std::atomic<T>& a) noexcept {
    a.notify_one();
  }
  template <class T>
  static void notify_all(std::atomic<T>& a) noexcept {
    a.notify_all();
  }
  static void fence(std::memory_order order) noexcept { std::atomic_thread_fence(order); }
  /// The place of the thread's own storage, spread over the low bits: no two living threads have the same.
  static std::size_t thread_slot() noexcept {
    static thread_local constinit char here = 0;
    return std::rotr(reinterpret_cast<std::uintptr_t>(&here) * std::size_t{0x9E3779B97F4A7C15u}, 48);
  }
};
static_assert(sync<StdSync>);

/// Plain values for one thread: the do-nothing model; a wait returns at once, so its users must not need one.
struct NoSync {
  template <class T>
  class atomic {
   public:
    constexpr atomic() noexcept = default;
    constexpr atomic(T value) noexcept : value_(value) {}
    [[nodiscard]] constexpr T load(std::memory_order) const noexcept { return value_; }
    constexpr void store(T value, std::memory_order) noexcept { value_ = value; }
    constexpr T exchange(T value, std::memory_order) noexcept {
      const T old = value_;
      value_ = value;
      return old;
    }
    constexpr T fetch_add(T n, std::memory_order order) noexcept { return exchange(value_ + n, order); }
    constexpr T fetch_sub(T n, std::memory_order order) noexcept { return exchange(value_ - n, order); }
    constexpr T fetch_or(T n, std::memory_order order) noexcept { return exchange(value_ | n, order); }
    constexpr bool compare_exchange_strong(T& expected, T desired, std::memory_order, std::memory_order) noexcept {
      if (value_ != expected) return expected = value_, false;
      return value_ = desired, true;
    }
    constexpr bool compare_exchange_weak(T& expected, T desired, std::memory_order a, std::memory_order b) noexcept {
      return compare_exchange_strong(expected, desired, a, b);
    }

   private:
    T value_{};
  };
  template <class T>
  static constexpr void wait(const atomic<T>&, T) noexcept {}
  template <class T>
  static constexpr void wait_until(const atomic<T>&, T, Deadline) noexcept {}
  template <class T>
  static constexpr void notify_one(atomic<T>&) noexcept {}
  template <class T>
  static constexpr void notify_all(atomic<T>&) noexcept {}
  static constexpr void fence(std::memory_order) noexcept {}
  static constexpr std::size_t thread_slot() noexcept { return 0; }
};
static_assert(sync<NoSync>);

}  // namespace holdfast
