// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/jit/memory_mapper.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "holdfast/backend/jit/probe.hpp"
#include "support/jit.hpp"
#include "support/shared.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::literals;
using namespace holdfast::testing;

namespace {
using Mapper = BasicMemoryMapper<FaultyCalls>;
// The ways to make code memory; containers often mount shared memory noexec.
std::vector<Backing> usable_ways() {
  std::vector<Backing> ways = {{MapMode::dual_memfd, CodeFile::memfd}, {MapMode::mprotect_anon, CodeFile::none}, {MapMode::mprotect_memfd, CodeFile::memfd}};
  const Backing shared{MapMode::dual_memfd, CodeFile::shared};
  if (try_backing(shared).ok()) ways.push_back(shared);
  return ways;
}
}  // namespace

TEST_CASE("memory_mapper: code written through one view runs through the other, in every mode, and nothing is ever writable and executable "
          "(SM12)") {
  call_log = {};
  const CodeFootprint before;
  for (const Backing way : usable_ways()) {
    CAPTURE(backing_name(way));
    Mapper mapper(way, MappingName::make("modes", "1"));
    CHECK(round_trip(mapper, 42) == 42);
    CHECK(mapper.statistics().live == 0);
    CHECK(mapper.statistics().peak == mapper.page_size());
    CHECK(mapper.statistics().failures == 0);
  }
  CHECK(CodeFootprint() == before);
}

TEST_CASE("memory_mapper: a file mapped twice shows its name twice in the map list, once rw-s and once r-xs (JM1)") {
  call_log = {};
  call_log.keep = true;
  Mapper mapper({MapMode::dual_memfd, CodeFile::memfd}, MappingName::make("twice", "7"));
  Result<CodeBlock> block = mapper.reserve(1);
  REQUIRE(block.ok());
  CHECK(block->size == mapper.page_size());
  CHECK(access_at(block->run) == "---p");
  REQUIRE(mapper.commit(*block).ok());
  CHECK(block->write != block->run);
  const std::vector<std::byte> code = return_constant(7);
  std::memcpy(block->write + entry, code.data(), code.size());
  CHECK(access_at(block->run) == "r--s");
  CHECK(mapper.protect(*block, Access::read_write).code == Errc::invalid_argument);
  REQUIRE(mapper.protect(*block, Access::read_execute).ok());
  CHECK(call_at(block->run + entry) == 7);
  const std::vector<MapLine> lines = maps_named("/memfd:jit:twice:7");
  REQUIRE(lines.size() == 2);
  CHECK(access_at(block->write) == "rw-s");
  CHECK(access_at(block->run) == "r-xs");
  const std::vector<std::byte> other = return_constant(8);
  std::memcpy(block->write + entry, other.data(), other.size());
  CHECK(call_at(block->run + entry) == 8);

  // JM3: the seals let nobody with the descriptor make another writable view, shrink or grow the file.
  REQUIRE(call_log.kept_fd >= 0);
  void* at = nullptr;
  CHECK(SystemCalls::map(at, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, call_log.kept_fd) == EPERM);
  CHECK(SystemCalls::resize(call_log.kept_fd, 0) == EPERM);
  CHECK(SystemCalls::resize(call_log.kept_fd, 1 << 20) == EPERM);
  SystemCalls::close(call_log.kept_fd);
  CHECK(call_log.open.empty());

  REQUIRE(mapper.seal(*block).ok());
  CHECK(block->write == nullptr);
  CHECK(maps_named("/memfd:jit:twice:7").size() == 1);
  CHECK(mapper.seal(*block).code == Errc::wrong_state);
  mapper.release(*block);
  CHECK(maps_named("jit:twice").empty());
}

TEST_CASE("memory_mapper: the memfd is made close-on-exec, sealable and executable; kernels without a flag are asked again without it "
          "(cases/11)") {
  constexpr unsigned base = 1 | 2;
  for (const int refused : {0, EPERM, EACCES, EINVAL}) {
    call_log = {};
    call_log.memory_file_error = refused;
    Mapper mapper({MapMode::dual_memfd, CodeFile::memfd});
    CHECK(round_trip(mapper, 3) == (refused == 0 ? 3 : -1));
    const std::vector<unsigned> expected = refused == 0 ? std::vector<unsigned>{base | 16}
                                                        : std::vector<unsigned>{base | 16, refused == EINVAL ? base : base | 8};
    CHECK(call_log.memory_file_flags == expected);
  }
  call_log = {};
  call_log.seal_error = EINVAL;  // Linux before 5.1 has no FUTURE_WRITE
  Mapper mapper({MapMode::dual_memfd, CodeFile::memfd});
  CHECK(round_trip(mapper, 4) == 4);
}

TEST_CASE("memory_mapper: 1000 blocks made and given back leave descriptors and addresses as they were (JM7)") {
  for (const Backing way : usable_ways()) {
    MemoryMapper mapper(way, MappingName::make("many", "1"));
    CHECK(round_trip(mapper, 1) == 1);
    const CodeFootprint before;
    for (int i = 0; i < 1000; ++i) {
      Result<CodeBlock> block = mapper.reserve(1 + i % 5 * 4096);
      REQUIRE(block.ok());
      REQUIRE(mapper.commit(*block).ok());
      block->write[0] = std::byte{0xC3};
      if (i % 2 == 0) REQUIRE(mapper.seal(*block).ok());
      mapper.release(*block);
    }
    CHECK(CodeFootprint() == before);
    CHECK(mapper.statistics().live == 0);
    CHECK(mapper.statistics().blocks == 0);
    CHECK(mapper.statistics().held_since == 0);
  }
}

