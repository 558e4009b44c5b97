// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "holdfast/core/block.hpp"
#include "holdfast/core/config.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/core/units.hpp"

namespace holdfast {

/// What a table holds: a value-initialised entry is an unused place.
template <class E>
concept table_entry = std::is_trivially_copyable_v<E> && std::default_initializable<E> &&
    requires(const E& e) {
      { e.is_used() } noexcept -> std::same_as<bool>;
      { e.hash() } noexcept -> std::same_as<std::uint64_t>;
      { e.is_same(e) } noexcept -> std::same_as<bool>;
    };

/// A hash table in one block of a backend of host memory: open addressing, no marks of what was erased.
///
/// It doubles above three quarters; where the backend has no more, it fills up to seven eighths and
/// then refuses. An insertion or erasure moves entries. Threads: one.
template <table_entry Entry, class Backend>
class HashTable {
 public:
  explicit HashTable(Backend backend = {}) noexcept : backend_(std::move(backend)) {}
  HashTable(HashTable&& other) noexcept
      : backend_(other.backend_),
        memory_(std::exchange(other.memory_, {})),
        slots_(std::exchange(other.slots_, 0)),
        used_(std::exchange(other.used_, 0)) {}
  HashTable& operator=(HashTable&& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(memory_, other.memory_);
    std::swap(slots_, other.slots_);
    std::swap(used_, other.used_);
    return *this;
  }
  ~HashTable() { backend_.deallocate(memory_); }

  [[nodiscard]] std::size_t count() const noexcept { return used_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return slots_; }

  /// The entry that is the same as `key`, or null.
  [[nodiscard]] Entry* find(const Entry& key) noexcept {
    if (slots_ == 0) return nullptr;
    Entry* const e = entries() + slot_of(key);
    return e->is_used() ? e : nullptr;
  }
  [[nodiscard]] const Entry* find(const Entry& key) const noexcept {
    return const_cast<HashTable*>(this)->find(key);
  }

  /// Puts in what is not there yet; null when there is no memory. Cost: O(1), growth aside.
  Entry* insert(const Entry& entry) noexcept {
    if (used_ * 4 >= slots_ * 3 && !grow() && used_ * 8 >= slots_ * 7) return nullptr;
    Entry* const e = entries() + slot_of(entry);
    *e = entry;
    ++used_;
    return e;
  }
  /// Takes one out; others may move into its place.
  void erase(Entry* e) noexcept {
    const std::size_t mask = slots_ - 1;
    std::size_t hole = static_cast<std::size_t>(e - entries());
    for (std::size_t i = (hole + 1) & mask; entries()[i].is_used(); i = (i + 1) & mask) {
      const std::size_t home = home_of(entries()[i]);
      if (((i - home) & mask) < ((i - hole) & mask)) continue;  // it would stand before its home
      entries()[hole] = entries()[i];
      hole = i;
    }
    entries()[hole] = Entry{};
    --used_;
  }
  /// Takes out all that `gone(entry)` says. Cost: linear in the capacity.
  template <class F>
  void erase_if(F gone) noexcept {
    // Entries only move towards the front, or from the front round to the end: none is passed over.
    for (std::size_t i = 0; i < slots_; ++i)
      while (entries()[i].is_used() && gone(std::as_const(entries()[i]))) erase(entries() + i);
  }
  void clear() noexcept {
    for (std::size_t i = 0; i < slots_; ++i) entries()[i] = Entry{};
    used_ = 0;
  }
  template <class F>
  void visit(F&& f) noexcept {
    for (std::size_t i = 0; i < slots_; ++i)
      if (entries()[i].is_used()) f(entries()[i]);
  }
  template <class F>
  void visit(F&& f) const noexcept {
    const_cast<HashTable*>(this)->visit([&](const Entry& e) { f(e); });
  }

  /// Doubles the room; false when the backend has no more. Cost: linear in the entries.
  bool grow() noexcept {
    const std::size_t slots = slots_ == 0 ? 64 : slots_ * 2;
    Bytes size = 0;
    if (!checked_multiply(static_cast<Bytes>(slots), static_cast<Bytes>(sizeof(Entry)), size))
      return false;
    const Result<Block> block =
        backend_.allocate(size, Alignment(alignof(Entry) < 64 ? 64 : alignof(Entry)));
    if (!block.ok()) return false;
    const Block old = std::exchange(memory_, *block);
    const std::size_t old_slots = std::exchange(slots_, slots);
    std::uninitialized_value_construct_n(entries(), slots_);
    const auto* from = reinterpret_cast<const Entry*>(old.data);
    for (std::size_t i = 0; i < old_slots; ++i)
      if (from[i].is_used()) entries()[slot_of(from[i])] = from[i];
    backend_.deallocate(old);
    return true;
  }

 private:
  [[nodiscard]] Entry* entries() const noexcept { return reinterpret_cast<Entry*>(memory_.data); }
  [[nodiscard]] std::size_t home_of(const Entry& e) const noexcept {
    return static_cast<std::size_t>(e.hash()) & (slots_ - 1);
  }
  /// Where the entry is, or would be.
  [[nodiscard]] std::size_t slot_of(const Entry& key) const noexcept {
    std::size_t i = home_of(key);
    while (entries()[i].is_used() && !entries()[i].is_same(key)) i = (i + 1) & (slots_ - 1);
    return i;
  }

  HOLDFAST_NO_UNIQUE_ADDRESS Backend backend_;
  Block memory_;
  std::size_t slots_ = 0;
  std::size_t used_ = 0;
};

}  // namespace holdfast
