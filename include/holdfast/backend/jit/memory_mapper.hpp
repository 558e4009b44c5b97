// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "holdfast/backend/jit/code_file.hpp"
#include "holdfast/backend/jit/mapping_name.hpp"
#include "holdfast/backend/jit/system_calls.hpp"
#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/types.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// Memory for code: where it is written and where it runs, the same where one view does for both.
///
/// Relocations count with `run`. `write` is null before `commit` and after `seal`.
struct CodeBlock {
  std::byte* write = nullptr;
  std::byte* run = nullptr;
  Bytes size = 0;
  friend constexpr bool operator==(const CodeBlock&, const CodeBlock&) noexcept = default;
};

/// Where addresses are to lie: aligned, and within 2 GiB of `near` if that can be had.
struct CodePlacement {
  Alignment alignment{};
  const void* near = nullptr;
};

/// What a mapper holds. Units: `blocks` and `failures` are counts; `held_since` is seconds of the monotonic clock, plus 1.
struct MapperStatistics {
  Bytes live = 0;
  Bytes peak = 0;
  std::int64_t blocks = 0;
  std::int64_t failures = 0;
  std::int64_t held_since = 0;  ///< when it last began to hold something; 0: it holds nothing
};

/// Maps code memory: reserves addresses, commits parts for writing, seals them for running; never writable and executable.
///
/// `reserve` gives addresses alone; `commit` makes a part of them writable for what it will become, `seal` makes code
/// executable and takes its write view away; `release` gives all back. Parts are whole pages.
/// Threads: any, on different blocks.
template <jit_system_calls Calls = SystemCalls>
class BasicMemoryMapper {
 public:
  using mapping_type = CodeBlock;
  using calls_type = Calls;

  /// A mapper with a backing that works here (see `make_mapper`, which finds one). `directory` outlives it.
  explicit BasicMemoryMapper(Backing backing, MappingName name = MappingName::make("code", ""), const char* directory = nullptr,
                             bool keep_from_children = false) noexcept
      : backing_(backing), name_(name), directory_(directory), keep_from_children_(keep_from_children) {}
  BasicMemoryMapper(const BasicMemoryMapper&) = delete;
  BasicMemoryMapper& operator=(const BasicMemoryMapper&) = delete;
  /// Moves a mapper that nobody else uses.
  BasicMemoryMapper(BasicMemoryMapper&& other) noexcept
      : backing_(other.backing_), name_(other.name_), directory_(other.directory_), keep_from_children_(other.keep_from_children_),
        live_(other.live_.exchange(0)), peak_(other.peak_.exchange(0)), blocks_(other.blocks_.exchange(0)),
        failures_(other.failures_.exchange(0)), held_since_(other.held_since_.exchange(0)) {}

  [[nodiscard]] Backing backing() const noexcept { return backing_; }
  [[nodiscard]] MapMode mode() const noexcept { return backing_.mode; }
  [[nodiscard]] const MappingName& name() const noexcept { return name_; }
  [[nodiscard]] static Bytes page_size() noexcept { return Calls::page_size(); }
  [[nodiscard]] MapperStatistics statistics() const noexcept {
    constexpr auto relaxed = std::memory_order_relaxed;
    return {live_.load(relaxed), peak_.load(relaxed), blocks_.load(relaxed), failures_.load(relaxed), held_since_.load(relaxed)};
  }

  /// Reserves addresses that nothing can touch yet; 0 bytes give the empty block.
  ///
  /// Errors: invalid_argument (negative), permission_denied (mode refuse), out_of_memory, the kernel's others.
  [[nodiscard]] Result<CodeBlock> reserve(Bytes size) noexcept { return reserve(size, CodePlacement{}); }
  [[nodiscard]] Result<CodeBlock> reserve(Bytes size, CodePlacement placement) noexcept {
    const Bytes page = page_size(), alignment = std::max(page, placement.alignment.value());
    Bytes rounded = 0, wide = 0;
    if (size < 0) return fail(make_error(Errc::invalid_argument, "a negative number of bytes was asked for"), size);
    if (backing_.mode == MapMode::refuse) return fail(make_error(Errc::permission_denied, "no way to make code memory works here"), size);
    if (size == 0) return CodeBlock{};
    if (!checked_align_up(size, page, rounded) || !checked_add(rounded, alignment - page, wide))
      return fail(make_error(Errc::out_of_memory, "Out of memory allocating"), size);
    CodeBlock block{nullptr, nullptr, rounded};
    if (placement.near != nullptr) block.run = reserve_near(rounded, alignment, placement.near);
    if (block.run == nullptr) {
      void* at = nullptr;
      if (const int failed = Calls::map(at, bytes(wide), PROT_NONE, anonymous, -1); failed != 0)
        return fail(detail::jit_error(detail::JitCall::map, failed), size);
      if (const int failed = trim(at, wide, rounded, alignment, block.run); failed != 0)
        return fail(detail::jit_error(detail::JitCall::unmap, failed), size);
    }
    static_cast<void>(Calls::name_pages(block.run, bytes(rounded), anonymous_name_.c_str()));  // only a name; parts keep it
    const Bytes live = live_.fetch_add(rounded, std::memory_order_relaxed) + rounded;
    for (Bytes seen = peak_.load(std::memory_order_relaxed); seen < live && !peak_.compare_exchange_weak(seen, live);) {}
    if (blocks_.fetch_add(1, std::memory_order_relaxed) == 0) held_since_.store(seconds(), std::memory_order_relaxed);
    return block;
  }

