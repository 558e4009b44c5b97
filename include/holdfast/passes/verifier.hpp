// passes: what changes a module, and the verifier that runs behind each change.
// In the flow: hlo makes a Module, passes change it, plan reads it.
// A pass is a `graph_pass`: a value with a name and `run`; what it cannot say in an Error goes to
// its sink. Nothing here reads text, chooses an order or an offset. All of it works in a constant
// expression.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "holdfast/core/hash.hpp"
#include "holdfast/core/result.hpp"
#include "holdfast/graph/graph_pass.hpp"
#include "holdfast/graph/instruction_checker.hpp"
#include "holdfast/graph/module.hpp"

namespace holdfast {

namespace detail {

/// Looks for the first thing that is wrong in a module.
class ModuleVerifier {
 public:
  explicit constexpr ModuleVerifier(const Module& module)
      : m_(module),
        place_(module.instructions.size(), nowhere),
        users_(module.instructions.size(), 0),
        callers_(module.computations.size(), 0) {}

  constexpr Error run() {
    if (index_of(m_.entry) >= m_.computations.size()) return bad("the module has no entry");
    for (std::size_t c = 0; c < m_.computations.size(); ++c)
      if (Error e = computation(static_cast<ComputationId>(c)); !e.ok()) return e;
    for (const Instruction& i : m_.instructions)
      if (place_[static_cast<std::size_t>(&i - m_.instructions.data())] == nowhere)
        return bad("an instruction is not in the order of any computation", i);
    if (callers_[index_of(m_.entry)] != 0) return bad("the entry computation is called");
    if (Error e = names(); !e.ok()) return e;
    for (std::size_t k = 0; k < m_.instructions.size(); ++k)
      if (begins(m_.instructions[k].opcode) && users_[k] != 1)
        return bad("an asynchronous operation begins and does not end just once",
                   m_.instructions[k]);
    return tables();
  }

 private:
  static constexpr std::uint32_t nowhere = 0xFFFFFFFFu;

  static constexpr Error bad(const char* what) noexcept {
    Error e = make_error(Errc::corrupt, what);
    e.stage = Stage::verify;
    return e;
  }
  static constexpr Error bad(const char* what, const Instruction& i) noexcept {
    Error e = make_error_at(Errc::corrupt, what, i.where);
    e.stage = Stage::verify;
    return e;
  }
  template <class T>
  static constexpr bool fits(IndexRange r, const std::vector<T>& pool) noexcept {
    return std::size_t{r.begin} + r.count <= pool.size();
  }
  static constexpr bool begins(Opcode o) noexcept {
    return o == Opcode::copy_start || o == Opcode::async_start || o == Opcode::async_update ||
           o == Opcode::all_gather_start || o == Opcode::all_reduce_start ||
           o == Opcode::collective_permute_start;
  }
  static constexpr bool ends(Opcode begun, Opcode o) noexcept {
    switch (begun) {
      case Opcode::copy_start:
        return o == Opcode::copy_done;
      case Opcode::all_gather_start:
        return o == Opcode::all_gather_done;
      case Opcode::all_reduce_start:
        return o == Opcode::all_reduce_done;
      case Opcode::collective_permute_start:
        return o == Opcode::collective_permute_done;
      default:
        return o == Opcode::async_update || o == Opcode::async_done;
    }
  }

