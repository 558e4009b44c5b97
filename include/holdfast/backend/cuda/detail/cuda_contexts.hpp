// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "holdfast/concepts/lock.hpp"
#include "holdfast/concepts/sync.hpp"

namespace holdfast::detail {

// The contexts of one driver. Who waits for what a promise completes runs what is due in all of them: the chain that it hangs
// on may go through events of other devices. Threads: any; a member stays until its `remove` has returned.
class CudaContexts {
 public:
  struct Member {
    bool (*run)(Member&) noexcept = nullptr;  // runs what is due in it
    Member* next_member = nullptr;            // this and the rest: guarded by the list
    bool leaves = false;
    std::atomic<std::uint32_t> users{0};
  };

  constexpr CudaContexts() noexcept = default;
  CudaContexts(CudaContexts&&) = delete;

  void add(Member& member) noexcept {
    const LockGuard<WordLock> guard(lock_);
    member.next_member = first_;
    first_ = &member;
  }
  void remove(Member& member) noexcept {
    for (std::uint32_t users = 1; users != 0;) {
      {
        const LockGuard<WordLock> guard(lock_);
        member.leaves = true;
        users = member.users.load(std::memory_order_acquire);
        if (users == 0) unlink(member);
      }
      if (users != 0) StdSync::wait(member.users, users);
    }
  }
  // Runs what is due in every context; false: nothing was.
  bool run() noexcept {
    bool any = false;
    for (Member* m = enter(nullptr); m != nullptr; m = enter(m)) any = m->run(*m) || any;
    return any;
  }

  // Counts what happened, so that a thread that looked before it sleeps misses nothing. A host function may call it.
  void wake() noexcept {
    progress.fetch_add(1, std::memory_order_release);
    StdSync::notify_all(progress);
  }
  std::atomic<std::uint32_t> progress{0};

 private:
  // From one member to the next that stays.
  [[nodiscard]] Member* enter(Member* from) noexcept {
    const LockGuard<WordLock> guard(lock_);
    Member* next = from == nullptr ? first_ : from->next_member;
    while (next != nullptr && next->leaves) next = next->next_member;
    if (next != nullptr) next->users.fetch_add(1, std::memory_order_relaxed);
    // Under the lock, so that a member which leaves does not go before it was notified.
    if (from != nullptr && from->users.fetch_sub(1, std::memory_order_release) == 1) StdSync::notify_all(from->users);
    return next;
  }
  void unlink(Member& member) noexcept {
    for (Member** m = &first_; *m != nullptr; m = &(*m)->next_member)
      if (*m == &member) {
        *m = member.next_member;
        return;
      }
  }

  WordLock lock_;
  Member* first_ = nullptr;
};

}  // namespace holdfast::detail
