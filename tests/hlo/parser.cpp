// SPDX-License-Identifier: Apache-2.0
#include "holdfast/hlo/parser.hpp"

#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "support/hlo.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

constexpr std::string_view tiny =
    "HloModule tiny\n"
    "ENTRY go {\n"
    "  q = bf16[6,2]{1,0} parameter(0)\n"
    "  ROOT w = bf16[6,2]{1,0} negate(q)\n"
    "}\n";

constexpr ParseOptions strict{{}, true, true};

/// An entry computation around some instructions.
std::string entry(std::string_view body, std::string_view header = "HloModule m") {
  return std::string(header) + "\nENTRY e {\n" + std::string(body) + "\n}\n";
}
/// The shape of the only parameter written so.
std::string shape_of(std::string_view shape, const ParseOptions& options = {}) {
  const std::string text = entry("p = " + std::string(shape) + " parameter(0)");
  const Module m = parse(text, options);
  return shape_text(m, m.instructions[0].shape);
}
std::string shape_refusal(std::string_view shape, const ParseOptions& options = {}) {
  return refusal(entry("p = " + std::string(shape) + " parameter(0)"), options);
}
bool has(std::string_view text, std::string_view fragment) {
  return text.find(fragment) != text.npos;
}

constexpr bool reads_tiny() {
  const Result<Module> m = parse_hlo_text(tiny);
  if (!m) return false;
  const Computation& c = (*m)[m->entry];
  const Instruction& w = (*m)[c.root];
  return m->name == "tiny" && !m->is_scheduled && m->computations.size() == 1 && c.name == "go" &&
         w.name == "w" && w.opcode == Opcode::negate && m->operands(w).size() == 1 &&
         (*m)[m->operands(w)[0]].name == "q" && m->shapes.byte_size(w.shape) == 24;
}
static_assert(reads_tiny());
static_assert(!parse_hlo_literal(tiny).instructions.empty());

constexpr std::uint64_t place_of_failure(std::string_view text) {
  const Result<Module> m = parse_hlo_text(text);
  return m ? 0 : m.error().at;
}
// A broken text ends a constant expression with an error value, wherever it breaks.
static_assert(place_of_failure("") == make_place(1, 1));
static_assert(place_of_failure(tiny.substr(0, 60)) == make_place(3, 34));
static_assert(
    place_of_failure(
        "HloModule m\nENTRY e {\n  a = f32[6,5] parameter(0)\n  ROOT r = f32[29] reshape(a)\n}") ==
    make_place(4, 8));

}  // namespace

TEST_CASE("parser: J.1 the smallest module has one computation, a root, no schedule") {
  CHECK(reads_tiny());
  const Module m = parse(tiny);
  CHECK(m.instructions[0].where == 28);
  CHECK(m.parameters_of(m.entry).size() == 1);
  CHECK(m.header_attributes.empty());
}

TEST_CASE("parser: J.2 a bare name may not touch its equals sign, one with % may") {
  CHECK(has(refusal(entry("q = bf16[6] parameter(0)\nw=bf16[6]{0} negate(q)")),
            "4:1: a space has to stand"));
  const std::string text = entry("%q = bf16[6] parameter(0)\n%w=bf16[6]{0} negate(%q)");
  CHECK(parse(text).instructions.size() == 2);
  CHECK(has(refusal(entry("%0 = f32[] parameter(0)")), "a name has to follow %"));
  CHECK(has(refusal(entry("q = f32[] parameter(0)\nr = f32[] call(q), to_apply = f")), "at once"));
}

TEST_CASE("parser: J.3 the order of a scheduled module is its schedule") {
  const std::string text =
      "HloModule m, is_scheduled=true\n"
      "f { p = f32[2] parameter(0)\n ROOT n = f32[2] negate(p) }\n"
      "ENTRY e {\n  q = f32[2] parameter(0)\n  r = f32[2] fusion(q), kind=kLoop, calls=f\n  ROOT w "
      "= f32[2] negate(r)\n}\n";
  const Module m = parse(text);
  CHECK(m.is_scheduled);
  CHECK(names(m, m.instructions_of(m.entry)) == "q r w");
  CHECK(m[find_computation(m, "f")].is_fusion);
  CHECK_FALSE(m[m.entry].is_fusion);
  CHECK(m[find_instruction(m, "r")].fusion_kind == FusionKind::loop);
}

TEST_CASE("parser: J.4 a header attribute stands once; an unknown one is an error or a warning") {
  CHECK(has(refusal("HloModule m, replica_count=2, replica_count=2\n" +
                    entry("p = f32[] parameter(0)", "")),
            "duplicate"));
  const std::string blue =
      entry("p = f32[] parameter(0)", "HloModule m, colour=blue, replica_count=3");
  const std::string refused = refusal(blue, strict);
  CHECK(refused.substr(0, 6) == "1:14: ");
  for (const std::string_view name : detail::header_words) CHECK(has(refused, name));
  StringSink warnings;
  const Result<Module> m = parse_hlo_text(blue, {}, warnings);
  REQUIRE(m.ok());
  CHECK(warnings.text == "1:14: warning: unknown attribute of a module 'colour'\n");
  CHECK(m->replica_count == 3);
  CHECK(has(refusal(entry("p = f32[] parameter(0)", "HloModule m, colour=blue, colour=red")),
            "duplicate"));
}

