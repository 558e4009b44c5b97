// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "holdfast/core/hash.hpp"
#include "holdfast/core/reader.hpp"
#include "holdfast/hlo/lexer.hpp"

namespace holdfast::detail {

/// Numbers by name, the names being whole words of one text: open addressing, emptied in O(1).
///
/// Hostile names that crowd one place get another hash function, so a look-up stays short.
class NameTable {
 public:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;

  constexpr explicit NameTable(std::string_view text) : text_(text), slots_(least_slots, Slot{}) {}

  /// Forgets all names. Small tables are used again from their start, which stays in the cache.
  constexpr void clear() noexcept {
    count_ = 0;
    mask_ = least_slots - 1;
    std::fill_n(slots_.begin(), least_slots, Slot{});
  }

  /// The number of a name; `none` when it is not there.
  [[nodiscard]] constexpr std::uint32_t find(std::string_view name) const noexcept {
    const std::uint32_t hash = hash_of(name);
    std::size_t i = hash & mask_;
    while (slots_[i].number != none && !same(slots_[i], hash, name)) i = (i + 1) & mask_;
    return slots_[i].number;
  }
  /// Tells that a name will be added soon: its slot is fetched meanwhile.
  // Inlined by force: g++ drops calls whose only effect is a prefetch.
  [[gnu::always_inline]] constexpr void prepare(std::string_view name) const noexcept {
    if (!std::is_constant_evaluated())
      __builtin_prefetch(slots_.data() + (hash_of(name) & mask_), 1);
  }
  /// Adds a name that stands in the text; gives the number it has already, or `none` when it is
  /// new.
  constexpr std::uint32_t insert(std::string_view name, std::uint32_t number) {
    if ((count_ + 1) * 3 > (mask_ + 1) * 2) resize(mask_ < 65536 ? mask_ * 4 + 3 : mask_ * 2 + 1);
    const std::uint32_t hash = hash_of(name);
    std::size_t steps = 0;
    std::size_t i = hash & mask_;
    for (; slots_[i].number != none; i = (i + 1) & mask_, ++steps)
      if (same(slots_[i], hash, name)) return slots_[i].number;
    slots_[i] = {hash, static_cast<std::uint32_t>(name.data() - text_.data()), number};
    ++count_;
    if (steps > longest_probe && reseeds_ < most_reseeds) reseed();
    return none;
  }

  /// The longest run of slots in use: what the slowest look-up may have to walk.
  [[nodiscard]] constexpr std::size_t crowding() const noexcept {
    std::size_t longest = 0, run = 0;
    for (std::size_t i = 0; i <= mask_; ++i) {
      run = slots_[i].number != none ? run + 1 : 0;
      longest = std::max(longest, run);
    }
    return longest;
  }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t at = 0;
    std::uint32_t number = none;  // none: free
  };
  static constexpr std::size_t least_slots = 16;
  static constexpr std::size_t longest_probe = 256;
  static constexpr int most_reseeds = 16;

  constexpr std::uint32_t hash_of(std::string_view name) const noexcept {
    return static_cast<std::uint32_t>(hash_text(name, seed_));
  }
  constexpr bool same(const Slot& slot, std::uint32_t hash, std::string_view name) const noexcept {
    if (slot.hash != hash || text_.size() - slot.at < name.size() ||
        !same_text(name, text_.substr(slot.at, name.size())))
      return false;
    const std::size_t end = slot.at + name.size();
    return end == text_.size() ||
           (hlo_chars[static_cast<unsigned char>(text_[end])] & is_ident) == 0;
  }
  constexpr void put(const Slot& slot) noexcept {
    std::size_t i = slot.hash & mask_;
    while (slots_[i].number != none) i = (i + 1) & mask_;
    slots_[i] = slot;
  }
  constexpr void resize(std::size_t mask) {
    std::vector<Slot> old(slots_.begin(), slots_.begin() + static_cast<std::ptrdiff_t>(mask_ + 1));
    if (slots_.size() <= mask) {
      std::vector<Slot>(mask + 1, Slot{}).swap(slots_);
    } else {
      std::fill_n(slots_.begin(), mask + 1, Slot{});
    }
    mask_ = mask;
    for (const Slot& slot : old)
      if (slot.number != none) put(slot);
  }
  constexpr void reseed() {
    ++reseeds_;
    seed_ = mix_hash(seed_ + 0x9E3779B97F4A7C15u, count_);
    for (std::size_t i = 0; i <= mask_; ++i)
      slots_[i].hash = hash_of(Reader(text_.substr(slots_[i].at)).take_while(hlo_chars, is_ident));
    resize(mask_);
  }

  std::string_view text_;
  std::vector<Slot> slots_;
  std::size_t mask_ = least_slots - 1;
  std::size_t count_ = 0;
  std::uint64_t seed_ = 0;
  int reseeds_ = 0;
};

}  // namespace holdfast::detail
