// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/jit/contiguous_sections.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
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
constexpr Backing ways[] = {{MapMode::dual_memfd, CodeFile::memfd}, {MapMode::mprotect_anon, CodeFile::none}, {MapMode::mprotect_memfd, CodeFile::memfd}};
constexpr ReserveOptions bare{.guards = false};

// Counts, and looks whether the frames can still be read when they are taken back.
struct CountedFrames {
  static inline int live = 0, added = 0;
  static void add(std::byte*) noexcept { ++live, ++added; }
  static void remove(std::byte* frames) noexcept {
    CHECK(!access_at(frames).empty());
    --live;
  }
};
using Sections = ContiguousSections<Mapper>;
using CountedSections = ContiguousSections<Mapper, ProtectAsMapped, CountedFrames>;

// Code that returns a constant from a read-only section plus one from a data section, through relocations.
template <class S>
Error build_sum(S& sections, std::byte*& run) {
  Result<Section> code = sections.allocate(SectionKind::code, 64 + 13, 64, 1, ".text");
  if (!code.ok()) return code.error();
  Result<Section> constant = sections.allocate(SectionKind::read_only, 4, 4, 2, ".rodata");
  if (!constant.ok()) return constant.error();
  Result<Section> data = sections.allocate(SectionKind::read_write, 4, 4, 3, ".data");
  if (!data.ok()) return data.error();
  const unsigned char text[] = {0x8B, 0x05, 0, 0, 0, 0, 0x03, 0x05, 0, 0, 0, 0, 0xC3};  // mov eax,[rip+d]; add eax,[rip+d]; ret
  std::memcpy(code->write + entry, text, sizeof text);
  const int forty = 40, two = 2;
  std::memcpy(constant->write, &forty, 4);
  std::memcpy(data->write, &two, 4);
  if (Error e = sections.apply(*code, entry + 2, FixupKind::pcrel32, reinterpret_cast<std::uint64_t>(constant->run)); !e.ok()) return e;
  if (Error e = sections.apply(*code, entry + 8, FixupKind::pcrel32, reinterpret_cast<std::uint64_t>(data->run)); !e.ok()) return e;
  run = code->run + entry;
  return sections.finalise();
}
}  // namespace

TEST_CASE("contiguous_sections: the sizes of 4.2 map 16384 bytes in the order code, read-only, read-write (SM1)") {
  Mapper mapper({MapMode::mprotect_anon, CodeFile::none});
  Sections sections(mapper);
  REQUIRE(sections.reserve({.code = {5000, 16}, .read_only = {100, 64}, .read_write = {0, 1}}, bare).ok());
  CHECK(sections.reservation().size == 16384);
  CHECK(mapper.statistics().live == 16384);
  const std::byte* base = sections.reservation().data;
  CHECK(sections.segment(SectionKind::code).run == base);
  CHECK(sections.segment(SectionKind::read_only).run == base + 8192);
  CHECK(sections.segment(SectionKind::read_write).run == base + 12288);
  // SM7
  CHECK(status_kind(sections.reserve({}, bare)) == StatusKind::failed_precondition);
  CHECK(sections.state() == Sections::State::reserved);
  // SM3, SM8
  Result<Section> a = sections.allocate(SectionKind::code, 100, 64, 1, ".text"), b = sections.allocate(SectionKind::code, 10, 16, 2, ".text.unlikely");
  REQUIRE((a.ok() && b.ok()));
  CHECK(a->run - base == 0);
  CHECK(b->run - base == 112);
  CHECK(b->id == 2);
  CHECK(std::string_view(b->name) == ".text.unlikely");
  const Result<Section> empty = sections.allocate(SectionKind::read_write, 0, 64);
  REQUIRE(empty.ok());
  CHECK(empty->run != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(empty->run) % 64 == 0);
  CHECK(sections.allocate(SectionKind::read_write, 4096, 1)->run == base + 12288);  // it took no room
  CHECK(sections.allocate(SectionKind::read_write, 0, 4096)->run != nullptr);       // nor asks for any
  // SM4
  const Result<Section> large = sections.allocate(SectionKind::read_only, 4097, 1);
  CHECK(status_kind(large.error()) == StatusKind::resource_exhausted);
  CHECK(large.error().requested == 4097);
  CHECK(large.error().available == 4096);
  CHECK(says(large.error(), "the read-only segment is full"));
  CHECK(sections.allocate(SectionKind::read_only, 4096, 1)->run == base + 8192);
  CHECK(sections.allocate(SectionKind::code, 1, 3).error().code == Errc::invalid_argument);
  CHECK(sections.allocate(SectionKind::code, -1, 1).error().code == Errc::invalid_argument);
  CHECK(status_kind(sections.allocate(SectionKind::code, max_bytes, 1).error()) == StatusKind::resource_exhausted);
  CHECK(status_kind(sections.allocate(SectionKind::code, 1, Bytes{1} << 62).error()) == StatusKind::resource_exhausted);
  int shown = 0;
  sections.visit_sections([&](const Section&) { ++shown; });
  CHECK(shown == 6);
}

