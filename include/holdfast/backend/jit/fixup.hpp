// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "holdfast/concepts/sink.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// How a place in code or data names another address.
enum class FixupKind : std::uint8_t {
  absolute64,  ///< the target itself
  delta32,     ///< target - site, signed 32 bits
  pcrel32,     ///< target - (site + 4), signed 32 bits: x86-64 calls and rip-relative operands
  branch26,    ///< target - site, signed 28 bits, a multiple of 4: AArch64 b and bl
  page21,      ///< page(target) - page(site), signed 33 bits: AArch64 adrp
  addr32nb,    ///< target - base, unsigned 32 bits: COFF image-relative; the site is the base
};

/// Gives the word of a kind.
[[nodiscard]] constexpr std::string_view fixup_name(FixupKind kind) noexcept {
  constexpr std::string_view names[] = {"absolute64", "delta32", "pcrel32", "branch26", "page21", "addr32nb"};
  return names[static_cast<std::size_t>(kind)];
}

/// One place to be filled in: addresses are those where the code runs.
struct Fixup {
  FixupKind kind = FixupKind::pcrel32;
  std::uint64_t site = 0;
  std::uint64_t target = 0;
  std::string_view section = {};
  std::string_view symbol = {};
};

/// Gives what is to be stored, before it is cut to its bits. Units: bytes.
///
/// Errors: invalid_argument (the target is out of reach, or no multiple of 4 away).
[[nodiscard]] constexpr Result<std::int64_t> fixup_value(const Fixup& f) noexcept {
  constexpr std::uint64_t in_page = 0xFFF;
  const auto signed_bits = [](std::int64_t v, int bits) { return v >= -(std::int64_t{1} << (bits - 1)) && v < std::int64_t{1} << (bits - 1); };
  std::int64_t value = static_cast<std::int64_t>(f.target - f.site);  // addresses wrap around
  bool fits = true;
  switch (f.kind) {
    case FixupKind::absolute64: value = static_cast<std::int64_t>(f.target); break;
    case FixupKind::delta32: fits = signed_bits(value, 32); break;
    case FixupKind::pcrel32: value = static_cast<std::int64_t>(f.target - f.site - 4), fits = signed_bits(value, 32); break;
    case FixupKind::branch26: fits = signed_bits(value, 28) && value % 4 == 0; break;
    case FixupKind::page21: value = static_cast<std::int64_t>((f.target & ~in_page) - (f.site & ~in_page)), fits = signed_bits(value, 33); break;
    case FixupKind::addr32nb: fits = value >= 0 && value <= 0xFFFFFFFF; break;
  }
  if (fits) return value;
  Error e = make_error(Errc::invalid_argument, "a relocation does not reach its target");
  e.at_kind = AtKind::byte_offset;
  e.at = f.site;
  return e;
}

/// Gives the number of bytes that a fixup changes.
[[nodiscard]] constexpr Bytes fixup_size(FixupKind kind) noexcept { return kind == FixupKind::absolute64 ? 8 : 4; }

/// Fills a place in; `at` is where the site is written.
///
/// Errors: as `fixup_value`; then nothing is written, and `diagnosis` has kind, section, symbol and both addresses.
template <sink S = NullSink>
Error apply_fixup(std::byte* at, const Fixup& f, S&& diagnosis = {}) noexcept {
  const Result<std::int64_t> value = fixup_value(f);
  if (!value.ok()) {
    const auto put = [&](std::string_view text) { static_cast<void>(diagnosis.write(text)); };
    const auto put_address = [&](std::uint64_t address) {
      char text[18] = {'0', 'x'};
      for (int i = 0; i < 16; ++i) text[2 + i] = "0123456789abcdef"[(address >> (60 - 4 * i)) & 15];
      put({text, sizeof text});
    };
    put(fixup_name(f.kind)), put(" in section "), put(f.section), put(" at "), put_address(f.site);
    put(" does not reach "), put(f.symbol), put(" at "), put_address(f.target), put("\n");
    return value.error();
  }
  std::uint32_t word = static_cast<std::uint32_t>(*value);
  if (f.kind == FixupKind::absolute64) {
    std::memcpy(at, &*value, sizeof *value);
    return {};
  }
  if (f.kind == FixupKind::branch26 || f.kind == FixupKind::page21) {
    std::uint32_t instruction = 0;
    std::memcpy(&instruction, at, sizeof instruction);
    const auto pages = static_cast<std::uint32_t>(*value >> 12);
    word = f.kind == FixupKind::branch26 ? (instruction & ~0x3FFFFFFu) | (static_cast<std::uint32_t>(*value >> 2) & 0x3FFFFFFu)
                                         : (instruction & ~0x60FFFFE0u) | (pages & 3) << 29 | ((pages >> 2) & 0x7FFFF) << 5;
  }
  std::memcpy(at, &word, sizeof word);
  return {};
}

}  // namespace holdfast
