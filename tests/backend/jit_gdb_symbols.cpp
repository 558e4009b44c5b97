// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/jit/gdb_symbols.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "holdfast/backend/jit/memory_mapper.hpp"
#include "support/jit.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::testing;

extern "C" [[gnu::noinline]] void holdfast_gdb_stop() { asm volatile("" ::: "memory"); }

namespace {
int listed() {
  int n = 0;
  const holdfast::detail::GdbEntry* previous = nullptr;
  for (const holdfast::detail::GdbEntry* e = holdfast::detail::__jit_debug_descriptor.first; e != nullptr; e = e->next, ++n) {
    CHECK(e->previous == previous);
    previous = e;
  }
  return n;
}
}  // namespace

TEST_CASE("gdb_symbols: the process's list has what lives, in both directions") {
  const JitSymbol symbol{"f", &entry_byte, 1};
  const int before = listed();
  {
    Result<GdbSymbols> a = GdbSymbols::make({&symbol, 1}), b = GdbSymbols::make({&symbol, 1}), c = GdbSymbols::make({&symbol, 1});
    REQUIRE((a.ok() && b.ok() && c.ok()));
    CHECK(listed() == before + 3);
    CHECK(holdfast::detail::__jit_debug_descriptor.action == holdfast::detail::gdb_register);
    {
      const GdbSymbols gone = std::move(*b);
    }
    CHECK(holdfast::detail::__jit_debug_descriptor.action == holdfast::detail::gdb_unregister);
    CHECK(listed() == before + 2);
  }
  CHECK(listed() == before);
  CHECK(GdbSymbols::make({}).error().code == Errc::invalid_argument);
  const JitSymbol none{"f", nullptr, 1};
  CHECK(GdbSymbols::make({&none, 1}).error().code == Errc::invalid_argument);
}

TEST_CASE("gdb_symbols: the object has one code section over all pieces and a symbol for each") {
  static std::byte code[100];
  const JitSymbol symbols[] = {{"second", code + 60, 40}, {"first", code, 50}};
  Result<GdbSymbols> made = GdbSymbols::make(symbols);
  REQUIRE(made.ok());
  const std::span<const char> image = made->image();
  ElfW(Ehdr) header;
  std::memcpy(&header, image.data(), sizeof header);
  CHECK(std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0);
  std::vector<ElfW(Shdr)> sections(header.e_shnum);
  std::memcpy(sections.data(), image.data() + header.e_shoff, sections.size() * sizeof(ElfW(Shdr)));
  CHECK(sections[1].sh_addr == reinterpret_cast<std::uint64_t>(code));
  CHECK(sections[1].sh_size == 100);
  const char* strings = image.data() + sections[3].sh_offset;
  CHECK(std::string(strings + sections[1].sh_name) == ".text");
  CHECK(std::string(strings + sections[2].sh_name) == ".symtab");
  CHECK(std::string(strings + sections[3].sh_name) == ".strtab");
  CHECK(sections[3].sh_offset + sections[3].sh_size == image.size());
  REQUIRE(sections[2].sh_size == 3 * sizeof(ElfW(Sym)));
  ElfW(Sym) entries[3];
  std::memcpy(entries, image.data() + sections[2].sh_offset, sizeof entries);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(std::string(strings + entries[i + 1].st_name) == symbols[i].name);
    CHECK(entries[i + 1].st_value == reinterpret_cast<std::uint64_t>(symbols[i].run));
    CHECK(entries[i + 1].st_size == static_cast<std::uint64_t>(symbols[i].size));
  }
}

TEST_CASE("gdb_symbols: code that calls back (the child of the next case)") {
  // push rbp; mov rbp,rsp; movabs rax, stop; call rax; mov eax, 42; pop rbp; ret
  unsigned char code[] = {0x55, 0x48, 0x89, 0xE5, 0x48, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xD0, 0xB8, 42, 0, 0, 0, 0x5D, 0xC3};
  const auto stop = reinterpret_cast<std::uint64_t>(&holdfast_gdb_stop);
  std::memcpy(code + 6, &stop, 8);
  MemoryMapper mapper({MapMode::dual_memfd, CodeFile::memfd}, MappingName::make("gdb", "1"));
  CodeBlock block = sealed_code(mapper, code, sizeof code);
  const JitSymbol symbol{"holdfast_jitted_kernel", block.run + entry, sizeof code};
  Result<GdbSymbols> known = GdbSymbols::make({&symbol, 1});
  REQUIRE(known.ok());
  CHECK(call_at(block.run + entry) == 42);
  mapper.release(block);
}

TEST_CASE("gdb_symbols: gdb names the frame of code in its back trace") {
  if (quick()) return;
  if (std::system("command -v gdb >/dev/null 2>&1") != 0) return skip_case("no gdb");
  const TemporaryFolder folder;
  const std::string output = folder.path + "/gdb";
  const std::string command = "timeout 100 gdb -nx -batch -iex 'set debuginfod enabled off' -ex 'set breakpoint pending on' -ex 'break holdfast_gdb_stop' -ex run "
                              "-ex 'bt 3' --args " + self_path() + " -tc='gdb_symbols: code that calls back*' >" + output + " 2>&1";
  static_cast<void>(std::system(command.c_str()));
  const std::string text = read_file(output);
  if (text.find("Breakpoint 1, ") == std::string::npos) return skip_case("gdb cannot run a program here");
  CHECK_MESSAGE(text.find("in holdfast_jitted_kernel ()") != std::string::npos, text);
}
