// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "holdfast/buffer/raw_buffer.hpp"
#include "holdfast/concepts/memory_backend.hpp"
#include "holdfast/core/array_shape.hpp"
#include "holdfast/core/result.hpp"

namespace holdfast {

/// Packs elements of one byte each into `bits` bits each, the first into the low ones.
///
/// Units: `bits` is 1, 2, 4 or 8. Errors: invalid_argument ("Mismatched packed target size"); nothing is written then.
[[nodiscard]] inline Error pack_elements(std::span<const std::byte> from, unsigned bits, std::span<std::byte> to) noexcept {
  HOLDFAST_ASSERT(bits != 0 && bits <= 8 && 8 % bits == 0);
  const std::size_t each = 8 / bits, need = from.size() / each + (from.size() % each != 0);
  if (to.size() != need) {
    Error e = make_error(Errc::invalid_argument, "Mismatched packed target size");
    e.requested = static_cast<Bytes>(need);
    e.available = static_cast<Bytes>(to.size());
    return e;
  }
  const unsigned mask = 0xFFu >> (8 - bits);
  for (std::size_t at = 0; at < need; ++at) {
    unsigned packed = 0;
    for (std::size_t k = 0; k < each && at * each + k < from.size(); ++k)
      packed |= (std::to_integer<unsigned>(from[at * each + k]) & mask) << (bits * k);
    to[at] = static_cast<std::byte>(packed);
  }
  return {};
}

/// Undoes `pack_elements`; the high bits of a signed element repeat its sign. Errors: invalid_argument (sizes).
[[nodiscard]] inline Error unpack_elements(std::span<const std::byte> from, unsigned bits, bool is_signed,
                                           std::span<std::byte> to) noexcept {
  HOLDFAST_ASSERT(bits != 0 && bits <= 8 && 8 % bits == 0);
  const std::size_t each = 8 / bits;
  if (from.size() != to.size() / each + (to.size() % each != 0))
    return make_error(Errc::invalid_argument, "Mismatched packed source size");
  const unsigned mask = 0xFFu >> (8 - bits), sign = is_signed ? 1u << (bits - 1) : 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const unsigned value = (std::to_integer<unsigned>(from[i / each]) >> (bits * (i % each))) & mask;
    to[i] = static_cast<std::byte>((value & sign) != 0 ? value | ~mask : value);
  }
  return {};
}

namespace detail {

// Calls `visit` with the index of every element, the last dimension fastest.
template <class Visit>
void each_index(const ArrayShape& shape, Visit visit) noexcept {
  std::array<std::int64_t, ArrayShape::max_rank> index{};
  for (std::int64_t left = shape.count(); left > 0; --left) {
    visit(std::span<const std::int64_t>(index.data(), shape.rank()));
    for (std::size_t d = shape.rank(); d-- > 0;) {
      if (++index[d] < shape.dimensions[d]) break;
      index[d] = 0;
    }
  }
}

// Whether the bytes in the layout are those of the row-major values, one after the other.
constexpr bool is_plain(const ArrayShape& shape) noexcept { return shape.element_bits == 0 && shape.is_row_major(); }
constexpr bool is_narrow_signed(ElementType type) noexcept {
  return type == ElementType::s4 || type == ElementType::s2 || type == ElementType::s1;
}

inline Error wrong_size(const char* what, Bytes wanted, std::size_t given) noexcept {
  Error e = make_error(Errc::invalid_argument, what);
  e.requested = wanted;
  e.available = static_cast<Bytes>(given);
  return e;
}
// The shape, and whether values and memory are as large as it says.
inline Error check_sizes(const ArrayShape& shape, std::size_t values, std::size_t device) noexcept {
  if (Error e = shape.check(); !e.ok()) return e;
  if (static_cast<Bytes>(values) != shape.host_size())
    return wrong_size("the values are not as many bytes as the array has", shape.host_size(), values);
  if (static_cast<Bytes>(device) != shape.device_size())
    return wrong_size("the memory is not as large as the array in its layout", shape.device_size(), device);
  return {};
}

}  // namespace detail

