// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <type_traits>
#include <utility>

#include "holdfast/buffer/contents.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/concepts/hold_policy.hpp"
#include "holdfast/concepts/sync.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"
#include "holdfast/core/units.hpp"
#include "holdfast/event/combine.hpp"

namespace holdfast::detail {

// Waits for the last events of a guard's contents, failed ones included (their errors order nothing but are waited for),
// then finishes the guard: with a node inside it, or here where the events cannot notify.
template <class Guard, class Event, bool Notifying = notifying_event<Event>>
struct LastWait {
  static void start(Guard& guard) noexcept {
    guard.contents().block_until_unused();
    guard.finish();
  }
};
template <class Guard, class Event>
struct LastWait<Guard, Event, true> : WhenReady<Event> {
  Guard* guard = nullptr;
  void start(Guard& g) noexcept {
    guard = &g;
    WhenReady<Event>::start(std::as_const(g.contents().definition).span(), [](WhenReady<Event>& node) noexcept {
      node.start(std::as_const(static_cast<LastWait&>(node).guard->contents().usage).span(),
                 [](WhenReady<Event>& last) noexcept { static_cast<LastWait&>(last).guard->finish(); });
    });
  }
};

// Contents under a hold policy, on the heap: it lives until handle, contents and external holds are all gone.
template <class Raw, class Event, class Hold>
class SharedGuard {
 public:
  explicit SharedGuard(Contents<Raw, Event> contents) noexcept : size_(contents.raw.size()), contents_(std::move(contents)) {}

  [[nodiscard]] Bytes size() const noexcept { return size_; }
  [[nodiscard]] const Raw& raw() const noexcept { return contents_.raw; }
  [[nodiscard]] std::span<const Event> definition_events() const noexcept { return contents_.definition.span(); }
  [[nodiscard]] std::span<const Event> usage_events() const noexcept { return contents_.usage.span(); }
  [[nodiscard]] Contents<Raw, Event>& contents() noexcept { return contents_; }
  [[nodiscard]] HoldCounts counts() const noexcept { return hold_.counts(); }
  [[nodiscard]] const Hold& hold_state() const noexcept { return hold_; }

  [[nodiscard]] Error acquire(HoldKind kind, Deadline deadline) noexcept { return hold_.acquire(kind, deadline); }
  void drop(HoldKind kind) noexcept {
    if (hold_.drop(kind)) empty();
  }
  // A handle to give away is taken over only if the set does not have the event.
  template <class E>
  void convert(E&& event) noexcept {
    if (event.ready()) [[likely]] return drop(HoldKind::usage);
    bool added = false;
    hold_.convert([&]() noexcept { return added = contents_.usage.add(std::forward<E>(event)).ok(); });
    if (added) return;
    // No memory for the set: the order that it would have kept is kept by waiting here.
    static_cast<void>(event.wait());
    drop(HoldKind::usage);
  }
  void confirm() noexcept {
    contents_.raw.contents_changed();  // whoever the donation was for writes
    hold_.confirm();
    let_go();
  }
  void confirm(const Event& event) noexcept {
    if (!contents_.usage.add(event).ok()) static_cast<void>(event.wait());
    confirm();
  }
  [[nodiscard]] Error release(Deadline deadline) noexcept {
    if (Error e = hold_.release(deadline); !e.ok()) return e;
    let_go();
    return {};
  }
  // Ends the buffer like a donation, but hands the contents to the caller, who then is their owner.
  [[nodiscard]] Result<Contents<Raw, Event>> take(Deadline deadline) noexcept {
    if (Error e = hold_.acquire(HoldKind::donation, deadline); !e.ok()) return e;
    Result<Contents<Raw, Event>> taken(std::move(contents_));
    hold_.confirm();
    finish();
    return taken;
  }
  // Ends the buffer like `release` and gives the caller a share of the contents: external holds keep theirs, so what they
  // may be looking at is copied.
  [[nodiscard]] Result<Contents<Raw, Event>> release_to_caller() noexcept {
    if (Error e = hold_.release(Deadline::never()); !e.ok()) return e;
    Contents<Raw, Event> shared{contents_.raw, {}, std::move(contents_.usage)};
    if (!shared.definition.append(definition_events()).ok()) static_cast<void>(wait_all(definition_events()));
    finish();
    return Result<Contents<Raw, Event>>(std::move(shared));
  }
  // Ends the handle's life.
  void orphan() noexcept {
    static_cast<void>(release(Deadline::never()));
    const HoldCounts c = counts();
    HOLDFAST_ASSERT(c.usage == 0 && c.donation == 0);
    if (hold_.orphan()) delete this;
  }
  // Runs `read` on the contents under a usage hold, which it takes and ends; nobody changes the usage events meanwhile.
  template <class Read>
  [[nodiscard]] Error inspect(Deadline deadline, Read read) noexcept {
    if (Error e = hold_.acquire(HoldKind::usage, deadline); !e.ok()) return e;
    hold_.convert([&]() noexcept {
      read(contents_);
      return true;
    });
    return {};
  }
  // Made once and kept, so that everybody gets the same event.
  [[nodiscard]] Result<Event> ready_event() noexcept {
    Event ready;
    Error failure;
    Error e = inspect(Deadline::never(), [&](const Contents<Raw, Event>& contents) noexcept {
      if (!ready_made_) {
        Result<Event> made = contents.ready_event();
        if (!made.ok()) return void(failure = made.error());
        ready_ = std::move(*made);
        ready_made_ = true;
      }
      ready = ready_;
    });
    if (!e.ok()) return e;
    if (!failure.ok()) return failure;
    return ready;
  }
  // All events are over: without external holds the bytes go now.
  void finish() noexcept {
    if (hold_.settle()) empty();
  }

 private:
  // Called by whoever ended the contents' life, alone.
  void let_go() noexcept { last_.start(*this); }
  void empty() noexcept {
    contents_.raw = Raw();
    contents_.definition.clear();
    contents_.usage.clear();
    if (hold_.emptied()) delete this;
  }

  Hold hold_;
  bool ready_made_ = false;
  HOLDFAST_NO_UNIQUE_ADDRESS Event ready_{};  // guarded by the hold's lock on the usage events
  const Bytes size_;
  Contents<Raw, Event> contents_;
  HOLDFAST_NO_UNIQUE_ADDRESS LastWait<SharedGuard, Event> last_;
};

}  // namespace holdfast::detail
