// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/host/process_identity.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <span>
#include <string_view>

using namespace holdfast;

namespace {
struct FakeFiles {
  std::string_view text;
  std::string_view read(const char*, std::span<char> into) noexcept {
    const std::size_t n = std::min(text.size(), into.size());
    std::copy_n(text.begin(), n, into.begin());
    return {into.data(), n};
  }
};
}  // namespace

TEST_CASE("process_identity: a process is itself whenever it asks, and its child is another of the same host") {
  const ShareIdentity self = *process_identity(7);
  CHECK(self == *process_identity(7));
  CHECK(self.generation == 7);
  CHECK(self.host != ShareIdentity{}.host);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const ::pid_t child = ::fork();
  if (child == 0) {
    const ShareIdentity mine = *process_identity(8);
    ::_exit(::write(ends[1], &mine, sizeof mine) == sizeof mine ? 0 : 1);
  }
  ShareIdentity other;
  REQUIRE(::read(ends[0], &other, sizeof other) == sizeof other);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  CHECK(other.host == self.host);
  CHECK(other.process != self.process);
}

TEST_CASE("process_identity: the boot's number is read digit by digit, anything else is unsupported") {
  const ShareIdentity known = *process_identity(0, FakeFiles{"00112233-4455-6677-8899-aabbccddeeff\n"});
  for (unsigned i = 0; i < 16; ++i) CHECK(known.host[i] == static_cast<std::byte>(i * 0x11));
  for (const std::string_view text : {"", "\n", "00112233", "00112233-4455-6677-8899-aabbccddeefg", "00112233-4455-6677-8899-aabbccddeeff0",
                                      "00112233-4455-6677-8899-AABBCCDDEEFF", "0011\n2233-4455-6677-8899-aabbccddeeff"})
    CHECK(process_identity(0, FakeFiles{text}).error().code == Errc::unsupported);
}
