// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "holdfast/hlo/detail/proto_fields.hpp"
#include "holdfast/hlo/detail/shape_text.hpp"

namespace holdfast::detail {

/// Reads ShapeProto messages into the module's shape table.
///
/// Errors: corrupt, over_budget, in the context. Source: hlo-format.md L.2, L.3.
class ProtoShapeReader {
 public:
  constexpr explicit ProtoShapeReader(ProtoContext& context) noexcept : c_(context) {}

  /// Reads one shape; false, and the reason in the context, when it is none.
  constexpr bool read(const WireField& message, ShapeId& out) { return read(message, out, 0); }

 private:
  ProtoContext& c_;
  std::vector<WireField> parts_;          // a stack: the element shapes of the tuples being read
  std::vector<ShapeId> children_;         // a stack: those that are read
  std::vector<std::int64_t> dimensions_;  // scratch of one array
  std::vector<std::int64_t> flags_;
  std::vector<std::int64_t> list_;
  TextBuilder text_;

  constexpr bool read(const WireField& message, ShapeId& out, std::uint32_t depth) {
    if (depth >= c_.depth_limit)
      return c_.fail("shapes nest deeper than the depth limit", message.offset);
    dimensions_.clear();
    flags_.clear();
    std::int64_t type = 0;
    WireField layout;
    bool has_layout = false;
    const std::size_t first_part = parts_.size();
    WireReader reader(message.bytes, message.offset);
    for (WireField f; reader.next(f);) {
      if (f.number == 2 && f.kind == WireKind::varint)
        type = static_cast<std::int32_t>(f.signed_value());
      if (f.number == 3 && !c_.check(append_numbers(f, dimensions_))) return false;
      if (f.number == 4 && f.kind == WireKind::bytes) parts_.push_back(f);
      if (f.number == 6 && !c_.check(append_numbers(f, flags_))) return false;
      if (f.number == 5 && f.kind == WireKind::bytes) {
        if (has_layout) {  // written in several parts
          text_.clear();
          text_.put(layout.bytes), text_.put(f.bytes);
          layout.bytes = c_.module.own(text_.view());
        } else {
          layout = f;
        }
        has_layout = true;
      }
    }
    if (!c_.check(reader.error())) return false;
    if (type <= 0 || type >= static_cast<std::int64_t>(element_type_count))
      return c_.fail(type == 0 ? "shape without an element type" : "unknown element type",
                     message.offset);
    const auto element = static_cast<ElementType>(type);
    const bool ok = element == ElementType::tuple || element == ElementType::buffer
                        ? read_children(element, message, first_part, out, depth)
                        : read_array(element, message, has_layout ? &layout : nullptr, out, depth);
    parts_.resize(first_part, WireField{});
    return ok;
  }

  constexpr bool read_children(ElementType element, const WireField& message,
                               std::size_t first_part, ShapeId& out, std::uint32_t depth) {
    const std::size_t first_child = children_.size();
    for (std::size_t i = first_part, end = parts_.size(); i < end; ++i) {
      ShapeId child{};
      const WireField part = parts_[i];
      if (!read(part, child, depth + 1)) return false;
      children_.push_back(child);
    }
    ShapeTable& shapes = c_.module.shapes;
    Shape s;
    s.type = element;
    s.children = {static_cast<std::uint32_t>(shapes.children.size()),
                  static_cast<std::uint32_t>(children_.size() - first_child)};
    if (element == ElementType::buffer &&
        (s.children.count != 1 || !is_array(shapes[children_.back()].type)))
      return c_.fail("buffer shape without an array", message.offset);
    shapes.children.insert(shapes.children.end(),
                           children_.begin() + static_cast<std::ptrdiff_t>(first_child),
                           children_.end());
    children_.resize(first_child, ShapeId{});
    return intern(s, 0, nullptr, message, out);
  }

