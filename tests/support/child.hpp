// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace holdfast::testing {

/// Runs `f` in a child process and tells whether a failed `HOLDFAST_ASSERT` ended it.
template <class F>
bool aborts(F f) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // doctest's handler would report the death as its own failure
    alarm(20);
    f();
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/// Runs `f` in a child process and gives the status that it returns; -1: it ended otherwise.
template <class F>
int status_in_child(F f) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(f());
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace holdfast::testing
