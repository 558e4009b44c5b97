// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "holdfast/graph/module.hpp"

namespace holdfast::detail {

/// The array shape with another element type, row-major where the layout had more than an order.
constexpr Result<ShapeId> with_type(ShapeTable& table, ShapeId id, ElementType type) {
  Shape s;
  s.type = type;
  s.dynamic = table[id].dynamic;
  const auto mark = static_cast<std::uint32_t>(table.numbers.size());
  const std::uint32_t rank = table[id].dimensions.count;
  for (std::uint32_t d = 0; d < rank; ++d) {
    const std::int64_t size = table.dimensions(id)[d];
    table.numbers.push_back(size);
  }
  s.dimensions = {mark, rank};
  Layout layout;
  layout.minor_to_major = {mark + rank, rank};
  const Layout* const given = table.layout(id);
  const IndexRange order = given != nullptr ? given->minor_to_major : IndexRange{};
  for (std::uint32_t d = 0; d < rank; ++d) {
    const std::int64_t dimension =
        order.count == rank ? table.numbers[order.begin + d] : rank - 1 - d;
    table.numbers.push_back(dimension);
  }
  return table.intern(s, mark, &layout);
}

/// Finds the result shape of an instruction that was written without one, where that is trivial.
///
/// The operands and callees are in the module. Errors: corrupt (the shape has to be written).
/// Source: hlo-format.md B.4.
constexpr Result<ShapeId> infer_shape(Module& m, const Instruction& i) {
  const Error unknown =
      make_error(Errc::corrupt, "the result shape has to be written for this operation");
  const auto operands = m.operands(i);
  const auto called = m.called(i);
  if (i.opcode == Opcode::tuple) {
    const auto mark = static_cast<std::uint32_t>(m.shapes.children.size());
    for (const InstructionId id : operands) m.shapes.children.push_back(m[id].shape);
    return m.shapes.intern_tuple(mark);
  }
  if (i.opcode == Opcode::call || i.opcode == Opcode::conditional) {
    if (called.empty()) return unknown;
    return m[m[called[0]].root].shape;
  }
  if (operands.empty()) return unknown;
  const ShapeId first = m[operands[0]].shape;
  if (i.opcode == Opcode::get_tuple_element) {
    if (!m.shapes.is_tuple(first))
      return make_error(Errc::corrupt, "get-tuple-element of a value that is no tuple");
    const auto parts = m.shapes.children_of(first);
    if (i.number >= parts.size())
      return make_error(Errc::corrupt, "get-tuple-element's index is out of range");
    return parts[i.number];
  }
  if (i.opcode == Opcode::while_ || i.opcode == Opcode::opt_barrier) return first;
  if (i.opcode == Opcode::convert || i.opcode == Opcode::bitcast_convert ||
      !is_elementwise(i.opcode))
    return unknown;
  if (!is_array(m.shapes[first].type))
    return i.opcode == Opcode::copy ? Result<ShapeId>(first) : Result<ShapeId>(unknown);
  switch (i.opcode) {
    case Opcode::compare:
    case Opcode::is_finite:
      return with_type(m.shapes, first, ElementType::pred);
    case Opcode::real:
    case Opcode::imag:
      if (m.shapes[first].type == ElementType::c64)
        return with_type(m.shapes, first, ElementType::f32);
      return m.shapes[first].type == ElementType::c128
                 ? with_type(m.shapes, first, ElementType::f64)
                 : Result<ShapeId>(unknown);
    case Opcode::complex:
      return with_type(
          m.shapes, first,
          m.shapes[first].type == ElementType::f64 ? ElementType::c128 : ElementType::c64);
    case Opcode::select:
    case Opcode::clamp:
      return operands.size() == 3 ? Result<ShapeId>(m[operands[1]].shape)
                                  : Result<ShapeId>(unknown);
    case Opcode::stochastic_convert:
      return unknown;
    default:
      return first;
  }
}

}  // namespace holdfast::detail