/// Lays row-major values out as the shape says: its layout, tiles and packing. What is padding becomes 0.
///
/// Errors: invalid_argument (the shape, or sizes that are not its `host_size` and `device_size`). Cost: the elements.
[[nodiscard]] inline Error lay_out(const ArrayShape& shape, std::span<const std::byte> values, std::span<std::byte> device) noexcept {
  if (Error e = detail::check_sizes(shape, values.size(), device.size()); !e.ok()) return e;
  if (values.empty()) return {};
  if (detail::is_plain(shape)) return std::memcpy(device.data(), values.data(), values.size()), Error{};
  std::memset(device.data(), 0, device.size());
  const unsigned bits = shape.element_bits;
  const auto width = static_cast<std::size_t>((bit_width(shape.type) + 7) / 8);
  const std::byte* from = values.data();
  detail::each_index(shape, [&](std::span<const std::int64_t> index) noexcept {
    const auto at = static_cast<std::size_t>(shape.element_offset(index));
    if (bits == 0) {
      std::memcpy(device.data() + at * width, from, width);
    } else {
      const std::size_t bit = at * bits;
      const unsigned value = (std::to_integer<unsigned>(*from) & (0xFFu >> (8 - bits))) << (bit % 8);
      device[bit / 8] |= static_cast<std::byte>(value);
    }
    from += width;
  });
  return {};
}

/// Undoes `lay_out`: reads the values, row major, out of memory in the shape's layout. Errors, Cost: as `lay_out`.
[[nodiscard]] inline Error read_out(const ArrayShape& shape, std::span<const std::byte> device, std::span<std::byte> values) noexcept {
  if (Error e = detail::check_sizes(shape, values.size(), device.size()); !e.ok()) return e;
  if (values.empty()) return {};
  if (detail::is_plain(shape)) return std::memcpy(values.data(), device.data(), values.size()), Error{};
  const unsigned bits = shape.element_bits;
  const bool is_signed = detail::is_narrow_signed(shape.type);
  const auto width = static_cast<std::size_t>((bit_width(shape.type) + 7) / 8);
  std::byte* to = values.data();
  detail::each_index(shape, [&](std::span<const std::int64_t> index) noexcept {
    const auto at = static_cast<std::size_t>(shape.element_offset(index));
    if (bits == 0) {
      std::memcpy(to, device.data() + at * width, width);
    } else {
      const std::size_t bit = at * bits;
      const unsigned mask = 0xFFu >> (8 - bits), value = (std::to_integer<unsigned>(device[bit / 8]) >> (bit % 8)) & mask;
      const bool negative = is_signed && (value >> (bits - 1)) != 0;
      *to = static_cast<std::byte>(negative ? value | ~mask : value);
    }
    to += width;
  });
  return {};
}

/// An array of host values: a shape and its elements, row major, whole bytes each, with one owner.
///
/// The shape's layout says how a buffer holds the same array: see `ShapedBuffer`. Threads: as a value.
template <memory_backend Backend>
  requires host_accessible<Backend>
class Literal {
 public:
  /// Makes room, uninitialised. Errors: as `ArrayShape::check`; the backend's own.
  [[nodiscard]] static Result<Literal> allocate(Backend backend, const ArrayShape& shape) noexcept {
    if (Error e = shape.check(); !e.ok()) return e;
    auto memory = RawBuffer<Backend, Unique>::allocate(std::move(backend), shape.host_size());
    if (!memory.ok()) return memory.error();
    return Result<Literal>(Literal(shape, std::move(*memory)));
  }
  [[nodiscard]] const ArrayShape& shape() const noexcept { return shape_; }
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return {memory_.data(), static_cast<std::size_t>(memory_.size())}; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {memory_.data(), static_cast<std::size_t>(memory_.size())};
  }
  /// The elements as values of a type of their size; another size is a broken precondition.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::span<T> values() noexcept {
    HOLDFAST_ASSERT(sizeof(T) == static_cast<std::size_t>((bit_width(shape_.type) + 7) / 8));
    return {reinterpret_cast<T*>(memory_.data()), static_cast<std::size_t>(shape_.count())};
  }

 private:
  Literal(const ArrayShape& shape, RawBuffer<Backend, Unique> memory) noexcept : shape_(shape), memory_(std::move(memory)) {}
  ArrayShape shape_;
  RawBuffer<Backend, Unique> memory_;
};

}  // namespace holdfast
