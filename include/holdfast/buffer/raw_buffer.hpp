// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "holdfast/buffer/bounds.hpp"
#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/concepts/ownership.hpp"
#include "holdfast/event/combine.hpp"
#include "holdfast/event/immediate_event.hpp"

namespace holdfast {

/// The alignment of a buffer's memory where its maker asks for none: a cache line.
inline constexpr Alignment default_alignment{64};

/// What is done with foreign memory when its last owner goes; `release` runs once, or is null for memory that is never freed.
struct ForeignRelease {
  void (*release)(void* context, Block block) noexcept = nullptr;
  void* context = nullptr;
};

/// A part of a buffer.
struct SliceRange {
  Bytes offset = 0;
  Bytes length = 0;
};

namespace detail {

// The copies of both kinds of ownership: bounds, then the backend's own way or the host's.
template <class Backend>
struct RawCopy {
  using event_type = default_event<Backend>;

  static Result<event_type> in(Backend& backend, Block to, Bytes offset, std::span<const std::byte> from) noexcept {
    const auto n = static_cast<Bytes>(from.size());
    if (Error e = check_bounds(to.size, offset, n); !e.ok()) return e;
    if constexpr (plain_copying<Backend>) {
      return backend.copy_in(to, offset, from);
    } else {
      if (n != 0) std::memmove(to.data + offset, from.data(), from.size());
      return event_type{};
    }
  }
  static Result<event_type> out(Backend& backend, Block from, Bytes offset, std::span<std::byte> to) noexcept {
    const auto n = static_cast<Bytes>(to.size());
    if (Error e = check_bounds(from.size, offset, n); !e.ok()) return e;
    if constexpr (plain_copying<Backend>) {
      return backend.copy_out(from, offset, to);
    } else {
      if (n != 0) std::memmove(to.data(), from.data + offset, to.size());
      return event_type{};
    }
  }
};

template <class Backend>
concept copies_to_host = plain_copying<Backend> || host_accessible<Backend>;

}  // namespace detail

template <memory_backend Backend, ownership Own>
class PendingMemory;

/// Bytes in one memory space and a counted share of their ownership; checks ranges, knows nothing of readers or holds.
///
/// A copy or a slice is another owner of the same memory, which goes back to its backend with the last of them. A null
/// buffer (default made) has no memory and size 0. The memory may come later than the buffer: see `PendingMemory`.
/// Threads: different owners on any threads; one owner as a value. Source: PJRT raw buffer.
template <memory_backend Backend, ownership Own = Shared>
class RawBuffer {
 public:
  using backend_type = Backend;
  using event_type = default_event<Backend>;

