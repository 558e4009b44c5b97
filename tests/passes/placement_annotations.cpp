// SPDX-License-Identifier: Apache-2.0
#include "holdfast/passes/placement_annotations.hpp"

#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "support/passes.hpp"

using namespace holdfast;
using testing::changed_by;
using testing::find_instruction;
using testing::parse;
using testing::refused_by;
using Pass = PlacementAnnotations<testing::StringSink>;

namespace {

/// A call with this placement as root, and what is behind it in the text.
std::string annotated(std::string_view attributes, std::string_view operands = "x") {
  return "HloModule m\nENTRY e { x = f32[8]{0} parameter(0)\n  ROOT r = f32[8]{0} custom-call(" +
         std::string(operands) + "), custom_call_target=\"annotate_device_placement\"" +
         std::string(attributes) + " }";
}
std::string placed(std::string_view placement) {
  return ", custom_call_has_side_effect=true, frontend_attributes={_xla_buffer_placement=\"" +
         std::string(placement) + "\"}";
}
std::string_view target(const Module& m, std::string_view name) {
  return m.attribute(m[find_instruction(m, name)], "custom_call_target");
}

}  // namespace

TEST_CASE("placement_annotations: T5.1 a root in pinned host memory becomes MoveToHost") {
  const std::string text = annotated(placed("pinned_host"));
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  const Instruction& root = m[m[m.entry].root];
  CHECK(root.opcode == Opcode::custom_call);
  CHECK(target(m, root.name) == "\"MoveToHost\"");
  CHECK(root.shape == m[find_instruction(m, "x")].shape);
  CHECK(testing::names(m, m.operands(root)) == "x");
  CHECK(m.attributes_of(root).size() == 1);
  CHECK(!root.has_side_effect);
}

TEST_CASE("placement_annotations: T5.2 each placement has its marker") {
  constexpr std::string_view pairs[][2] = {{"pinned_host", "\"MoveToHost\""},
                                           {"unpinned_host", "\"MoveToHost\""},
                                           {"device", "\"MoveToDevice\""},
                                           {"vmem", "\"PinToDeviceSram\""},
                                           {"pinned_device", "\"PinToDevice\""}};
  for (const auto& pair : pairs) {
    const std::string text = annotated(placed(pair[0]));
    Module m = parse(text);
    CHECK(changed_by(m, Pass{}));
    CHECK(target(m, "r") == pair[1]);
  }
}

TEST_CASE(
    "placement_annotations: T5.3 an unknown or missing placement stays; the unknown one warns") {
  const std::string unknown = annotated(placed("warm_tier"));
  Module m = parse(unknown);
  Pass pass;
  CHECK(!changed_by(m, pass));
  CHECK(pass.diagnostics.text.starts_with("warning: r has the unknown placement \"warm_tier\"\n"));
  const std::string missing = annotated(", frontend_attributes={other=\"device\"}");
  Module n = parse(missing);
  CHECK(!changed_by(n, Pass{}));
  const std::string none = annotated("");
  Module o = parse(none);
  CHECK(!changed_by(o, Pass{}));
}

TEST_CASE(
    "placement_annotations: T5.4 another number of operands is an internal error, for devices "
    "too") {
  for (const std::string_view placement : {"pinned_host", "device"}) {
    const std::string text = annotated(placed(placement), "x, x");
    Module m = parse(text);
    Pass pass;
    const Error e = refused_by(m, pass);
    CHECK(status_kind(e) == StatusKind::internal);
    CHECK(testing::says(e, "annotate_device_placement"));
    CHECK(testing::says(e, "2"));
    CHECK(e.requested == 2);
    CHECK(text.substr(e.at, 4) == "r = ");
    CHECK(pass.diagnostics.text == "r in e: annotate_device_placement has to have one operand\n");
  }
}

