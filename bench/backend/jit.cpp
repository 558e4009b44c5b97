// SPDX-License-Identifier: Apache-2.0
// What code memory costs beside the bare calls: allocate, write, make executable, release, for code of 4 KiB to 1 MiB.
#include <benchmark/benchmark.h>

#include <sys/mman.h>

#include <cstddef>
#include <cstring>

#include "holdfast/backend/jit/contiguous_sections.hpp"
#include "holdfast/backend/jit/jit_memory.hpp"
#include "holdfast/backend/jit/memory_mapper.hpp"

namespace {

using namespace holdfast;

// The same work with bare calls: code, read-only and read-write data in one mapping, three protections.
void floor_sections(benchmark::State& state) {
  const auto code = static_cast<std::size_t>(state.range(0));
  const std::size_t size = code + 2 * 4096;
  for (auto _ : state) {
    void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto* bytes = static_cast<unsigned char*>(p);
    bytes[0] = bytes[code] = bytes[code + 4096] = 0xC3;
    mprotect(bytes + code, 4096, PROT_READ);
    mprotect(bytes, code, PROT_READ | PROT_EXEC);
    munmap(p, size);
  }
}
BENCHMARK(floor_sections)->Name("floor/mmap_mprotect_munmap")->ArgName("bytes")->Arg(4096)->Arg(1 << 20);

// The same with bare calls and a file mapped twice.
void floor_twice(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    const int fd = memfd_create("floor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) return state.SkipWithError("memfd_create");
    void* write = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void* run = mmap(nullptr, size, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    close(fd);
    *static_cast<unsigned char*>(write) = 0xC3;
    munmap(write, size);
    munmap(run, size);
  }
}
BENCHMARK(floor_twice)->Name("floor/memfd_mapped_twice")->ArgName("bytes")->Arg(4096)->Arg(1 << 20);

constexpr Backing backing_of(bool twice) {
  return twice ? Backing{MapMode::dual_memfd, CodeFile::memfd} : Backing{MapMode::mprotect_anon, CodeFile::none};
}

template <bool Twice, bool Guards>
void sections(benchmark::State& state) {
  MemoryMapper mapper(backing_of(Twice));
  for (auto _ : state) {
    ContiguousSections<> arena(mapper);
    if (!arena.reserve({{state.range(0), 64}, {4096, 8}, {4096, 8}}, {.guards = Guards}).ok()) return state.SkipWithError("reserve");
    *arena.allocate(SectionKind::code, state.range(0), 64)->write = std::byte{0xC3};
    *arena.allocate(SectionKind::read_only, 4096, 8)->write = std::byte{1};
    *arena.allocate(SectionKind::read_write, 4096, 8)->write = std::byte{1};
    if (!arena.finalise().ok()) return state.SkipWithError("finalise");
  }
}
BENCHMARK(sections<false, false>)->Name("ContiguousSections/make_release/mprotect_anon")->ArgName("bytes")->Arg(4096)->Arg(1 << 20);
BENCHMARK(sections<false, true>)->Name("ContiguousSections/make_release/mprotect_anon_guards")->ArgName("bytes")->Arg(4096)->Arg(1 << 20);
BENCHMARK(sections<true, false>)->Name("ContiguousSections/make_release/dual_memfd")->ArgName("bytes")->Arg(4096)->Arg(1 << 20);

template <bool Twice>
void memory(benchmark::State& state) {
  MemoryMapper mapper(backing_of(Twice));
  JitHeap heap(mapper);
  JitMemory code = heap.memory();
  const std::byte ret{0xC3};
  for (auto _ : state) {
    const Block block = *code.allocate(state.range(0), Alignment(64));
    if (!code.copy_in(block, 0, {&ret, 1}).ok() || !code.seal(block).ok()) return state.SkipWithError("seal");
    code.deallocate(block);
  }
}
BENCHMARK(memory<false>)->Name("JitMemory/make_release/mprotect_anon")->ArgName("bytes")->Arg(4096)->Arg(1 << 20);
BENCHMARK(memory<true>)->Name("JitMemory/make_release/dual_memfd")->ArgName("bytes")->Arg(4096)->Arg(1 << 20);

}  // namespace