  constexpr Error computation(ComputationId c) {
    const Computation& k = m_[c];
    if (!fits(k.instructions, m_.instruction_ids) || !fits(k.parameters, m_.parameter_ids))
      return bad("a computation has ids outside of the module's tables");
    std::uint32_t at = 0;
    std::uint32_t parameters = 0;
    for (const InstructionId id : m_.instructions_of(c)) {
      if (index_of(id) >= place_.size()) return bad("an order names no instruction");
      const Instruction& i = m_[id];
      if (place_[index_of(id)] != nowhere) return bad("an instruction stands twice in an order", i);
      if (i.computation != c) return bad("an instruction stands in another computation's order", i);
      if (Error e = instruction(i, c); !e.ok()) return e;
      place_[index_of(id)] = at++;
      if (i.opcode != Opcode::parameter) continue;
      ++parameters;
      if (i.number >= k.parameters.count || m_.parameters_of(c)[i.number] != id)
        return bad("a parameter is not the one that its number says", i);
    }
    if (parameters != k.parameters.count) return bad("a computation lists another parameter");
    if (index_of(k.root) >= place_.size() || m_[k.root].computation != c ||
        place_[index_of(k.root)] == nowhere)
      return bad("the root is no instruction of its computation");
    return {};
  }
  constexpr Error instruction(const Instruction& i, ComputationId c) {
    if (!fits(i.operands, m_.operand_ids) || !fits(i.controls, m_.control_ids) ||
        !fits(i.called, m_.called_ids) || !fits(i.attributes, m_.attributes) ||
        !fits(i.aliases, m_.operand_aliases))
      return bad("an instruction has a list outside of the module's tables", i);
    if (static_cast<std::size_t>(i.opcode) >= opcode_count + m_.opcode_words.size())
      return bad("an instruction has no known opcode", i);
    if (index_of(i.shape) >= m_.shapes.shapes.size()) return bad("an instruction has no shape", i);
    // What stands before it is checked already, so this is acyclic too.
    for (const InstructionId o : m_.operands(i)) {
      if (!stands_before(o, c)) return bad("an operand does not stand before its user", i);
      if (!begins(m_[o].opcode)) continue;
      if (!ends(m_[o].opcode, i.opcode))
        return bad("the result of an asynchronous operation is used before it ends", i);
      if (++users_[index_of(o)] > 1) return bad("an asynchronous operation ends twice", i);
    }
    for (const InstructionId o : m_.controls(i))
      if (!stands_before(o, c)) return bad("a control predecessor does not stand before", i);
    for (const ComputationId callee : m_.called(i))
      if (index_of(callee) >= index_of(c))
        return bad("a called computation does not stand before its caller", i);
    if (Error e = callers(i); !e.ok()) return e;
    effort_ += 64 * (std::uint64_t{1} + m_.shapes.node_count(i.shape));
    if (Error e = InstructionChecker(m_, i, effort_).check(); !e.ok()) {
      e.stage = Stage::verify;
      e.at_kind = AtKind::byte_offset;
      e.at = i.where;
      return e;
    }
    for (const OperandAlias& a : m_.aliases(i))
      if (a.operand >= i.operands.count || a.output_node >= m_.shapes.node_count(i.shape) ||
          a.operand_node >= m_.shapes.node_count(m_[m_.operands(i)[a.operand]].shape))
        return bad("an alias names an operand or a shape index that does not exist", i);
    return {};
  }
  constexpr bool stands_before(InstructionId id, ComputationId c) const noexcept {
    return index_of(id) < place_.size() && place_[index_of(id)] != nowhere &&
           m_[id].computation == c;
  }
  constexpr Error callers(const Instruction& i) {
    if (i.opcode == Opcode::async_update || i.opcode == Opcode::async_done)
      return {};  // they repeat their start's
    for (const ComputationId callee : m_.called(i)) {
      const bool fusion = i.opcode == Opcode::fusion;
      std::uint8_t& by = callers_[index_of(callee)];
      if (by == 2 || (fusion && by != 0) || fusion != m_[callee].is_fusion)
        return bad("the computation of a fusion has another caller", i);
      by = fusion ? 2 : 1;
    }
    return {};
  }

