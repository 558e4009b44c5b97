// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast::detail {

// A file that a tool reads beside the process: appended to, closed with its owner, never followed through a link.
class ToolFile {
 public:
  ToolFile() noexcept = default;
  ToolFile(ToolFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ToolFile& operator=(ToolFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~ToolFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  // Errors: permission_denied (somebody else's file, or not a plain one), the system's.
  [[nodiscard]] static Result<ToolFile> open(const char* path, bool truncate) noexcept {
    ToolFile file;
    file.fd_ = ::open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (file.fd_ < 0) return failure("a file for profiling tools could not be opened", errno);
    struct stat there{};
    if (::fstat(file.fd_, &there) != 0 || !S_ISREG(there.st_mode) || there.st_uid != ::geteuid() || there.st_nlink != 1)
      return failure("a file for profiling tools is there already and not ours", EACCES);
    if (truncate && there.st_size != 0 && ::ftruncate(file.fd_, 0) != 0) return failure("a file for profiling tools could not be emptied", errno);
    return Result<ToolFile>(std::move(file));
  }

  // Writes all of it or says why not; what would pass the file-size limit is not begun: it would raise SIGXFSZ, which kills.
  [[nodiscard]] Error append(const void* data, std::size_t size) noexcept {
    rlimit limit{};
    struct stat now{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        (::fstat(fd_, &now) != 0 || size > limit.rlim_cur || static_cast<rlim_t>(now.st_size) > limit.rlim_cur - size))
      return failure("the file-size limit (RLIMIT_FSIZE) refused a file for profiling tools", EFBIG);
    for (const char* at = static_cast<const char*>(data); size != 0;) {
      const ssize_t written = ::write(fd_, at, size);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return failure("a file for profiling tools could not be written", written < 0 ? errno : EIO);
      at += written;
      size -= static_cast<std::size_t>(written);
    }
    return {};
  }
  [[nodiscard]] int descriptor() const noexcept { return fd_; }

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
  int fd_ = -1;
};

}  // namespace holdfast::detail
