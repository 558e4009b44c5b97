// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "holdfast/backend/jit/detail/record_list.hpp"
#include "holdfast/backend/jit/memory_mapper.hpp"
#include "holdfast/concepts/lock.hpp"
#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/event/immediate_event.hpp"

namespace holdfast {

template <class Mapper>
class BasicJitMemory;

/// The blocks of code that a `JitMemory` gives out over one mapper. Outlives the blocks; the mapper outlives it. Threads: any.
template <class Mapper = MemoryMapper>
class BasicJitHeap {
 public:
  explicit BasicJitHeap(Mapper& mapper) noexcept : mapper_(&mapper) {}
  BasicJitHeap(const BasicJitHeap&) = delete;
  BasicJitHeap& operator=(const BasicJitHeap&) = delete;
  ~BasicJitHeap() {
    for (; !blocks_.empty(); blocks_.pop_back()) mapper_->release(blocks_.back());
  }
  [[nodiscard]] BasicJitMemory<Mapper> memory() noexcept { return BasicJitMemory<Mapper>(this); }

 private:
  friend class BasicJitMemory<Mapper>;

  // The first block, by address, that ends above `data`. Under the lock.
  [[nodiscard]] std::size_t find(const std::byte* data) noexcept {
    std::size_t low = 0, high = blocks_.size();
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      if (blocks_[middle].run + blocks_[middle].size <= data) low = middle + 1;
      else high = middle;
    }
    return low;
  }
  [[nodiscard]] CodeBlock block_of(const std::byte* data) noexcept {
    LockGuard<WordLock> guard(lock_);
    const std::size_t at = find(data);
    return at < blocks_.size() && blocks_[at].run <= data ? blocks_[at] : CodeBlock{};
  }

  Mapper* mapper_;
  WordLock lock_;
  detail::RecordList<CodeBlock> blocks_;  // by address
};

/// Memory for code as a backend: a block's address is where it runs, written by copies until it is sealed.
///
/// A block has pages of its own; many small pieces of code belong into one block or into `ContiguousSections`. The host
/// reads a block through its address and never writes there. Threads: any, one on a block.
template <class Mapper = MemoryMapper>
class BasicJitMemory {
 public:
  static constexpr MemorySpace space = MemorySpace::host;
  static constexpr bool host_accessible = false;
  using event_type = ImmediateEvent;

  explicit BasicJitMemory(BasicJitHeap<Mapper>* heap) noexcept : heap_(heap) {}

  /// Gives writable, zeroed memory for code. Errors: the mapper's; out_of_memory.
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    Result<CodeBlock> code = heap_->mapper_->reserve(size, CodePlacement{alignment, nullptr});
    if (!code.ok()) return code.error();
    if (size == 0) return Block{};
    Error e = heap_->mapper_->commit(*code);
    if (e.ok()) {
      LockGuard<WordLock> guard(heap_->lock_);
      if (heap_->blocks_.insert(heap_->find(code->run), *code)) return Block{code->run, size};
      e = make_error(Errc::out_of_memory, "Out of memory allocating");
    }
    heap_->mapper_->release(*code);
    return e;
  }
  /// Takes back a block that `allocate` gave, sealed or not.
  void deallocate(Block block) noexcept {
    if (block.data == nullptr) return;
    CodeBlock code;
    {
      LockGuard<WordLock> guard(heap_->lock_);
      const std::size_t at = heap_->find(block.data);
      HOLDFAST_ASSERT(at < heap_->blocks_.size() && heap_->blocks_[at].run == block.data);
      code = heap_->blocks_[at];
      heap_->blocks_.erase(at);
    }
    heap_->mapper_->release(code);
  }

  /// Makes a block executable and ends its writing. Errors: wrong_state (sealed before); the mapper's, then it stays writable.
  [[nodiscard]] Error seal(Block block) noexcept {
    if (block.data == nullptr) return {};
    CodeBlock code = heap_->block_of(block.data);
    if (Error e = heap_->mapper_->seal(code); !e.ok()) return e;
    LockGuard<WordLock> guard(heap_->lock_);
    heap_->blocks_[heap_->find(block.data)].write = nullptr;
    return {};
  }

  /// Writes bytes into a block that is not sealed yet. Errors: wrong_state (it is).
  [[nodiscard]] Result<event_type> copy_in(Block to, Bytes offset, std::span<const std::byte> from) noexcept {
    if (from.empty()) return event_type{};
    const CodeBlock code = heap_->block_of(to.data);
    if (code.write == nullptr) return make_error(Errc::wrong_state, "sealed code is not written");
    std::memcpy(code.write + (to.data - code.run) + offset, from.data(), from.size());
    return event_type{};
  }
  [[nodiscard]] Result<event_type> copy_out(Block from, Bytes offset, std::span<std::byte> to) noexcept {
    if (!to.empty()) std::memcpy(to.data(), from.data + offset, to.size());
    return event_type{};
  }
  [[nodiscard]] Result<event_type> copy(Block to, Bytes to_offset, Block from, Bytes from_offset, Bytes n) noexcept {
    return copy_in(to, to_offset, {from.data + from_offset, static_cast<std::size_t>(n)});
  }

 private:
  BasicJitHeap<Mapper>* heap_;
};

/// The code memory of this system.
using JitHeap = BasicJitHeap<>;
using JitMemory = BasicJitMemory<>;
static_assert(copying_backend<JitMemory> && !host_accessible<JitMemory> && sizeof(JitMemory) == sizeof(void*));

}  // namespace holdfast
