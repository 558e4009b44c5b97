// SPDX-License-Identifier: Apache-2.0
#include "holdfast/hlo/printer.hpp"

#include <set>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "support/hlo.hpp"
#include "support/module_generator.hpp"
#include "support/same_module.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

constexpr std::string_view canonical =
    R"(HloModule canon, is_scheduled=true, input_output_alias={ {0}: (1, {}, must-alias), {1,0}: (0, {1}, may-alias) }, buffer_donor={ (2, {}), (0, {0}) }, alias_passthrough_params=true, entry_computation_layout={((f32[2]{0}, f32[2]{0}), s32[3,4]{0,1}, pred[])->(s32[3,4]{0,1}, (f32[2]{0}))}, replica_count=2, num_partitions=3, frontend_attributes={k="v",xla.x="{"}

FileNames
1 "a.py"

StackFrames
1 {file_location_id=1 parent_frame_id=1}


%fused (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  ROOT %n = f32[2]{0} negate(%p)
}

%side (q: f32[2]) -> f32[2] {
  %q = f32[2]{0} parameter(0)
  %n.1 = f32[2]{0} negate(%q)
  ROOT %m = f32[2]{0} abs(%n.1)
}, execution_thread="side"

ENTRY %main (a: (f32[2], f32[2]), b: s32[3,4], c: pred[]) -> (s32[3,4], (f32[2])) {
  %a = (f32[2]{0}, f32[2]{0}) parameter(0), sharding={{replicated}, {replicated}}
  %b = s32[3,4]{0,1} parameter(1)
  %c = pred[] parameter(2)
  %g = f32[2]{0} get-tuple-element(%a), index=1, metadata={op_name="x/\"y\""}
  %f = f32[2]{0} fusion(%g), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=%fused, control-predecessors={%b, %c}, backend_config={"a":"}"}
  %s = ((f32[2]{0}), f32[2]{0}, u32[]) async-start(%f), async_execution_thread="side", calls=%side
  %d = f32[2]{0} async-done(%s)
  %t = ((f32[2]{0}), f32[2]{0:S(5)}) copy-start(%d), frontend_attributes={z="1"}
  %six = (pred[], pred[], pred[], pred[], pred[], /*index=5*/pred[]) tuple(%c, %c, %c, %c, %c, /*index=5*/%c)
  %k = f32[2]{0:T(128)S(1)} constant({1, 2})
  %v = f32[2]{0} custom-call(%k), custom_call_target="t", custom_call_has_side_effect=true, api_version=API_VERSION_TYPED_FFI
  %u = (f32[2]{0}) tuple(%v)
  ROOT %r = (s32[3,4]{0,1}, (f32[2]{0})) tuple(%b, %u)
}

)";

std::string canonical_text() {
  std::string text(canonical);
  // What stands there for copy-start above would be refused: its shape names the destination and
  // the source.
  const std::string_view wrong = "((f32[2]{0}), f32[2]{0:S(5)}) copy-start";
  text.replace(text.find(wrong), wrong.size(), "(f32[2]{0:S(5)}, f32[2]{0}, u32[]) copy-start");
  return text;
}

struct FullSink {
  Error write(std::string_view) noexcept { return make_error(Errc::over_budget, "full"); }
};

constexpr bool prints_in_a_constant_expression() {
  struct Counter {
    std::size_t bytes = 0;
    constexpr Error write(std::string_view part) noexcept { return bytes += part.size(), Error{}; }
  };
  const std::string_view text =
      "HloModule m\n\nENTRY %e (p: f32[2]) -> f32[2] {\n  ROOT %p = f32[2]{0} parameter(0)\n}\n\n";
  const Result<Module> m = parse_hlo_text(text);
  Counter out;
  return m.ok() && print_hlo_text(*m, out).ok() && out.bytes == text.size();
}
static_assert(prints_in_a_constant_expression());

}  // namespace

TEST_CASE("printer: G.9 canonical text is written back byte for byte") {
  const std::string text = canonical_text();
  CHECK(print(parse(text)) == text);
}

TEST_CASE(
    "printer: G.2 options drop the sign, the signature and add operand shapes; all forms read the "
    "same") {
  const std::string text = canonical_text();
  const Module m = parse(text);
  const std::string bare = print(m, {false, false, true, -1});
  CHECK(bare.find('%') == bare.npos);
  CHECK(bare.find("ENTRY main {") != bare.npos);
  CHECK(bare.find("negate(f32[2]{0} p)") != bare.npos);
  CHECK(difference(m, parse(bare)) == "");
  const std::string keyword = "HloModule m\nENTRY e { %f32 = f32[] parameter(0) }";
  CHECK(print(parse(keyword), {false, false, false, -1}).find("%f32 = ") != std::string::npos);
}

TEST_CASE("printer: G.3 without a schedule the order is post-order") {
  const std::string_view text =
      "HloModule m\nENTRY e { a = f32[] parameter(0)\n b = f32[] parameter(1)\n c = f32[] "
      "negate(a)\n ROOT d = f32[] subtract(b, a) }";
  const std::string printed = print(parse(text));
  const Module m = parse(printed);
  CHECK(names(m, m.instructions_of(m.entry)) == "a c b d");
  CHECK(print(m) == printed);
}