TEST_CASE("placement_annotations: T5.5 loop bodies and branches are visited") {
  constexpr std::string_view text = R"(HloModule m
condition { s = f32[8]{0} parameter(0)
  ROOT c = pred[] constant(false) }
body { s = f32[8]{0} parameter(0)
  h = f32[8]{0} custom-call(s), custom_call_target="annotate_device_placement", frontend_attributes={_xla_buffer_placement="pinned_host"}
  ROOT d = f32[8]{0} custom-call(h), custom_call_target="annotate_device_placement", frontend_attributes={_xla_buffer_placement="device"} }
yes { a = f32[8]{0} parameter(0)
  ROOT v = f32[8]{0} custom-call(a), custom_call_target="annotate_device_placement", frontend_attributes={_xla_buffer_placement="vmem"} }
no { ROOT a = f32[8]{0} parameter(0) }
ENTRY e { x = f32[8]{0} parameter(0)
  p = pred[] parameter(1)
  w = f32[8]{0} while(x), condition=condition, body=body
  ROOT r = f32[8]{0} conditional(p, w, w), true_computation=yes, false_computation=no })";
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  CHECK(target(m, "h") == "\"MoveToHost\"");
  CHECK(target(m, "d") == "\"MoveToDevice\"");
  CHECK(target(m, "v") == "\"PinToDeviceSram\"");
}

TEST_CASE("placement_annotations: T5.6 the sharding goes along, metadata only when asked for") {
  const std::string text =
      annotated(", sharding={devices=[2]<=[2]}, metadata={op_name=\"a/b\"}" +
                std::string(", frontend_attributes={_xla_buffer_placement=\"pinned_host\"}"));
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  const Instruction& r = m[find_instruction(m, "r")];
  CHECK(m.attribute(r, "sharding") == "{devices=[2]<=[2]}");
  CHECK(m.attribute(r, "metadata").empty());
  CHECK(m.attribute(r, "frontend_attributes").empty());
  Module n = parse(text);
  CHECK(changed_by(n, Pass{.keep_metadata = true}));
  CHECK(n.attribute(n[find_instruction(n, "r")], "metadata") == "{op_name=\"a/b\"}");
}

TEST_CASE("placement_annotations: T5.7 inside of fusions nothing happens") {
  constexpr std::string_view text = R"(HloModule m
f { p = f32[8]{0} parameter(0)
  ROOT c = f32[8]{0} custom-call(p), custom_call_target="annotate_device_placement", frontend_attributes={_xla_buffer_placement="device"} }
ENTRY e { x = f32[8]{0} parameter(0)
  ROOT r = f32[8]{0} fusion(x), kind=kLoop, calls=f })";
  Module m = parse(text);
  CHECK(!changed_by(m, Pass{}));
}

TEST_CASE("placement_annotations: a chain of calls, and the operand's layout is taken over") {
  constexpr std::string_view text = R"(HloModule m
ENTRY e { x = f32[8,4]{0,1} parameter(0)
  a = f32[8,4]{1,0} custom-call(x), custom_call_target="annotate_device_placement", frontend_attributes={_xla_buffer_placement="pinned_host"}
  b = f32[8,4]{1,0} custom-call(a), custom_call_target="annotate_device_placement", frontend_attributes={_xla_buffer_placement="device"}
  ROOT n = f32[8,4]{1,0} negate(b) })";
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  CHECK(testing::shape_of(m, "a") == "f32[8,4]{0,1}");
  CHECK(testing::shape_of(m, "b") == "f32[8,4]{0,1}");
  CHECK(testing::shape_of(m, "n") == "f32[8,4]{1,0}");
}

TEST_CASE("placement_annotations: a call that changes its operand's shape is refused") {
  constexpr std::string_view text = R"(HloModule m
ENTRY e { x = f32[8]{0} parameter(0)
  ROOT r = f32[4]{0} custom-call(x), custom_call_target="annotate_device_placement", frontend_attributes={_xla_buffer_placement="device"} })";
  Module m = parse(text);
  CHECK(refused_by(m, Pass{}).code == Errc::invalid_argument);
}

namespace {

constexpr std::string_view small = R"(ENTRY e { x = f32[8]{0} parameter(0)
  ROOT r = f32[8]{0} custom-call(x), custom_call_target="annotate_device_placement", frontend_attributes={_xla_buffer_placement="device"} })";

constexpr bool replaces_in_a_constant_expression() {
  Result<Module> m = parse_hlo_text(small);
  PlacementAnnotations<> pass;
  const Result<bool> changed = run_verified(*m, pass);
  return changed.ok() && *changed &&
         m->attribute(m->instructions[1], "custom_call_target") == "\"MoveToDevice\"";
}
static_assert(replaces_in_a_constant_expression());

}  // namespace
