// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/buffer_definitions.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/hlo/parser.hpp"
#include "holdfast/hlo/proto_reader.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using holdfast::testing::read_file;
using holdfast::testing::shared_path;

TEST_CASE(
    "buffer_definitions: a location of an old file is found by computation and name, or kept "
    "without a shape (R.19)") {
  const Result<Module> m = parse_hlo_text(
      "HloModule m\nf { x = f32[2]{0} parameter(0)\n ROOT n = f32[2]{0} negate(x) }\n"
      "ENTRY e { x = f32[2]{0} parameter(0)\n ROOT r = f32[2]{0} fusion(x), kind=kLoop, calls=f }");
  REQUIRE(m.ok());
  AllocationTable t;
  t.buffers.push_back({.id = 1, .size = 8, .computation_name = "e", .instruction_name = "x"});
  t.buffers.push_back({.id = 2, .size = 8, .computation_name = "f", .instruction_name = "x"});
  t.buffers.push_back({.id = 3, .size = 8, .computation_name = "g", .instruction_name = "x"});
  t.buffers.push_back({.id = 4, .size = 8, .instruction_name = "r"});
  t.buffers.push_back({.id = 5, .size = 8, .instruction_name = "x"});  // two of that name
  t.buffers.push_back({.id = 6, .size = 8, .instruction_id = 12});
  t.buffers.push_back({.id = 7, .size = 8, .instruction_id = 99});
  t.buffers.push_back({.id = 8, .size = 8});
  const std::vector<std::int64_t> ids{10, 11, 12, 13};
  const std::vector<InstructionId> found = find_definitions(t, *m, ids);
  const auto name = [&](std::size_t buffer) {
    return found[buffer] == no_id<InstructionId>
               ? std::string("none")
               : std::string((*m)[(*m)[found[buffer]].computation].name) + "/" +
                     std::string((*m)[found[buffer]].name);
  };
  CHECK(name(0) == "e/x");
  CHECK(name(1) == "f/x");
  CHECK(name(2) == "none");
  CHECK(name(3) == "e/r");
  CHECK(name(4) == "none");
  CHECK(name(5) == "e/x");
  CHECK(name(6) == "none");
  CHECK(name(7) == "none");
}

TEST_CASE(
    "buffer_definitions: every buffer of the corpus is found, and its size is that of its shape "
    "(Q.1)") {
  if (shared_path("data/hlo/mlp_train_sgd/after.hlo.pb").empty()) return;
  for (const std::string_view name :
       {"mlp_train_sgd", "gpu_spmd_mlp_dp", "switch_experts", "gpu_host_offload_optimizer"}) {
    const std::string bytes =
        read_file(shared_path("data/hlo/" + std::string(name) + "/after.hlo.pb"));
    std::vector<std::int64_t> ids;
    const Result<Module> m = parse_hlo_proto(bytes, {.instruction_ids = &ids});
    REQUIRE(m.ok());
    const Result<AllocationTable> t = parse_buffer_assignment(*find_buffer_assignment(bytes));
    REQUIRE(t.ok());
    const std::vector<InstructionId> found = find_definitions(*t, *m, ids);
    std::size_t equal = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      REQUIRE(found[i] != no_id<InstructionId>);
      const LogicalBuffer& b = t->buffers[i];
      const ShapeId whole = (*m)[found[i]].shape;
      const std::uint32_t node = m->shapes.node_of_path(whole, t->numbers_of(b.shape_index));
      REQUIRE(node < m->shapes.node_count(whole));
      equal += m->shapes.byte_size(m->shapes.node(whole, node)) == b.size;
    }
    CHECK(equal == found.size());
  }
}
