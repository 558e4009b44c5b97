// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <errno.h>
#include <sys/mman.h>

#include <concepts>
#include <cstddef>

#include "holdfast/backend/layer/detail/layer_base.hpp"

namespace holdfast {

/// Something that locks whole pages of host memory in place, for devices or against swapping, and unlocks them again.
template <class P>
concept pinner = requires(P& p, Block pages) {
  { p.pin(pages) } noexcept -> std::same_as<Error>;
  { p.unpin(pages) } noexcept -> std::same_as<void>;
};

/// Locks nothing: the do-nothing model, for sources whose memory is pinned already.
struct NoPinning {
  constexpr Error pin(Block) noexcept { return {}; }
  constexpr void unpin(Block) noexcept {}
};

/// The system's `mlock`. Stateless. Threads: any. Errors: out_of_memory or over_budget (RLIMIT_MEMLOCK), with errno.
struct MemoryLock {
  Error pin(Block pages) noexcept {
    if (::mlock(pages.data, static_cast<std::size_t>(pages.size)) == 0) return {};
    const int why = errno;
    Error e = why == EAGAIN ? make_error(Errc::out_of_memory, "mlock: these pages of pinned host memory cannot be locked")
                            : make_error(Errc::over_budget, "mlock: pinned host memory would pass the limit of locked memory (RLIMIT_MEMLOCK)");
    e.native = why;
    return e;
  }
  void unpin(Block pages) noexcept { ::munlock(pages.data, static_cast<std::size_t>(pages.size)); }
};
static_assert(pinner<NoPinning> && pinner<MemoryLock>);

/// Pins each block of pageable host memory while it is out; blocks are whole pages to the source.
///
/// The block has the size that was asked for. Errors: as the source's and the pinner's. Threads: as both.
/// Cost: pinning and unpinning at each call: put a `PinnedPool` over it.
template <pinner Pinner = MemoryLock>
struct Pinned {
  static constexpr Bytes page = 4096;

  template <memory_backend Up>
  class layer : public detail::StatefulLayer<layer<Up>, Up, Pinner, tagging_backend<Up>, false> {
    static_assert(host_accessible<Up>, "only host memory is pinned");
    using Base = detail::StatefulLayer<layer<Up>, Up, Pinner, tagging_backend<Up>, false>;
    friend typename Base::LayerBase;

   public:
    using Base::Base;

   private:
    [[nodiscard]] Result<Block> take(Bytes size, Alignment alignment, Tag tag) noexcept {
      if (size <= 0) return this->take_up(size, alignment, tag);
      Bytes whole = 0;
      if (!checked_align_up(size, page, whole)) return failed(make_error(Errc::out_of_memory, "the size is larger than any memory"), size);
      Result<Block> block = this->take_up(whole, alignment.value() < page ? Alignment(page) : alignment, tag);
      if (!block.ok()) return block;
      auto&& pinner = this->state();
      if (const Error e = pinner.pin(*block); !e.ok()) {
        this->give_up(*block);
        return failed(e, size);
      }
      block->size = size;
      return block;
    }
    void give(Block block) noexcept {
      block.size = align_up(block.size, page);
      auto&& pinner = this->state();
      if (block.data != nullptr) pinner.unpin(block);
      this->give_up(block);
    }
    [[nodiscard]] HOLDFAST_COLD static Error failed(Error e, Bytes size) noexcept {
      e.stage = Stage::allocation;
      e.requested = size;
      return e;
    }
  };
};
static_assert(memory_backend<Pinned<>::layer<EmptyMemory>> && sizeof(Pinned<>::layer<EmptyMemory>) == 1);

}  // namespace holdfast
