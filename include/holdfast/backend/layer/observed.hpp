// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "holdfast/backend/layer/detail/layer_base.hpp"
#include "holdfast/concepts/observer.hpp"

namespace holdfast {

/// Tells an observer of each block that goes out, comes back or is refused; of the empty block of 0 bytes it says nothing.
///
/// `NoObserver` costs nothing, not even an instruction. Threads: as the observer and the source; a release is told before it
/// happens, so that nobody hears of the next owner first.
template <observer Observer>
struct Observed {
  template <memory_backend Up>
  class layer : public detail::LayerBase<layer<Up>, Up, true>, public detail::StateTypeOf<Observer, Up> {
    using Base = detail::LayerBase<layer<Up>, Up, true>;
    friend Base;

   public:
    constexpr layer() noexcept
      requires std::is_empty_v<Observer>
    = default;
    explicit constexpr layer(Up up) noexcept
      requires std::is_empty_v<Observer>
        : Base(std::move(up)) {}
    constexpr layer(Up up, Observer& to) noexcept : Base(std::move(up)), observer_(to) {}

   private:
    template <class... Stream>
    [[nodiscard]] Result<Block> take(Bytes size, Alignment alignment, Tag tag, Stream&... stream) noexcept {
      Result<Block> block = this->take_up(size, alignment, tag, stream...);
      auto&& to = observer_.get();
      if (!block.ok())
        to.on_failure(block.error());
      else if (block->data != nullptr)
        to.on_allocate(*block, tag);
      return block;
    }
    template <class... Stream>
    void give(Block block, Stream&... stream) noexcept {
      auto&& to = observer_.get();
      if (block.data != nullptr) to.on_deallocate(block);
      this->give_up(block, stream...);
    }
    HOLDFAST_NO_UNIQUE_ADDRESS detail::StateRef<Observer, layer> observer_;
  };
};
static_assert(tagging_backend<Observed<NoObserver>::layer<EmptyMemory>> && sizeof(Observed<NoObserver>::layer<EmptyMemory>) == 1);

}  // namespace holdfast
