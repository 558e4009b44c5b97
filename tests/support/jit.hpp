// SPDX-License-Identifier: Apache-2.0
// What the tests of code memory share: system calls that fail on demand, the process's map list, children, a few instructions.
#pragma once

#include <dirent.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/backend/jit/memory_mapper.hpp"
#include "holdfast/backend/jit/system_calls.hpp"
#include "support/shared.hpp"

namespace holdfast::testing {

/// What `FaultyCalls` saw and what it is to refuse.
struct CallLog {
  long calls = 0;             ///< that can fail
  long fail_at = 0;           ///< the number of the call that fails with ENOMEM; 0: none
  bool fail_after = false;    ///< and all after it
  int memory_file_error = 0, shared_file_error = 0, directory_error = 0, execute_error = 0, read_only_error = 0, seal_error = 0;
  std::vector<unsigned> memory_file_flags;
  std::string name;
  Bytes file_limit = max_bytes;
  int kept_fd = -1;           ///< a duplicate of the last file closed, where `keep` asks for it
  bool keep = false;
  std::set<int> open;
  long advised = 0;
};
inline CallLog call_log;

/// The system's calls, counted, refused as `call_log` says.
struct FaultyCalls : SystemCalls {
  static bool fails() noexcept {
    const long call = ++call_log.calls;
    return call_log.fail_at != 0 && (call == call_log.fail_at || (call_log.fail_after && call > call_log.fail_at));
  }
  static Bytes file_size_limit() noexcept { return std::min(call_log.file_limit, SystemCalls::file_size_limit()); }
  static int map(void*& at, std::size_t size, int protection, int flags, int fd) noexcept {
    if (fails()) return ENOMEM;
    return SystemCalls::map(at, size, protection, flags, fd);
  }
  static int unmap(void* at, std::size_t size) noexcept { return SystemCalls::unmap(at, size); }
  static int protect(void* at, std::size_t size, int protection) noexcept {
    if (fails()) return ENOMEM;
    if ((protection & PROT_EXEC) != 0 && call_log.execute_error != 0) return call_log.execute_error;
    if (protection == PROT_READ && call_log.read_only_error != 0) return call_log.read_only_error;
    return SystemCalls::protect(at, size, protection);
  }
  static int advise(void* at, std::size_t size, int advice) noexcept { return ++call_log.advised, SystemCalls::advise(at, size, advice); }
  static int memory_file(const char* name, unsigned flags, int& fd) noexcept {
    call_log.memory_file_flags.push_back(flags);
    call_log.name = name;
    if (call_log.memory_file_error != 0) return call_log.memory_file_error;
    const int failed = fails() ? EMFILE : SystemCalls::memory_file(name, flags, fd);
    return opened(failed, fd);
  }
  static int shared_file(const char* name, int& fd) noexcept {
    if (call_log.shared_file_error != 0) return call_log.shared_file_error;
    const int failed = fails() ? EMFILE : SystemCalls::shared_file(name, fd);
    return opened(failed, fd);
  }
  static int directory_file(const char* name, int& fd) noexcept {
    if (call_log.directory_error != 0) return call_log.directory_error;
    const int failed = fails() ? EMFILE : SystemCalls::directory_file(name, fd);
    return opened(failed, fd);
  }
  static int resize(int fd, std::size_t size) noexcept { return fails() ? ENOSPC : SystemCalls::resize(fd, size); }
  static int add_seals(int fd, int seals) noexcept {
    if (call_log.seal_error != 0 && (seals & 16) != 0) return call_log.seal_error;
    return fails() ? EPERM : SystemCalls::add_seals(fd, seals);
  }
  static int publish(void* write, void* run, std::size_t size) noexcept {
    return fails() ? ENOMEM : SystemCalls::publish(write, run, size);
  }
  static int close(int fd) noexcept {
    if (call_log.keep) call_log.kept_fd = ::dup(fd);
    call_log.open.erase(fd);
    return SystemCalls::close(fd);
  }

