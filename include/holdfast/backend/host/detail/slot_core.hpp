// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "holdfast/backend/host/detail/slot_list.hpp"
#include "holdfast/backend/host/detail/slot_waiters.hpp"
#include "holdfast/backend/host/slot_policy.hpp"
#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/concepts/clock.hpp"
#include "holdfast/concepts/memory_backend.hpp"

namespace holdfast::detail {

/// What a slot pool and its handles share. Lives until the pool is gone and the last slot is back. Threads: as `Lock`.
///
/// A slot's record belongs to its holder; what others read of it, for reports, is atomic. Its generation is odd while it is held:
/// who makes it even has released it, and nobody else.
template <memory_backend Backend, class Width, class Exhaustion, class Lock, class Hygiene, clock Clock>
class SlotCore {
  static constexpr bool lock_free = std::is_same_v<Lock, LockFree>;
  static constexpr bool waits = std::is_same_v<Exhaustion, WaitWhenFull>, grows = std::is_same_v<Exhaustion, GrowWhenFull>;
  static constexpr bool poisons = std::is_same_v<Hygiene, PoisonOnRelease>, zeroes = std::is_same_v<Hygiene, ZeroOnAcquire>;
  static_assert(!(waits && lock_free), "waiting in turn needs a lock: take WordLock");
  static_assert(!(poisons || zeroes) || host_accessible<Backend>, "the host writes the slots");
  using Sync = std::conditional_t<lock_free, StdSync, NoSync>;
  using Mutex = std::conditional_t<lock_free, NoLock, Lock>;
  using List = SlotList<Sync>;
  template <class T>
  using atomic = typename Sync::template atomic<T>;
  static constexpr auto relaxed = std::memory_order_relaxed;

 public:
  struct alignas(64) Record {
    atomic<std::uint32_t> next{0};
    atomic<std::uint64_t> generation{0};
    atomic<const char*> tag_name{nullptr};
    atomic<std::uint64_t> tag_number{0};
    atomic<std::int64_t> since{0};
  };
  struct Taken {
    SlotId id;
    std::byte* data = nullptr;
  };
  struct Oldest {
    std::uint32_t index = List::none;
    Tag tag;
    std::int64_t age = -1;
  };

  [[nodiscard]] static Result<SlotCore*> make(Backend backend, const SlotPoolOptions& options, const void* type, Clock clock) noexcept {
    Bytes stride = 0, block_size = 0;
    const std::int64_t most = grows ? std::max(options.count, options.max_count) : options.count;
    if (options.size <= 0 || options.count <= 0 || most > std::int64_t{List::most} || !is_power_of_two(options.alignment) ||
        !checked_align_up(options.size, std::max(Width::multiple, options.alignment), stride) ||
        !checked_multiply(stride, options.count, block_size))
      return failure(Errc::invalid_argument, "a slot pool has 1 to 32767 slots of 1 byte or more, aligned to a power of two");
    const auto records = static_cast<std::uint32_t>(most);
    Result<Block> own = SystemMemory{}.allocate(own_size(records, options), Alignment(alignof(SlotCore)));
    if (!own.ok()) return own.error();
    auto* core = ::new (static_cast<void*>(own->data)) SlotCore(std::move(backend), options, stride, records, type, std::move(clock));
    if (Error e = core->add_block(); !e.ok()) return core->destroy(), e;
    core->growths_ = 0;
    return core;
  }

  [[nodiscard]] Result<Taken> acquire(Tag tag) noexcept {
    Taken taken;
    Tag before;
    const std::int64_t now = clock_.coarse_now();
    const auto begin = [&](std::uint32_t i) {
      Record& r = record(i);
      if constexpr (poisons) before = tag_of(r);
      r.tag_name.store(tag.name, relaxed);
      r.tag_number.store(tag.number, relaxed);
      r.since.store(now, relaxed);
      taken = {{i, r.generation.load(relaxed) + 1}, data_of(i)};
      r.generation.store(taken.id.generation, std::memory_order_release);
    };
    if (!locked([&] {
          const std::uint32_t i = pop();
          return i != List::none && (begin(i), true);
        })) [[unlikely]] {
      Error why;
      const std::uint32_t i = when_full(why);
      if (i == List::none) return why;
      locked([&] { begin(i); });
    }
    if constexpr (poisons)
      if (!poisoned(taken.data)) damage(taken.id.index, before);
    if constexpr (zeroes) std::memset(taken.data, 0, static_cast<std::size_t>(stride_));
    return taken;
  }

