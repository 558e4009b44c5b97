// SPDX-License-Identifier: Apache-2.0
#include "holdfast/passes/verifier.hpp"

#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "support/check_module.hpp"
#include "support/hlo.hpp"
#include "support/module_generator.hpp"

using namespace holdfast;
using testing::find_computation;
using testing::find_instruction;
using testing::parse;

namespace {

constexpr std::string_view text =
    R"(HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }, buffer_donor={ (1, {}) }

%wrapped (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %q = f32[8]{0} negate(%p)
}

%fused (fp: f32[8]) -> f32[8] {
  %fp = f32[8]{0} parameter(0)
  ROOT %fq = f32[8]{0} abs(%fp)
}

ENTRY %main (x: f32[8], y: f32[8]) -> (f32[8], f32[8]) {
  %x = f32[8]{0} parameter(0)
  %y = f32[8]{0} parameter(1)
  %c = f32[8]{0} call(%x), to_apply=%wrapped
  %f = f32[8]{0} fusion(%c), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=%fused
  %s = (f32[8]{0:S(5)}, f32[8]{0}, u32[]) copy-start(%f)
  %n = f32[8]{0} negate(%y), control-predecessors={%s}
  %d = f32[8]{0:S(5)} copy-done(%s)
  %k = f32[4]{0} slice(%n), slice={[0:4]}
  ROOT %r = (f32[8]{0}, f32[8]{0:S(5)}) tuple(%n, %d)
}
)";

/// What the verifier says of the module after a fault was put into it.
template <class Fault>
std::string fault(Fault&& put) {
  Module m = parse(text);
  const Error before = verify_module(m);
  REQUIRE_MESSAGE(before.ok(), testing::sentence(before));
  put(m);
  const Error e = verify_module(m);
  if (e.ok()) return "good";
  CHECK(e.stage == Stage::verify);
  CHECK(e.code == Errc::corrupt);
  if (e.at_kind == AtKind::byte_offset) {
    const std::string_view from = text.substr(e.at);
    return std::string(from.substr(0, from.find(' '))) + ": " + e.what;
  }
  return e.what;
}
Instruction& at(Module& m, std::string_view name) { return m[find_instruction(m, name)]; }
InstructionId& operand(Module& m, std::string_view name, std::uint32_t k = 0) {
  return m.operand_ids[at(m, name).operands.begin + k];
}
/// Swaps two instructions in the order.
void swap(Module& m, std::string_view a, std::string_view b) {
  const auto place = [&](std::string_view name) {
    return std::find(m.instruction_ids.begin(), m.instruction_ids.end(), find_instruction(m, name));
  };
  std::iter_swap(place(a), place(b));
}
ShapeId other_shape(Module& m) { return at(m, "k").shape; }

}  // namespace

TEST_CASE("verifier: what readers and generator made is good") {
  Module m = parse(text);
  CHECK(verify_module(m).ok());
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    const Module made = testing::ModuleGenerator(seed)();
    // The builder does not mark the computations of fusions.
    const std::string printed = testing::print(made);
    const Module read = parse(printed);
    const Error e = verify_module(read);
    CHECK_MESSAGE(e.ok(), testing::sentence(e));
  }
}

TEST_CASE("verifier: seeded faults in orders") {
  CHECK(fault([](Module& m) { swap(m, "c", "f"); }) ==
        "%f: an operand does not stand before its user");
  CHECK(fault([](Module& m) { swap(m, "n", "s"); }) ==
        "%n: a control predecessor does not stand before");
  CHECK(fault([](Module& m) { swap(m, "q", "n"); }) ==
        "%n: an instruction stands in another computation's order");
  CHECK(fault([](Module& m) { m.instruction_ids[0] = m.instruction_ids[1]; }) ==
        "%q: an operand does not stand before its user");
  CHECK(fault([](Module& m) {
          m.instruction_ids[m[m.entry].instructions.begin + 7] = find_instruction(m, "d");
        }) == "%d: an instruction stands twice in an order");
  CHECK(fault([](Module& m) { --m[m.entry].instructions.count; }) ==
        "the root is no instruction of its computation");
  CHECK(fault([](Module& m) {
          swap(m, "k", "r");
          --m[m.entry].instructions.count;
        }) == "%k: an instruction is not in the order of any computation");
  CHECK(fault([](Module& m) { m.instruction_ids[3] = static_cast<InstructionId>(1000); }) ==
        "an order names no instruction");
  CHECK(fault([](Module& m) { m[m.entry].instructions.count += 1000; }) ==
        "a computation has ids outside of the module's tables");
}

