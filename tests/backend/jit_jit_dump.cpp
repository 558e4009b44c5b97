// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/jit/jit_dump.hpp"

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "holdfast/backend/jit/memory_mapper.hpp"
#include "support/jit.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
std::string dump_path(const std::string& directory) { return directory + "/jit-" + std::to_string(getpid()) + ".dump"; }
template <class T>
T number_at(const std::string& bytes, std::size_t at) {
  REQUIRE(at + sizeof(T) <= bytes.size());
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
}  // namespace

TEST_CASE("jit_dump: header, one record for each piece of code with its bytes, and an end, as perf reads them") {
  const TemporaryFolder folder;
  const CodeFootprint before;
  {
    Result<JitDump> dump = JitDump::open(folder.path.c_str());
    REQUIRE(dump.ok());
    const std::vector<MapLine> marker = maps_named(dump_path(folder.path));
    REQUIRE(marker.size() == 1);
    CHECK(marker[0].access == "r-xp");
    const std::vector<std::byte> code = return_constant(42);
    CHECK(dump->add({"answer", code.data(), 6}).ok());
    CHECK(dump->add({"again", code.data(), 1}).ok());
    CHECK(dump->add({"none", nullptr, 1}).code == Errc::invalid_argument);
    CHECK(dump->add({"none", code.data(), -1}).code == Errc::invalid_argument);
    const std::string bytes = read_file(dump_path(folder.path));
    CHECK(number_at<std::uint32_t>(bytes, 0) == 0x4A695444);
    CHECK(number_at<std::uint32_t>(bytes, 4) == 1);
    CHECK(number_at<std::uint32_t>(bytes, 8) == 40);
    CHECK(number_at<std::uint32_t>(bytes, 20) == static_cast<std::uint32_t>(getpid()));
    std::size_t at = 40;
    CHECK(number_at<std::uint32_t>(bytes, at) == 0);
    CHECK(number_at<std::uint32_t>(bytes, at + 4) == 16 + 40 + 7 + 6);
    CHECK(number_at<std::uint64_t>(bytes, at + 8) >= number_at<std::uint64_t>(bytes, 24));
    CHECK(number_at<std::uint64_t>(bytes, at + 24) == reinterpret_cast<std::uint64_t>(code.data()));
    CHECK(number_at<std::uint64_t>(bytes, at + 32) == reinterpret_cast<std::uint64_t>(code.data()));
    CHECK(number_at<std::uint64_t>(bytes, at + 40) == 6);
    CHECK(number_at<std::uint64_t>(bytes, at + 48) == 0);
    CHECK(std::string(bytes.c_str() + at + 56) == "answer");
    CHECK(std::memcmp(bytes.data() + at + 63, code.data(), 6) == 0);
    at += 69;
    CHECK(number_at<std::uint64_t>(bytes, at + 48) == 1);
    CHECK(bytes.size() == at + 16 + 40 + 6 + 1);
  }
  const std::string bytes = read_file(dump_path(folder.path));
  CHECK(number_at<std::uint32_t>(bytes, bytes.size() - 16) == 3);
  CHECK(CodeFootprint() == before);
  CHECK(maps_named(dump_path(folder.path)).empty());
  CHECK(JitDump::open("/no/such/folder").error().code == Errc::not_found);
  CHECK(run_child([&] {
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_FSIZE, &none) != 0) return 1;
    const Result<JitDump> refused = JitDump::open(folder.path.c_str());
    return !refused.ok() && refused.error().code == Errc::over_budget ? 0 : 2;
  }) == 0);
}

TEST_CASE("jit_dump: code that perf samples (the child of the next case)") {
  unsigned char code[] = {0xB9, 0, 0, 0, 0, 0xFF, 0xC9, 0x75, 0xFC, 0xC3};  // a loop, as in jit_perf_map.cpp
  const char* there = std::getenv("HOLDFAST_UNDER_PERF");
  const std::uint32_t turns = there != nullptr ? 1'500'000'000u : 10u;
  std::memcpy(code + 1, &turns, 4);
  MemoryMapper mapper({MapMode::dual_memfd, CodeFile::memfd}, MappingName::make("perf", "2"));
  CodeBlock block = sealed_code(mapper, code, sizeof code);
  const TemporaryFolder folder;
  Result<JitDump> dump = JitDump::open(there != nullptr ? there : folder.path.c_str());
  REQUIRE(dump.ok());
  CHECK(dump->add({"holdfast_dumped_loop", block.run + entry, sizeof code}).ok());
  call_at(block.run + entry);
  mapper.release(block);
}

TEST_CASE("jit_dump: perf inject and perf report name code that is mapped twice") {
  if (quick()) return;
  const TemporaryFolder folder;
  const std::string in = "cd " + folder.path + " && ";
  const std::string record = in + "HOLDFAST_UNDER_PERF=. timeout 60 perf record -q -k mono -e cpu-clock -F 499 -o perf.data " + self_path() +
                             " -tc='jit_dump: code that perf samples*' >/dev/null 2>&1";
  if (std::system("command -v perf >/dev/null 2>&1") != 0 || std::system(record.c_str()) != 0) return skip_case("perf cannot record here");
  if (std::system((in + "HOME=. JITDUMPDIR=. timeout 60 perf inject --jit -i perf.data -o injected.data >/dev/null 2>&1").c_str()) != 0)
    return skip_case("perf cannot inject here");
  REQUIRE(std::system((in + "perf report --stdio --sort symbol -i injected.data 2>/dev/null >report").c_str()) == 0);
  const std::string text = read_file(folder.path + "/report");
  if (text.find('%') == std::string::npos) return skip_case("perf took no samples here");
  CHECK_MESSAGE(text.find("holdfast_dumped_loop") != std::string::npos, text);
}
