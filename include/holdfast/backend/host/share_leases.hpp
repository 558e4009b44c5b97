// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "holdfast/backend/host/owned_file.hpp"
#include "holdfast/concepts/lock.hpp"
#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/event/event_list.hpp"

namespace holdfast {

/// What a process has lent to others: blocks that it gives back to their backend no sooner than the last importer is done.
///
/// A lease is a pipe. The importer gets the writing end beside the handle and closes it when it has closed the memory; the
/// system does it for a process that ends, however it ends, so that nothing has to be cleaned up and no process number is
/// looked at; of another host nothing is known so. Others that were forked while the end was open here hold it too. Its end
/// waits for all leases: see `wait` and `revoke`. Threads: any. Cost: calls look at leases with a system call each.
template <memory_backend Backend>
class ShareLeases {
 public:
  explicit ShareLeases(Backend backend) noexcept : backend_(std::move(backend)) {}
  ShareLeases(const ShareLeases&) = delete;
  ShareLeases& operator=(const ShareLeases&) = delete;
  ~ShareLeases() { static_cast<void>(wait(Deadline::never())); }

  /// Lends a block of the backend, that was not released here, to one more importer, and gives the end of the pipe that is to
  /// be sent to it and then closed here.
  ///
  /// Errors: invalid_argument (an empty block), over_budget (no more files), out_of_memory, unsupported (the system's own).
  [[nodiscard]] Result<OwnedFile> lend(Block block) noexcept {
    if (block.data == nullptr || block.size <= 0) return make_error(Errc::invalid_argument, "there is nothing to lend");
    const LockGuard<WordLock> guard(lock_);
    sweep();
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      Error e = make_error(errno == EMFILE || errno == ENFILE ? Errc::over_budget : Errc::unsupported, "no pipe for a lease");
      e.native = errno;
      return e;
    }
    OwnedFile mine(FileNumber{ends[0]}), theirs(FileNumber{ends[1]});
    if (Error e = leases_.push_back({block, std::move(mine), false}); !e.ok()) return e;
    return theirs;
  }
  /// Gives a block back: at once if nobody has it, else as soon as a later call sees that its last lease has ended.
  void deallocate(Block block) noexcept {
    const LockGuard<WordLock> guard(lock_);
    sweep();
    bool lent = false;
    for (Lease& l : leases_.span())
      if (l.block == block) lent = l.released = true;
    if (!lent) backend_.deallocate(block);
  }
  /// Looks whose leases have ended, and gives back what was released; tells how many leases run still.
  std::size_t collect() noexcept {
    const LockGuard<WordLock> guard(lock_);
    sweep();
    return leases_.size();
  }
  /// Waits until no lease runs. Errors: deadline. Threads: blocks.
  [[nodiscard]] Error wait(Deadline deadline) noexcept {
    for (;;) {
      int file = -1;
      {
        const LockGuard<WordLock> guard(lock_);
        sweep();
        if (leases_.empty()) return {};
        file = leases_.span()[0].end->number;
      }
      if (deadline.passed()) return make_error(Errc::deadline, "another process still has what was lent to it");
      // Another thread may have closed it by now: then this looks at another file for once, and changes nothing.
      static_cast<void>(hung_up(file, pause_milliseconds));
    }
  }
  /// Ends all leases, and gives back what was released: of importers that are lost, though they run, whose memory it is no more.
  void revoke() noexcept {
    const LockGuard<WordLock> guard(lock_);
    for (Lease& l : leases_.span()) l.end = OwnedFile();
    sweep();
  }

 private:
  static constexpr int pause_milliseconds = 10;  // between looks at the clock; a hang-up wakes at once
  struct Lease {
    Block block;
    OwnedFile end;
    bool released = false;  // its owner is done with the block
  };
  [[nodiscard]] static bool hung_up(int file, int milliseconds) noexcept {
    pollfd p{file, 0, 0};  // what is written does not matter
    return file < 0 || (::poll(&p, 1, milliseconds) == 1 && (p.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0);
  }
  void sweep() noexcept {
    for (std::size_t i = leases_.size(); i-- > 0;) {
      if (!hung_up(leases_.span()[i].end->number, 0)) continue;
      const Lease gone = std::move(leases_.span()[i]);
      if (i + 1 != leases_.size()) leases_.span()[i] = std::move(leases_.span().back());
      leases_.pop_back();
      bool lent = false;
      for (const Lease& l : leases_.span()) lent = lent || l.block == gone.block;
      if (gone.released && !lent) backend_.deallocate(gone.block);
    }
  }

  Backend backend_;
  WordLock lock_;
  SmallList<Lease> leases_;
};

}  // namespace holdfast
