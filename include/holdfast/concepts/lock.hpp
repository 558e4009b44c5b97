// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "holdfast/concepts/sync.hpp"

namespace holdfast {

/// Something that one thread at a time holds.
template <class L>
concept lock = requires(L& l) {
  { l.lock() } noexcept -> std::same_as<void>;
  { l.unlock() } noexcept -> std::same_as<void>;
};

/// A lock for what one thread alone uses: does nothing, takes no room. Threads: one.
struct NoLock {
  constexpr void lock() noexcept {}
  constexpr void unlock() noexcept {}
};
static_assert(lock<NoLock>);

/// A lock in one word that sleeps on a conflict. Threads: any. Cost: one atomic operation each way when nobody waits.
template <sync Sync>
class BasicWordLock {
 public:
  void lock() noexcept {
    std::uint32_t w = 0;
    // 1: held; 2: held and perhaps somebody sleeps. Whoever slept takes it as 2: others may sleep still.
    for (std::uint32_t take = 1; !word_.compare_exchange_strong(w, take, std::memory_order_acquire, std::memory_order_relaxed); w = 0) {
      if (w != 0 && (w == 2 || word_.compare_exchange_strong(w, 2, std::memory_order_relaxed, std::memory_order_relaxed)))
        Sync::wait(word_, std::uint32_t{2});
      take = 2;
    }
  }
  void unlock() noexcept {
    if (word_.exchange(0, std::memory_order_release) == 2) Sync::notify_one(word_);
  }

 private:
  typename Sync::template atomic<std::uint32_t> word_{0};
};

/// The word lock of real threads.
using WordLock = BasicWordLock<StdSync>;
static_assert(lock<WordLock>);

/// A lock that the thread which holds it may take again.
///
/// For sources that run what may give memory back to them: BfcPool and BfcStreamPool over the driver's memory. Threads: any.
template <sync Sync>
class BasicReentrantLock {
 public:
  static constexpr bool reentrant = true;
  void lock() noexcept {
    // Only whoever holds the lock finds its own number in it.
    if (const std::size_t self = Sync::thread_slot(); holder_.load(std::memory_order_relaxed) != self) {
      lock_.lock();
      holder_.store(self, std::memory_order_relaxed);
    }
    ++depth_;
  }
  void unlock() noexcept {
    if (--depth_ != 0) return;
    holder_.store(nobody, std::memory_order_relaxed);
    lock_.unlock();
  }

 private:
  static constexpr std::size_t nobody = ~std::size_t{0};
  BasicWordLock<Sync> lock_;
  typename Sync::template atomic<std::size_t> holder_{nobody};
  std::uint32_t depth_ = 0;
};

/// The reentrant lock of real threads.
using ReentrantLock = BasicReentrantLock<StdSync>;
static_assert(lock<ReentrantLock>);

/// Holds a lock for as long as it lives.
template <lock Lock>
class LockGuard {
 public:
  explicit LockGuard(Lock& l) noexcept : lock_(l) { lock_.lock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;
  ~LockGuard() { lock_.unlock(); }

 private:
  Lock& lock_;
};

}  // namespace holdfast
