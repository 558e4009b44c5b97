// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "holdfast/backend/bfc/detail/space.hpp"
#include "holdfast/concepts/event.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast::detail {

/// The stamps of a pool in the order of streams: a stream's slot, and the number of its free; 0: safe for all.
///
/// Chunks of the same slot are joined at once; with safe ones only while no second stream is known, as that would have the
/// second wait for the first where it need not.
class BfcStreamStamps {
 public:
  static constexpr bool join_at_once = true;
  static constexpr std::uint32_t slots_limit = 255, nobody = 1;  // a slot whose chunks none may use; streams' begin at 2

  [[nodiscard]] static constexpr std::uint64_t make(std::uint32_t slot, std::uint64_t number) noexcept {
    return std::uint64_t{slot} << 56 | number;
  }
  [[nodiscard]] static constexpr std::uint32_t slot(std::uint64_t stamp) noexcept { return static_cast<std::uint32_t>(stamp >> 56); }
  [[nodiscard]] static constexpr std::uint64_t number(std::uint64_t stamp) noexcept { return stamp & (~std::uint64_t{0} >> 8); }

  [[nodiscard]] BfcQueue& queue(std::uint64_t stamp) noexcept { return queues_[slot(stamp)]; }
  [[nodiscard]] bool joins(std::uint64_t a, std::uint64_t b) const noexcept {
    return slot(a) == slot(b) || (!shared && (slot(a) == 0 || slot(b) == 0));
  }
  template <memory_backend Meta>
  [[nodiscard]] bool reserve(Meta& meta, std::uint32_t slots) noexcept {
    return queues_.reserve(meta, slots);
  }
  template <memory_backend Meta>
  void release(Meta& meta) noexcept {
    queues_.release(meta);
  }

  bool shared = false;  ///< more than one stream has used the pool, or the host and a stream

 private:
  BfcArray<BfcQueue> queues_;
};

/// An array of values that move, in a backend's memory; as many as it has room for are alive.
template <class T>
class BfcObjects {
 public:
  /// Makes room for `count`; false, and nothing changed, when there is no memory.
  template <memory_backend Meta>
  [[nodiscard]] bool reserve(Meta& meta, std::uint32_t count) noexcept {
    if (count <= capacity_) return true;
    const std::uint32_t capacity = std::max(capacity_ * 2, std::max(count, std::uint32_t{8}));
    const Result<Block> room = meta.allocate(static_cast<Bytes>(sizeof(T) * capacity), Alignment(alignof(T)));
    if (!room.ok()) return false;
    T* const grown = reinterpret_cast<T*>(room->data);
    for (std::uint32_t i = 0; i < capacity; ++i)
      i < capacity_ ? std::construct_at(grown + i, std::move(data()[i])) : std::construct_at(grown + i);
    release(meta);
    block_ = *room;
    capacity_ = capacity;
    return true;
  }
  template <memory_backend Meta>
  void release(Meta& meta) noexcept {
    std::destroy_n(data(), capacity_);
    meta.deallocate(std::exchange(block_, Block{}));
    capacity_ = 0;
  }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] T& operator[](std::uint32_t i) const noexcept { return data()[i]; }

 private:
  [[nodiscard]] T* data() const noexcept { return reinterpret_cast<T*>(block_.data); }
  Block block_;
  std::uint32_t capacity_ = 0;
};

/// True when a mark was passed without a fault. Runs nobody's code, so that it may be asked in the middle of anything.
template <class Event>
[[nodiscard]] bool mark_passed(const Event& e) noexcept {
  if constexpr (requires { { e.passed() } -> std::same_as<bool>; })
    return e.passed();
  else
    return e.ready() && e.wait().ok();
}
inline constexpr unsigned asks_a_turn = 64;  // of a host that waits, before it lets other threads run

/// Waits on the host without running what waits for events: that may want the pool that waits here. Errors: wrong_state (it failed).
template <class Event>
[[nodiscard]] Error mark_wait(const Event& e) noexcept {
  for (unsigned asked = 1; !e.ready(); ++asked)
    if (asked % asks_a_turn == 0) std::this_thread::yield();
  return mark_passed(e) ? Error{} : make_error(Errc::device_fault, "what a block was freed after has failed");
}
/// Waits on the host for all that is in a stream, in the same way. Errors: the stream's, an event's.
template <class Event>
[[nodiscard]] Error stream_wait(typename Event::stream_type stream) noexcept {
  if constexpr (requires { { stream.idle() } -> std::same_as<Result<bool>>; }) {
    for (unsigned asked = 1;; ++asked) {
      if (const Result<bool> idle = stream.idle(); !idle.ok() || *idle) return idle.error();
      if (asked % asks_a_turn == 0) std::this_thread::yield();
    }
  } else {
    Event e{};
    const Error failure = e.record(stream);
    return failure.ok() ? mark_wait(e) : failure;
  }
}

/// The marks of one stream's frees, by rising numbers.
template <class Event>
class BfcMarks {
 public:
  struct Mark {
    std::uint64_t number = 0;
    Event event{};
  };
  /// Makes room for one more; false: no memory. `next()` gives the numbers that chunks still carry, rising, then 0: when the
  /// array is full, marks that none of these needs are dropped first.
  template <memory_backend Meta, class Next>
  [[nodiscard]] bool reserve(Meta& meta, Next next) noexcept {
    if (end_ < marks_.capacity()) return true;
    std::uint32_t kept = 0;
    std::uint64_t wanted = end_ == 0 ? 0 : next();
    for (std::uint32_t i = begin_; i < end_ && wanted != 0; ++i) {
      if (marks_[i].number < wanted) continue;
      while (wanted != 0 && wanted <= marks_[i].number) wanted = next();
      if (i != kept) marks_[kept] = std::move(marks_[i]);
      ++kept;
    }
    for (std::uint32_t i = kept; i < end_; ++i) marks_[i].event = Event{};
    begin_ = 0;
    end_ = kept;
    return end_ < marks_.capacity() / 2 || marks_.reserve(meta, marks_.capacity() + 1) || end_ < marks_.capacity();
  }
  void push(std::uint64_t number, Event event) noexcept {
    marks_[end_].number = number;
    marks_[end_++].event = std::move(event);
  }
  void pop() noexcept { marks_[begin_++].event = Event{}; }
  [[nodiscard]] Mark* front() const noexcept { return begin_ == end_ ? nullptr : &marks_[begin_]; }
  /// The first mark at that free or after it.
  [[nodiscard]] Mark* find(std::uint64_t number) const noexcept {
    std::uint32_t low = begin_, high = end_;
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (marks_[middle].number < number)
        low = middle + 1;
      else
        high = middle;
    }
    return low == end_ ? nullptr : &marks_[low];
  }
  template <memory_backend Meta>
  void release(Meta& meta) noexcept {
    marks_.release(meta);
    begin_ = end_ = 0;
  }

 private:
  BfcObjects<Mark> marks_;
  std::uint32_t begin_ = 0, end_ = 0;
};

/// What a pool knows of a stream. Slots are used again when no chunk carries their stamps; numbers go on.
template <class Event>
struct BfcStreamSlot {
  using Stream = typename Event::stream_type;
  Stream stream{};
  bool attached = false;    ///< `stream` is that stream
  std::uint64_t frees = 0;  ///< the number of its last
  std::uint64_t done = 0;   ///< the host has seen all up to that one
  BfcMarks<Event> marks;
  BfcArray<std::uint64_t> waits;  ///< by slot: up to which number this stream comes after it
};

}  // namespace holdfast::detail
