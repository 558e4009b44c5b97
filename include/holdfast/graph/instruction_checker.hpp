// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "holdfast/core/result.hpp"
#include "holdfast/graph/arity.hpp"
#include "holdfast/graph/attribute_text.hpp"
#include "holdfast/graph/module.hpp"

namespace holdfast {

/// Checks one instruction against its operands and callees, which are in the module already.
///
/// Errors: corrupt, without a place; over_budget when comparing shapes takes more than `effort`
/// allows. Source: hlo-format.md H.
class InstructionChecker {
 public:
  constexpr InstructionChecker(const Module& module, const Instruction& instruction,
                               std::uint64_t& effort) noexcept
      : m_(module),
        i_(instruction),
        effort_(effort),
        operands_(module.operands(instruction)),
        called_(module.called(instruction)) {}

  [[nodiscard]] constexpr Error check() {
    const Arity arity = arity_of(i_.opcode);
    if (operands_.size() < arity.least || (arity.most != 255 && operands_.size() > arity.most))
      return counts("wrong number of operands", static_cast<std::int64_t>(operands_.size()),
                    arity.least);
    // clang-format off
    switch (i_.opcode) {
      case Opcode::tuple: return tuple();
      case Opcode::get_tuple_element: return element();
      case Opcode::reshape: return same_count(operands_[0]);
      case Opcode::while_: return loop();
      case Opcode::conditional: return conditional();
      case Opcode::fusion:
        return i_.fusion_kind == FusionKind::none ? bad("fusion has no kind") : call();
      case Opcode::call: return call();
      case Opcode::async_start: return async_start();
      case Opcode::async_update:
        if (!follows_async()) return bad("async-update has to take an async-start or async-update");
        return shapes(shape(0), i_.shape, "async-update changes the shape of its operand");
      case Opcode::async_done: return async_done();
      case Opcode::copy_start: return copy_start();
      case Opcode::copy_done:
        return done_of(Opcode::copy_start, "copy-done has to take a copy-start", 0);
      case Opcode::all_reduce_done:
        return done_of(Opcode::all_reduce_start,
                       "all-reduce-done has to take an all-reduce-start", -1);
      case Opcode::all_gather_done:
        return done_of(Opcode::all_gather_start,
                       "all-gather-done has to take an all-gather-start", 1);
      case Opcode::collective_permute_done:
        return done_of(Opcode::collective_permute_start,
                       "collective-permute-done has to take a collective-permute-start", 1);
      case Opcode::map: case Opcode::reduce: case Opcode::reduce_window: case Opcode::scatter:
      case Opcode::sort:
        return called_.empty() ? bad("to_apply is missing") : dimensions();
      case Opcode::select_and_scatter:
        return called_.size() == 2 ? Error{} : bad("select= and scatter= are needed");
      case Opcode::broadcast: case Opcode::transpose: case Opcode::concatenate:
      case Opcode::reverse: case Opcode::all_gather: case Opcode::all_gather_start:
      case Opcode::all_to_all: case Opcode::reduce_scatter: case Opcode::get_dimension_size:
      case Opcode::set_dimension_size: case Opcode::iota:
        return dimensions();
      default: return {};
    }
    // clang-format on
  }

 private:
  static constexpr Error bad(const char* what) noexcept { return make_error(Errc::corrupt, what); }
  static constexpr Error counts(const char* what, std::int64_t found,
                                std::int64_t wanted) noexcept {
    Error e = bad(what);
    e.requested = found;
    e.available = wanted;
    return e;
  }
  constexpr ShapeId shape(std::size_t operand) const noexcept {
    return m_[operands_[operand]].shape;
  }
  constexpr ShapeId root_shape(ComputationId c) const noexcept { return m_[m_[c].root].shape; }

  constexpr Error shapes(ShapeId a, ShapeId b, const char* what) noexcept {
    if (a == b) return {};
    const std::uint64_t cost = m_.shapes.node_count(a);
    if (cost > effort_)
      return make_error(Errc::over_budget, "comparing shapes takes too much work");
    effort_ -= cost;
    return m_.shapes.compatible(a, b) ? Error{} : bad(what);
  }