  /// Errors: internal (it is not held, or by another).
  [[nodiscard]] Error release(SlotId id) noexcept {
    bool last = false;
    Waiter* woken = nullptr;
    const bool known = locked([&] {
      if (id.index >= capacity_.load(std::memory_order_acquire) || id.generation % 2 == 0) return false;
      Record& r = record(id.index);
      std::uint64_t g = id.generation;
      if (!r.generation.compare_exchange_strong(g, g + 1, std::memory_order_acq_rel, relaxed)) return false;
      if constexpr (poisons) poison(data_of(id.index));
      if constexpr (waits) woken = waiters_.pop();
      if (woken == nullptr) last = list_.push(id.index, links());
      if constexpr (waits)
        if (woken != nullptr) woken->give(id.index);  // the slot stays out: it changes hands
      return true;
    });
    if (!known) return stale(id);
    if (last) destroy();
    return {};
  }
  [[nodiscard]] bool held(SlotId id) noexcept {
    return locked([&] {
      return id.index < capacity_.load(std::memory_order_acquire) && id.generation % 2 == 1 &&
             record(id.index).generation.load(std::memory_order_acquire) == id.generation;
    });
  }
  [[nodiscard]] std::byte* data_of(std::uint32_t i) const noexcept {
    const auto per_block = static_cast<std::uint32_t>(options_.count);
    return blocks()[i / per_block] + static_cast<std::ptrdiff_t>(i % per_block) * stride_;
  }
  [[nodiscard]] const SlotPoolOptions& options() const noexcept { return options_; }
  [[nodiscard]] const void* type() const noexcept { return type_; }
  HOLDFAST_COLD Error stale(SlotId id) noexcept {
    locked([&] {
      stale_.fetch_add(1, relaxed);
      report({SlotReportKind::stale_release, id.index, {}, 0});
    });
    return failure(Errc::internal, "a pinned host slot was released that its handle does not hold");
  }

  /// The pool goes; its memory stays while slots are out, which are reported.
  void close() noexcept {
    visit([&](std::uint32_t i, Tag tag, std::int64_t age) { report({SlotReportKind::live_at_end, i, tag, age}); });
    if (locked([&] { return list_.close(); })) destroy();
  }
  /// Calls `visitor(index, tag, age)` for each slot that is held.
  template <class Visitor>
  void visit(Visitor visitor) noexcept {
    const std::int64_t now = clock_.coarse_now();
    locked([&] {
      for (std::uint32_t i = 0; i < capacity_.load(std::memory_order_acquire); ++i)
        if (const Record& r = record(i); r.generation.load(std::memory_order_acquire) % 2 == 1) visitor(i, tag_of(r), now - r.since.load(relaxed));
    });
  }
  [[nodiscard]] Oldest oldest() noexcept {
    Oldest found;
    visit([&](std::uint32_t i, Tag tag, std::int64_t age) {
      if (age > found.age) found = {i, tag, age};
    });
    return found;
  }
  [[nodiscard]] SlotPoolStatistics statistics() noexcept {
    return locked([&] {
      SlotPoolStatistics s;
      s.capacity = capacity_.load(std::memory_order_acquire);
      s.in_use = list_.out();
      s.peak_in_use = peak_.load(relaxed);
      for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(s.capacity); ++i)
        s.acquires += static_cast<std::int64_t>((record(i).generation.load(relaxed) + 1) / 2);
      s.failures = failures_.load(relaxed);
      s.waits = waits_;
      s.wait_total = wait_total_;
      s.wait_max = wait_max_;
      s.growths = growths_.load(relaxed);
      s.stale_releases = stale_.load(relaxed);
      s.damaged = damaged_.load(relaxed);
      return s;
    });
  }

