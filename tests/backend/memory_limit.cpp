// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/host/memory_limit.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "holdfast/backend/host/page_source.hpp"

using namespace holdfast;

namespace {

// Files as a test wants them.
struct Files {
  std::map<std::string, std::string> text;
  std::vector<std::string> asked;
  std::string_view read(const char* path, std::span<char> into) noexcept {
    asked.push_back(path);
    const auto found = text.find(path);
    if (found == text.end()) return {};
    const std::size_t n = std::min(into.size(), found->second.size());
    std::memcpy(into.data(), found->second.data(), n);
    return {into.data(), n};
  }
};

void check_room(Files files, Bytes bytes, LimitSource source) {
  const MemoryRoom room = memory_room(files);
  CHECK(room.bytes == bytes);
  CHECK(room.source == source);
}

const std::string meminfo = "MemTotal:       24684084 kB\nMemFree:  100 kB\nMemAvailable:   20000 kB\nBuffers: 1 kB\n";

}  // namespace

static_assert(detail::number_at("123\n") == 123 && detail::number_at("99999999999999999999999 kB") == max_bytes);
static_assert(detail::number_at("max\n") == -1 && detail::number_at("12") == -1 && detail::number_at("") == -1);
static_assert(detail::number_at("-1\n") == -1 && detail::number_at("1x\n") == -1);
static_assert(detail::number_after("a 1\nab 2\nb 3\n", "b ") == 3 && detail::number_after("xb 1\n", "b ") == -1);
static_assert(detail::memory_group("1:cpu:/x\n4:cpuset,memory:/a/b\n0::/c\n").path == "/a/b");
static_assert(detail::memory_group("4:memory,hugetlb:/a\n").first_version && detail::memory_group("4:x,memory,y:/a\n").first_version);
static_assert(detail::memory_group("4:mymemory:/a\n0::/user.slice/x:y\n").path == "/user.slice/x:y");
static_assert(!detail::memory_group("0::/a\n").first_version && detail::memory_group("0::/a").path.empty());
static_assert(detail::memory_group("0::/../other\n").path == "/" && detail::memory_group("0::\n").path == "/");

TEST_CASE("memory_limit: without a control group the room is what the system has available; without that, it is unknown") {
  check_room({}, max_bytes, LimitSource::none);
  check_room({{{"/proc/meminfo", meminfo}}, {}}, 20'480'000, LimitSource::system);
  check_room({{{"/proc/meminfo", "MemTotal: 5 kB\n"}}, {}}, max_bytes, LimitSource::none);
  check_room({{{"/proc/meminfo", "MemAvailable: 9223372036854775807 kB\n"}}, {}}, max_bytes, LimitSource::none);
}

TEST_CASE("memory_limit: a group of version 2 leaves its limit less what it uses, idle file cache not counted") {
  Files files{{{"/proc/meminfo", meminfo},
               {"/proc/self/cgroup", "0::/job/task\n"},
               {"/sys/fs/cgroup/job/task/memory.max", "10000000\n"},
               {"/sys/fs/cgroup/job/task/memory.current", "4000000\n"},
               {"/sys/fs/cgroup/job/task/memory.stat", "anon 5\nfile 7\ninactive_file 1000000\n"}},
              {}};
  check_room(files, 7'000'000, LimitSource::cgroup);
  files.text["/sys/fs/cgroup/job/task/memory.stat"] = "";
  check_room(files, 6'000'000, LimitSource::cgroup);
  files.text["/sys/fs/cgroup/job/task/memory.current"] = "10000001\n";
  check_room(files, 0, LimitSource::cgroup);
  files.text["/sys/fs/cgroup/job/task/memory.stat"] = "inactive_file 99999999999\n";
  check_room(files, 10'000'000, LimitSource::cgroup);
  files.text["/sys/fs/cgroup/job/task/memory.max"] = "max\n";
  check_room(files, 20'480'000, LimitSource::system);
}

