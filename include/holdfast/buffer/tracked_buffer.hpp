// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "holdfast/buffer/contents.hpp"
#include "holdfast/buffer/detail/shared_guard.hpp"
#include "holdfast/buffer/detail/sole_guard.hpp"
#include "holdfast/buffer/raw_buffer.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/concepts/hold_policy.hpp"
#include "holdfast/event/combine.hpp"
#include "holdfast/hold/scoped_hold.hpp"
#include "holdfast/hold/shared_hold.hpp"

// Use:
//   using Buffer = TrackedBuffer<SystemMemory, HostEvent>;
//   auto b = Buffer::allocate(SystemMemory{}, size);    // contents valid at once
//   auto c = Buffer::make(raw, {&written, 1});          // raw: Buffer::raw_type; valid after the event `written`
//   {
//     auto u = b->hold(HoldKind::usage);                // Result<ScopedHold>; also try_hold(kind), hold(kind, deadline)
//     read(u->raw().data(), u->definition_events());    // wait for these first
//     u->convert(done);                                 // or convert(): nothing to wait for; dropped: nothing enqueued
//   }
//   {
//     auto d = b->hold(HoldKind::donation);             // waits for usage holds; fails at once under an external hold
//     Buffer::raw_type reused = d->raw();               // one more owner of the memory; order after d->usage_events()
//     d->confirm(done);                                 // b is gone; dropped instead, b is as it was
//   }
//   auto x = b->hold(HoldKind::external);               // x->raw().data() stays valid, even after b
//   b->release();                                       // delete; the destructor does it too
//   b->release_on(stream);                              // delete in a stream's order: nobody waits, the stream has the bytes next

namespace holdfast {

namespace detail {
struct NoPromise {};
template <class Event>
struct PromiseOf {
  using type = NoPromise;
};
template <promised_event Event>
struct PromiseOf<Event> {
  using type = typename Event::promise_type;
};
}  // namespace detail

/// Bytes whose readiness and users are tracked: definition events, usage events and holds.
///
/// A movable handle, null after a move. With `NoHold` the contents lie inside it and nothing is counted; with another policy
/// they lie behind one pointer, so holds survive a move and external holds survive the handle.
/// Destroying it deletes: it waits for holds of other threads, never for events (with `NoHold`, and with events that
/// cannot notify, it waits for these). Threads: any, but one at a time may destroy, move or assign it. Source: PJRT buffer.
template <memory_backend Backend, event Event = default_event<Backend>, hold_policy Hold = SharedHold>
class TrackedBuffer {
 public:
  using backend_type = Backend;
  using event_type = Event;
  using hold_type = Hold;
  using raw_type = RawBuffer<Backend, typename Hold::ownership_type>;
  using scoped_hold = ScopedHold<TrackedBuffer>;
  using contents_type = Contents<raw_type, Event>;
  static constexpr bool counts_holds = Hold::ownership_type::shared;
  using guard_type = std::conditional_t<counts_holds, detail::SharedGuard<raw_type, Event, Hold>, detail::SoleGuard<raw_type, Event>>;

  TrackedBuffer() noexcept = default;
  TrackedBuffer(TrackedBuffer&& other) noexcept : guard_(std::move(other.guard_)) {
    if constexpr (counts_holds) other.guard_ = nullptr;
  }
  TrackedBuffer& operator=(TrackedBuffer&& other) noexcept {
    if constexpr (counts_holds) {
      TrackedBuffer old(std::move(*this));
      std::swap(guard_, other.guard_);
    } else {
      guard_ = std::move(other.guard_);
    }
    return *this;
  }
  ~TrackedBuffer() {
    if constexpr (counts_holds)
      if (guard_ != nullptr) guard_->orphan();
  }

