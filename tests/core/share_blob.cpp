// SPDX-License-Identifier: Apache-2.0
#include "holdfast/core/share_blob.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <vector>

#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
constexpr ShareBlob sample() {
  ShareBlob b;
  b.kind = ShareKind::cuda_file;
  b.whole = 4096;
  b.allocation = 0x1112131415161718u;
  b.from.process = 0x0102030405060708u;
  b.from.generation = ~std::uint64_t{0};
  b.handle.size = 1000;
  b.handle.offset = 3096;
  for (std::size_t i = 0; i < 16; ++i) b.from.host[i] = static_cast<std::byte>(i), b.device[i] = static_cast<std::byte>(90 + i);
  for (std::size_t i = 0; i < 64; ++i) b.handle.bytes[i] = static_cast<std::byte>(200 - i);
  return b;
}
static_assert(*read_share_blob(write_share_blob(sample())) == sample());
Error reading(const ShareBlob& b) { return read_share_blob(write_share_blob(b)).error(); }
}  // namespace

TEST_CASE("share_blob: what is written is read; each flipped bit and each other length is corrupt") {
  const ShareBlobBytes good = write_share_blob(sample());
  CHECK(*read_share_blob(good) == sample());
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    ShareBlobBytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    CHECK(read_share_blob(bad).error().code == (bit / 8 == 3 ? Errc::unsupported : Errc::corrupt));  // the version
  }
  std::vector<std::byte> longer(good.begin(), good.end());
  longer.push_back(std::byte{0});
  CHECK(read_share_blob(longer).error().code == Errc::corrupt);
  for (std::size_t n = 0; n < good.size(); ++n) CHECK(read_share_blob(std::span(good).first(n)).error().code == Errc::corrupt);
}

TEST_CASE("share_blob: one of another version of the format is refused as that, whatever its length") {
  std::array<std::byte, 132> first{};  // what the first version was
  for (std::size_t i = 0; i < 4; ++i) first[i] = static_cast<std::byte>("HFS1"[i]);
  CHECK(read_share_blob(first).error().code == Errc::unsupported);
  CHECK(says(read_share_blob(first).error(), "another version"));
  ShareBlobBytes next = write_share_blob(sample());
  next[3] = std::byte{'3'};
  CHECK(says(read_share_blob(next).error(), "another version"));
}

TEST_CASE("share_blob: kinds and sizes that no blob has are corrupt, though the bytes are whole") {
  ShareBlob b = sample();
  b.kind = static_cast<ShareKind>(7);
  CHECK(says(reading(b), "no known kind"));
  b.kind = static_cast<ShareKind>(0);
  CHECK(says(reading(b), "no known kind"));
  b.kind = ShareKind::cuda_fabric;
  CHECK(reading(b).ok());
  const auto with = [](Bytes offset, Bytes size, Bytes whole) {
    ShareBlob bad = sample();
    bad.handle.offset = offset;
    bad.handle.size = size;
    bad.whole = whole;
    return bad;
  };
  for (const ShareBlob& bad : {with(0, 0, 4096), with(0, -1, 4096), with(-1, 10, 4096), with(3097, 1000, 4096), with(max_bytes, 1, max_bytes),
                               with(1, max_bytes, max_bytes), with(0, 1, -1)}) {
    CHECK(reading(bad).code == Errc::corrupt);
    CHECK(check_share(bad, {}, bad.from.generation).code == Errc::corrupt);
  }
  CHECK(reading(with(0, max_bytes, max_bytes)).ok());
}

TEST_CASE("share_blob: MD2 another generation is FAILED_PRECONDITION, another host is unsupported, the same process is refused") {
  const ShareBlob b = sample();
  ShareIdentity self = b.from;
  self.process = 5;
  self.generation = 77;  // of no matter to what others share
  CHECK(check_share(b, self, b.from.generation).ok());
  CHECK(status_kind(check_share(b, self, 6)) == StatusKind::failed_precondition);
  self.process = b.from.process;
  CHECK(status_kind(check_share(b, self, b.from.generation)) == StatusKind::failed_precondition);
  self.host[3] = std::byte{9};
  CHECK(check_share(b, self, b.from.generation).code == Errc::unsupported);
}

TEST_CASE("share_blob: memory shared by fabric may be another host's; its own process and another generation are refused all the same") {
  ShareBlob b = sample();
  b.kind = ShareKind::cuda_fabric;
  ShareIdentity self = b.from;
  CHECK(check_share(b, self, b.from.generation).code == Errc::wrong_state);
  self.host[0] = std::byte{99};  // a process of that number may run on any host
  CHECK(check_share(b, self, b.from.generation).ok());
  CHECK(check_share(b, self, b.from.generation + 1).code == Errc::wrong_state);
  b.kind = ShareKind::multicast_fabric;
  CHECK(check_share(b, self, b.from.generation).ok());
  b.kind = ShareKind::multicast_file;
  CHECK(check_share(b, self, b.from.generation).code == Errc::unsupported);
}
