// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "holdfast/graph/shape_table.hpp"
#include "holdfast/hlo/detail/warning_list.hpp"
#include "holdfast/hlo/lexer.hpp"

namespace holdfast::detail {

/// How layouts are read.
struct LayoutRules {
  bool strict = false;          ///< suffixes in their order, and only known ones
  bool default_layouts = true;  ///< an array without a layout gets the row-major one
  WarningList* warnings = nullptr;
};

/// Reads one layout `{1,0:T(8,128)S(5)}`; its runs of numbers go to the shape table's pool.
class LayoutReader {
 public:
  constexpr LayoutReader(Lexer& in, std::vector<std::int64_t>& numbers,
                         const LayoutRules& rules) noexcept
      : in_(in), numbers_(numbers), rules_(rules) {}

  /// Tells whether a layout comes next: `{` and then a number or `:`.
  [[nodiscard]] constexpr bool begins() noexcept {
    Lexer ahead = in_;
    ahead.skip_space();
    if (!ahead.take('{')) return false;
    ahead.skip_space();
    return ahead.peek() == ':' ||
           (hlo_chars[static_cast<unsigned char>(ahead.peek())] & is_digit) != 0;
  }

  /// Reads the layout of an array whose dimensions are known.
  constexpr bool read(const Shape& shape, Layout& out) {
    in_.skip_space();
    const std::size_t from = in_.offset();
    in_.skip(1);
    if (!order(shape.dimensions.count, from, out)) return false;
    if (in_.take(':')) {
      int last = -1;
      for (in_.skip_space(); in_.peek() != '}'; in_.skip_space())
        if (!suffix(shape, out, last)) return false;
    }
    return in_.expect('}', "expected } after a layout");
  }

 private:
  static constexpr std::string_view known[] = {"D", "T", "L", "#", "*", "E", "S", "SC", "P", "M"};

  constexpr IndexRange run_from(std::size_t mark) const noexcept {
    return {static_cast<std::uint32_t>(mark), static_cast<std::uint32_t>(numbers_.size() - mark)};
  }
  constexpr bool order(std::uint32_t rank, std::size_t from, Layout& out) {
    const std::size_t mark = numbers_.size();
    std::uint64_t seen = 0;
    in_.skip_space();
    if (in_.peek() != ':')
      for (;;) {
        in_.skip_space();
        const std::size_t at = in_.offset();
        std::int64_t d = 0;
        if (!in_.integer(d)) return false;
        if (d < 0 || d >= rank)
          return in_.fail_at(at, "layout names a dimension that the shape has not");
        if ((seen >> d & 1) != 0) return in_.fail_at(at, "layout repeats a dimension");
        seen |= std::uint64_t{1} << d;
        numbers_.push_back(d);
        in_.skip_space();
        if (!in_.take(',')) break;
      }
    out.minor_to_major = run_from(mark);
    return out.minor_to_major.count == rank ||
           in_.fail_at(from, "layout has not as many dimensions as the shape");
  }