  /// Makes a buffer of new memory, valid from the start. Errors: the backend's own; out_of_memory.
  [[nodiscard]] static Result<TrackedBuffer> allocate(Backend backend, Bytes size,
                                                                Alignment alignment = default_alignment) noexcept {
    Result<raw_type> raw = raw_type::allocate(std::move(backend), size, alignment);
    if (!raw.ok()) return raw.error();
    return make(std::move(*raw));
  }
  /// Makes a buffer of memory in the order of a stream; `write(block)` enqueues what makes it valid after that, and gives its event.
  ///
  /// Errors: the backend's own; those of `write`, upon which the memory goes back in the stream's order; out_of_memory.
  /// Stream: enqueues the allocation and what `write` does.
  template <stream_ordered_backend B = Backend, class Write>
  [[nodiscard]] static Result<TrackedBuffer> allocate_on(Backend backend, const typename B::stream_type& stream, Bytes size,
                                                         Alignment alignment, Write write) noexcept {
    const Result<Block> block = backend.allocate(stream, size, alignment);
    if (!block.ok()) return block.error();
    const Result<Event> written = write(*block);
    if (!written.ok()) return backend.deallocate(stream, *block), written.error();
    const std::span<const Event> definition(&*written, 1);
    Result<raw_type> raw = raw_type::adopt(std::move(backend), *block, definition);
    if (!raw.ok()) return raw.error();
    return make(std::move(*raw), definition);
  }
  /// Makes a buffer of bytes that are valid after all of the events; a null `raw` makes one that carries only their error.
  ///
  /// Errors: out_of_memory; the bytes are dropped then, after the events.
  [[nodiscard]] static Result<TrackedBuffer> make(raw_type raw, std::span<const Event> definition = {}) noexcept {
    EventList<Event> events;
    Error failure = events.append(definition);
    if (failure.ok()) return adopt(contents_type{std::move(raw), std::move(events), {}});
    static_cast<void>(wait_all(definition));
    return failure;
  }
  /// Makes a buffer of contents that were another's, usage events and all. Errors: out_of_memory; as above.
  [[nodiscard]] static Result<TrackedBuffer> adopt(contents_type contents) noexcept {
    if constexpr (!counts_holds) {
      return TrackedBuffer(guard_type(std::move(contents)));
    } else {
      if (auto* guard = new (std::nothrow) guard_type(std::move(contents)); guard != nullptr) return TrackedBuffer(guard);
      contents.block_until_unused();
      return make_error(Errc::out_of_memory, "no memory for a tracked buffer");
    }
  }

  /// Takes a hold, waiting for what is in its way.
  ///
  /// Errors: deleted or donated (the buffer is gone), held (a donation under an external hold, at once), deadline.
  /// Threads: any; parks only on a conflict. Cost: one atomic operation when nobody is in the way; allocates nothing.
  [[nodiscard]] Result<scoped_hold> hold(HoldKind kind, Deadline deadline = Deadline::never()) noexcept {
    guard_type* guard = this->guard();
    if (guard == nullptr) [[unlikely]] return null_handle();
    if (Error e = guard->acquire(kind, deadline); !e.ok()) return e;
    return scoped_hold(*guard, kind);
  }
  /// Takes a hold if nothing is in its way. Errors: as `hold`; would_block.
  [[nodiscard]] Result<scoped_hold> try_hold(HoldKind kind) noexcept { return hold(kind, Deadline::now()); }

