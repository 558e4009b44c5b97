// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "holdfast/concepts/sink.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/graph/graph_pass.hpp"
#include "holdfast/graph/make_shape.hpp"
#include "holdfast/graph/module.hpp"
#include "holdfast/graph/module_editor.hpp"

namespace holdfast {

/// Lets transfers between host and device run beside other work: copies become copy-start and
/// copy-done, slices out of and updates of host memory become async-start and async-done.
///
/// The end keeps the name. In a module with an order it stands right behind the beginning; a
/// scheduler moves them apart. Fusions, composites and what is asynchronous already are left alone.
/// Threads: as its members. Source: XLA's HostMemoryTransferAsyncifier, passes.md 6.
template <sink S = NullSink>
struct HostTransferAsyncifier {
  static constexpr std::string_view name = "host-transfer-asyncifier";
  MemorySpace host = MemorySpace::host;
  S diagnostics{};  ///< says which instruction an error is about

  /// Errors: internal (an update in device memory has a result in host memory), invalid_argument (a
  /// layout is missing, a copy changes a shape), over_budget (see `ShapeTable::intern`). Cost:
  /// linear.
  [[nodiscard]] constexpr Result<bool> run(Module& m) {
    std::vector<std::uint8_t> skipped(m.computations.size(), 0);
    for (const Instruction& i : m.instructions)
      if (i.opcode == Opcode::fusion || i.opcode == Opcode::async_start ||
          (i.opcode == Opcode::call && m.attribute(i, "is_composite") == "true"))
        for (const ComputationId c : m.called(i)) skipped[index_of(c)] = 1;
    std::vector<InstructionId> transfers;
    for (std::size_t c = 0; c < m.computations.size(); ++c) {
      if (skipped[c] != 0 || m.computations[c].is_fusion) continue;
      for (const InstructionId id : m.instructions_of(static_cast<ComputationId>(c))) {
        const Result<bool> is_transfer = check(m, m[id]);
        if (!is_transfer.ok()) return is_transfer.error();
        if (*is_transfer) transfers.push_back(id);
      }
    }
    if (transfers.empty()) return false;
    std::vector<ShapeId> begun;  // of each transfer; made before the module changes
    const Result<ShapeId> context = make_scalar(m.shapes, ElementType::u32);
    if (!context.ok()) return context.error();
    for (const InstructionId id : transfers) {
      const Result<ShapeId> shape = start_shape(m, id, *context);
      if (!shape.ok()) return shape.error();
      begun.push_back(*shape);
    }
    ModuleEditor edit(m);
    for (std::size_t k = 0; k < transfers.size(); ++k) replace(m, edit, transfers[k], begun[k]);
    edit.finish();
    return true;
  }

