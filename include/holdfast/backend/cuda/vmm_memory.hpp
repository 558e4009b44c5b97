// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "holdfast/backend/cuda/context.hpp"
#include "holdfast/backend/cuda/detail/cuda_mapping.hpp"
#include "holdfast/backend/cuda/detail/cuda_peers.hpp"
#include "holdfast/backend/cuda/shared_fabric.hpp"
#include "holdfast/backend/cuda/shared_file.hpp"
#include "holdfast/concepts/memory_backend.hpp"

namespace holdfast {

/// What memory from the driver's virtual memory management may be used for.
struct CudaVmmOptions {
  Bytes budget = 0;          ///< physical bytes at most, those not yet given back included; 0: no limit
  bool file_handles = true;  ///< other processes of this host can map it
  bool fabric = false;       ///< hosts of the same fabric too; where the driver refuses that, file handles alone
};

namespace detail {

// The blocks of one owner: those out, and those released in a stream's order that the stream may not have passed.
template <cuda_driver Driver>
class CudaVmmState {
 public:
  using Event = BasicCudaEvent<Driver>;
  using Stream = BasicCudaStreamRef<Driver>;

  CudaVmmState(CudaState<Driver>& s, const CudaVmmOptions& o, Bytes g) noexcept : state(s), options_(o), granularity_(g) {}
  ~CudaVmmState() {
    state.finish_watched();  // continuations may give blocks back
    for (Record& r : stale_.span()) {
      static_cast<void>(r.freed.wait());
      destroy(r);
    }
    if (live_.empty() || !state.drain()) return;
    for (Record& r : live_.span()) destroy(r);
  }

  [[nodiscard]] Result<Block> take(const Stream* stream, Bytes size, Alignment alignment) noexcept {
    Result<Block> got = take_once(stream, size, alignment);
    const Errc code = got.error().code;
    const bool none_left = code == Errc::out_of_memory || code == Errc::over_budget;
    if (none_left && state.run_completions()) return take_once(stream, size, alignment);  // what events hold back may be free by now
    return got;
  }
  // With a stream: a stale block of this size is had again without a call of the driver where it was released there.
  [[nodiscard]] Result<Block> take_once(const Stream* stream, Bytes size, Alignment alignment) noexcept {
    if (size < 0) return cuda_bad_request(size, Errc::invalid_argument, "a negative number of bytes was asked for");
    if (size == 0) return Block{};
    Bytes rounded = 0;
    if (!checked_align_up(size, std::max(alignment.value(), granularity_), rounded))
      return cuda_bad_request(size, Errc::out_of_memory, "no memory is that large");
    const LockGuard<WordLock> guard(lock_);
    if (Record* again = find_stale(stream, rounded, alignment); again != nullptr) {
      if (stream != nullptr)
        if (Error e = again->freed.wait_on(*stream); !e.ok()) return e;
      return reactivate(*again, size);
    }
    if (options_.budget != 0 && rounded > options_.budget - held_) reclaim(0);
    if (options_.budget != 0 && rounded > options_.budget - held_) {
      Error e = cuda_bad_request(size, Errc::over_budget, "the budget of physical memory is used up");
      e.available = options_.budget - held_;
      return e;
    }
    Record fresh;
    fresh.rounded = rounded;
    Error e = live_.push_back(Record{});
    if (e.ok() && (e = make(fresh, alignment), !e.ok())) {
      live_.pop_back();
      if (e.code == Errc::out_of_memory && reclaim(0) != 0) {
        e = live_.push_back(Record{});
        if (e.ok() && (e = make(fresh, alignment), !e.ok())) live_.pop_back();
      }
    }
    if (!e.ok()) return cuda_refusal(state, e, size);
    held_ += rounded;
    fresh.block.size = size;
    const Block block = fresh.block;
    live_.span().back() = std::move(fresh);
    return block;
  }
  void give(Block block) noexcept {
    if (block.data == nullptr) return;
    // Unmapping waits for nothing that runs. Without the lock: others go on meanwhile.
    if (!state.drain()) return;
    const LockGuard<WordLock> guard(lock_);
    Record* const r = find_live(block);
    if (r == nullptr) return;
    destroy(*r);
    remove(live_, *r);
  }
  void give(const Stream& stream, Block block) noexcept {
    if (block.data == nullptr) return;
    {
      const LockGuard<WordLock> guard(lock_);
      Record* const r = find_live(block);
      if (r == nullptr) return;
      Error e = r->freed.record(stream);
      if (e.ok() && (e = stale_.push_back(std::move(*r)), e.ok())) return remove(live_, *r);
      state.note(e);
    }
    give(block);
  }
  [[nodiscard]] Result<CudaSharedFile> share(Block block, const ShareIdentity& self) noexcept {
    const LockGuard<WordLock> guard(lock_);
    Record* const r = find_live(block);
    if (r == nullptr) return not_out();
    return cuda_share_file(state, r->handle, block, self);
  }
  [[nodiscard]] Result<ShareBlob> share_fabric(Block block, const ShareIdentity& self) noexcept {
    const LockGuard<WordLock> guard(lock_);
    Record* const r = find_live(block);
    if (r == nullptr) return not_out();
    if ((r->shared_by & CU_MEM_HANDLE_TYPE_FABRIC) == 0)
      return make_error(Errc::unsupported, "the memory has no fabric handle: none was asked for, or the driver permits none");
    return cuda_share_fabric(state, r->handle, block, self);
  }
  // Gives back what is stale and passed, but `keep` bytes of it.
  [[nodiscard]] Bytes trim(Bytes keep) noexcept {
    const LockGuard<WordLock> guard(lock_);
    return reclaim(keep < 0 ? 0 : keep);
  }
  [[nodiscard]] Bytes held() noexcept {
    const LockGuard<WordLock> guard(lock_);
    return held_;
  }
  [[nodiscard]] Bytes granularity() const noexcept { return granularity_; }
  [[nodiscard]] Error allow(CUdevice other) noexcept {
    const LockGuard<WordLock> guard(lock_);
    return peers_.add(state, other, [this](const CUmemAccessDesc& access) noexcept {
      for (const auto* list : {&live_, &stale_})
        for (const Record& r : list->span())
          if (Error e = state.call(cuda_call::MemSetAccess{}, cuda_address(r.block.data), static_cast<std::size_t>(r.rounded), &access, std::size_t{1});
              !e.ok())
            return e;
      return Error{};
    });
  }

