// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/module_editor.hpp"

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "support/check_module.hpp"
#include "support/hlo.hpp"
#include "support/module_generator.hpp"
#include "support/same_module.hpp"

using namespace holdfast;
using testing::find_computation;
using testing::find_instruction;
using testing::names;
using testing::parse;

namespace {

constexpr std::string_view text = R"(HloModule m, is_scheduled=true

%wrapped (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %q = f32[8]{0} negate(%p)
}

ENTRY %main (x: f32[8], y: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %y = f32[8]{0} parameter(1)
  %n.7 = f32[8]{0} negate(%x), metadata={op_name="n"}
  %f = f32[8]{0} fusion(%n.7), kind=kLoop, calls=%wrapped
  %a = f32[8]{0} abs(%y), control-predecessors={%n.7}
  ROOT %r = f32[8]{0} add(%f, %a)
}
)";

Instruction like(const Module& m, InstructionId id, Opcode opcode, std::string_view name) {
  Instruction made;
  made.opcode = opcode;
  made.name = name;
  made.shape = m[id].shape;
  return made;
}

}  // namespace

TEST_CASE("module_editor: nothing edited is nothing changed") {
  Module m = parse(text);
  const std::string before = testing::print(m);
  ModuleEditor(m).finish();
  CHECK(testing::print(m) == before);
  CHECK(testing::inconsistency(m) == nullptr);
}

TEST_CASE("module_editor: what replaces an instruction takes its users, controls and rootness") {
  Module m = parse(text);
  ModuleEditor edit(m);
  const InstructionId n = find_instruction(m, "n.7");
  const InstructionId root = find_instruction(m, "r");
  const std::vector<InstructionId> x(m.operands(m[n]).begin(), m.operands(m[n]).end());
  const InstructionId first = edit.insert_before(
      n, like(m, n, Opcode::abs, edit.unique_name("abs")), m.operands(m[n]), m.attributes_of(m[n]));
  const InstructionId operand[] = {first};
  const InstructionId second =
      edit.insert_after(n, like(m, n, Opcode::sqrt, edit.unique_name("sqrt")), operand);
  edit.replace(n, second);
  const std::vector<InstructionId> sum(m.operands(m[root]).begin(), m.operands(m[root]).end());
  edit.replace(
      root, edit.insert_before(root, like(m, root, Opcode::subtract, edit.unique_name("s")), sum));
  edit.add_control(first, find_instruction(m, "f"));
  edit.finish();
  REQUIRE(testing::inconsistency(m) == nullptr);
  CHECK(names(m, m.instructions_of(m.entry)) == "x y abs.8 sqrt.9 f a s.10");
  CHECK(m[m[m.entry].root].name == "s.10");
  CHECK(m.attribute(m[find_instruction(m, "abs.8")], "metadata") == "{op_name=\"n\"}");
  CHECK(names(m, m.operands(m[find_instruction(m, "f")])) == "sqrt.9");
  CHECK(names(m, m.controls(m[find_instruction(m, "f")])) == "abs.8");
  CHECK(names(m, m.controls(m[find_instruction(m, "a")])) == "sqrt.9");
  const std::string after = testing::print(m);
  const Module again = parse(after);
  CHECK(testing::difference(m, again) == "");
}

TEST_CASE("module_editor: a new computation stands before its caller, and ids follow the order") {
  Module m = parse(text);
  ModuleEditor edit(m);
  const ComputationId c = edit.add_computation(m.entry, edit.unique_name("called"));
  const InstructionId a = find_instruction(m, "a");
  Instruction p = like(m, a, Opcode::parameter, "p");
  const InstructionId inside = edit.append(c, p, {});
  const InstructionId operand[] = {inside};
  edit.append(c, like(m, a, Opcode::cosine, "c"), operand);
  const std::vector<InstructionId> outside(m.operands(m[a]).begin(), m.operands(m[a]).end());
  const ComputationId callee[] = {c};
  edit.replace(a, edit.insert_before(a, like(m, a, Opcode::call, "call.1"), outside, {}, callee));
  edit.finish();
  REQUIRE(testing::inconsistency(m) == nullptr);
  CHECK(m[static_cast<ComputationId>(0)].name == "wrapped");
  CHECK(m[static_cast<ComputationId>(1)].name == "called.8");
  CHECK(m[m.entry].name == "main");
  CHECK(names(m, m.parameters_of(find_computation(m, "called.8"))) == "p");
  for (std::uint32_t k = 0; k < m.instruction_ids.size(); ++k)
    CHECK(index_of(m.instruction_ids[k]) == k);
  const std::string after = testing::print(m);
  CHECK(testing::difference(m, parse(after)) == "");
}

TEST_CASE("module_editor: an instruction erased is gone from every table") {
  Module m = parse(text);
  ModuleEditor edit(m);
  const InstructionId f = find_instruction(m, "f");
  const InstructionId n = find_instruction(m, "n.7");
  edit.set_operand(find_instruction(m, "r"), 0, find_instruction(m, "x"));
  edit.erase(f);
  edit.erase(n);
  edit.finish();
  REQUIRE(testing::inconsistency(m) == nullptr);
  CHECK(names(m, m.instructions_of(m.entry)) == "x y a r");
  CHECK(m.called_ids.empty());
  CHECK(m.control_ids.empty());
  CHECK(m.attributes.empty());
}

TEST_CASE("module_editor: names have a number that no name of the module has") {
  constexpr std::string_view named =
      "ENTRY e { x.3 = f32[] parameter(0)\n y.12 = f32[] abs(x.3)\n"
      "ROOT z.12345678901234567890 = f32[] abs(y.12) }";
  Module m = parse(named);
  ModuleEditor edit(m);
  CHECK(edit.unique_name("x") == "x.13");
  CHECK(edit.unique_name("y") == "y.14");
}

// Each copy of a generated module becomes a negation of a negation (which no table may notice).
TEST_CASE("module_editor: random edits of generated modules keep them whole") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Module m = testing::ModuleGenerator(seed)();
    std::mt19937_64 random(seed);
    const std::size_t count = m.instructions.size();
    std::size_t more = 0;
    ModuleEditor edit(m);
    for (std::size_t k = 0; k < count; ++k) {
      const auto id = static_cast<InstructionId>(k);
      if (m[id].opcode == Opcode::parameter || m[id].called.count != 0 || random() % 3 != 0)
        continue;
      const Instruction again = m[id];
      Instruction made = again;
      made.name = edit.unique_name("again");
      const std::vector<InstructionId> operands(m.operands(again).begin(), m.operands(again).end());
      const InstructionId to = edit.insert_after(id, made, operands, m.attributes_of(again));
      for (const InstructionId c :
           std::vector<InstructionId>(m.controls(again).begin(), m.controls(again).end()))
        edit.add_control(c, to);
      if (random() % 2 == 0)
        edit.replace(id, to);
      else
        ++more;
    }
    edit.finish();
    const char* const wrong = testing::inconsistency(m);
    CHECK_MESSAGE(wrong == nullptr, wrong);
    CHECK(m.instructions.size() == count + more);
  }
}

namespace {

constexpr std::size_t edited_in_a_constant_expression() {
  Result<Module> m = parse_hlo_text(text);
  ModuleEditor edit(*m);
  const InstructionId root = (*m)[m->entry].root;
  Instruction made = (*m)[root];
  made.name = edit.unique_name("twice");
  const InstructionId operand[] = {root};
  made.opcode = Opcode::negate;
  (*m)[m->entry].root = edit.insert_after(root, made, operand);
  edit.finish();
  return m->instructions.size();
}
static_assert(edited_in_a_constant_expression() == 9);

}  // namespace
