// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/host/page_source.hpp"

#include <doctest/doctest.h>

#include <cstring>

using namespace holdfast;

namespace {
struct Good {
  std::byte* reserve(Bytes) noexcept { return nullptr; }
  void release(std::byte*, Bytes) noexcept {}
  bool purge(std::byte*, Bytes) noexcept { return false; }
  void advise_huge(std::byte*, Bytes) noexcept {}
};
static_assert(page_source<Good>);
struct NoReserve {
  void release(std::byte*, Bytes) noexcept {}
  bool purge(std::byte*, Bytes) noexcept { return false; }
  void advise_huge(std::byte*, Bytes) noexcept {}
};
static_assert(!page_source<NoReserve>);
struct Throws : Good {
  std::byte* reserve(Bytes) { return nullptr; }
};
static_assert(!page_source<Throws>);
struct NoRelease : Good {
  void release(std::byte*, Bytes) noexcept = delete;
};
static_assert(!page_source<NoRelease>);
struct BlindPurge : Good {
  void purge(std::byte*, Bytes) noexcept {}
};
static_assert(!page_source<BlindPurge>);
struct NoAdvice : Good {
  void advise_huge(std::byte*, Bytes) noexcept = delete;
};
static_assert(!page_source<NoAdvice>);
struct Metered : Good {
  MemoryRoom room() noexcept { return {}; }
};
struct Unsure : Good {
  Bytes room() noexcept { return 0; }
};
static_assert(metered_page_source<Metered> && !metered_page_source<Good> && page_source<Unsure> && !metered_page_source<Unsure>);
}  // namespace

TEST_CASE("page_source: the system's pages are zero when new and when purged, and refused when there cannot be so many") {
  SystemPages pages;
  constexpr Bytes size = 16 * 4096;
  std::byte* p = pages.reserve(size);
  REQUIRE(p != nullptr);
  pages.advise_huge(p, size);
  CHECK(p[size - 1] == std::byte{0});
  std::memset(p, 7, size);
  CHECK(pages.purge(p, 4096));
  CHECK(p[0] == std::byte{0});
  CHECK(p[4096] == std::byte{7});
  pages.release(p, size);
  CHECK(pages.reserve(Bytes{1} << 60) == nullptr);
}
