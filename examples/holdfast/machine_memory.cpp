// SPDX-License-Identifier: Apache-2.0
#include "machine_memory.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace program {

namespace {

using holdfast::Bytes;
using holdfast::max_bytes;

/// The number in a file of one line; `max_bytes` when there is none, as in `max`.
Bytes number_in(const std::string& path) {
  std::FILE* f = std::fopen(path.c_str(), "r");
  char line[64] = {};
  const bool read = f != nullptr && std::fgets(line, sizeof line, f) != nullptr;
  if (f != nullptr) std::fclose(f);
  char* end = line;
  const unsigned long long n = read ? std::strtoull(line, &end, 10) : 0;
  return end == line || n > static_cast<unsigned long long>(max_bytes) ? max_bytes
                                                                       : static_cast<Bytes>(n);
}

Bytes machine_available() {
  std::FILE* f = std::fopen("/proc/meminfo", "r");
  if (f == nullptr) return max_bytes;
  char line[128];
  Bytes kib = max_bytes >> 10;
  while (std::fgets(line, sizeof line, f) != nullptr)
    if (std::strncmp(line, "MemAvailable:", 13) == 0) kib = std::atoll(line + 13);
  std::fclose(f);
  return kib << 10;
}

/// What is left below a limit of a group or of any group around it.
Bytes left_in(std::string root, std::string group, const char* limit, const char* used) {
  Bytes least = max_bytes;
  for (;;) {
    const Bytes most = number_in(root + group + "/" + limit);
    if (most != max_bytes) {
      const Bytes now = number_in(root + group + "/" + used);
      least = std::min(least, now == max_bytes || now > most ? Bytes{0} : most - now);
    }
    if (group.empty()) return least;
    group.resize(group.find_last_of('/') == std::string::npos ? 0 : group.find_last_of('/'));
  }
}

}  // namespace

holdfast::Bytes available_memory() {
  Bytes least = machine_available();
  std::FILE* f = std::fopen("/proc/self/cgroup", "r");
  if (f == nullptr) return least;
  char line[4096];
  while (std::fgets(line, sizeof line, f) != nullptr) {
    line[std::strcspn(line, "\n")] = '\0';
    char* const controllers = std::strchr(line, ':');
    char* const path = controllers != nullptr ? std::strchr(controllers + 1, ':') : nullptr;
    if (path == nullptr) continue;
    *path = '\0';
    const std::string group = std::strcmp(path + 1, "/") == 0 ? "" : path + 1;
    if (controllers[1] == '\0')
      least = std::min(least, left_in("/sys/fs/cgroup", group, "memory.max", "memory.current"));
    else if (std::strstr(controllers, "memory") != nullptr)
      least = std::min(least, left_in("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                                      "memory.usage_in_bytes"));
  }
  std::fclose(f);
  return least;
}

}  // namespace program
