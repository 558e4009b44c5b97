// SPDX-License-Identifier: Apache-2.0
#include "holdfast/buffer/raw_buffer.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <limits>
#include <numeric>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "support/gate.hpp"
#include "support/shared.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

using Raw = RawBuffer<SystemMemory>;
constexpr Bytes max = std::numeric_limits<Bytes>::max();

std::span<std::byte> bytes_of(void* p, std::size_t n) { return {static_cast<std::byte*>(p), n}; }

Raw counted(Bytes n) {
  Raw raw = *Raw::allocate({}, n);
  for (Bytes i = 0; i < n; ++i) raw.data()[i] = static_cast<std::byte>(i);
  return raw;
}

}  // namespace

TEST_CASE("raw_buffer: T-R10 a range is accepted iff 0 <= offset <= size and 0 <= length <= size - offset") {
  for (const Bytes s : {Bytes{0}, Bytes{1}, Bytes{7}, Bytes{64}}) {
    Raw raw = counted(s);
    for (const Bytes offset : {Bytes{-1}, Bytes{0}, Bytes{1}, s - 1, s, s + 1, max, std::numeric_limits<Bytes>::min()}) {
      for (const Bytes length : {Bytes{-1}, Bytes{0}, Bytes{1}, s, s + 1, max}) {
        // By counting the bytes, with the largest values cut off where they are surely outside: no sum, no difference.
        bool ok = offset >= 0 && length >= 0 && offset <= s && length <= s;
        for (Bytes i = 0; ok && i < length; ++i) ok = offset + i < s;
        CHECK(in_bounds(s, offset, length) == ok);
        CHECK(raw.slice(offset, length).ok() == ok);
        if (!ok) CHECK(raw.slice(offset, length).error().code == Errc::invalid_argument);
      }
    }
  }
}

TEST_CASE("raw_buffer: case 04 every row of ranges.csv holds for host-to-device, device-to-host and slice") {
  const std::string path = shared_path("cases/04-raw-buffer-bounds/ranges.csv");
  if (path.empty()) return;
  const std::string text = read_file(path);
  int rows = 0;
  std::size_t line = text.find('\n') + 1;
  while (line < text.size()) {
    long long size = 0, offset = 0, length = 0;
    char word[32] = {};
    REQUIRE(std::sscanf(text.c_str() + line, "%lld,%lld,%lld,%31s", &size, &offset, &length, word) == 4);
    line = text.find('\n', line) + 1;
    const bool ok = std::string_view(word) == "ok";
    ++rows;
    CHECK(check_bounds(size, offset, length).ok() == ok);
    const Error e = check_bounds(size, offset, length);
    CHECK(status_kind(e) == (ok ? StatusKind::ok : StatusKind::invalid_argument));
    if (size > 100 || length < 0 || length > 200) continue;  // the rule alone: no such memory, no such span
    Raw raw = counted(size);
    std::vector<std::byte> host(static_cast<std::size_t>(length), std::byte{0xEE});
    const Result<Raw> part = raw.slice(offset, length);
    CHECK(part.ok() == ok);
    const Result<ImmediateEvent> out = raw.copy_out(offset, host);
    CHECK(out.ok() == ok);
    if (!ok)
      for (const std::byte b : host) CHECK(b == std::byte{0xEE});
    for (auto& b : host) b = std::byte{0x77};
    CHECK(raw.copy_in(offset, host).ok() == ok);
    for (Bytes i = 0; i < size; ++i) CHECK(raw.data()[i] == (ok && i >= offset && i < offset + length ? std::byte{0x77} : static_cast<std::byte>(i)));
  }
  CHECK(rows == 18);
}

TEST_CASE("raw_buffer: T-R4 a refused range names offset, length and size") {
  Raw raw = *Raw::allocate({}, 8);
  float values[2] = {41, 42};
  CHECK(raw.copy_in(0, bytes_of(values, 8)).ok());
  float read[2] = {};
  CHECK(raw.copy_out(0, bytes_of(read, 8)).ok());
  CHECK(read[0] == 41.f);
  CHECK(read[1] == 42.f);
  read[0] = 0;
  CHECK(raw.copy_out(0, bytes_of(read, 4)).ok());
  CHECK(read[0] == 41.f);
  const auto refused = raw.copy_out(1, bytes_of(read, 8));
  CHECK(status_kind(refused.error()) == StatusKind::invalid_argument);
  CHECK(says(refused.error(), "invalid offset 1"));
  CHECK(says(refused.error(), "length 8"));
  CHECK(says(refused.error(), "8 bytes"));
  CHECK(says(raw.slice(-1, 3).error(), "invalid offset -1"));
  CHECK(says(raw.slice(0, -3).error(), "length -3"));
}

TEST_CASE("raw_buffer: case 04 slices of slices add offsets and stay inside their parent slice") {
  Raw base = counted(100);
  Raw s = *base.slice(10, 50), t = *s.slice(20, 10);
  CHECK(t.size() == 10);
  CHECK(t.data()[0] == std::byte{30});
  CHECK(t.data()[9] == std::byte{39});
  CHECK(s.slice(45, 10).error().code == Errc::invalid_argument);
  CHECK(t.slice(10, 0).ok());
  t.data()[0] = std::byte{0xAA};
  CHECK(base.data()[30] == std::byte{0xAA});
}