TEST_CASE("verifier: seeded faults in operands, shapes and attributes") {
  CHECK(fault([](Module& m) { operand(m, "f") = find_instruction(m, "p"); }) ==
        "%f: an operand does not stand before its user");
  CHECK(fault([](Module& m) { operand(m, "f") = find_instruction(m, "f"); }) ==
        "%f: an operand does not stand before its user");
  CHECK(fault([](Module& m) { operand(m, "f") = no_id<InstructionId>; }) ==
        "%f: an operand does not stand before its user");
  CHECK(fault([](Module& m) { operand(m, "r", 0) = find_instruction(m, "k"); }) ==
        "%r: tuple element has another shape than its operand");
  CHECK(fault([](Module& m) { at(m, "n").operands.count = 0; }) == "%n: wrong number of operands");
  CHECK(fault([](Module& m) { at(m, "f").shape = other_shape(m); }) ==
        "%f: the called computation gives another shape");
  CHECK(fault([](Module& m) { at(m, "fp").shape = other_shape(m); }) ==
        "%f: an operand has another shape than the parameter");
  CHECK(fault([](Module& m) { at(m, "d").shape = other_shape(m); }) ==
        "%d: the result has another shape than its start's");
  CHECK(fault([](Module& m) { at(m, "n").shape = no_id<ShapeId>; }) ==
        "%n: an instruction has no shape");
  CHECK(fault([](Module& m) { at(m, "n").opcode = static_cast<Opcode>(opcode_count); }) ==
        "%n: an instruction has no known opcode");
  CHECK(fault([](Module& m) { at(m, "k").attributes.count = 1000; }) ==
        "%k: an instruction has a list outside of the module's tables");
  CHECK(fault([](Module& m) { at(m, "f").fusion_kind = FusionKind::none; }) ==
        "%f: fusion has no kind");
  CHECK(fault([](Module& m) { m.operand_aliases[0].operand = 1; }) ==
        "%f: an alias names an operand or a shape index that does not exist");
}

TEST_CASE("verifier: seeded faults in computations and parameters") {
  CHECK(fault([](Module& m) { m.entry = static_cast<ComputationId>(3); }) ==
        "the module has no entry");
  CHECK(fault([](Module& m) { m.entry = find_computation(m, "wrapped"); }) ==
        "the entry computation is called");
  CHECK(fault([](Module& m) { m.called_ids[0] = m.entry; }) ==
        "%c: a called computation does not stand before its caller");
  CHECK(fault([](Module& m) { m.called_ids[0] = find_computation(m, "fused"); }) ==
        "%c: the computation of a fusion has another caller");
  CHECK(fault([](Module& m) { m.called_ids[1] = find_computation(m, "wrapped"); }) ==
        "%f: the computation of a fusion has another caller");
  CHECK(fault([](Module& m) { m[find_computation(m, "fused")].is_fusion = false; }) ==
        "%f: the computation of a fusion has another caller");
  CHECK(fault([](Module& m) { m[m.entry].root = find_instruction(m, "q"); }) ==
        "the root is no instruction of its computation");
  CHECK(fault([](Module& m) { std::swap(at(m, "x").number, at(m, "y").number); }) ==
        "%x: a parameter is not the one that its number says");
  CHECK(fault([](Module& m) { at(m, "y").number = 2; }) ==
        "%y: a parameter is not the one that its number says");
  CHECK(fault([](Module& m) { at(m, "y").opcode = Opcode::iota; }) ==
        "a computation lists another parameter");
  CHECK(fault([](Module& m) {
          at(m, "d").name = "n";
        }).ends_with(": an instruction has no name, or that of another"));
  CHECK(fault([](Module& m) { at(m, "d").name = ""; }) ==
        "%d: an instruction has no name, or that of another");
  CHECK(fault([](Module& m) { m[m.entry].name = "wrapped"; }) ==
        "a computation has no name, or that of another");
}