TEST_CASE("parser: J.5 alias and donor tables keep kinds, and tolerate a last comma") {
  const std::string text = entry(
      "a = f32[2] parameter(0)\n b = (s32[], s32[], s32[], f32[3]) parameter(1)\n c = f32[5] "
      "parameter(2)\n"
      " n = f32[2] negate(a)\n x = f32[] constant(0)\n y = f32[3] constant({1,2,3})\n t = (f32[], "
      "f32[], f32[3]) tuple(x, x, y)\n"
      " ROOT r = ((f32[], f32[], f32[3]), f32[2]) tuple(t, n)",
      "HloModule m, input_output_alias={ {1}: (0, {}, must-alias), {0,2}: (1, {3}) }, "
      "buffer_donor={ (2, {}), (1, {0}), }");
  const Module m = parse(text);
  REQUIRE(m.parameter_aliases.size() == 2);
  CHECK(m.parameter_aliases[0].must);
  CHECK_FALSE(m.parameter_aliases[1].must);
  CHECK(m.parameter_aliases[0].output_node == 5);
  CHECK(m.parameter_aliases[0].parameter == 0);
  CHECK(m.parameter_aliases[0].parameter_node == 0);
  CHECK(m.parameter_aliases[1].output_node == 4);
  CHECK(m.parameter_aliases[1].parameter_node == 4);
  REQUIRE(m.donors.size() == 2);
  CHECK(m.donors[0].parameter == 2);
  CHECK(m.donors[1].parameter == 1);
  CHECK(m.donors[1].parameter_node == 1);
}

TEST_CASE("parser: J.6 tables name what exists, and each output and parameter once") {
  const std::string_view body =
      "a = f32[2] parameter(0)\nb = f32[2] parameter(1)\nROOT t = (f32[2], f32[2]) tuple(b, a)";
  const auto with = [&](std::string_view table) {
    return refusal(entry(body, "HloModule m, " + std::string(table)));
  };
  CHECK(with("input_output_alias={ {0}: (1, {}), {1}: (0, {}) }") == "accepted");
  CHECK(has(with("input_output_alias={ {0}: (9, {}) }"),
            "parameter that does not exist (requested 9, available 2)"));
  CHECK(has(with("input_output_alias={ {0}: (0, {}), {0}: (1, {}) }"),
            "1:49: output is aliased twice"));
  CHECK(has(with("input_output_alias={ {2}: (0, {}) }"), "output index that does not exist"));
  CHECK(
      has(with("input_output_alias={ {0}: (0, {1}) }"), "shape index that the parameter has not"));
  CHECK(
      has(with("input_output_alias={ {0}: (0, {}), {1}: (0, {}) }"), "parameter is aliased twice"));
  CHECK(has(with("input_output_alias={ {0}: (0, {}) }, buffer_donor={ (0, {}) }"),
            "a donor and aliased"));
  CHECK(has(with("input_output_alias={ {0}: (0, {}, may) }"), "expected may-alias or must-alias"));
  CHECK(has(with("buffer_donor={ (2, {}) }"), "does not exist"));
}

TEST_CASE("parser: J.7 the last computation is the entry unless one says so; callees come first") {
  const std::string_view two =
      "HloModule m\na { p = f32[] parameter(0) }\nb { q = f32[] parameter(0)\n r = f32[] call(q), "
      "to_apply=a }\n";
  const Module m = parse(two);
  CHECK(m[m.entry].name == "b");
  CHECK(m[m[m.entry].root].name == "r");
  CHECK(has(
      refusal(
          "HloModule m\nENTRY a { p = f32[] parameter(0) }\nENTRY b { p = f32[] parameter(0) }"),
      "3:1: module has two ENTRYs"));
  CHECK(has(refusal("HloModule m\nb { q = f32[] parameter(0)\n r = f32[] call(q), to_apply=a }\na "
                    "{ p = f32[] parameter(0) }"),
            "3:30: computation is not defined before its use"));
  CHECK(has(refusal("HloModule m\na { p = f32[] parameter(0) }\na { p = f32[] parameter(0) }"),
            "3:1: computation is defined twice"));
  const std::string_view early =
      "HloModule m\nENTRY a { p = f32[] parameter(0) }\nb { p = f32[] parameter(0) }";
  CHECK(parse(early)[parse(early).entry].name == "a");
}

TEST_CASE(
    "parser: J.8 a layout has tiles, element bits and a space; strict reading wants its order") {
  const std::string text = entry("p = f32[4,8]{0,1:T(8,128)(2,1)E(4)S(5)} parameter(0)");
  const Module m = parse(text, strict);
  const Layout* l = m.shapes.layout(m.instructions[0].shape);
  REQUIRE(l != nullptr);
  const auto run = [&](IndexRange r) {
    return std::vector<std::int64_t>(m.shapes.numbers.begin() + r.begin,
                                     m.shapes.numbers.begin() + r.end());
  };
  CHECK(run(l->minor_to_major) == std::vector<std::int64_t>{0, 1});
  CHECK(run(l->tiles) == std::vector<std::int64_t>{2, 8, 128, 2, 2, 1});
  CHECK(l->element_bits == 4);
  CHECK(l->space == MemorySpace::host);
  CHECK(has(shape_refusal("f32[4,8]{0,1:S(5)T(8,128)}", strict), "out of order"));
  CHECK(shape_of("f32[4,8]{0,1:S(5)T(8,128)}") == "f32[4,8]{0,1:T(8,128)S(5)}");
  CHECK(has(shape_refusal("f32[4,8]{0,1:S(5)S(5)}"), "suffix"));
  CHECK(has(shape_refusal("f32[4]{0:Q(5)}", strict), "unknown layout suffix"));
  CHECK(shape_of("f32[4]{0:Q((5))S(1)}") == "f32[4]{0:S(1)}");
  StringSink warnings;
  CHECK(parse_hlo_text(entry("p = f32[4]{0:Q((5))S(1)} parameter(0)"), {}, warnings).ok());
  CHECK(warnings.text == "3:14: warning: unknown layout suffix 'Q'\n");
  CHECK(
      shape_of("f32[4,8]{1,0:D(D,C+~)T(*,2)L(16)#(u32)*(u8)E(32)S(3)P(f32[2]{0})M(64)}", strict) ==
      "f32[4,8]{1,0:D(D,C+~)T(*,2)L(16)#(u32)*(u8)E(32)S(3)P(f32[2]{0})M(64)}");
}