  CudaState<Driver>& state;

 private:
  struct Record {
    Block block;
    Bytes rounded = 0;
    CudaHandle handle = 0;
    unsigned shared_by = 0;  // handles that others can open
    Event freed;
  };

  [[nodiscard]] static Error not_out() noexcept { return make_error(Errc::not_found, "what is to be shared is no block that is out"); }
  [[nodiscard]] Record* find_live(Block block) noexcept {
    for (Record& r : live_.span())
      if (r.block == block) return &r;
    return nullptr;
  }
  // One released on the same stream, else one that is passed, else, for a stream, any.
  [[nodiscard]] Record* find_stale(const Stream* stream, Bytes rounded, Alignment alignment) noexcept {
    Record* best = nullptr;
    for (Record& r : stale_.span()) {
      if (r.rounded != rounded || !cuda_aligned(cuda_address(r.block.data), alignment)) continue;
      if (stream != nullptr && r.freed.is_defined_on(*stream)) return &r;
      if (best == nullptr && (stream != nullptr || r.freed.ready())) best = &r;
    }
    return best;
  }
  [[nodiscard]] Result<Block> reactivate(Record& r, Bytes size) noexcept {
    if (Error e = live_.push_back(Record{}); !e.ok()) return e;
    r.block.size = size;
    r.freed = Event{};
    const Block block = r.block;
    live_.span().back() = std::move(r);
    remove(stale_, r);
    return block;
  }
  static void remove(SmallList<Record>& list, Record& r) noexcept {
    Record& last = list.span().back();
    if (&r != &last) r = std::move(last);
    list.pop_back();
  }
  Bytes reclaim(Bytes keep) noexcept {
    Bytes stale = 0, gone = 0;
    for (Record& r : stale_.span()) stale += r.rounded;
    for (std::size_t i = stale_.size(); i-- > 0;) {
      Record& r = stale_.span()[i];
      if (stale - gone - r.rounded < keep || !r.freed.ready()) continue;
      gone += r.rounded;
      destroy(r);
      remove(stale_, r);
    }
    return gone;
  }

  // All or nothing.
  [[nodiscard]] Error make(Record& r, Alignment alignment) noexcept {
    r.shared_by = cuda_handle_types(options_.file_handles, options_.fabric);
    if (Error e = cuda_create(state, r.rounded, r.shared_by, r.handle); !e.ok()) return e;
    const Result<Block> mapped = cuda_map(state, r.handle, r.rounded, std::max(alignment.value(), granularity_));
    if (!mapped.ok()) return mapped.error();
    const Error e = peers_.open(state, cuda_address(mapped->data), static_cast<std::size_t>(r.rounded));
    if (e.ok()) r.block = *mapped;
    else cuda_unmap(state, *mapped, r.handle);
    return e;
  }
  void destroy(Record& r) noexcept {
    cuda_unmap(state, {r.block.data, r.rounded}, r.handle);
    held_ -= r.rounded;
  }

  const CudaVmmOptions options_;
  const Bytes granularity_;
  WordLock lock_;
  CudaPeers peers_;
  Bytes held_ = 0;  // physical
  SmallList<Record> live_, stale_;
};

}  // namespace detail

/// Memory of the driver's virtual memory management: whole granules, which other processes can map.
///
/// A handle. A block released in a stream's order is had again, for the same size, on that stream without a call of the
/// driver, on others after a wait; its memory goes back when somebody asks for more than the budget, or trims.
/// Threads: any. Cost: rounds up to granules (2 MiB); linear in the blocks. Its owner must outlive it. Source: backends.md 6.8.
template <cuda_driver Driver>
class BasicCudaVmmMemory : public detail::CudaCopies<BasicCudaVmmMemory<Driver>, Driver> {
 public:
  static constexpr MemorySpace space = MemorySpace::device;
  using stream_type = BasicCudaStreamRef<Driver>;