TEST_CASE("verifier: seeded faults in asynchronous operations") {
  CHECK(fault([](Module& m) {
          operand(m, "d") = find_instruction(m, "f");  // d takes what never began
        }) == "%d: copy-done has to take a copy-start");
  CHECK(fault([](Module& m) {
          at(m, "k").opcode = Opcode::copy_done;
          operand(m, "k") = find_instruction(m, "s");
        }) == "%k: an asynchronous operation ends twice");
  CHECK(fault([](Module& m) { at(m, "d").opcode = Opcode::negate; }) ==
        "%d: the result of an asynchronous operation is used before it ends");
  CHECK(fault([](Module& m) {
          at(m, "d").opcode = Opcode::negate;
          operand(m, "d") = find_instruction(m, "f");
        }) == "%s: an asynchronous operation begins and does not end just once");
}

TEST_CASE("verifier: seeded faults in the alias and donor tables") {
  CHECK(fault([](Module& m) { m.parameter_aliases[0].output_node = 3; }) ==
        "an alias names a parameter or an output that does not exist");
  CHECK(fault([](Module& m) { m.parameter_aliases[0].parameter = 2; }) ==
        "an alias names a parameter or an output that does not exist");
  CHECK(fault([](Module& m) { m.parameter_aliases[0].output_node = 0; }) ==
        "aliased output and parameter have different sizes");
  CHECK(fault([](Module& m) {
          m.parameter_aliases.push_back({1, 1, 0, false});
        }) == "an output or a parameter is aliased or given away twice");
  CHECK(fault([](Module& m) { m.donors[0].parameter = 0; }) ==
        "an output or a parameter is aliased or given away twice");
  CHECK(fault([](Module& m) { m.donors[0].parameter_node = 1; }) ==
        "a donor names a parameter that does not exist");
}

namespace {

struct Breaks {
  static constexpr std::string_view name = "breaks";
  Result<bool> run(Module& m) {
    std::swap(m.instruction_ids[0], m.instruction_ids[1]);
    return true;
  }
};

}  // namespace

TEST_CASE("verifier: a pass that breaks a module is an internal error, and no pass none") {
  Module m = parse(text);
  const Result<bool> none = run_verified(m, NoPass{});
  CHECK((none.ok() && !*none));
  Breaks pass;
  const Result<bool> broken = run_verified(m, pass);
  REQUIRE(!broken.ok());
  CHECK(status_kind(broken.error()) == StatusKind::internal);
  CHECK(broken.error().stage == Stage::verify);
}

// Whatever is overwritten in the tables of ids: the verifier ends, and what it lets pass is whole.
TEST_CASE("verifier: random damage is found or harmless") {
  std::mt19937_64 random(7);
  int found = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    const Module made = testing::ModuleGenerator(seed % 100)();
    const std::string printed = testing::print(made);
    Module m = parse(printed);
    const auto below = [&](std::size_t n) {
      return static_cast<std::uint32_t>(random() % (n + 1));
    };
    const auto any = [&](auto& pool) -> auto& { return pool[random() % pool.size()]; };
    Instruction& i = any(m.instructions);
    switch (random() % 10) {
      case 0:
        any(m.operand_ids) = static_cast<InstructionId>(below(m.instructions.size()));
        break;
      case 1:
        any(m.instruction_ids) = static_cast<InstructionId>(below(m.instructions.size()));
        break;
      case 2:
        any(m.parameter_ids) = static_cast<InstructionId>(below(m.instructions.size()));
        break;
      case 3:
        i.shape = static_cast<ShapeId>(below(m.shapes.shapes.size()));
        break;
      case 4:
        i.opcode = static_cast<Opcode>(below(opcode_count));
        break;
      case 5:
        i.operands = {below(m.operand_ids.size()), below(3)};
        break;
      case 6:
        i.called = {below(m.called_ids.size()), below(2)};
        break;
      case 7:
        any(m.computations).root = static_cast<InstructionId>(below(m.instructions.size()));
        break;
      case 8:
        i.number = below(5);
        break;
      default:
        any(m.computations).instructions.count = below(m.instruction_ids.size());
        break;
    }
    const Error e = verify_module(m);
    found += !e.ok();
    if (!e.ok()) continue;
    const char* const wrong = testing::inconsistency(m);
    CHECK_MESSAGE(wrong == nullptr, wrong);
    const std::string after = testing::print(m);
    CHECK(!after.empty());
  }
  CHECK(found > 1500);
}

namespace {

constexpr bool verifies_in_a_constant_expression() {
  Result<Module> m = parse_hlo_text(text);
  if (!verify_module(*m).ok()) return false;
  std::swap(m->instruction_ids[0], m->instruction_ids[1]);
  return !verify_module(*m).ok();
}
static_assert(verifies_in_a_constant_expression());

}  // namespace
