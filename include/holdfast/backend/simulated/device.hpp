// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/backend/simulated/heap.hpp"
#include "holdfast/backend/simulated/stream.hpp"
#include "holdfast/concepts/memory_backend.hpp"

namespace holdfast {

namespace detail {

// The state of one device, guarded by the timeline.
template <order_watch Watch>
struct SimulatedDeviceState {
  using stream_type = BasicSimulatedStream<Watch>;
  using event_type = BasicSimulatedEvent<Watch>;
  struct PendingFree {
    Block block;
    event_type freed;
    SimulatedQueue<Watch>* stream;
  };

  SimulatedDeviceState(SimulatedTimeline<Watch>& t, Block arena) noexcept : timeline(t), heap(arena) {}
  ~SimulatedDeviceState() { SystemMemory{}.deallocate(heap.arena()); }
  SimulatedDeviceState(SimulatedDeviceState&&) = delete;

  SimulatedTimeline<Watch>& timeline;
  SimulatedHeap heap;
  DeviceHealth health;
  std::vector<PendingFree> pending;  // free to allocate, but a stream may still use it
  SimulatedQueue<Watch>* copy_queues[3] = {};
};

}  // namespace detail

/// A simulated device, or a pool of simulated pinned host memory: a backend whose bytes are real and whose streams are not.
///
/// A handle. Blocks lie on the host, but only operations of streams may touch them: what the host does to them itself is
/// told with `host_reads` and `host_writes` of the machine. All copies are asynchronous, those from and to the host too.
/// Threads: any. The machine must outlive it, and all buffers on it.
template <order_watch Watch, MemorySpace Space = MemorySpace::device>
class BasicSimulatedDevice {
 public:
  static constexpr MemorySpace space = Space;
  using stream_type = BasicSimulatedStream<Watch>;
  using event_type = BasicSimulatedEvent<Watch>;

  /// No device: to be assigned before use.
  constexpr BasicSimulatedDevice() noexcept = default;

  /// Makes a stream of this device. It lives as long as the machine.
  [[nodiscard]] stream_type make_stream(std::string_view name = {}) const noexcept {
    return stream_type(*state_->timeline.add_stream(name, state_->health));
  }
  /// Makes an event that the host completes and whose waits run this machine. Errors: out_of_memory.
  [[nodiscard]] Result<typename event_type::promise_type> make_promise() const noexcept {
    return event_type::promise_type::make(&state_->timeline);
  }
  /// Lets a call, or the work of a call, of this device or its streams fail.
  void inject(const SimulatedFault& fault) const noexcept {
    state_->timeline.with_lock([&](Watch&) noexcept { state_->health.inject(fault); });
  }

  /// Gives memory that the host and all streams may use from now on; waits for a pending release where it must.
  ///
  /// Errors: invalid_argument (negative size), out_of_memory, an injected fault, wrong_state (deadlock in that wait).
  /// Threads: may run the machine.
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment, Tag tag) noexcept {
    std::vector<PendingFree> before;
    Result<Block> block = take(size, alignment, tag, nullptr, before);
    if (!block.ok() || block->size == 0) return block;
    for (const PendingFree& p : before)
      if (Error e = p.freed.wait(); !e.ok()) return give_back(*block, before), e;
    host_touch(name_of(tag), {*block, Touch::allocate});
    spoil(*block, fresh);
    return block;
  }
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept { return allocate(size, alignment, Tag{}); }
  /// Takes memory back at once: whoever calls has seen the end of all its uses.
  void deallocate(Block block) noexcept {
    if (block.data == nullptr) return;
    host_touch("deallocate", {block, Touch::free});
    const bool given = state_->timeline.with_lock([&](Watch&) noexcept { return state_->heap.give(block); });
    if (given) spoil(block, freed);
  }

