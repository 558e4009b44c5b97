// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <new>
#include <optional>
#include <utility>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/backend/layer/detail/layer_base.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/concepts/lock.hpp"
#include "holdfast/event/immediate_event.hpp"

namespace holdfast {

/// The releases that wait for an event: the state of `Deferred`, under the one stack that is made with it.
///
/// Its end waits for all of them. Threads: any.
template <memory_backend Up, event Event>
class DeferredReleases {
 public:
  DeferredReleases() noexcept = default;
  DeferredReleases(const DeferredReleases&) = delete;
  DeferredReleases& operator=(const DeferredReleases&) = delete;
  ~DeferredReleases() { flush(); }

  /// Releases what is no longer waited for; returns the bytes. Cost: linear in what waits; one load when nothing does.
  Bytes collect() noexcept {
    if (waiting_.load(std::memory_order_acquire) == 0) return 0;
    Node* ready = nullptr;
    {
      LockGuard guard(lock_);
      for (Node** at = &first_; *at != nullptr;) {
        Node* n = *at;
        if (!n->event.ready()) {
          at = &n->next;
          continue;
        }
        *at = n->next;
        n->next = std::exchange(ready, n);
      }
    }
    return release(ready);
  }
  /// Waits for all, and releases them; returns the bytes.
  Bytes flush() noexcept {
    Node* all = nullptr;
    {
      LockGuard guard(lock_);
      all = std::exchange(first_, nullptr);
    }
    for (Node* n = all; n != nullptr; n = n->next) static_cast<void>(n->event.wait());  // failed or not, the work is over
    return release(all);
  }
  /// How many blocks wait.
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.load(std::memory_order_acquire); }

 private:
  template <event>
  friend struct Deferred;
  struct Node {
    Node* next;
    Block block;
    Event event;
  };

  void attach(const Up& up) noexcept {
    LockGuard guard(lock_);
    if (!up_.has_value()) up_.emplace(up);
  }
  void defer(Block block, Event event) noexcept {
    Result<Block> own = SystemMemory{}.allocate(sizeof(Node), Alignment(alignof(Node)));
    if (!own.ok()) {  // nothing to remember it by
      static_cast<void>(event.wait());
      return up_->deallocate(block);
    }
    Node* n = ::new (static_cast<void*>(own->data)) Node{nullptr, block, std::move(event)};
    LockGuard guard(lock_);
    n->next = std::exchange(first_, n);
    waiting_.fetch_add(1, std::memory_order_release);
  }
  Bytes release(Node* list) noexcept {
    Bytes bytes = 0;
    while (list != nullptr) {
      Node* n = std::exchange(list, list->next);
      bytes += n->block.size;
      up_->deallocate(n->block);
      n->~Node();
      SystemMemory{}.deallocate({reinterpret_cast<std::byte*>(n), sizeof(Node)});
      waiting_.fetch_sub(1, std::memory_order_release);
    }
    return bytes;
  }

  WordLock lock_;
  std::optional<Up> up_;
  Node* first_ = nullptr;
  std::atomic<std::size_t> waiting_{0};
};

/// Takes a block back now and gives it on when an event has come: when the copy that still uses it is done. Nobody waits.
///
/// `deallocate` is as ever; `deallocate_after(block, event)` defers. What has become free is released at the next allocation or
/// deferral. It is the outermost layer: those below see a release when it happens. Threads: any.
template <event Event>
struct Deferred {
  template <memory_backend Up>
  class layer : public detail::LayerBase<layer<Up>, Up> {
    using Base = detail::LayerBase<layer<Up>, Up>;
    friend Base;

   public:
    using state_type = DeferredReleases<Up, Event>;
    layer(Up up, state_type& releases) noexcept : Base(up), releases_(&releases) { releases.attach(up); }

    /// Takes a block back that is used until the event, which may fail too; the empty block is none.
    /// It waits only where there is no memory to remember the block by.
    void deallocate_after(Block block, Event event) noexcept {
      releases_->collect();
      if (block.data != nullptr) releases_->defer(block, std::move(event));
    }
    /// Releases what has become free first. Stream: waits for no event.
    Bytes trim(Bytes keep) noexcept
      requires inspectable_backend<Up>
    {
      releases_->collect();
      return this->up().trim(keep);
    }

   private:
    template <class... Stream>
    [[nodiscard]] Result<Block> take(Bytes size, Alignment alignment, Tag tag, Stream&... stream) noexcept {
      releases_->collect();
      return this->take_up(size, alignment, tag, stream...);
    }
    template <class... Stream>
    void give(Block block, Stream&... stream) noexcept {
      this->give_up(block, stream...);
    }
    state_type* releases_;
  };
};
static_assert(memory_backend<Deferred<ImmediateEvent>::layer<EmptyMemory>>);

}  // namespace holdfast
