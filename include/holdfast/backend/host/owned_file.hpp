// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "holdfast/core/owned.hpp"

namespace holdfast {

/// The number of an open file; -1: none.
struct FileNumber {
  int number = -1;
  void close() noexcept {
    if (number >= 0) ::close(number);
  }
};

/// An open file, closed when this goes. Threads: as a value.
using OwnedFile = Owned<FileNumber>;

/// Takes over a file that a driver opened: programs that this one starts do not inherit it.
[[nodiscard]] inline OwnedFile own_file(int number) noexcept {
  static_cast<void>(::fcntl(number, F_SETFD, FD_CLOEXEC));
  return OwnedFile(FileNumber{number});
}

}  // namespace holdfast