  /// Makes reserved pages writable for what they will be: code, or data that stays where it is written.
  ///
  /// On failure the part is as before. Errors: the kernel's; those of the mode's file.
  [[nodiscard]] Error commit(CodeBlock& part, Access purpose = Access::read_execute) noexcept {
    if (part.size == 0) return {};
    const bool code = purpose == Access::read_execute;
    if (!code || backing_.file == CodeFile::none) {
      if (const int failed = Calls::protect(part.run, bytes(part.size), PROT_READ | PROT_WRITE); failed != 0)
        return fail(detail::jit_error(detail::JitCall::protect, failed), part.size);
      part.write = part.run;
    } else if (Error e = commit_file(part); !e.ok()) {
      return fail(e, part.size);
    }
    if (keep_from_children_ && code) static_cast<void>(Calls::advise(part.run, bytes(part.size), MADV_DONTFORK));
    return {};
  }

  /// Says what may be done through the view that runs: read, write (data only) or execute.
  ///
  /// Errors: invalid_argument (code that is mapped twice is written through its own view); the kernel's.
  [[nodiscard]] Error protect(const CodeBlock& part, Access access) noexcept {
    if (part.size == 0) return {};
    if (access == Access::read_write && part.write != part.run)
      return fail(make_error(Errc::invalid_argument, "the view that runs is never writable"), part.size);
    constexpr int protections[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC};
    if (const int failed = Calls::protect(part.run, bytes(part.size), protections[static_cast<std::size_t>(access)]); failed != 0)
      return fail(detail::jit_error(detail::JitCall::protect, failed), part.size);
    return {};
  }

  /// Makes written code executable and ends its writing: afterwards `write` is null.
  ///
  /// On failure nothing is executable, the part stays writable. Errors: wrong_state (not committed); the kernel's.
  [[nodiscard]] Error seal(CodeBlock& part) noexcept {
    if (part.size == 0) return {};
    if (part.write == nullptr) return make_error(Errc::wrong_state, "code memory is sealed once, after it was committed");
    // What was written is made visible first: no processor has fetched from pages that are not executable yet, and a
    // failure here has nothing to take back.
    if (const int failed = Calls::publish(part.write, part.run, bytes(part.size)); failed != 0)
      return fail(detail::jit_error(detail::JitCall::publish, failed), part.size);
    if (Error e = protect(part, Access::read_execute); !e.ok()) return e;
    if (part.write != part.run) {
      if (const int failed = Calls::unmap(part.write, bytes(part.size)); failed != 0) {
        static_cast<void>(protect(part, Access::read));
        return fail(detail::jit_error(detail::JitCall::unmap, failed), part.size);
      }
    }
    part.write = nullptr;
    return {};
  }

  /// Ends a committed part's write view where it has one of its own; for a part of what `release` takes later.
  void drop_write_view(CodeBlock& part) noexcept {
    if (part.write != nullptr && part.write != part.run && Calls::unmap(part.write, bytes(part.size)) != 0)
      failures_.fetch_add(1, std::memory_order_relaxed);
    part.write = nullptr;
  }

  /// Forbids every later change of a part, its release too (mseal): for code that lives as long as the process.
  ///
  /// Errors: unsupported (the kernel has no mseal). Never fails otherwise for a sealed part.
  [[nodiscard]] Error make_permanent(const CodeBlock& part) noexcept {
    if (part.size == 0) return {};
    const int failed = Calls::seal_pages(part.run, bytes(part.size));
    return failed == 0 ? Error{} : detail::jit_error(detail::JitCall::seal_pages, failed);
  }

  /// Asks for huge pages: a hint.
  void advise_huge(const CodeBlock& part) noexcept { static_cast<void>(Calls::advise(part.run, bytes(part.size), MADV_HUGEPAGE)); }

  /// Gives back a block from `reserve`, its write view too, and empties it. What the kernel keeps counts as a failure.
  void release(CodeBlock& block) noexcept {
    if (block.run == nullptr) return;
    drop_write_view(block);
    if (Calls::unmap(block.run, bytes(block.size)) != 0) {
      failures_.fetch_add(1, std::memory_order_relaxed);
    } else {
      live_.fetch_sub(block.size, std::memory_order_relaxed);
      if (blocks_.fetch_sub(1, std::memory_order_relaxed) == 1) held_since_.store(0, std::memory_order_relaxed);
    }
    block = CodeBlock{};
  }

 private:
  static constexpr int anonymous = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

