// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/hlo/detail/decimal.hpp"
#include "holdfast/hlo/detail/proto_shape.hpp"

namespace holdfast::detail {

/// Tells whether a type is a signed integer.
[[nodiscard]] constexpr bool is_signed_integer(ElementType type) noexcept {
  return element_name(type).size() > 1 && element_name(type)[0] == 's';
}
/// Tells whether a type is an unsigned integer; `pred` counts as one.
[[nodiscard]] constexpr bool is_unsigned_integer(ElementType type) noexcept {
  return type == ElementType::pred || element_name(type)[0] == 'u';
}

/// Writes the text of a constant: its values when they are few, `{...}` otherwise or when the file
/// has them not.
///
/// Source: hlo-format.md D, G.7, M.7.
class ProtoLiteralReader {
 public:
  /// More elements than this are not written out, as in XLA's own printing.
  static constexpr std::int64_t few = 10;

  constexpr ProtoLiteralReader(ProtoContext& context, ProtoShapeReader& shapes) noexcept
      : c_(context), shapes_(shapes) {}

  /// Appends to the context's `out`; `shape` is that of the instruction.
  constexpr bool put(const WireField& literal, ShapeId shape) {
    const Shape& s = c_.module.shapes[shape];
    if (!is_array(s.type)) return elided();
    const std::span<const std::int64_t> dimensions = c_.module.shapes.dimensions(shape);
    std::int64_t count = 1;
    std::int64_t braces = 1;  // without the empty dimensions, which must not hide huge ones
    for (const std::int64_t d : dimensions) {
      if (d < 0 || d > few / braces) return elided();
      count *= d;
      if (d != 0) braces *= d;
    }
    values_.clear();
    imaginary_.clear();
    if (count != 0 && !read_values(literal, s.type)) return false;
    if (static_cast<std::int64_t>(values_.size()) < count || !affordable(s.type)) return elided();
    ShapeId order = shape;  // the values stand in the order of the literal's own layout
    if (count > 1 && dimensions.size() > 1 && !read_order(literal, order)) return false;
    put_values(s.type, order, shape);
    return true;
  }

 private:
  ProtoContext& c_;
  ProtoShapeReader& shapes_;
  ProtoFields fields_;
  std::vector<std::uint64_t> values_;     // the bits of the first few
  std::vector<std::uint64_t> imaginary_;  // their imaginary parts
  std::uint32_t effort_ = 10'000'000;     // left for extreme doubles, in binary digits

  /// Extreme doubles have hundreds of digits: only so many are written out, lest a file of nothing
  /// else takes hours.
  constexpr bool affordable(ElementType type) noexcept {
    if (type != ElementType::f64 && type != ElementType::c128) return true;
    for (const std::vector<std::uint64_t>* list : {&values_, &imaginary_})
      for (const std::uint64_t v : *list) {
        const std::int32_t exponent = float_parts(float_formats[3], v).exponent;
        const auto cost = static_cast<std::uint32_t>(exponent < 0 ? -exponent : exponent);
        if (cost > 100 && cost > effort_) return false;
        if (cost > 100) effort_ -= cost;
      }
    return true;
  }
  constexpr bool elided() {
    c_.out.put("{...}");
    return true;
  }

  /// The field that holds the values of a type.
  static constexpr std::uint32_t field_of(ElementType type) noexcept {
    switch (type) {
      case ElementType::pred:
        return 2;
      case ElementType::u8:
        return 3;
      case ElementType::s32:
        return 4;
      case ElementType::s64:
        return 5;
      case ElementType::u32:
        return 6;
      case ElementType::u64:
        return 7;
      case ElementType::f32:
        return 8;
      case ElementType::f64:
        return 9;
      case ElementType::f16:
        return 11;
      case ElementType::c64:
        return 12;
      case ElementType::bf16:
        return 13;
      case ElementType::s8:
        return 15;
      case ElementType::u16:
        return 16;
      case ElementType::s16:
        return 17;
      case ElementType::c128:
        return 18;
      default:
        return static_cast<std::uint32_t>(type);  // the small forms have the number of their type
    }
  }

