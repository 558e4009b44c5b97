// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "holdfast/backend/jit/memory_mapper.hpp"
#include "holdfast/concepts/sink.hpp"
#include "holdfast/core/static_vector.hpp"

namespace holdfast {

/// One way to make code memory and why it does not work here; no error where it does.
struct MapAttempt {
  Backing backing{};
  Error error{};
};

/// Which ways to make code memory work in this process: those that were tried, the last of them the first that works.
struct JitCapabilities {
  Backing backing{};  ///< mode `refuse`: none works
  StaticVector<MapAttempt, 5> attempts;
};

/// What a mapper is made with.
struct MapperOptions {
  MapMode mode = MapMode::automatic;
  std::string_view program = "code";
  std::string_view id = {};
  const char* directory = nullptr;   ///< where files may lie if neither memfd nor shared memory can; outlives the mapper
  bool keep_from_children = false;   ///< forked children do not get the code
};

/// Gives the word of a way to make code memory.
[[nodiscard]] constexpr std::string_view backing_name(Backing b) noexcept {
  switch (b.mode) {
    case MapMode::automatic: return "automatic";
    case MapMode::mprotect_anon: return "mprotect_anon";
    case MapMode::mprotect_memfd: return "mprotect_memfd";
    case MapMode::refuse: return "refuse";
    case MapMode::dual_memfd: break;
  }
  return b.file == CodeFile::shared ? "dual_shared_memory" : b.file == CodeFile::directory ? "dual_directory" : "dual_memfd";
}

/// Tries one way: makes a page, writes a return into it, makes it executable, calls it.
///
/// Errors: why the way is closed; nothing stays mapped or open.
template <jit_system_calls Calls = SystemCalls>
[[nodiscard]] Error try_backing(Backing backing, const char* directory = nullptr) noexcept {
  BasicMemoryMapper<Calls> mapper(backing, MappingName::make("probe", ""), directory);
  Result<CodeBlock> block = mapper.reserve(mapper.page_size());
  if (!block.ok()) return block.error();
  Error e = mapper.commit(*block);
  if (e.ok()) {
    constexpr std::size_t entry = 64;  // sanitizers read what lies before a function
#if defined(__x86_64__) || defined(__i386__)
    constexpr unsigned char code[] = {0xC3};
    constexpr bool callable = true;
#elif defined(__aarch64__) && defined(__AARCH64EL__)
    constexpr unsigned char code[] = {0xC0, 0x03, 0x5F, 0xD6};
    constexpr bool callable = true;
#else
    constexpr unsigned char code[] = {0};
    constexpr bool callable = false;  // written and made executable only
#endif
    std::memcpy(block->write + entry, code, sizeof code);
    e = mapper.seal(*block);
    if (e.ok() && callable) reinterpret_cast<void (*)()>(block->run + entry)();
  }
  mapper.release(*block);
  return e;
}

/// Tries every way in order until one works.
template <jit_system_calls Calls = SystemCalls>
[[nodiscard]] JitCapabilities probe_code_memory(const char* directory = nullptr) noexcept {
  JitCapabilities found;
  for (const Backing way : {Backing{MapMode::dual_memfd, CodeFile::memfd}, Backing{MapMode::dual_memfd, CodeFile::shared},
                            Backing{MapMode::dual_memfd, CodeFile::directory}, Backing{MapMode::mprotect_anon, CodeFile::none},
                            Backing{MapMode::mprotect_memfd, CodeFile::memfd}}) {
    if (way.file == CodeFile::directory && directory == nullptr) continue;
    const Error e = try_backing<Calls>(way, directory);
    found.attempts.push_back({way, e});
    if (!e.ok()) continue;
    found.backing = way;
    break;
  }
  return found;
}

/// What works in this process, found at the first call and kept: a forked child that is more restricted probes for itself.
/// Threads: any.
template <jit_system_calls Calls = SystemCalls>
[[nodiscard]] const JitCapabilities& jit_capabilities() noexcept {
  static const JitCapabilities found = probe_code_memory<Calls>();
  return found;
}

/// Writes each way that was tried and what came of it.
template <sink S>
Error write_attempts(S& out, const JitCapabilities& found) noexcept {
  Error failure;
  for (const MapAttempt& a : found.attempts) {
    if (failure.ok()) failure = out.write(backing_name(a.backing));
    if (failure.ok()) failure = out.write(": ");
    if (failure.ok()) failure = a.error.ok() ? out.write("works") : write_error(out, a.error);
    if (failure.ok()) failure = out.write("\n");
  }
  return failure;
}

/// Makes a mapper: the first way that works, or the one that was asked for and no other.
///
/// Errors: automatic: permission_denied with the list of attempts in `diagnosis`. A mode by name: that of its own errno
/// (ENOSYS unsupported; EPERM, EACCES permission_denied; EMFILE, ENFILE out_of_memory).
template <jit_system_calls Calls = SystemCalls, sink S = NullSink>
[[nodiscard]] Result<BasicMemoryMapper<Calls>> make_mapper(const MapperOptions& options = {}, S&& diagnosis = {}) noexcept {
  Backing way{options.mode, CodeFile::none};
  if (options.mode == MapMode::automatic) {
    way = jit_capabilities<Calls>().backing;
    if (way.mode == MapMode::refuse || (options.directory != nullptr && way.mode != MapMode::dual_memfd)) {
      // Not kept: a directory is this caller's, and what was full or out of descriptors may work by now.
      const JitCapabilities found = probe_code_memory<Calls>(options.directory);
      way = found.backing;
      if (way.mode == MapMode::refuse) {
        static_cast<void>(write_attempts(diagnosis, found));
        Error e = make_error(Errc::permission_denied, "no way to make code memory works here");
        e.native = found.attempts[0].error.native;
        e.at_kind = AtKind::count;
        e.at = found.attempts.size();
        return e;
      }
    }
  } else if (options.mode != MapMode::refuse) {
    if (options.mode != MapMode::mprotect_anon) way.file = CodeFile::memfd;
    if (const Error e = try_backing<Calls>(way); !e.ok()) {
      static_cast<void>(write_error(diagnosis, e));
      return e;
    }
  }
  return BasicMemoryMapper<Calls>(way, MappingName::make(options.program, options.id), options.directory, options.keep_from_children);
}

}  // namespace holdfast
