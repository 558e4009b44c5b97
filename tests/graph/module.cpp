// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/module.hpp"

#include <string>
#include <type_traits>
#include <utility>

#include <doctest/doctest.h>

#include "support/module_generator.hpp"

using namespace holdfast;
using testing::ModuleBuilder;

static_assert(std::is_nothrow_move_constructible_v<Module> &&
              !std::is_copy_constructible_v<Module>);
static_assert(sizeof(Instruction) <= 80, "a module of a million instructions has to stay small");

TEST_CASE("module: lists of an instruction and a computation are runs of the pools") {
  ModuleBuilder b;
  const ShapeId s = b.scalar(ElementType::f32);
  b.open("callee");
  const ComputationId callee = b.close(b.parameter(s));
  b.open("entry");
  const InstructionId x = b.parameter(s), y = b.parameter(s);
  const InstructionId c = b.add(Opcode::call, s, {y}, {{"a", "1"}, {"", "2"}}, {callee});
  b.control(x, c);
  b.alias(c, {{0, 0, 0}});
  const InstructionId root = b.add(Opcode::add, s, {c, x});
  b.module.entry = b.close(root);
  const Module m = std::move(b.module);
  CHECK(m.operands(m[c]).size() == 1);
  CHECK(m.operands(m[c])[0] == y);
  CHECK(m.operands(m[root])[1] == x);
  CHECK(m.called(m[c])[0] == callee);
  CHECK(m.controls(m[c])[0] == x);
  CHECK(m.aliases(m[c]).size() == 1);
  CHECK(m.attribute(m[c], "a") == "1");
  CHECK(m.attribute(m[c], "") == "2");
  CHECK(m.attribute(m[c], "b").empty());
  CHECK(m.attributes_of(m[x]).empty());
  CHECK(m.instructions_of(m.entry).size() == 4);
  CHECK(m.parameters_of(m.entry)[1] == y);
  CHECK(m[m.entry].root == root);
  CHECK(m.opcode_word_of(m[c]) == "call");
}

TEST_CASE("module: a word of an unknown operation is kept") {
  Module m;
  m.opcode_words = {"frob", "nicate"};
  Instruction i;
  i.opcode = static_cast<Opcode>(opcode_count + 1);
  CHECK(m.opcode_word_of(i) == "nicate");
}

TEST_CASE("module: owned text stays where it is, also when the module moves") {
  Module m;
  std::vector<std::string_view> views;
  std::vector<std::string> texts;
  for (int i = 0; i < 3000; ++i)
    texts.push_back(std::string(static_cast<std::size_t>(i % 50), 'x') + std::to_string(i));
  texts.emplace_back(10000, 'y');
  texts.emplace_back();
  for (const std::string& t : texts) views.push_back(m.own(t));
  const Module moved = std::move(m);
  for (std::size_t i = 0; i < texts.size(); ++i) CHECK(views[i] == texts[i]);
}
