// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "holdfast/concepts/event.hpp"
#include "holdfast/core/config.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// A growing list with room for four inside itself, which says when it cannot grow.
///
/// Threads: as any container. Cost: allocates only beyond four.
template <class E>
class SmallList {
 public:
  static constexpr std::uint32_t inline_capacity = 4;

  SmallList() noexcept = default;
  SmallList(SmallList&& other) noexcept { take(other); }
  SmallList& operator=(SmallList&& other) noexcept {
    if (this != &other) {
      release();
      take(other);
    }
    return *this;
  }
  ~SmallList() { release(); }

  /// Appends. Errors: out_of_memory; the list, and the event, are as they were.
  [[nodiscard]] Error push_back(E&& e) noexcept {
    if (size_ == capacity_ && !grow()) return make_error(Errc::out_of_memory, "no memory for a list");
    std::construct_at(data() + size_, std::move(e));
    ++size_;
    return {};
  }
  /// Inserts before all others. Errors: as `push_back`. Cost: linear.
  [[nodiscard]] Error push_front(E&& e) noexcept {
    if (Error failure = push_back(std::move(e)); !failure.ok()) return failure;
    for (std::uint32_t i = size_ - 1; i > 0; --i) std::swap(data()[i], data()[i - 1]);
    return {};
  }
  /// Copies all of another's events behind its own. Errors: as `push_back`; what was copied stays.
  [[nodiscard]] Error append(std::span<const E> others) noexcept
    requires std::copy_constructible<E>
  {
    for (const E& e : others)
      if (Error failure = push_back(E(e)); !failure.ok()) return failure;
    return {};
  }
  void pop_back() noexcept {
    HOLDFAST_ASSERT(size_ > 0);
    std::destroy_at(data() + --size_);
  }
  /// Removes the events that satisfy `drop`, in no particular order of the rest.
  template <class Predicate>
  void remove_if(Predicate drop) noexcept {
    for (std::uint32_t i = size_; i-- > 0;) {
      if (!drop(std::as_const(data()[i]))) continue;
      if (i + 1 != size_) data()[i] = std::move(data()[size_ - 1]);
      std::destroy_at(data() + --size_);
    }
  }
  /// Drops all events and gives back the memory beyond the first four.
  void clear() noexcept {
    release();
    heap_ = nullptr;
    size_ = 0;
    capacity_ = inline_capacity;
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::span<E> span() noexcept { return {data(), size_}; }
  [[nodiscard]] std::span<const E> span() const noexcept { return {data(), size_}; }

 private:
  [[nodiscard]] E* data() noexcept { return heap_ != nullptr ? heap_ : std::launder(reinterpret_cast<E*>(room_)); }
  [[nodiscard]] const E* data() const noexcept {
    return heap_ != nullptr ? heap_ : std::launder(reinterpret_cast<const E*>(room_));
  }
  [[nodiscard]] HOLDFAST_COLD bool grow() noexcept {
    if (capacity_ > 0x40000000u) return false;
    const std::size_t bytes = sizeof(E) * capacity_ * 2;
    auto* bigger = static_cast<E*>(::operator new(bytes, std::align_val_t{alignof(E)}, std::nothrow));
    if (bigger == nullptr) return false;
    std::uninitialized_move_n(data(), size_, bigger);
    const std::uint32_t size = size_, capacity = capacity_;
    release();
    heap_ = bigger;
    size_ = size;
    capacity_ = capacity * 2;
    return true;
  }
  void release() noexcept {
    std::destroy_n(data(), size_);
    if (heap_ != nullptr) ::operator delete(heap_, std::align_val_t{alignof(E)});
  }
  void take(SmallList& other) noexcept {
    heap_ = std::exchange(other.heap_, nullptr);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, inline_capacity);
    if (heap_ != nullptr) return;
    auto* from = std::launder(reinterpret_cast<E*>(other.room_));
    std::uninitialized_move_n(from, size_, reinterpret_cast<E*>(room_));
    std::destroy_n(from, size_);
  }

  E* heap_ = nullptr;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = inline_capacity;
  alignas(E) std::byte room_[sizeof(E) * inline_capacity];
};

/// A list of events; of an event type without state it keeps none, in no room, since each of them is ready.
template <event E, bool Stateless = std::is_empty_v<E>>
class EventList : public SmallList<E> {};

template <event E>
class EventList<E, true> {
 public:
  [[nodiscard]] static constexpr Error push_back(E&&) noexcept { return {}; }
  [[nodiscard]] static constexpr Error push_front(E&&) noexcept { return {}; }
  [[nodiscard]] static constexpr Error append(std::span<const E>) noexcept { return {}; }
  template <class Predicate>
  static constexpr void remove_if(Predicate) noexcept {}
  static constexpr void clear() noexcept {}
  [[nodiscard]] static constexpr std::uint32_t size() noexcept { return 0; }
  [[nodiscard]] static constexpr std::uint32_t capacity() noexcept { return 0; }
  [[nodiscard]] static constexpr bool empty() noexcept { return true; }
  [[nodiscard]] static constexpr std::span<const E> span() noexcept { return {}; }
};

}  // namespace holdfast
