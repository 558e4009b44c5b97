// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

#include "holdfast/backend/host/owned_file.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast::detail {

// A file that a tool reads beside the process: appended to, closed with its owner, never followed through a link.
class ToolFile {
 public:
  // Errors: permission_denied (somebody else's file, or not a plain one), the system's.
  [[nodiscard]] static Result<ToolFile> open(const char* path, bool truncate) noexcept {
    ToolFile file;
    const int fd = ::open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    file.file_ = OwnedFile({fd});
    if (fd < 0) return failure("a file for profiling tools could not be opened", errno);
    struct stat there{};
    if (::fstat(fd, &there) != 0 || !S_ISREG(there.st_mode) || there.st_uid != ::geteuid() || there.st_nlink != 1)
      return failure("a file for profiling tools is there already and not ours", EACCES);
    if (truncate && there.st_size != 0 && ::ftruncate(fd, 0) != 0) return failure("a file for profiling tools could not be emptied", errno);
    return Result<ToolFile>(std::move(file));
  }

  // Writes all of it or says why not; what would pass the file-size limit is not begun: it would raise SIGXFSZ, which kills.
  [[nodiscard]] Error append(const void* data, std::size_t size) noexcept {
    rlimit limit{};
    struct stat now{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        (::fstat(descriptor(), &now) != 0 || size > limit.rlim_cur || static_cast<rlim_t>(now.st_size) > limit.rlim_cur - size))
      return failure("the file-size limit (RLIMIT_FSIZE) refused a file for profiling tools", EFBIG);
    for (const char* at = static_cast<const char*>(data); size != 0;) {
      const ssize_t written = ::write(descriptor(), at, size);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return failure("a file for profiling tools could not be written", written < 0 ? errno : EIO);
      at += written;
      size -= static_cast<std::size_t>(written);
    }
    return {};
  }
  [[nodiscard]] int descriptor() const noexcept { return file_->number; }

  [[nodiscard]] HOLDFAST_COLD static Error failure(const char* what, int number) noexcept {
    Error e = make_error(number == EACCES || number == EPERM || number == ELOOP ? Errc::permission_denied
                         : number == ENOENT || number == ENOTDIR                ? Errc::not_found
                         : number == EFBIG                                      ? Errc::over_budget
                         : number == ENOSPC || number == EMFILE || number == ENFILE || number == ENOMEM ? Errc::out_of_memory
                                                                                : Errc::internal,
                         what);
    e.native = number;
    return e;
  }

 private:
  OwnedFile file_;
};

}  // namespace holdfast::detail
