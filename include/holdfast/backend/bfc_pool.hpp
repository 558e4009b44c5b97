// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "holdfast/backend/bfc/detail/core.hpp"
#include "holdfast/backend/bfc/explain.hpp"
#include "holdfast/backend/bfc/snapshot.hpp"
#include "holdfast/backend/host/detail/core_owner.hpp"
#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/concepts/memory_backend.hpp"

namespace holdfast {

namespace detail {

template <class Upstream>
struct BfcEventType {};
template <class Upstream>
  requires requires { typename Upstream::event_type; }
struct BfcEventType<Upstream> {
  using event_type = typename Upstream::event_type;
};

/// What handles of all best-fit pools have: what the pool holds, and the upstream's copies, which take blocks of the pool.
template <class Core>
class BfcHandle {
 public:
  static constexpr bool runs_continuations = holdfast::runs_continuations<typename Core::upstream_type>;

  /// Gives idle regions back, the highest first, until at most `keep` bytes are reserved; returns the bytes given.
  Bytes trim(Bytes keep) noexcept { return core_->trim(keep); }
  /// The largest free chunk.
  [[nodiscard]] Bytes largest_free() noexcept { return core_->statistics().largest_free; }
  [[nodiscard]] BfcStatistics statistics() const noexcept { return core_->statistics(); }
  /// Counts and peaks begin again at what is in use.
  void clear_statistics() noexcept { core_->clear_statistics(); }
  /// Calls `visitor(Block, bool free)` for every chunk by address; it must not use the pool.
  template <class Visitor>
  void visit_blocks(Visitor visitor) noexcept {
    core_->visit([&](std::uint32_t, const BfcChunk& c) { visitor(Block{c.data, c.size}, !c.used()); });
  }
  /// A copy of all that the pool holds. Cost: linear in the chunks.
  [[nodiscard]] BfcSnapshot snapshot() const { return bfc_snapshot(*core_); }
  /// What would become of a request, and what would make it succeed. Cost: linear in the chunks.
  [[nodiscard]] BfcExplanation explain(Bytes size, Alignment alignment = Alignment(1), BfcEnd end = BfcEnd::lower) const {
    return explain_bfc(snapshot(), size, alignment, end);
  }

  template <class... Args>
    requires requires(typename Core::upstream_type& up, Args&&... args) { up.copy_in(args...); }
  [[nodiscard]] auto copy_in(Args&&... args) noexcept {
    return core_->upstream().copy_in(std::forward<Args>(args)...);
  }
  template <class... Args>
    requires requires(typename Core::upstream_type& up, Args&&... args) { up.copy_out(args...); }
  [[nodiscard]] auto copy_out(Args&&... args) noexcept {
    return core_->upstream().copy_out(std::forward<Args>(args)...);
  }
  template <class... Args>
    requires requires(typename Core::upstream_type& up, Args&&... args) { up.copy(args...); }
  [[nodiscard]] auto copy(Args&&... args) noexcept {
    return core_->upstream().copy(std::forward<Args>(args)...);
  }

  friend bool operator==(const BfcHandle&, const BfcHandle&) noexcept = default;

 protected:
  explicit BfcHandle(Core* core) noexcept : core_(core) {}
  Core* core_;
};

// Errors: invalid_argument (a limit below 256 or no region size).
[[nodiscard]] inline Error bfc_check(const BfcOptions& options) noexcept {
  if (options.limit >= bfc_granule && options.region > 0) return {};
  return make_error(Errc::invalid_argument, "a pool's limit is at least 256 bytes and its region size is positive");
}

}  // namespace detail

/// Best fit with coalescing: a pool that cuts blocks from regions of any backend, of memory that the host need not reach.
///
/// A handle to a `BfcHeap`, which outlives it and every block. Blocks are multiples of 256 bytes inside and aligned to 256 at least.
/// A request is served from the smallest free chunk that fits, the lowest among equals; freed chunks join their neighbours at
/// once; a pool that finds nothing grows, joins, gives idle regions back, in this order, and never fails while a chunk fits.
/// The default policies are the original's; `BoundedWaste` with `ExactGrowth` reserves less on every program measured.
/// Threads: one at a time (`Locked`, over CUDA's memory with a `ReentrantLock`). Source: XLA's BFC allocator; with
/// `DoublingGrowth` its decisions to the last call.
template <memory_backend Upstream, class Fit = BestFit, class Split = BfcSplit, class Growth = BoundedGrowth,
          memory_backend Meta = SystemMemory>
class BfcPool : public detail::BfcEventType<Upstream>, public detail::BfcHandle<detail::BfcCore<Upstream, Fit, Split, Growth, Meta>> {
  using Core = detail::BfcCore<Upstream, Fit, Split, Growth, Meta>;
  using detail::BfcHandle<Core>::core_;

 public:
  static constexpr MemorySpace space = Upstream::space;
  static constexpr bool host_accessible = holdfast::host_accessible<Upstream>;