 private:
  SlotCore(Backend backend, const SlotPoolOptions& options, Bytes stride, std::uint32_t records, const void* type, Clock clock) noexcept
      : options_(options), stride_(stride), records_(records), type_(type), backend_(std::move(backend)), clock_(std::move(clock)) {
    for (std::uint32_t i = 0; i < records; ++i) ::new (static_cast<void*>(&record(i))) Record;
    for (std::uint32_t i = 0; i < block_count(records, options); ++i) ::new (static_cast<void*>(blocks() + i)) std::byte*(nullptr);
  }
  [[nodiscard]] static std::uint32_t block_count(std::uint32_t records, const SlotPoolOptions& o) noexcept {
    const auto per_block = static_cast<std::uint32_t>(o.count);
    return (records + per_block - 1) / per_block;
  }
  [[nodiscard]] static Bytes own_size(std::uint32_t records, const SlotPoolOptions& o) noexcept {
    return static_cast<Bytes>(sizeof(SlotCore) + records * sizeof(Record) + block_count(records, o) * sizeof(std::byte*));
  }
  // Behind the core lie the records, and behind them the addresses of the blocks.
  [[nodiscard]] Record& record(std::uint32_t i) noexcept { return reinterpret_cast<Record*>(this + 1)[i]; }
  [[nodiscard]] std::byte** blocks() const noexcept {
    auto* records = reinterpret_cast<std::byte*>(const_cast<SlotCore*>(this + 1));
    return reinterpret_cast<std::byte**>(records + records_ * sizeof(Record));
  }
  [[nodiscard]] auto links() noexcept {
    return [this](std::uint32_t i) noexcept -> atomic<std::uint32_t>& { return record(i).next; };
  }
  template <class F>
  auto locked(F f) noexcept {
    LockGuard guard(mutex_);
    return f();
  }

  [[nodiscard]] std::uint32_t pop() noexcept {
    std::uint32_t out = 0;
    const std::uint32_t i = list_.pop(links(), out);
    if (i != List::none)
      for (std::uint32_t peak = peak_.load(relaxed); peak < out && !peak_.compare_exchange_weak(peak, out, relaxed, relaxed);) {
      }
    return i;
  }

  [[nodiscard]] HOLDFAST_COLD std::uint32_t when_full(Error& why) noexcept {
    std::uint32_t i = List::none;
    if constexpr (waits) {
      i = wait(why);
    } else if constexpr (grows) {
      LockGuard guard(growth_);  // one grows; the others find its slots
      i = locked([&] {
        std::uint32_t found = pop();
        if (found != List::none || capacity_.load(relaxed) >= records_) return found;
        why = add_block();
        return why.ok() ? pop() : found;
      });
    }
    if (i != List::none) return i;
    locked([&] { failures_.fetch_add(1, relaxed); });
    if (why.ok()) {
      why = failure(Errc::over_budget, "all pinned host slots are in use");
      why.requested = 1;
      why.available = 0;
      why.at_kind = AtKind::count;
      why.at = capacity_.load(relaxed);
    }
    return i;
  }

  [[nodiscard]] std::uint32_t wait(Error& why) noexcept {
    const std::int64_t start = clock_.now(), until = saturating_add(start, options_.timeout);
    Waiter me;
    const std::uint32_t found = locked([&] {
      const std::uint32_t i = pop();
      if (i == List::none) waiters_.push(me);
      return i;
    });
    if (found != List::none) return found;
    std::int64_t now = start;
    while (me.waiting() && now < until) {
      clock_.wait_until(me.word(), 0, until);
      now = clock_.now();
    }
    locked([&] {
      if (me.waiting()) waiters_.remove(me);
      ++waits_;
      wait_total_ += now - start;
      wait_max_ = std::max(wait_max_, now - start);
    });
    if (!me.waiting()) return me.index();
    why = failure(Errc::deadline, "no pinned host slot came back in time");
    why.at_kind = AtKind::count;
    why.at = capacity_.load(relaxed);
    return List::none;
  }

