// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/host/system_memory.hpp"

#include <doctest/doctest.h>

#include <cstdint>

using namespace holdfast;

TEST_CASE("system_memory: it honours every alignment up to 2 MiB") {
  SystemMemory memory;
  for (Bytes alignment = 1; alignment <= 1 << 21; alignment *= 2) {
    const Result<Block> block = memory.allocate(100, Alignment(alignment));
    REQUIRE(block.ok());
    CHECK(reinterpret_cast<std::uintptr_t>(block->data) % static_cast<std::uintptr_t>(alignment) == 0);
    CHECK(block->size == 100);
    memory.deallocate(*block);
  }
}

TEST_CASE("system_memory: out of memory says how much was asked for") {
  const Result<Block> block = SystemMemory{}.allocate(max_bytes - 5, Alignment(64));
  REQUIRE(!block.ok());
  CHECK(block.error().code == Errc::out_of_memory);
  CHECK(block.error().stage == Stage::allocation);
  CHECK(block.error().requested == max_bytes - 5);
}