TEST_CASE("contiguous_sections: the layout of a reservation, and a third code section stays in it (cases/10 B, C)") {
  constexpr SectionRequest code[] = {{1000, 16}, {4097, 64}}, read_only[] = {{10, 1}}, data[] = {{8192, 4096}};
  constexpr SectionSizes sizes{*total_of(code), *total_of(read_only), *total_of(data)};
  static_assert(sizes.code.size == 5121 && sizes.code.alignment == 64);
  for (const Backing way : ways) {
    const CodeFootprint before;
    Mapper mapper(way, MappingName::make("cases10", "B"));
    Sections sections(mapper);
    REQUIRE(sections.reserve(sizes, bare).ok());
    const std::byte* base = sections.reservation().data;
    CHECK(sections.reservation().size == 20480);
    CHECK(sections.allocate(SectionKind::code, 1000, 16)->run - base == 0);
    CHECK(sections.allocate(SectionKind::code, 4097, 64)->run - base == 1024);
    CHECK(sections.allocate(SectionKind::read_only, 10, 1)->run - base == 8192);
    CHECK(sections.allocate(SectionKind::read_write, 8192, 4096)->run - base == 12288);
    CHECK(status_kind(sections.allocate(SectionKind::code, 4096, 1).error()) == StatusKind::resource_exhausted);
    CHECK(sections.allocate(SectionKind::code, 3000, 1)->run - base == 5121);  // what fits is placed inside
    CHECK(!any_writable_and_executable());
    REQUIRE(sections.finalise().ok());
    CHECK(access_at(base).starts_with("r-x"));
    CHECK(access_at(base + 4096).starts_with("r-x"));
    CHECK(access_at(base + 8192) == "r--p");
    CHECK(access_at(base + 12288) == "rw-p");
    CHECK(access_at(base + 16384) == "rw-p");
    CHECK(!any_writable_and_executable());
    sections.release();
    CHECK(CodeFootprint() == before);
  }
}

TEST_CASE("contiguous_sections: sizes that have no sum, 2 GiB and more, and strange alignments map nothing (SM9, cases/10 D)") {
  const SectionRequest huge[] = {{static_cast<Bytes>(std::uint64_t{1} << 63), 1}, {static_cast<Bytes>(std::uint64_t{1} << 63), 1}};
  CHECK(total_of(huge).error().code == Errc::invalid_argument);
  const SectionRequest large[] = {{max_bytes, 1}, {1, 1}};
  CHECK(total_of(large).error().code == Errc::invalid_argument);
  const SectionRequest odd[] = {{1, 3}};
  CHECK(total_of(odd).error().code == Errc::invalid_argument);
  call_log = {};
  Mapper mapper({MapMode::mprotect_anon, CodeFile::none});
  for (const SectionSizes& sizes : {SectionSizes{{Sections::limit, 1}, {}, {}}, SectionSizes{{Sections::limit - 8192, 1}, {}, {}},
                                    SectionSizes{{max_bytes, 1}, {max_bytes, 1}, {max_bytes, 1}}, SectionSizes{{-1, 1}, {}, {}},
                                    SectionSizes{{1, 0}, {}, {}}, SectionSizes{{1, 24}, {}, {}}, SectionSizes{{1, 2_GiB}, {}, {}},
                                    SectionSizes{{1, 1_GiB}, {1, 1_GiB}, {1, 1_GiB}}}) {
    Sections sections(mapper);
    CHECK(status_kind(sections.reserve(sizes, bare)) == StatusKind::invalid_argument);
    CHECK(sections.state() == Sections::State::empty);
  }
  CHECK(call_log.calls == 0);
  Sections sections(mapper);
  CHECK(sections.reserve({{1, 1_GiB}, {1, 1}, {1, 1}}, bare).ok());
  CHECK(reinterpret_cast<std::uintptr_t>(sections.reservation().data) % (1 << 30) == 0);
}