 private:
  static int opened(int failed, int fd) noexcept {
    if (failed == 0) call_log.open.insert(fd);
    return failed;
  }
};

/// One line of /proc/self/maps.
struct MapLine {
  std::uintptr_t begin = 0, end = 0;
  std::string access, name;
};
inline std::vector<MapLine> read_maps() {
  std::vector<MapLine> lines;
  std::FILE* f = std::fopen("/proc/self/maps", "r");
  char text[1024];
  while (f != nullptr && std::fgets(text, sizeof text, f) != nullptr) {
    MapLine line;
    char access[8] = {};
    int at = 0;
    unsigned long begin = 0, end = 0;
    if (std::sscanf(text, "%lx-%lx %7s %*s %*s %*s %n", &begin, &end, access, &at) < 3) continue;
    line.begin = begin, line.end = end, line.access = access;
    line.name = text + at;
    while (!line.name.empty() && line.name.back() == '\n') line.name.pop_back();
    lines.push_back(line);
  }
  if (f != nullptr) std::fclose(f);
  return lines;
}

/// Whether a page of the process is writable and executable at once.
inline bool any_writable_and_executable() {
  for (const MapLine& l : read_maps())
    if (l.access.find('w') != std::string::npos && l.access.find('x') != std::string::npos) return true;
  return false;
}

/// What may be done at an address ("r-xs"); empty where nothing is mapped.
inline std::string access_at(const void* p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  for (const MapLine& l : read_maps())
    if (l.begin <= at && at < l.end) return l.access;
  return {};
}
inline std::string name_at(const void* p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  for (const MapLine& l : read_maps())
    if (l.begin <= at && at < l.end) return l.name;
  return {};
}

/// The lines of mappings whose name has a fragment.
inline std::vector<MapLine> maps_named(std::string_view fragment) {
  std::vector<MapLine> found;
  for (const MapLine& l : read_maps())
    if (l.name.find(fragment) != std::string::npos) found.push_back(l);
  return found;
}

/// Open descriptors of the process.
inline int count_descriptors() {
  int n = 0;
  DIR* d = opendir("/proc/self/fd");
  while (d != nullptr && readdir(d) != nullptr) ++n;
  if (d != nullptr) closedir(d);
  return n;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#else
inline constexpr bool sanitized = false;
#endif

/// Code mappings of the process: the files' by their names, and everything reserved (no access) without one, but for what
/// sanitizers reserve beside the program.
struct CodeFootprint {
  int descriptors = count_descriptors();
  std::size_t named = maps_named("jit:").size();
  std::uintptr_t named_bytes = 0, reserved_bytes = 0;
  CodeFootprint() {
    for (const MapLine& l : read_maps()) {
      if (l.name.find("jit:") != std::string::npos) named_bytes += l.end - l.begin;
      if (!sanitized && l.name.empty() && l.access == "---p") reserved_bytes += l.end - l.begin;
    }
  }
  friend bool operator==(const CodeFootprint&, const CodeFootprint&) = default;
};

/// Runs `body` in a child; its exit status, or minus the signal that ended it.
template <class Body>
int run_child(Body body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    for (const int s : {SIGSEGV, SIGABRT, SIGXFSZ, SIGILL, SIGBUS}) std::signal(s, SIG_DFL);
    alarm(30);
    _exit(body());
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 1000;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// A child that could not set up its environment says 77, which skips the case; all else but 0 fails it.
inline void check_child_status(int status) {
  if (status == 77) return skip_case("no right to set this environment up");
  CHECK(status == 0);
}

/// Makes one system call of this process and its children fail with an errno (as cases/11 deny_memfd.c).
inline bool deny_call(unsigned number, int error) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (static_cast<unsigned>(error) & SECCOMP_RET_DATA)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof code / sizeof code[0], code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// Makes every request for executable pages fail with EACCES, as SELinux or MemoryDenyWriteExecute do.
inline bool deny_execute() {
  constexpr unsigned argument = offsetof(seccomp_data, args) + 2 * sizeof(std::uint64_t);
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof code / sizeof code[0], code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// A folder that is gone, with all in it, at the end.
struct TemporaryFolder {
  std::string path = "/tmp/holdfast_XXXXXX";
  TemporaryFolder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { static_cast<void>(!std::system(("rm -rf '" + path + "'").c_str())); }
};
/// The path of the running program.
inline std::string self_path() {
  char path[4096] = {};
  return readlink("/proc/self/exe", path, sizeof path - 1) > 0 ? path : "";
}
/// Some byte with an address.
inline constexpr std::byte entry_byte{0xC3};

/// mov eax, value; ret. Called by `call_at`.
inline std::vector<std::byte> return_constant(std::uint32_t value) {
  std::vector<std::byte> code(6);
  code[0] = std::byte{0xB8}, code[5] = std::byte{0xC3};
  std::memcpy(code.data() + 1, &value, 4);
  return code;
}
/// Where code lies in a page: sanitizers read what lies before a function.
constexpr std::size_t entry = 64;
inline int call_at(const std::byte* code) { return reinterpret_cast<int (*)()>(const_cast<std::byte*>(code))(); }

/// A sealed block with these instructions at `entry`.
template <class M>
CodeBlock sealed_code(M& mapper, const void* code, std::size_t size) {
  Result<CodeBlock> block = mapper.reserve(4096);
  REQUIRE(block.ok());
  REQUIRE(mapper.commit(*block).ok());
  std::memcpy(block->write + entry, code, size);
  REQUIRE(mapper.seal(*block).ok());
  return *block;
}

/// Reserves, writes, seals and calls `return value`; -1 where a step fails, -2 where a page was writable and executable between the steps.
template <class M>
int round_trip(M& mapper, std::uint32_t value) {
  Result<CodeBlock> block = mapper.reserve(mapper.page_size());
  if (!block.ok()) return -1;
  int got = -1;
  const std::vector<std::byte> code = return_constant(value);
  if (mapper.commit(*block).ok()) {
    bool clean = !any_writable_and_executable();
    std::memcpy(block->write + entry, code.data(), code.size());
    if (mapper.seal(*block).ok()) {
      clean = clean && !any_writable_and_executable();
      got = clean ? call_at(block->run + entry) : -2;
    }
  }
  mapper.release(*block);
  return got;
}

}  // namespace holdfast::testing