  [[nodiscard]] static std::size_t bytes(Bytes size) noexcept { return static_cast<std::size_t>(size); }
  [[nodiscard]] static std::int64_t seconds() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1;
  }
  [[nodiscard]] HOLDFAST_COLD Error fail(Error e, Bytes size) noexcept {
    failures_.fetch_add(1, std::memory_order_relaxed);
    e.stage = Stage::allocation;
    e.requested = size;
    return e;
  }

  // Cuts an over-long mapping down to an aligned one; on failure all of it is given back.
  [[nodiscard]] static int trim(void* at, Bytes wide, Bytes size, Bytes alignment, std::byte*& out) noexcept {
    auto* first = static_cast<std::byte*>(at);
    const auto rest = static_cast<Bytes>(reinterpret_cast<std::uintptr_t>(first) % static_cast<std::uintptr_t>(alignment));
    const Bytes head = rest == 0 ? 0 : alignment - rest, tail = wide - size - head;
    int failed = head > 0 ? Calls::unmap(first, bytes(head)) : 0;
    const Bytes begin = failed == 0 ? head : 0;
    if (failed == 0 && tail > 0) failed = Calls::unmap(first + head + size, bytes(tail));
    if (failed != 0) static_cast<void>(Calls::unmap(first + begin, bytes(wide - begin)));
    out = failed == 0 ? first + head : nullptr;
    return failed;
  }

  // Tries places around an address, the nearest first; null where all are taken.
  [[nodiscard]] static std::byte* reserve_near(Bytes size, Bytes alignment, const void* near) noexcept {
    constexpr std::uintptr_t reach = (std::uintptr_t{1} << 31) - 4096, step = std::uintptr_t{1} << 26;
    constexpr int no_replace = 0x100000;  // MAP_FIXED_NOREPLACE; kernels that do not know it take a hint
    const auto center = reinterpret_cast<std::uintptr_t>(near);
    const auto length = static_cast<std::uintptr_t>(size), align = static_cast<std::uintptr_t>(alignment);
    for (std::uintptr_t k = 1; k < reach / step; ++k)
      for (const bool above : {false, true}) {
        if (!above && center < k * step + length) continue;
        const std::uintptr_t place = (above ? center + k * step : center - k * step - length) / align * align;
        const std::uintptr_t low = std::min(place, center), high = std::max(place + length, center);
        if (place == 0 || high - low > reach) continue;
        void* at = reinterpret_cast<void*>(place);
        if (Calls::map(at, bytes(size), PROT_NONE, anonymous | no_replace, -1) != 0) continue;
        if (at == reinterpret_cast<void*>(place)) return static_cast<std::byte*>(at);
        static_cast<void>(Calls::unmap(at, bytes(size)));
      }
    return nullptr;
  }

  // Maps a file's pages over a reserved part: once, or twice where they are written elsewhere.
  [[nodiscard]] Error commit_file(CodeBlock& part) noexcept {
    constexpr int shrink = 2, grow = 4, future_write = 16;
    Result<int> made = detail::make_code_file<Calls>(backing_.file, name_, directory_, bytes(part.size));
    if (!made.ok()) return made.error();
    const int fd = *made;
    const bool dual = backing_.mode == MapMode::dual_memfd;
    void* run = part.run;
    void* write = dual ? nullptr : run;
    detail::JitCall call = detail::JitCall::map;
    int failed = Calls::map(write, bytes(part.size), PROT_READ | PROT_WRITE, dual ? MAP_SHARED : MAP_SHARED | MAP_FIXED, fd);
    const bool written = failed == 0;
    // The write view stands; from here on nobody with the descriptor makes another.
    if (failed == 0 && backing_.file == CodeFile::memfd) {
      call = detail::JitCall::seals;
      failed = Calls::add_seals(fd, shrink | grow | future_write);
      if (failed == EINVAL) failed = Calls::add_seals(fd, shrink | grow);  // Linux before 5.1
    }
    if (failed == 0 && dual) {
      call = detail::JitCall::map;
      failed = Calls::map(run, bytes(part.size), PROT_READ, MAP_SHARED | MAP_FIXED, fd);
    }
    Calls::close(fd);
    if (failed == 0) {
      part.write = static_cast<std::byte*>(write);
      return {};
    }
    if (dual && written) static_cast<void>(Calls::unmap(write, bytes(part.size)));
    // A refused fixed mapping may have taken the old one away: nobody else is to land in the reservation.
    run = part.run;
    static_cast<void>(Calls::map(run, bytes(part.size), PROT_NONE, anonymous | MAP_FIXED, -1));
    return detail::jit_error(call, failed);
  }

  Backing backing_;
  MappingName name_;
  MappingName anonymous_name_ = name_.anonymous();
  const char* directory_;
  bool keep_from_children_;
  std::atomic<Bytes> live_{0}, peak_{0};
  std::atomic<std::int64_t> blocks_{0}, failures_{0}, held_since_{0};
};

/// The mapper of this system.
using MemoryMapper = BasicMemoryMapper<>;
static_assert(mapping_backend<MemoryMapper>);

}  // namespace holdfast