TEST_CASE("raw_buffer: case 04 a slice keeps the memory alive, not the buffer it was cut from") {
  MemoryLog log;
  using Logged = RawBuffer<LoggedMemory>;
  Logged t;
  {
    Logged base = *Logged::allocate(LoggedMemory(log), 100);
    for (int i = 0; i < 100; ++i) base.data()[i] = static_cast<std::byte>(i);
    t = *base.slice(10, 50)->slice(20, 10);
    CHECK(t.shares_memory(base));
  }
  CHECK(log.frees == 0);
  for (int i = 0; i < 10; ++i) CHECK(t.data()[i] == static_cast<std::byte>(30 + i));
  t = Logged();
  CHECK(log.frees == 1);
  CHECK(log.live_bytes == 0);
}

TEST_CASE("raw_buffer: 0 bytes are a buffer without an address, sizes that cannot be are errors") {
  Raw none = *Raw::allocate({}, 0);
  CHECK(static_cast<bool>(none));
  CHECK(none.block() == Block{nullptr, 0});
  CHECK(none.slice(0, 0).ok());
  CHECK(none.copy_out(0, {}).ok());
  CHECK(Raw::allocate({}, -1).error().code == Errc::invalid_argument);
  CHECK(status_kind(Raw::allocate({}, max).error()) == StatusKind::resource_exhausted);
  CHECK(status_kind(Raw::allocate({}, max - 63).error()) == StatusKind::resource_exhausted);
  CHECK(!Raw());
  CHECK(Raw().copy_out(0, {}).error().code == Errc::invalid_argument);
}

TEST_CASE("raw_buffer: T-R11 imported memory must be aligned to 64 bytes, is constant unless told, and is released once") {
  alignas(128) static std::byte memory[512];
  static int released = 0;
  const ForeignRelease release{[](void* context, Block block) noexcept {
                                 ++*static_cast<int*>(context);
                                 CHECK(block.size == 64);
                               },
                               &released};
  for (const Bytes shift : {1, 2, 4, 8, 16, 32}) {
    const auto refused = Raw::import_foreign({}, Block{memory + shift, 64}, release);
    CHECK(refused.error().code == Errc::invalid_argument);
    CHECK(says(refused.error(), "aligned"));
  }
  CHECK(released == 0);
  {
    Raw constant = *Raw::import_foreign({}, Block{memory + 64, 64}, release);
    CHECK(!constant.is_mutable());
    CHECK(constant.copy_in(0, bytes_of(memory + 256, 4)).error().code == Errc::permission_denied);
    CHECK(!constant.slice(0, 8)->is_mutable());
    Raw slice = *constant.slice(3, 5);
    constant = Raw();
    CHECK(released == 0);
  }
  CHECK(released == 1);
  {
    Raw writable = *Raw::import_foreign({}, Block{memory + 128, 64}, release, true);
    CHECK(writable.is_mutable());
    CHECK(writable.copy_in(0, bytes_of(memory + 256, 4)).ok());
    Raw nothing = *Raw::import_foreign({}, Block{memory + 128, 0}, {}, true);
    CHECK(nothing.size() == 0);
  }
  CHECK(released == 2);
}

TEST_CASE("raw_buffer: unique ownership moves the block and frees it once") {
  MemoryLog log;
  using Only = RawBuffer<LoggedMemory, Unique>;
  {
    Only a = *Only::allocate(LoggedMemory(log), 32), b = std::move(a);
    CHECK(a.data() == nullptr);
    CHECK(b.size() == 32);
    std::byte in[4] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}}, out[4] = {};
    CHECK(b.copy_in(28, in).ok());
    CHECK(b.copy_out(28, out).ok());
    CHECK(out[3] == std::byte{4});
    CHECK(b.copy_in(29, in).error().code == Errc::invalid_argument);
    a = std::move(b);
    CHECK(log.frees == 0);
    const Block block = a.take();
    Only c = *Only::adopt(LoggedMemory(log), block);
    CHECK(a.data() == nullptr);
  }
  CHECK(log.frees == 1);
  static_assert(sizeof(RawBuffer<SystemMemory, Unique>) == sizeof(Block));
}

TEST_CASE("raw_buffer: T-C9 CacheIdentity, one for all slices, replaced by a change, gone for good once others may write") {
  Raw raw = *Raw::allocate({}, 64);
  raw.contents_changed();  // before anybody asked
  const std::uint64_t i = raw.content_identity();
  CHECK(i != 0);
  CHECK(raw.content_identity() == i);
  Raw slice = *raw.slice(16, 32);
  CHECK(slice.content_identity() == i);
  slice.contents_changed();
  const std::uint64_t j = raw.content_identity();
  CHECK(j != i);
  CHECK(slice.content_identity() == j);
  const std::byte bytes[4] = {};
  CHECK(slice.copy_in(0, bytes).ok());
  CHECK(raw.content_identity() != j);
  CHECK(slice.copy_in(30, bytes).error().code == Errc::invalid_argument);
  const std::uint64_t k = raw.content_identity();
  CHECK(slice.copy_in(33, {}).error().code == Errc::invalid_argument);
  CHECK(raw.content_identity() == k);  // what was refused changed nothing
  slice.stop_content_identity();
  for (int round = 0; round < 2; ++round) {
    CHECK(raw.content_identity() == 0);
    CHECK(slice.content_identity() == 0);
    raw.contents_changed();
  }
  alignas(64) static std::byte foreign[64];
  CHECK((*Raw::import_foreign({}, {foreign, 64}, {})).content_identity() != 0);
  CHECK((*Raw::import_foreign({}, {foreign, 64}, {}, true)).content_identity() == 0);
}