  constexpr bool read_array(ElementType element, const WireField& message,
                            const WireField* layout_message, ShapeId& out, std::uint32_t depth) {
    ShapeTable& shapes = c_.module.shapes;
    Shape s;
    s.type = element;
    if (!is_array(element)) {
      const auto mark = static_cast<std::uint32_t>(shapes.numbers.size());
      s.dimensions = {mark, 0};
      return intern(s, mark, nullptr, message, out);
    }
    if (dimensions_.size() > ShapeTable::max_rank)
      return c_.fail("shape has more than 64 dimensions", message.offset, Errc::over_budget);
    Layout layout;
    if (layout_message != nullptr && !read_physical(*layout_message, layout, depth)) return false;
    const auto mark = static_cast<std::uint32_t>(shapes.numbers.size());
    s.dimensions = {mark, static_cast<std::uint32_t>(dimensions_.size())};
    for (std::size_t i = 0; i < dimensions_.size(); ++i) {
      const bool unbounded = dimensions_[i] == unbounded_dimension;
      if (dimensions_[i] < 0 && !unbounded) return c_.fail("negative dimension", message.offset);
      if (unbounded || (i < flags_.size() && flags_[i] != 0)) s.dynamic |= std::uint64_t{1} << i;
    }
    append(dimensions_);
    const bool has_layout = layout_message != nullptr;
    if (has_layout && !read_layout(*layout_message, layout, s.dimensions.count)) return false;
    if (!has_layout) {
      layout.minor_to_major = {static_cast<std::uint32_t>(shapes.numbers.size()),
                               s.dimensions.count};
      if (c_.default_layouts)
        for (std::uint32_t i = s.dimensions.count; i-- > 0;) shapes.numbers.push_back(i);
    }
    return intern(s, mark, has_layout || c_.default_layouts ? &layout : nullptr, message, out);
  }

  constexpr bool intern(const Shape& s, std::uint32_t mark, const Layout* layout,
                        const WireField& message, ShapeId& out) {
    const Result<ShapeId> id = c_.module.shapes.intern(s, mark, layout);
    if (!id.ok()) return c_.fail(id.error().what, message.offset, id.error().code);
    out = *id;
    const Shape& made = c_.module.shapes[out];
    if (!is_array(made.type) || made.array_bytes >= 0) return true;
    for (const std::int64_t d : c_.module.shapes.dimensions(out))
      if (d == unbounded_dimension) return true;
    return c_.fail("shape is too large", message.offset);
  }

  constexpr IndexRange append(const std::vector<std::int64_t>& values) {
    std::vector<std::int64_t>& numbers = c_.module.shapes.numbers;
    const auto begin = static_cast<std::uint32_t>(numbers.size());
    numbers.insert(numbers.end(), values.begin(), values.end());
    return {begin, static_cast<std::uint32_t>(values.size())};
  }

  // A physical shape is interned first: the numbers of a shape have to stand together.
  constexpr bool read_physical(const WireField& message, Layout& layout, std::uint32_t depth) {
    WireReader reader(message.bytes, message.offset);
    for (WireField f; reader.next(f);) {
      if (f.number != 10 || f.kind != WireKind::bytes) continue;
      const std::vector<std::int64_t> dimensions = dimensions_, flags = flags_;
      ShapeId physical{};
      if (!read(f, physical, depth + 1)) return false;
      dimensions_ = dimensions, flags_ = flags;
      text_.clear();
      put_shape(text_, c_.module.shapes, physical);
      layout.physical = c_.module.own(text_.view());
    }
    return c_.check(reader.error());
  }