TEST_CASE("parser: J.9 braces are a layout only when a number or colon follows") {
  CHECK(shape_of("f32[]{:S(2)}") == "f32[]{:S(2)}");
  CHECK(has(shape_refusal("f32[3]{}"), "expected an operation"));
  CHECK(has(shape_refusal("f32[3]{0,1}"), "dimension that the shape has not"));
  CHECK(has(shape_refusal("f32[3,4]{0}"), "not as many dimensions"));
  CHECK(has(shape_refusal("f32[3,4]{1,1}"), "layout repeats a dimension"));
  CHECK(shape_of("f32 [ 3 /*x*/ , 4 ] { 0 , 1 : S ( 5 ) }") == "f32[3,4]{0,1:S(5)}");
  CHECK(shape_of("f32[3,4]") == "f32[3,4]{1,0}");
  CHECK(shape_of("f32[3,4]", {{}, false, false}) == "f32[3,4]");
}

TEST_CASE("parser: J.10 dimensions may be dynamic, tuples nested and empty") {
  const std::string text = entry("p = f32[<=7,?] parameter(0)");
  const Module m = parse(text);
  const Shape& s = m.shapes[m.instructions[0].shape];
  CHECK(s.dynamic == 3);
  CHECK(m.shapes.dimensions(m.instructions[0].shape)[0] == 7);
  CHECK(m.shapes.dimensions(m.instructions[0].shape)[1] == unbounded_dimension);
  CHECK(m.shapes.byte_size(m.instructions[0].shape) == -1);
  CHECK(shape_of("()") == "()");
  CHECK(shape_of("( )") == "()");
  CHECK(shape_of("(f32[1], (s4[3], token[]), /*index=2*/ u8[0])") ==
        "(f32[1]{0}, (s4[3]{0}, token[]), u8[0]{0})");
  CHECK(shape_of("b(f32[4]{0:S(1)})") == "b(f32[4]{0:S(1)})");
  CHECK(has(shape_refusal("(f32[1], )"), "expected a shape"));
  CHECK(has(shape_refusal("(f32[1] f32[2])"), "expected , or )"));
  CHECK(has(shape_refusal("f32[-1]"), "dimension is negative"));
  CHECK(has(shape_refusal("f32[9223372036854775807,2]"), "does not fit 63 bits"));
  CHECK(has(shape_refusal("tuple[]"), "unknown element type"));
  CHECK(has(shape_refusal("token[1]"), "only arrays have dimensions"));
  CHECK(shape_of("f32[0,9223372036854775807,2]") == "f32[0,9223372036854775807,2]{2,1,0}");
}

TEST_CASE("parser: J.11 splits come after the space and cut inside their dimension") {
  CHECK(has(shape_refusal("f32[8]{0:SC(0:3,5)S(1)}", strict), "out of order"));
  const std::string text = entry("p = f32[8]{0:S(1)SC(0:3,5)} parameter(0)");
  const Module m = parse(text, strict);
  const Layout* l = m.shapes.layout(m.instructions[0].shape);
  REQUIRE(l->splits.count == 4);
  const std::int64_t* split = m.shapes.numbers.data() + l->splits.begin;
  CHECK(split[0] == 0);
  CHECK(split[1] == 2);
  // Pieces 3, 2 and 3.
  CHECK(split[2] == 3);
  CHECK(split[3] - split[2] == 2);
  CHECK(8 - split[3] == 3);
  for (const std::string_view bad :
       {"f32[8]{0:SC(1:3)}", "f32[8]{0:SC(0:8)}", "f32[8]{0:SC(0:5,3)}", "f32[8]{0:SC(0:0)}"})
    CHECK(has(shape_refusal(bad), "split"));
}

TEST_CASE("parser: J.12 metadata may mix its separators") {
  const std::string text = entry(
      "p = f32[] parameter(0), metadata={op_name=\"a/b\" source_line=7, source_file=\"x.py\"}");
  const Module m = parse(text);
  const std::string_view metadata = m.attribute(m.instructions[0], "metadata");
  FieldList fields(metadata);
  std::string seen;
  for (std::string_view key, value; fields.next(key, value);)
    seen += std::string(key) + ":" + std::string(value) + ";";
  CHECK(seen == "op_name:\"a/b\";source_line:7;source_file:\"x.py\";");
}

TEST_CASE("parser: J.13 the braces of a backend_config are taken verbatim") {
  const std::string text = entry(
      "p = f32[] parameter(0), backend_config={\"k\":\"}\",\"n\":{\"m\":1}}, "
      "metadata={op_name=\"z\"}");
  const Module m = parse(text);
  CHECK(m.attribute(m.instructions[0], "backend_config") == "{\"k\":\"}\",\"n\":{\"m\":1}}");
  CHECK(field_of(m.attribute(m.instructions[0], "metadata"), "op_name") == "\"z\"");
  const std::string quoted = entry("p = f32[] parameter(0), backend_config=\"a\\\"}b\"");
  CHECK(parse(quoted).attribute(parse(quoted).instructions[0], "backend_config") == "\"a\\\"}b\"");
  CHECK(has(refusal(entry("p = f32[] parameter(0), backend_config={\"k\":\"}")), "is not closed"));
  CHECK(has(refusal(entry("p = f32[] parameter(0), backend_config=7")), "expected a string"));
}

