// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace holdfast::detail {

/// Finds the place of a number in a list: by a table when the numbers lie close together, else by a
/// search.
///
/// Ids are untrusted, so no table is larger than a few times the list. Cost: O(n log n) to build,
/// O(log n) to ask.
class IdMap {
 public:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;
  static constexpr std::uint32_t many = 0xFFFFFFFEu;

  /// Takes the numbers; those that occur twice are found as `many`.
  constexpr void build(std::span<const std::int64_t> ids) {
    slots_.clear();
    sorted_.clear();
    if (ids.empty()) return;
    const auto [low, high] = std::minmax_element(ids.begin(), ids.end());
    const std::uint64_t span = static_cast<std::uint64_t>(*high) - static_cast<std::uint64_t>(*low);
    if (span <= ids.size() * 4 + 16) {
      base_ = *low;
      slots_.assign(static_cast<std::size_t>(span) + 1, none);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        std::uint32_t& slot = slots_[static_cast<std::size_t>(static_cast<std::uint64_t>(ids[i]) -
                                                              static_cast<std::uint64_t>(base_))];
        slot = slot == none ? static_cast<std::uint32_t>(i) : many;
      }
      return;
    }
    sorted_.reserve(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i)
      sorted_.emplace_back(ids[i], static_cast<std::uint32_t>(i));
    std::sort(sorted_.begin(), sorted_.end());
    for (std::size_t i = 1; i < sorted_.size(); ++i)
      if (sorted_[i].first == sorted_[i - 1].first)
        sorted_[i].second = sorted_[i - 1].second = many;
  }
  /// The place of a number; `none`, or `many`.
  [[nodiscard]] constexpr std::uint32_t find(std::int64_t id) const noexcept {
    if (!slots_.empty()) {
      const std::uint64_t at = static_cast<std::uint64_t>(id) - static_cast<std::uint64_t>(base_);
      return at < slots_.size() ? slots_[static_cast<std::size_t>(at)] : none;
    }
    const auto at =
        std::lower_bound(sorted_.begin(), sorted_.end(), std::pair{id, std::uint32_t{0}});
    return at != sorted_.end() && at->first == id ? at->second : none;
  }

 private:
  std::vector<std::uint32_t> slots_;
  std::int64_t base_ = 0;
  std::vector<std::pair<std::int64_t, std::uint32_t>> sorted_;
};

/// Finds instructions of one computation by id: as written first, then by the low 32 bits, as newer
/// writers mean it.
///
/// Source: hlo-format.md M.6.
class InstructionIdMap {
 public:
  constexpr InstructionIdMap() = default;
  constexpr ~InstructionIdMap() =
      default;  // spelled: nvcc 13.0 takes a class with a span and a vector for no literal type

  /// Takes the ids of all instructions of a computation; false when one occurs twice.
  constexpr bool build(std::span<const std::int64_t> ids) {
    ids_ = ids;
    has_local_ = false;
    full_.build(ids);
    return std::ranges::none_of(ids,
                                [this](std::int64_t id) { return full_.find(id) == IdMap::many; });
  }
  [[nodiscard]] constexpr std::uint32_t find(std::int64_t id) {
    const std::uint32_t at = full_.find(id);
    if (at != IdMap::none || id < 0 || id > 0xFFFFFFFF) return at;
    if (!has_local_) {
      std::vector<std::int64_t> low(ids_.begin(), ids_.end());
      for (std::int64_t& l : low) l &= 0xFFFFFFFF;
      local_.build(low);
      has_local_ = true;
    }
    return local_.find(id);
  }

 private:
  std::span<const std::int64_t> ids_;
  IdMap full_, local_;
  bool has_local_ = false;
};

}  // namespace holdfast::detail