  constexpr bool read_values(const WireField& literal, ElementType type) {
    if (const Error e = fields_.read(literal); !c_.check(e)) return false;
    const bool complex = type == ElementType::c64 || type == ElementType::c128;
    const std::size_t wanted = complex ? 2 * few : few;
    const bool numbers = type == ElementType::pred || type == ElementType::s32 ||
                         type == ElementType::s64 || type == ElementType::u32 ||
                         type == ElementType::u64;
    const auto width =
        static_cast<std::size_t>(complex ? bit_width(type) / 16 : (bit_width(type) + 7) / 8);
    for (const WireField& f : fields_.all()) {
      if (f.number != field_of(type) || values_.size() >= wanted) continue;
      if (f.kind == WireKind::bytes && numbers) {
        WireReader blob(f.bytes, f.offset);
        for (std::uint64_t n = 0; values_.size() < wanted && blob.next_varint(n);)
          values_.push_back(n);
        if (!c_.check(blob.error())) return false;
      } else if (f.kind == WireKind::bytes) {
        for (std::size_t at = 0; at + width <= f.bytes.size() && values_.size() < wanted;
             at += width) {
          std::uint64_t v = 0;
          for (std::size_t i = 0; i < width; ++i)
            v |= static_cast<std::uint64_t>(static_cast<unsigned char>(f.bytes[at + i])) << (8 * i);
          values_.push_back(v);
        }
      } else {
        values_.push_back(f.value);
      }
    }
    if (complex) {
      std::size_t pairs = 0;
      for (; pairs * 2 + 1 < values_.size(); ++pairs) {
        imaginary_.push_back(values_[pairs * 2 + 1]);
        values_[pairs] = values_[pairs * 2];
      }
      values_.resize(pairs, 0);
    }
    return true;
  }

  constexpr bool read_order(const WireField& literal, ShapeId& order) {
    const WireField own = fields_.message(1, c_.module);
    if (own.bytes.empty()) return true;
    ShapeId read{};
    if (!shapes_.read(own, read)) return false;
    if (!c_.module.shapes.compatible(read, order))
      return c_.fail("literal has another shape than its constant", literal.offset);
    order = read;
    return true;
  }

  constexpr void put_value(ElementType type, std::size_t i, bool scalar) {
    const std::uint64_t v = values_[i];
    if (type == ElementType::pred)
      return c_.out.put(scalar ? (v != 0 ? "true" : "false") : (v != 0 ? "1" : "0"));
    if (type == ElementType::c64 || type == ElementType::c128) {
      const FloatFormat& half = float_formats[type == ElementType::c64 ? 2 : 3];
      c_.out.put('('), put_float(c_.out, float_parts(half, v));
      c_.out.put(", "), put_float(c_.out, float_parts(half, imaginary_[i]));
      return c_.out.put(')');
    }
    for (const FloatFormat& f : float_formats)
      if (f.type == type) return put_float(c_.out, float_parts(f, v));
    if (type == ElementType::f8e8m0fnu) {
      FloatParts p{FloatParts::Kind::finite,
                   false,
                   1,
                   static_cast<std::int32_t>(v & 0xFF) - 127,
                   false,
                   0,
                   2};
      if ((v & 0xFF) == 0xFF) p.kind = FloatParts::Kind::nan;
      return put_float(c_.out, p);
    }
    const int bits = bit_width(type);
    const std::uint64_t mask = bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
    if (!is_signed_integer(type)) return c_.out.unsigned_number(v & mask);
    const bool negative = ((v >> (bits - 1)) & 1) != 0;
    c_.out.number(static_cast<std::int64_t>(negative ? v | ~mask : v & mask));
  }

  // Braces as XLA writes them: `{1, 2}`, `{ { 1, 2 }, { 3, 4 } }`.
  constexpr void put_values(ElementType type, ShapeId order, ShapeId shape) {
    const ShapeTable& shapes = c_.module.shapes;
    const std::vector<std::int64_t> dims(shapes.dimensions(shape).begin(),
                                         shapes.dimensions(shape).end());
    const std::size_t rank = dims.size();
    if (rank == 0) return put_value(type, 0, true);
    std::vector<std::int64_t> stride(rank, 0);
    std::int64_t step = 1;
    const Layout* layout = shapes.layout(order);
    for (std::size_t i = 0; i < rank; ++i) {
      const std::size_t d =
          layout != nullptr
              ? static_cast<std::size_t>(shapes.numbers[layout->minor_to_major.begin + i])
              : rank - 1 - i;
      stride[d] = step;
      step *= dims[d];
    }
    std::vector<std::int64_t> at(rank, 0);
    std::size_t level = 0;
    // An innermost level of at most one element is written without blanks.
    const auto tight = [&] { return rank == 1 || (level + 1 == rank && dims[level] <= 1); };
    const auto open = [&] { c_.out.put(tight() ? "{" : "{ "); };
    const auto close = [&] { c_.out.put(tight() ? "}" : " }"); };
    open();
    for (;;) {
      if (at[level] == dims[level]) {
        close();
        if (level == 0) return;
        at[level--] = 0;
        ++at[level];
        continue;
      }
      if (at[level] != 0) c_.out.put(", ");
      if (level + 1 < rank) {
        ++level;
        open();
        continue;
      }
      std::int64_t index = 0;
      for (std::size_t d = 0; d < rank; ++d) index += at[d] * stride[d];
      put_value(type, static_cast<std::size_t>(index), false);
      ++at[level];
    }
  }
};

}  // namespace holdfast::detail
