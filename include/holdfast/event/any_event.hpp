// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "holdfast/concepts/event.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// Any event behind one table of functions, for lists that mix backends; allocates nothing.
///
/// Holds a copyable event of at most two pointers. Default made it is ready. Two are equal when they hold equal events of
/// one type. Threads: as the event that it holds. Source: PJRT device event handle.
class AnyEvent {
 public:
  static constexpr std::size_t capacity = 2 * sizeof(void*);

  constexpr AnyEvent() noexcept = default;
  template <class E>
    requires(!std::same_as<E, AnyEvent>) && notifying_event<E> && std::copyable<E> &&
            (sizeof(E) <= capacity && alignof(E) <= alignof(void*))
  AnyEvent(E event) noexcept : table_(&table_of<E>) {
    std::construct_at(reinterpret_cast<E*>(room_), std::move(event));
  }
  AnyEvent(const AnyEvent& other) noexcept : table_(other.table_) {
    if (table_ != nullptr) table_->copy(room_, other.room_);
  }
  AnyEvent(AnyEvent&& other) noexcept : AnyEvent(std::as_const(other)) {}
  AnyEvent& operator=(const AnyEvent& other) noexcept {
    if (this == &other) return *this;
    std::destroy_at(this);
    return *std::construct_at(this, other);
  }
  AnyEvent& operator=(AnyEvent&& other) noexcept { return *this = std::as_const(other); }
  ~AnyEvent() {
    if (table_ != nullptr) table_->destroy(room_);
  }

  [[nodiscard]] bool ready() const noexcept { return table_ == nullptr || table_->ready(room_); }
  [[nodiscard]] Error wait() const noexcept { return table_ == nullptr ? Error{} : table_->wait(room_); }
  [[nodiscard]] bool then(Continuation& node) const noexcept { return table_ != nullptr && table_->then(room_, node); }
  /// The event inside, if it is of this type, else null.
  template <class E>
  [[nodiscard]] const E* get_if() const noexcept {
    return table_ == &table_of<E> ? std::launder(reinterpret_cast<const E*>(room_)) : nullptr;
  }
  friend bool operator==(const AnyEvent& a, const AnyEvent& b) noexcept {
    return a.table_ == b.table_ && (a.table_ == nullptr || a.table_->equal(a.room_, b.room_));
  }

 private:
  struct Table {
    bool (*ready)(const std::byte*) noexcept;
    Error (*wait)(const std::byte*) noexcept;
    bool (*then)(const std::byte*, Continuation&) noexcept;
    bool (*equal)(const std::byte*, const std::byte*) noexcept;
    void (*copy)(std::byte*, const std::byte*) noexcept;
    void (*destroy)(std::byte*) noexcept;
  };
  template <class E>
  static const E& as(const std::byte* p) noexcept {
    return *std::launder(reinterpret_cast<const E*>(p));
  }
  template <class E>
  static constexpr Table table_of{
      [](const std::byte* p) noexcept { return as<E>(p).ready(); },
      [](const std::byte* p) noexcept { return as<E>(p).wait(); },
      [](const std::byte* p, Continuation& node) noexcept { return as<E>(p).then(node); },
      [](const std::byte* a, const std::byte* b) noexcept {
        if constexpr (std::equality_comparable<E>) return as<E>(a) == as<E>(b);
        else return a == b;
      },
      [](std::byte* to, const std::byte* from) noexcept { std::construct_at(reinterpret_cast<E*>(to), as<E>(from)); },
      [](std::byte* p) noexcept { std::destroy_at(std::launder(reinterpret_cast<E*>(p))); }};

  const Table* table_ = nullptr;
  alignas(void*) std::byte room_[capacity] = {};
};
static_assert(notifying_event<AnyEvent> && std::copyable<AnyEvent>);

}  // namespace holdfast