TEST_CASE("contiguous_sections: an alignment above a page is kept, with guards and without (SM2)") {
  for (const Backing way : ways)
    for (const bool guards : {false, true}) {
      Mapper mapper(way);
      Sections sections(mapper);
      REQUIRE(sections.reserve({{100, 8192}, {100, 16384}, {100, 1}}, {.guards = guards}).ok());
      const auto at = [](Result<Section> s) { return reinterpret_cast<std::uintptr_t>(s->run); };
      CHECK(at(sections.allocate(SectionKind::code, 100, 8192)) % 8192 == 0);
      CHECK(at(sections.allocate(SectionKind::read_only, 100, 16384)) % 16384 == 0);
    }
}

TEST_CASE("contiguous_sections: guard pages stand before, between and after the kinds, and cost four pages") {
  Mapper mapper({MapMode::dual_memfd, CodeFile::memfd});
  Sections sections(mapper);
  REQUIRE(sections.reserve({{1, 1}, {1, 1}, {1, 1}}).ok());
  CHECK(sections.reservation().size == 7 * 4096);
  const std::byte* base = sections.reservation().data;
  for (int page = 0; page < 7; page += 2) CHECK(access_at(base + page * 4096) == "---p");
  for (int page = 1; page < 7; page += 2) CHECK(access_at(base + page * 4096).starts_with("r"));
}

TEST_CASE("contiguous_sections: relocated code runs in every mode, and no page is ever writable and executable (SM5, SM12)") {
  call_log = {};
  const CodeFootprint before;
  for (const Backing way : ways) {
    Mapper mapper(way, MappingName::make("sum", "1"));
    Sections sections(mapper);
    CHECK(sections.finalise().code == Errc::wrong_state);
    CHECK(sections.allocate(SectionKind::code, 1, 1).error().code == Errc::wrong_state);
    REQUIRE(sections.reserve({{200, 64}, {4, 4}, {4, 4}}).ok());
    CHECK(!any_writable_and_executable());
    CHECK(access_at(sections.segment(SectionKind::code).run).find('x') == std::string::npos);
    std::byte* run = nullptr;
    REQUIRE(build_sum(sections, run).ok());
    CHECK(!any_writable_and_executable());
    CHECK(access_at(run).starts_with("r-x"));
    CHECK(access_at(sections.segment(SectionKind::read_only).run).starts_with("r--"));
    CHECK(access_at(sections.segment(SectionKind::read_write).run).starts_with("rw-"));
    if (way.file == CodeFile::memfd) {
      CHECK(name_at(run) == "/memfd:jit:sum:1 (deleted)");
      CHECK(maps_named("jit:sum:1").size() == 1);  // no view to write through is left
    }
    CHECK(call_at(run) == 42);
    CHECK(sections.finalise().code == Errc::wrong_state);
    CHECK(sections.allocate(SectionKind::code, 1, 1).error().code == Errc::wrong_state);
    CHECK(run_child([&] { return *static_cast<volatile std::byte*>(run) = std::byte{0}, 0; }) == -SIGSEGV);  // SM11
    sections.release();
    CHECK(sections.state() == Sections::State::released);
    CHECK(sections.reserve({}).code == Errc::wrong_state);
    sections.release();
  }
  CHECK(CodeFootprint() == before);
}

TEST_CASE("contiguous_sections: when a protection fails, nothing is executable and all is as before; then it works (SM6)") {
  for (const Backing way : ways)
    for (const bool code_fails : {false, true}) {
      call_log = {};
      Mapper mapper(way);
      Sections sections(mapper);
      REQUIRE(sections.reserve({{200, 64}, {4, 4}, {4, 4}}).ok());
      (code_fails ? call_log.execute_error : call_log.read_only_error) = EACCES;
      std::byte* run = nullptr;
      const Error e = build_sum(sections, run);
      CHECK(e.code == Errc::permission_denied);
      CHECK(e.native == EACCES);
      CHECK(access_at(run).find('x') == std::string::npos);
      CHECK(access_at(sections.segment(SectionKind::read_only).run) == "rw-p");
      CHECK(sections.state() == Sections::State::reserved);
      call_log = {};
      CHECK(sections.finalise().ok());
      CHECK(call_at(run) == 42);
    }
}

