// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/backend/layer/detail/layer_base.hpp"
#include "holdfast/concepts/lock.hpp"
#include "holdfast/concepts/sink.hpp"
#include "holdfast/core/hash_table.hpp"
#include "holdfast/core/types.hpp"

namespace holdfast {

/// What a guard finds.
enum class GuardFaultKind : std::uint8_t {
  overrun,         ///< bytes behind the block were written
  underrun,        ///< bytes before it
  use_after_free,  ///< bytes of a released block, or around it, were written
  double_free,     ///< a released block was released again
  wrong_size,      ///< a block was released with another size
  unknown_block,   ///< a block was released that is not, or no longer, known
};

/// A fault, and of whose memory.
struct GuardFault {
  GuardFaultKind kind = GuardFaultKind::unknown_block;
  Block block;               ///< as it was handed out; for an unknown one as it came
  Tag tag;
  std::uint64_t number = 0;  ///< the how-manieth allocation it was, from 1
  Bytes offset = 0;          ///< of the first damaged byte, from the block's start: negative before it
  Bytes damaged = 0;         ///< from there to the last damaged byte; for `wrong_size` the size it came with
};

/// Writes the sentence of a fault. Errors: the first failure of the sink.
template <sink S>
Error write_fault(S& out, const GuardFault& fault) noexcept {
  constexpr std::string_view names[] = {"written behind", "written before", "written after its release:", "released twice:",
                                        "released with a wrong size:", "released, but not known:"};
  Error failure;
  const auto put = [&](std::string_view text) {
    if (failure.ok()) failure = out.write(text);
  };
  const auto put_number = [&](std::int64_t n) {
    if (failure.ok()) failure = write_number(out, n);
  };
  put(names[static_cast<std::size_t>(fault.kind)]), put(" a block of "), put_number(fault.block.size), put(" bytes");
  if (fault.number != 0) put(", allocation "), put_number(static_cast<std::int64_t>(fault.number));
  if (fault.tag.name != nullptr) put(" \""), put(fault.tag.name), put("\" "), put_number(static_cast<std::int64_t>(fault.tag.number));
  if (fault.kind <= GuardFaultKind::use_after_free)
    put(", "), put_number(fault.damaged), put(" bytes at offset "), put_number(fault.offset);
  if (fault.kind == GuardFaultKind::wrong_size) put(", as "), put_number(fault.damaged), put(" bytes");
  return failure;
}

/// Something that is told of faults; it is called under the guard's lock and must not use the guarded memory.
template <class R>
concept fault_reporter = requires(R& reporter, const GuardFault& fault) {
  { reporter.on_fault(fault) } noexcept -> std::same_as<void>;
};

/// Writes the fault to the error output and ends the process: the default.
struct AbortOnFault {
  HOLDFAST_COLD void on_fault(const GuardFault& fault) noexcept {
    struct ErrorOutput {
      Error write(std::string_view text) noexcept {
        return ::write(2, text.data(), text.size()) < 0 ? make_error(Errc::internal, "write") : Error{};
      }
    } out;
    static_cast<void>(out.write("holdfast: "));
    static_cast<void>(write_fault(out, fault));
    static_cast<void>(out.write("\n"));
    std::abort();
  }
};
static_assert(fault_reporter<AbortOnFault>);

/// How much a guard guards.
struct GuardOptions {
  Bytes zone = 64;                       ///< red zone before (at least) and behind each block
  Bytes quarantine = Bytes{16} << 20;  ///< bytes of released blocks that are kept to find uses of them; 0: none
};

namespace detail {

// What a guard knows of a block.
struct GuardRecord {
  std::byte* data = nullptr;  // where the user's bytes begin; null: no record
  Bytes size = 0;
  Bytes front = 0;  // bytes of red zone before it
  Tag tag;
  std::uint64_t number = 0;
  std::byte* next = nullptr;  // the one released after it
  bool freed = false;

  [[nodiscard]] bool is_used() const noexcept { return data != nullptr; }
  [[nodiscard]] bool is_same(const GuardRecord& other) const noexcept { return data == other.data; }
  [[nodiscard]] std::uint64_t hash() const noexcept {
    return (reinterpret_cast<std::uintptr_t>(data) * std::uint64_t{0x9E3779B97F4A7C15u}) >> 32;
  }
};

}  // namespace detail

/// What `Guarded` knows: the blocks that are out and those in quarantine, which go back to the source when it dies.
///
/// It is made empty and stands under the one stack that is made with it. Threads: as the source; its own figures any.
template <memory_backend Up, fault_reporter Reporter = AbortOnFault>
class Guard {
  static_assert(host_accessible<Up>, "red zones are written by the host");

