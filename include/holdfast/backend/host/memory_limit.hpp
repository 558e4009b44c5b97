// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "holdfast/core/reader.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// Who says how much memory there may be.
enum class LimitSource : std::uint8_t { none, cgroup, system };

/// How many more bytes the system would back now, and who says so.
struct MemoryRoom {
  Bytes bytes = max_bytes;
  LimitSource source = LimitSource::none;
};

namespace detail {

/// The number that a text begins with, if white space follows; too large ones are `max_bytes`, -1 is none or one that was cut off.
[[nodiscard]] constexpr Bytes number_at(std::string_view text) noexcept {
  Bytes n = 0;
  std::size_t i = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    const Bytes digit = text[i] - '0';
    n = n > (max_bytes - digit) / 10 ? max_bytes : n * 10 + digit;
  }
  return i == 0 || i == text.size() || (text[i] != '\n' && text[i] != ' ') ? -1 : n;
}
/// The number in the first line that begins with `key`; -1: none.
[[nodiscard]] constexpr Bytes number_after(std::string_view text, std::string_view key) noexcept {
  for (Reader r(text); !r.at_end(); r.skip(1)) {
    if (r.take(key)) {
      while (r.take(' ')) {
      }
      return number_at(r.rest());
    }
    r.skip_to('\n');
  }
  return -1;
}

/// The control group that limits a process's memory.
struct MemoryGroup {
  std::string_view path;  ///< below the mount; empty: none is named
  bool first_version = false;
};
/// Finds it in the text of /proc/self/cgroup: `N:...,memory,...:/path` of version 1, else `0::/path`. A path that leads upwards, as
/// from outside a name space, is the root.
[[nodiscard]] constexpr MemoryGroup memory_group(std::string_view text) noexcept {
  MemoryGroup found;
  for (std::size_t end = 0; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
    const std::string_view line = text.substr(0, end);
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool memory = controllers == "memory" || controllers.starts_with("memory,") || controllers.ends_with(",memory") ||
                        controllers.find(",memory,") != controllers.npos;
    if (!memory && line.substr(0, second) != "0:") continue;
    std::string_view path = line.substr(second + 1);
    if (path.empty() || path[0] != '/' || path.find("/..") != path.npos || path.find('\0') != path.npos) path = "/";
    if (memory) return {path, true};
    found.path = path;
  }
  return found;
}

}  // namespace detail

/// The files of the running system. Threads: any.
struct SystemFiles {
  /// Reads the beginning of a file; empty if it cannot be read.
  [[nodiscard]] std::string_view read(const char* path, std::span<char> into) noexcept {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return {};
    std::size_t size = 0;
    for (::ssize_t n = 1; n > 0 && size < into.size(); size += n > 0 ? static_cast<std::size_t>(n) : 0)
      n = ::read(file, into.data() + size, into.size() - size);
    ::close(file);
    return {into.data(), size};
  }
};

/// Tells how much more memory a process may back: what the system has available, and what its control group and the groups above
/// it leave (version 1 or 2, mounted where distributions do), file cache that lies idle not counted.
///
/// `files.read(path, buffer)` gives a file's beginning. What is missing or makes no sense is no limit. Cost: 3 to 50 small files.
template <class Files>
[[nodiscard]] MemoryRoom memory_room(Files& files) noexcept {
  char text[4096], path[1024];
  MemoryRoom room;
  const Bytes available = detail::number_after(files.read("/proc/meminfo", text), "MemAvailable:");
  if (available >= 0 && available <= max_bytes / 1024) room = {available * 1024, LimitSource::system};

  const detail::MemoryGroup group = detail::memory_group(files.read("/proc/self/cgroup", text));
  if (group.path.empty()) return room;
  const std::string_view mount = group.first_version ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
  std::size_t size = mount.size();
  std::memcpy(path, mount.data(), size);
  if (group.path.size() < sizeof path - 64 && group.path != "/") {
    std::memcpy(path + size, group.path.data(), group.path.size());
    size += group.path.size();
  }
  const auto in_group = [&](std::string_view name) {
    std::memcpy(path + size, name.data(), name.size());
    path[size + name.size()] = '\0';
    return files.read(path, text);
  };
  for (int level = 0; level < 16; ++level) {
    const Bytes limit = detail::number_at(in_group(group.first_version ? "/memory.limit_in_bytes" : "/memory.max"));
    if (limit >= 0 && limit < max_bytes / 2) {  // version 1 says none by a number near 2^63
      const Bytes usage = detail::number_at(in_group(group.first_version ? "/memory.usage_in_bytes" : "/memory.current"));
      const Bytes idle = detail::number_after(in_group("/memory.stat"), group.first_version ? "total_inactive_file " : "inactive_file ");
      const Bytes used = usage < 0 ? 0 : idle < 0 ? usage : idle < usage ? usage - idle : 0;
      const Bytes left = used < limit ? limit - used : 0;
      if (left < room.bytes) room = {left, LimitSource::cgroup};
    }
    if (size == mount.size()) break;
    while (path[--size] != '/') {
    }
  }
  return room;
}

}  // namespace holdfast
