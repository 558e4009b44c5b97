// backend: where memory comes from: sources, layers over them, and stacks of both.
// In the flow: above core, concepts, event, trace and budget; it does not know buffers.
// A source makes memory, a layer changes one thing; both are models of memory_backend.
// Handles are copyable and small; pools outlive the buffers made from them.
// Nothing here holds or orders memory for its users.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

#include "holdfast/concepts/memory_backend.hpp"

namespace holdfast {

/// The C library's heap, aligned: the plain source of host memory. Stateless. Threads: any.
struct SystemMemory {
  static constexpr MemorySpace space = MemorySpace::host;

  /// Gives uninitialised memory. Errors: invalid_argument (negative size), out_of_memory.
  [[nodiscard]] Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    if (size == 0) return Block{};
    const Bytes multiple = alignment.value() < minimum ? minimum : alignment.value();
    Bytes rounded = 0;
    if (size > 0 && checked_align_up(size, multiple, rounded)) {
      void* p = std::aligned_alloc(static_cast<std::size_t>(multiple), static_cast<std::size_t>(rounded));
      if (p != nullptr) return Block{static_cast<std::byte*>(p), size};
    }
    return failure(size);
  }
  /// Takes back a block that `allocate` gave; the empty block is none.
  void deallocate(Block block) noexcept { std::free(block.data); }

 private:
  static constexpr Bytes minimum = alignof(std::max_align_t);

  [[nodiscard]] HOLDFAST_COLD static Error failure(Bytes size) noexcept {
    Error e = size < 0 ? make_error(Errc::invalid_argument, "a negative number of bytes was asked for")
                       : make_error(Errc::out_of_memory, "Out of memory allocating");
    e.stage = Stage::allocation;
    e.requested = size;
    return e;
  }
};
static_assert(memory_backend<SystemMemory> && std::is_empty_v<SystemMemory>);

}  // namespace holdfast
