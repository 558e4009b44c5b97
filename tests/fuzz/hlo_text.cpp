// SPDX-License-Identifier: Apache-2.0
// HLO text of any bytes: an error with a place inside the text, or a module that holds together and
// survives writing.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/graph/traversal.hpp"
#include "holdfast/hlo/parser.hpp"
#include "holdfast/hlo/printer.hpp"
#include "support/demand.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using testing::demand;
using testing::StringSink;

namespace {

void check_place(std::string_view text, const Error& e) {
  demand(e.what != nullptr && e.at_kind == AtKind::line_column && e.line() >= 1 && e.column() >= 1);
  std::size_t line = 1;
  for (const char c : text) line += c == '\n' ? 1u : 0u;
  demand(e.line() <= line && e.column() <= text.size() + 1);
}

void check_instruction(const Module& m, InstructionId id, ComputationId c,
                       const std::vector<std::uint32_t>& place) {
  const Instruction& i = m[id];
  demand(i.computation == c && !i.name.empty());
  demand(index_of(i.shape) < m.shapes.shapes.size());
  for (const InstructionId o : m.operands(i))
    demand(m[o].computation == c && place[index_of(o)] < place[index_of(id)]);
  for (const InstructionId o : m.controls(i))
    demand(m[o].computation == c && place[index_of(o)] < place[index_of(id)]);
  for (const ComputationId callee : m.called(i)) demand(index_of(callee) < index_of(c));
  for (const OperandAlias& a : m.aliases(i)) {
    demand(a.operand < i.operands.count && a.output_node < m.shapes.node_count(i.shape));
    demand(a.operand_node < m.shapes.node_count(m[m.operands(i)[a.operand]].shape));
  }
  demand(!m.opcode_word_of(i).empty());
}

void check_module(const Module& m) {
  demand(index_of(m.entry) < m.computations.size());
  std::vector<std::uint32_t> place(m.instructions.size(), 0);
  std::size_t count = 0;
  InstructionPostOrder order(m);
  for (std::uint32_t n = 0; n < m.computations.size(); ++n) {
    const auto c = static_cast<ComputationId>(n);
    const auto list = m.instructions_of(c);
    demand(!list.empty() && !m[c].name.empty());
    count += list.size();
    for (std::uint32_t k = 0; k < list.size(); ++k) place[index_of(list[k])] = k;
    for (const InstructionId id : list) check_instruction(m, id, c, place);
    demand(m[m[c].root].computation == c);
    const auto parameters = m.parameters_of(c);
    for (std::uint32_t k = 0; k < parameters.size(); ++k)
      demand(m[parameters[k]].opcode == Opcode::parameter && m[parameters[k]].number == k &&
             m[parameters[k]].computation == c);
    demand(order(c).size() == list.size());
  }
  demand(count == m.instructions.size());
  for (const ParameterAlias& a : m.parameter_aliases) {
    demand(a.parameter < m.parameters_of(m.entry).size() &&
           a.output_node < m.shapes.node_count(m[m[m.entry].root].shape));
    demand(a.parameter_node < m.shapes.node_count(m[m.parameters_of(m.entry)[a.parameter]].shape));
  }
  for (const BufferDonor& d : m.donors)
    demand(d.parameter < m.parameters_of(m.entry).size() &&
           d.parameter_node < m.shapes.node_count(m[m.parameters_of(m.entry)[d.parameter]].shape));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ParseOptions options;
  options.strict = size % 2 == 1;
  options.limits.depth = 100;
  StringSink warnings;
  const Result<Module> m = parse_hlo_text(text, options, warnings);
  if (!m.ok()) {
    check_place(text, m.error());
    StringSink shown;
    demand(write_parse_error(shown, text, m.error()).ok());
    return 0;
  }
  check_module(*m);
  PrintOptions full;
  full.elide_above = -1;
  StringSink once, twice;
  demand(print_hlo_text(*m, once, full).ok());
  options.limits.depth = 500;  // what was inferred may be nested more deeply than what was written
  const Result<Module> again = parse_hlo_text(once.text, options);
  if (!again.ok()) {
    // Only inferred shapes may make the text too large or too deep to be read back.
    demand(once.text.size() > 4 * text.size());
    return 0;
  }
  check_module(*again);
  demand(again->instructions.size() == m->instructions.size());
  demand(print_hlo_text(*again, twice, full).ok());
  demand(once.text == twice.text);
  return 0;
}