TEST_CASE("contiguous_sections: a relocation that does not reach is named, nothing is written, the memory goes back (cases/10)") {
  call_log = {};
  const CodeFootprint before;
  {
    Mapper mapper({MapMode::dual_memfd, CodeFile::memfd});
    Sections sections(mapper);
    REQUIRE(sections.reserve({{64, 64}, {0, 1}, {0, 1}}).ok());
    const Result<Section> code = sections.allocate(SectionKind::code, 64, 64, 1, ".text");
    REQUIRE(code.ok());
    StringSink why;
    const auto far = reinterpret_cast<std::uint64_t>(code->run) + (std::uint64_t{1} << 31) + 4;
    CHECK(sections.apply(*code, 0, FixupKind::pcrel32, far, "far_away", why).code == Errc::invalid_argument);
    CHECK(why.text.find("pcrel32 in section .text at 0x") == 0);
    CHECK(why.text.find("does not reach far_away at 0x") != std::string::npos);
    CHECK(code->write[0] == std::byte{0});
    CHECK(sections.apply(*code, 0, FixupKind::pcrel32, far - 1).ok());
    CHECK(sections.apply(*code, 61, FixupKind::pcrel32, 0).code == Errc::invalid_argument);
    CHECK(sections.apply(*code, -1, FixupKind::pcrel32, 0).code == Errc::invalid_argument);
    CHECK(sections.apply(*code, 57, FixupKind::absolute64, 0).code == Errc::invalid_argument);
    CHECK(sections.apply(*code, 60, FixupKind::addr32nb, reinterpret_cast<std::uint64_t>(code->run)).ok());  // from the image's base
    CHECK(code->write[61] == std::byte{0x10});  // a guard page
  }
  CHECK(CodeFootprint() == before);
}

TEST_CASE("contiguous_sections: call frames are registered once and taken back before the memory goes (SM10)") {
  Mapper mapper({MapMode::mprotect_anon, CodeFile::none});
  CountedSections sections(mapper);
  std::byte elsewhere[8] = {};
  CHECK(sections.register_frames(elsewhere, 8).code == Errc::wrong_state);
  REQUIRE(sections.reserve({{1, 1}, {100, 8}, {1, 1}}).ok());
  std::byte* frames[3];
  for (std::byte*& f : frames) f = sections.allocate(SectionKind::read_only, 8, 8, 0, ".eh_frame")->run;  // zeros: an end and no more
  CountedFrames::live = CountedFrames::added = 0;
  for (std::byte* f : frames) CHECK(sections.register_frames(f, 8).ok());
  CHECK(CountedFrames::live == 3);
  CHECK(sections.register_frames(frames[1], 8).code == Errc::already_exists);
  CHECK(sections.register_frames(elsewhere, 8).code == Errc::invalid_argument);
  CHECK(sections.register_frames(frames[0] - 8, max_bytes).code == Errc::invalid_argument);
  CHECK(CountedFrames::live == 3);
  CHECK(sections.frames().registered == 3);
  CHECK(sections.frames().twice == 1);
  sections.release();
  CHECK(CountedFrames::live == 0);
  CHECK(CountedFrames::added == 3);
  CHECK(sections.frames().leftover == 3);
}

TEST_CASE("contiguous_sections: an exception passes through code of the arena (SM10)") {
  for (const Backing way : ways) {
    call_log = {};
    MemoryMapper mapper(way);
    ContiguousSections<> sections(mapper);
    REQUIRE(sections.reserve({{128, 64}, {128, 8}, {0, 1}}).ok());
    const Result<Section> code = sections.allocate(SectionKind::code, 128, 64, 1, ".text");
    const Result<Section> frame = sections.allocate(SectionKind::read_only, 64, 8, 2, ".eh_frame");
    REQUIRE((code.ok() && frame.ok()));
    // sub rsp,8; movabs rax, thrower; call rax; add rsp,8; ret
    const unsigned char text[] = {0x48, 0x83, 0xEC, 8, 0x48, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xD0, 0x48, 0x83, 0xC4, 8, 0xC3};
    std::memcpy(code->write + entry, text, sizeof text);
    void (*thrower)() = [] { throw std::runtime_error("through"); };
    REQUIRE(sections.apply(*code, entry + 6, FixupKind::absolute64, reinterpret_cast<std::uint64_t>(thrower)).ok());
    // A CIE (absolute pointers; CFA = rsp + 8, return address at CFA - 8) and an FDE (after 4 bytes CFA = rsp + 16).
    unsigned char f[64] = {20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0, 0x0C, 7, 8, 0x90, 1, 0, 0,
                           28, 0, 0, 0, 28, 0, 0, 0};
    const auto begin = reinterpret_cast<std::uint64_t>(code->run + entry), length = std::uint64_t{sizeof text};
    std::memcpy(f + 32, &begin, 8);
    std::memcpy(f + 40, &length, 8);
    f[49] = 0x44, f[50] = 0x0E, f[51] = 16;
    std::memcpy(frame->write, f, sizeof f);
    REQUIRE(sections.register_frames(frame->run, 64).ok());
    REQUIRE(sections.finalise().ok());
    bool caught = false;
    try {
      call_at(code->run + entry);
    } catch (const std::runtime_error& e) {
      caught = std::string_view(e.what()) == "through";
    }
    CHECK(caught);
    sections.release();
  }
}