  /// Deletes: newcomers fail at once, then it waits for usage holds; the memory goes after all events and external holds.
  ///
  /// A buffer that is gone already is no error. Errors: would_block, deadline (the buffer is as it was).
  /// Threads: any; blocks while usage or donation holds are out, never for events (but see the class).
  Error release(Deadline deadline = Deadline::never()) noexcept {
    guard_type* guard = this->guard();
    if (guard == nullptr) return {};
    return unless_gone(guard->release(deadline));
  }
  /// Deletes in the order of a stream: it waits for contents and readers, not the host, and its later work may have the memory.
  ///
  /// Bytes that others own too, or that the backend did not make, go as after `release`. A buffer that is gone already is no error.
  /// Errors: as a donation hold (the buffer is as it was); that of a wait, upon which the bytes go as after `release`.
  /// Stream: enqueues waits, then the release.
  template <stream_ordered_backend B = Backend>
    requires stream_event<Event, typename B::stream_type>
  Error release_on(typename B::stream_type stream, Deadline deadline = Deadline::never()) noexcept {
    Result<contents_type> contents = take(deadline);
    if (!contents.ok()) return unless_gone(contents.error());
    Error failure;
    for (const std::span<const Event> events : {std::as_const(contents->definition).span(), std::as_const(contents->usage).span()})
      for (const Event& e : events)
        if (failure.ok()) failure = Event(e).wait_on(stream);
    if (!failure.ok() || !contents->raw.release_on(stream)) static_cast<void>(adopt(std::move(*contents)));  // a buffer, deleted at once
    return failure;
  }
  /// Donates without a hold: gives the contents with all their events to the caller. Errors: as a donation hold.
  [[nodiscard]] Result<contents_type> take(Deadline deadline = Deadline::never()) noexcept {
    guard_type* guard = this->guard();
    if (guard == nullptr) return null_handle();
    return guard->take(deadline);
  }
  /// Deletes, and gives the caller an owner of the bytes: null if the buffer was gone already. External holds keep theirs.
  ///
  /// `wait`: blocks until readers and contents are done. Errors: as `block_for_operations`; the memory is dropped then.
  [[nodiscard]] Result<raw_type> release_ownership(bool wait) noexcept {
    guard_type* guard = this->guard();
    if (guard == nullptr) return raw_type();
    Result<contents_type> contents = guard->release_to_caller();
    if (!contents.ok()) return raw_type();
    if (wait) {
      const contents_type& c = *contents;
      if (Error e = holdfast::block_for_operations<Event>(c.usage.span(), c.definition.span()); !e.ok()) return e;
    }
    return std::move(contents->raw);
  }
  /// Gives the contents to a new buffer that is valid only after one more event, first in order; this one is deleted.
  ///
  /// The usage events go with them. Errors: as a donation hold (this buffer is as it was); out_of_memory.
  [[nodiscard]] Result<TrackedBuffer> donate_with_dependency(Event dependency, Deadline deadline = Deadline::never()) noexcept {
    Result<contents_type> contents = take(deadline);
    if (!contents.ok()) return contents.error();
    if (Error e = contents->definition.push_front(std::move(dependency)); !e.ok()) return contents->block_until_unused(), e;
    return adopt(std::move(*contents));
  }
  /// Calls `reader(raw, definition events)` under a usage hold, which is converted with the event that it gives.
  ///
  /// Errors: deleted or donated, as "`caller` called on deleted or donated buffer" (pass the whole literal); the reader's
  /// own, upon which the hold is dropped. Threads: as `hold`; no lock is held while the reader runs.
  template <class Reader>
  [[nodiscard]] Error use(const char* refusal, Reader reader) noexcept {
    Result<scoped_hold> held = hold(HoldKind::usage);
    if (!held.ok()) {
      Error e = held.error();
      if (e.code == Errc::deleted || e.code == Errc::donated) e.what = refusal;
      return e;
    }
    Result<Event> done = reader(held->raw(), held->definition_events());
    if (!done.ok()) return done.error();
    held->convert(*done);
    return {};
  }
  /// The bytes for a reader that ends at a time of its own: it reads after `ready` and then sets `done`, a usage event.
  struct RawUse {
    raw_type raw;
    typename detail::PromiseOf<Event>::type done;
    Event ready;
  };
  /// Gives them. Errors: as `use`; out_of_memory. Threads: as `hold`. Source: PJRT GetRawBufferForUsage.
  [[nodiscard]] Result<RawUse> raw_for_usage(const char* refusal) noexcept
    requires counts_holds && promised_event<Event>
  {
    Result<Event> ready = ready_event();
    if (!ready.ok()) {
      Error e = ready.error();
      if (e.code == Errc::deleted || e.code == Errc::donated) e.what = refusal;
      return e;
    }
    RawUse result{{}, {}, std::move(*ready)};
    Error e = use(refusal, [&](const raw_type& raw, std::span<const Event>) noexcept -> Result<Event> {
      if (!raw) return make_error(Errc::internal, "the buffer has no memory");
      Backend backend = raw.backend();
      auto promise = promise_of<Event>(backend);
      if (!promise.ok()) return promise.error();
      result.raw = raw;
      result.done = std::move(*promise);
      return result.done.get_event();
    });
    if (!e.ok()) return e;
    return Result<RawUse>(std::move(result));
  }
  /// Makes a stream wait until the contents are valid. Errors: the first that waiting gives; deleted or donated.
  template <class Stream>
    requires requires(Event& e, Stream& s) {
      { e.wait_on(s) } noexcept -> std::same_as<Error>;
    }
  [[nodiscard]] Error wait_until_ready_on(Stream& stream) noexcept {
    return use("wait_until_ready_on called on deleted or donated buffer",
               [&](const raw_type&, std::span<const Event> definition) noexcept -> Result<Event> {
                 for (const Event& e : definition)
                   if (Error failure = Event(e).wait_on(stream); !failure.ok()) return failure;
                 return Event{};
               });
  }
  /// True once it is deleted, donated or moved from; false while a donation is only pending.
  [[nodiscard]] bool is_deleted() const noexcept {
    const HoldCounts c = counts();
    return c.deleted || c.donated;
  }
  /// The holds that are out now; a moment later they may differ.
  [[nodiscard]] HoldCounts counts() const noexcept {
    if constexpr (counts_holds) return guard_ == nullptr ? HoldCounts{.deleted = true} : guard_->counts();
    else return guard_.counts();
  }
  /// The policy itself, for what it tells beyond the counts (`AuditedHold::report`); the handle must not be null.
  [[nodiscard]] const Hold& hold_state() const noexcept
    requires counts_holds
  {
    HOLDFAST_ASSERT(guard_ != nullptr);
    return guard_->hold_state();
  }
  /// The size it was made with.
  [[nodiscard]] constexpr Bytes size() const noexcept {
    if constexpr (counts_holds) return guard_ == nullptr ? 0 : guard_->size();
    else return guard_.raw().size();
  }
  /// What tells two buffers apart, whatever their handles: for looking a buffer up, never to be dereferenced.
  [[nodiscard]] const void* identity() const noexcept {
    if constexpr (counts_holds) return guard_;
    else return this;
  }
  /// The bytes of the only owner.
  [[nodiscard]] constexpr raw_type& raw() noexcept
    requires(!counts_holds)
  {
    return guard_.raw();
  }

