// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/host/detail/page_region.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "holdfast/backend/host/page_source.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using detail::no_page;
using detail::page_bytes;
using detail::PageFit;
using detail::PageRegion;

namespace {

// A region over a reservation of `size` bytes that begins so many pages past a multiple of 2 MiB.
struct Space {
  std::byte* all;
  Bytes all_size;
  PageRegion* region;

  Space(std::uint64_t size, std::uint64_t offset) : all_size(static_cast<Bytes>(size + (4u << 20))) {
    all = SystemPages{}.reserve(all_size);
    REQUIRE(all != nullptr);
    const auto past = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(all)) % (2u << 20);
    region = PageRegion::make(all + ((2u << 20) - past) + offset * page_bytes, size);
  }
  Space(const Space&) = delete;
  ~Space() { SystemPages{}.release(all, all_size); }
};

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + page_bytes - 1) / page_bytes * page_bytes; }

std::uint32_t pages_in(const PageRegion& region) {
  std::uint32_t n = 0;
  region.visit([&](std::byte*, std::uint64_t pages, bool) { n += static_cast<std::uint32_t>(pages); });
  return n;
}

// What a region should know, kept page by page.
struct Shadow {
  struct Page {
    bool used = false, warm = false;
  };
  std::vector<Page> page;
  std::uintptr_t base = 0;

  struct Span {
    std::uint32_t first, length, warm;
  };
  std::vector<Span> free_runs() const {
    std::vector<Span> runs;
    for (std::uint32_t i = 0; i < page.size(); ++i) {
      if (page[i].used) continue;
      if (i == 0 || page[i - 1].used) runs.push_back({i, 0, 0});
      ++runs.back().length;
      runs.back().warm += page[i].warm;
    }
    return runs;
  }
  // The fewest fresh pages, then the shortest run, then the lowest: of runs that are warm throughout, or of the others.
  PageFit best(std::uint32_t n, std::uint64_t alignment, bool cold) const {
    PageFit best;
    std::uint32_t length = 0;
    for (const Span& s : free_runs()) {
      if ((s.warm != s.length) != cold) continue;
      std::uint32_t first = s.first;
      while ((base + std::uint64_t{first} * page_bytes) % alignment != 0) ++first;
      if (first + n > s.first + s.length) continue;
      std::uint32_t fresh = 0;
      for (std::uint32_t i = first; i < first + n; ++i) fresh += !page[i].warm;
      if (!best.found() || fresh < best.fresh || (fresh == best.fresh && s.length < length)) best = {0, first, fresh}, length = s.length;
    }
    return best;
  }
  std::uint32_t largest_warm() const {
    std::uint32_t best = 0, run = 0;
    for (const Page& p : page) best = std::max(best, run = p.warm && !p.used ? run + 1 : 0);
    return best;
  }
};

// The system's pages; says to a shadow what is purged, unless it is to refuse.
struct ShadowPages : SystemPages {
  Shadow* shadow;
  bool refuse = false;
  bool purge(std::byte* data, Bytes size) noexcept {
    if (refuse) return false;
    const auto first = (reinterpret_cast<std::uintptr_t>(data) - shadow->base) / page_bytes;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(size) / page_bytes; ++i) {
      CHECK(!shadow->page[first + i].used);
      shadow->page[first + i].warm = false;
    }
    return SystemPages::purge(data, size);
  }
};

}  // namespace

TEST_CASE("page_region: a reservation just enough holds the run it is for, and tables and pages never meet (a defect once)") {
  for (const std::uint64_t pages : {1u, 8u, 9u, 100u, 511u, 512u, 4096u, 9000u})
    for (const std::uint64_t alignment : {std::uint64_t{1}, page_bytes, std::uint64_t{1} << 16, std::uint64_t{2} << 20, std::uint64_t{64} << 20})
      for (const std::uint64_t offset : {0u, 1u, 255u, 511u}) {
        CAPTURE(pages);
        CAPTURE(alignment);
        CAPTURE(offset);
        const std::uint64_t size = whole_pages(PageRegion::bytes_for(pages, alignment));
        Space space(size, offset);
        PageRegion& r = *space.region;
        const PageFit fit = r.find_cold(static_cast<std::uint32_t>(pages), alignment);
        REQUIRE(fit.found());
        std::byte* p = r.take(fit, static_cast<std::uint32_t>(pages));
        CHECK(reinterpret_cast<std::uintptr_t>(p) % alignment == 0);
        const std::uint32_t all = pages_in(r);
        CHECK(r.address(0) > r.data());
        CHECK(r.address(all) <= r.data() + size);
        if (alignment > (2u << 20)) continue;  // much to write
        std::memset(r.address(0), 0xA5, all * page_bytes);
        for (std::uint32_t i = 0; i < all; i += detail::slab_pages) r.slab(r.address(i)) = detail::Slab{nullptr, nullptr, 1, 2, 3, 4, true};
        for (std::uint32_t i = 0; i < all; ++i) {
          CHECK(r.address(i)[0] == std::byte{0xA5});
          CHECK(r.address(i)[page_bytes - 1] == std::byte{0xA5});
        }
        CHECK(pages_in(r) == all);
        r.give(p, static_cast<std::uint32_t>(pages));
        CHECK(r.warm_free() == pages);
        CHECK(r.largest_warm() == pages);
      }
}

