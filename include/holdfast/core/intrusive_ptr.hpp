// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace holdfast {

/// A share of an object that counts its owners: a pointer that calls its `retain` and `drop`, or null.
///
/// Threads: as a pointer; whether several may own one object is the object's affair.
template <class T>
class IntrusivePtr {
 public:
  constexpr IntrusivePtr() noexcept = default;
  /// Takes over a share.
  constexpr explicit IntrusivePtr(T* object) noexcept : object_(object) {}
  IntrusivePtr(const IntrusivePtr& other) noexcept : object_(other.object_) {
    if (object_ != nullptr) object_->retain();
  }
  IntrusivePtr(IntrusivePtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  IntrusivePtr& operator=(IntrusivePtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~IntrusivePtr() {
    if (object_ != nullptr) object_->drop();
  }

  [[nodiscard]] T* get() const noexcept { return object_; }
  [[nodiscard]] T& operator*() const noexcept { return *object_; }
  [[nodiscard]] T* operator->() const noexcept { return object_; }
  /// Two are equal when they share one object.
  friend bool operator==(const IntrusivePtr&, const IntrusivePtr&) noexcept = default;
  friend bool operator==(const IntrusivePtr& a, std::nullptr_t) noexcept { return a.object_ == nullptr; }

 private:
  T* object_ = nullptr;
};

/// The count of an object's owners, as its base class; it begins with one, and the last one deletes the object.
///
/// Threads: any, as far as the atomic type allows.
template <class T, class Atomic = std::atomic<std::uint32_t>>
class RefCounted {
 public:
  void retain() noexcept { owners_.fetch_add(1, std::memory_order_relaxed); }
  /// The same for an owner that, while it is alone, is the only one to count, and so needs no locked instruction then.
  ///
  /// The acquire pairs with the drops of earlier owners, which a plain store would else cut off from the last one.
  void retain_by_first() noexcept {
    if (owners_.load(std::memory_order_acquire) == 1) owners_.store(2, std::memory_order_relaxed);
    else retain();
  }
  /// The last owner needs no locked instruction: nobody else is left to count.
  void drop() noexcept {
    if (owners_.load(std::memory_order_acquire) == 1 || owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete static_cast<T*>(this);
  }

 private:
  Atomic owners_{1};
};

}  // namespace holdfast
