// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

namespace holdfast::testing {

/// How many files this process has open.
[[nodiscard]] inline int open_files() {
  int n = 0;
  for (int file = 0; file < 1024; ++file) n += ::fcntl(file, F_GETFD) >= 0 ? 1 : 0;
  return n;
}

}  // namespace holdfast::testing
