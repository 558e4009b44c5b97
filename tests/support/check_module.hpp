// SPDX-License-Identifier: Apache-2.0
// Says what is inconsistent in a module that a reader gave; used by tests and fuzz targets.
#pragma once

#include <cstdint>
#include <vector>

#include "holdfast/graph/module.hpp"

namespace holdfast::testing {

/// The first inconsistency of a module; null when every id, range, order and shape index holds.
inline const char* inconsistency(const Module& m) {
  const std::size_t instructions = m.instructions.size();
  const std::size_t computations = m.computations.size();
  const auto inside = [](IndexRange r, std::size_t size) {
    return std::size_t{r.begin} + r.count <= size;
  };
  if (computations == 0 || index_of(m.entry) >= computations) return "entry";
  std::vector<char> listed(instructions, 0);
  for (std::uint32_t c = 0; c < computations; ++c) {
    const Computation& k = m.computations[c];
    if (k.name.empty() || !inside(k.instructions, m.instruction_ids.size()) ||
        !inside(k.parameters, m.parameter_ids.size()))
      return "ranges of a computation";
    bool has_root = false;
    for (const InstructionId id : m.instructions_of(static_cast<ComputationId>(c))) {
      if (index_of(id) >= instructions || listed[index_of(id)] != 0)
        return "order of a computation";
      const Instruction& i = m[id];
      if (index_of(i.computation) != c || index_of(i.shape) >= m.shapes.shapes.size())
        return "owner or shape";
      if (!inside(i.operands, m.operand_ids.size()) || !inside(i.controls, m.control_ids.size()) ||
          !inside(i.called, m.called_ids.size()) || !inside(i.attributes, m.attributes.size()) ||
          !inside(i.aliases, m.operand_aliases.size()))
        return "ranges of an instruction";
      if (i.name.empty() ||
          static_cast<std::size_t>(i.opcode) >= opcode_count + m.opcode_words.size())
        return "name or opcode";
      for (const InstructionId o : m.operands(i))
        if (index_of(o) >= instructions || listed[index_of(o)] == 0 ||
            m[o].computation != i.computation)
          return "operand";
      for (const InstructionId o : m.controls(i))
        if (index_of(o) >= instructions || listed[index_of(o)] == 0 ||
            m[o].computation != i.computation)
          return "control predecessor";
      for (const ComputationId called : m.called(i))
        if (index_of(called) >= c) return "callee";
      for (const OperandAlias& a : m.aliases(i))
        if (a.operand >= i.operands.count || a.output_node >= m.shapes.node_count(i.shape) ||
            a.operand_node >= m.shapes.node_count(m[m.operands(i)[a.operand]].shape))
          return "alias of an instruction";
      listed[index_of(id)] = 1;
      has_root = has_root || id == k.root;
    }
    if (!has_root) return "root";
    for (std::uint32_t n = 0; n < k.parameters.count; ++n) {
      const InstructionId p = m.parameters_of(static_cast<ComputationId>(c))[n];
      if (index_of(p) >= instructions || m[p].opcode != Opcode::parameter || m[p].number != n ||
          index_of(m[p].computation) != c)
        return "parameter";
    }
  }
  for (const char l : listed)
    if (l == 0) return "an instruction that no computation lists";
  const auto parameter_node = [&](std::uint32_t parameter, std::uint32_t node) {
    const auto parameters = m.parameters_of(m.entry);
    return parameter < parameters.size() &&
           node < m.shapes.node_count(m[parameters[parameter]].shape);
  };
  for (const ParameterAlias& a : m.parameter_aliases)
    if (a.output_node >= m.shapes.node_count(m[m[m.entry].root].shape) ||
        !parameter_node(a.parameter, a.parameter_node))
      return "alias table";
  for (const BufferDonor& d : m.donors)
    if (!parameter_node(d.parameter, d.parameter_node)) return "donor table";
  return nullptr;
}

}  // namespace holdfast::testing
