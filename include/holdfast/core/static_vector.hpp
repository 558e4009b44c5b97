// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "holdfast/core/config.hpp"

namespace holdfast {

/// A vector of at most `Capacity` elements without a heap: for results that outlive constant evaluation.
///
/// `T` is default constructible and its spare elements exist. Threads: as any container.
template <class T, std::size_t Capacity>
class StaticVector {
 public:
  using value_type = T;

  /// Appends; false, and nothing changed, when it is full.
  [[nodiscard]] constexpr bool try_push_back(const T& value) noexcept {
    if (size_ == Capacity) return false;
    data_[size_++] = value;
    return true;
  }
  /// Appends; fullness is a broken precondition.
  constexpr void push_back(const T& value) noexcept { HOLDFAST_ASSERT(try_push_back(value)); }
  constexpr void pop_back() noexcept {
    HOLDFAST_ASSERT(size_ > 0);
    --size_;
  }
  constexpr void clear() noexcept { size_ = 0; }

  [[nodiscard]] static constexpr std::size_t capacity() noexcept { return Capacity; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] constexpr T* data() noexcept { return data_; }
  [[nodiscard]] constexpr const T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr T* begin() noexcept { return data_; }
  [[nodiscard]] constexpr T* end() noexcept { return data_ + size_; }
  [[nodiscard]] constexpr const T* begin() const noexcept { return data_; }
  [[nodiscard]] constexpr const T* end() const noexcept { return data_ + size_; }
  [[nodiscard]] constexpr T& operator[](std::size_t i) noexcept {
    HOLDFAST_ASSERT(i < size_);
    return data_[i];
  }
  [[nodiscard]] constexpr const T& operator[](std::size_t i) const noexcept {
    HOLDFAST_ASSERT(i < size_);
    return data_[i];
  }
  [[nodiscard]] constexpr T& back() noexcept { return (*this)[size_ - 1]; }

 private:
  T data_[Capacity > 0 ? Capacity : 1] = {};
  std::size_t size_ = 0;
};

}  // namespace holdfast