TEST_CASE("parser: J.14 an elided constant keeps its size; dots may not stand deeper") {
  const std::string text = entry("c = f32[1000000] constant({...})");
  const Module m = parse(text);
  CHECK(m.shapes.byte_size(m.instructions[0].shape) == 4000000);
  CHECK(m.attribute(m.instructions[0], "") == "{...}");
  const auto literal = [&](std::string_view shape, std::string_view value) {
    return refusal(entry("c = " + std::string(shape) + " constant(" + std::string(value) + ")"));
  };
  CHECK(has(literal("f32[2,3]", "{ {1, {...}}, {1,2,3} }"), "whole array"));
  CHECK(has(literal("f32[2,3]", "{ {...}, {...} }"), "whole array"));
  CHECK(has(literal("f32[2]", "..."), "braces"));
  CHECK(has(literal("f32[2]", "{...} 1"), "nothing else"));
  CHECK(literal("f32[2]", "{ /* ... */ 1, 2 }") == "accepted");
  CHECK(literal("(f32[20], s32[])", "( {...}, 1 )") == "accepted");
  CHECK(literal("(f32[2,20], s32[])", "( {{...}}, 1 )") != "accepted");
  CHECK(has(literal("f32[3]", "5"), "braces"));
  CHECK(has(literal("f32[]", "{5}"), "braces"));
  CHECK(has(literal("f32[]", ""), "constant has no value"));
  CHECK(literal("f32[0,7]", "{ }") == "accepted");
  CHECK(has(refusal(entry("c = f32[] constant(1")), "3:19: bracket is not closed"));
}

TEST_CASE("parser: J.15 literals of all kinds are passed over") {
  for (const std::string_view c :
       {"f32[] constant(-nan(0x1f))", "u64[] constant(18446744073709551615)",
        "c64[] constant((1.5, -inf))", "pred[2] constant({true, 0})",
        "s32[2,2] constant({ { 1, -2 }, /*i0=1*/ { 3, 4 } })", "f64[] constant(.5e-3)",
        "(s32[], (f32[1])) constant((3, ({4})))"}) {
    const std::string text = entry("c = " + std::string(c));
    const Module m = parse(text);
    CHECK(c.find(m.attribute(m.instructions[0], "")) != c.npos);
  }
}

TEST_CASE("parser: J.16 the short form of an asynchronous operation makes a wrapped computation") {
  const std::string_view head = "v = f32[9]{0} parameter(0)\n i = s32[] parameter(1)\n";
  const auto text = [&](std::string_view shape, std::string_view rest = "") {
    return entry(std::string(head) + " s = " + std::string(shape) +
                 " dynamic-slice-start(v, i), dynamic_slice_sizes={3}, metadata={op_name=\"x\"}, "
                 "async_execution_thread=\"t\"\n" +
                 std::string(rest));
  };
  CHECK(has(refusal(text("((f32[9]{0}), f32[3]{0}, u32[])")), "another number of operands"));
  CHECK(has(refusal(text("((f32[9]{0}, f32[]), f32[3]{0}, u32[])")), "another shape"));
  CHECK(has(refusal(text("f32[3]{0}")), "((operands), result, ...)"));
  const std::string good =
      text("((f32[9]{0}, s32[]), f32[3]{0}, u32[])",
           " u = ((f32[9]{0}, s32[]), f32[3]{0}, u32[]) dynamic-slice-update(s)\n"
           " ROOT d = f32[3]{0} dynamic-slice-done(u)");
  const Module m = parse(good);
  const Instruction& s = m[find_instruction(m, "s")];
  CHECK(s.opcode == Opcode::async_start);
  REQUIRE(s.called.count == 1);
  const Computation& c = m[m.called(s)[0]];
  CHECK(c.is_async_wrapper);
  CHECK(c.thread == "t");
  const Instruction& inner = m[c.root];
  CHECK(inner.opcode == Opcode::dynamic_slice);
  CHECK(shape_text(m, inner.shape) == "f32[3]{0}");
  CHECK(m.operands(inner).size() == 2);
  CHECK(m.attribute(inner, "dynamic_slice_sizes") == "{3}");
  CHECK(m.attribute(inner, "metadata") == "{op_name=\"x\"}");
  CHECK(m.attribute(inner, "async_execution_thread").empty());
  CHECK(m.attribute(s, "metadata") == "{op_name=\"x\"}");
  CHECK(m.attribute(s, "dynamic_slice_sizes").empty());
  const Instruction& d = m[find_instruction(m, "d")];
  CHECK(d.opcode == Opcode::async_done);
  CHECK(m[find_instruction(m, "u")].opcode == Opcode::async_update);
  REQUIRE(d.called.count == 1);
  CHECK(m.called(d)[0] == m.called(s)[0]);
  CHECK(m[m[m.entry].root].name == "d");
  for (const InstructionId id : m.instructions_of(m.entry)) CHECK(m[id].computation == m.entry);
  CHECK(has(
      refusal(text("((f32[9]{0}, s32[]), f32[3]{0}, u32[])", " ROOT d = f32[3]{0} slice-done(s)")),
      "wraps another operation"));
  CHECK(has(refusal(text("((f32[9]{0}, s32[]), f32[3]{0}, u32[])",
                         " ROOT d = f32[4]{0} dynamic-slice-done(s)")),
            "another shape"));
  CHECK(has(refusal(entry(std::string(head) + " ROOT d = f32[9]{0} dynamic-slice-done(v)")),
            "have to take an async-start"));
}

TEST_CASE("parser: J.17 an async-done runs on the thread of its start") {
  const auto text = [](std::string_view thread, std::string_view calls = "") {
    return "HloModule m\nf { p = f32[2] parameter(0)\n ROOT n = f32[2] negate(p) }, "
           "execution_thread=\"a\"\n"
           "g { p = f32[2] parameter(0)\n ROOT n = f32[2] negate(p) }\nENTRY e { v = f32[2] "
           "parameter(0)\n"
           " s = ((f32[2]), f32[2], u32[]) async-start(v), calls=f, async_execution_thread=\"a\"\n"
           " ROOT d = f32[2] async-done(s)" +
           std::string(thread) + std::string(calls) + "\n}\n";
  };
  CHECK(refusal(text("")) == "accepted");
  CHECK(refusal(text(", async_execution_thread=\"a\"", ", calls=f")) == "accepted");
  CHECK(has(refusal(text(", async_execution_thread=\"b\"")), "another thread"));
  CHECK(has(refusal(text("", ", calls=g")), "calls another computation"));
  const std::string good = text("");
  const Module m = parse(good);
  CHECK(m[find_computation(m, "f")].thread == "a");
  CHECK_FALSE(m[find_computation(m, "f")].is_async_wrapper);
}

