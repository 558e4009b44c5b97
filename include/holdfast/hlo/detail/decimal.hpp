// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "holdfast/core/shape.hpp"
#include "holdfast/hlo/detail/text_builder.hpp"

namespace holdfast::detail {

/// A floating-point value taken apart: (-1)^negative * mantissa * 2^exponent, or no number.
struct FloatParts {
  enum class Kind : std::uint8_t { finite, infinite, nan };
  Kind kind = Kind::finite;
  bool negative = false;
  std::uint64_t mantissa = 0;
  std::int32_t exponent = 0;
  bool narrow_below = false;      ///< a power of two: the next value below is half as far away
  int digits_short = 0;           ///< tried first; 0: only `digits_long`
  int digits_long = 0;            ///< enough for every value of the type to be read back
  std::uint64_t nan_payload = 0;  ///< 0: the usual one
};

/// How a floating-point type spends its bits.
struct FloatFormat {
  enum class Special : std::uint8_t { ieee, all_ones_nan, sign_nan, none };
  ElementType type;
  std::uint8_t exponent_bits, mantissa_bits;
  std::int16_t bias;
  Special special;
  std::uint8_t digits_long;
};

inline constexpr FloatFormat float_formats[] = {
    {ElementType::f16, 5, 10, 15, FloatFormat::Special::ieee, 5},
    {ElementType::bf16, 8, 7, 127, FloatFormat::Special::ieee, 4},
    {ElementType::f32, 8, 23, 127, FloatFormat::Special::ieee, 9},
    {ElementType::f64, 11, 52, 1023, FloatFormat::Special::ieee, 17},
    {ElementType::f8e5m2, 5, 2, 15, FloatFormat::Special::ieee, 2},
    {ElementType::f8e4m3, 4, 3, 7, FloatFormat::Special::ieee, 3},
    {ElementType::f8e3m4, 3, 4, 3, FloatFormat::Special::ieee, 3},
    {ElementType::f8e4m3fn, 4, 3, 7, FloatFormat::Special::all_ones_nan, 3},
    {ElementType::f8e4m3b11fnuz, 4, 3, 11, FloatFormat::Special::sign_nan, 3},
    {ElementType::f8e5m2fnuz, 5, 2, 16, FloatFormat::Special::sign_nan, 2},
    {ElementType::f8e4m3fnuz, 4, 3, 8, FloatFormat::Special::sign_nan, 3},
    {ElementType::f4e2m1fn, 2, 1, 1, FloatFormat::Special::none, 2},
};

/// Takes the bits of a value apart.
constexpr FloatParts float_parts(const FloatFormat& f, std::uint64_t bits) noexcept {
  FloatParts p;
  const std::uint64_t mantissa_mask = (std::uint64_t{1} << f.mantissa_bits) - 1;
  const std::uint64_t exponent_mask = (std::uint64_t{1} << f.exponent_bits) - 1;
  const std::uint64_t mantissa = bits & mantissa_mask;
  const std::uint64_t exponent = (bits >> f.mantissa_bits) & exponent_mask;
  p.negative = ((bits >> (f.mantissa_bits + f.exponent_bits)) & 1) != 0;
  p.digits_long = f.digits_long;
  p.digits_short = f.type == ElementType::f32 ? 6 : f.type == ElementType::f64 ? 15 : 0;
  using Special = FloatFormat::Special;
  if (f.special == Special::ieee && exponent == exponent_mask) {
    p.kind = mantissa == 0 ? FloatParts::Kind::infinite : FloatParts::Kind::nan;
    if (mantissa != (mantissa_mask + 1) / 2) p.nan_payload = mantissa;
  }
  if (f.special == Special::all_ones_nan && exponent == exponent_mask && mantissa == mantissa_mask)
    p.kind = FloatParts::Kind::nan;
  if (f.special == Special::sign_nan && p.negative && exponent == 0 && mantissa == 0) {
    p.kind = FloatParts::Kind::nan;
    p.negative = false;
  }
  p.mantissa = exponent == 0 ? mantissa : mantissa | (mantissa_mask + 1);
  p.exponent =
      static_cast<std::int32_t>(std::max<std::uint64_t>(exponent, 1)) - f.bias - f.mantissa_bits;
  p.narrow_below = mantissa == 0 && exponent > 1;
  return p;
}

/// An exact non-negative decimal number: digits, most significant first, of which `point` stand
/// before the point.
struct Decimal {
  std::vector<std::uint8_t> digits;
  std::int32_t point = 0;
};

/// Writes value * 2^exponent exactly, with all digits from the first on. Cost: quadratic in
/// |exponent|.
constexpr Decimal make_decimal(std::uint64_t value, std::int32_t exponent) {
  constexpr std::uint32_t base = 1'000'000'000;
  std::vector<std::uint32_t> words;  // least significant first
  for (; value != 0; value /= base) words.push_back(static_cast<std::uint32_t>(value % base));
  const auto multiply = [&](std::uint32_t by) {
    std::uint64_t carry = 0;
    for (std::uint32_t& w : words) {
      carry += static_cast<std::uint64_t>(w) * by;
      w = static_cast<std::uint32_t>(carry % base);
      carry /= base;
    }
    if (carry != 0) words.push_back(static_cast<std::uint32_t>(carry));
  };
  // 2^-n is 5^n with the point n places to the left.
  for (std::int32_t left = exponent; left > 0; left -= std::min(left, 29))
    multiply(std::uint32_t{1} << std::min(left, 29));
  for (std::int32_t left = -exponent; left > 0; left -= std::min(left, 12)) {
    std::uint32_t power = 1;
    for (std::int32_t i = 0; i < std::min(left, 12); ++i) power *= 5;
    multiply(power);
  }
  Decimal out;
  for (std::size_t i = words.size(); i-- > 0;)
    for (std::uint32_t unit = base / 10; unit != 0; unit /= 10)
      out.digits.push_back(static_cast<std::uint8_t>(words[i] / unit % 10));
  std::size_t zeros = 0;
  while (zeros < out.digits.size() && out.digits[zeros] == 0) ++zeros;
  out.digits.erase(out.digits.begin(), out.digits.begin() + static_cast<std::ptrdiff_t>(zeros));
  out.point = static_cast<std::int32_t>(out.digits.size()) + std::min(exponent, 0);
  return out;
}

/// Rounds to `count` significant digits, ties to even.
constexpr Decimal rounded(Decimal d, std::size_t count) {
  if (d.digits.size() <= count) return d;
  const bool tail = std::any_of(d.digits.begin() + static_cast<std::ptrdiff_t>(count) + 1,
                                d.digits.end(), [](std::uint8_t x) { return x != 0; });
  const std::uint8_t next = d.digits[count];
  bool up = next > 5 || (next == 5 && (tail || (count > 0 && d.digits[count - 1] % 2 != 0)));
  d.digits.resize(count, 0);
  for (std::size_t i = count; up && i-- > 0;) {
    up = d.digits[i] == 9;
    d.digits[i] = up ? std::uint8_t{0} : static_cast<std::uint8_t>(d.digits[i] + 1);
  }
  if (up) {
    d.digits.insert(d.digits.begin(), 1);
    d.digits.pop_back();
    ++d.point;
  }
  return d;
}

/// The digit that stands `place` places after the point (negative: before it).
constexpr int digit_at(const Decimal& d, std::int32_t place) noexcept {
  const std::int32_t i = d.point + place;
  return i < 0 || i >= static_cast<std::int32_t>(d.digits.size())
             ? 0
             : d.digits[static_cast<std::size_t>(i)];
}

/// Compares |a - b| with c: negative, zero or positive. Cost: linear in the digits.
constexpr int compare_distance(const Decimal& a, const Decimal& b, const Decimal& c) noexcept {
  const std::int32_t first = -std::max({a.point, b.point, c.point});
  const auto last_of = [](const Decimal& d) {
    return static_cast<std::int32_t>(d.digits.size()) - d.point;
  };
  const std::int32_t last = std::max({last_of(a), last_of(b), last_of(c)});
  std::int64_t sign = 0;  // of a - b, from the first digit that differs
  std::int64_t difference =
      0;  // of |a - b| - c, saturated: later digits cannot turn more than 10 around
  for (std::int32_t i = first; i < last; ++i) {
    const int d = digit_at(a, i) - digit_at(b, i);
    if (sign == 0 && d != 0) sign = d < 0 ? -1 : 1;
    difference = difference * 10 + sign * d - digit_at(c, i);
    difference = std::clamp<std::int64_t>(difference, -1000, 1000);
  }
  return difference < 0 ? -1 : difference > 0 ? 1 : 0;
}

/// Writes a decimal of `count` significant digits as C's `%g` does.
constexpr void put_general(TextBuilder& out, const Decimal& d, int count) {
  std::size_t used = d.digits.size();
  while (used > 0 && d.digits[used - 1] == 0) --used;
  if (used == 0) return out.put('0');
  const std::int32_t exponent = d.point - 1;
  const auto digit = [&](std::size_t i) {
    return static_cast<char>('0' + (i < used ? d.digits[i] : 0));
  };
  if (exponent < -4 || exponent >= count) {
    out.put(digit(0));
    if (used > 1) out.put('.');
    for (std::size_t i = 1; i < used; ++i) out.put(digit(i));
    out.put('e'), out.put(exponent < 0 ? '-' : '+');
    const std::int32_t size = exponent < 0 ? -exponent : exponent;
    if (size < 10) out.put('0');
    return out.number(size);
  }
  if (d.point <= 0) out.put("0.");
  for (std::int32_t i = d.point; i < 0; ++i) out.put('0');
  for (std::size_t i = 0; i < std::max(used, static_cast<std::size_t>(std::max(d.point, 0))); ++i) {
    if (d.point > 0 && i == static_cast<std::size_t>(d.point)) out.put('.');
    out.put(digit(i));
  }
}

/// Writes `nan`, or `nan(0x1)` when it carries more than the quiet bit.
constexpr void put_nan(TextBuilder& out, std::uint64_t payload) {
  out.put("nan");
  if (payload == 0) return;
  out.put("(0x");
  int shift = 60;
  while (((payload >> shift) & 15) == 0) shift -= 4;
  for (; shift >= 0; shift -= 4) out.put("0123456789abcdef"[(payload >> shift) & 15]);
  out.put(')');
}

/// Writes a value as XLA does: the short form if that reads back to the same value, else the long
/// one.
constexpr void put_float(TextBuilder& out, const FloatParts& p) {
  if (p.negative) out.put('-');
  if (p.kind == FloatParts::Kind::infinite) return out.put("inf");
  if (p.kind == FloatParts::Kind::nan) return put_nan(out, p.nan_payload);
  if (p.mantissa == 0) return out.put('0');
  const Decimal exact = make_decimal(p.mantissa * 4, p.exponent - 2);
  if (p.digits_short != 0) {
    const Decimal shorter = rounded(exact, static_cast<std::size_t>(p.digits_short));
    const Decimal half = make_decimal(p.narrow_below ? 1 : 2, p.exponent - 2);
    const int distance = compare_distance(shorter, exact, half);
    // At half a step a reader rounds to the even neighbour.
    if (distance < 0 || (distance == 0 && p.mantissa % 2 == 0))
      return put_general(out, shorter, p.digits_short);
  }
  put_general(out, rounded(exact, static_cast<std::size_t>(p.digits_long)), p.digits_long);
}

/// Writes a double, for instance a protobuf field.
constexpr void put_double(TextBuilder& out, std::uint64_t bits) {
  put_float(out, float_parts(float_formats[3], bits));
}

}  // namespace holdfast::detail
