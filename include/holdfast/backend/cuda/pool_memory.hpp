// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "holdfast/backend/cuda/context.hpp"
#include "holdfast/backend/cuda/detail/cuda_copies.hpp"
#include "holdfast/concepts/memory_backend.hpp"

namespace holdfast {

/// How a pool of the driver behaves.
struct CudaPoolOptions {
  Bytes limit = 0;          ///< it grows no further; 0: the driver's own limit
  Bytes keep = max_bytes;   ///< what it holds on to when it is idle; the driver's default is 0, which gives all back at each wait
  bool file_handles = false;  ///< other processes can open it; the driver gives back nothing of it then, whatever `keep` is
};

namespace detail {

template <cuda_driver Driver>
struct CudaPoolState {
  CudaState<Driver>& state;
  CUmemoryPool pool;
  BasicCudaStream<Driver> own;  // where requests without a stream take their place
};

}  // namespace detail

/// Memory of a driver's pool: a backend whose requests and releases take their place in the order of streams.
///
/// A handle. The driver reuses a released block on the same stream at once, on others when it comes after the release.
/// Threads: any. The pool must outlive it, and all buffers on it.
template <cuda_driver Driver>
class BasicCudaPoolMemory : public detail::CudaCopies<BasicCudaPoolMemory<Driver>, Driver> {
 public:
  static constexpr MemorySpace space = MemorySpace::device;
  using stream_type = BasicCudaStreamRef<Driver>;

  /// No pool: to be assigned before use.
  constexpr BasicCudaPoolMemory() noexcept = default;

  /// Gives memory that the host's later work on all streams may use. Errors: as on a stream; a fault of the device.
  /// Threads: blocks until the driver has the memory; may run continuations.
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    Result<Block> block = allocate(pool_->own.ref(), size, alignment);
    if (!block.ok() || block->data == nullptr) return block;
    // Without it the block would be good only for work that comes after this stream's (rapidsai/rmm#2156).
    if (Error e = state().inside(cuda_call::StreamSynchronize{}, pool_->own.native()); !e.ok()) return deallocate(*block), e;
    return block;
  }
  /// Takes memory back: whoever calls has seen the end of all its uses.
  void deallocate(Block block) noexcept { deallocate(pool_->own.ref(), block); }

  /// Gives memory in the order of a stream: other streams must wait for an event of it before they use it.
  ///
  /// Errors: invalid_argument (negative size), unsupported (an alignment that the driver's block does not have),
  /// out_of_memory (the device, or the pool's limit), the driver's own. Stream: enqueues the allocation.
  /// Threads: may run continuations.
  [[nodiscard]] Result<Block> allocate(const stream_type& stream, Bytes size, Alignment alignment) noexcept {
    const auto ask = [&](CUdeviceptr* p) noexcept {
      return state().inside(cuda_call::MemAllocFromPoolAsync{}, p, static_cast<std::size_t>(size), pool_->pool, stream.native());
    };
    return detail::cuda_block(state(), size, alignment, ask, [&](Block block) noexcept { deallocate(stream, block); });
  }
  /// Takes memory back in the order of a stream, which has waited for all its uses. A failure is the context's `unreported`.
  /// Stream: enqueues the release.
  void deallocate(const stream_type& stream, Block block) noexcept {
    if (block.data != nullptr) state().insist(cuda_call::MemFreeAsync{}, detail::cuda_address(block.data), stream.native());
  }

  /// Gives what is not in use back to the device, but `keep` bytes; tells how much. What streams still hold stays.
  [[nodiscard]] Bytes trim(Bytes keep) noexcept {
    const Bytes before = attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    state().note(state().call(cuda_call::MemPoolTrimTo{}, pool_->pool, static_cast<std::size_t>(keep < 0 ? 0 : keep)));
    const Bytes after = attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    return before > after ? before - after : 0;
  }
  /// What the pool has taken from the device, now and at most; what of it is handed out, now and at most. -1: the driver does not say.
  [[nodiscard]] Bytes reserved() const noexcept { return attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); }
  [[nodiscard]] Bytes peak_reserved() const noexcept { return attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH); }
  [[nodiscard]] Bytes used() const noexcept { return attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }
  [[nodiscard]] Bytes peak_used() const noexcept { return attribute(CU_MEMPOOL_ATTR_USED_MEM_HIGH); }

  friend bool operator==(const BasicCudaPoolMemory& a, const BasicCudaPoolMemory& b) noexcept { return a.pool_ == b.pool_; }
  // For copies, the pool and sharing.
  [[nodiscard]] detail::CudaState<Driver>& state() const noexcept { return pool_->state; }
  [[nodiscard]] CUmemoryPool native() const noexcept { return pool_->pool; }
  explicit BasicCudaPoolMemory(detail::CudaPoolState<Driver>& pool) noexcept : pool_(&pool) {}

 private:
  [[nodiscard]] Bytes attribute(CUmemPool_attribute which) const noexcept {
    cuuint64_t value = 0;
    const Error e = state().call(cuda_call::MemPoolGetAttribute{}, pool_->pool, which, static_cast<void*>(&value));
    state().note(e);
    return e.ok() ? static_cast<Bytes>(value) : -1;
  }
  detail::CudaPoolState<Driver>* pool_ = nullptr;
};

