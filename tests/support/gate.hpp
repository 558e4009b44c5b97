// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/concepts/memory_backend.hpp"

namespace holdfast::testing {

/// Waits until `done()` is true; false after ten seconds.
template <class F>
bool soon(F done) {
  for (int i = 0; i < 100'000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return false;
}

/// Runs `f` on a thread and tells whether it has returned; joins at the end.
class Caller {
 public:
  template <class F>
  explicit Caller(F f) : thread_([this, f]() mutable { f(), returned_.store(true); }) {}
  ~Caller() { thread_.join(); }
  [[nodiscard]] bool returned() const { return returned_.load(); }
  [[nodiscard]] bool returns_soon() const {
    return soon([this] { return returned(); });
  }
  /// True when it is still inside after a while.
  [[nodiscard]] bool blocks() const {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return !returned();
  }

 private:
  std::atomic<bool> returned_{false};
  std::thread thread_;
};

/// What a logging backend has seen.
struct MemoryLog {
  std::atomic<std::int64_t> allocations{0}, frees{0}, live_bytes{0};
  std::atomic<std::int64_t> fail_at{-1};  ///< the allocation of this number fails
};

/// Host memory that counts, fails where told, and spoils freed bytes: one pointer to its log.
class LoggedMemory {
 public:
  static constexpr MemorySpace space = MemorySpace::host;
  LoggedMemory() = default;
  explicit LoggedMemory(MemoryLog& log) noexcept : log_(&log) {}
  Result<Block> allocate(Bytes size, Alignment alignment) noexcept {
    if (size == 0) return Block{};
    if (log_->allocations.fetch_add(1) == log_->fail_at.load() || size < 0)
      return make_error(size < 0 ? Errc::invalid_argument : Errc::out_of_memory, "told to fail");
    log_->live_bytes += size;
    return SystemMemory{}.allocate(size, alignment);
  }
  void deallocate(Block block) noexcept {
    if (block.data == nullptr) return;
    for (Bytes i = 0; i < block.size; ++i) block.data[i] = std::byte{0xDD};
    log_->frees += 1;
    log_->live_bytes -= block.size;
    SystemMemory{}.deallocate(block);
  }

 private:
  MemoryLog* log_ = nullptr;
};
static_assert(memory_backend<LoggedMemory>);

}  // namespace holdfast::testing
