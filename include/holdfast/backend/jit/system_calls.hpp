// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <concepts>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <type_traits>

#include "holdfast/core/units.hpp"

namespace holdfast {

/// What code memory asks of the operating system; tests plug doubles that refuse, fail and count.
///
/// Each call gives 0 or the errno of its failure. `map` takes its hint in `at` and leaves the address there.
template <class Calls>
concept jit_system_calls = std::is_empty_v<Calls> && requires(void*& at, int& fd, std::size_t size, int n, unsigned u, const char* name) {
  { Calls::page_size() } noexcept -> std::same_as<Bytes>;
  { Calls::file_size_limit() } noexcept -> std::same_as<Bytes>;
  { Calls::map(at, size, n, n, n) } noexcept -> std::same_as<int>;
  { Calls::unmap(at, size) } noexcept -> std::same_as<int>;
  { Calls::protect(at, size, n) } noexcept -> std::same_as<int>;
  { Calls::advise(at, size, n) } noexcept -> std::same_as<int>;
  { Calls::name_pages(at, size, name) } noexcept -> std::same_as<int>;
  { Calls::seal_pages(at, size) } noexcept -> std::same_as<int>;
  { Calls::memory_file(name, u, fd) } noexcept -> std::same_as<int>;
  { Calls::shared_file(name, fd) } noexcept -> std::same_as<int>;
  { Calls::directory_file(name, fd) } noexcept -> std::same_as<int>;
  { Calls::resize(fd, size) } noexcept -> std::same_as<int>;
  { Calls::add_seals(fd, n) } noexcept -> std::same_as<int>;
  { Calls::close(fd) } noexcept -> std::same_as<int>;
  { Calls::publish(at, at, size) } noexcept -> std::same_as<int>;
};

/// The calls themselves. Stateless. Threads: any.
struct SystemCalls {
  [[nodiscard]] static Bytes page_size() noexcept { return static_cast<Bytes>(::sysconf(_SC_PAGESIZE)); }
  /// The largest file the process may make: growing a memory file beyond it raises SIGXFSZ, which kills.
  [[nodiscard]] static Bytes file_size_limit() noexcept {
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur > static_cast<rlim_t>(max_bytes)) return max_bytes;
    return static_cast<Bytes>(limit.rlim_cur);
  }
  [[nodiscard]] static int map(void*& at, std::size_t size, int protection, int flags, int fd) noexcept {
    void* p = ::mmap(at, size, protection, flags, fd, 0);
    if (p == reinterpret_cast<void*>(-1)) return errno;
    at = p;
    return 0;
  }
  [[nodiscard]] static int unmap(void* at, std::size_t size) noexcept { return ::munmap(at, size) == 0 ? 0 : errno; }
  [[nodiscard]] static int protect(void* at, std::size_t size, int protection) noexcept {
    return ::mprotect(at, size, protection) == 0 ? 0 : errno;
  }
  [[nodiscard]] static int advise(void* at, std::size_t size, int advice) noexcept {
    return ::madvise(at, size, advice) == 0 ? 0 : errno;
  }
  /// Gives anonymous pages a name in the process's map list, where the kernel can.
  [[nodiscard]] static int name_pages(void* at, std::size_t size, const char* name) noexcept {
    constexpr int set_vma = 0x53564d41;  // PR_SET_VMA, PR_SET_VMA_ANON_NAME = 0: newer than some headers
    return ::prctl(set_vma, 0, at, size, name) == 0 ? 0 : errno;
  }
  /// Forbids every later change of the pages' protection or place (mseal, Linux 6.10).
  [[nodiscard]] static int seal_pages(void* at, std::size_t size) noexcept {
    constexpr long mseal = 462;  // the same number on every architecture
    return ::syscall(mseal, at, size, 0) == 0 ? 0 : errno;
  }
  [[nodiscard]] static int memory_file(const char* name, unsigned flags, int& fd) noexcept {
    fd = static_cast<int>(::syscall(SYS_memfd_create, name, flags));
    return fd >= 0 ? 0 : errno;
  }
  /// A file in shared memory that has lost its name again.
  [[nodiscard]] static int shared_file(const char* name, int& fd) noexcept {
    char path[256];
    for (int attempt = 0; attempt < 8; ++attempt) {
      timespec now{};
      ::clock_gettime(CLOCK_MONOTONIC, &now);
      std::snprintf(path, sizeof path, "/%.180s.%ld.%ld", name, static_cast<long>(::getpid()), now.tv_nsec);
      fd = ::shm_open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
      if (fd >= 0) return ::shm_unlink(path), 0;
      if (errno != EEXIST) break;
    }
    return errno;
  }
  /// A nameless file in a directory.
  [[nodiscard]] static int directory_file(const char* directory, int& fd) noexcept {
    fd = ::open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0700);
    return fd >= 0 ? 0 : errno;
  }
  [[nodiscard]] static int resize(int fd, std::size_t size) noexcept {
    return ::ftruncate(fd, static_cast<off_t>(size)) == 0 ? 0 : errno;
  }
  [[nodiscard]] static int add_seals(int fd, int seals) noexcept {
    constexpr int add = 1033;  // F_ADD_SEALS
    return ::fcntl(fd, add, seals) == 0 ? 0 : errno;
  }
  static int close(int fd) noexcept { return ::close(fd) == 0 ? 0 : errno; }

  /// Makes bytes written through one view visible as instructions of the other, on every processor of the process.
  static int publish([[maybe_unused]] void* write, void* run, std::size_t size) noexcept {
    auto* first = static_cast<char*>(run);
#if !defined(__x86_64__) && !defined(__i386__)
    auto* view = static_cast<char*>(write);
    if (view != first) __builtin___clear_cache(view, view + size);  // cleans the data cache of the written lines
    __builtin___clear_cache(first, first + size);
    constexpr int register_sync_core = 1 << 6, sync_core = 1 << 5;  // MEMBARRIER_CMD_(REGISTER_)PRIVATE_EXPEDITED_SYNC_CORE
    ::syscall(SYS_membarrier, register_sync_core, 0, 0);
    if (::syscall(SYS_membarrier, sync_core, 0, 0) != 0 && errno != ENOSYS) return errno;
#else
    __builtin___clear_cache(first, first + size);
#endif
    return 0;
  }
};
static_assert(jit_system_calls<SystemCalls>);

}  // namespace holdfast
