// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>

namespace holdfast::detail {

// A growing list of plain records whose growth can fail.
template <class T>
  requires std::is_trivially_copyable_v<T>
class RecordList {
 public:
  RecordList() noexcept = default;
  RecordList(const RecordList&) = delete;
  RecordList& operator=(const RecordList&) = delete;
  ~RecordList() { delete[] data_; }

  [[nodiscard]] bool push_back(const T& value) noexcept { return insert(size_, value); }
  // Places a record before the one at `at`.
  [[nodiscard]] bool insert(std::size_t at, const T& value) noexcept {
    if (size_ == capacity_) {
      const std::size_t capacity = capacity_ == 0 ? 8 : 2 * capacity_;
      T* data = new (std::nothrow) T[capacity];
      if (data == nullptr) return false;
      for (std::size_t i = 0; i < size_; ++i) data[i] = data_[i];
      delete[] data_;
      data_ = data;
      capacity_ = capacity;
    }
    for (std::size_t i = size_++; i > at; --i) data_[i] = data_[i - 1];
    data_[at] = value;
    return true;
  }
  void erase(std::size_t at) noexcept {
    for (--size_; at < size_; ++at) data_[at] = data_[at + 1];
  }
  void pop_back() noexcept { --size_; }
  void clear() noexcept { size_ = 0; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_[i]; }
  [[nodiscard]] T& back() noexcept { return data_[size_ - 1]; }
  [[nodiscard]] const T* begin() const noexcept { return data_; }
  [[nodiscard]] const T* end() const noexcept { return data_ + size_; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace holdfast::detail
