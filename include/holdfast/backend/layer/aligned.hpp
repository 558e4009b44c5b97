// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "holdfast/backend/layer/detail/layer_base.hpp"

namespace holdfast {

/// Rounds the size of every request up to a multiple of `N` bytes and aligns it at least so.
///
/// The block has the size that was asked for; the source sees rounded sizes, at the release too, without a table.
template <Bytes N>
struct Aligned {
  static_assert(is_power_of_two(N));

  template <memory_backend Up>
  class layer : public detail::LayerBase<layer<Up>, Up> {
    using Base = detail::LayerBase<layer<Up>, Up>;
    friend Base;

   public:
    constexpr layer() noexcept = default;
    explicit constexpr layer(Up up) noexcept : Base(std::move(up)) {}

    /// The largest request that the free memory below could serve.
    [[nodiscard]] Bytes largest_free() noexcept
      requires inspectable_backend<Up>
    {
      return this->up().largest_free() / N * N;
    }

   private:
    template <class... Stream>
    [[nodiscard]] Result<Block> take(Bytes size, Alignment alignment, Tag tag, Stream&... stream) noexcept {
      Bytes rounded = size;
      if (size > 0 && !checked_align_up(size, N, rounded)) return too_large(size);
      Result<Block> block = this->take_up(rounded, alignment.value() < N ? Alignment(N) : alignment, tag, stream...);
      if (block.ok()) block->size = size;
      return block;
    }
    template <class... Stream>
    void give(Block block, Stream&... stream) noexcept {
      this->give_up({block.data, align_up(block.size, N)}, stream...);
    }
    [[nodiscard]] HOLDFAST_COLD static Error too_large(Bytes size) noexcept {
      Error e = make_error(Errc::out_of_memory, "the size, rounded up, is larger than any memory");
      e.stage = Stage::allocation;
      e.requested = size;
      return e;
    }
  };
};
static_assert(memory_backend<Aligned<64>::layer<EmptyMemory>> && sizeof(Aligned<64>::layer<EmptyMemory>) == 1);

}  // namespace holdfast