  /// One event for "the contents are valid": failed with the first failed definition event in order.
  ///
  /// The same event every time; ready when nothing is pending. Errors: deleted or donated; out_of_memory.
  /// Threads: any; blocks while a donation is pending. Cost: allocates once, if two or more events are pending or failed.
  [[nodiscard]] Result<Event> ready_event() noexcept {
    guard_type* guard = this->guard();
    if (guard == nullptr) return null_handle();
    return guard->ready_event();
  }
  /// Waits for readers and contents. Errors: a failed definition event as INTERNAL "Error Execute: ..."; deleted or donated.
  /// Threads: blocks for a pending donation, then for events.
  [[nodiscard]] Error block_for_operations() noexcept {
    guard_type* guard = this->guard();
    if (guard == nullptr) return null_handle();
    EventList<Event> readers, contents_valid;
    Error failure;
    Error e = guard->inspect(Deadline::never(), [&](const Contents<raw_type, Event>& contents) noexcept {
      failure = contents.usage.append_to(readers);
      if (failure.ok()) failure = contents_valid.append(contents.definition.span());
    });
    if (!e.ok()) return e;
    if (!failure.ok()) return failure;
    return holdfast::block_for_operations<Event>(std::as_const(readers).span(), std::as_const(contents_valid).span());
  }

 private:
  explicit TrackedBuffer(guard_type* guard) noexcept
    requires counts_holds
      : guard_(guard) {}
  explicit TrackedBuffer(guard_type guard) noexcept
    requires(!counts_holds)
      : guard_(std::move(guard)) {}

  [[nodiscard]] constexpr guard_type* guard() noexcept {
    if constexpr (counts_holds) return guard_;
    else return &guard_;
  }
  [[nodiscard]] static Error unless_gone(const Error& e) noexcept {
    return e.code == Errc::deleted || e.code == Errc::donated ? Error{} : e;
  }
  [[nodiscard]] HOLDFAST_COLD static Error null_handle() noexcept {
    return make_error(Errc::deleted, "Buffer has been deleted or donated. Its handle was moved from");
  }

  std::conditional_t<counts_holds, guard_type*, guard_type> guard_{};
};

}  // namespace holdfast
