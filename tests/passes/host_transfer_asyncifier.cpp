// SPDX-License-Identifier: Apache-2.0
#include "holdfast/passes/host_transfer_asyncifier.hpp"

#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "holdfast/plan/plan_offsets.hpp"
#include "holdfast/plan/validate.hpp"
#include "support/module_generator.hpp"
#include "support/passes.hpp"
#include "support/planned.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using testing::changed_by;
using testing::find_instruction;
using testing::names;
using testing::parse;
using testing::refused_by;
using testing::shape_of;
using Pass = HostTransferAsyncifier<testing::StringSink>;

namespace {

std::string in(int space) { return space == 0 ? "" : ":S(" + std::to_string(space) + ")"; }

std::string update(int base, int written, int result) {
  return "HloModule m\nENTRY e { b = f32[20,4]{1,0" + in(base) +
         "} parameter(0)\n  u = f32[1,4]{1,0" + in(written) +
         "} parameter(1)\n  i = s32[] parameter(2)\n  z = s32[] constant(0)\n"
         "  ROOT t = f32[20,4]{1,0" +
         in(result) + "} dynamic-update-slice(b, u, i, z) }";
}
std::string slice(int from, int to) {
  return "HloModule m\nENTRY e { b = f32[20,4]{1,0" + in(from) +
         "} parameter(0)\n  i = s32[] parameter(1)\n  z = s32[] constant(0)\n"
         "  ROOT t = f32[1,4]{1,0" +
         in(to) + "} dynamic-slice(b, i, z), dynamic_slice_sizes={1,4} }";
}
std::string copy(int from, int to) {
  return "HloModule m\nENTRY e { b = f32[20,4]{1,0" + in(from) +
         "} parameter(0)\n  ROOT t = f32[20,4]{1,0" + in(to) + "} copy(b) }";
}
/// What the root is afterwards, and what it began with: "unchanged" if that is so.
std::string root_of(const std::string& text) {
  Module m = parse(text);
  if (!changed_by(m, Pass{})) return "unchanged";
  const Instruction& done = m[m[m.entry].root];
  const Instruction& start = m[m.operands(done)[0]];
  std::string out = std::string(m.opcode_word_of(done)) + " " +
                    std::string(m.opcode_word_of(start)) + " " +
                    testing::shape_text(m, start.shape);
  if (start.called.count != 0) {
    const Instruction& inner = m[m[m.called(start)[0]].root];
    CHECK(m.called(done)[0] == m.called(start)[0]);
    CHECK(m[m.called(start)[0]].is_async_wrapper);
    CHECK(inner.name == "t");
    CHECK(m[m.called(start)[0]].thread.empty());
    out += " " + std::string(m.opcode_word_of(inner));
    CHECK(inner.operands.count == start.operands.count);
    for (std::uint32_t k = 0; k < start.operands.count; ++k)
      CHECK(m[m.parameters_of(m.called(start)[0])[k]].shape == m[m.operands(start)[k]].shape);
  }
  return out;
}
const std::string up =
    "async-done async-start ((f32[20,4]{1,0:S(5)}, f32[1,4]{1,0}, s32[], s32[]), "
    "f32[20,4]{1,0:S(5)}, u32[]) dynamic-update-slice";

}  // namespace

TEST_CASE("host_transfer_asyncifier: T6.1 T6.2 T6.3 updates within a space or from the host stay") {
  CHECK(root_of(update(5, 5, 5)) == "unchanged");
  CHECK(root_of(update(0, 0, 0)) == "unchanged");
  CHECK(root_of(update(0, 5, 0)) == "unchanged");
  CHECK(root_of(update(0, 5, 5)) == "unchanged");  // the update is asked first
}

TEST_CASE(
    "host_transfer_asyncifier: T6.4 an update of host memory from the device begins and ends") {
  CHECK(root_of(update(5, 0, 5)) == up);
}

TEST_CASE("host_transfer_asyncifier: T6.5 T6.6 T6.7 slices within a space or into the host stay") {
  CHECK(root_of(slice(5, 5)) == "unchanged");
  CHECK(root_of(slice(0, 0)) == "unchanged");
  CHECK(root_of(slice(0, 5)) == "unchanged");
}

