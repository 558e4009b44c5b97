// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/core/config.hpp"

namespace holdfast {

/// A backend as an allocator of the standard's containers; of the backend's own size, usually empty or a pointer.
///
/// Throws `std::bad_alloc` when the backend fails, as its contract demands. Two are equal when their backends are, which
/// must have no state or be comparable. Threads: as the backend.
template <class T, memory_backend Backend>
  requires host_accessible<Backend> && (std::is_empty_v<Backend> || std::equality_comparable<Backend>)
class BackendAllocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  explicit BackendAllocator(Backend backend) noexcept : backend_(std::move(backend)) {}
  BackendAllocator() noexcept
    requires std::default_initializable<Backend>
  = default;
  template <class U>
  BackendAllocator(const BackendAllocator<U, Backend>& other) noexcept : backend_(other.backend()) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    Bytes size = 0;
    if (count <= static_cast<std::size_t>(max_bytes) &&
        checked_multiply(static_cast<Bytes>(count), static_cast<Bytes>(sizeof(T)), size))
      if (Result<Block> block = backend_.allocate(size, Alignment(static_cast<Bytes>(alignof(T)))); block.ok())
        return reinterpret_cast<T*>(block->data);
    HOLDFAST_THROW(std::bad_alloc());
  }
  void deallocate(T* p, std::size_t count) noexcept {
    backend_.deallocate(Block{reinterpret_cast<std::byte*>(p), static_cast<Bytes>(count * sizeof(T))});
  }
  [[nodiscard]] const Backend& backend() const noexcept { return backend_; }

  template <class U>
  friend bool operator==(const BackendAllocator& a, const BackendAllocator<U, Backend>& b) noexcept {
    if constexpr (std::equality_comparable<Backend>) return a.backend() == b.backend();
    else return true;
  }

 private:
  HOLDFAST_NO_UNIQUE_ADDRESS Backend backend_;
};

}  // namespace holdfast