  // Adds `count` slots, or as many as are left. Under the lock, or growth's, or before anybody knows the pool.
  [[nodiscard]] Error add_block() noexcept {
    const std::uint32_t first = capacity_.load(relaxed);
    const std::uint32_t count = std::min(static_cast<std::uint32_t>(options_.count), records_ - first);
    const Bytes size = stride_ * static_cast<Bytes>(count);
    Result<Block> block = backend_.allocate(size, Alignment(std::max<Bytes>(64, options_.alignment)));
    if (!block.ok()) {
      Error e = failure(block.error().code, "Out of memory allocating pinned host slots");
      e.native = block.error().native;
      e.requested = size;
      e.available = block.error().available;
      return e;
    }
    blocks()[first / static_cast<std::uint32_t>(options_.count)] = block->data;
    if constexpr (poisons) std::memset(block->data, poison_byte, static_cast<std::size_t>(size));
    for (std::uint32_t i = first; i + 1 < first + count; ++i) record(i).next.store(i + 1, relaxed);
    capacity_.store(first + count, std::memory_order_release);
    list_.add(first, first + count - 1, links());
    growths_.fetch_add(1, relaxed);
    return {};
  }

  void destroy() noexcept {
    const std::uint32_t capacity = capacity_.load(std::memory_order_acquire);
    const auto per_block = static_cast<std::uint32_t>(options_.count);
    for (std::uint32_t first = 0; first < capacity && !leaks_; first += per_block)
      backend_.deallocate({blocks()[first / per_block], stride_ * static_cast<Bytes>(std::min(per_block, capacity - first))});
    const Bytes size = own_size(records_, options_);
    this->~SlotCore();
    SystemMemory{}.deallocate({reinterpret_cast<std::byte*>(this), size});
  }

  static constexpr int poison_byte = 0xA5;
  void poison(std::byte* data) noexcept { std::memset(data, poison_byte, static_cast<std::size_t>(stride_)); }
  [[nodiscard]] bool poisoned(const std::byte* data) const noexcept {
    return std::all_of(data, data + stride_, [](std::byte b) { return b == std::byte{poison_byte}; });
  }
  HOLDFAST_COLD void damage(std::uint32_t i, Tag by) noexcept {
    locked([&] {
      damaged_.fetch_add(1, relaxed);
      report({SlotReportKind::damaged, i, by, 0});
    });
  }
  void report(const SlotReport& what) noexcept {
    if (what.kind == SlotReportKind::live_at_end) leaks_ = options_.leak_at_end;
    if (options_.report != nullptr) options_.report(options_.context, what);
  }
  [[nodiscard]] static Tag tag_of(const Record& r) noexcept { return {r.tag_name.load(relaxed), r.tag_number.load(relaxed)}; }
  [[nodiscard]] static Error failure(Errc code, const char* what) noexcept {
    Error e = make_error(code, what);
    e.stage = Stage::allocation;
    return e;
  }

  alignas(64) List list_;  // alone on its line: what all threads change
  alignas(64) HOLDFAST_NO_UNIQUE_ADDRESS Mutex mutex_;
  WaiterQueue waiters_;
  atomic<std::uint32_t> capacity_{0}, peak_{0};
  atomic<std::int64_t> failures_{0}, growths_{0}, stale_{0}, damaged_{0};
  std::int64_t waits_ = 0, wait_total_ = 0, wait_max_ = 0;
  bool leaks_ = false;
  WordLock growth_;
  const SlotPoolOptions options_;
  const Bytes stride_;
  const std::uint32_t records_;
  const void* const type_;
  HOLDFAST_NO_UNIQUE_ADDRESS Backend backend_;
  HOLDFAST_NO_UNIQUE_ADDRESS Clock clock_;
};

}  // namespace holdfast::detail