  constexpr RawBuffer() noexcept = default;
  RawBuffer(const RawBuffer& other) noexcept : control_(other.control_), offset_(other.offset_), size_(other.size_) {
    if (control_ != nullptr) control_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  RawBuffer(RawBuffer&& other) noexcept
      : control_(std::exchange(other.control_, nullptr)), offset_(std::exchange(other.offset_, 0)), size_(std::exchange(other.size_, 0)) {}
  RawBuffer& operator=(RawBuffer other) noexcept {
    std::swap(control_, other.control_);
    std::swap(offset_, other.offset_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~RawBuffer() {
    if (control_ != nullptr) drop();
  }
  /// Gives the memory back in the order of a stream, if this is the only owner and the backend made it; else does nothing: false.
  ///
  /// The stream comes after all uses. Stream: enqueues the release.
  template <stream_ordered_backend B = Backend>
  [[nodiscard]] bool release_on(typename B::stream_type stream) noexcept {
    if (control_ == nullptr || !control_->owned || owners() != 1) return false;
    control_->backend.deallocate(stream, control_->block);
    delete control_;
    control_ = nullptr;
    offset_ = size_ = 0;
    return true;
  }

  /// Makes uninitialised memory. Errors: the backend's own; out_of_memory for the control block.
  [[nodiscard]] static Result<RawBuffer> allocate(Backend backend, Bytes size, Alignment alignment = default_alignment) noexcept {
    Result<Block> block = backend.allocate(size, alignment);
    if (!block.ok()) return block.error();
    return adopt(std::move(backend), *block);
  }
  /// Takes over a block that the backend gave; on failure it goes back, after the events. Errors: out_of_memory.
  template <event E = event_type>
  [[nodiscard]] static Result<RawBuffer> adopt(Backend backend, Block block, std::span<const E> after = {}) noexcept {
    if (auto* control = new (std::nothrow) Control{backend, block, {}, true, true}; control != nullptr)
      return RawBuffer(control, block.size);
    static_cast<void>(wait_all<E>(after));
    backend.deallocate(block);
    return make_error(Errc::out_of_memory, "no memory for a control block");
  }
  /// Views memory that somebody else made, and gives it back through `release`; on failure the caller keeps it.
  ///
  /// Errors: invalid_argument (an address that is not aligned to 64 bytes, a negative size), out_of_memory.
  [[nodiscard]] static Result<RawBuffer> import_foreign(Backend backend, Block block, ForeignRelease release,
                                                        bool is_mutable = false) noexcept {
    if (block.size < 0 || reinterpret_cast<std::uintptr_t>(block.data) % static_cast<std::uintptr_t>(default_alignment.value()) != 0) {
      Error e = make_error(Errc::invalid_argument, "imported memory must be aligned to 64 bytes and have a size");
      e.available = default_alignment.value();
      return e;
    }
    auto* control = new (std::nothrow) Control{std::move(backend), block, release, false, is_mutable};
    if (control == nullptr) return make_error(Errc::out_of_memory, "no memory for a control block");
    if (is_mutable) control->contents.store(untracked, std::memory_order_relaxed);
    return RawBuffer(control, block.size);
  }

  [[nodiscard]] Bytes size() const noexcept { return size_; }
  /// The address in the backend's space; null for a null or an empty buffer, and while the memory is not there.
  [[nodiscard]] std::byte* data() const noexcept {
    return control_ == nullptr || control_->block.data == nullptr ? nullptr : control_->block.data + offset_;
  }
  [[nodiscard]] Block block() const noexcept { return {data(), size_}; }
  /// The address once the memory is there. Errors: why it never will be. Threads: blocks until then.
  [[nodiscard]] Result<std::byte*> address() const noexcept {
    if (Error e = allocation_ready().wait(); !e.ok()) return failed_memory(e);
    return data();
  }
  /// Done when the memory is there, failed when it never will be.
  [[nodiscard]] event_type allocation_ready() const noexcept { return control_ == nullptr ? event_type{} : control_->allocation; }

  /// True when there is, or will be, memory, if only 0 bytes of it.
  [[nodiscard]] explicit operator bool() const noexcept { return control_ != nullptr; }
  /// False for memory imported as constant: it may be read but neither written nor reused by a donation.
  [[nodiscard]] bool is_mutable() const noexcept { return control_ != nullptr && control_->is_mutable; }
  [[nodiscard]] static constexpr MemorySpace memory_space() noexcept { return Backend::space; }
  /// Whose memory it is; the buffer must not be null.
  [[nodiscard]] Backend backend() const noexcept {
    HOLDFAST_ASSERT(control_ != nullptr);
    return control_->backend;
  }
  /// The address where the host can use it, else null.
  [[nodiscard]] std::byte* host_pointer() const noexcept { return host_accessible<Backend> ? data() : nullptr; }
  /// Tells whether two buffers own the same memory, whatever part of it each views.
  [[nodiscard]] bool shares_memory(const RawBuffer& other) const noexcept {
    return control_ != nullptr && control_ == other.control_;
  }
  /// The owners now; a moment later it may differ. Units: count.
  [[nodiscard]] std::uint32_t owners() const noexcept {
    return control_ == nullptr ? 0 : control_->refs.load(std::memory_order_acquire);
  }

  /// What stands for the contents as they are, for a cache of what was read: the same for all slices, another after a write.
  ///
  /// 0: others may write unseen, keep nothing. Only good while the memory has an owner. Threads: any; order it like a read.
  /// Source: runtime.md 5.3, content-cache identity.
  [[nodiscard]] std::uint64_t content_identity() const noexcept {
    if (control_ == nullptr) return 0;
    std::uint64_t now = control_->contents.load(std::memory_order_acquire);
    if (now == unasked && control_->contents.compare_exchange_strong(now, 1, std::memory_order_acq_rel, std::memory_order_acquire))
      return 1;
    return now == untracked ? 0 : now;
  }
  /// Says that the bytes are about to be written by other means than `copy_in`. Cost: a load while nobody asks.
  void contents_changed() const noexcept {
    if (control_ == nullptr) return;
    std::uint64_t now = control_->contents.load(std::memory_order_relaxed);
    while (now != unasked && now != untracked &&
           !control_->contents.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel, std::memory_order_relaxed)) {
    }
  }
  /// Says that from now on somebody may write unseen: there is no identity any more.
  void stop_content_identity() const noexcept {
    if (control_ != nullptr) control_->contents.store(untracked, std::memory_order_release);
  }

  /// Views a part; it keeps the memory, not this object. Errors: invalid_argument (range).
  [[nodiscard]] Result<RawBuffer> slice(Bytes offset, Bytes length) const noexcept {
    if (Error e = check_bounds(size_, offset, length); !e.ok()) return e;
    RawBuffer part = *this;
    part.offset_ += offset;
    part.size_ = length;
    return part;
  }
  /// Views several parts, all or none; `parts` has room for as many. Errors: invalid_argument, of the first bad range.
  [[nodiscard]] Error multi_slice(std::span<const SliceRange> ranges, std::span<RawBuffer> parts) const noexcept {
    if (parts.size() < ranges.size()) return make_error(Errc::invalid_argument, "no room for the slices");
    for (const SliceRange& r : ranges)
      if (Error e = check_bounds(size_, r.offset, r.length); !e.ok()) return e;
    for (std::size_t i = 0; i < ranges.size(); ++i) parts[i] = std::move(*slice(ranges[i].offset, ranges[i].length));
    return {};
  }
  /// Writes host bytes at an offset. Errors: invalid_argument (range or null buffer, before any byte moves),
  /// permission_denied (constant), that of the allocation. Threads: blocks until the memory is there.
  [[nodiscard]] Result<event_type> copy_in(Bytes offset, std::span<const std::byte> from) const noexcept
    requires detail::copies_to_host<Backend>
  {
    if (Error e = check_bounds(size_, offset, static_cast<Bytes>(from.size())); !e.ok()) return e;
    if (control_ == nullptr) return no_memory();
    if (!control_->is_mutable) return make_error(Errc::permission_denied, "the memory is constant");
    if (Result<std::byte*> there = address(); !there.ok()) return there.error();
    contents_changed();
    Backend backend = control_->backend;
    return detail::RawCopy<Backend>::in(backend, block(), offset, from);
  }
  /// Reads bytes at an offset to the host. Errors: as `copy_in`, but constant memory may be read.
  [[nodiscard]] Result<event_type> copy_out(Bytes offset, std::span<std::byte> to) const noexcept
    requires detail::copies_to_host<Backend>
  {
    if (Error e = check_bounds(size_, offset, static_cast<Bytes>(to.size())); !e.ok()) return e;
    if (control_ == nullptr) return no_memory();
    if (Result<std::byte*> there = address(); !there.ok()) return there.error();
    Backend backend = control_->backend;
    return detail::RawCopy<Backend>::out(backend, block(), offset, to);
  }

 private:
  friend class PendingMemory<Backend, Own>;
  static constexpr std::uint64_t unasked = 0, untracked = ~std::uint64_t{0};  // of `contents`; between: the identity
  struct Control {
    HOLDFAST_NO_UNIQUE_ADDRESS Backend backend;
    Block block;
    ForeignRelease foreign;
    bool owned;
    bool is_mutable;
    typename Own::sync_type::template atomic<std::uint32_t> refs{1};
    typename Own::sync_type::template atomic<std::uint64_t> contents{unasked};
    HOLDFAST_NO_UNIQUE_ADDRESS event_type allocation{};
  };

  RawBuffer(Control* control, Bytes size) noexcept : control_(control), size_(size) {}
  [[nodiscard]] HOLDFAST_COLD static Error no_memory() noexcept {
    return make_error(Errc::invalid_argument, "the buffer has no memory (null buffer)");
  }
  [[nodiscard]] HOLDFAST_COLD static Error failed_memory(Error e) noexcept {
    e.what = status_kind(e) == StatusKind::resource_exhausted
                 ? "the address of a buffer or a sliced buffer whose parent failed: RESOURCE_EXHAUSTED"
                 : "the address of a buffer or a sliced buffer whose parent failed";
    return e;
  }
  // Acquire-release: the last owner's free comes after all that the others did with the bytes.
  void drop() noexcept {
    if (control_->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (control_->owned) {
      control_->backend.deallocate(control_->block);
    } else if (control_->foreign.release != nullptr) {
      control_->foreign.release(control_->foreign.context, control_->block);
    }
    delete control_;
  }

  Control* control_ = nullptr;
  Bytes offset_ = 0;
  Bytes size_ = 0;
};

/// Bytes with one owner: a block and, unless it is empty, its backend; nothing beside them. Threads: as a value.
template <memory_backend Backend>
class RawBuffer<Backend, Unique> {
 public:
  using backend_type = Backend;
  using event_type = default_event<Backend>;

  constexpr RawBuffer() noexcept
    requires std::default_initializable<Backend>
  = default;
  constexpr RawBuffer(RawBuffer&& other) noexcept
      : backend_(other.backend_), block_(std::exchange(other.block_, Block{})) {}
  constexpr RawBuffer& operator=(RawBuffer&& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(block_, other.block_);
    return *this;
  }
  constexpr ~RawBuffer() {
    if (block_.data != nullptr) backend_.deallocate(block_);
  }

  /// Makes uninitialised memory. Errors: the backend's own.
  [[nodiscard]] static constexpr Result<RawBuffer> allocate(Backend backend, Bytes size,
                                                            Alignment alignment = default_alignment) noexcept {
    Result<Block> block = backend.allocate(size, alignment);
    if (!block.ok()) return block.error();
    return RawBuffer(std::move(backend), *block);
  }
  /// Takes over a block that the backend gave.
  [[nodiscard]] static constexpr Result<RawBuffer> adopt(Backend backend, Block block, const auto&...) noexcept {
    return RawBuffer(std::move(backend), block);
  }
  [[nodiscard]] constexpr Bytes size() const noexcept { return block_.size; }
  [[nodiscard]] constexpr std::byte* data() const noexcept { return block_.data; }
  [[nodiscard]] constexpr Block block() const noexcept { return block_; }
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return block_.data != nullptr; }
  [[nodiscard]] static constexpr bool is_mutable() noexcept { return true; }
  [[nodiscard]] static constexpr MemorySpace memory_space() noexcept { return Backend::space; }
  [[nodiscard]] constexpr Backend backend() const noexcept { return backend_; }
  /// Gives the memory back in the order of a stream, which comes after all uses; false: there is none. Stream: enqueues the release.
  template <stream_ordered_backend B = Backend>
  [[nodiscard]] bool release_on(typename B::stream_type stream) noexcept {
    if (block_.data == nullptr) return false;
    backend_.deallocate(stream, take());
    return true;
  }
  /// Gives the block up to the caller, who frees it.
  [[nodiscard]] constexpr Block take() noexcept { return std::exchange(block_, Block{}); }

  /// Writes host bytes at an offset. Errors: invalid_argument (range or null buffer, before any byte moves).
  [[nodiscard]] Result<event_type> copy_in(Bytes offset, std::span<const std::byte> from) noexcept
    requires detail::copies_to_host<Backend>
  {
    return detail::RawCopy<Backend>::in(backend_, block_, offset, from);
  }
  /// Reads bytes at an offset to the host. Errors: invalid_argument (range or null buffer, before any byte moves).
  [[nodiscard]] Result<event_type> copy_out(Bytes offset, std::span<std::byte> to) noexcept
    requires detail::copies_to_host<Backend>
  {
    return detail::RawCopy<Backend>::out(backend_, block_, offset, to);
  }

 private:
  constexpr RawBuffer(Backend backend, Block block) noexcept : backend_(std::move(backend)), block_(block) {}
  HOLDFAST_NO_UNIQUE_ADDRESS Backend backend_{};
  Block block_;
};
static_assert(sizeof(RawBuffer<EmptyMemory, Unique>) == sizeof(Block));

}  // namespace holdfast