  /// Names are unique in a computation, computations' in the module.
  constexpr Error names() const {
    struct Name {
      std::uint64_t hash;
      std::string_view text;
      InstructionId id;
    };
    std::vector<Name> list;
    const auto repeated = [&]() -> const Name* {
      std::sort(list.begin(), list.end(), [](const Name& a, const Name& b) {
        return a.hash != b.hash ? a.hash < b.hash : a.text < b.text;
      });
      for (std::size_t k = 0; k < list.size(); ++k)
        if (list[k].text.empty() || (k > 0 && list[k].text == list[k - 1].text)) return &list[k];
      return nullptr;
    };
    for (const Computation& c : m_.computations)
      list.push_back({hash_text(c.name), c.name, no_id<InstructionId>});
    if (repeated() != nullptr) return bad("a computation has no name, or that of another");
    for (std::size_t c = 0; c < m_.computations.size(); ++c) {
      list.clear();
      for (const InstructionId id : m_.instructions_of(static_cast<ComputationId>(c)))
        list.push_back({hash_text(m_[id].name), m_[id].name, id});
      if (const Name* const n = repeated(); n != nullptr)
        return bad("an instruction has no name, or that of another", m_[n->id]);
    }
    return {};
  }

  /// The alias and donor tables name what exists, sizes agree, and nothing is given twice.
  constexpr Error tables() const {
    const ShapeTable& t = m_.shapes;
    const ShapeId result = m_[m_[m_.entry].root].shape;
    const auto parameters = m_.parameters_of(m_.entry);
    const auto exists = [&](std::uint32_t parameter, std::uint32_t node) {
      return parameter < parameters.size() && node < t.node_count(m_[parameters[parameter]].shape);
    };
    const auto key = [](std::uint32_t a, std::uint32_t b) {
      return (static_cast<std::uint64_t>(a) << 32) | b;
    };
    std::vector<std::uint64_t> outputs;
    std::vector<std::uint64_t> inputs;
    for (const ParameterAlias& a : m_.parameter_aliases) {
      if (a.output_node >= t.node_count(result) || !exists(a.parameter, a.parameter_node))
        return bad("an alias names a parameter or an output that does not exist");
      const ShapeId in = t.node(m_[parameters[a.parameter]].shape, a.parameter_node);
      if (t.byte_size(in) != t.byte_size(t.node(result, a.output_node)))
        return bad("aliased output and parameter have different sizes");
      outputs.push_back(a.output_node);
      inputs.push_back(key(a.parameter, a.parameter_node));
    }
    for (const BufferDonor& d : m_.donors) {
      if (!exists(d.parameter, d.parameter_node))
        return bad("a donor names a parameter that does not exist");
      inputs.push_back(key(d.parameter, d.parameter_node));
    }
    for (std::vector<std::uint64_t>* const list : {&outputs, &inputs}) {
      std::sort(list->begin(), list->end());
      if (std::adjacent_find(list->begin(), list->end()) != list->end())
        return bad("an output or a parameter is aliased or given away twice");
    }
    return {};
  }

  const Module& m_;
  std::vector<std::uint32_t> place_;   // by instruction: its position in the order
  std::vector<std::uint8_t> users_;    // of what begins an asynchronous operation
  std::vector<std::uint8_t> callers_;  // by computation: 2 by a fusion, 1 by others
  std::uint64_t effort_ = 0;           // left for comparing shapes
};

}  // namespace detail

/// Checks all that the rest of the library takes for granted of a module.
///
/// Orders are complete, with operands and control predecessors before their users; operands, called
/// computations and results agree in shape; asynchronous operations end just once; names are
/// unique; the tables of parameters, aliases and donors hold. Errors: corrupt, at the instruction,
/// over_budget (comparing shapes). Cost: linear but for sorting names. Source: XLA's HloVerifier,
/// hlo-format.md H.
[[nodiscard]] constexpr Error verify_module(const Module& module) {
  return detail::ModuleVerifier(module).run();
}

/// Runs a pass and the verifier behind it.
///
/// Errors: those of the pass; internal (the module was good before and is no longer, or was bad
/// already).
template <class Pass>
requires graph_pass<std::remove_reference_t<Pass>>
[[nodiscard]] constexpr Result<bool> run_verified(Module& module, Pass&& pass) {
  Result<bool> changed = pass.run(module);
  if (!changed.ok()) return changed;
  if (Error e = verify_module(module); !e.ok()) {
    if (e.code == Errc::corrupt) e.code = Errc::internal;
    return e;
  }
  return changed;
}

}  // namespace holdfast