 public:
  explicit Guard(GuardOptions options = {}, Reporter reporter = {}) noexcept
      : options_{options.zone < 1 ? 1 : options.zone, options.quarantine}, reporter_(std::move(reporter)) {}
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() { static_cast<void>(flush()); }

  /// Looks at all blocks, out or in quarantine, and reports what was written where nobody may; says how many faults that were.
  ///
  /// Each damage is reported once. Cost: linear in the bytes of red zones and quarantine.
  std::size_t check() noexcept {
    LockGuard guard(lock_);
    std::size_t faults = 0;
    table_.visit([&](Record& r) { faults += inspect(r); });
    return faults;
  }
  /// Gives all blocks in quarantine back, after a look at them; says how many bytes of blocks that were.
  Bytes flush() noexcept {
    LockGuard guard(lock_);
    return shrink_quarantine(0);
  }
  /// How many blocks are out.
  [[nodiscard]] std::size_t live() noexcept {
    LockGuard guard(lock_);
    return table_.count() - waiting_;
  }
  [[nodiscard]] Reporter& reporter() noexcept { return reporter_; }

 private:
  template <fault_reporter>
  friend struct Guarded;
  using Record = detail::GuardRecord;
  static constexpr unsigned char zone_byte = 0xFD, fresh_byte = 0xCD, freed_byte = 0xDD;

  void attach(const Up& up) noexcept {
    LockGuard guard(lock_);
    if (!up_.has_value()) up_.emplace(up);
  }

  template <class Take>
  [[nodiscard]] Result<Block> take(Bytes size, Alignment alignment, Tag tag, Take take_up) noexcept {
    if (size <= 0) return take_up(*up_, size);
    Bytes front = 0, whole = 0;
    const bool fits = checked_align_up(options_.zone, alignment.value(), front) && checked_add(front, size, whole) &&
                      checked_add(whole, options_.zone, whole);
    if (!fits) return failure("a block with its red zones is larger than any memory", size);
    // Outside of the lock: a layer below may wait there for others to release.
    const auto ask = [&]() noexcept -> Result<Block> {
      Result<Block> first = take_up(*up_, whole);
      if (first.ok() || status_kind(first.error()) != StatusKind::resource_exhausted || flush() == 0) return first;
      return take_up(*up_, whole);
    };
    const Result<Block> got = ask();
    if (!got.ok()) {
      Error e = got.error();
      e.requested = size;
      return e;
    }
    std::memset(got->data + front, fresh_byte, bytes(size));
    {
      LockGuard guard(lock_);
      const Record r{got->data + front, size, front, tag, ++number_, nullptr, false};
      if (table_.insert(r) != nullptr) return arm(r), Block{r.data, size};
    }
    up_->deallocate(*got);
    return failure("Out of memory for the records of a guard", size);
  }

  void give(Block block) noexcept {
    if (block.data == nullptr) return;
    LockGuard guard(lock_);
    Record* r = find(block.data);
    if (r == nullptr) return reporter_.on_fault({GuardFaultKind::unknown_block, block, {}, 0, 0, 0});
    if (r->freed) return reporter_.on_fault(fault_of(*r, GuardFaultKind::double_free));
    if (r->size != block.size) {
      GuardFault fault = fault_of(*r, GuardFaultKind::wrong_size);
      fault.damaged = block.size;
      reporter_.on_fault(fault);
    }
    inspect(*r);
    std::memset(r->data, freed_byte, bytes(r->size));
    r->freed = true;
    ++waiting_;
    waiting_bytes_ += r->size;
    (first_ == nullptr ? first_ : find(last_)->next) = r->data;
    last_ = r->data;
    static_cast<void>(shrink_quarantine(options_.quarantine));
  }

  // Lets the oldest go until at most `most` bytes wait; the bytes that went.
  Bytes shrink_quarantine(Bytes most) noexcept {
    const Bytes before = waiting_bytes_;
    while (first_ != nullptr && (waiting_bytes_ > most || most == 0)) {
      Record* r = find(first_);
      inspect(*r);
      const Record gone = *r;
      table_.erase(r);
      first_ = gone.next;
      --waiting_;
      waiting_bytes_ -= gone.size;
      up_->deallocate({gone.data - gone.front, gone.front + gone.size + options_.zone});
    }
    return before - waiting_bytes_;
  }

