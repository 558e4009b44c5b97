// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/jit/jit_memory.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "holdfast/backend/jit/probe.hpp"
#include "holdfast/buffer/raw_buffer.hpp"
#include "support/death.hpp"
#include "support/jit.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
constexpr Backing ways[] = {{MapMode::dual_memfd, CodeFile::memfd}, {MapMode::mprotect_anon, CodeFile::none}};
}

TEST_CASE("jit_memory: a raw buffer holds code that is copied in, sealed and called") {
  const CodeFootprint before;
  for (const Backing way : ways) {
    MemoryMapper mapper(way, MappingName::make("raw", "1"));
    JitHeap heap(mapper);
    JitMemory memory = heap.memory();
    Result<RawBuffer<JitMemory>> code = RawBuffer<JitMemory>::allocate(memory, 100);
    REQUIRE(code.ok());
    CHECK(code->copy_in(static_cast<Bytes>(entry), return_constant(42)).ok());
    CHECK(access_at(code->block().data).find('x') == std::string::npos);
    REQUIRE(memory.seal(code->block()).ok());
    CHECK(access_at(code->block().data).starts_with("r-x"));
    CHECK(!any_writable_and_executable());
    RawBuffer<JitMemory> other = *code;  // another owner of the same code
    *code = RawBuffer<JitMemory>();
    CHECK(call_at(other.block().data + entry) == 42);
    CHECK(other.copy_in(0, return_constant(1)).error().code == Errc::wrong_state);
    CHECK(memory.seal(other.block()).code == Errc::wrong_state);
    std::vector<std::byte> read(6);
    CHECK(other.copy_out(static_cast<Bytes>(entry), read).ok());
    CHECK(read == return_constant(42));
    CHECK(other.copy_out(95, read).error().code == Errc::invalid_argument);
  }
  CHECK(CodeFootprint() == before);
}

TEST_CASE("jit_memory: a slice is written at its own place; code is copied from block to block") {
  MemoryMapper mapper(ways[0]);
  JitHeap heap(mapper);
  JitMemory memory = heap.memory();
  Result<Block> a = memory.allocate(5000, Alignment(64)), b = memory.allocate(5000, Alignment(8192)), c = memory.allocate(10, Alignment(1));
  REQUIRE((a.ok() && b.ok() && c.ok()));
  CHECK(reinterpret_cast<std::uintptr_t>(b->data) % 8192 == 0);
  const Block part{a->data + 4200, 100};
  CHECK(memory.copy_in(part, 8, return_constant(5)).ok());
  CHECK(memory.copy(*b, entry, part, 8, 6).ok());
  REQUIRE(memory.seal(*b).ok());
  CHECK(call_at(b->data + entry) == 5);
  REQUIRE(memory.seal(*a).ok());
  CHECK(call_at(a->data + 4208) == 5);
  memory.deallocate(*b);
  memory.deallocate(*c);
  CHECK(mapper.statistics().blocks == 1);
  CHECK(aborts([&] { memory.deallocate(*b); }));
  CHECK(aborts([&] { memory.deallocate(part); }));
  memory.deallocate(Block{});
  CHECK(memory.seal(Block{}).ok());
  // What is left goes with the heap.
}

TEST_CASE("jit_memory: blocks go back in any order, and what is left goes with the heap") {
  MemoryMapper mapper(ways[0]);
  {
    JitHeap heap(mapper);
    JitMemory memory = heap.memory();
    std::vector<Block> blocks;
    for (int i = 0; i < 40; ++i) blocks.push_back(*memory.allocate(1 + i * 500, Alignment(64)));
    for (std::size_t i = 0; i < 40; i += 3) memory.deallocate(blocks[i]);
    for (std::size_t i = 0; i < 40; ++i) {
      if (i % 3 == 0) continue;
      const auto value = static_cast<std::uint32_t>(i);
      CHECK(memory.copy_in(blocks[i], 0, std::vector<std::byte>(1)).ok());
      if (blocks[i].size < 100) continue;
      CHECK(memory.copy_in(blocks[i], entry, return_constant(value)).ok());
      REQUIRE(memory.seal(blocks[i]).ok());
      CHECK(call_at(blocks[i].data + entry) == static_cast<int>(value));
    }
    CHECK(mapper.statistics().blocks == 26);
  }
  CHECK(mapper.statistics().blocks == 0);
  CHECK(mapper.statistics().live == 0);
}

TEST_CASE("jit_memory: a fault at every call leaks nothing") {
  using Mapper = BasicMemoryMapper<FaultyCalls>;
  for (const Backing way : ways) {
    const auto attempt = [&]() -> Error {
      Mapper mapper(way, MappingName::make("fault", "3"));
      BasicJitHeap<Mapper> heap(mapper);
      auto memory = heap.memory();
      const Result<Block> block = memory.allocate(4096, Alignment(64));
      if (!block.ok()) return block.error();
      if (Result<ImmediateEvent> copied = memory.copy_in(*block, 0, return_constant(1)); !copied.ok()) return copied.error();
      const Error e = memory.seal(*block);
      memory.deallocate(*block);
      CHECK(mapper.statistics().live == 0);
      return e;
    };
    call_log = {};
    REQUIRE(attempt().ok());
    const long calls = call_log.calls;
    for (long n = 1; n <= calls; ++n) {
      const CodeFootprint before;
      call_log = {};
      call_log.fail_at = n;
      CHECK(!attempt().ok());
      CHECK(call_log.open.empty());
      CHECK(CodeFootprint() == before);
    }
  }
  call_log = {};
}
