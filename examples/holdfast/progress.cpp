// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <chrono>
#include <cstdio>

#include <unistd.h>

namespace program {

namespace {

using SteadyClock = std::chrono::steady_clock;

struct Line {
  bool terminal = isatty(STDERR_FILENO) != 0;
  bool shown = false;
  SteadyClock::time_point due = SteadyClock::now() + std::chrono::seconds(1);

  bool is_due() {
    if (!terminal || SteadyClock::now() < due) return false;
    due = SteadyClock::now() + std::chrono::milliseconds(200);
    return shown = true;
  }
};

Line& line() {
  static Line the_line;
  return the_line;
}

}  // namespace

void progress(std::string_view what) {
  if (line().is_due())
    std::fprintf(stderr, "\r\033[K%.*s...", static_cast<int>(what.size()), what.data());
}

void progress(std::string_view what, double share) {
  if (line().is_due())
    std::fprintf(stderr, "\r\033[K%.*s %3.0f%%", static_cast<int>(what.size()), what.data(),
                 share * 100);
}

void end_progress() {
  if (line().shown) std::fprintf(stderr, "\r\033[K");
  line().shown = false;
}

}  // namespace program