  /// Gives uninitialised memory.
  ///
  /// Errors: invalid_argument (negative size), over_budget (the limit), out_of_memory (the upstream, or `Meta`); `available` is the
  /// largest request that could succeed now. Cost: logarithmic in the free chunks of about that size; linear where the pool grows.
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    return core_->allocate(size, alignment, BfcEnd::lower, {}, bfc_any_time);
  }
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment, Tag tag) noexcept {
    return core_->allocate(size, alignment, BfcEnd::lower, tag, bfc_any_time);
  }
  /// From an end of a two-ended pool.
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment, BfcEnd end, Tag tag = {}) noexcept
    requires(Growth::two_ended)
  {
    HOLDFAST_ASSERT(end != BfcEnd::gap);
    return core_->allocate(size, alignment, end, tag, bfc_any_time);
  }
  /// Only from what was freed at `freed_before` or earlier, or is safe; memory that others still use is neither joined nor given back.
  [[nodiscard]] Result<Block> allocate_freed_before(std::uint64_t freed_before, Bytes size, Alignment alignment, Tag tag = {}) noexcept {
    return core_->allocate(size, alignment, BfcEnd::lower, tag, freed_before);
  }

  /// Gives the block at a place that is free: where `plan_bfc_moves` would have one moved.
  ///
  /// Errors: invalid_argument (no size, a misaligned place), wrong_state (not free, not in one hole, in the gap), out_of_memory (`Meta`).
  /// Cost: linear in the chunks.
  [[nodiscard]] Result<Block> allocate_at(Block place, Alignment alignment = Alignment(1), Tag tag = {}) noexcept {
    return core_->allocate_at(place, alignment, tag);
  }

  /// Takes back a block that `allocate` gave; anything else but the empty block is a broken precondition.
  void deallocate(Block block) noexcept {
    const Error e = core_->deallocate(block);
    HOLDFAST_ASSERT(e.ok());
  }
  /// Takes a block back if it is one; else nothing is changed.
  ///
  /// Errors: invalid_argument (no block of the pool begins there, or it has another size), wrong_state (released twice).
  [[nodiscard]] Error deallocate_checked(Block block) noexcept { return core_->deallocate(block); }

  /// Stamps what is freed from now on, so that it is joined only when its stamp is safe; stamps never fall; 0: no more stamps.
  void set_now(std::uint64_t now) noexcept { core_->set_now(now); }
  /// Says that what was freed before `frontier` is used by nobody.
  void set_safe_frontier(std::uint64_t frontier) noexcept { core_->set_safe_frontier(frontier); }

  friend bool operator==(const BfcPool&, const BfcPool&) noexcept = default;

 private:
  friend detail::CoreOwner<BfcPool, Core>;
  explicit BfcPool(Core* core) noexcept : detail::BfcHandle<Core>(core) {}
};

/// The upper end of a two-ended pool as a backend of its own; the pool itself is the lower one's.
template <class Pool>
class BfcUpperEnd : public Pool {
 public:
  explicit BfcUpperEnd(Pool pool) noexcept : Pool(pool) {}
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment, Tag tag = {}) noexcept {
    return Pool::allocate(size, alignment, BfcEnd::upper, tag);
  }
  [[nodiscard]] BfcExplanation explain(Bytes size, Alignment alignment = Alignment(1)) const {
    return Pool::explain(size, alignment, BfcEnd::upper);
  }
};

/// What the handles of a best-fit pool refer to: owns its regions and tables, and gives them back when it dies.
///
/// The tables lie in `Meta`'s memory, on the host: the pool's own may be a device's. Threads: one at a time, with its handles.
template <memory_backend Upstream, class Fit = BestFit, class Split = BfcSplit, class Growth = BoundedGrowth,
          memory_backend Meta = SystemMemory>
class BfcHeap : public detail::CoreOwner<BfcPool<Upstream, Fit, Split, Growth, Meta>, detail::BfcCore<Upstream, Fit, Split, Growth, Meta>> {
  static_assert(holdfast::host_accessible<Meta>, "the tables of a pool are the host's");
  using Core = detail::BfcCore<Upstream, Fit, Split, Growth, Meta>;

 public:
  using Pool = BfcPool<Upstream, Fit, Split, Growth, Meta>;

  /// Makes a pool without regions. Errors: invalid_argument (a limit below 256 or no region size), out_of_memory.
  [[nodiscard]] static Result<BfcHeap> make(Upstream upstream, BfcOptions options = {}, Split split = {}, Growth growth = {},
                                            Meta meta = {}) noexcept {
    if (Error e = detail::bfc_check(options); !e.ok()) return e;
    const Result<Core*> core = detail::bfc_new<Core>(meta, upstream, options, split, growth);
    if (!core.ok()) return core.error();
    return BfcHeap(*core);
  }

 private:
  using detail::CoreOwner<Pool, Core>::CoreOwner;
};

static_assert(inspectable_backend<BfcPool<SystemMemory>> && tagging_backend<BfcPool<SystemMemory>> &&
              sizeof(BfcPool<SystemMemory>) == sizeof(void*));

}  // namespace holdfast
