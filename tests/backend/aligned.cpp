// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/layer/aligned.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "holdfast/backend/stack.hpp"
#include "support/shared.hpp"
#include "support/strict_memory.hpp"

using namespace holdfast;
using namespace holdfast::testing;

TEST_CASE("aligned: sizes and alignments are rounded up for the source, which gets back exactly what it gave") {
  StrictLog log;
  Stack<StrictMemory, Aligned<256>> memory{StrictMemory(log)};
  for (const Bytes size : {1, 255, 256, 257, 512, 1000})
    for (const Bytes alignment : {1, 64, 256, 512, 4096}) {
      const Block block = *memory.allocate(size, Alignment(alignment));
      CHECK(block.size == size);
      CHECK(reinterpret_cast<std::uintptr_t>(block.data) % static_cast<std::uintptr_t>(std::max<Bytes>(alignment, 256)) == 0);
      CHECK(log.calls.back().size == align_up(size, 256));
      CHECK(log.calls.back().alignment == std::max<Bytes>(alignment, 256));
      memory.deallocate(block);
    }
  CHECK(log.live.empty());
  CHECK(log.wrong == 0);
}

TEST_CASE("aligned: the free memory that it shows is what a request can have") {
  StrictLog log;
  log.capacity = 1000;
  Stack<StrictMemory, Aligned<256>> memory{StrictMemory(log)};
  CHECK(memory.largest_free() == 768);
  CHECK(memory.allocate(769, Alignment(1)).error().code == Errc::out_of_memory);
  const Block block = *memory.allocate(768, Alignment(1));
  CHECK(memory.largest_free() == 0);
  memory.deallocate(block);
}

TEST_CASE("cases/05 1: a size whose rounding overflows is refused before the source is asked, and the next request works") {
  StrictLog log;
  Stack<StrictMemory, Aligned<256>> memory{StrictMemory(log)};
  for (const Bytes size : {max_bytes, max_bytes - 1, max_bytes - 254}) {
    const Result<Block> block = memory.allocate(size, Alignment(1));
    REQUIRE(!block.ok());
    CHECK(status_kind(block.error()) == StatusKind::resource_exhausted);
    CHECK(block.error().requested == size);
  }
  CHECK(log.calls.empty());
  const Block block = *memory.allocate(1024, Alignment(1));
  memory.deallocate(block);
  CHECK(log.calls.size() == 1);
}

// The table is unsigned; what our signed sizes cannot name is negative and so invalid, never wrapped.
TEST_CASE("cases/05: each row of the table rounds as it says or is an error") {
  const std::string path = shared_path("cases/05-pool-size-overflow/rounding.csv");
  if (path.empty()) return;
  const std::string text = read_file(path);
  int rows = 0;
  for (std::size_t at = text.find('\n') + 1; at < text.size(); at = text.find('\n', at) + 1) {
    std::size_t used = 0, more = 0;
    const unsigned long long request = std::stoull(text.substr(at), &used);
    const unsigned long long granularity = std::stoull(text.substr(at + used + 1), &more);
    const std::string want = text.substr(at + used + more + 2, text.find('\n', at) - at - used - more - 2);
    Bytes rounded = -1;
    const bool fits = checked_align_up(static_cast<Bytes>(request), static_cast<Bytes>(granularity), rounded);
    if (want.find("OVERFLOW") != std::string::npos || std::stoull(want) > static_cast<unsigned long long>(max_bytes))
      CHECK(!fits);
    else
      CHECK((fits && static_cast<unsigned long long>(rounded) == std::stoull(want)));
    ++rows;
    if (granularity != 256) continue;
    StrictLog log;
    log.capacity = Bytes{1} << 20;
    Stack<StrictMemory, Aligned<256>> memory{StrictMemory(log)};
    const Result<Block> block = memory.allocate(static_cast<Bytes>(request), Alignment(1));
    if (block.ok()) {
      if (block->data != nullptr) CHECK(log.calls.back().size == rounded);
      memory.deallocate(*block);
    } else {
      CHECK((!fits || rounded > log.capacity));
      CHECK(log.calls.size() == (fits || static_cast<Bytes>(request) < 0 ? 1u : 0u));
    }
    CHECK(log.live.empty());
  }
  CHECK(rows >= 5);
}
