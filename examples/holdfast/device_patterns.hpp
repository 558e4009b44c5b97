// SPDX-License-Identifier: Apache-2.0
// Patterns in the memory of a CUDA device, which a kernel there writes and tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>

#include "holdfast/backend/cuda/pool_memory.hpp"
#include "holdfast/core/byte_pattern.hpp"

namespace program {

/// The arguments of the kernel in `pattern_ptx`, in its order; `wrong`: null to write.
struct PatternArguments {
  std::uint64_t at = 0, units = 0, last = 0, paged = 0, shift = 0, first = 0, wrong = 0;

  PatternArguments(std::uint64_t stamp, holdfast::Block block, holdfast::PatternCheck check,
                   std::byte* result) noexcept
      : at(reinterpret_cast<std::uintptr_t>(block.data)),
        units(static_cast<std::uint64_t>(block.size)),
        first(holdfast::BytePattern(stamp).first_word()),
        wrong(reinterpret_cast<std::uintptr_t>(result)) {
    const std::uint64_t words = units / 8;
    if (check == holdfast::PatternCheck::full || words == 0) return;
    last = words - 1;
    paged = (words + 511) / 512 * 16;
    shift = words * 8 - paged;
    units = paged + units % 8;
  }
};

/// A device that writes and tests patterns: memory of a pool, a stream, a kernel.
///
/// `Launch` puts the kernel on a stream: `Error launch(const Stream&, const PatternArguments&)`.
/// All calls are done when they return. Threads: any; one call runs at a time.
template <holdfast::cuda_driver Driver, class Launch>
class PatternDevice {
 public:
  using Memory = holdfast::BasicCudaPoolMemory<Driver>;

  PatternDevice(Memory memory, holdfast::BasicCudaStream<Driver> stream, Launch launch) noexcept
      : memory_(memory), stream_(std::move(stream)), launch_(std::move(launch)) {}
  PatternDevice(PatternDevice&&) = delete;
  ~PatternDevice() { memory_.deallocate(wrong_); }

  /// Makes the word in which the kernel says what is wrong. Errors: the memory's.
  [[nodiscard]] holdfast::Error make() noexcept {
    const holdfast::Result<holdfast::Block> block = memory_.allocate(8, holdfast::Alignment(8));
    if (block.ok()) wrong_ = *block;
    return block.error();
  }
  [[nodiscard]] holdfast::Error write(std::uint64_t stamp, holdfast::Block to,
                                      holdfast::PatternCheck check) noexcept {
    const std::lock_guard lock(mutex_);
    return finish(launch_(stream_.ref(), PatternArguments(stamp, to, check, nullptr)));
  }
  [[nodiscard]] holdfast::Result<holdfast::Bytes> compare(std::uint64_t stamp, holdfast::Block with,
                                                          holdfast::PatternCheck check) noexcept {
    const std::lock_guard lock(mutex_);
    least_ = ~std::uint64_t{0};
    const std::span<std::uint64_t, 1> word(&least_, 1);
    auto set = memory_.copy_in(stream_.ref(), wrong_, 0, std::as_bytes(word));
    if (!set.ok()) return set.error();
    holdfast::Error e = launch_(stream_.ref(), PatternArguments(stamp, with, check, wrong_.data));
    if (e.ok())
      e = memory_.copy_out(stream_.ref(), wrong_, 0, std::as_writable_bytes(word)).error();
    e = finish(e);
    if (!e.ok()) return e;
    return least_ >= static_cast<std::uint64_t>(with.size) ? with.size
                                                           : static_cast<holdfast::Bytes>(least_);
  }
  [[nodiscard]] holdfast::Error copy(holdfast::Block to, const std::byte* from) noexcept {
    const std::lock_guard lock(mutex_);
    const holdfast::Block source{const_cast<std::byte*>(from), to.size};
    return finish(memory_.copy(stream_.ref(), to, 0, source, 0, to.size).error());
  }

 private:
  /// Waits for all that was enqueued, also after an error: nothing may touch memory that goes then.
  [[nodiscard]] holdfast::Error finish(const holdfast::Error& e) noexcept {
    const holdfast::Error end = stream_.synchronize();
    return e.ok() ? end : e;
  }

  Memory memory_;
  holdfast::BasicCudaStream<Driver> stream_;
  Launch launch_;
  holdfast::Block wrong_;
  std::uint64_t least_ = 0;  // not in a frame: after a wait that failed the device may still write it
  std::mutex mutex_;
};

/// A device's patterns as the checking kernel keeps them: a pointer to the device.
template <class Device>
struct DevicePatterns {
  Device* device = nullptr;
  [[nodiscard]] holdfast::Error write(std::uint64_t stamp, holdfast::Block to,
                                      holdfast::PatternCheck check) noexcept {
    return device->write(stamp, to, check);
  }
  [[nodiscard]] holdfast::Result<holdfast::Bytes> compare(std::uint64_t stamp, holdfast::Block with,
                                                          holdfast::PatternCheck check) noexcept {
    return device->compare(stamp, with, check);
  }
  [[nodiscard]] holdfast::Error copy(holdfast::Block to, const std::byte* from) noexcept {
    return device->copy(to, from);
  }
};

}  // namespace program
