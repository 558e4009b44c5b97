// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "holdfast/backend/host/detail/core_owner.hpp"
#include "holdfast/backend/host/detail/slot_core.hpp"
#include "holdfast/backend/host/slot_policy.hpp"
#include "holdfast/concepts/sink.hpp"

namespace holdfast {

namespace detail {
// The address names a type without RTTI.
template <class T>
inline constexpr char slot_type = 0;
}  // namespace detail

/// N equal small slots cut from one allocation of a backend: for what control flow reads from the device, step after step.
///
/// Owns the slots' memory, which stays until the pool is gone and the last handle too. Its end, when nobody may be in a call of it,
/// reports each slot that is still held. Threads: as `Lock`: `LockFree` and `WordLock` any, `NoLock` one; made, moved and destroyed
/// by one. Cost of a slot: O(1). Source: XLA's HostMemoryPool, of which it has no defect.
template <memory_backend Backend, class Width = CacheLineSlots, class Exhaustion = FailWhenFull,
          class Lock = typename Exhaustion::default_lock, class Hygiene = KeepBytes, clock Clock = MonotonicClock>
class SlotPool {
  using Core = detail::SlotCore<Backend, Width, Exhaustion, Lock, Hygiene, Clock>;

 public:
  /// Holds a slot; gives it back when it dies. Move-only. Threads: a value; may die on any thread that the pool's lock allows.
  class Slot {
   public:
    /// Holds none.
    constexpr Slot() noexcept = default;
    Slot(Slot&& other) noexcept : core_(std::exchange(other.core_, nullptr)), taken_(other.taken_) {}
    /// Gives back what it held first.
    Slot& operator=(Slot&& other) noexcept {
      if (this == &other) return *this;
      static_cast<void>(release());
      core_ = std::exchange(other.core_, nullptr);
      taken_ = other.taken_;
      return *this;
    }
    ~Slot() { static_cast<void>(release()); }

    /// Tells whether it holds a slot.
    [[nodiscard]] explicit operator bool() const noexcept { return core_ != nullptr; }
    /// Its bytes; the empty block where it holds none.
    [[nodiscard]] Block block() const noexcept { return core_ == nullptr ? Block{} : Block{taken_.data, core_->options().size}; }
    [[nodiscard]] std::uint32_t index() const noexcept { return taken_.id.index; }
    /// The slot as a `T`. Errors: wrong_state (it holds none), invalid_argument (the pool is for another type, or `T` does not fit).
    template <class T>
    [[nodiscard]] Result<T*> get() const noexcept {
      static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_default_constructible_v<T>, "nobody makes or destroys it");
      if (core_ == nullptr) return make_error(Errc::wrong_state, "a handle without a slot was read");
      const SlotPoolOptions& o = core_->options();
      if (core_->type() != nullptr ? core_->type() != &detail::slot_type<T>
                                   : static_cast<Bytes>(sizeof(T)) > o.size || static_cast<Bytes>(alignof(T)) > o.alignment)
        return make_error(Errc::invalid_argument, "a pinned host slot was read as another type than the pool's");
      return reinterpret_cast<T*>(taken_.data);
    }
    /// Gives the slot back now. Errors: internal (it was given back behind the handle's back; nothing is changed).
    Error release() noexcept {
      Core* core = std::exchange(core_, nullptr);
      return core == nullptr ? Error{} : core->release(taken_.id);
    }
    /// Lets go of the slot without giving it back, so that its name can pass through a callback's argument: `SlotPool::adopt`.
    [[nodiscard]] SlotId detach() noexcept {
      core_ = nullptr;
      return taken_.id;
    }

   private:
    friend class SlotPool;
    Slot(Core* core, const typename Core::Taken& taken) noexcept : core_(core), taken_(taken) {}
    Core* core_ = nullptr;
    typename Core::Taken taken_;
  };

  /// Makes a pool, with one allocation of the backend.
  /// Errors: invalid_argument (no slots, sizes that overflow; before the backend is asked), as the backend's, with the bytes.
  [[nodiscard]] static Result<SlotPool> make(Backend backend, const SlotPoolOptions& options, Clock clock = {}) noexcept {
    return make(std::move(backend), options, nullptr, std::move(clock));
  }
  /// Makes a pool whose slots each hold a `T`, and are read as nothing else. Errors: as `make`.
  template <class T>
  [[nodiscard]] static Result<SlotPool> make_for(Backend backend, SlotPoolOptions options = {}, Clock clock = {}) noexcept {
    options.size = sizeof(T);
    if (options.alignment < static_cast<Bytes>(alignof(T))) options.alignment = alignof(T);
    return make(std::move(backend), options, &detail::slot_type<T>, std::move(clock));
  }

  /// Takes a slot. Errors: over_budget (all are in use), deadline (`WaitWhenFull`), as the backend's (`GrowWhenFull`).
  [[nodiscard]] Result<Slot> acquire(Tag tag = {}) noexcept {
    NullSink none;
    return acquire(tag, none);
  }
  /// The same; where there is none, writes to `out` who holds one longest.
  template <sink S>
  [[nodiscard]] Result<Slot> acquire(Tag tag, S& out) noexcept {
    Result<typename Core::Taken> taken = core_->acquire(tag);
    if (taken.ok()) [[likely]] return Slot(core_.get(), *taken);
    if constexpr (!std::is_same_v<S, NullSink>) static_cast<void>(explain(taken.error(), out));
    return taken.error();
  }
  /// Gives a slot back by its name. Errors: internal (it is not held, or not by that holder; counted and reported).
  Error release(SlotId id) noexcept { return core_->release(id); }
  /// Makes a handle of a name that `Slot::detach` gave. Errors: internal, as `release`.
  [[nodiscard]] Result<Slot> adopt(SlotId id) noexcept {
    if (!core_->held(id)) return core_->stale(id);
    return Slot(core_.get(), {id, core_->data_of(id.index)});
  }

  /// Calls `visitor(index, tag, age)` for each slot that is held; it must not use the pool. Units: nanoseconds.
  template <class Visitor>
  void visit_held(Visitor visitor) noexcept {
    core_->visit(std::move(visitor));
  }
  /// Cost: linear in the slots.
  [[nodiscard]] SlotPoolStatistics statistics() noexcept { return core_->statistics(); }

 private:
  explicit SlotPool(Core* core) noexcept : core_(core) {}
  [[nodiscard]] static Result<SlotPool> make(Backend backend, const SlotPoolOptions& options, const void* type, Clock clock) noexcept {
    Result<Core*> core = Core::make(std::move(backend), options, type, std::move(clock));
    if (!core.ok()) return core.error();
    return SlotPool(*core);
  }

  template <class S>
  HOLDFAST_COLD Error explain(const Error& why, S& out) noexcept {
    Error failure = write_error(out, why);
    const auto put = [&](std::string_view text) {
      if (failure.ok()) failure = out.write(text);
    };
    const auto put_number = [&](std::int64_t n) {
      if (failure.ok()) failure = write_number(out, n);
    };
    const SlotPoolStatistics s = statistics();
    put("; "), put_number(s.in_use), put(" of "), put_number(s.capacity), put(" pinned host slots are in use");
    if (const auto oldest = core_->oldest(); oldest.age >= 0) {
      put("; slot "), put_number(oldest.index), put(" has been held for "), put_number(oldest.age / 1'000'000), put(" ms");
      if (oldest.tag.name != nullptr) put(" by \""), put(oldest.tag.name), put("\" "), put_number(static_cast<std::int64_t>(oldest.tag.number));
    }
    return failure;
  }

  detail::OwnedCore<Core> core_;
};

}  // namespace holdfast