  /// Gives memory in the order of a stream: other streams must wait for an event of it before they use it.
  ///
  /// Errors: as `allocate`. Stream: enqueues waits for pending releases on other streams, and the allocation.
  [[nodiscard]] Result<Block> allocate(const stream_type& stream, Bytes size, Alignment alignment, Tag tag) noexcept {
    std::vector<PendingFree> before;
    Result<Block> block = take(size, alignment, tag, &stream.queue(), before);
    if (!block.ok() || block->size == 0) return block;
    Error failure;
    for (const PendingFree& p : before)
      if (failure.ok() && p.stream != &stream.queue()) failure = p.freed.wait_on(stream);
    const MemoryTouch touch{*block, Touch::allocate};
    const auto begin = [self = *this, b = *block]() noexcept { self.spoil(b, fresh); };
    if (failure.ok()) failure = stream.enqueue(name_of(tag), {&touch, 1}, begin, no_fault).error();
    if (failure.ok()) return block;
    give_back(*block, before);
    return failure;
  }
  [[nodiscard]] Result<Block> allocate(const stream_type& stream, Bytes size, Alignment alignment) noexcept {
    return allocate(stream, size, alignment, Tag{});
  }
  /// Takes memory back in the order of a stream: this stream may have it again at once, others wait for it.
  ///
  /// Stream: enqueues the release. If there is no memory to remember it by, it waits for the stream here.
  void deallocate(const stream_type& stream, Block block) noexcept {
    if (block.data == nullptr) return;
    const MemoryTouch touch{block, Touch::free};
    const auto end = [self = *this, block]() noexcept { self.spoil(block, freed); };
    Result<event_type> released = stream.enqueue("deallocate", {&touch, 1}, end, no_fault);
    if (!released.ok()) {
      static_cast<void>(stream.synchronize());
      return deallocate(block);
    }
    state_->timeline.with_lock([&](Watch&) noexcept {
      if (state_->heap.give(block)) state_->pending.push_back({block, std::move(*released), &stream.queue()});
    });
  }

  /// Copies host bytes in; they must stay as they are until the event. Errors: invalid_argument (range), an injected fault.
  /// Stream: enqueues the copy; the form without a stream uses one of the device's own.
  [[nodiscard]] Result<event_type> copy_in(const stream_type& stream, Block to, Bytes offset, std::span<const std::byte> from,
                                           std::string_view name = "copy_in") noexcept {
    return move_bytes(stream, to, offset, Block{const_cast<std::byte*>(from.data()), size_of(from)}, 0, size_of(from), name);
  }
  [[nodiscard]] Result<event_type> copy_in(Block to, Bytes offset, std::span<const std::byte> from) noexcept {
    return copy_in(copy_stream(0, "copies in"), to, offset, from);
  }
  /// Copies bytes out to the host, which may look at them after the event. Errors, Stream: as `copy_in`.
  [[nodiscard]] Result<event_type> copy_out(const stream_type& stream, Block from, Bytes offset, std::span<std::byte> to,
                                            std::string_view name = "copy_out") noexcept {
    return move_bytes(stream, Block{to.data(), size_of(to)}, 0, from, offset, size_of(to), name);
  }
  [[nodiscard]] Result<event_type> copy_out(Block from, Bytes offset, std::span<std::byte> to) noexcept {
    return copy_out(copy_stream(1, "copies out"), from, offset, to);
  }
  /// Copies between blocks of any devices of one machine. Errors, Stream: as `copy_in`.
  [[nodiscard]] Result<event_type> copy(const stream_type& stream, Block to, Bytes to_offset, Block from, Bytes from_offset,
                                        Bytes size, std::string_view name = "copy") noexcept {
    return move_bytes(stream, to, to_offset, from, from_offset, size, name);
  }
  [[nodiscard]] Result<event_type> copy(Block to, Bytes to_offset, Block from, Bytes from_offset, Bytes size) noexcept {
    return copy(copy_stream(2, "copies"), to, to_offset, from, from_offset, size);
  }

  [[nodiscard]] Bytes capacity() const noexcept { return state_->heap.arena().size; }
  /// All that is free, in however many pieces.
  [[nodiscard]] Bytes available() const noexcept {
    return state_->timeline.with_lock([&](Watch&) noexcept { return state_->heap.available(); });
  }
  [[nodiscard]] Bytes largest_free() const noexcept {
    return state_->timeline.with_lock([&](Watch&) noexcept { return state_->heap.largest_free(); });
  }
  /// Calls `visitor(Block, Tag)` for each block that is out; it must not call the machine.
  template <class Visitor>
  void visit_blocks(Visitor visitor) const noexcept {
    state_->timeline.with_lock([&](Watch&) noexcept { state_->heap.visit_blocks(visitor); });
  }
  /// There is nothing to give back: the memory of a device is finite and its own.
  [[nodiscard]] static Bytes trim(Bytes) noexcept { return 0; }

  friend bool operator==(const BasicSimulatedDevice&, const BasicSimulatedDevice&) noexcept = default;

  // For the machine.
  using State = detail::SimulatedDeviceState<Watch>;
  explicit BasicSimulatedDevice(State& state) noexcept : state_(&state) {}

 private:
  using PendingFree = typename State::PendingFree;
  static constexpr int fresh = 0xCD, freed = 0xDD;
  static constexpr SimulatedFault no_fault{SimulatedCall::launch, 0, Error{}, false, false};

