// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory_resource>
#include <new>
#include <utility>

#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/core/config.hpp"

namespace holdfast {

/// A backend as a `std::pmr::memory_resource`, for containers of the standard.
///
/// Throws `std::bad_alloc` when the backend fails, as its contract demands. A request for 0 bytes takes one. Equal only to
/// itself. Threads: as the backend.
template <memory_backend Backend>
  requires host_accessible<Backend>
class BackendResource final : public std::pmr::memory_resource {
 public:
  explicit BackendResource(Backend backend = Backend{}) noexcept : backend_(std::move(backend)) {}

 private:
  void* do_allocate(std::size_t size, std::size_t alignment) override {
    if (size <= static_cast<std::size_t>(max_bytes))
      if (Result<Block> block = backend_.allocate(bytes(size), Alignment(static_cast<Bytes>(alignment))); block.ok()) return block->data;
    HOLDFAST_THROW(std::bad_alloc());
  }
  void do_deallocate(void* p, std::size_t size, std::size_t) override {
    backend_.deallocate(Block{static_cast<std::byte*>(p), bytes(size)});
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
  [[nodiscard]] static Bytes bytes(std::size_t size) noexcept { return size == 0 ? 1 : static_cast<Bytes>(size); }

  HOLDFAST_NO_UNIQUE_ADDRESS Backend backend_;
};

}  // namespace holdfast
