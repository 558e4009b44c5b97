// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "holdfast/backend/layer/detail/layer_base.hpp"
#include "holdfast/concepts/lock.hpp"

namespace holdfast {

/// Lets one call at a time in: a source for one thread becomes one for any.
///
/// Copies are not among these calls: they use memory that is out already. Threads: any, with a real lock; `NoLock` costs nothing.
/// Over a source whose requests run continuations, as those of CUDA's do, the lock is a `ReentrantLock`.
template <lock Lock = WordLock>
struct Locked {
  template <memory_backend Up>
  class layer : public detail::StatefulLayer<layer<Up>, Up, Lock> {
    static_assert(std::is_empty_v<Lock> || !detail::waits_for_release<Up>,
                  "who waits for memory would keep the lock from who releases it: Locked stands below Retrying");
    static_assert(std::is_empty_v<Lock> || !runs_continuations<Up> || requires { requires Lock::reentrant; },
                  "what runs within a request may release memory here, and would wait for itself: Locked<ReentrantLock>");
    using Base = detail::StatefulLayer<layer<Up>, Up, Lock>;
    friend typename Base::LayerBase;

   public:
    using Base::Base;

    /// The visitor runs under the lock: it must not use the stack.
    template <class Visitor>
    void visit_blocks(Visitor visitor) noexcept
      requires inspectable_backend<Up>
    {
      locked([&] { this->up().visit_blocks(std::move(visitor)); });
    }
    [[nodiscard]] Bytes largest_free() noexcept
      requires inspectable_backend<Up>
    {
      return locked([&] { return this->up().largest_free(); });
    }
    Bytes trim(Bytes keep) noexcept
      requires inspectable_backend<Up>
    {
      return locked([&] { return this->up().trim(keep); });
    }

   private:
    template <class F>
    auto locked(F f) noexcept {
      auto&& lock = this->state();
      LockGuard guard(lock);
      return f();
    }
    template <class... Stream>
    [[nodiscard]] Result<Block> take(Bytes size, Alignment alignment, Tag tag, Stream&... stream) noexcept {
      return locked([&] { return this->take_up(size, alignment, tag, stream...); });
    }
    template <class... Stream>
    void give(Block block, Stream&... stream) noexcept {
      locked([&] { this->give_up(block, stream...); });
    }
  };
};
static_assert(memory_backend<Locked<NoLock>::layer<EmptyMemory>> && sizeof(Locked<NoLock>::layer<EmptyMemory>) == 1);

}  // namespace holdfast