TEST_CASE("parser: J.18 comments of both kinds may stand anywhere; an unterminated one is named") {
  const std::string text =
      "// x\nHloModule m /* ** / */ , // y\n is_scheduled=true\nENTRY e { /*a*/ p /*b*/ = "
      "f32[/*c*/2] /*d*/ parameter(/*e*/0) /*f*/ } // end";
  CHECK(parse(text).is_scheduled);
  CHECK(has(refusal("HloModule m\nENTRY e { /* p = f32[] parameter(0) }"),
            "2:11: comment is not closed"));
  CHECK(has(refusal("HloModule m\nENTRY e { / p = f32[] parameter(0) }"),
            "2:11: / begins no comment"));
}

TEST_CASE("parser: J.19 a type or keyword is a name only with %") {
  CHECK(refusal(entry("%f32 = f32[2]{0} parameter(0)\nROOT %ROOT = f32[2] negate(%f32)")) ==
        "accepted");
  CHECK(has(refusal(entry("f32 = f32[2]{0} parameter(0)")),
            "3:1: this word is a name only when written with %"));
  CHECK(has(refusal(entry("inf = f32[2]{0} parameter(0)")), "only when written with %"));
}

TEST_CASE("parser: J.22 a nested operand becomes an instruction of its own just before") {
  const std::string text = entry(
      "q = f32[2]{0} parameter(0)\nnegate.1 = f32[2] negate(q)\nROOT r = f32[2]{0} add(negate(q), "
      "f32[2] abs(f32[2] exponential(q)))");
  const Module m = parse(text);
  CHECK(names(m, m.instructions_of(m.entry)) == "q negate.1 negate.2 exponential.3 abs.4 r");
  CHECK(names(m, m.operands(m[find_instruction(m, "r")])) == "negate.2 abs.4");
  CHECK(shape_text(m, m[find_instruction(m, "negate.2")].shape) == "f32[2]{0}");
  std::string deep = "q = f32[2] parameter(0)\nROOT r = f32[2] ";
  for (int i = 0; i < 600; ++i) deep += "negate(";
  CHECK(has(refusal(entry(deep + "q" + std::string(600, ')'))),
            "nested more deeply than the depth limit (available 500)"));
}

TEST_CASE("parser: J.23 a shape written before an operand agrees with it up to its layout") {
  CHECK(has(refusal(entry("q = f32[2] parameter(0)\nr = f32[3] negate(f32[3] q)")),
            "4:19: operand has another shape than written"));
  CHECK(refusal(entry("q = f32[2,3]{0,1} parameter(0)\nr = f32[2,3] negate(f32[2,3]{1,0} %q)")) ==
        "accepted");
  CHECK(refusal(entry("q = (f32[2], s32[]) parameter(0)\nr = s32[] get-tuple-element((f32[2], "
                      "s32[]) q), index=1")) == "accepted");
  CHECK(refusal(entry("%negate = f32[2] parameter(0)\nr = f32[2] negate(%negate)\ns = f32[2] "
                      "negate(negate)")) == "accepted");
}

TEST_CASE("parser: J.24 a callee may be written in place; it gets a name of its own") {
  const std::string text =
      "HloModule m\n_ { p = s32[] parameter(0) }\nENTRY e { t = s32[] parameter(0)\n"
      " ROOT w = s32[] while(t), condition={ c = s32[] parameter(0)\n z = s32[] constant(0)\n ROOT "
      "l = pred[] compare(c, z), direction=LT },\n"
      "  body={ b = s32[] parameter(0)\n ROOT n = s32[] negate(b) }\n}\n";
  const Module m = parse(text);
  REQUIRE(m.computations.size() == 4);
  const Instruction& w = m[find_instruction(m, "w")];
  REQUIRE(w.called.count == 2);
  const ComputationId body = m.called(w)[0];
  const ComputationId condition = m.called(w)[1];
  CHECK(m[m[body].root].name == "n");
  CHECK(m[m[condition].root].name == "l");
  CHECK(m[body].name != m[condition].name);
  CHECK(m[body].name.substr(0, 2) == "_.");
  CHECK(w.computation == m.entry);
  CHECK(index_of(m.entry) == 3);
  CHECK(m[find_instruction(m, "t")].computation == m.entry);
  CHECK(m[find_instruction(m, "c")].computation == condition);
}

TEST_CASE("parser: J.25 braces nested 100000 deep in an attribute neither crash nor hang") {
  const std::string deep = std::string(100000, '{') + std::string(100000, '}');
  CHECK(refusal(entry("p = f32[] parameter(0), sharding=" + deep)) == "accepted");
  CHECK(has(refusal(entry("p = f32[] parameter(0), sharding={{" + deep)), "bracket is not closed"));
  std::string bodies = "p = f32[] parameter(0)\n";
  for (int i = 0; i < 600; ++i) bodies += "r = f32[] call(p), to_apply={ p = f32[] parameter(0)\n";
  CHECK(has(refusal(entry(bodies)), "nested more deeply than the depth limit"));
  std::string tuples = std::string(100000, '(');
  CHECK(has(refusal(entry("p = " + tuples)),
            "nested more deeply than the depth limit (available 500)"));
  ParseOptions shallow;
  shallow.limits.depth = 3;
  CHECK(shape_of("((( )))", shallow) == "((()))");
  CHECK(has(shape_refusal("(((( ))))", shallow), "(available 3)"));
}