TEST_CASE("printer: G.7 large constants are left out unless the options want them") {
  const std::string_view text =
      "HloModule m\nENTRY e { a = s32[11] constant({1,2,3,4,5,6,7,8,9,10,11})\n b = s32[10] "
      "constant({1,2,3,4,5,6,7,8,9,10})\n ROOT t = (s32[11], s32[10]) tuple(a, b) }";
  const Module m = parse(text);
  const std::string shortened = print(m, {});
  CHECK(shortened.find("constant({...})") != shortened.npos);
  CHECK(shortened.find("{1,2,3,4,5,6,7,8,9,10})") != shortened.npos);
  CHECK(print(m).find("10,11})") != std::string::npos);
  CHECK(parse(shortened).instructions.size() == 3);
}

TEST_CASE("printer: J.16 the short form of an asynchronous operation is written back as such") {
  const std::string_view text =
      "HloModule m, is_scheduled=true\n\n"
      "ENTRY %e (v: f32[9], i: s32[]) -> f32[3] {\n"
      "  %v = f32[9]{0} parameter(0)\n"
      "  %i = s32[] parameter(1)\n"
      "  %s = ((f32[9]{0}, s32[]), f32[3]{0}, u32[]) dynamic-slice-start(%v, %i), "
      "dynamic_slice_sizes={3}, async_execution_thread=\"t\", control-predecessors={%i}, "
      "metadata={op_name=\"x\"}\n"
      "  %u = ((f32[9]{0}, s32[]), f32[3]{0}, u32[]) dynamic-slice-update(%s)\n"
      "  ROOT %d = f32[3]{0} dynamic-slice-done(%u)\n"
      "}\n\n";
  Module m = parse(text);
  CHECK(print(m) == text);
  Module lacking = parse(text);
  lacking[find_instruction(lacking, "s")].attributes.count =
      1;  // the wrapped operation has metadata, its start no more
  CHECK(print(lacking).find("async-start(") != std::string::npos);
  // Once the two disagree, the short form would lose something: the general one is written.
  const ComputationId wrapped = m.called(m[find_instruction(m, "s")])[0];
  for (Attribute& a : m.attributes)
    if (a.key == "metadata") {
      a.value = "{op_name=\"y\"}";
      break;
    }
  const std::string general = print(m);
  CHECK(general.find("async-start(%v, %i)") != general.npos);
  CHECK(general.find("calls=%" + std::string(m[wrapped].name)) != general.npos);
  const Module n = parse(general);
  CHECK(print(n) == general);
  CHECK(n[m.called(m[find_instruction(m, "s")])[0]].thread == "t");
}

TEST_CASE("printer: a conditional is written by the type of its selector") {
  const std::string text =
      "HloModule m\none { p = f32[] parameter(0) }\nENTRY e { a = f32[] parameter(0)\n b = pred[] "
      "parameter(1)\n i = s32[] parameter(2)\n"
      " c = f32[] conditional(b, a, a), true_computation=one, false_computation=one\n d = f32[] "
      "conditional(i, a), branch_computations={one}\n"
      " ROOT t = (f32[], f32[]) tuple(c, d) }";
  const std::string printed = print(parse(text));
  CHECK(printed.find("true_computation=%one, false_computation=%one") != printed.npos);
  CHECK(printed.find("branch_computations={%one}") != printed.npos);
}

TEST_CASE("printer: the failure of a sink is given back") {
  const std::string text = canonical_text();
  FullSink full;
  CHECK(print_hlo_text(parse(text), full).code == Errc::over_budget);
}

TEST_CASE("printer: J.20 generated modules survive writing and reading, 1000 seeds") {
  std::set<Opcode> seen;
  std::size_t schedules = 0, aliases = 0, donors = 0, short_forms = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    const Module m = ModuleGenerator(seed)();
    REQUIRE(m.instructions.size() <= 60);
    const std::string text = print(m);
    const Result<Module> n = parse_hlo_text(text, {{}, true, true});
    REQUIRE_MESSAGE(n.ok(), n.error().line(), ":", n.error().column(), ": ", sentence(n.error()),
                    "\n", text);
    const std::string again = print(*n);
    REQUIRE(again == text);
    if (m.is_scheduled) REQUIRE(difference(m, *n) == "");
    const Result<Module> o = parse_hlo_text(again);
    REQUIRE(o.ok());
    REQUIRE(difference(*n, *o) == "");
    for (const Instruction& i : m.instructions) seen.insert(i.opcode);
    schedules += m.is_scheduled ? 1 : 0;
    aliases += m.parameter_aliases.size();
    donors += m.donors.size();
    for (const Computation& c : m.computations) short_forms += c.is_async_wrapper ? 1 : 0;
  }
  // Those that memory work must understand (E.2).
  for (const std::string_view word : {"while",
                                      "call",
                                      "conditional",
                                      "fusion",
                                      "custom-call",
                                      "get-tuple-element",
                                      "async-start",
                                      "async-update",
                                      "async-done",
                                      "copy-start",
                                      "copy-done",
                                      "send",
                                      "send-done",
                                      "recv",
                                      "recv-done",
                                      "infeed",
                                      "outfeed",
                                      "dynamic-slice",
                                      "dynamic-update-slice",
                                      "slice",
                                      "set-dimension-size",
                                      "get-dimension-size",
                                      "map",
                                      "reduce",
                                      "reduce-window",
                                      "scatter",
                                      "select-and-scatter",
                                      "sort",
                                      "all-reduce",
                                      "all-reduce-start",
                                      "all-reduce-done",
                                      "reduce-scatter",
                                      "tuple",
                                      "parameter",
                                      "constant"}) {
    CAPTURE(word);
    CHECK(seen.contains(find_opcode(word)));
  }
  CHECK(schedules > 400);
  CHECK(aliases > 100);
  CHECK(donors > 100);
  CHECK(short_forms > 100);
}
