// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "holdfast/concepts/memory_backend.hpp"

namespace holdfast {

/// Whose a chunk of a `TwoEnded` pool is; in other pools all are the lower end's.
enum class BfcEnd : std::uint8_t { lower, upper, gap };

namespace detail {

/// Chunks are multiples of it, at multiples of it.
inline constexpr Bytes bfc_granule = 256;

/// One piece of a region, in use or free; the pieces tile it. The memory itself is never touched: it may be a device's.
/// Before the first of each region stands a record of no size that is never free.
struct BfcChunk {
  struct Queue {
    std::uint32_t older, newer;
  };
  std::byte* data;
  Bytes size;
  union {
    Bytes requested;  ///< in use
    Queue queue;      ///< free and stamped
  };
  std::uint64_t id;        ///< the number of its allocation, from 1; 0: free
  std::uint64_t freed_at;  ///< the stamp of its release; 0: in use, or joined with its neighbours at once
  std::uint32_t prev, next;   ///< by address, within the region; 0: none
  std::uint32_t left, right;  ///< the free index's
  BfcEnd owner;
  std::uint8_t alignment;  ///< of the block in use, as a power of two
  Tag tag;

  [[nodiscard]] bool used() const noexcept { return id != 0; }
  [[nodiscard]] std::byte* end() const noexcept { return data + size; }
};

[[nodiscard]] inline std::uint64_t bfc_address(const std::byte* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }

/// An array of plain records that grows by doubling, in a backend's memory; new ones are zero.
template <class T>
class BfcArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  /// Makes room for `count` records; false, and nothing changed, when there is no memory.
  template <memory_backend Meta>
  [[nodiscard]] bool reserve(Meta& meta, std::uint32_t count) noexcept {
    if (count <= capacity_) return true;
    std::uint32_t capacity = capacity_ == 0 ? 64 : capacity_;
    while (capacity < count)
      if ((capacity *= 2) == 0) return false;
    const Result<Block> grown = meta.allocate(static_cast<Bytes>(sizeof(T) * capacity), Alignment(64));
    if (!grown.ok()) return false;
    std::memset(grown->data, 0, sizeof(T) * capacity);
    if (block_.data != nullptr) std::memcpy(grown->data, block_.data, sizeof(T) * capacity_);
    release(meta);
    block_ = *grown;
    capacity_ = capacity;
    return true;
  }
  template <memory_backend Meta>
  void release(Meta& meta) noexcept {
    meta.deallocate(std::exchange(block_, Block{}));
    capacity_ = 0;
  }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] T* data() const noexcept { return reinterpret_cast<T*>(block_.data); }
  [[nodiscard]] T& operator[](std::uint32_t i) const noexcept { return data()[i]; }

 private:
  Block block_;
  std::uint32_t capacity_ = 0;
};

/// The records of all chunks, by number; 0 is none. A number is used again after its chunk is gone.
class BfcChunks {
 public:
  /// Makes sure that `count` records more can be made.
  template <memory_backend Meta>
  [[nodiscard]] bool reserve(Meta& meta, std::uint32_t count) noexcept {
    return made_ + count <= chunks_.capacity() + spare_ || chunks_.reserve(meta, made_ + count);
  }
  template <memory_backend Meta>
  void release(Meta& meta) noexcept {
    chunks_.release(meta);
  }
  [[nodiscard]] BfcChunk& operator[](std::uint32_t i) const noexcept { return chunks_[i]; }
  [[nodiscard]] BfcChunk* all() const noexcept { return chunks_.data(); }

