// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/instruction_checker.hpp"

#include <string_view>

#include <doctest/doctest.h>

#include "support/hlo.hpp"
#include "support/module_generator.hpp"

using namespace holdfast;
using testing::find_instruction;

namespace {

constexpr std::string_view text = R"(HloModule m
w { p = f32[8]{0} parameter(0)
  ROOT n = f32[8]{0} negate(p) }
ENTRY e { a = f32[8]{0} parameter(0)
  s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(a), calls=w
  u = ((f32[8]{0}), f32[8]{0}, u32[]) async-update(s)
  d = f32[8]{0} async-done(u)
  t = (f32[8]{0}, f32[8]{0}) tuple(d, a)
  ROOT g = f32[8]{0} get-tuple-element(t), index=1 })";

Error checked(const Module& m, std::string_view name, std::uint64_t effort = 1000) {
  return InstructionChecker(m, m[find_instruction(m, name)], effort).check();
}

}  // namespace

TEST_CASE("instruction_checker: what the readers made is good") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Module m = testing::ModuleGenerator(seed)();
    std::uint64_t effort = 1 << 20;
    for (const Instruction& i : m.instructions)
      CHECK_MESSAGE(InstructionChecker(m, i, effort).check().ok(), i.name);
  }
}

TEST_CASE("instruction_checker: the end of what never began, an index too far, another shape") {
  Module m = testing::parse(text);
  for (const std::string_view name : {"n", "s", "u", "d", "t", "g"}) CHECK(checked(m, name).ok());
  const auto operand = [&](std::string_view of) -> InstructionId& {
    return m.operand_ids[m[find_instruction(m, of)].operands.begin];
  };
  operand("d") = find_instruction(m, "a");
  CHECK(testing::says(checked(m, "d"), "async-done has to take an async-start or async-update"));
  operand("u") = find_instruction(m, "t");
  CHECK(testing::says(checked(m, "u"), "async-update has to take an async-start or async-update"));
  m[find_instruction(m, "g")].number = 2;
  CHECK(checked(m, "g").requested == 2);
  m[find_instruction(m, "t")].shape = m[find_instruction(m, "a")].shape;
  CHECK(checked(m, "t").code == Errc::corrupt);
}

TEST_CASE("instruction_checker: comparing shapes has an end") {
  Module m = testing::parse(text);
  m[find_instruction(m, "g")].shape = *[&] {
    Shape s = m.shapes[m.instructions[0].shape];
    return m.shapes.intern(s, static_cast<std::uint32_t>(m.shapes.numbers.size()));
  }();  // f32[8] without a layout: equal, but for a comparison
  CHECK(checked(m, "g").ok());
  CHECK(checked(m, "g", 0).code == Errc::over_budget);
}
