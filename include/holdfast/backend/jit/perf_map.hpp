// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include "holdfast/backend/jit/detail/tool_file.hpp"
#include "holdfast/backend/jit/symbol_writer.hpp"
#include "holdfast/concepts/lock.hpp"

namespace holdfast {

/// The text file in which `perf report` finds the names of code without a file: a line for each, start and size in hexadecimal.
///
/// perf looks for `/tmp/perf-PID.map`, and uses it for anonymous code (mode `mprotect_anon`); code that is mapped from a file
/// it shows under the mapping's name, and `JitDump` gives it the symbols. Names stay after their code is unmapped; other runtimes of the process may add to the
/// same file. Threads: any.
class PerfMap {
 public:
  /// Opens the process's file in a directory. Errors: permission_denied (somebody else's file), the system's.
  [[nodiscard]] static Result<PerfMap> open(const char* directory = "/tmp") noexcept {
    char path[512];
    const int n = std::snprintf(path, sizeof path, "%.400s/perf-%ld.map", directory, static_cast<long>(::getpid()));
    if (n < 0) return make_error(Errc::internal, "no path for a perf map");
    Result<detail::ToolFile> file = detail::ToolFile::open(path, false);
    if (!file.ok()) return file.error();
    return PerfMap(std::move(*file));
  }
  PerfMap(PerfMap&& other) noexcept : file_(std::move(other.file_)) {}

  /// Adds a line. Errors: invalid_argument (no code), over_budget (the file-size limit), the system's.
  [[nodiscard]] Error add(const JitSymbol& symbol) noexcept {
    if (symbol.run == nullptr || symbol.size <= 0) return make_error(Errc::invalid_argument, "a symbol without code");
    char line[512];
    const int head = std::snprintf(line, sizeof line, "%lx %lx ", static_cast<unsigned long>(reinterpret_cast<std::uintptr_t>(symbol.run)),
                                   static_cast<unsigned long>(symbol.size));
    std::size_t at = static_cast<std::size_t>(head);
    for (const char c : symbol.name.substr(0, sizeof line - at - 1)) line[at++] = c >= ' ' && c != 127 ? c : '_';
    line[at++] = '\n';
    LockGuard<WordLock> guard(lock_);
    return file_.append(line, at);
  }

 private:
  explicit PerfMap(detail::ToolFile file) noexcept : file_(std::move(file)) {}
  detail::ToolFile file_;
  WordLock lock_;
};
static_assert(symbol_writer<PerfMap>);

}  // namespace holdfast
