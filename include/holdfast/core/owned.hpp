// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace holdfast {

/// Something that is given back once, when this goes: by its `close`, which does nothing for a value made by default.
///
/// Moved from it is as made by default. Threads: as a value.
template <class Value>
class Owned {
 public:
  constexpr Owned() noexcept = default;
  constexpr explicit Owned(Value value) noexcept : value_(std::move(value)) {}
  constexpr Owned(Owned&& other) noexcept : value_(other.release()) {}
  constexpr Owned& operator=(Owned other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  constexpr ~Owned() { value_.close(); }

  [[nodiscard]] constexpr const Value& operator*() const noexcept { return value_; }
  [[nodiscard]] constexpr const Value* operator->() const noexcept { return &value_; }
  /// For those who make it, step by step.
  [[nodiscard]] constexpr Value* operator->() noexcept { return &value_; }
  /// Gives it up to the caller.
  [[nodiscard]] constexpr Value release() noexcept { return std::exchange(value_, Value{}); }

 private:
  static_assert(noexcept(std::declval<Value&>().close()));
  Value value_{};
};

}  // namespace holdfast
