// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <errno.h>

#include <cstddef>
#include <cstdint>

#include "holdfast/backend/jit/mapping_name.hpp"
#include "holdfast/backend/jit/system_calls.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// How code memory is made writable first and executable later; no page is ever both.
enum class MapMode : std::uint8_t {
  automatic,       ///< the first of the others that works here
  dual_memfd,      ///< a file mapped twice: written through one view, run through the other
  mprotect_anon,   ///< anonymous pages, writable until they are made executable
  mprotect_memfd,  ///< the same with a file's pages, which carry a name
  refuse,          ///< no code memory at all
};

/// What file backs code memory.
enum class CodeFile : std::uint8_t { none, memfd, shared, directory };

/// A mode and its file.
struct Backing {
  MapMode mode = MapMode::refuse;
  CodeFile file = CodeFile::none;
  friend constexpr bool operator==(const Backing&, const Backing&) noexcept = default;
};

namespace detail {

enum class JitCall : std::uint8_t { map, protect, unmap, memory_file, shared_file, directory_file, resize, seals, publish, seal_pages };

// Which call refused, and the reason that its errno stands for.
[[nodiscard]] HOLDFAST_COLD inline Error jit_error(JitCall call, int number) noexcept {
  constexpr const char* calls[] = {"mmap for code memory failed", "mprotect for code memory failed", "munmap of code memory failed",
                                   "memfd_create failed", "shm_open for code memory failed", "O_TMPFILE for code memory failed",
                                   "the file-size limit (RLIMIT_FSIZE) or ftruncate refused code memory",
                                   "sealing code memory (F_ADD_SEALS) failed", "membarrier for code memory failed",
                                   "mseal of code memory failed"};
  Error e = make_error(Errc::internal, calls[static_cast<std::size_t>(call)]);
  e.native = number;
  e.stage = Stage::allocation;
  const bool memfd = call == JitCall::memory_file;
  switch (number) {
    case ENOSYS: e.code = Errc::unsupported, e.what = memfd ? "memfd_create: Function not implemented" : e.what; break;
    case EINVAL: case EOPNOTSUPP: e.code = Errc::unsupported; break;
    case EPERM: e.code = Errc::permission_denied, e.what = memfd ? "memfd_create: Operation not permitted" : e.what; break;
    case EACCES: e.code = Errc::permission_denied, e.what = memfd ? "memfd_create: Permission denied" : e.what; break;
    case EMFILE: e.code = Errc::out_of_memory, e.what = memfd ? "memfd_create: Too many open files" : e.what; break;
    case ENFILE: e.code = Errc::out_of_memory, e.what = memfd ? "memfd_create: Too many open files in system" : e.what; break;
    case ENOMEM: case ENOSPC: case EAGAIN: e.code = Errc::out_of_memory; break;
    case EFBIG: e.code = Errc::over_budget; break;
    case ENOENT: case ENOTDIR: e.code = Errc::not_found; break;
    default: break;
  }
  return e;
}

// An open file of `size` zeros for code, named; the caller closes it.
template <jit_system_calls Calls>
[[nodiscard]] Result<int> make_code_file(CodeFile kind, const MappingName& name, const char* directory, std::size_t size) noexcept {
  // Growing a file beyond the limit would raise SIGXFSZ before it fails.
  if (static_cast<Bytes>(size) > Calls::file_size_limit()) return jit_error(JitCall::resize, EFBIG);
  int fd = -1, failed = ENOENT;
  JitCall call = JitCall::directory_file;
  if (kind == CodeFile::memfd) {
    call = JitCall::memory_file;
    constexpr unsigned close_on_exec = 1, allow_sealing = 2, noexec_seal = 8, executable = 16;
    failed = Calls::memory_file(name.c_str(), close_on_exec | allow_sealing | executable, fd);
    // vm.memfd_noexec = 2 wants the other flag, which does not stop executable mappings; old kernels know neither.
    if (failed == EACCES || failed == EPERM) failed = Calls::memory_file(name.c_str(), close_on_exec | allow_sealing | noexec_seal, fd);
    else if (failed == EINVAL) failed = Calls::memory_file(name.c_str(), close_on_exec | allow_sealing, fd);
  } else if (kind == CodeFile::shared) {
    call = JitCall::shared_file;
    failed = Calls::shared_file(name.c_str(), fd);
  } else if (directory != nullptr) {
    failed = Calls::directory_file(directory, fd);
  }
  if (failed != 0) return jit_error(call, failed);
  if (failed = Calls::resize(fd, size); failed == 0) return fd;
  Calls::close(fd);
  return jit_error(JitCall::resize, failed);
}

}  // namespace detail

}  // namespace holdfast
