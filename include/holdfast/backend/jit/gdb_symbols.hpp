// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "holdfast/backend/jit/symbol_writer.hpp"
#include "holdfast/concepts/lock.hpp"

namespace holdfast {

namespace detail {

// gdb's own structures ("JIT Compilation Interface"): it reads them in the stopped process.
struct GdbEntry {
  GdbEntry* next = nullptr;
  GdbEntry* previous = nullptr;
  const char* image = nullptr;
  std::uint64_t size = 0;
};
struct GdbDescriptor {
  std::uint32_t version;
  std::uint32_t action;
  GdbEntry* relevant;
  GdbEntry* first;
};
enum : std::uint32_t { gdb_register = 1, gdb_unregister = 2 };

extern "C" {
// The names that gdb looks for: its breakpoint, and the list that it reads there.
inline GdbDescriptor __jit_debug_descriptor = {1, 0, nullptr, nullptr};
[[gnu::noinline]] inline void __jit_debug_register_code() { asm volatile("" ::: "memory"); }
}

[[nodiscard]] inline WordLock& gdb_lock() noexcept {
  static constinit WordLock lock;
  return lock;
}

}  // namespace detail

/// Tells gdb (and lldb) the names of pieces of code for as long as it lives, by a small object file in memory.
///
/// The process's list is the one that debuggers know; another runtime that also writes it has a lock of its own.
/// Threads: any.
class GdbSymbols {
 public:
  /// Registers code by name. Errors: invalid_argument (no symbols, one without code), out_of_memory.
  [[nodiscard]] static Result<GdbSymbols> make(std::span<const JitSymbol> symbols) noexcept {
    std::uint64_t begin = ~std::uint64_t{0}, end = 0;
    std::size_t names = 1;
    for (const JitSymbol& s : symbols) {
      if (s.run == nullptr || s.size <= 0) return make_error(Errc::invalid_argument, "a symbol without code");
      begin = std::min(begin, reinterpret_cast<std::uint64_t>(s.run));
      end = std::max(end, reinterpret_cast<std::uint64_t>(s.run) + static_cast<std::uint64_t>(s.size));
      names += s.name.size() + 1;
    }
    if (symbols.empty()) return make_error(Errc::invalid_argument, "no symbols");
    constexpr char section_names[] = "\0.text\0.symtab\0.strtab";
    const std::size_t table = sizeof(ElfW(Ehdr)) + 4 * sizeof(ElfW(Shdr)), entries = (symbols.size() + 1) * sizeof(ElfW(Sym));
    const std::size_t strings = table + entries, size = strings + names + sizeof section_names;
    auto* entry = new (std::nothrow) detail::GdbEntry;
    auto* image = new (std::nothrow) char[size]();
    if (entry == nullptr || image == nullptr) {
      delete entry;
      delete[] image;
      return make_error(Errc::out_of_memory, "Out of memory allocating");
    }

    ElfW(Ehdr) header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_EXEC;  // addresses are final
    header.e_machine = machine;
    header.e_version = EV_CURRENT;
    header.e_shoff = sizeof header;
    header.e_ehsize = sizeof header;
    header.e_shentsize = sizeof(ElfW(Shdr));
    header.e_shnum = 4;
    header.e_shstrndx = 3;
    ElfW(Shdr) sections[4] = {};
    // The names of sections stand behind those of the symbols, in one table.
    const auto name_base = static_cast<ElfW(Word)>(names);
    sections[1].sh_name = name_base + 1, sections[1].sh_type = SHT_NOBITS, sections[1].sh_flags = SHF_ALLOC | SHF_EXECINSTR;
    sections[1].sh_addr = begin, sections[1].sh_size = end - begin, sections[1].sh_addralign = 1;
    sections[2].sh_name = name_base + 7, sections[2].sh_type = SHT_SYMTAB, sections[2].sh_offset = table, sections[2].sh_size = entries;
    sections[2].sh_link = 3, sections[2].sh_info = 1, sections[2].sh_entsize = sizeof(ElfW(Sym)), sections[2].sh_addralign = 8;
    sections[3].sh_name = name_base + 15, sections[3].sh_type = SHT_STRTAB, sections[3].sh_offset = strings;
    sections[3].sh_size = size - strings, sections[3].sh_addralign = 1;
    std::memcpy(image, &header, sizeof header);
    std::memcpy(image + sizeof header, sections, sizeof sections);
    std::size_t name = 1, place = table + sizeof(ElfW(Sym));
    for (const JitSymbol& s : symbols) {
      ElfW(Sym) symbol{};
      symbol.st_name = static_cast<ElfW(Word)>(name);
      symbol.st_info = STB_GLOBAL << 4 | STT_FUNC;
      symbol.st_shndx = 1;
      symbol.st_value = reinterpret_cast<std::uint64_t>(s.run);
      symbol.st_size = static_cast<std::uint64_t>(s.size);
      std::memcpy(image + place, &symbol, sizeof symbol);
      if (!s.name.empty()) std::memcpy(image + strings + name, s.name.data(), s.name.size());
      name += s.name.size() + 1;
      place += sizeof symbol;
    }
    std::memcpy(image + strings + names, section_names, sizeof section_names);
    entry->image = image;
    entry->size = size;
    return GdbSymbols(entry);
  }
  GdbSymbols(GdbSymbols&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
  GdbSymbols& operator=(GdbSymbols&& other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~GdbSymbols() {
    if (entry_ == nullptr) return;
    {
      LockGuard<WordLock> guard(detail::gdb_lock());
      detail::GdbDescriptor& list = detail::__jit_debug_descriptor;
      (entry_->previous != nullptr ? entry_->previous->next : list.first) = entry_->next;
      if (entry_->next != nullptr) entry_->next->previous = entry_->previous;
      tell(detail::gdb_unregister, entry_);
    }
    delete[] entry_->image;
    delete entry_;
  }

  /// The object file that debuggers read.
  [[nodiscard]] std::span<const char> image() const noexcept { return {entry_->image, static_cast<std::size_t>(entry_->size)}; }

 private:
#if defined(__x86_64__)
  static constexpr unsigned short machine = EM_X86_64;
#elif defined(__aarch64__)
  static constexpr unsigned short machine = EM_AARCH64;
#else
  static constexpr unsigned short machine = EM_NONE;
#endif

  explicit GdbSymbols(detail::GdbEntry* entry) noexcept : entry_(entry) {
    LockGuard<WordLock> guard(detail::gdb_lock());
    detail::GdbDescriptor& list = detail::__jit_debug_descriptor;
    entry->next = list.first;
    if (list.first != nullptr) list.first->previous = entry;
    list.first = entry;
    tell(detail::gdb_register, entry);
  }
  static void tell(std::uint32_t action, detail::GdbEntry* entry) noexcept {
    detail::__jit_debug_descriptor.relevant = entry;
    detail::__jit_debug_descriptor.action = action;
    detail::__jit_debug_register_code();
  }
  detail::GdbEntry* entry_;
};

}  // namespace holdfast