  constexpr bool read_layout(const WireField& message, Layout& layout, std::uint32_t rank) {
    std::vector<std::int64_t> levels, unique, ordered;
    std::vector<std::int64_t>& numbers = c_.module.shapes.numbers;
    list_.clear();
    std::int64_t space = 0;
    WireReader reader(message.bytes, message.offset);
    for (WireField f; reader.next(f);) {
      switch (f.number) {
        case 1:
          if (!c_.check(append_numbers(f, list_))) return false;
          break;
        case 7:
          layout.element_bits = f.signed_value();
          break;
        case 8:
          space = f.signed_value();
          break;
        case 9:
          if (!c_.check(append_numbers(f, levels))) return false;
          break;
        case 11:
          if (!read_type(f, layout.index_type)) return false;
          break;
        case 12:
          if (!read_type(f, layout.pointer_type)) return false;
          break;
        case 13:
          if (!c_.check(append_numbers(f, unique))) return false;
          break;
        case 14:
          if (!c_.check(append_numbers(f, ordered))) return false;
          break;
        case 15:
          layout.prefix_bytes = f.signed_value();
          break;
        case 16:
          layout.tail_padding = f.value == 0 ? 1 : f.signed_value();
          break;
        default:
          break;
      }
    }
    if (!c_.check(reader.error())) return false;
    std::uint64_t placed = 0;
    for (const std::int64_t d : list_) {
      if (d < 0 || d >= rank || ((placed >> d) & 1) != 0)
        return c_.fail("layout is no permutation of the dimensions", message.offset);
      placed |= std::uint64_t{1} << d;
    }
    if (list_.size() != rank)
      return c_.fail("layout has not as many dimensions as the shape", message.offset);
    if (space < 0 || space > std::numeric_limits<std::int32_t>::max())
      return c_.fail("memory space out of range", message.offset);
    if (layout.element_bits < 0 || layout.prefix_bytes < 0 || layout.tail_padding < 0)
      return c_.fail("negative number in a layout", message.offset);
    layout.space = static_cast<MemorySpace>(space);
    layout.minor_to_major = append(list_);
    layout.tiles.begin = static_cast<std::uint32_t>(numbers.size());
    if (!read_runs(message, 6)) return false;
    layout.tiles.count = static_cast<std::uint32_t>(numbers.size()) - layout.tiles.begin;
    layout.splits.begin = static_cast<std::uint32_t>(numbers.size());
    if (!read_runs(message, 17)) return false;
    layout.splits.count = static_cast<std::uint32_t>(numbers.size()) - layout.splits.begin;
    if (!levels.empty()) put_levels(levels, unique, ordered, layout);
    return true;
  }

  constexpr bool read_type(const WireField& f, ElementType& out) noexcept {
    if (f.value >= element_type_count) return c_.fail("unknown element type in a layout", f.offset);
    out = static_cast<ElementType>(f.value);
    return true;
  }

  // Tiles (6): the rank, then the dimensions. Splits (17): dimension, how many cuts, the cuts.
  constexpr bool read_runs(const WireField& message, std::uint32_t number) {
    std::vector<std::int64_t>& numbers = c_.module.shapes.numbers;
    const std::uint32_t list = number == 6 ? 1 : 2;
    WireReader reader(message.bytes, message.offset);
    for (WireField f; reader.next(f);) {
      if (f.number != number || f.kind != WireKind::bytes) continue;
      list_.clear();
      std::int64_t dimension = 0;
      WireReader inner(f.bytes, f.offset);
      for (WireField g; inner.next(g);) {
        if (g.number == list && !c_.check(append_numbers(g, list_))) return false;
        if (number == 17 && g.number == 1 && g.kind == WireKind::varint)
          dimension = g.signed_value();
      }
      if (!c_.check(inner.error())) return false;
      if (number == 17) numbers.push_back(dimension);
      numbers.push_back(static_cast<std::int64_t>(list_.size()));
      append(list_);
    }
    return c_.check(reader.error());
  }

  constexpr void put_levels(const std::vector<std::int64_t>& levels,
                            const std::vector<std::int64_t>& unique,
                            const std::vector<std::int64_t>& ordered, Layout& layout) {
    text_.clear();
    for (std::size_t i = 0; i < levels.size(); ++i) {
      if (i != 0) text_.put(',');
      text_.put(levels[i] == 1 ? 'C' : levels[i] == 2 ? 'S' : levels[i] == 3 ? 'H' : 'D');
      if (i < unique.size() && unique[i] == 0) text_.put('+');
      if (i < ordered.size() && ordered[i] == 0) text_.put('~');
    }
    layout.levels = c_.module.own(text_.view());
  }
};

}  // namespace holdfast::detail