TEST_CASE("memory_limit: the tightest of the groups above counts, up to the root, which a container sees as its own") {
  Files files{{{"/proc/meminfo", meminfo},
               {"/proc/self/cgroup", "0::/a/b/c\n"},
               {"/sys/fs/cgroup/a/b/c/memory.max", "9000\n"},
               {"/sys/fs/cgroup/a/memory.max", "5000\n"},
               {"/sys/fs/cgroup/a/memory.current", "1000\n"},
               {"/sys/fs/cgroup/memory.max", "4500\n"}},
              {}};
  check_room(files, 4000, LimitSource::cgroup);
  files.text["/proc/self/cgroup"] = "0::/../../elsewhere\n";  // outside of the name space: the root is what can be seen
  check_room(files, 4500, LimitSource::cgroup);
  files.text["/proc/self/cgroup"] = "0::/\n";
  check_room(files, 4500, LimitSource::cgroup);
}

TEST_CASE("memory_limit: version 1 is read where the memory controller is its, and a limit near 2^63 is none") {
  Files files{{{"/proc/meminfo", meminfo},
               {"/proc/self/cgroup", "4:memory:/job\n0::/\n"},
               {"/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n"},
               {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "8000\n"},
               {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "3000\n"},
               {"/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n"},
               {"/sys/fs/cgroup/memory.max", "1\n"}},
              {}};
  check_room(files, 5500, LimitSource::cgroup);
}

TEST_CASE("memory_limit: hostile files are no limit, end, and lead nowhere else") {
  Files files{{{"/proc/meminfo", meminfo}}, {}};
  std::string deep;
  for (int i = 0; i < 400; ++i) deep += "/a";
  for (const std::string& group :
       {"0::" + deep + "\n", "0::/" + std::string(5000, 'x') + "\n", std::string("0::/a\0b\n", 8), std::string("::::\n\n:\n"),
        std::string("0::/x/../../etc\n"), std::string("4:memory\n"), std::string(100'000, '\n'), std::string("0::/a/")}) {
    files.text["/proc/self/cgroup"] = group;
    files.asked.clear();
    CHECK(memory_room(files).bytes == 20'480'000);
    CHECK(files.asked.size() <= 2 + 16);
    for (std::size_t i = 2; i < files.asked.size(); ++i) {
      CHECK(files.asked[i].starts_with("/sys/fs/cgroup/"));
      CHECK(files.asked[i].find("..") == std::string::npos);
      CHECK(files.asked[i].size() < 1024);
    }
  }
  std::mt19937 random(5);
  for (int round = 0; round < 20'000; ++round) {
    const std::string seed = "4:memory:/a/b\n0::/c\n", alphabet = "0:/memory,ax.\n \xff";
    std::string text = seed;
    for (int i = 0; i < 4; ++i) text[random() % text.size()] = alphabet[random() % alphabet.size()];
    files.text["/proc/self/cgroup"] = text;
    files.asked.clear();
    CHECK(memory_room(files).bytes == 20'480'000);
    for (std::size_t i = 2; i < files.asked.size(); ++i) CHECK(files.asked[i].starts_with("/sys/fs/cgroup/"));
  }
}

TEST_CASE("memory_limit: on this machine the room is no more than its memory, and files that are not there are empty") {
  SystemFiles files;
  char text[4096];
  CHECK(files.read("/nowhere/at/all", text).empty());
  CHECK(files.read("/proc/self", text).empty());  // a folder
  char few[4];
  CHECK(files.read("/proc/meminfo", few) == "MemT");
  const Bytes total = detail::number_after(files.read("/proc/meminfo", text), "MemTotal:");
  REQUIRE(total > 0);
  const MemoryRoom room = SystemPages{}.room();
  CHECK(room.source != LimitSource::none);
  CHECK(room.bytes > 0);
  CHECK(room.bytes <= total * 1024);
}
