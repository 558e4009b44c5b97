// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "holdfast/backend/host/system_memory.hpp"
#include "holdfast/core/types.hpp"

namespace holdfast::detail {

/// What a guard knows of a block.
struct GuardRecord {
  std::byte* data = nullptr;  ///< where the user's bytes begin; null: no record
  Bytes size = 0;
  Bytes front = 0;  ///< bytes of red zone before it
  Tag tag;
  std::uint64_t number = 0;
  std::byte* next = nullptr;  ///< the one released after it
  bool freed = false;
};

/// The records of a guard by address: open addressing, at most half full. Threads: one at a time.
class GuardTable {
 public:
  GuardTable() noexcept = default;
  GuardTable(const GuardTable&) = delete;
  GuardTable& operator=(const GuardTable&) = delete;
  ~GuardTable() { release(); }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] GuardRecord* find(const std::byte* data) noexcept {
    if (slots_ == nullptr) return nullptr;
    for (std::size_t i = home(data);; i = (i + 1) & mask_) {
      if (slots_[i].data == data) return &slots_[i];
      if (slots_[i].data == nullptr) return nullptr;
    }
  }
  /// Adds a record; false when there is no memory for it. Records move.
  [[nodiscard]] bool insert(const GuardRecord& r) noexcept {
    if ((slots_ == nullptr || size_ * 2 > mask_) && !grow()) return false;
    place(r);
    ++size_;
    return true;
  }
  /// Takes a record out; others move.
  void erase(GuardRecord* r) noexcept {
    auto hole = static_cast<std::size_t>(r - slots_);
    for (std::size_t i = (hole + 1) & mask_; slots_[i].data != nullptr; i = (i + 1) & mask_) {
      // What lies behind the hole moves into it unless its home is behind the hole too.
      if (((i - home(slots_[i].data)) & mask_) >= ((i - hole) & mask_)) {
        slots_[hole] = slots_[i];
        hole = i;
      }
    }
    slots_[hole] = GuardRecord{};
    --size_;
  }
  template <class F>
  void each(F f) noexcept {
    for (std::size_t i = 0; slots_ != nullptr && i <= mask_; ++i)
      if (slots_[i].data != nullptr) f(slots_[i]);
  }

 private:
  [[nodiscard]] std::size_t home(const std::byte* data) const noexcept {
    return static_cast<std::size_t>((reinterpret_cast<std::uintptr_t>(data) * std::uint64_t{0x9E3779B97F4A7C15u}) >> 32) & mask_;
  }
  void place(const GuardRecord& r) noexcept {
    std::size_t i = home(r.data);
    while (slots_[i].data != nullptr) i = (i + 1) & mask_;
    slots_[i] = r;
  }
  [[nodiscard]] static Bytes bytes(std::size_t count) noexcept { return static_cast<Bytes>(count * sizeof(GuardRecord)); }
  [[nodiscard]] bool grow() noexcept {
    const std::size_t count = slots_ == nullptr ? 64 : (mask_ + 1) * 2;
    Result<Block> block = SystemMemory{}.allocate(bytes(count), Alignment(alignof(GuardRecord)));
    if (!block.ok()) return false;
    GuardRecord* const old = slots_;
    const std::size_t old_count = old == nullptr ? 0 : mask_ + 1;
    slots_ = reinterpret_cast<GuardRecord*>(block->data);
    mask_ = count - 1;
    for (std::size_t i = 0; i < count; ++i) ::new (static_cast<void*>(slots_ + i)) GuardRecord;
    for (std::size_t i = 0; i < old_count; ++i)
      if (old[i].data != nullptr) place(old[i]);
    if (old != nullptr) SystemMemory{}.deallocate({reinterpret_cast<std::byte*>(old), bytes(old_count)});
    return true;
  }
  void release() noexcept {
    if (slots_ != nullptr) SystemMemory{}.deallocate({reinterpret_cast<std::byte*>(slots_), bytes(mask_ + 1)});
  }

  GuardRecord* slots_ = nullptr;
  std::size_t mask_ = 0, size_ = 0;
};

}  // namespace holdfast::detail