  constexpr bool suffix(const Shape& shape, Layout& out, int& last) {
    const std::size_t from = in_.offset();
    std::string_view word = in_.word();
    if (word.empty() && (in_.peek() == '#' || in_.peek() == '*')) {
      in_.skip(1);
      word = in_.since(from);
    }
    if (word.empty()) return in_.fail("expected a layout suffix or }");
    int which = 0;
    while (which < 10 && known[which] != word) ++which;
    if (which == 10) {
      if (rules_.strict) return in_.fail_at(from, "unknown layout suffix");
      if (rules_.warnings != nullptr) rules_.warnings->add(from, "unknown layout suffix", word);
      in_.skip_space();
      return in_.peek() == '(' ? in_.group() : in_.fail("expected ( after a layout suffix");
    }
    if (which == last || (rules_.strict && which < last))
      return in_.fail_at(from, "layout suffixes are out of order; it is D T L # * E S SC P M");
    if ((seen_ >> which & 1) != 0) return in_.fail_at(from, "layout suffix is given twice");
    seen_ |= 1u << which;
    last = which;
    in_.skip_space();
    switch (which) {
      case 0:
        return text(out.levels);
      case 1:
        return tiles(out);
      case 2:
        return number(out.tail_padding, 1);
      case 3:
        return type(out.index_type);
      case 4:
        return type(out.pointer_type);
      case 5:
        return number(out.element_bits, 0);
      case 6: {
        std::int64_t space = 0;
        if (!number(space, 0)) return false;
        if (space > std::numeric_limits<std::int32_t>::max())
          return in_.fail_at(from, "number is too large");
        out.space = static_cast<MemorySpace>(space);
        return true;
      }
      case 7:
        return splits(shape, out);
      case 8:
        return text(out.physical);
      default:
        return number(out.prefix_bytes, 0);
    }
  }
  constexpr bool text(std::string_view& out) noexcept {
    const std::size_t from = in_.offset();
    if (in_.peek() != '(') return in_.fail("expected ( after a layout suffix");
    if (!in_.group()) return false;
    out = in_.since(from);
    out = out.substr(1, out.size() - 2);
    return true;
  }
  constexpr bool number(std::int64_t& out, std::int64_t least) noexcept {
    if (!in_.expect('(', "expected ( after a layout suffix")) return false;
    in_.skip_space();
    const std::size_t from = in_.offset();
    if (!in_.integer(out)) return false;
    if (out < least) return in_.fail_at(from, "number is too small");
    return in_.expect(')', "expected ) after a number");
  }
  constexpr bool type(ElementType& out) noexcept {
    if (!in_.expect('(', "expected ( after a layout suffix")) return false;
    in_.skip_space();
    const std::size_t from = in_.offset();
    out = element_type(in_.word());
    if (!is_array(out)) return in_.fail_at(from, "expected an element type");
    return in_.expect(')', "expected ) after a type");
  }
  // One or several lists in parentheses; each goes to the pool behind its length.
  constexpr bool tiles(Layout& out) {
    const std::size_t mark = numbers_.size();
    if (in_.peek() != '(') return in_.fail("expected ( after a layout suffix");
    while (in_.take('(')) {
      const std::size_t count_at = numbers_.size();
      numbers_.push_back(0);
      for (;;) {
        in_.skip_space();
        const std::size_t at = in_.offset();
        std::int64_t size = unbounded_dimension;
        if (!in_.take('*')) {
          if (!in_.integer(size)) return false;
          if (size <= 0) return in_.fail_at(at, "a tile has to have a positive size");
        }
        numbers_.push_back(size);
        ++numbers_[count_at];
        in_.skip_space();
        if (in_.take(')')) break;
        if (!in_.take(',')) return in_.fail("expected , or ) in a tile");
      }
      in_.skip_space();
    }
    out.tiles = run_from(mark);
    return true;
  }
  constexpr bool splits(const Shape& shape, Layout& out) {
    const std::size_t mark = numbers_.size();
    if (in_.peek() != '(') return in_.fail("expected ( after a layout suffix");
    while (in_.take('(')) {
      in_.skip_space();
      std::size_t at = in_.offset();
      std::int64_t dimension = 0;
      if (!in_.integer(dimension)) return false;
      if (dimension < 0 || dimension >= shape.dimensions.count)
        return in_.fail_at(at, "split names a dimension that the shape has not");
      if (!in_.expect(':', "expected : after a split's dimension")) return false;
      const std::int64_t size =
          numbers_[shape.dimensions.begin + static_cast<std::size_t>(dimension)];
      numbers_.push_back(dimension);
      const std::size_t count_at = numbers_.size();
      numbers_.push_back(0);
      for (std::int64_t before = 0;;) {
        in_.skip_space();
        at = in_.offset();
        std::int64_t cut = 0;
        if (!in_.integer(cut)) return false;
        if (cut <= before || (size >= 0 && cut >= size))
          return in_.fail_at(at, "split cuts outside its dimension or out of order");
        before = cut;
        numbers_.push_back(cut);
        ++numbers_[count_at];
        in_.skip_space();
        if (in_.take(')')) break;
        if (!in_.take(',')) return in_.fail("expected , or ) in a split");
      }
      in_.skip_space();
    }
    out.splits = run_from(mark);
    return true;
  }

  Lexer& in_;
  std::vector<std::int64_t>& numbers_;
  LayoutRules rules_;
  unsigned seen_ = 0;
};

}  // namespace holdfast::detail