TEST_CASE("host_transfer_asyncifier: T6.8 a slice of host memory into the device begins and ends") {
  CHECK(root_of(slice(5, 0)) ==
        "async-done async-start ((f32[20,4]{1,0:S(5)}, s32[], s32[]), f32[1,4]{1,0}, u32[]) "
        "dynamic-slice");
}

TEST_CASE("host_transfer_asyncifier: T6.9 T6.10 T6.11 T6.12 copies between host and device only") {
  CHECK(root_of(copy(5, 5)) == "unchanged");
  CHECK(root_of(copy(0, 0)) == "unchanged");
  CHECK(root_of(copy(0, 5)) == "copy-done copy-start (f32[20,4]{1,0:S(5)}, f32[20,4]{1,0}, u32[])");
  CHECK(root_of(copy(5, 0)) == "copy-done copy-start (f32[20,4]{1,0}, f32[20,4]{1,0:S(5)}, u32[])");
}

TEST_CASE("host_transfer_asyncifier: T6.13 other device spaces are no device memory") {
  CHECK(root_of(copy(1, 5)) == "unchanged");
  CHECK(root_of(copy(5, 1)) == "unchanged");
  CHECK(root_of(slice(5, 1)) == "unchanged");
  CHECK(root_of(update(5, 1, 5)) == "unchanged");
}

TEST_CASE(
    "host_transfer_asyncifier: T6.14 a base in another space than the result is an internal "
    "error") {
  const std::string text = update(0, 0, 5);
  Module m = parse(text);
  Pass pass;
  const Error e = refused_by(m, pass);
  CHECK(status_kind(e) == StatusKind::internal);
  CHECK(testing::says(e, "base"));
  CHECK(text.substr(e.at, 2) == "t ");
  CHECK(pass.diagnostics.text ==
        "dynamic-update-slice t has its base b in another memory space than its result\n");
}

TEST_CASE("host_transfer_asyncifier: T6.15 a missing layout is an error") {
  ParseOptions options;
  options.default_layouts = false;
  for (const std::string_view text :
       {std::string_view(
            "ENTRY e { b = f32[20,4] parameter(0)\n i = s32[] parameter(1)\n"
            "ROOT t = f32[1,4]{1,0} dynamic-slice(b, i, i), dynamic_slice_sizes={1,4} }"),
        std::string_view("ENTRY e { b = f32[4]{0} parameter(0)\n ROOT t = f32[4] copy(b) }"),
        std::string_view(
            "ENTRY e { b = f32[4]{0} parameter(0)\n u = f32[1] parameter(1)\n"
            "i = s32[] parameter(2)\n ROOT t = f32[4]{0} dynamic-update-slice(b, u, i) }")}) {
    Module m = parse(text, options);
    Pass pass;
    const Error e = refused_by(m, pass);
    CHECK(e.code == Errc::invalid_argument);
    CHECK(text.substr(e.at, 2) == "t ");
    CHECK(pass.diagnostics.text == "t has a result or an operand without a layout\n");
  }
}

TEST_CASE(
    "host_transfer_asyncifier: T6.16 what came before the copy comes before its start, what came "
    "behind behind its end") {
  constexpr std::string_view text = R"(HloModule m
ENTRY e { x = f32[8]{0} parameter(0)
  h = f32[8]{0:S(5)} parameter(1)
  k = f32[8]{0} negate(x)
  c = f32[8]{0} copy(h), control-predecessors={k}, sharding={replicated}, metadata={op_name="c"}, backend_config={"a":1}, frontend_attributes={f="1"}
  m = f32[8]{0} abs(x), control-predecessors={c}
  ROOT r = f32[8]{0} add(c, m), control-predecessors={c} })";
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  CHECK(names(m, m.instructions_of(m.entry)) == "x h k copy-start.1 c m r");
  const Instruction& start = m[find_instruction(m, "copy-start.1")];
  const Instruction& done = m[find_instruction(m, "c")];
  CHECK(names(m, m.controls(start)) == "k");
  CHECK(done.controls.count == 0);
  CHECK(names(m, m.controls(m[find_instruction(m, "m")])) == "c");
  CHECK(names(m, m.controls(m[find_instruction(m, "r")])) == "c");
  CHECK(names(m, m.operands(m[find_instruction(m, "r")])) == "c m");
  for (const Instruction* i : {&start, &done}) {
    CHECK(m.attribute(*i, "metadata") == "{op_name=\"c\"}");
    CHECK(m.attribute(*i, "backend_config") == "{\"a\":1}");
    CHECK(m.attribute(*i, "frontend_attributes").empty());
  }
  CHECK(m.attribute(done, "sharding") == "{replicated}");
  CHECK(m.attribute(start, "sharding").empty());
}

