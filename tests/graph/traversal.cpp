// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/traversal.hpp"

#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "support/module_generator.hpp"

using namespace holdfast;
using testing::ModuleBuilder;

namespace {

/// One entry computation that a function fills; gives the names in post-order.
template <class Fill>
std::string order_of(Fill fill) {
  ModuleBuilder b;
  b.open("e");
  const InstructionId root = fill(b);
  b.module.entry = b.close(root);
  std::string out;
  for (const InstructionId id : instruction_post_order(b.module, b.module.entry))
    out += std::to_string(index_of(id)) + " ";
  return out;
}

}  // namespace

TEST_CASE("traversal: T1.1 operands come out in operand order") {
  CHECK(order_of([](ModuleBuilder& b) {
          const ShapeId s = b.scalar(ElementType::f32);
          const InstructionId a = b.parameter(s), c = b.parameter(s);
          return b.add(Opcode::custom_call, s, {c, a});
        }) == "1 0 2 ");
}

TEST_CASE("traversal: T1.2 a control predecessor comes first even if it stands later") {
  CHECK(order_of([](ModuleBuilder& b) {
          const ShapeId s = b.scalar(ElementType::f32);
          const InstructionId x = b.parameter(s), n = b.add(Opcode::negate, s, {x}),
                              m = b.add(Opcode::negate, s, {x});
          b.control(m, n);
          return n;
        }) == "0 2 1 ");
}

TEST_CASE("traversal: T1.3 an instruction without users stands where the scan meets it") {
  CHECK(order_of([](ModuleBuilder& b) {
          const ShapeId s = b.scalar(ElementType::f32);
          const InstructionId x = b.parameter(s), y = b.parameter(s);
          b.add(Opcode::negate, s, {y});                          // 2: dead
          const InstructionId n = b.add(Opcode::negate, s, {x});  // 3
          b.add(Opcode::abs, s, {n});                             // 4: dead
          return b.add(Opcode::add, s, {x, n});                   // 5
        }) == "1 2 0 3 4 5 ");
}

TEST_CASE("traversal: an operand used twice comes once, and a chain of 100000 needs no stack") {
  ModuleBuilder b;
  b.open("e");
  const ShapeId s = b.scalar(ElementType::f32);
  InstructionId v = b.parameter(s);
  for (int i = 0; i < 100000; ++i) v = b.add(Opcode::add, s, {v, v});
  b.module.entry = b.close(v);
  const auto order = instruction_post_order(b.module, b.module.entry);
  REQUIRE(order.size() == 100001);
  for (std::uint32_t i = 0; i < order.size(); i += 1000) CHECK(index_of(order[i]) == i);
}

TEST_CASE(
    "traversal: post-order holds every instruction once, behind what it needs, and is its own "
    "post-order") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Module m = testing::ModuleGenerator(seed)();
    InstructionPostOrder order_of_computation(m);
    for (std::uint32_t c = 0; c < m.computations.size(); ++c) {
      const auto id = static_cast<ComputationId>(c);
      const auto order = order_of_computation(id);
      REQUIRE(order.size() == m.instructions_of(id).size());
      std::vector<std::size_t> place(m.instructions.size(), order.size());
      for (std::size_t i = 0; i < order.size(); ++i) {
        CHECK(m[order[i]].computation == id);
        CHECK(place[index_of(order[i])] == order.size());
        place[index_of(order[i])] = i;
      }
      for (const InstructionId i : order) {
        for (const InstructionId operand : m.operands(m[i]))
          CHECK(place[index_of(operand)] < place[index_of(i)]);
        for (const InstructionId control : m.controls(m[i]))
          CHECK(place[index_of(control)] < place[index_of(i)]);
      }
      const std::vector<InstructionId> before(order.begin(), order.end());
      std::copy(before.begin(), before.end(), m.instruction_ids.begin() + m[id].instructions.begin);
      const auto again = order_of_computation(id);
      CHECK(std::vector<InstructionId>(again.begin(), again.end()) == before);
    }
  }
}

TEST_CASE(
    "traversal: computations come callees first, in the order of their first call, the entry "
    "last") {
  ModuleBuilder b;
  const ShapeId s = b.scalar(ElementType::f32);
  const auto leaf = [&](std::string_view name, std::vector<ComputationId> callees = {}) {
    b.open(name);
    InstructionId v = b.parameter(s);
    for (const ComputationId c : callees) v = b.add(Opcode::call, s, {v}, {}, {c});
    return b.close(v);
  };
  const ComputationId one = leaf("one");
  const ComputationId two = leaf("two");
  const ComputationId dead = leaf("dead", {two});
  const ComputationId both = leaf("both", {two, one});
  b.module.entry = leaf("entry", {one, both, two});
  const ComputationId behind = leaf("behind", {one});
  std::string names;
  for (const ComputationId c : computation_post_order(b.module))
    names += std::string(b.module[c].name) + " ";
  CHECK(names == "two dead one behind both entry ");
  CHECK(index_of(dead) == 2);
  CHECK(index_of(behind) == 5);
  CHECK(computation_post_order(Module{}).empty());
}

TEST_CASE("traversal: callees nested 100000 deep need no stack") {
  ModuleBuilder b;
  const ShapeId s = b.scalar(ElementType::f32);
  ComputationId c{};
  for (int i = 0; i < 100000; ++i) {
    b.open("c");
    const InstructionId p = b.parameter(s);
    c = b.close(i == 0 ? p : b.add(Opcode::call, s, {p}, {}, {c}));
  }
  b.module.entry = c;
  CHECK(computation_post_order(b.module).size() == 100000);
}
