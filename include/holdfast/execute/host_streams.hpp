// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include <pthread.h>

#include "holdfast/concepts/event.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// Up to 64 pieces of work, of which each waits for some that were put in before; what waits for
/// nothing runs.
///
/// A place in it is a slot; its owner puts the work where `run(context, slot)` finds it. Errors do
/// not stop what is running; nothing is begun after one. Threads: one owner; any number of helpers.
class TaskWindow {
 public:
  static constexpr std::uint32_t slots = 64;
  using Run = Error (*)(void* context, std::uint32_t slot) noexcept;

  TaskWindow(Run run, void* context) noexcept : run_(run), context_(context) {}
  TaskWindow(TaskWindow&&) = delete;

  /// The slots whose work is not done.
  [[nodiscard]] std::uint64_t busy() noexcept {
    const std::lock_guard lock(mutex_);
    return busy_;
  }
  /// Puts the work of a free slot in, to run after that of the slots in `after`.
  void put(std::uint32_t slot, std::uint64_t after) noexcept {
    const std::lock_guard lock(mutex_);
    waits_[slot] = after & busy_;
    number_[slot] = ++count_;
    busy_ |= bit(slot);
    if (waits_[slot] != 0) return;
    ready_ |= bit(slot);
    changed_.notify_one();
  }
  /// Runs what is ready until at most `most` slots are busy; gives the error of the earliest work
  /// that failed.
  Error help_until(std::uint32_t most) noexcept {
    std::unique_lock lock(mutex_);
    while (busy_ != 0 && static_cast<std::uint32_t>(__builtin_popcountll(busy_)) > most)
      if (!run_one(lock)) changed_.wait(lock);
    return error_;
  }
  /// Runs what is ready until `end`; for the threads of streams.
  void help() noexcept {
    std::unique_lock lock(mutex_);
    while (!ended_)
      if (!run_one(lock)) changed_.wait(lock);
  }
  /// Lets helpers go.
  void end() noexcept {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

 private:
  static constexpr std::uint64_t bit(std::uint32_t slot) noexcept {
    return std::uint64_t{1} << slot;
  }

  bool run_one(std::unique_lock<std::mutex>& lock) noexcept {
    if (ready_ == 0) return false;
    auto slot = static_cast<std::uint32_t>(__builtin_ctzll(ready_));
    for (std::uint64_t rest = ready_ & (ready_ - 1); rest != 0; rest &= rest - 1)
      if (const auto other = static_cast<std::uint32_t>(__builtin_ctzll(rest));
          number_[other] < number_[slot])
        slot = other;
    ready_ &= ~bit(slot);
    if (error_.ok()) {
      lock.unlock();
      const Error e = run_(context_, slot);
      lock.lock();
      if (!e.ok() && (error_.ok() || number_[slot] < failed_)) error_ = e, failed_ = number_[slot];
    }
    busy_ &= ~bit(slot);
    for (std::uint64_t rest = busy_; rest != 0; rest &= rest - 1) {
      const auto other = static_cast<std::uint32_t>(__builtin_ctzll(rest));
      if ((waits_[other] & bit(slot)) == 0) continue;
      waits_[other] &= ~bit(slot);
      if (waits_[other] == 0) ready_ |= bit(other);
    }
    changed_.notify_all();
    return true;
  }

  const Run run_;
  void* const context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t busy_ = 0, ready_ = 0;
  std::uint64_t waits_[slots] = {};
  std::uint64_t number_[slots] = {};  // order of `put`
  std::uint64_t count_ = 0, failed_ = 0;
  Error error_;
  bool ended_ = false;
};

/// Threads of the host that carry out kernels: `count` of them run at once.
///
/// Work is taken in order: the thread that takes a piece of it is its master, the others help it
/// (`TaskWindow`) if they have nothing else. Destroying it waits for all work. Threads: `execute`
/// any; `start` once.
class HostStreams {
 public:
  static constexpr std::uint32_t max_count = 64;

  HostStreams() noexcept = default;
  HostStreams(HostStreams&&) = delete;
  ~HostStreams() { stop(); }

  /// Starts the threads. Errors: invalid_argument (0 or more than 64), out_of_memory (no thread to
  /// be had).
  [[nodiscard]] Error start(std::uint32_t count) noexcept {
    if (count == 0 || count > max_count)
      return make_error(Errc::invalid_argument, "host streams: 1 to 64");
    for (; count_ < count; ++count_)
      if (const int native = pthread_create(&threads_[count_], nullptr, main, this); native != 0) {
        stop();
        Error e = make_error(Errc::out_of_memory, "cannot start a thread");
        e.native = native;
        return e;
      }
    return {};
  }
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }

  /// Queues a node: some thread will run it, after those queued before have begun. Model of
  /// `executor` by reference.
  void execute(Continuation& node) noexcept {
    const std::lock_guard lock(mutex_);
    node.next = nullptr;
    *(first_ == nullptr ? &first_ : &last_->next) = &node;
    last_ = &node;
    changed_.notify_all();  // threads wait here for other things too
  }
  /// Lends the other threads to a window until `withdraw`. One window at a time; false: they are
  /// lent already.
  bool lend(TaskWindow& window) noexcept {
    const std::lock_guard lock(mutex_);
    if (window_ != nullptr) return false;
    window_ = &window;
    changed_.notify_all();
    return true;
  }
  /// Takes the threads back from the window; afterwards none of them touches it.
  void withdraw(TaskWindow& window) noexcept {
    std::unique_lock lock(mutex_);
    window_ = nullptr;
    window.end();
    while (helpers_ != 0) changed_.wait(lock);
  }

 private:
  static void* main(void* self) noexcept {
    static_cast<HostStreams*>(self)->loop();
    return nullptr;
  }
  void loop() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (window_ != nullptr) {
        TaskWindow& window = *window_;
        ++helpers_;
        lock.unlock();
        window.help();
        lock.lock();
        --helpers_;
        changed_.notify_all();
      } else if (first_ != nullptr) {
        Continuation& node = *first_;
        first_ = node.next;
        lock.unlock();
        node.run(node);
        lock.lock();
      } else if (stopping_) {
        return;
      } else {
        changed_.wait(lock);
      }
    }
  }
  void stop() noexcept {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    for (; count_ > 0; --count_) pthread_join(threads_[count_ - 1], nullptr);
    stopping_ = false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Continuation* first_ = nullptr;
  Continuation* last_ = nullptr;
  TaskWindow* window_ = nullptr;
  std::uint32_t helpers_ = 0;
  std::uint32_t count_ = 0;
  bool stopping_ = false;
  pthread_t threads_[max_count] = {};
};

}  // namespace holdfast