TEST_CASE("contiguous_sections: an arena near the program reaches it with 32 bits; one of many objects starts at 2 MiB") {
  MemoryMapper mapper({MapMode::mprotect_anon, CodeFile::none});
  const auto* here = reinterpret_cast<const void*>(&call_at);
  ContiguousSections<> near(mapper);
  REQUIRE(near.reserve({{100, 16}, {100, 16}, {100, 16}}, {.near = here}).ok());
  CHECK(near.distance(here) < Bytes{1} << 31);
  ContiguousSections<> many(mapper);
  REQUIRE(many.reserve({{4_MiB, 16}, {100, 16}, {100, 16}}, {.huge_pages = true}).ok());
  CHECK(reinterpret_cast<std::uintptr_t>(many.segment(SectionKind::code).run) % (1 << 21) == 0);
  std::vector<std::byte*> objects;  // objects share the pages: one arena, one sealing
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const Result<Section> s = many.allocate(SectionKind::code, 80, 16, i, "object");
    REQUIRE(s.ok());
    const std::vector<std::byte> code = return_constant(i);
    std::memcpy(s->write + entry, code.data(), code.size());
    objects.push_back(s->run + entry);
  }
  REQUIRE(many.finalise().ok());
  for (std::size_t i = 0; i < objects.size(); ++i) CHECK(call_at(objects[i]) == static_cast<int>(i));
}

TEST_CASE("contiguous_sections: code that is protected for ever keeps its protection, whoever asks, where the kernel has mseal") {
  check_child_status(run_child([] {
    MemoryMapper mapper({MapMode::dual_memfd, CodeFile::memfd});
    ContiguousSections<MemoryMapper, ProtectForever> sections(mapper);
    if (!sections.reserve({{200, 64}, {4, 4}, {4, 4}}).ok()) return 1;
    std::byte* run = nullptr;
    if (!build_sum(sections, run).ok()) return 2;
    if (SystemCalls::seal_pages(sections.segment(SectionKind::read_only).run, 4096) != 0) return 77;
    if (SystemCalls::protect(sections.segment(SectionKind::code).run, 4096, PROT_READ) != EPERM) return 3;
    if (call_at(run) != 42) return 4;
    sections.release();  // the kernel keeps it: counted, not hidden
    if (mapper.statistics().failures != 1 || mapper.statistics().blocks != 1) return 5;
    return call_at(run) == 42 ? 0 : 6;
  }));
}

TEST_CASE("contiguous_sections: a fault at every call leaks nothing and leaves nothing executable") {
  for (const Backing way : ways)
    for (const bool ever_after : {false, true}) {
      const auto attempt = [&] {
        Mapper mapper(way, MappingName::make("fault", "2"));
        CountedSections sections(mapper);
        if (Error e = sections.reserve({{200, 64}, {4, 4}, {4, 4}}); !e.ok()) return e;
        std::byte* run = nullptr;
        Error e = build_sum(sections, run);
        if (!e.ok()) CHECK(access_at(run).find('x') == std::string::npos);
        return e;
      };
      call_log = {};
      REQUIRE(attempt().ok());
      const long calls = call_log.calls;
      CHECK(calls >= 6);
      for (long n = 1; n <= calls; ++n) {
        CAPTURE(n);
        const CodeFootprint before;
        call_log = {};
        call_log.fail_at = n;
        call_log.fail_after = ever_after;
        CHECK(!attempt().ok());
        CHECK(call_log.open.empty());
        CHECK(CodeFootprint() == before);
      }
    }
  call_log = {};
}
