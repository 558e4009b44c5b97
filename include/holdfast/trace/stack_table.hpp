// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include <dlfcn.h>
#include <unwind.h>

#include "holdfast/concepts/lock.hpp"
#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/concepts/sink.hpp"
#include "holdfast/core/hash.hpp"
#include "holdfast/core/hash_table.hpp"
#include "holdfast/trace/detail/report_text.hpp"
#include "holdfast/trace/stack_source.hpp"

namespace holdfast {

/// Fills `frames` with the return addresses of its callers, innermost first; gives how many there
/// are.
///
/// Threads: any. Cost: about a microsecond; the first call may load the unwinder's tables.
inline std::size_t capture_stack(std::span<const void*> frames) noexcept {
  struct State {
    std::span<const void*> frames;
    std::size_t count;
  } state{frames, 0};
  const auto step = [](_Unwind_Context* context, void* to) noexcept {
    State& s = *static_cast<State*>(to);
    if (s.count == s.frames.size()) return _URC_END_OF_STACK;
    s.frames[s.count++] = reinterpret_cast<const void*>(_Unwind_GetIP(context));
    return _URC_NO_REASON;
  };
  _Unwind_Backtrace(step, &state);
  return state.count;
}

/// Keeps each call stack once and gives it a number.
///
/// Memory comes from a backend that is not observed with stacks of this table; where it has no
/// more, a stack has no number. Stacks stay until the table dies. Threads: any.
template <memory_backend Backend, lock Lock = WordLock>
class StackTable {
  static_assert(host_accessible<Backend>, "the host reads and writes what a table holds");

 public:
  static constexpr std::size_t max_depth = 48;

  explicit StackTable(Backend backend = {}) noexcept : backend_(backend), stacks_(backend) {}
  StackTable(const StackTable&) = delete;
  StackTable& operator=(const StackTable&) = delete;
  ~StackTable() {
    for (const Block& b : chunks_) backend_.deallocate(b);
  }

  /// The number of a stack, its first `max_depth` frames; `no_id` where there is no memory for a
  /// new one.
  [[nodiscard]] StackId intern(std::span<const void* const> frames) noexcept {
    frames = frames.first(std::min(frames.size(), max_depth));
    if (frames.empty()) return no_id<StackId>;
    Entry key{0, frames.data(), static_cast<std::uint32_t>(frames.size()), no_id<StackId>};
    for (const void* f : frames) key.key = mix_hash(key.key, reinterpret_cast<std::uintptr_t>(f));
    const LockGuard guard(lock_);
    if (const Entry* known = stacks_.find(key); known != nullptr) return known->id;
    const void** const room = reserve(frames.size() + 1, key.id);
    if (room == nullptr) return no_id<StackId>;
    room[0] = reinterpret_cast<const void*>(frames.size());
    std::copy(frames.begin(), frames.end(), room + 1);
    key.frames = room + 1;
    if (stacks_.insert(key) == nullptr) return no_id<StackId>;
    used_ = index_of(key.id) + frames.size() + 1;
    return key.id;
  }
  /// The number of the caller's own stack; its first frames are the library's.
  [[nodiscard]] StackId take() noexcept {
    std::array<const void*, max_depth> frames;
    return intern({frames.data(), capture_stack(frames)});
  }
  /// The frames of a number that it gave; they stay where they are. Of another number, none.
  [[nodiscard]] std::span<const void* const> frames(StackId id) const noexcept {
    const LockGuard guard(lock_);
    if (index_of(id) >= used_) return {};
    const void* const* const at = address(index_of(id));
    return {at + 1, reinterpret_cast<std::uintptr_t>(at[0])};
  }
  [[nodiscard]] std::size_t count() const noexcept {
    const LockGuard guard(lock_);
    return stacks_.count();
  }

  /// A `stack_source` over it.
  struct Source {
    StackTable* table;
    [[nodiscard]] StackId take() noexcept { return table->take(); }
  };
  [[nodiscard]] Source source() noexcept { return {this}; }

 private:
  struct Entry {
    std::uint64_t key = 0;
    const void* const* frames = nullptr;
    std::uint32_t depth = 0;
    StackId id = no_id<StackId>;

    [[nodiscard]] bool is_used() const noexcept { return frames != nullptr; }
    [[nodiscard]] bool is_same(const Entry& other) const noexcept {
      return key == other.key && depth == other.depth &&
             std::equal(frames, frames + depth, other.frames);
    }
    [[nodiscard]] std::uint64_t hash() const noexcept { return key; }
  };

  // Words are numbered through all chunks; chunk k has twice those of the one before, so that none
  // ever moves.
  static constexpr std::size_t first_chunk = 512;
  [[nodiscard]] static constexpr std::size_t chunk_of(std::size_t word) noexcept {
    return static_cast<std::size_t>(std::bit_width(word / first_chunk + 1)) - 1;
  }
  [[nodiscard]] static constexpr std::size_t begin_of(std::size_t chunk) noexcept {
    return first_chunk * ((std::size_t{1} << chunk) - 1);
  }
  [[nodiscard]] const void** address(std::size_t word) const noexcept {
    const std::size_t chunk = chunk_of(word);
    return reinterpret_cast<const void**>(chunks_[chunk].data) + (word - begin_of(chunk));
  }
  /// Room for words in one chunk, not yet taken; null where there is none.
  [[nodiscard]] const void** reserve(std::size_t words, StackId& id) noexcept {
    std::size_t at = used_;
    if (chunk_of(at) != chunk_of(at + words - 1)) at = begin_of(chunk_of(at) + 1);
    const std::size_t chunk = chunk_of(at);
    if (at + words >= index_of(no_id<StackId>)) return nullptr;
    if (chunks_[chunk].data == nullptr) {
      const auto size = static_cast<Bytes>((first_chunk << chunk) * sizeof(void*));
      const Result<Block> block = backend_.allocate(size, Alignment(alignof(void*)));
      if (!block.ok()) return nullptr;
      chunks_[chunk] = *block;
    }
    id = static_cast<StackId>(at);
    return address(at);
  }

  mutable Lock lock_;
  HOLDFAST_NO_UNIQUE_ADDRESS Backend backend_;
  HashTable<Entry, Backend> stacks_;
  std::array<Block, 24> chunks_{};  // all words that a number can name
  std::size_t used_ = 0;
};

/// Writes a stack, a frame a line: file and offset as `addr2line` takes them, and the name where it
/// is exported.
///
/// Errors: the sink's.
template <memory_backend Backend, lock Lock, sink S>
Error write_stack(const StackTable<Backend, Lock>& table, StackId id, S& out) noexcept {
  detail::ReportText<S> text{out};
  for (const void* frame : table.frames(id)) {
    Dl_info info{};
    const bool found = ::dladdr(frame, &info) != 0 && info.dli_fname != nullptr;
    const auto base = found ? reinterpret_cast<std::uintptr_t>(info.dli_fbase) : std::uintptr_t{0};
    text << "  " << (found ? std::string_view(info.dli_fname) : std::string_view("?")) << "+";
    text.hex(reinterpret_cast<std::uintptr_t>(frame) - base);
    if (found && info.dli_sname != nullptr) text << " " << std::string_view(info.dli_sname);
    text << "\n";
  }
  return text.failure;
}

}  // namespace holdfast