/// A pool of the driver's with one owner. Destroyed, it is gone for the host, for the device when its last block is.
///
/// Destroying it waits for the events that have continuations, and for threads that run them: some may give blocks back.
/// Threads: as a value; not in a continuation. The context must outlive it.
template <cuda_driver Driver>
class BasicCudaPool {
 public:
  using context_type = BasicCudaContext<Driver>;
  using memory_type = BasicCudaPoolMemory<Driver>;

  BasicCudaPool(BasicCudaPool&&) noexcept = default;
  BasicCudaPool& operator=(BasicCudaPool&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~BasicCudaPool() {
    if (state_ == nullptr) return;
    state_->state.finish_watched();
    state_->state.note(state_->state.call(cuda_call::MemPoolDestroy{}, state_->pool));
  }

  /// Makes a pool on the context's device. Errors: invalid_argument (negative sizes), the driver's own; out_of_memory.
  [[nodiscard]] static Result<BasicCudaPool> make(const context_type& context, const CudaPoolOptions& options = {}) noexcept {
    if (options.limit < 0 || options.keep < 0) return make_error(Errc::invalid_argument, "a pool's sizes are not negative");
    auto& state = context.state();
    Result<BasicCudaStream<Driver>> own = context.make_stream();
    if (!own.ok()) return own.error();
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = options.file_handles ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = state.device;
    props.maxSize = static_cast<std::size_t>(options.limit);
    CUmemoryPool pool = nullptr;
    if (Error e = state.call(cuda_call::MemPoolCreate{}, &pool, static_cast<const CUmemPoolProps*>(&props)); !e.ok()) return e;
    cuuint64_t keep = options.keep == max_bytes ? std::numeric_limits<cuuint64_t>::max() : static_cast<cuuint64_t>(options.keep);
    Error e = state.call(cuda_call::MemPoolSetAttribute{}, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, static_cast<void*>(&keep));
    if (e.ok()) {
      if (auto* made = new (std::nothrow) State{state, pool, std::move(*own)}; made != nullptr) return BasicCudaPool(made);
      e = make_error(Errc::out_of_memory, "no memory for a pool");
    }
    state.note(state.call(cuda_call::MemPoolDestroy{}, pool));
    return e;
  }

  [[nodiscard]] memory_type memory() const noexcept { return memory_type(*state_); }
  /// Lets another device read and write what lies in the pool. Errors: unsupported (it cannot), the driver's own.
  [[nodiscard]] Error allow(const context_type& other) const noexcept {
    int can = 0;
    auto& state = state_->state;
    if (Error e = state.call(cuda_call::DeviceCanAccessPeer{}, &can, other.device(), state.device); !e.ok()) return e;
    if (can == 0) return make_error(Errc::unsupported, "the devices cannot access each other's memory");
    const CUmemAccessDesc access = detail::cuda_access(other.device(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return state.call(cuda_call::MemPoolSetAccess{}, state_->pool, &access, std::size_t{1});
  }
  [[nodiscard]] CUmemoryPool native() const noexcept { return state_->pool; }

 private:
  using State = detail::CudaPoolState<Driver>;
  explicit BasicCudaPool(State* state) noexcept : state_(state) {}
  std::unique_ptr<State> state_;
};

/// The pools of this machine's driver.
using CudaPoolMemory = BasicCudaPoolMemory<RealDriver>;
using CudaPool = BasicCudaPool<RealDriver>;
static_assert(stream_ordered_backend<CudaPoolMemory> && copying_backend<CudaPoolMemory>);

}  // namespace holdfast