TEST_CASE("page_region: large regions too hold the run they are for and keep their tables to themselves, wherever they begin") {
  for (const std::uint32_t pages : {1u << 18, 1u << 22, 1u << 26})
    for (std::uint64_t offset = 0; offset < 512; offset += pages == 1u << 26 ? 64 : testing::quick() ? 5 : 1) {
      CAPTURE(offset);
      Space space(whole_pages(PageRegion::bytes_for(pages, 1)), offset);
      PageRegion& r = *space.region;
      CHECK(r.find_cold(pages, 1).found());
      r.take(r.find_cold(8, 1), 8);  // the run behind it has a number that is not 0, which stands in the table's last place
      CHECK(std::all_of(r.address(0), r.address(1), [](std::byte b) { return b == std::byte{0}; }));
    }
}

TEST_CASE("page_region: sizes of reservations that cannot be are 0, not wrapped") {
  CHECK(PageRegion::bytes_for(1u << 30, 1) == 0);
  CHECK(PageRegion::bytes_for(~std::uint64_t{0}, 1) == 0);
  CHECK(PageRegion::bytes_for(1, std::uint64_t{1} << 62) == 0);
  CHECK(PageRegion::bytes_for((1u << 30) - 1000, 1) > (std::uint64_t{1} << 42) - (std::uint64_t{1000} << 12));
}

TEST_CASE("page_region: best fits, free pages, the longest free run and what a purge gives are what brute force says") {
  std::mt19937 random(3);
  Space space(whole_pages(PageRegion::bytes_for(300, 1)), 7);
  PageRegion& r = *space.region;
  Shadow shadow;
  shadow.page.resize(pages_in(r));
  shadow.base = reinterpret_cast<std::uintptr_t>(r.address(0));
  ShadowPages source{{}, &shadow};
  struct Live {
    std::byte* data;
    std::uint32_t pages;
  };
  std::vector<Live> live;
  int warm_found = 0, cold_found = 0, purged = 0, kept = 0;
  for (int i = 0; i < 30'000; ++i) {
    const bool aligned = random() % 4 == 0, long_run = random() % 8 == 0;
    const std::uint64_t alignment = page_bytes << (aligned ? random() % 6 : 0);
    const auto n = static_cast<std::uint32_t>(1 + random() % (long_run ? 120 : 12));
    const PageFit warm = r.find_warm(n, alignment), cold = r.find_cold(n, alignment);
    const PageFit best_warm = shadow.best(n, alignment, false), best_cold = shadow.best(n, alignment, true);
    REQUIRE(warm.first == best_warm.first);
    REQUIRE(cold.first == best_cold.first);
    if (cold.found()) REQUIRE(cold.fresh == best_cold.fresh);
    warm_found += warm.found();
    cold_found += cold.found();
    const PageFit fit = warm.found() ? warm : cold;
    if (fit.found() && random() % 2 == 0) {
      std::byte* p = r.take(fit, n);
      live.push_back({p, n});
      for (std::uint32_t k = 0; k < n; ++k) shadow.page[fit.first + k] = {true, true};
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      r.give(live.back().data, live.back().pages);
      for (std::uint32_t k = 0; k < live.back().pages; ++k) shadow.page[r.index(live.back().data) + k].used = false;
      live.pop_back();
    }
    if (random() % 16 == 0) {
      const std::uint32_t before = r.warm_free(), need = static_cast<std::uint32_t>(1 + random() % 60);
      source.refuse = random() % 4 == 0;
      // Spares what a fit would take, as the pool does.
      const PageFit spared = random() % 2 == 0 ? r.find_cold(n, 1) : PageFit{};
      const bool whole = spared.found() || random() % 2 == 0;
      const std::uint32_t done = r.purge(source, need, whole, spared.span, spared.first + n);
      CHECK(before - r.warm_free() == done);
      if (!whole && !source.refuse) CHECK(done == std::min(before, need));
      if (source.refuse) CHECK(done == 0);
      if (!source.refuse && !spared.found()) CHECK(done >= std::min(before, need));
      if (spared.found()) CHECK(r.find_cold(n, 1).fresh == spared.fresh);
      kept += spared.found();
      purged += done != 0;
    }
    std::uint32_t warm_free = 0;
    for (const Shadow::Page& p : shadow.page) warm_free += p.warm && !p.used;
    REQUIRE(r.warm_free() == warm_free);
    REQUIRE(r.largest_warm() == shadow.largest_warm());
    if (i % 64 == 0) {
      std::size_t at = 0;
      const std::vector<Shadow::Span> runs = shadow.free_runs();
      r.visit([&](std::byte* data, std::uint64_t pages, bool free) {
        if (!free) return;
        REQUIRE(at < runs.size());
        CHECK(r.index(data) == runs[at].first);
        CHECK(pages == runs[at].length);
        ++at;
      });
      CHECK(at == runs.size());
    }
  }
  CHECK(warm_found > 1000);
  CHECK(cold_found > 1000);
  CHECK(purged > 100);
  CHECK(kept > 100);
}