TEST_CASE("memory_mapper: a fault at every call leaks nothing and leaves nothing executable") {
  for (const Backing way : usable_ways())
    for (const bool ever_after : {false, true}) {
      call_log = {};
      Mapper sound(way, MappingName::make("fault", "0"));
      REQUIRE(round_trip(sound, 5) == 5);
      const long calls = call_log.calls;
      CHECK(calls >= 3);
      for (long n = 1; n <= calls; ++n) {
        CAPTURE(n);
        const CodeFootprint before;
        call_log = {};
        call_log.fail_at = n;
        call_log.fail_after = ever_after;
        Mapper mapper(way, MappingName::make("fault", "1"));
        CHECK(round_trip(mapper, 5) == -1);
        CHECK(call_log.open.empty());
        CHECK(mapper.statistics().failures > 0);
        CHECK(mapper.statistics().live == 0);
        CHECK(CodeFootprint() == before);
      }
    }
  call_log = {};
}

TEST_CASE("memory_mapper: anonymous code has its name in the map list, where the kernel names anonymous pages") {
  MemoryMapper mapper({MapMode::mprotect_anon, CodeFile::none}, MappingName::make("anonymous[0]", "7"));
  Result<CodeBlock> block = mapper.reserve(2 * 4096);
  REQUIRE(block.ok());
  const bool named = SystemCalls::name_pages(block->run, 4096, "jit:other") == 0;
  CHECK(SystemCalls::name_pages(block->run, 4096, mapper.name().anonymous().c_str()) == (named ? 0 : EINVAL));
  REQUIRE(mapper.commit(*block).ok());
  if (named) CHECK(name_at(block->run + 4096) == "[anon:jit:anonymous_0_:7]");
  REQUIRE(mapper.seal(*block).ok());
  if (named) CHECK(name_at(block->run + 4096) == "[anon:jit:anonymous_0_:7]");
  else skip_case("the kernel does not name anonymous pages");
  mapper.release(*block);
}

TEST_CASE("memory_mapper: a part that could not be committed is as before, and can be committed later") {
  for (const Backing way : usable_ways()) {
    if (way.file != CodeFile::memfd) continue;
    call_log = {};
    Mapper mapper(way);
    Result<CodeBlock> block = mapper.reserve(4096);
    REQUIRE(block.ok());
    call_log.seal_error = EPERM;
    CHECK(mapper.commit(*block).code == Errc::permission_denied);
    CHECK(access_at(block->run) == "---p");
    CHECK(block->write == nullptr);
    CHECK(call_log.open.empty());
    call_log = {};
    CHECK(mapper.commit(*block).ok());
    CHECK(mapper.seal(*block).ok());
    mapper.release(*block);
  }
}

TEST_CASE("memory_mapper: sizes that cannot be and the empty block; alignment above a page; a place near an address") {
  const CodeFootprint before;
  MemoryMapper mapper({MapMode::mprotect_anon, CodeFile::none});
  CHECK(mapper.reserve(-1).error().code == Errc::invalid_argument);
  for (const Bytes size : {max_bytes, max_bytes - 4095, Bytes{1} << 62}) CHECK(status_kind(mapper.reserve(size).error()) == StatusKind::resource_exhausted);
  Result<CodeBlock> none = mapper.reserve(0);
  REQUIRE(none.ok());
  CHECK(*none == CodeBlock{});
  CHECK(mapper.commit(*none).ok());
  CHECK(mapper.seal(*none).ok());
  mapper.release(*none);
  for (const Bytes alignment : {Bytes{1}, Bytes{8192}, 2_MiB, 1_GiB}) {
    Result<CodeBlock> block = mapper.reserve(3 * 4096, {.alignment = Alignment(alignment)});
    REQUIRE(block.ok());
    CHECK(reinterpret_cast<std::uintptr_t>(block->run) % static_cast<std::uintptr_t>(alignment) == 0);
    CHECK(mapper.statistics().live == 3 * 4096);
    mapper.release(*block);
  }
  const void* anchors[] = {reinterpret_cast<void*>(&round_trip<Mapper>), &mapper};
  for (const void* near : anchors) {
    Result<CodeBlock> block = mapper.reserve(1_MiB, {.near = near});
    REQUIRE(block.ok());
    const auto a = reinterpret_cast<std::intptr_t>(near), b = reinterpret_cast<std::intptr_t>(block->run);
    CHECK(std::max(a, b + (1 << 20)) - std::min(a, b) < (std::intptr_t{1} << 31));
    mapper.release(*block);
  }
  CHECK(mapper.statistics().live == 0);
  CHECK(CodeFootprint() == before);  // nothing of what alignment asked for beyond
}

TEST_CASE("memory_mapper: code is kept from forked children only on request") {
  for (const bool keep : {false, true}) {
    MemoryMapper mapper({MapMode::dual_memfd, CodeFile::memfd}, MappingName::make("fork", ""), nullptr, keep);
    const std::vector<std::byte> code = return_constant(6);
    CodeBlock block = sealed_code(mapper, code.data(), code.size());
    CHECK(run_child([&] { return call_at(block.run + entry); }) == (keep ? -SIGSEGV : 6));
    mapper.release(block);
  }
}

TEST_CASE("memory_mapper: sealed code cannot be written (SM11)") {
  for (const Backing way : usable_ways()) {
    MemoryMapper mapper(way);
    Result<CodeBlock> block = mapper.reserve(4096);
    REQUIRE(block.ok());
    REQUIRE(mapper.commit(*block).ok());
    std::byte* const written = block->write;
    REQUIRE(mapper.seal(*block).ok());
    CHECK(run_child([&] { return *static_cast<volatile std::byte*>(block->run) = std::byte{1}, 0; }) == -SIGSEGV);
    CHECK(run_child([&] { return *static_cast<volatile std::byte*>(written) = std::byte{1}, 0; }) == -SIGSEGV);
    mapper.release(*block);
  }
}