TEST_CASE(
    "host_transfer_asyncifier: composites, fusions and what is asynchronous stay; loops do not") {
  constexpr std::string_view text = R"(HloModule m
composite { a = f32[8]{0:S(5)} parameter(0)
  ROOT c = f32[8]{0} copy(a) }
called { a2 = f32[8]{0:S(5)} parameter(0)
  ROOT c2 = f32[8]{0} copy(a2) }
condition { s = (f32[8]{0:S(5)}, f32[8]{0}) parameter(0)
  ROOT no = pred[] constant(false) }
body { s = (f32[8]{0:S(5)}, f32[8]{0}) parameter(0)
  h = f32[8]{0:S(5)} get-tuple-element(s), index=0
  c3 = f32[8]{0} copy(h)
  ROOT t = (f32[8]{0:S(5)}, f32[8]{0}) tuple(h, c3) }
ENTRY e { x = f32[8]{0:S(5)} parameter(0)
  y = f32[8]{0} call(x), to_apply=composite, is_composite=true, frontend_attributes={composite.name="n",composite.attributes="{}",composite.version="1"}
  y2 = f32[8]{0} call(x), to_apply=called
  i = (f32[8]{0:S(5)}, f32[8]{0}) tuple(x, y)
  w = (f32[8]{0:S(5)}, f32[8]{0}) while(i), condition=condition, body=body
  ROOT r = ((f32[8]{0:S(5)}, f32[8]{0}), f32[8]{0}) tuple(w, y2) })";
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  CHECK(m[m[testing::find_computation(m, "composite")].root].opcode == Opcode::copy);
  CHECK(m[m[testing::find_computation(m, "called")].root].opcode == Opcode::copy_done);
  CHECK(names(m, m.operands(m[m[testing::find_computation(m, "body")].root])).starts_with("h c3"));
}

TEST_CASE("host_transfer_asyncifier: another number for the host") {
  const std::string text = copy(7, 0);
  Module m = parse(text);
  CHECK(!changed_by(m, Pass{}));
  CHECK(changed_by(m, Pass{.host = static_cast<MemorySpace>(7)}));
}

TEST_CASE("host_transfer_asyncifier: cases/18 which transfers become asynchronous") {
  const std::string folder = testing::shared_path("cases/18-transfer-asyncifier");
  if (folder.empty()) return;
  const std::string text = testing::read_file(folder + "/transfers.hlo");
  const Module before = parse(text);
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  int starts = 0;
  for (const Instruction& i : m.instructions) {
    if (i.opcode != Opcode::copy_start && i.opcode != Opcode::async_start) continue;
    ++starts;
    if (i.opcode == Opcode::copy_start) continue;
    const bool slices = m[m[m.called(i)[0]].root].opcode == Opcode::dynamic_slice;
    CHECK(i.operands.count == (slices ? 3 : 4));
  }
  CHECK(starts == 4);
  for (const std::string_view name : {"hh", "dd", "c1", "ds_hh", "fcopy", "row", "fu"})
    CHECK(shape_of(m, name) == shape_of(before, name));
  const auto old = before.operands(before[before[before.entry].root]);
  const Instruction& root = m[m[m.entry].root];
  CHECK(testing::shape_text(m, root.shape) == shape_of(before, "t"));
  for (std::size_t k = 0; k < old.size(); ++k) {
    const Instruction& now = m[m.operands(root)[k]];
    CHECK(testing::shape_text(m, now.shape) == testing::shape_text(before, before[old[k]].shape));
    const std::string_view name = before[old[k]].name;
    const bool was = name == "up" || name == "down" || name == "ds_up" || name == "dus_down";
    CHECK((now.opcode == Opcode::copy_done || now.opcode == Opcode::async_done) == was);
    CHECK(now.name == name);
    if (was) CHECK(m[m.operands(now)[0]].operands.count == before[old[k]].operands.count);
  }

  const std::string bad = testing::read_file(folder + "/transfers_bad.hlo");
  Module n = parse(bad);
  Pass pass;
  const Error e = refused_by(n, pass);
  CHECK(status_kind(e) == StatusKind::internal);
  CHECK(bad.substr(e.at, 4) == "%dus");
  CHECK(pass.diagnostics.text.find("dus") != std::string::npos);
}

