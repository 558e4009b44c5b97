// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/backend/host/detail/core_owner.hpp"
#include "holdfast/backend/host/detail/heap_core.hpp"
#include "holdfast/backend/host/page_source.hpp"
#include "holdfast/concepts/memory_backend.hpp"

namespace holdfast {

/// How a host pool behaves; the defaults suit an engine's tensors.
struct HostPoolOptions {
  Bytes limit = max_bytes;            ///< reserved bytes never pass it
  Bytes cache_limit = Bytes{64} << 20;  ///< bytes of blocks above 64 KiB that each thread may keep; of smaller ones it keeps 63 a size
  Bytes region_size = Bytes{16} << 30;  ///< address space reserved at a time; costs nothing until it is used
  /// Reserved bytes are held to the peak in use and this share of it more, plus 256 KiB. Where sizes change, a small share makes the
  /// system take pages and back them again, a fault each; a quarter spares nearly all of that. Units: 0 to 100.
  double idle_share = 1.0 / 11;
  bool huge_pages = false;            ///< asks the system to back the pool by huge pages
  bool heed_system = true;            ///< no growth past what the process's control group and the system have left
};

/// What a host pool has and had; all in bytes.
struct HostPoolStatistics {
  Bytes reserved = 0;       ///< backed by the system, or about to be at the first touch
  Bytes peak_reserved = 0;
  Bytes live = 0;           ///< asked for by blocks now out
  Bytes free = 0;           ///< of `reserved`, in free runs of pages; what threads and slabs keep is not in it
  Bytes largest_free = 0;   ///< the longest run of it
  Bytes address_space = 0;  ///< reserved addresses, most of them never used

  /// The share of the free bytes that the longest run has not; 0 when nothing is free. Units: 0 to 1.
  [[nodiscard]] double fragmentation() const noexcept {
    return free == 0 ? 0.0 : 1.0 - static_cast<double>(largest_free) / static_cast<double>(free);
  }
};

template <page_source Source>
class BasicHostHeap;

/// The general pool of host memory: blocks of any size, fast from the thread's own cache, returned on any thread.
///
/// A handle to a `BasicHostHeap`, which outlives it and every block. A block has alignment 64 at least; up to 2 KiB it is of a
/// class that wastes less than 64 bytes below 1 KiB and 128 above; a larger one, or one of a higher alignment, takes whole pages. Freed blocks are kept for their
/// size as long as that needs no new memory; then they are joined, and idle pages go back to the system so that what is reserved
/// stays within `idle_share` of the peak in use, plus 256 KiB. Threads: any.
template <page_source Source>
class BasicHostPool {
 public:
  static constexpr MemorySpace space = MemorySpace::host;

  /// Gives uninitialised memory. Errors: invalid_argument (negative size), over_budget (the pool's limit), out_of_memory (the control group, the system or the
  /// source has no more); the text says which, `available` what is left.
  /// Cost: without an atomic read-modify-write from the thread's cache, else one lock and, seldom, system calls.
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    detail::ThreadCache* own = core_->cache();
    const std::uint64_t before = static_cast<std::uint64_t>(size) - 1;  // 0 and negative sizes are far too large
    if (own != nullptr && alignment.value() <= (before < detail::small_limit ? Bytes{detail::slab_offset} : page)) [[likely]] {
      if (before < detail::near_limit) {
        if (auto& stack = own->near[detail::near_of(before + 1)]; !stack.empty()) {
          own->add_live(size);
          return Block{stack.pop(), size};
        }
      } else if (before < largest_cached) {
        const std::uint32_t pages = detail::pages_of(before + 1), i = own->far.find(pages);
        if (i != own->far.none && !own->far.stack[i].empty()) {
          own->far_pages -= pages;
          own->add_live(size);
          return Block{own->far.stack[i].pop(), size};
        }
      }
    }
    return core_->allocate(own, size, alignment.value());
  }

  /// Takes back a block that `allocate` gave, on any thread; the empty block is none.
  void deallocate(Block block) noexcept {
    detail::ThreadCache* own = core_->cache();
    const std::uint64_t before = static_cast<std::uint64_t>(block.size) - 1;
    if (own != nullptr) [[likely]] {
      if (before < detail::near_limit) {
        std::uint32_t i = detail::near_of(before + 1);
        if (before < detail::small_limit && detail::on_page(block.data)) [[unlikely]] i = detail::small_classes;  // a page of its own
        if (auto& stack = own->near[i]; !stack.full()) {
          stack.push(block.data);
          return own->add_live(-block.size);
        }
      } else if (before < largest_cached) {
        const std::uint32_t pages = detail::pages_of(before + 1), i = own->far.find(pages);
        if (i != own->far.none && !own->far.stack[i].full() && own->far_pages + pages <= own->far_limit) {
          own->far.stack[i].push(block.data);
          own->far_pages += pages;
          return own->add_live(-block.size);
        }
      }
    }
    core_->deallocate(own, block);
  }