  constexpr Error tuple() noexcept {
    if (!m_.shapes.is_tuple(i_.shape)) return bad("tuple has no tuple shape");
    const auto parts = m_.shapes.children_of(i_.shape);
    if (parts.size() != operands_.size())
      return counts("tuple has another number of operands than its shape",
                    static_cast<std::int64_t>(operands_.size()),
                    static_cast<std::int64_t>(parts.size()));
    for (std::size_t k = 0; k < parts.size(); ++k)
      if (Error e = shapes(parts[k], shape(k), "tuple element has another shape than its operand");
          !e.ok())
        return e;
    return {};
  }
  constexpr Error element() noexcept {
    if (!m_.shapes.is_tuple(shape(0))) return bad("get-tuple-element of a value that is no tuple");
    const auto parts = m_.shapes.children_of(shape(0));
    if (i_.number >= parts.size())
      return counts("get-tuple-element's index is out of range", i_.number,
                    static_cast<std::int64_t>(parts.size()));
    return shapes(parts[i_.number], i_.shape,
                  "get-tuple-element has another shape than the element");
  }
  constexpr bool elements(ShapeId id, std::int64_t& out) const noexcept {
    out = 1;
    for (const std::int64_t d : m_.shapes.dimensions(id)) {
      if (d == unbounded_dimension) return false;
      if (d == 0) return out = 0, true;
    }
    for (const std::int64_t d : m_.shapes.dimensions(id))
      if (!checked_multiply(out, d, out)) return false;
    return true;
  }
  constexpr Error same_count(InstructionId operand) const noexcept {
    const ShapeId from = m_[operand].shape;
    if (!is_array(m_.shapes[from].type) || !is_array(m_.shapes[i_.shape].type))
      return bad("reshape is for arrays");
    std::int64_t before = 0;
    std::int64_t after = 0;
    if (!elements(from, before) || !elements(i_.shape, after) || before == after) return {};
    return counts("reshape changes the number of elements", after, before);
  }
  // The callee's parameters are the operands from `first` on.
  constexpr Error arguments(ComputationId c, std::size_t first, std::size_t count,
                            const char* what) noexcept {
    const auto parameters = m_.parameters_of(c);
    if (parameters.size() != count)
      return counts("the called computation has another number of parameters",
                    static_cast<std::int64_t>(count), static_cast<std::int64_t>(parameters.size()));
    for (std::size_t k = 0; k < count; ++k)
      if (Error e = shapes(m_[parameters[k]].shape, shape(first + k), what); !e.ok()) return e;
    return {};
  }
  constexpr Error call() noexcept {
    if (called_.size() != 1) return bad("to_apply= or calls= is missing");
    if (Error e = arguments(called_[0], 0, operands_.size(),
                            "an operand has another shape than the parameter");
        !e.ok())
      return e;
    return shapes(root_shape(called_[0]), i_.shape, "the called computation gives another shape");
  }
  constexpr Error loop() noexcept {
    if (called_.size() != 2) return bad("while needs condition= and body=");
    const char* const what = "while, its body and its condition have different shapes";
    for (const ComputationId c : called_)
      if (Error e = arguments(c, 0, 1, what); !e.ok()) return e;
    if (Error e = shapes(shape(0), i_.shape, what); !e.ok()) return e;
    if (Error e = shapes(root_shape(called_[0]), i_.shape, what); !e.ok()) return e;
    const ShapeId flag = root_shape(called_[1]);
    if (m_.shapes[flag].type != ElementType::pred || !m_.shapes.dimensions(flag).empty())
      return bad("the condition of a while has to give pred[]");
    return {};
  }
  constexpr Error conditional() noexcept {
    if (called_.empty()) return bad("conditional has no branches");
    if (operands_.size() != called_.size() + 1)
      return counts("conditional has another number of operands than branches and one",
                    static_cast<std::int64_t>(operands_.size()),
                    static_cast<std::int64_t>(called_.size() + 1));
    const ElementType selector = m_.shapes[shape(0)].type;
    if ((selector != ElementType::pred && selector != ElementType::s32) ||
        !m_.shapes.dimensions(shape(0)).empty())
      return bad("conditional has to choose by pred[] or s32[]");
    if (selector == ElementType::pred && called_.size() != 2)
      return bad("conditional on pred[] has to have two branches");
    for (std::size_t k = 0; k < called_.size(); ++k) {
      if (Error e = arguments(called_[k], k + 1, 1,
                              "an operand has another shape than the branch's parameter");
          !e.ok())
        return e;
      if (Error e = shapes(root_shape(called_[k]), i_.shape,
                           "a branch gives another shape than the conditional");
          !e.ok())
        return e;
    }
    return {};
  }
  constexpr Error async_start() noexcept {
    if (called_.size() != 1) return bad("calls= is missing");
    const auto parts =
        m_.shapes.is_tuple(i_.shape) ? m_.shapes.children_of(i_.shape) : std::span<const ShapeId>{};
    if (parts.size() < 2 || !m_.shapes.is_tuple(parts[0]))
      return bad("async-start's shape has to be ((operands), result, ...)");
    const auto sources = m_.shapes.children_of(parts[0]);
    if (sources.size() != operands_.size())
      return counts("async-start's shape lists another number of operands",
                    static_cast<std::int64_t>(sources.size()),
                    static_cast<std::int64_t>(operands_.size()));
    for (std::size_t k = 0; k < sources.size(); ++k)
      if (Error e = shapes(sources[k], shape(k),
                           "async-start's shape lists an operand with another shape");
          !e.ok())
        return e;
    if (Error e = arguments(called_[0], 0, operands_.size(),
                            "an operand has another shape than the parameter");
        !e.ok())
      return e;
    return shapes(root_shape(called_[0]), parts[1], "the called computation gives another shape");
  }
  constexpr bool follows_async() const noexcept {
    const Opcode before = m_[operands_[0]].opcode;
    return before == Opcode::async_start || before == Opcode::async_update;
  }
  constexpr Error async_done() noexcept {
    if (!follows_async()) return bad("async-done has to take an async-start or async-update");
    const auto parts = m_.shapes.children_of(shape(0));
    if (parts.size() < 2) return bad("async-done's operand has no result");
    return shapes(parts[1], i_.shape, "async-done has another shape than its start's result");
  }
  constexpr Error copy_start() noexcept {
    const auto parts =
        m_.shapes.is_tuple(i_.shape) ? m_.shapes.children_of(i_.shape) : std::span<const ShapeId>{};
    if (parts.size() < 2) return bad("copy-start's shape has to be (destination, source, context)");
    if (Error e = shapes(parts[0], shape(0),
                         "copy-start's destination has another shape than its operand");
        !e.ok())
      return e;
    return shapes(parts[1], shape(0), "copy-start's source has another shape than its operand");
  }
  // `part`: which element of the start's shape is the result; -1: the whole.
  constexpr Error done_of(Opcode start, const char* what, int part) noexcept {
    if (m_[operands_[0]].opcode != start) return bad(what);
    ShapeId result = shape(0);
    if (part >= 0) {
      const auto parts =
          m_.shapes.is_tuple(result) ? m_.shapes.children_of(result) : std::span<const ShapeId>{};
      if (parts.size() <= static_cast<std::size_t>(part))
        return bad("the start's shape has too few elements");
      result = parts[static_cast<std::size_t>(part)];
    }
    return shapes(result, i_.shape, "the result has another shape than its start's");
  }

