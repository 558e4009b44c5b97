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
  class layer : public detail::StatefulLayer<layer<Up>, Up, Observer, true> {
    using Base = detail::StatefulLayer<layer<Up>, Up, Observer, true>;
    friend typename Base::LayerBase;

   public:
    using Base::Base;

   private:
    template <class... Stream>
    [[nodiscard]] Result<Block> take(Bytes size, Alignment alignment, Tag tag, Stream&... stream) noexcept {
      Result<Block> block = this->take_up(size, alignment, tag, stream...);
      auto&& to = this->state();
      if (!block.ok())
        to.on_failure(block.error());
      else if (block->data != nullptr)
        to.on_allocate(*block, tag);
      return block;
    }
    template <class... Stream>
    void give(Block block, Stream&... stream) noexcept {
      auto&& to = this->state();
      if (block.data != nullptr) to.on_deallocate(block);
      this->give_up(block, stream...);
    }
  };
};
static_assert(tagging_backend<Observed<NoObserver>::layer<EmptyMemory>> && sizeof(Observed<NoObserver>::layer<EmptyMemory>) == 1);

}  // namespace holdfast
