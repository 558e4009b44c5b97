// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "holdfast/core/hash.hpp"
#include "holdfast/graph/shape_table.hpp"
#include "holdfast/hlo/detail/layout_reader.hpp"
#include "holdfast/hlo/lexer.hpp"

namespace holdfast::detail {

/// Reads shapes into a `ShapeTable`. A shape that was written before, letter by letter, is only
/// looked up.
class ShapeReader {
 public:
  constexpr ShapeReader(Lexer& in, ShapeTable& table, const LayoutRules& rules,
                        std::uint32_t depth_limit)
      : in_(in), table_(table), rules_(rules), depth_limit_(depth_limit), slots_(16, Slot{}) {}

  /// Reads the shape that begins here if it was written the same way before: no word is looked at
  /// twice.
  constexpr bool known_shape(ShapeId& out) noexcept {
    const std::size_t size = plain_size();
    if (size == 0) return false;
    const std::string_view text = in_.rest().substr(0, size);
    const std::size_t i = slot_of(text, hash_text(text));
    if (i == crowded || slots_[i].size == 0) return false;
    out = slots_[i].shape;
    in_.skip(size);
    return true;
  }

  /// Reads the shape that begins here.
  constexpr bool shape(ShapeId& out) {
    if (in_.peek() != '(') return leaf(out);
    do {
      in_.skip_space();
      if (in_.take('(')) {
        if (tuples_.size() >= depth_limit_) return in_.fail_depth();
        tuples_.push_back(static_cast<std::uint32_t>(elements_.size()));
        in_.skip_space();
        if (in_.peek() != ')') continue;
      } else {
        ShapeId element{};
        if (!leaf(element)) return false;
        elements_.push_back(element);
        in_.skip_space();
      }
      while (!tuples_.empty() && in_.take(')')) {
        if (!close_tuple(out)) return false;
        if (!tuples_.empty()) elements_.push_back(out), in_.skip_space();
      }
      if (!tuples_.empty() && !in_.take(',')) return in_.fail("expected , or ) in a tuple shape");
    } while (!tuples_.empty());
    return true;
  }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t at = 0;
    std::uint32_t size = 0;  // 0: free
    ShapeId shape{};
  };

  constexpr bool close_tuple(ShapeId& out) {
    const auto mark = static_cast<std::uint32_t>(table_.children.size());
    table_.children.insert(table_.children.end(), elements_.begin() + tuples_.back(),
                           elements_.end());
    elements_.resize(tuples_.back(), ShapeId{});
    tuples_.pop_back();
    return done(table_.intern_tuple(mark), out);
  }
  constexpr bool done(Result<ShapeId> made, ShapeId& out) noexcept {
    if (!made) return in_.fail(made.error().what, made.error().code);
    out = *made;
    return true;
  }