TEST_CASE("parser: the frame index is kept as written and its entries are counted") {
  const std::string text =
      "HloModule m\n\nFileNames\n1 \"a.py\"\n\nFunctionNames\n1 \"f\"\n\nFileLocations\n"
      "1 {file_name_id=1 function_name_id=1 line=4 end_line=4 column=2 "
      "end_column=9}\n\nStackFrames\n1 {file_location_id=1 parent_frame_id=1}\n\n"
      "ENTRY e { p = f32[] parameter(0) }\n";
  const Module m = parse(text);
  CHECK(m.frame_index.substr(0, 9) == "FileNames");
  CHECK(m.frame_index.back() == '}');
  CHECK(has(refusal("HloModule m\nFileNames\n2 \"a.py\"\nENTRY e { p = f32[] parameter(0) }\n"),
            "3:1: the entries of a table"));
}

TEST_CASE("parser: B.6 computations without a header make a module named after the entry") {
  const std::string_view text =
      "f { p = f32[] parameter(0) }\nENTRY %main (a: f32[]) -> f32[] { a = f32[] parameter(0)\n "
      "ROOT r = f32[] call(a), to_apply=f }";
  const Module m = parse(text);
  CHECK(m.name == "module_main");
  CHECK(m.computations.size() == 2);
}

TEST_CASE("parser: B.6 a single instruction makes parameters of its operands") {
  const std::string_view text =
      "ROOT r = f32[2] add(f32[2] y, negate(f32[2] %x)), metadata={op_name=\"n\"}";
  const Module m = parse(text);
  CHECK(m[m[m.entry].root].name == "r");
  CHECK(names(m, m.parameters_of(m.entry)) == "y x");
  CHECK(m.instructions.size() == 4);
  const std::string_view unnamed = "f32[2] add(f32[2] y, f32[2] y)";
  CHECK(parse(unnamed).instructions.size() == 2);
  CHECK(has(refusal("f32[2] add(f32[2] y, z)"), "not defined"));
  CHECK(has(refusal("f32[2] negate(f32[2] y) x"), "nothing after"));
}

TEST_CASE("parser: a byte-order mark and CRLF line ends are no matter") {
  std::string text = "\xEF\xBB\xBF";
  for (const char c : tiny) text += c == '\n' ? "\r\n" : std::string(1, c);
  CHECK(parse(text).instructions.size() == 2);
}

TEST_CASE("parser: unknown attributes and operations are warnings, once a word, or strict errors") {
  const std::string text = entry(
      "p = f32[] parameter(0), zig={a,\"}\"}, zag=[2]<=[2]T(0)\nq = f32[] parameter(1), zig=1\nr = "
      "f32[] frobnicate(p, q)\ns = f32[] frobnicate(p)");
  StringSink warnings;
  const Result<Module> m = parse_hlo_text(text, {}, warnings);
  REQUIRE(m.ok());
  CHECK(warnings.text ==
        "3:25: warning: unknown attribute 'zig'\n3:38: warning: unknown attribute 'zag'\n5:11: "
        "warning: unknown operation 'frobnicate'\n");
  CHECK(m->opcode_word_of(m->instructions[2]) == "frobnicate");
  CHECK(m->instructions[2].opcode == m->instructions[3].opcode);
  CHECK(static_cast<std::size_t>(m->instructions[2].opcode) == opcode_count);
  CHECK(m->attribute(m->instructions[0], "zag") == "[2]<=[2]T(0)");
  CHECK(has(refusal(text, strict), "3:25: unknown attribute"));
  CHECK(has(refusal(entry("r = f32[] frobnicate()"), strict), "3:11: unknown operation"));
  CHECK(has(refusal(entry("p = f32[] parameter(0), zig=1, zig=2")), "duplicate"));
  CHECK(has(refusal(entry("p = f32[] parameter(0), metadata={}, metadata={}")), "duplicate"));
}

TEST_CASE("parser: T1.4 parameters are numbered without gaps, and a computation has one ROOT") {
  CHECK(has(refusal(entry("a = f32[] parameter(0)\nb = f32[] parameter(2)")),
            "4:1: parameter numbers"));
  CHECK(has(refusal(entry("a = f32[] parameter(0)\nb = f32[] parameter(0)")),
            "parameter number is given twice"));
  CHECK(
      has(refusal(entry("ROOT a = f32[] parameter(0)\nROOT b = f32[] parameter(1)")), "two ROOTs"));
  const std::string backwards = entry("b = f32[] parameter(1)\na = s32[] parameter(0)");
  const Module m = parse(backwards);
  CHECK(names(m, m.parameters_of(m.entry)) == "a b");
  CHECK(names(m, m.instructions_of(m.entry)) == "b a");
}

TEST_CASE("parser: shapes that follow from operands may be left out") {
  const std::string text =
      "HloModule m\nf { p = f32[2,3]{0,1} parameter(0)\n ROOT n = negate(p) }\n"
      "c { p = (f32[2,3], f32[2,3]) parameter(0)\n ROOT k = pred[] constant(true) }\n"
      "b { ROOT p = (f32[2,3], f32[2,3]) parameter(0) }\n"
      "ENTRY e { a = f32[2,3] parameter(0)\n x = call(a), to_apply=f\n t = tuple(a, x)\n w = "
      "while(t), condition=c, body=b\n"
      " g = get-tuple-element(w), index=1\n l = compare(g, a), direction=LT\n ROOT s = select(l, "
      "a, g) }";
  const Module m = parse(text);
  const auto shape = [&](std::string_view name) {
    return shape_text(m, m[find_instruction(m, name)].shape);
  };
  CHECK(shape("x") == "f32[2,3]{0,1}");
  CHECK(shape("t") == "(f32[2,3]{1,0}, f32[2,3]{0,1})");
  CHECK(shape("w") == shape("t"));
  CHECK(shape("g") == "f32[2,3]{0,1}");
  CHECK(shape("l") == "pred[2,3]{0,1}");
  CHECK(shape("s") == "f32[2,3]{1,0}");
  for (const std::string_view op :
       {"a = parameter(0)", "a = constant(1)", "p = f32[2] parameter(0)\nr = reshape(p)",
        "p = f32[2] parameter(0)\nr = convert(p)"})
    CHECK(has(refusal(entry(op)), "shape has to be written"));
}

