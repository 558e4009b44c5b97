// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include "holdfast/backend/bfc/detail/stream_core.hpp"
#include "holdfast/backend/bfc_pool.hpp"

namespace holdfast {

/// An event whose streams a pool can tell apart: those that compare equal are one stream, not one that was destroyed before.
template <class E>
concept pool_event = std::default_initializable<E> && std::movable<E> && stream_event<E, typename E::stream_type> &&
                     std::copyable<typename E::stream_type> && std::default_initializable<typename E::stream_type> &&
                     std::equality_comparable<typename E::stream_type>;

/// A best-fit pool whose requests and releases take their place in the order of streams; over any backend's regions.
///
/// A stream has what it freed again at once. What another freed it has once that stream has passed the free, without a wait if
/// the host has seen it or the stream comes after it, else by a wait for the event of that free. Of several streams' frees
/// side by side a block is made when no one's serve, with a wait for each that it takes of; what is left keeps its own.
/// What one stream freed side by side is one piece, as of the last free. A program of one stream gets what a `BfcPool` gives.
/// A handle to a `BfcStreamHeap`, which outlives it and every block. Threads: one at a time (`Locked`). Marks are asked in a way
/// that runs nobody's continuations; the upstream may run some: the lock over CUDA's memory is a `ReentrantLock`.
template <memory_backend Upstream, pool_event Event, class Fit = BestFit, class Split = BfcSplit, class Growth = BoundedGrowth,
          memory_backend Meta = SystemMemory>
class BfcStreamPool : public detail::BfcHandle<detail::BfcStreamCore<Upstream, Event, Fit, Split, Growth, Meta>> {
  using Core = detail::BfcStreamCore<Upstream, Event, Fit, Split, Growth, Meta>;
  using detail::BfcHandle<Core>::core_;

 public:
  static constexpr MemorySpace space = Upstream::space;
  static constexpr bool host_accessible = holdfast::host_accessible<Upstream>;
  using event_type = Event;
  using stream_type = typename Event::stream_type;

  /// Gives uninitialised memory that the stream's later work may use; others wait for an event of the stream first.
  ///
  /// Errors: as `BfcPool::allocate`; an event's, where only waits would have served; `available` is the largest free chunk.
  /// Stream: enqueues waits for the frees that the block comes after; with `on_demand`, marks on those streams.
  /// Threads: blocks only to give idle regions back, before it would fail. Cost: as `BfcPool::allocate`, and 64 chunks that
  /// are others'; where none of the stream's own fits, linear in what is free and not yet safe.
  [[nodiscard]] Result<Block> allocate(const stream_type& stream, Bytes size, Alignment alignment, Tag tag = {}) noexcept {
    return core_->allocate(&stream, size, alignment, tag);
  }
  /// Takes a block back in the order of a stream, which comes after its allocation and all its uses.
  ///
  /// Stream: records an event, but with `on_demand`. Where it cannot, the host waits for the stream here.
  void deallocate(const stream_type& stream, Block block) noexcept {
    const Error e = core_->deallocate(&stream, block);
    HOLDFAST_ASSERT(e.ok());
  }
  /// The same; what is no block out changes nothing. Errors: invalid_argument, wrong_state (released twice).
  [[nodiscard]] Error deallocate_checked(const stream_type& stream, Block block) noexcept { return core_->deallocate(&stream, block); }

  /// Gives memory that the host's later work on all streams may use. Errors: as on a stream.
  /// Threads: blocks, where the pool cannot grow, until the frees that the block comes after have passed.
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment, Tag tag = {}) noexcept {
    return core_->allocate(nullptr, size, alignment, tag);
  }
  /// Takes a block back: whoever calls has seen the end of its allocation's stream and of all its uses.
  void deallocate(Block block) noexcept {
    const Error e = core_->deallocate(nullptr, block);
    HOLDFAST_ASSERT(e.ok());
  }
  [[nodiscard]] Error deallocate_checked(Block block) noexcept { return core_->deallocate(nullptr, block); }

  /// Says that a stream will be destroyed. Asked for with `on_demand`, and of streams whose handles come again.
  ///
  /// Errors: what marking it and waiting for it gave; then it must live on. Stream: may record an event; may wait for the stream.
  [[nodiscard]] Error retire(const stream_type& stream) noexcept { return core_->retire(stream); }

  /// Cost: linear in the chunks.
  [[nodiscard]] BfcStreamStatistics stream_statistics() const noexcept { return core_->stream_statistics(); }

  friend bool operator==(const BfcStreamPool&, const BfcStreamPool&) noexcept = default;

 private:
  friend detail::CoreOwner<BfcStreamPool, Core>;
  explicit BfcStreamPool(Core* core) noexcept : detail::BfcHandle<Core>(core) {}
};

/// What the handles of a pool in the order of streams refer to: owns its regions and tables.
///
/// Destroyed, it waits on the host for all that was freed, then gives the regions back. Threads: one at a time, with its handles.
template <memory_backend Upstream, pool_event Event, class Fit = BestFit, class Split = BfcSplit, class Growth = BoundedGrowth,
          memory_backend Meta = SystemMemory>
class BfcStreamHeap : public detail::CoreOwner<BfcStreamPool<Upstream, Event, Fit, Split, Growth, Meta>,
                                               detail::BfcStreamCore<Upstream, Event, Fit, Split, Growth, Meta>> {
  static_assert(holdfast::host_accessible<Meta>, "the tables of a pool are the host's");
  using Core = detail::BfcStreamCore<Upstream, Event, Fit, Split, Growth, Meta>;

 public:
  using Pool = BfcStreamPool<Upstream, Event, Fit, Split, Growth, Meta>;

  /// Makes a pool without regions. Errors: invalid_argument (a limit below 256 or no region size), out_of_memory.
  [[nodiscard]] static Result<BfcStreamHeap> make(Upstream upstream, BfcStreamOptions options = {}, Split split = {}, Growth growth = {},
                                                  Meta meta = {}) noexcept {
    if (Error e = detail::bfc_check(options.pool); !e.ok()) return e;
    const Result<Core*> core = detail::bfc_new<Core>(meta, upstream, options, split, growth);
    if (!core.ok()) return core.error();
    BfcStreamHeap heap(*core);
    if (!(*core)->open()) return make_error(Errc::out_of_memory, "no memory for the tables of a pool");
    return Result<BfcStreamHeap>(std::move(heap));
  }

 private:
  using detail::CoreOwner<Pool, Core>::CoreOwner;
};

}  // namespace holdfast
