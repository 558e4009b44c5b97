// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace holdfast {

/// Where bytes live; the numbers are XLA's, and all but 0 and 5 are a backend's own business.
enum class MemorySpace : std::int32_t { device = 0, fast = 1, host = 5 };

/// Why somebody holds a buffer.
enum class HoldKind : std::uint8_t { usage = 0, external = 1, donation = 2 };

/// What may be done to a mapped page.
enum class Access : std::uint8_t { none, read, read_write, read_execute };

/// Whose memory a block is, for observers and reports; `name` is a string literal or null.
struct Tag {
  const char* name = nullptr;
  std::uint64_t number = 0;
};

/// One instruction of a `Module`.
enum class InstructionId : std::uint32_t {};
/// One computation of a `Module`.
enum class ComputationId : std::uint32_t {};
/// One interned shape of a `Module`.
enum class ShapeId : std::uint32_t {};
/// One storage-bearing datum of a program.
enum class ValueId : std::uint32_t {};
/// One node of a `Graph`.
enum class NodeId : std::uint32_t {};

/// "There is none", for every strong id.
template <class Id>
inline constexpr Id no_id = static_cast<Id>(0xFFFFFFFFu);

/// The place of a strong id in its table.
template <class Id>
  requires std::is_enum_v<Id>
[[nodiscard]] constexpr std::uint32_t index_of(Id id) noexcept {
  return static_cast<std::uint32_t>(id);
}

/// A run of entries in a pooled vector: how tables of variable length are kept without an allocation each.
struct IndexRange {
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
  [[nodiscard]] constexpr std::uint32_t end() const noexcept { return begin + count; }
  [[nodiscard]] constexpr bool empty() const noexcept { return count == 0; }
};

}  // namespace holdfast
