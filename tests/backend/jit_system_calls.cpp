// SPDX-License-Identifier: Apache-2.0
#include "holdfast/backend/jit/system_calls.hpp"

#include <doctest/doctest.h>

#include <cerrno>

#include "holdfast/backend/jit/symbol_writer.hpp"
#include "support/jit.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {
static_assert(jit_system_calls<FaultyCalls>);
struct NoPublish : SystemCalls {
  static int publish(void*, void*, std::size_t) noexcept = delete;
};
static_assert(!jit_system_calls<NoPublish>);
struct ThrowingMap : SystemCalls {
  static int map(void*&, std::size_t, int, int, int) { return 0; }
};
static_assert(!jit_system_calls<ThrowingMap>);
struct BlindProtect : SystemCalls {
  static bool protect(void*, std::size_t, int) noexcept { return true; }
};
static_assert(!jit_system_calls<BlindProtect>);
struct WithState : SystemCalls {
  int state;
};
static_assert(!jit_system_calls<WithState>);

struct NoAdd {};
static_assert(symbol_writer<NoSymbols> && !symbol_writer<NoAdd>);
struct NoRemove {
  static void add(std::byte*) noexcept {}
};
static_assert(frame_policy<NoFrames> && !frame_policy<NoRemove>);
}  // namespace

TEST_CASE("system_calls: each gives the errno of its failure, 0 otherwise, and files are closed on exec") {
  void* at = nullptr;
  CHECK(SystemCalls::map(at, std::size_t{1} << 60, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1) == ENOMEM);
  CHECK(SystemCalls::map(at, 4096, PROT_READ, MAP_PRIVATE, -1) == EBADF);
  CHECK(SystemCalls::resize(-1, 1) == EBADF);
  CHECK(SystemCalls::add_seals(-1, 1) == EBADF);
  CHECK(SystemCalls::close(-1) == EBADF);
  CHECK(SystemCalls::protect(reinterpret_cast<void*>(4096 * 16 + 1), 4096, PROT_READ) == EINVAL);
  int fd = -1;
  CHECK(SystemCalls::memory_file("x", 0x80000000u, fd) == EINVAL);
  CHECK(SystemCalls::directory_file("/no/such/folder", fd) == ENOENT);
  const auto check_file = [](int opened) {
    CHECK((::fcntl(opened, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(SystemCalls::resize(opened, 4096) == 0);
    CHECK(SystemCalls::close(opened) == 0);
  };
  if (SystemCalls::memory_file("x", 1, fd) == 0) check_file(fd);
  if (SystemCalls::shared_file("jit:x", fd) == 0) check_file(fd);
  if (SystemCalls::directory_file("/tmp", fd) == 0) check_file(fd);
  CHECK(SystemCalls::page_size() >= 4096);
  CHECK(SystemCalls::file_size_limit() > 0);
}