TEST_CASE(
    "host_transfer_asyncifier: a scheduled module keeps its order, and its plan but for contexts") {
  const std::string folder = testing::shared_path("cases/18-transfer-asyncifier");
  if (folder.empty()) return;
  const std::string text = testing::read_file(folder + "/transfers.hlo");
  Module m = parse(text);
  m.is_scheduled = true;
  const testing::Planned before(testing::print(m));
  CHECK(changed_by(m, Pass{}));
  const auto order = m.instructions_of(m.entry);
  for (std::size_t k = 0; k < order.size(); ++k)
    if (m[order[k]].opcode == Opcode::copy_done || m[order[k]].opcode == Opcode::async_done)
      CHECK(m.operands(m[order[k]])[0] == order[k - 1]);
  const testing::Planned after(testing::print(m));
  CHECK(before.heap() == 0);
  CHECK(after.heap() == 4);  // a context, of one transfer after the other
}

TEST_CASE("host_transfer_asyncifier: a loop still updates its host memory in place") {
  constexpr std::string_view text = R"(HloModule m, is_scheduled=true
condition { s = (f32[800]{0:S(5)}, f32[8]{0}) parameter(0)
  ROOT more = pred[] constant(false) }
body { s = (f32[800]{0:S(5)}, f32[8]{0}) parameter(0)
  h = f32[800]{0:S(5)} get-tuple-element(s), index=0
  u = f32[8]{0} get-tuple-element(s), index=1
  i = s32[] constant(3)
  d = f32[800]{0:S(5)} dynamic-update-slice(h, u, i)
  n = f32[8]{0} negate(u)
  ROOT t = (f32[800]{0:S(5)}, f32[8]{0}) tuple(d, n) }
ENTRY e { x = f32[800]{0} parameter(0)
  u = f32[8]{0} parameter(1)
  h = f32[800]{0:S(5)} copy(x)
  t = (f32[800]{0:S(5)}, f32[8]{0}) tuple(h, u)
  w = (f32[800]{0:S(5)}, f32[8]{0}) while(t), condition=condition, body=body
  ROOT r = f32[800]{0:S(5)} get-tuple-element(w), index=0 })";
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  const testing::Planned before(text), after(testing::print(m));
  CHECK(after.same("h", "d"));
  CHECK(after.heap() == before.heap() + 4);
}

// Copies of generated modules go to and from random spaces; what becomes of them is what the table
// says.
TEST_CASE("host_transfer_asyncifier: generated modules") {
  int changed = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const Module made = testing::ModuleGenerator(seed)();
    const std::string printed = testing::print(made);
    Module m = parse(printed);
    std::size_t wanted = 0;
    for (const Instruction& i : m.instructions) {
      if (i.opcode != Opcode::copy || !is_array(m.shapes[i.shape].type)) continue;
      const MemorySpace from = m.shapes.space(m[m.operands(i)[0]].shape);
      const MemorySpace to = m.shapes.space(i.shape);
      wanted += (from == MemorySpace::host && to == MemorySpace::device) ||
                (from == MemorySpace::device && to == MemorySpace::host);
    }
    const std::size_t count = m.instructions.size();
    CHECK(changed_by(m, Pass{}) == (wanted > 0));
    CHECK(m.instructions.size() == count + wanted);
    if (wanted == 0) continue;
    ++changed;
    const std::string after = testing::print(m);
    CHECK(testing::Planned(after).heap() >= testing::Planned(printed).heap());
  }
  CHECK(changed > 10);
}

namespace {

constexpr std::string_view small = R"(ENTRY e { h = f32[8]{0:S(5)} parameter(0)
  i = s32[] parameter(1)
  s = f32[2]{0} dynamic-slice(h, i), dynamic_slice_sizes={2}
  c = f32[8]{0} copy(h)
  ROOT t = (f32[2]{0}, f32[8]{0}) tuple(s, c) })";

constexpr bool splits_in_a_constant_expression() {
  Result<Module> m = parse_hlo_text(small);
  HostTransferAsyncifier<> pass;
  const Result<bool> changed = run_verified(*m, pass);
  return changed.ok() && *changed && m->computations.size() == 2 && m->instructions.size() == 10;
}
static_assert(splits_in_a_constant_expression());

}  // namespace