TEST_CASE("parser: attributes that memory work needs become fields") {
  const std::string text =
      "HloModule m, num_partitions=4, frontend_attributes={a=\"b\"}\nadd { x = f32[] "
      "parameter(0)\n y = f32[] parameter(1)\n ROOT s = f32[] add(x, y) }\n"
      "ge { x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT s = pred[] compare(x, y), "
      "direction=GE }\n"
      "one { p = f32[4] parameter(0) }\n two { p = f32[4] parameter(0) }\n"
      "ENTRY e { a = f32[4] parameter(0)\n b = pred[] parameter(1)\n i = s32[] parameter(2)\n z = "
      "f32[] constant(0)\n"
      " c = f32[4] conditional(b, a, a), false_computation=two, true_computation=one\n"
      " d = f32[4] conditional(i, a, a), branch_computations={two, one}\n"
      " u = (f32[4], f32[4]) custom-call(a, c), custom_call_target=\"t\", "
      "custom_call_has_side_effect=true, output_to_operand_aliasing={{1}: (0, {}), {0}: (1, {})}, "
      "called_computations={one, two}\n"
      " v = f32[4] select-and-scatter(a, d, z), scatter=add, select=ge, window={size=1}, "
      "control-predecessors={c, d}\n"
      " ROOT g = f32[4] get-tuple-element(u), index=1\n}";
  const Module m = parse(text);
  CHECK(m.num_partitions == 4);
  REQUIRE(m.header_attributes.size() == 1);
  CHECK(m.header_attributes[0].value == "{a=\"b\"}");
  const auto callees = [&](std::string_view name) {
    std::string out;
    for (const ComputationId id : m.called(m[find_instruction(m, name)]))
      out += std::string(m[id].name) + " ";
    return out;
  };
  CHECK(callees("c") == "one two ");
  CHECK(callees("d") == "two one ");
  CHECK(callees("u") == "one two ");
  CHECK(callees("v") == "ge add ");
  const Instruction& u = m[find_instruction(m, "u")];
  CHECK(u.has_side_effect);
  REQUIRE(u.aliases.count == 2);
  CHECK(m.aliases(u)[0].output_node == 2);
  CHECK(m.aliases(u)[0].operand == 0);
  CHECK(m.aliases(u)[1].output_node == 1);
  CHECK(m.aliases(u)[1].operand == 1);
  CHECK(m.attribute(u, "custom_call_target") == "\"t\"");
  CHECK(u.attributes.count == 1);
  CHECK(names(m, m.controls(m[find_instruction(m, "v")])) == "c d");
  CHECK(m[find_instruction(m, "g")].number == 1);
}

TEST_CASE("parser: H.2 operations agree with their operands and callees") {
  const std::string_view head =
      "HloModule m\nf { p = f32[2] parameter(0) }\ng { p = f32[3] parameter(0) }\nt { p = f32[2] "
      "parameter(0)\n ROOT k = pred[] constant(true) }\n"
      "ENTRY e { a = f32[2] parameter(0)\n b = f32[3] parameter(1)\n i = s32[] parameter(2)\n u = "
      "(f32[2], f32[3]) tuple(a, b)\n ";
  const auto with = [&](std::string_view line) {
    return refusal(std::string(head) + std::string(line) + "\n}");
  };
  CHECK(with("r = f32[2] call(a), to_apply=f") == "accepted");
  CHECK(has(with("r = f32[2] call(b), to_apply=f"), "another shape than the parameter"));
  CHECK(has(with("r = f32[3] call(a), to_apply=f"), "gives another shape"));
  CHECK(has(with("r = f32[2] call(a, a), to_apply=f"), "another number of parameters"));
  CHECK(has(with("r = f32[2] call(a)"), "is missing"));
  CHECK(has(with("r = f32[2] fusion(a), calls=f"), "fusion has no kind"));
  CHECK(has(with("r = f32[2] fusion(a), calls=f, kind=kBig"), "fusion kind"));
  CHECK(with("r = f32[2] while(a), condition=t, body=f") == "accepted");
  CHECK(has(with("r = f32[2] while(a), condition=f, body=f"), "pred[]"));
  CHECK(has(with("r = f32[2] while(a), condition=t, body=g"), "different shapes"));
  CHECK(has(with("r = f32[2] while(a), condition=t"), "condition= and body="));
  CHECK(has(with("r = f32[2] conditional(i, a), branch_computations={f, f}"),
            "operands than branches"));
  CHECK(has(with("r = f32[2] conditional(b, a), branch_computations={f}"), "choose by"));
  CHECK(has(with("r = f32[2] conditional(i, a, b), branch_computations={f, g}"),
            "branch gives another shape"));
  CHECK(has(with("r = f32[2] get-tuple-element(u), index=2"),
            "out of range (requested 2, available 2)"));
  CHECK(has(with("r = f32[2] get-tuple-element(u), index=1"), "another shape than the element"));
  CHECK(has(with("r = f32[2] get-tuple-element(u)"), "needs index="));
  CHECK(has(with("r = f32[2] get-tuple-element(a), index=0"), "no tuple"));
  CHECK(has(with("r = (f32[2]) tuple(a, b)"), "another number of operands"));
  CHECK(has(with("r = (f32[2], f32[2]) tuple(a, b)"), "another shape than its operand"));
  CHECK(has(with("r = f32[2] negate(a, b)"), "wrong number of operands"));
  CHECK(has(with("r = f32[2] copy-done(a)"), "has to take a copy-start"));
  CHECK(with("s = (f32[2], f32[2], u32[]) copy-start(a)\n r = f32[2] copy-done(s)") == "accepted");
  CHECK(has(with("r = f32[2] sort(a), dimensions={0}"), "to_apply is missing"));
  CHECK(has(with("r = f32[2] frob(a), output_to_operand_aliasing={{}: (1, {})}"),
            "operand that does not exist"));
  CHECK(has(with("r = f32[2] frob(a), output_to_operand_aliasing={{0}: (0, {})}"),
            "shape index that does not exist"));
}

