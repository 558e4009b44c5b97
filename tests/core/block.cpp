// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/block.hpp"

#include <type_traits>

#include <doctest/doctest.h>

using namespace holdfast;

static_assert(std::is_trivially_copyable_v<Block> && sizeof(Block) == 2 * sizeof(void*), "a block is a pointer and a size");
static_assert(std::is_trivially_copyable_v<ShareHandle>);
static_assert(Block{} == Block{nullptr, 0}, "a request for 0 bytes gives this");

TEST_CASE("block: two blocks are equal when address and size are") {
  std::byte memory[2]{};
  const Block a{memory, 2};
  CHECK(a == Block{memory, 2});
  CHECK(a != Block{memory, 1});
  CHECK(a != Block{memory + 1, 2});
}

TEST_CASE("block: a default share handle is all zero") {
  const ShareHandle handle;
  for (const std::byte b : handle.bytes) CHECK(b == std::byte{0});
  CHECK(handle.size == 0);
  CHECK(handle.offset == 0);
}
