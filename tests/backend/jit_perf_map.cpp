// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/jit/perf_map.hpp"

#include <doctest/doctest.h>

#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "holdfast/backend/jit/contiguous_sections.hpp"
#include "support/jit.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
std::string map_path(const std::string& directory) { return directory + "/perf-" + std::to_string(getpid()) + ".map"; }
}  // namespace

TEST_CASE("perf_map: a line for each piece of code, start and size in hexadecimal without 0x, and the names of sections") {
  const TemporaryFolder folder;
  const int descriptors = count_descriptors();
  MemoryMapper mapper({MapMode::mprotect_anon, CodeFile::none});
  ContiguousSections<> sections(mapper);
  REQUIRE(sections.reserve({{300, 16}, {0, 1}, {0, 1}}).ok());
  const std::byte* a = sections.allocate(SectionKind::code, 100, 16, 1, ".text.axpy")->run;
  const std::byte* b = sections.allocate(SectionKind::code, 28, 16, 2, ".text.dot")->run;
  REQUIRE(sections.allocate(SectionKind::read_only, 8, 8, 3, ".rodata").ok());
  REQUIRE(sections.finalise().ok());
  {
    Result<PerfMap> map = PerfMap::open(folder.path.c_str());
    REQUIRE(map.ok());
    CHECK(write_sections(sections, *map).ok());
    CHECK(map->add({"multi word\nname", a, 16}).ok());
    CHECK(map->add({std::string(1000, 'n'), b, 1}).ok());
    CHECK(map->add({"none", nullptr, 16}).code == Errc::invalid_argument);
    CHECK(map->add({"none", a, 0}).code == Errc::invalid_argument);
  }
  sections.release();  // the names stay
  const std::string text = read_file(map_path(folder.path));
  char expected[256];
  std::snprintf(expected, sizeof expected, "%lx 64 .text.axpy\n%lx 1c .text.dot\n%lx 10 multi word_name\n%lx 1 nnn", reinterpret_cast<unsigned long>(a),
                reinterpret_cast<unsigned long>(b), reinterpret_cast<unsigned long>(a), reinterpret_cast<unsigned long>(b));
  CHECK(text.starts_with(expected));
  CHECK(text.ends_with("n\n"));
  {
    Result<PerfMap> again = PerfMap::open(folder.path.c_str());
    REQUIRE(again.ok());
    CHECK(again->add({"more", a, 1}).ok());
  }
  CHECK(read_file(map_path(folder.path)).size() > text.size());
  CHECK(count_descriptors() == descriptors);
}

TEST_CASE("perf_map: no link is followed, no other's file is written, and a file-size limit is an error, not a signal") {
  const TemporaryFolder folder;
  const std::string path = map_path(folder.path);
  const std::string target = folder.path + "/target";
  REQUIRE(symlink(target.c_str(), path.c_str()) == 0);
  CHECK(PerfMap::open(folder.path.c_str()).error().code == Errc::permission_denied);
  CHECK(access(target.c_str(), F_OK) != 0);
  unlink(path.c_str());
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK(PerfMap::open(folder.path.c_str()).error().code == Errc::permission_denied);
  unlink(path.c_str());
  CHECK(PerfMap::open("/no/such/folder").error().code == Errc::not_found);
  CHECK(run_child([&] {
    Result<PerfMap> map = PerfMap::open(folder.path.c_str());
    const rlimit little{40, 40};
    if (!map.ok() || setrlimit(RLIMIT_FSIZE, &little) != 0) return 1;
    if (!map->add({"short", &entry_byte, 1}).ok()) return 2;
    const Error e = map->add({"a name that is too long for what is left", &entry_byte, 1});
    return e.code == Errc::over_budget && e.native == EFBIG ? 0 : 3;
  }) == 0);
}

TEST_CASE("perf_map: code that perf samples (the child of the next case)") {
  // mov ecx, n; loop: dec ecx; jnz loop; ret
  unsigned char code[] = {0xB9, 0, 0, 0, 0, 0xFF, 0xC9, 0x75, 0xFC, 0xC3};
  const char* there = std::getenv("HOLDFAST_UNDER_PERF");
  const std::uint32_t turns = there != nullptr ? 1'500'000'000u : 10u;
  std::memcpy(code + 1, &turns, 4);
  MemoryMapper mapper({MapMode::mprotect_anon, CodeFile::none}, MappingName::make("perf", "1"));
  CodeBlock block = sealed_code(mapper, code, sizeof code);
  const TemporaryFolder folder;
  const std::string directory = there != nullptr ? "/tmp" : folder.path;  // the one where perf looks
  Result<PerfMap> map = PerfMap::open(directory.c_str());
  REQUIRE(map.ok());
  if (there != nullptr) REQUIRE(symlink(map_path(directory).c_str(), (std::string(there) + "/map").c_str()) == 0);
  CHECK(map->add({"holdfast_hot_loop", block.run + entry, sizeof code}).ok());
  call_at(block.run + entry);
  mapper.release(block);
}

TEST_CASE("perf_map: perf report names the code") {
  if (quick()) return;
  const TemporaryFolder folder;
  const std::string data = folder.path + "/perf.data", output = folder.path + "/report";
  const std::string record = "HOLDFAST_UNDER_PERF=" + folder.path + " timeout 60 perf record -q -e cpu-clock -F 499 -o " + data + " " + self_path() +
                             " -tc='perf_map: code that perf samples*' >/dev/null 2>&1";
  if (std::system("command -v perf >/dev/null 2>&1") != 0 || std::system(record.c_str()) != 0) return skip_case("perf cannot record here");
  REQUIRE(std::system(("perf report --stdio --sort symbol -i " + data + " 2>/dev/null >" + output).c_str()) == 0);
  char made[256] = {};
  if (readlink((folder.path + "/map").c_str(), made, sizeof made - 1) > 0) unlink(made);
  const std::string text = read_file(output);
  if (text.find('%') == std::string::npos) return skip_case("perf took no samples here");
  CHECK_MESSAGE(text.find("holdfast_hot_loop") != std::string::npos, text);
}
