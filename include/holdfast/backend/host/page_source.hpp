// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "holdfast/backend/host/memory_limit.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// Where a host pool takes address space and pages from.
///
/// `reserve` gives zeroed, page-aligned memory that costs nothing until it is touched, or null; `release` takes back exactly that;
/// `purge` gives the pages of a part back and keeps the addresses, which read as zero again; `advise_huge` is a hint.
/// Sizes are multiples of the page. The pool calls one at a time.
template <class S>
concept page_source = std::is_nothrow_copy_constructible_v<S> && requires(S& source, std::byte* data, Bytes size) {
  { source.reserve(size) } noexcept -> std::same_as<std::byte*>;
  { source.release(data, size) } noexcept -> std::same_as<void>;
  { source.purge(data, size) } noexcept -> std::same_as<bool>;
  { source.advise_huge(data, size) } noexcept -> std::same_as<void>;
};

/// A source that knows how much more memory the system would back; the pool asks before it grows.
template <class S>
concept metered_page_source = page_source<S> && requires(S& source) {
  { source.room() } noexcept -> std::same_as<MemoryRoom>;
};

/// The system's anonymous private memory, as far as the process's control group and the system have it. Stateless. Threads: any.
struct SystemPages {
  [[nodiscard]] std::byte* reserve(Bytes size) noexcept {
    void* p = ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == reinterpret_cast<void*>(-1) ? nullptr : static_cast<std::byte*>(p);
  }
  void release(std::byte* data, Bytes size) noexcept { ::munmap(data, static_cast<std::size_t>(size)); }
  [[nodiscard]] bool purge(std::byte* data, Bytes size) noexcept {
    return ::madvise(data, static_cast<std::size_t>(size), MADV_DONTNEED) == 0;
  }
  void advise_huge(std::byte* data, Bytes size) noexcept { ::madvise(data, static_cast<std::size_t>(size), MADV_HUGEPAGE); }
  [[nodiscard]] MemoryRoom room() noexcept {
    SystemFiles files;
    return memory_room(files);
  }
};
static_assert(metered_page_source<SystemPages> && std::is_empty_v<SystemPages>);

}  // namespace holdfast