  // How many characters a plainly written array shape takes: `f32[2,3]{1,0:T(8,128)}`; 0 for
  // another spelling.
  constexpr std::size_t plain_size() const noexcept {
    Lexer ahead = in_;
    const std::size_t from = ahead.offset();
    if (ahead.take_while(hlo_chars, is_ident).empty() || !ahead.take('[')) return 0;
    ahead.take_while(hlo_chars, is_dimension);
    if (!ahead.take(']')) return 0;
    if (ahead.peek() == '{' && ahead.peek(1) != '}') {
      ahead.skip(1);
      ahead.take_while(hlo_chars, is_layout);
      if (!ahead.take('}')) return 0;
    }
    return ahead.offset() - from;
  }
  // The slot of a text, or the free one it could take; `crowded` when hostile texts have filled the
  // neighbourhood.
  constexpr std::size_t slot_of(std::string_view text, std::uint64_t hash) const noexcept {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = hash & mask;
    for (std::size_t step = 0; slots_[i].size != 0; i = (i + 1) & mask) {
      if (slots_[i].hash == hash && slots_[i].size == text.size() &&
          in_.text_at(slots_[i].at, text.size()) == text)
        return i;
      if (++step == longest_probe) return crowded;
    }
    return i;
  }
  constexpr bool leaf(ShapeId& out) {
    const std::size_t size = plain_size();
    if (size == 0) return array_or_buffer(out);
    const std::string_view text = in_.rest().substr(0, size);
    const std::uint64_t hash = hash_text(text);
    const std::size_t i = slot_of(text, hash);
    if (i != crowded && slots_[i].size != 0) {
      out = slots_[i].shape;
      in_.skip(size);
      return true;
    }
    const std::size_t from = in_.offset();
    if (!array(out)) return false;
    if (i != crowded && in_.offset() - from == size) {
      slots_[i] = {hash, static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(size), out};
      if (++used_ * 2 > slots_.size()) grow();
    }
    return true;
  }
  constexpr void grow() {
    std::vector<Slot> old(slots_.size() * 4, Slot{});
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.size == 0) continue;
      std::size_t i = slot.hash & (slots_.size() - 1);
      while (slots_[i].size != 0) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = slot;
    }
  }

  constexpr bool array_or_buffer(ShapeId& out) {
    if (in_.peek_word() != "b") return array(out);
    in_.word();
    if (!in_.expect('(', "expected a shape")) return false;
    in_.skip_space();
    ShapeId inner{};
    if (!array(inner) || !in_.expect(')', "expected ) after the shape of a buffer")) return false;
    Shape s;
    s.type = ElementType::buffer;
    s.children = {static_cast<std::uint32_t>(table_.children.size()), 1};
    table_.children.push_back(inner);
    return done(table_.intern(s, 0), out);
  }
  constexpr bool array(ShapeId& out) {
    const std::size_t from = in_.offset();
    Shape s;
    const std::string_view word = in_.word();
    s.type = element_type(word);
    if (s.type == ElementType::invalid)
      return in_.fail_at(from, word.empty() ? "expected a shape" : "unknown element type");
    if (!in_.expect('[', "expected [ after an element type")) return false;
    const auto mark = static_cast<std::uint32_t>(table_.numbers.size());
    bool unbounded = false;
    in_.skip_space();
    if (!in_.take(']'))
      for (;;) {
        std::int64_t size = 0;
        bool dynamic = false;
        if (!dimension(size, dynamic)) return false;
        if (s.dimensions.count == ShapeTable::max_rank)
          return in_.fail("shape has more than 64 dimensions");
        if (dynamic) s.dynamic |= std::uint64_t{1} << s.dimensions.count;
        unbounded = unbounded || size == unbounded_dimension;
        table_.numbers.push_back(size);
        ++s.dimensions.count;
        in_.skip_space();
        if (in_.take(']')) break;
        if (!in_.take(',')) return in_.fail("expected , or ] in a shape");
        in_.skip_space();
      }
    s.dimensions.begin = mark;
    if (s.dimensions.count != 0 && !is_array(s.type))
      return in_.fail_at(from, "only arrays have dimensions");
    Layout layout;
    bool has_layout = false;
    LayoutReader reader(in_, table_.numbers, rules_);
    if (reader.begins()) {
      if (!is_array(s.type)) return in_.fail("only arrays have a layout");
      if (!reader.read(s, layout)) return false;
      has_layout = true;
    } else if (is_array(s.type) && (rules_.default_layouts || s.dimensions.count == 0)) {
      layout.minor_to_major = {static_cast<std::uint32_t>(table_.numbers.size()),
                               s.dimensions.count};
      for (std::uint32_t d = s.dimensions.count; d-- > 0;) table_.numbers.push_back(d);
      has_layout = true;
    }
    if (!done(table_.intern(s, mark, has_layout ? &layout : nullptr), out)) return false;
    if (is_array(s.type) && !unbounded && table_[out].array_bytes < 0)
      return in_.fail_at(from, "the size of the shape does not fit 63 bits");
    return true;
  }
  constexpr bool dimension(std::int64_t& size, bool& dynamic) noexcept {
    if (in_.take('?')) {
      dynamic = true;
      size = unbounded_dimension;
      in_.skip_space();
    }
    const std::size_t from = in_.offset();
    if (in_.take("<=")) {
      dynamic = true;
      in_.skip_space();
    } else if (dynamic) {
      return true;
    }
    if (!in_.integer(size)) return false;
    return size >= 0 || in_.fail_at(from, "dimension is negative");
  }

  static constexpr std::size_t longest_probe = 64;
  static constexpr std::size_t crowded = static_cast<std::size_t>(-1);

  Lexer& in_;
  ShapeTable& table_;
  LayoutRules rules_;
  std::uint32_t depth_limit_;
  std::vector<ShapeId> elements_;      // of the tuples that are open
  std::vector<std::uint32_t> tuples_;  // where each open tuple's elements begin
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

}  // namespace holdfast::detail