  [[nodiscard]] Record* find(std::byte* data) noexcept { return table_.find(Record{data, 0, 0, {}, 0, nullptr, false}); }
  void arm(const Record& r) noexcept {
    std::memset(r.data - r.front, zone_byte, bytes(r.front));
    std::memset(r.data + r.size, zone_byte, bytes(options_.zone));
  }

  // Reports what is wrong with a block and rights it; the number of faults.
  std::size_t inspect(Record& r) noexcept {
    const std::size_t faults = look(r, r.data - r.front, r.front, zone_byte, GuardFaultKind::underrun) +
                               (r.freed ? look(r, r.data, r.size, freed_byte, GuardFaultKind::use_after_free) : 0u) +
                               look(r, r.data + r.size, options_.zone, zone_byte, GuardFaultKind::overrun);
    return faults;
  }
  std::size_t look(Record& r, std::byte* from, Bytes size, unsigned char want, GuardFaultKind kind) noexcept {
    const auto good = [want](std::byte b) { return b == std::byte{want}; };
    if (good(*from) && std::memcmp(from, from + 1, bytes(size) - 1) == 0) return 0;
    Bytes first = 0, last = size - 1;
    while (good(from[first])) ++first;
    while (good(from[last])) --last;
    GuardFault fault = fault_of(r, r.freed ? GuardFaultKind::use_after_free : kind);
    fault.offset = from - r.data + first;
    fault.damaged = last - first + 1;
    std::memset(from, want, bytes(size));
    reporter_.on_fault(fault);
    return 1;
  }

  [[nodiscard]] static GuardFault fault_of(const Record& r, GuardFaultKind kind) noexcept {
    return {kind, {r.data, r.size}, r.tag, r.number, 0, 0};
  }
  [[nodiscard]] static std::size_t bytes(Bytes n) noexcept { return static_cast<std::size_t>(n); }
  [[nodiscard]] HOLDFAST_COLD static Error failure(const char* what, Bytes size) noexcept {
    Error e = make_error(Errc::out_of_memory, what);
    e.stage = Stage::allocation;
    e.requested = size;
    return e;
  }

  WordLock lock_;
  GuardOptions options_;
  std::optional<Up> up_;
  HashTable<detail::GuardRecord, SystemMemory> table_;
  std::byte *first_ = nullptr, *last_ = nullptr;  // of the quarantine, oldest first
  std::size_t waiting_ = 0;
  Bytes waiting_bytes_ = 0;
  std::uint64_t number_ = 0;
  HOLDFAST_NO_UNIQUE_ADDRESS Reporter reporter_;
};

/// Finds writes outside of blocks, writes into released ones, and wrong releases, in memory that the host can write.
///
/// A block has red zones before and behind it, is spoiled (0xCD) before its first use and (0xDD) at its release, and then stays in
/// quarantine for a while. Zones are looked at when the block is released and by `Guard::check`, quarantine when a block leaves it.
/// Reads are not seen: they show as 0xCD or 0xDD. Nothing is in the order of a stream here. Threads: as the source. Cost: red zones, and a table entry a block.
template <fault_reporter Reporter = AbortOnFault>
struct Guarded {
  template <memory_backend Up>
  class layer : public detail::LayerBase<layer<Up>, Up, true, false> {
    using Base = detail::LayerBase<layer<Up>, Up, true, false>;
    friend Base;

   public:
    using state_type = Guard<Up, Reporter>;
    layer(Up up, state_type& guard) noexcept : Base(up), guard_(&guard) { guard.attach(up); }

    /// The largest request of an alignment up to the red zone's that fits with its zones.
    [[nodiscard]] Bytes largest_free() noexcept
      requires inspectable_backend<Up>
    {
      const Bytes free = this->up().largest_free() - 2 * guard_->options_.zone;
      return free < 0 ? 0 : free;
    }
    /// Gives the quarantine back too.
    Bytes trim(Bytes keep) noexcept
      requires inspectable_backend<Up>
    {
      guard_->flush();
      return this->up().trim(keep);
    }

   private:
    [[nodiscard]] Result<Block> take(Bytes size, Alignment alignment, Tag tag) noexcept {
      return guard_->take(size, alignment, tag, [&](Up& up, Bytes whole) noexcept -> Result<Block> {
        if constexpr (tagging_backend<Up>)
          return up.allocate(whole, alignment, tag);
        else
          return up.allocate(whole, alignment);
      });
    }
    void give(Block block) noexcept { guard_->give(block); }
    state_type* guard_;
  };
};
static_assert(memory_backend<Guarded<>::layer<EmptyMemory>>);

}  // namespace holdfast
