// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/byte_pattern.hpp"

#include <vector>

#include <doctest/doctest.h>

using namespace holdfast;

TEST_CASE("byte_pattern: full finds every byte that is another one, and says which") {
  for (const std::size_t size : {1u, 3u, 7u, 8u, 9u, 64u, 4095u, 4096u, 4097u, 8200u, 12291u}) {
    std::vector<std::byte> bytes(size + 16, std::byte{0x5A});
    const Block block{bytes.data() + 8, static_cast<Bytes>(size)};
    const BytePattern pattern(77);
    pattern.write(block, PatternCheck::full);
    CHECK(bytes[7] == std::byte{0x5A});
    CHECK(bytes[8 + size] == std::byte{0x5A});
    CHECK(pattern.compare(block, PatternCheck::full) == block.size);
    CHECK(pattern.compare(block, PatternCheck::page) ==
          block.size);  // what is written fully passes both
    for (std::size_t k = 0; k<size; k += size> 100 ? 97 : 1) {
      block.data[k] ^= std::byte{1};
      CHECK(pattern.compare(block, PatternCheck::full) == static_cast<Bytes>(k));
      block.data[k] ^= std::byte{1};
    }
  }
}

TEST_CASE(
    "byte_pattern: page writes and tests both ends of a value and of each of its 4 KiB, and nothing "
    "else") {
  std::vector<std::byte> bytes(3 * 4096 + 100, std::byte{0});
  const Block block{bytes.data(), static_cast<Bytes>(bytes.size())};
  const BytePattern pattern(5);
  pattern.write(block, PatternCheck::page);
  CHECK(pattern.compare(block, PatternCheck::page) == block.size);
  CHECK(bytes[2000] == std::byte{0});
  for (const std::size_t k : {std::size_t{0}, std::size_t{4095}, std::size_t{4096},
                              std::size_t{8191}, std::size_t{3 * 4096}, bytes.size() - 1}) {
    bytes[k] ^= std::byte{0x80};
    CHECK(pattern.compare(block, PatternCheck::page) == static_cast<Bytes>(k));
    bytes[k] ^= std::byte{0x80};
  }
  bytes[2000] = std::byte{1};
  CHECK(pattern.compare(block, PatternCheck::page) == block.size);
}

TEST_CASE(
    "byte_pattern: another stamp, or the same one at another place of the value, is another pattern") {
  std::vector<std::byte> bytes(256);
  const Block block{bytes.data(), 256};
  BytePattern(1).write(block, PatternCheck::full);
  CHECK(BytePattern(2).compare(block, PatternCheck::full) < 8);
  CHECK(BytePattern(1).compare({bytes.data() + 8, 248}, PatternCheck::full) < 8);
  CHECK(BytePattern(1).compare({bytes.data(), 0}, PatternCheck::full) == 0);
}
