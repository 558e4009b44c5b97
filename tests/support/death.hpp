// SPDX-License-Identifier: Apache-2.0
// A broken precondition ends the process: it is tested in a child.
#pragma once

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace holdfast::testing {

/// Tells whether `body`, run in a child process, ends by abort (as `HOLDFAST_ASSERT` does).
template <class Body>
[[nodiscard]] bool aborts(Body body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // doctest reports the signal otherwise
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    body();
    _exit(0);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

}  // namespace holdfast::testing
