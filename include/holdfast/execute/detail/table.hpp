// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>

#include "holdfast/core/result.hpp"

namespace holdfast::detail {

/// An array whose size is known when it is made, and whose making can fail. Threads: as a vector.
template <class T>
class Table {
 public:
  /// Makes `size` entries of `T{}` in place of those before. Errors: out_of_memory.
  [[nodiscard]] Error make(std::size_t size) noexcept {
    data_.reset(size == 0 ? nullptr : new (std::nothrow) T[size]());
    size_ = data_ == nullptr ? 0 : size;
    return size_ == size ? Error{}
                         : make_error(Errc::out_of_memory, "no memory for the tables of a run");
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  [[nodiscard]] T* begin() noexcept { return data_.get(); }
  [[nodiscard]] T* end() noexcept { return data_.get() + size_; }
  [[nodiscard]] const T* begin() const noexcept { return data_.get(); }
  [[nodiscard]] const T* end() const noexcept { return data_.get() + size_; }
  [[nodiscard]] std::span<T> span() noexcept { return {data_.get(), size_}; }
  [[nodiscard]] std::span<const T> span() const noexcept { return {data_.get(), size_}; }

 private:
  std::unique_ptr<T[]> data_;
  std::size_t size_ = 0;
};

}  // namespace holdfast::detail
