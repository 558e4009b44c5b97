// SPDX-License-Identifier: Apache-2.0
// Watches what the heap gives out while it lives: the largest request, what is held and the most
// that was. One source of a test binary defines HOLDFAST_COUNT_ALLOCATIONS before including this:
// it then owns operator new.
#pragma once

#include <cstddef>

namespace holdfast::testing {

struct AllocationCounts {
  std::size_t live = 0;
  std::size_t highest = 0;
  std::size_t largest = 0;
  bool watching = false;
};
AllocationCounts& allocation_counts() noexcept;

/// Figures from its construction on. Not nested, one thread.
class AllocationPeak {
 public:
  AllocationPeak() noexcept {
    AllocationCounts& c = allocation_counts();
    before_ = c.live;
    c.highest = c.live;
    c.largest = 0;
  }
  [[nodiscard]] std::size_t largest() const noexcept { return allocation_counts().largest; }
  [[nodiscard]] std::size_t live() const noexcept { return allocation_counts().live - before_; }
  [[nodiscard]] std::size_t highest() const noexcept {
    return allocation_counts().highest - before_;
  }

 private:
  std::size_t before_;
};

}  // namespace holdfast::testing

#ifdef HOLDFAST_COUNT_ALLOCATIONS
#include <algorithm>
#include <cstdlib>
#include <new>

#include <malloc.h>

holdfast::testing::AllocationCounts& holdfast::testing::allocation_counts() noexcept {
  static AllocationCounts counts;
  return counts;
}
void* operator new(std::size_t size) {
  void* p = std::malloc(size);
  if (p == nullptr) std::abort();
  holdfast::testing::AllocationCounts& c = holdfast::testing::allocation_counts();
  c.live += malloc_usable_size(p);
  c.highest = std::max(c.highest, c.live);
  c.largest = std::max(c.largest, size);
  return p;
}
void operator delete(void* p) noexcept {
  if (p != nullptr) holdfast::testing::allocation_counts().live -= malloc_usable_size(p);
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
#endif
