// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "holdfast/concepts/sync.hpp"

namespace holdfast::detail {

/// Somebody who waits for a slot, on its own stack.
class Waiter {
 public:
  [[nodiscard]] bool waiting() const noexcept { return word_.load(std::memory_order_acquire) == 0; }
  [[nodiscard]] const std::atomic<std::uint32_t>& word() const noexcept { return word_; }
  [[nodiscard]] std::uint32_t index() const noexcept { return index_; }
  /// Hands a slot over; the waiter may be gone when this returns.
  void give(std::uint32_t index) noexcept {
    index_ = index;
    word_.store(1, std::memory_order_release);
    StdSync::notify_one(word_);
  }

 private:
  friend class WaiterQueue;
  std::atomic<std::uint32_t> word_{0};
  std::uint32_t index_ = 0;
  Waiter *next_ = nullptr, *prev_ = nullptr;
};

/// Who waits, in the order in which they came. Threads: one at a time, under the pool's lock.
class WaiterQueue {
 public:
  void push(Waiter& w) noexcept {
    w.prev_ = last_;
    (last_ == nullptr ? first_ : last_->next_) = &w;
    last_ = &w;
  }
  void remove(Waiter& w) noexcept {
    (w.prev_ == nullptr ? first_ : w.prev_->next_) = w.next_;
    (w.next_ == nullptr ? last_ : w.next_->prev_) = w.prev_;
  }
  /// The one who waits longest, or null.
  [[nodiscard]] Waiter* pop() noexcept {
    Waiter* w = first_;
    if (w != nullptr) remove(*w);
    return w;
  }

 private:
  Waiter *first_ = nullptr, *last_ = nullptr;
};

}  // namespace holdfast::detail
