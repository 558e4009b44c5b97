// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "holdfast/backend/host/memory_limit.hpp"
#include "holdfast/core/share_blob.hpp"

namespace holdfast {

namespace detail {
/// Thirty-two hexadecimal digits, dashes among them, as bytes; false: the text is anything else.
[[nodiscard]] constexpr bool read_uuid(std::string_view text, std::array<std::byte, 16>& out) noexcept {
  std::size_t digits = 0;
  for (const char c : text) {
    if (c == '-') continue;
    const int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (d < 0 || digits == 32) return false;
    std::byte& b = out[digits++ / 2];
    b = (b << 4) | static_cast<std::byte>(d);
  }
  return digits == 32;
}
}  // namespace detail

/// Tells who this process is to others of this host: the boot, and a number that no two live processes have, in containers too.
///
/// Errors: unsupported (the system does not say which boot this is). Cost: two small files. Threads: any.
template <class Files = SystemFiles>
[[nodiscard]] Result<ShareIdentity> process_identity(std::uint64_t generation, Files files = {}) noexcept {
  char text[64];
  std::string_view boot = files.read("/proc/sys/kernel/random/boot_id", text);
  while (!boot.empty() && boot.back() == '\n') boot.remove_suffix(1);
  ShareIdentity self;
  if (!detail::read_uuid(boot, self.host)) return make_error(Errc::unsupported, "the system does not say which host this is");
  // Process numbers are counted in namespaces, whose own numbers the host counts.
  struct stat space {};
  if (::stat("/proc/self/ns/pid", &space) != 0) space.st_ino = 0;
  self.process = static_cast<std::uint64_t>(space.st_ino) << 32 | static_cast<std::uint32_t>(::getpid());
  self.generation = generation;
  return self;
}

}  // namespace holdfast