  /// Gives free memory back to the system until at most `keep` bytes are reserved or none is free; returns the bytes given.
  ///
  /// What other threads keep in their caches stays. Cost: linear in the free runs, and system calls.
  Bytes trim(Bytes keep) noexcept { return core_->trim(keep); }

  /// The longest run of free pages that the system already backs. Cost: linear in the free runs.
  [[nodiscard]] Bytes largest_free() noexcept { return statistics().largest_free; }
  /// What the pool has and had. Cost: linear in the free runs and the threads.
  [[nodiscard]] HostPoolStatistics statistics() noexcept {
    const auto f = core_->figures();
    return {bytes(f.reserved), bytes(f.peak_reserved), f.live, bytes(f.free), bytes(f.largest_free),
            static_cast<Bytes>(f.address_space)};
  }
  /// Calls `visitor(Block, bool free)` for every run of pages, in use, kept or free, by address; it must not use the pool.
  template <class Visitor>
  void visit_blocks(Visitor visitor) noexcept {
    core_->visit([&](std::byte* data, std::uint64_t pages, bool free) { visitor(Block{data, bytes(pages)}, free); });
  }

  friend bool operator==(const BasicHostPool&, const BasicHostPool&) noexcept = default;

 private:
  using Core = detail::HeapCore<Source>;
  friend class BasicHostHeap<Source>;
  friend detail::CoreOwner<BasicHostPool, Core>;
  static constexpr Bytes page = detail::page_bytes;
  static constexpr std::uint64_t largest_cached = std::uint64_t{1} << 40;

  explicit BasicHostPool(Core* core) noexcept : core_(core) {}
  [[nodiscard]] static Bytes bytes(std::uint64_t pages) noexcept { return static_cast<Bytes>(pages * detail::page_bytes); }

  Core* core_;
};

/// What host pool handles refer to: owns the address space and gives it back when it dies.
///
/// It outlives every use of its handles, but not the threads that used it. Threads: handles on any; made, moved and destroyed by one.
template <page_source Source>
class BasicHostHeap : public detail::CoreOwner<BasicHostPool<Source>, detail::HeapCore<Source>> {
 public:
  using Pool = BasicHostPool<Source>;

  /// Makes a pool; no address space for blocks is reserved before the first is asked for.
  /// Errors: invalid_argument (an option is negative or zero), out_of_memory.
  [[nodiscard]] static Result<BasicHostHeap> make(HostPoolOptions options = {}, Source source = {}) noexcept {
    if (options.limit <= 0 || options.cache_limit < 0 || options.region_size <= 0)
      return make_error(Errc::invalid_argument, "a host pool's limit and region size are positive");
    if (!(options.idle_share >= 0 && options.idle_share <= 100))
      return make_error(Errc::invalid_argument, "a host pool's idle share is 0 to 100");
    constexpr Bytes most = Bytes{1} << 42;
    const auto pages = [](Bytes n) { return static_cast<std::uint64_t>(n) >> detail::page_shift; };
    const Bytes cache = options.cache_limit < most ? options.cache_limit : most;
    const Bytes region = options.region_size < most ? options.region_size : most;
    auto* core = Pool::Core::make(source, {pages(options.limit), static_cast<std::uint64_t>(region),
                                           static_cast<std::uint32_t>(pages(cache)), static_cast<std::uint64_t>(options.idle_share * 65536),
                                           options.huge_pages, options.heed_system});
    if (core == nullptr) return make_error(Errc::out_of_memory, "Out of memory making a host pool");
    return BasicHostHeap(core);
  }

 private:
  using detail::CoreOwner<Pool, detail::HeapCore<Source>>::CoreOwner;
};

/// The host pool over the system's memory: the default backend.
using HostPool = BasicHostPool<SystemPages>;
/// What owns a `HostPool`'s memory.
using HostHeap = BasicHostHeap<SystemPages>;
static_assert(memory_backend<HostPool> && inspectable_backend<HostPool> && sizeof(HostPool) == sizeof(void*));

}  // namespace holdfast
