// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "holdfast/backend/jit/detail/tool_file.hpp"
#include "holdfast/backend/jit/symbol_writer.hpp"
#include "holdfast/concepts/lock.hpp"

namespace holdfast {

/// The binary file in which `perf inject --jit` finds names and bytes of code, with the time from which they hold.
///
/// Record with `perf record -k mono`. The file is `jit-PID.dump`; a page of it is mapped executable, which is how perf
/// learns of it, so the directory is not mounted noexec. Threads: any.
class JitDump {
 public:
  /// Starts the process's file in a directory. Errors: permission_denied, the system's.
  [[nodiscard]] static Result<JitDump> open(const char* directory = ".") noexcept {
    char path[512];
    std::snprintf(path, sizeof path, "%.400s/jit-%ld.dump", directory, static_cast<long>(::getpid()));
    Result<detail::ToolFile> file = detail::ToolFile::open(path, true);
    if (!file.ok()) return file.error();
    const Header header{0x4A695444, 1, sizeof(Header), machine, 0, static_cast<std::uint32_t>(::getpid()), now(), 0};
    if (Error e = file->append(&header, sizeof header); !e.ok()) return e;
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* marker = ::mmap(nullptr, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, file->descriptor(), 0);
    if (marker == reinterpret_cast<void*>(-1)) return detail::ToolFile::failure("perf's marker of a jitdump file could not be mapped", errno);
    return JitDump(std::move(*file), marker, page);
  }
  JitDump(JitDump&& other) noexcept
      : file_(std::move(other.file_)), marker_(std::exchange(other.marker_, nullptr)), page_(other.page_), index_(other.index_) {}
  ~JitDump() {
    if (marker_ == nullptr) return;
    const Prefix end{code_close, sizeof(Prefix), now()};
    static_cast<void>(file_.append(&end, sizeof end));
    ::munmap(marker_, page_);
  }

  /// Writes a piece of code, as it is now. Errors: invalid_argument (no code), over_budget (the file-size limit), the system's.
  [[nodiscard]] Error add(const JitSymbol& symbol) noexcept {
    if (symbol.run == nullptr || symbol.size <= 0 || symbol.size > most) return make_error(Errc::invalid_argument, "a symbol without code");
    const std::string_view name = symbol.name.substr(0, 512);
    const auto size = static_cast<std::size_t>(symbol.size);
    const auto address = reinterpret_cast<std::uint64_t>(symbol.run);
    struct {
      Prefix prefix;
      Load load;
    } record{{code_load, static_cast<std::uint32_t>(sizeof(Prefix) + sizeof(Load) + name.size() + 1 + size), now()},
             {static_cast<std::uint32_t>(::getpid()), static_cast<std::uint32_t>(::syscall(SYS_gettid)), address, address,
              static_cast<std::uint64_t>(size), 0}};
    LockGuard<WordLock> guard(lock_);
    record.load.index = index_++;
    Error e = file_.append(&record, sizeof record);
    if (e.ok()) e = file_.append(name.data(), name.size());
    if (e.ok()) e = file_.append("", 1);
    if (e.ok()) e = file_.append(symbol.run, size);
    return e;
  }

 private:
  struct Header {
    std::uint32_t magic, version, size, machine, padding, pid;
    std::uint64_t time, flags;
  };
  struct Prefix {
    std::uint32_t id, size;
    std::uint64_t time;
  };
  struct Load {
    std::uint32_t pid, tid;
    std::uint64_t address, code, size, index;
  };
  static constexpr std::uint32_t code_load = 0, code_close = 3;
  static constexpr Bytes most = Bytes{1} << 30;
#if defined(__x86_64__)
  static constexpr std::uint32_t machine = EM_X86_64;
#elif defined(__aarch64__)
  static constexpr std::uint32_t machine = EM_AARCH64;
#else
  static constexpr std::uint32_t machine = EM_NONE;
#endif
  static_assert(sizeof(Header) == 40 && sizeof(Prefix) == 16 && sizeof(Load) == 40);

  [[nodiscard]] static std::uint64_t now() noexcept {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
  }
  JitDump(detail::ToolFile file, void* marker, std::size_t page) noexcept : file_(std::move(file)), marker_(marker), page_(page) {}

  detail::ToolFile file_;
  void* marker_;
  std::size_t page_;
  std::uint64_t index_ = 0;
  WordLock lock_;
};
static_assert(symbol_writer<JitDump>);

}  // namespace holdfast
