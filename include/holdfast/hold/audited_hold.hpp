// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "holdfast/concepts/hold_policy.hpp"
#include "holdfast/concepts/lock.hpp"
#include "holdfast/concepts/sink.hpp"
#include "holdfast/concepts/sync.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"
#include "holdfast/hold/hold_state.hpp"

namespace holdfast {

/// A hold policy that also knows who holds what since when, and who donated or deleted: for diagnosis.
///
/// A request that would wait for ever for a hold of its own thread fails as `wrong_state` instead of hanging. Threads are told apart
/// by `thread_slot`, ages by a count of requests. It remembers `capacity` holds; more are granted without a record.
/// Threads: as `H`. Cost: a short lock around a small table at every change.
template <hold_policy H, std::size_t capacity = 16>
class AuditedHold {
  using Sync = std::conditional_t<H::concurrent, StdSync, NoSync>;

 public:
  static constexpr bool concurrent = H::concurrent;
  using ownership_type = typename H::ownership_type;

  /// Takes a hold. Errors: as `H`; wrong_state: the thread would wait for itself.
  [[nodiscard]] Error acquire(HoldKind kind, Deadline deadline) noexcept {
    if (deadline.is_never() && waits_for_itself(kind)) return self_deadlock();
    if (Error e = hold_.acquire(kind, deadline); !e.ok()) return e;
    note(kind);
    return {};
  }
  template <class Change>
  void convert(Change&& change) noexcept {
    bool ends = false;
    hold_.convert([&]() noexcept { return ends = change(); });
    if (ends) forget(HoldKind::usage);
  }
  bool drop(HoldKind kind) noexcept {
    forget(kind);  // first: the policy may be gone in the next step
    return hold_.drop(kind);
  }
  void confirm() noexcept {
    end("donated");
    forget(HoldKind::donation);
    hold_.confirm();
  }
  /// Deletes. Errors: as `H`; wrong_state: the thread would wait for itself.
  [[nodiscard]] Error release(Deadline deadline) noexcept {
    if (deadline.is_never() && waits_for_itself(HoldKind::donation)) return self_deadlock();
    Error e = hold_.release(deadline);
    if (e.ok()) end("deleted");
    return e;
  }
  bool settle() noexcept { return hold_.settle(); }
  bool emptied() noexcept { return hold_.emptied(); }
  bool orphan() noexcept { return hold_.orphan(); }
  [[nodiscard]] HoldCounts counts() const noexcept { return hold_.counts(); }

  /// Writes a line for each hold that is out, by age, and one for who ended the buffer. Errors: the sink's.
  template <sink S>
  Error report(S& out) const noexcept {
    Records now;
    {
      const Locked lock(lock_);
      now = records_;
    }
    Error failure;
    const auto line = [&](const char* what, const Record& r) noexcept {
      if (failure.ok()) failure = out.write(what);
      if (failure.ok()) failure = out.write(" by thread ");
      if (failure.ok()) failure = write_number(out, static_cast<std::int64_t>(r.thread));
      if (failure.ok()) failure = out.write(", request ");
      if (failure.ok()) failure = write_number(out, static_cast<std::int64_t>(r.number));
      if (failure.ok()) failure = out.write("\n");
    };
    static constexpr const char* kinds[] = {"usage hold", "external hold", "donation hold"};
    for (std::uint64_t next = 0;;) {
      const Record* oldest = nullptr;
      for (const Record& r : now.holds)
        if (r.number > next && (oldest == nullptr || r.number < oldest->number)) oldest = &r;
      if (oldest == nullptr) break;
      line(kinds[static_cast<int>(oldest->kind)], *oldest);
      next = oldest->number;
    }
    if (now.end != nullptr) line(now.end, now.ended_by);
    return failure;
  }

 private:
  struct Record {
    std::uint64_t number = 0;  // of the request; 0: free
    std::size_t thread = 0;
    HoldKind kind = HoldKind::usage;
  };
  struct Records {
    Record holds[capacity];
    Record ended_by;
    const char* end = nullptr;
    std::uint64_t requests = 0;
  };
  using Locked = LockGuard<BasicWordLock<Sync>>;

  void note(HoldKind kind) noexcept {
    const Locked lock(lock_);
    ++records_.requests;
    for (Record& r : records_.holds)
      if (r.number == 0) return void(r = {records_.requests, Sync::thread_slot(), kind});
  }
  // The thread's own hold of the kind if it has one, else the oldest: holds may end on another thread.
  void forget(HoldKind kind) noexcept {
    const Locked lock(lock_);
    Record* found = nullptr;
    for (Record& r : records_.holds) {
      if (r.number == 0 || r.kind != kind) continue;
      const bool mine = r.thread == Sync::thread_slot(), found_mine = found != nullptr && found->thread == Sync::thread_slot();
      if (found == nullptr || (mine && !found_mine) || (mine == found_mine && r.number < found->number)) found = &r;
    }
    if (found != nullptr) *found = Record{};
  }
  void end(const char* how) noexcept {
    const Locked lock(lock_);
    records_.end = how;
    records_.ended_by = {++records_.requests, Sync::thread_slot(), HoldKind::donation};
  }
  // Usage and external requests wait for a donation alone; donation and deletion also for usage.
  [[nodiscard]] bool waits_for_itself(HoldKind asked) const noexcept {
    const Locked lock(lock_);
    for (const Record& r : records_.holds)
      if (r.number != 0 && r.thread == Sync::thread_slot() &&
          (r.kind == HoldKind::donation || (r.kind == HoldKind::usage && asked == HoldKind::donation)))
        return true;
    return false;
  }
  [[nodiscard]] HOLDFAST_COLD static Error self_deadlock() noexcept {
    return make_error(Errc::wrong_state, "the thread would wait for its own hold on this buffer (self-deadlock)");
  }

  H hold_;
  Records records_;
  mutable BasicWordLock<Sync> lock_;
};

}  // namespace holdfast