  /// Makes a free chunk between two others (0: none), which `reserve` made room for.
  std::uint32_t make(std::byte* data, Bytes size, BfcEnd owner, std::uint32_t prev, std::uint32_t next) noexcept {
    const std::uint32_t c = free_ != 0 ? free_ : made_++;
    HOLDFAST_ASSERT(c < chunks_.capacity());
    BfcChunk& chunk = chunks_[c];
    if (free_ != 0) free_ = chunk.next, --spare_;
    ++count_;
    chunk.data = data;
    chunk.size = size;
    chunk.id = chunk.freed_at = 0;
    chunk.prev = prev;
    chunk.next = next;
    chunk.owner = owner;
    if (prev != 0) chunks_[prev].next = c;
    if (next != 0) chunks_[next].prev = c;
    return c;
  }
  /// Forgets a chunk: its neighbours are each other's.
  void drop(std::uint32_t c) noexcept {
    BfcChunk& chunk = chunks_[c];
    if (chunk.prev != 0) chunks_[chunk.prev].next = chunk.next;
    if (chunk.next != 0) chunks_[chunk.next].prev = chunk.prev;
    chunk.next = free_;
    free_ = c;
    ++spare_;
    --count_;
  }
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }

 private:
  BfcArray<BfcChunk> chunks_;
  std::uint32_t made_ = 1, free_ = 0, spare_ = 0, count_ = 0;
};

/// Finds the chunk in use at an address: open addressing, at most half full, of 4 bytes a slot.
class BfcAddresses {
 public:
  /// Makes sure that `used` chunks have room.
  template <memory_backend Meta>
  [[nodiscard]] bool reserve(Meta& meta, const BfcChunks& chunks, std::uint32_t used) noexcept {
    if (used < slots_.capacity() / 2) [[likely]] return true;
    BfcArray<std::uint32_t> grown;
    if (slots_.capacity() > (1u << 30) || !grown.reserve(meta, slots_.capacity() == 0 ? 256 : slots_.capacity() * 2)) return false;
    std::swap(slots_, grown);
    shift_ = 64;
    for (std::uint32_t n = slots_.capacity(); n > 1; n /= 2) --shift_;
    for (std::uint32_t i = 0; i < grown.capacity(); ++i)
      if (grown[i] != 0) insert(chunks, grown[i]);
    grown.release(meta);
    return true;
  }
  template <memory_backend Meta>
  void release(Meta& meta) noexcept {
    slots_.release(meta);
  }
  void insert(const BfcChunks& chunks, std::uint32_t c) noexcept {
    std::uint32_t at = home(chunks[c].data);
    while (slots_[at] != 0) at = (at + 1) & mask();
    slots_[at] = c;
  }
  /// The slot of the chunk in use that begins at `p`; `none` where there is none.
  [[nodiscard]] std::uint32_t find(const BfcChunks& chunks, const std::byte* p) const noexcept {
    if (slots_.capacity() == 0) return none;
    for (std::uint32_t at = home(p); slots_[at] != 0; at = (at + 1) & mask())
      if (chunks[slots_[at]].data == p) return at;
    return none;
  }
  [[nodiscard]] std::uint32_t at(std::uint32_t slot) const noexcept { return slots_[slot]; }
  /// Empties a slot; those behind it move up, so that no search ends early.
  void erase(const BfcChunks& chunks, std::uint32_t hole) noexcept {
    for (std::uint32_t at = hole;;) {
      at = (at + 1) & mask();
      if (slots_[at] == 0) break;
      if (((at - home(chunks[slots_[at]].data)) & mask()) < ((at - hole) & mask())) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = 0;
  }
  static constexpr std::uint32_t none = 0xFFFFFFFFu;

 private:
  [[nodiscard]] std::uint32_t mask() const noexcept { return slots_.capacity() - 1; }
  [[nodiscard]] std::uint32_t home(const std::byte* p) const noexcept {
    return static_cast<std::uint32_t>(((bfc_address(p) / static_cast<std::uint64_t>(bfc_granule)) * 0x9E3779B97F4A7C15u) >> shift_);
  }
  BfcArray<std::uint32_t> slots_;
  int shift_ = 63;
};

}  // namespace detail
}  // namespace holdfast