  template <class Byte>
  [[nodiscard]] static Bytes size_of(std::span<Byte> bytes) noexcept {
    return static_cast<Bytes>(bytes.size());
  }
  // Takes memory that no other stream may still use, or else any; `before` gets the releases that it comes after.
  [[nodiscard]] Result<Block> take(Bytes size, Alignment alignment, Tag tag, detail::SimulatedQueue<Watch>* stream,
                                   std::vector<PendingFree>& before) noexcept {
    return state_->timeline.with_lock([&](Watch&) noexcept -> Result<Block> {
      if (size < 0) return failure(size, make_error(Errc::invalid_argument, "a negative number of bytes was asked for"));
      if (Error e = state_->health.next(SimulatedCall::allocate).error; !e.ok()) return failure(size, e);
      if (size == 0) return Block{};
      std::vector<Block> avoid;
      for (const PendingFree& p : state_->pending)
        if (p.stream != stream) avoid.push_back(p.block);
      Block block = state_->heap.take(size, alignment, avoid, tag);
      if (block.data == nullptr) block = state_->heap.take(size, alignment, {}, tag);
      if (block.data == nullptr) return failure(size, make_error(Errc::out_of_memory, "Out of memory allocating"));
      // What is left over of a released block stays pending: its next user has to come after the same release.
      std::vector<PendingFree> rest;
      for (const PendingFree& p : state_->pending) {
        std::byte* const begin = std::max(p.block.data, block.data);
        std::byte* const end = std::min(end_of(p.block), end_of(block));
        if (begin >= end) {
          rest.push_back(p);
          continue;
        }
        before.push_back({{begin, end - begin}, p.freed, p.stream});
        if (p.block.data < begin) rest.push_back({{p.block.data, begin - p.block.data}, p.freed, p.stream});
        if (end < end_of(p.block)) rest.push_back({{end, end_of(p.block) - end}, p.freed, p.stream});
      }
      state_->pending = std::move(rest);
      return block;
    });
  }
  void give_back(Block block, const std::vector<PendingFree>& before) noexcept {
    state_->timeline.with_lock([&](Watch&) noexcept {
      static_cast<void>(state_->heap.give(block));
      state_->pending.insert(state_->pending.end(), before.begin(), before.end());
    });
  }
  [[nodiscard]] static std::byte* end_of(Block b) noexcept { return b.data + b.size; }
  [[nodiscard]] Error failure(Bytes size, Error e) const noexcept {
    e.stage = Stage::allocation;
    e.requested = size;
    if (e.code == Errc::out_of_memory) e.available = state_->heap.largest_free();
    return e;
  }
  [[nodiscard]] Result<event_type> move_bytes(const stream_type& stream, Block to, Bytes to_offset, Block from,
                                              Bytes from_offset, Bytes size, std::string_view name) noexcept {
    if (!holds(to, to_offset, size) || !holds(from, from_offset, size))
      return make_error(Errc::invalid_argument, "a copy reaches beyond its block");
    const MemoryTouch touches[] = {reads({from.data + from_offset, size}), writes({to.data + to_offset, size})};
    return stream.enqueue(SimulatedCall::copy, name, touches, [to = touches[1].block, from = touches[0].block]() noexcept {
      if (to.size != 0) std::memmove(to.data, from.data, static_cast<std::size_t>(to.size));
    });
  }
  [[nodiscard]] static bool holds(Block block, Bytes offset, Bytes size) noexcept {
    return offset >= 0 && size >= 0 && offset <= block.size && size <= block.size - offset;
  }
  [[nodiscard]] stream_type copy_stream(std::size_t which, std::string_view name) noexcept {
    auto& queue = state_->copy_queues[which];
    if (auto* known = state_->timeline.with_lock([&](Watch&) noexcept { return queue; }); known != nullptr) return stream_type(*known);
    stream_type made = make_stream(name);
    return state_->timeline.with_lock([&](Watch&) noexcept {  // another thread may have been first: one stream too many
      if (queue == nullptr) queue = &made.queue();
      return stream_type(*queue);
    });
  }
  void host_touch(std::string_view name, const MemoryTouch& touch) noexcept { state_->timeline.host_touch(name, {&touch, 1}); }
  [[nodiscard]] static std::string_view name_of(Tag tag) noexcept { return tag.name != nullptr ? tag.name : "allocate"; }
  void spoil(Block block, int pattern) const noexcept {
    if (state_->timeline.options().spoil) std::memset(block.data, pattern, static_cast<std::size_t>(block.size));
  }

  State* state_ = nullptr;
};

static_assert(stream_ordered_backend<BasicSimulatedDevice<NoWatch>> && copying_backend<BasicSimulatedDevice<NoWatch>> &&
              tagging_backend<BasicSimulatedDevice<NoWatch>> && inspectable_backend<BasicSimulatedDevice<NoWatch>>);

}  // namespace holdfast