TEST_CASE(
    "parser: H.4 and H.6 control predecessors come before, and a fusion's computation has one "
    "caller") {
  CHECK(has(
      refusal(entry("a = f32[] parameter(0), control-predecessors={b}\nb = f32[] parameter(1)")),
      "3:47: control predecessor is not defined"));
  CHECK(has(refusal("HloModule m\nf { p = f32[] parameter(0) }\nENTRY e { a = f32[] parameter(0)\n "
                    "r = f32[] fusion(a), kind=kLoop, calls=f\n s = f32[] call(a), to_apply=f }"),
            "5:2: the computation of a fusion has another caller"));
}

TEST_CASE("parser: H.7 dimensions are below the rank and there where they are needed") {
  const auto with = [](std::string_view line) {
    return refusal(entry("a = f32[4,2] parameter(0)\nr = " + std::string(line)));
  };
  CHECK(with("f32[2,4] transpose(a), dimensions={1,0}") == "accepted");
  CHECK(has(with("f32[2,4] transpose(a), dimensions={1}"), "every dimension"));
  CHECK(has(with("f32[2,4] transpose(a), dimensions={1,1}"), "repeats"));
  CHECK(has(with("f32[2,4] transpose(a), dimensions={1,2}"), "(requested 2, available 2)"));
  CHECK(has(with("f32[8,2] concatenate(a, a)"), "one dimension"));
  CHECK(has(with("f32[4,2,3] broadcast(a), dimensions={0}"), "each of the operand's"));
  CHECK(with("f32[4,2,3] broadcast(a), dimensions={0,1}") == "accepted");
  CHECK(has(with("s32[] get-dimension-size(a), dimensions={}"), "one dimension"));
  CHECK(has(with("f32[4,2] reverse(a), dimensions={x}"), "list of numbers"));
  CHECK(has(with("s32[4] iota(), iota_dimension=1"), "names a dimension"));
}

TEST_CASE("parser: the header's layout and a signature agree with the computation") {
  const std::string_view body = "a = f32[2,3]{0,1} parameter(0)\nROOT t = (f32[2,3]{0,1}) tuple(a)";
  const auto with = [&](std::string_view layout) {
    return refusal(entry(body, "HloModule m, entry_computation_layout=" + std::string(layout)));
  };
  CHECK(with("{(f32[2,3]{1,0})->(f32[2,3])}") == "accepted");
  CHECK(has(with("{(f32[2,4]{1,0})->(f32[2,3])}"), "another shape than a parameter"));
  CHECK(has(with("{()->(f32[2,3])}"), "another number of parameters"));
  CHECK(has(with("{(f32[2,3])->f32[2,3]}"), "another shape than the root"));
  CHECK(has(refusal("HloModule m\nENTRY e (a: f32[2]) -> f32[3] { a = f32[2] parameter(0) }"),
            "2:9: signature gives another shape"));
  CHECK(refusal("HloModule m\nENTRY e (a: f32[3], %zz f32[7]) -> f32[2]{0:S(1)} { a = f32[2] "
                "parameter(0) }") == "accepted");
}

TEST_CASE("parser: limits on bytes and instructions are kept") {
  ParseOptions few;
  few.limits.instructions = 1;
  CHECK(has(refusal(tiny, few), "4:8: more instructions than the limit"));
  few.limits.instructions = 2;
  CHECK(refusal(tiny, few) == "accepted");
  few.limits.bytes = tiny.size() - 1;
  CHECK(has(refusal(tiny, few), "1:1: more bytes than the limit"));
  few.limits.bytes = tiny.size();
  CHECK(refusal(tiny, few) == "accepted");
}

TEST_CASE("parser: an error is shown with its line and a mark below the place") {
  const std::string text = entry("  a = f32[2] parameter(0)\n  ROOT r = f32[3] reshape(a)");
  const Result<Module> m = parse_hlo_text(text);
  REQUIRE_FALSE(m.ok());
  StringSink out;
  CHECK(write_parse_error(out, text, m.error()).ok());
  CHECK(out.text ==
        "4:8: reshape changes the number of elements (requested 3, available 2)\n  ROOT r = f32[3] "
        "reshape(a)\n       ^\n");
}

TEST_CASE("parser: H.2 a dynamic dimension agrees with a static one of its bound") {
  const std::string_view text =
      "HloModule m\nf { p = f32[4] parameter(0) }\nENTRY e { a = f32[<=4] parameter(0)\n ROOT r = "
      "f32[4] call(a), to_apply=f }";
  CHECK(refusal(text) == "accepted");
  const std::string_view buffers =
      "HloModule m\nENTRY e { a = b(f32[4]{0:S(1)}) parameter(0)\n ROOT t = (b(f32[4])) tuple(a) }";
  CHECK(refusal(buffers) == "accepted");
  CHECK(has(
      refusal(
          "HloModule m\nENTRY e { a = b(f32[4]) parameter(0)\n ROOT t = (b(f32[5])) tuple(a) }"),
      "another shape than its operand"));
}