 private:
  constexpr Result<bool> check(const Module& m, const Instruction& i) {
    const auto in = [&](ShapeId shape, MemorySpace space) {
      return m.shapes.space(shape) == space;
    };
    const auto operand = [&](std::size_t k) { return m[m.operands(i)[k]].shape; };
    const auto placed = [&](ShapeId shape) { return m.shapes[shape].has_layout; };
    constexpr MemorySpace device = MemorySpace::device;
    switch (i.opcode) {
      case Opcode::copy:
        if (!is_array(m.shapes[i.shape].type)) return false;
        if (!placed(i.shape) || !placed(operand(0))) return no_layout(i);
        if (!m.shapes.compatible(i.shape, operand(0)))
          return make_error_at(Errc::invalid_argument, "a copy changes the shape of its operand",
                               i.where);
        return (in(operand(0), host) && in(i.shape, device)) ||
               (in(operand(0), device) && in(i.shape, host));
      case Opcode::dynamic_slice:
        if (!placed(i.shape) || !placed(operand(0))) return no_layout(i);
        return in(operand(0), host) && in(i.shape, device);
      case Opcode::dynamic_update_slice:
        if (!placed(i.shape) || !placed(operand(0)) || !placed(operand(1))) return no_layout(i);
        if (!in(operand(1), device) || !in(i.shape, host)) return false;
        if (in(operand(0), host)) return true;
        tell({"dynamic-update-slice ", i.name, " has its base ", m[m.operands(i)[0]].name,
              " in another memory space than its result\n"});
        return make_error_at(
            Errc::internal,
            "dynamic-update-slice has its base in another memory space than its result", i.where);
      default:
        return false;
    }
  }
  constexpr Error no_layout(const Instruction& i) {
    tell({i.name, " has a result or an operand without a layout\n"});
    return make_error_at(Errc::invalid_argument,
                         "a transfer has a result or operand without a layout", i.where);
  }
  static constexpr Result<ShapeId> start_shape(Module& m, InstructionId id, ShapeId context) {
    std::vector<ShapeId> operands;
    for (const InstructionId o : m.operands(m[id])) operands.push_back(m[o].shape);
    const ShapeId result = m[id].shape;
    if (m[id].opcode == Opcode::copy) {
      const ShapeId parts[] = {result, operands[0], context};
      return make_tuple_shape(m.shapes, parts);
    }
    const Result<ShapeId> sources = make_tuple_shape(m.shapes, operands);
    if (!sources.ok()) return sources.error();
    const ShapeId parts[] = {*sources, result, context};
    return make_tuple_shape(m.shapes, parts);
  }

  static constexpr void replace(Module& m, ModuleEditor& edit, InstructionId id, ShapeId begun) {
    const Instruction old = m[id];
    const bool copies = old.opcode == Opcode::copy;
    const std::vector<InstructionId> operands(m.operands(old).begin(), m.operands(old).end());
    const std::vector<InstructionId> controls(m.controls(old).begin(), m.controls(old).end());
    std::vector<ComputationId> called;
    if (!copies) called.push_back(wrap(m, edit, old));
    std::vector<Attribute> both;
    std::vector<Attribute> ended;
    for (const Attribute& a : m.attributes_of(old)) {
      if (a.key == "metadata" || a.key == "backend_config") both.push_back(a);
      if (a.key == "sharding") ended.push_back(a);
    }
    ended.insert(ended.end(), both.begin(), both.end());
    Instruction start;
    start.opcode = copies ? Opcode::copy_start : Opcode::async_start;
    start.name = edit.unique_name(copies ? "copy-start" : "async-start");
    start.shape = begun;
    start.where = old.where;
    const InstructionId first = edit.insert_before(id, start, operands, both, called);
    for (const InstructionId c : controls) edit.add_control(c, first);
    Instruction done;
    done.opcode = copies ? Opcode::copy_done : Opcode::async_done;
    done.name = old.name;
    done.shape = old.shape;
    done.where = old.where;
    const InstructionId operand[] = {first};
    edit.replace(id, edit.insert_before(id, done, operand, ended, called));
  }
  /// Makes the computation of an async-start: parameters like the operands, and the operation.
  static constexpr ComputationId wrap(Module& m, ModuleEditor& edit, const Instruction& old) {
    const ComputationId made =
        edit.add_computation(old.computation, edit.unique_name("async_computation"));
    m[made].is_async_wrapper = true;
    std::vector<InstructionId> parameters;
    for (std::uint32_t k = 0; k < old.operands.count; ++k) {
      Instruction p;
      p.number = k;
      p.name = edit.unique_name("param");
      p.shape = m[m.operands(old)[k]].shape;
      p.where = old.where;
      parameters.push_back(edit.append(made, p, {}));
    }
    std::vector<Attribute> kept;
    for (const Attribute& a : m.attributes_of(old))
      if (a.key != "sharding") kept.push_back(a);
    edit.append(made, old, parameters, kept);
    return made;
  }
  constexpr void tell(std::initializer_list<std::string_view> parts) {
    for (const std::string_view part : parts) static_cast<void>(diagnostics.write(part));
  }
};
static_assert(graph_pass<HostTransferAsyncifier<>>);

}  // namespace holdfast
