// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/jit/fixup.hpp"

#include <doctest/doctest.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include "support/shared.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
FixupKind kind_of(std::string_view name) {
  for (int k = 0; k < 6; ++k)
    if (fixup_name(static_cast<FixupKind>(k)) == name) return static_cast<FixupKind>(k);
  FAIL("no kind ", std::string(name));
  return {};
}
}  // namespace

TEST_CASE("fixup: the table of what reaches and what does not; what does not is named and not written (cases/10 A)") {
  const std::string path = shared_path("cases/10-jit-section-reach/fixups.csv");
  if (path.empty()) return;
  const std::string text = read_file(path);
  int rows = 0;
  for (std::size_t at = text.find('\n') + 1; at < text.size(); at = text.find('\n', at) + 1) {
    char kind[16], expected[16];
    std::uint64_t site = 0, target = 0;
    std::int64_t value = 0;
    REQUIRE(std::sscanf(text.c_str() + at, "%15[^,],%" SCNx64 ",%" SCNx64 ",%" SCNd64 ",%15[a-z_]", kind, &site, &target, &value, expected) == 5);
    ++rows;
    CAPTURE(text.substr(at, text.find('\n', at) - at));
    const Fixup f{kind_of(kind), site, target, ".text", "callee"};
    std::byte place[8] = {};
    std::memset(place, 0x5A, sizeof place);
    const Result<std::int64_t> got = fixup_value(f);
    StringSink why;
    const Error e = apply_fixup(place, f, why);
    if (std::string_view(expected) == "ok") {
      REQUIRE(got.ok());
      CHECK(*got == value);
      CHECK(e.ok());
      CHECK(why.text.empty());
      std::int32_t word = 0;
      std::memcpy(&word, place, sizeof word);
      if (f.kind == FixupKind::delta32 || f.kind == FixupKind::pcrel32) CHECK(word == value);
      if (f.kind == FixupKind::addr32nb) CHECK(static_cast<std::uint32_t>(word) == static_cast<std::uint64_t>(value));
    } else {
      CHECK(got.error().code == Errc::invalid_argument);
      CHECK(!e.ok());
      for (const std::byte b : place) CHECK(b == std::byte{0x5A});
      char addresses[96];
      std::snprintf(addresses, sizeof addresses, "at 0x%016" PRIx64 " does not reach callee at 0x%016" PRIx64, site, target);
      CHECK(why.text == std::string(kind) + " in section .text " + addresses + "\n");
    }
  }
  CHECK(rows == 20);
}

TEST_CASE("fixup: AArch64 branches and pages change their own bits of the instruction only; 64 bits hold any address") {
  const auto word_after = [](std::uint32_t instruction, const Fixup& f) {
    std::byte at[4];
    std::memcpy(at, &instruction, 4);
    CHECK(apply_fixup(at, f).ok());
    std::memcpy(&instruction, at, 4);
    return instruction;
  };
  CHECK(word_after(0x94000000u, {FixupKind::branch26, 0x1000, 0x1010}) == 0x94000004u);   // bl .+16
  CHECK(word_after(0x94000000u, {FixupKind::branch26, 0x1010, 0x1000}) == 0x97FFFFFCu);   // bl .-16
  CHECK(word_after(0x90000001u, {FixupKind::page21, 0x10FF0, 0x13010}) == 0xF0000001u);   // adrp x1, .+3 pages
  CHECK(word_after(0x90000001u, {FixupKind::page21, 0x1000, 0x5000}) == 0x90000021u);     // adrp x1, .+4 pages
  CHECK(word_after(0x90000001u, {FixupKind::page21, 0x5000, 0x4000}) == 0xF0FFFFE1u);     // adrp x1, .-1 page
  std::byte at[8];
  CHECK(apply_fixup(at, {FixupKind::absolute64, 0, 0xFEDCBA9876543210u}).ok());
  std::uint64_t stored = 0;
  std::memcpy(&stored, at, 8);
  CHECK(stored == 0xFEDCBA9876543210u);
  CHECK(fixup_size(FixupKind::absolute64) == 8);
  CHECK(fixup_size(FixupKind::page21) == 4);
}