  constexpr BasicCudaVmmMemory() noexcept = default;

  /// Gives memory that all streams may use. Errors: invalid_argument (negative size), out_of_memory, over_budget, the driver's.
  /// Threads: may run continuations.
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept { return vmm_->take(nullptr, size, alignment); }
  /// Takes memory back at once; while a stream of the context is being captured its owner keeps it to the end.
  /// Threads: blocks until all work of the context is done. A failure is `unreported`.
  void deallocate(Block block) noexcept { vmm_->give(block); }
  /// Gives memory in the order of a stream. Errors, Threads: as above. Stream: enqueues at most a wait.
  [[nodiscard]] Result<Block> allocate(const stream_type& stream, Bytes size, Alignment alignment) noexcept {
    return vmm_->take(&stream, size, alignment);
  }
  /// Takes memory back in the order of a stream, which has waited for all its uses. Stream: enqueues a mark.
  void deallocate(const stream_type& stream, Block block) noexcept { vmm_->give(stream, block); }

  /// Makes a file that stands for a block, for another process of this host.
  ///
  /// While it is shared the block should not be given back: its memory may come again here while others see it.
  /// Errors: not_found (no block of this source), the driver's own (made without `file_handles`).
  [[nodiscard]] Result<CudaSharedFile> share(Block block, const ShareIdentity& self) noexcept { return vmm_->share(block, self); }

  /// Names a block for another process of any host of the fabric; while it is shared, as above.
  ///
  /// Errors: not_found, as above; unsupported (made without `fabric`, or the driver permitted none then), the driver's own.
  [[nodiscard]] Result<ShareBlob> share_fabric(Block block, const ShareIdentity& self) noexcept { return vmm_->share_fabric(block, self); }

  /// Gives back what was released and is not needed for work that runs, but `keep` bytes; tells how much.
  [[nodiscard]] Bytes trim(Bytes keep) noexcept { return vmm_->trim(keep); }
  /// Physical bytes held, those waiting to go included.
  [[nodiscard]] Bytes held() const noexcept { return vmm_->held(); }
  [[nodiscard]] Bytes granularity() const noexcept { return vmm_->granularity(); }

  friend bool operator==(const BasicCudaVmmMemory& a, const BasicCudaVmmMemory& b) noexcept { return a.vmm_ == b.vmm_; }
  // For copies and the owner.
  [[nodiscard]] detail::CudaState<Driver>& state() const noexcept { return vmm_->state; }
  explicit BasicCudaVmmMemory(detail::CudaVmmState<Driver>& vmm) noexcept : vmm_(&vmm) {}

 private:
  detail::CudaVmmState<Driver>* vmm_ = nullptr;
};

/// The owner of such memory. All blocks must be back when it goes, or are taken; it waits for the streams that released them.
///
/// Threads: as a value. The context must outlive it.
template <cuda_driver Driver>
class BasicCudaVmm {
 public:
  using context_type = BasicCudaContext<Driver>;
  using memory_type = BasicCudaVmmMemory<Driver>;

  /// Makes it. Errors: invalid_argument (negative budget), the driver's own; out_of_memory.
  [[nodiscard]] static Result<BasicCudaVmm> make(const context_type& context, const CudaVmmOptions& options = {}) noexcept {
    if (options.budget < 0) return make_error(Errc::invalid_argument, "a budget is not negative");
    auto& state = context.state();
    const CUmemAllocationProp props = detail::cuda_properties(state.device);
    std::size_t granularity = 0;
    if (Error e = state.call(cuda_call::MemGetAllocationGranularity{}, &granularity, &props, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED); !e.ok())
      return e;
    std::unique_ptr<State> made(new (std::nothrow) State(state, options, static_cast<Bytes>(granularity)));
    if (made == nullptr) return make_error(Errc::out_of_memory, "no memory for a source of memory");
    return BasicCudaVmm(std::move(made));
  }
  [[nodiscard]] memory_type memory() const noexcept { return memory_type(*state_); }
  /// Lets another device read and write all of it, what comes later too: `enable_peer` does nothing for such memory.
  /// Errors: unsupported (it cannot), the driver's own.
  [[nodiscard]] Error allow(const context_type& other) const noexcept { return state_->allow(other.device()); }

 private:
  using State = detail::CudaVmmState<Driver>;
  explicit BasicCudaVmm(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
  std::unique_ptr<State> state_;
};

/// Virtual memory of this machine's driver.
using CudaVmmMemory = BasicCudaVmmMemory<RealDriver>;
using CudaVmm = BasicCudaVmm<RealDriver>;
static_assert(stream_ordered_backend<CudaVmmMemory> && copying_backend<CudaVmmMemory>);

}  // namespace holdfast