  constexpr Error dimensions() const {
    const bool from_result = i_.opcode == Opcode::broadcast || i_.opcode == Opcode::iota;
    const ShapeId subject = from_result ? i_.shape : operands_.empty() ? i_.shape : shape(0);
    if (!is_array(m_.shapes[subject].type)) return {};
    const auto rank = static_cast<std::int64_t>(m_.shapes.dimensions(subject).size());
    const std::string_view text =
        m_.attribute(i_, i_.opcode == Opcode::iota ? "iota_dimension" : "dimensions");
    NumberList list(text);
    std::uint64_t seen = 0;
    std::int64_t count = 0;
    for (std::int64_t d = 0; list.next(d); ++count) {
      if (d < 0 || d >= rank)
        return counts("dimensions= names a dimension that the shape has not", d, rank);
      if ((seen >> d & 1) != 0) return counts("dimensions= repeats a dimension", d, rank);
      seen |= std::uint64_t{1} << d;
    }
    if (!list.ok()) return bad("dimensions= has to be a list of numbers");
    switch (i_.opcode) {
      case Opcode::all_gather:
      case Opcode::all_gather_start:
      case Opcode::reduce_scatter:
      case Opcode::concatenate:
      case Opcode::get_dimension_size:
      case Opcode::set_dimension_size:
      case Opcode::iota:
        if (i_.opcode == Opcode::iota && text.empty()) return {};
        return count == 1 ? Error{} : counts("dimensions= has to name one dimension", count, 1);
      case Opcode::sort:
        return count == 1 || (text.empty() && rank <= 1)
                   ? Error{}
                   : counts("dimensions= has to name one dimension", count, 1);
      case Opcode::transpose:
        return count == rank ? Error{}
                             : counts("dimensions= has to name every dimension", count, rank);
      case Opcode::broadcast: {
        const auto from = static_cast<std::int64_t>(m_.shapes.dimensions(shape(0)).size());
        return count == from
                   ? Error{}
                   : counts("dimensions= has to name a dimension for each of the operand's", count,
                            from);
      }
      default:
        return {};
    }
  }

  const Module& m_;
  const Instruction& i_;
  std::uint64_t& effort_;
  std::span<const InstructionId> operands_;
  std::span<const ComputationId> called_;
};

}  // namespace holdfast
