// SPDX-License-Identifier: Apache-2.0
#include "holdfast/hlo/proto_reader.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/hlo/parser.hpp"
#include "holdfast/hlo/printer.hpp"
#include "support/allocations.hpp"
#include "support/check_module.hpp"
#include "support/same_module.hpp"
#include "support/shared.hpp"
#include "support/texts.hpp"

using namespace holdfast;
using namespace std::string_literals;
using namespace std::string_view_literals;
using holdfast::testing::difference;
using holdfast::testing::inconsistency;
using holdfast::testing::read_file;
using holdfast::testing::shared_path;

namespace {

// --- building protos by hand: what a test says is what is on the wire
// ---------------------------------

constexpr std::string_view r1_shape = "\x10\x0b\x1a\x01\x04\x2a\x03\x0a\x01\x00"sv;  // f32[4]{0}

/// An instruction with id, name, opcode, shape and operands; `more` adds fields.
struct Ins {
  std::int64_t id = 0;
  std::string_view name, opcode;
  std::vector<std::int64_t> operands = {};
  std::string_view shape = r1_shape;
  std::function<void(WireWriter&)> more = {};
};

constexpr void write(WireWriter& to, std::int64_t id, std::string_view name,
                     std::string_view opcode, std::span<const std::int64_t> operands,
                     std::string_view shape) {
  to.text(1, name), to.text(2, opcode), to.message(3, shape), to.number(35, id),
      to.numbers(36, operands);
}

/// A computation of instructions, the last its root.
WireWriter computation(std::string_view name, std::int64_t id, const std::vector<Ins>& list,
                       std::int64_t root = -1) {
  WireWriter c;
  c.text(1, name);
  for (const Ins& i : list) {
    WireWriter w;
    write(w, i.id, i.name, i.opcode, i.operands, i.shape);
    if (i.opcode == "parameter" && i.more == nullptr) w.number(9, 0);
    if (i.more != nullptr) i.more(w);
    c.message(2, w);
  }
  c.number(5, id);
  c.number(6, root == -1 ? list.back().id : root);
  return c;
}

/// A module of computations; `more` adds fields. Its program takes and gives one value of a shape.
std::string module_of(const std::vector<WireWriter>& list, std::int64_t entry,
                      const std::function<void(WireWriter&)>& more = nullptr,
                      std::string_view shape = r1_shape) {
  WireWriter m;
  m.text(1, "m"), m.text(2, "main");
  for (const WireWriter& c : list) m.message(3, c);
  WireWriter program;
  program.message(1, shape), program.message(2, shape);
  m.message(4, program);
  m.number(6, entry);
  if (more != nullptr) more(m);
  return std::string(m.bytes());
}

/// One computation `main` with id 1.
std::string one(const std::vector<Ins>& list,
                const std::function<void(WireWriter&)>& more = nullptr,
                std::string_view shape = r1_shape) {
  return module_of({computation("main", 1, list)}, 1, more, shape);
}

const Ins p{1, "p", "parameter"};

Error error_of(std::string_view bytes, const ProtoOptions& options = {}) {
  const Result<Module> m = parse_hlo_proto(bytes, options);
  return m.ok() ? Error{} : m.error();
}
/// Parses what has to be good; the bytes are kept, because names are views into them.
Module good(std::string_view bytes, const ProtoOptions& options = {}) {
  static std::deque<std::string> kept;
  kept.emplace_back(bytes);
  Result<Module> m = parse_hlo_proto(kept.back(), options);
  REQUIRE_MESSAGE(m.ok(), (m.ok() ? "" : m.error().what));
  REQUIRE(inconsistency(*m) == nullptr);
  return std::move(*m);
}
std::string attribute(const Module& m, std::size_t instruction, std::string_view key) {
  return std::string(m.attribute(m.instructions[instruction], key));
}
/// The bytes of a message made by a function.
template <class F>
std::string wire(F f) {
  WireWriter w;
  f(w);
  return std::string(w.bytes());
}
void schedule(WireWriter& m, std::int64_t computation_id, const std::vector<std::int64_t>& ids) {
  m.message(7, wire([&](WireWriter& s) {
              s.message(1, wire([&](WireWriter& e) {
                          e.number(1, computation_id);
                          e.message(2, wire([&](WireWriter& q) { q.numbers(1, ids); }));
                        }));
            }));
}

struct Pair {
  std::string pb, text;
};
/// An after.hlo.pb of the corpus and the text beside it.
Pair corpus(std::string_view name) {
  Pair out;
  for (const std::string_view ending : {".pb", ".pb.xz"}) {
    const std::string path = holdfast::testing::detail::below(
        "HOLDFAST_SHARED", HOLDFAST_SHARED,
        "data/hlo/" + std::string(name) + "/after.hlo" + std::string(ending));
    if (holdfast::testing::detail::exists(path)) out.pb = read_file(path);
  }
  for (const std::string_view ending : {"", ".xz"}) {
    const std::string path = holdfast::testing::detail::below(
        "HOLDFAST_SHARED", HOLDFAST_SHARED,
        "data/hlo/" + std::string(name) + "/after.hlo" + std::string(ending));
    if (holdfast::testing::detail::exists(path)) out.text = read_file(path);
  }
  return out;
}

constexpr bool reads_in_a_constant_expression() {
  WireWriter c, m, a, b, program;
  const std::int64_t operands[] = {1};
  write(a, 1, "p", "parameter", {}, r1_shape);
  write(b, 2, "n", "negate", operands, r1_shape);
  c.text(1, "main"), c.message(2, a), c.message(2, b), c.number(5, 7), c.number(6, 2);
  program.message(1, r1_shape), program.message(2, r1_shape);
  m.text(1, "tiny"), m.message(3, c), m.message(4, program), m.number(6, 7);
  const Result<Module> r = parse_hlo_proto(m.bytes());
  if (!r.ok() || r->name != "tiny" || r->instructions.size() != 2) return false;
  const Instruction& n = r->instructions[1];
  return n.opcode == Opcode::negate && n.name == "n" && index_of(r->operands(n)[0]) == 0 &&
         r->shapes.byte_size(n.shape) == 16;
}
static_assert(reads_in_a_constant_expression());
static_assert(!parse_hlo_proto("").ok());

}  // namespace

TEST_CASE("proto_reader: f32[4]{0} is ten bytes, a negate instruction thirty (R.1, R.2)") {
  CHECK(wire([](WireWriter& w) {
          const std::int64_t four[] = {4}, zero[] = {0};
          w.number(2, 11), w.numbers(3, four),
              w.message(5, wire([&](WireWriter& l) { l.numbers(1, zero); }));
        }) == r1_shape);
  const std::int64_t operand[] = {1};
  const std::string n = wire([&](WireWriter& w) { write(w, 2, "n", "negate", operand, r1_shape); });
  CHECK(n == "\x0a\x01n\x12\x06negate\x1a\x0a"s.append(r1_shape) + "\x98\x02\x02\xa2\x02\x01\x01"s);
  CHECK(n.size() == 30);
  const Module m = good(one({p, {2, "n", "negate", {1}}}));
  REQUIRE(m.instructions.size() == 2);
  CHECK(m.instructions[1].opcode == Opcode::negate);
  CHECK(m.shapes.byte_size(m.instructions[1].shape) == 16);
  CHECK(m.shapes.layout(m.instructions[1].shape) != nullptr);
}

TEST_CASE(
    "proto_reader: a schedule is a map from computation to instruction ids, and gives the order "
    "(R.3)") {
  CHECK(wire([](WireWriter& m) {
          schedule(m, 1, {1, 2});
        }) == "\x3a\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x01\x02"sv);
  const std::vector<Ins> list{
      p, {2, "a", "negate", {1}}, {3, "b", "abs", {1}}, {4, "r", "add", {2, 3}}};
  const Module m = good(one(list, [](WireWriter& w) { schedule(w, 1, {1, 3, 2, 4}); }));
  CHECK(m.is_scheduled);
  std::string order;
  for (const InstructionId i : m.instructions_of(m.entry)) order += m[i].name;
  CHECK(order == "pbar");
  CHECK_FALSE(good(one(list)).is_scheduled);
}

TEST_CASE(
    "proto_reader: a schedule that misses, repeats or invents an instruction, or breaks a "
    "dependency, is an error (R.11, H.5)") {
  const std::vector<Ins> list{p, {2, "a", "negate", {1}}, {3, "r", "abs", {2}}};
  for (const std::vector<std::int64_t>& ids : std::vector<std::vector<std::int64_t>>{
           {1, 2}, {1, 2, 2}, {1, 2, 9}, {1, 3, 2}, {2, 1, 3}, {}}) {
    const Error e = error_of(one(list, [&](WireWriter& w) { schedule(w, 1, ids); }));
    CHECK(e.code == Errc::corrupt);
    CHECK(e.at_kind == AtKind::byte_offset);
  }
  CHECK(error_of(one(list, [](WireWriter& w) {
          schedule(w, 2, {1, 2, 3});
        })).code == Errc::corrupt);  // none for `main`
}

TEST_CASE(
    "proto_reader: numbers that resolve only inside the computation are local ids (R.11, M.6)") {
  const std::int64_t high = std::int64_t{7} << 32;
  const std::vector<Ins> list{{high + 1, "p", "parameter"},
                              {high + 2, "a", "negate", {1}},
                              {high + 3, "r", "abs", {high + 2}}};
  const WireWriter c = computation("main", 7, list, 3);
  const Module m = good(module_of({c}, 7, [](WireWriter& w) { schedule(w, 7, {1, 2, 3}); }));
  CHECK(m[m[m.entry].root].name == "r");
  // One local number for two instructions: ambiguous.
  const std::vector<Ins> twice{{high + 1, "p", "parameter"},
                               {(std::int64_t{8} << 32) + 1, "q", "negate", {high + 1}},
                               {high + 3, "r", "abs", {1}}};
  CHECK(error_of(module_of({computation("main", 7, twice)}, 7)).code == Errc::corrupt);
}

TEST_CASE("proto_reader: operand ids one by one read the same as packed (R.6)") {
  const Ins packed{3, "r", "add", {1, 2}};
  const Ins single{3,  "r",      "add",
                   {}, r1_shape, [](WireWriter& w) { w.raw("\xa0\x02\x01\xa0\x02\x02"sv); }};
  const Ins n{2, "n", "negate", {1}};
  const std::string a = one({p, n, packed}), b = one({p, n, single});
  CHECK(difference(good(a), good(b)) == "");
}

TEST_CASE("proto_reader: unknown fields of every kind anywhere change nothing (R.7)") {
  const auto unknown = [](WireWriter& w) {
    w.tag(12345, WireKind::varint), w.varint(7);
    w.tag(12345, WireKind::fixed64), w.raw("12345678");
    w.message(12345, "abc"sv);
    w.tag(12345, WireKind::fixed32), w.raw("1234");
    w.tag(12345, WireKind::group), w.tag(3, WireKind::varint), w.varint(1),
        w.varint(12345u << 3 | 4);
  };
  const std::string plain = one({p, {2, "n", "negate", {1}}});
  const std::string noisy = wire([&](WireWriter& m) {
    unknown(m);
    m.text(1, "m"), m.text(2, "main");
    m.message(3, wire([&](WireWriter& c) {
                unknown(c);
                c.text(1, "main");
                c.message(2, wire([&](WireWriter& w) {
                            unknown(w), write(w, 1, "p", "parameter", {}, r1_shape), unknown(w);
                          }));
                unknown(c);
                const std::int64_t operand[] = {1};
                c.message(2, wire([&](WireWriter& w) {
                            write(w, 2, "n", "negate", operand,
                                  std::string(r1_shape) + wire(unknown));
                          }));
                c.number(5, 1), c.number(6, 2);
              }));
    unknown(m);
    m.message(4, wire([&](WireWriter& q) {
                q.message(1, r1_shape), unknown(q), q.message(2, r1_shape);
              }));
    m.number(6, 1);
    unknown(m);
  });
  CHECK(difference(good(plain), good(noisy)) == "");
}

TEST_CASE(
    "proto_reader: the last scalar counts, a sub-message in two parts is put together "
    "(hlo-format.md K)") {
  const Ins n{2, "wrong", "abs", {1}, "\x10\x0b", [](WireWriter& w) {
                w.text(1, "n"), w.text(2, "negate"),
                    w.message(3, "\x1a\x01\x04\x2a\x02\x0a\x00\x2a\x03\x0a\x01\x00"sv);
              }};
  CHECK(difference(good(one({p, {2, "n", "negate", {1}}})), good(one({p, n}))) == "");
}

TEST_CASE("proto_reader: f32[?,3] has an unbounded dimension and two flags (R.10)") {
  const std::string shape = wire([](WireWriter& w) {
    const std::int64_t dims[] = {unbounded_dimension, 3}, flags[] = {1, 0}, order[] = {1, 0};
    w.number(2, 11), w.numbers(3, dims),
        w.message(5, wire([&](WireWriter& l) { l.numbers(1, order); })), w.numbers(6, flags);
  });
  const Module m = good(one({{1, "p", "parameter", {}, shape}}, nullptr, shape));
  const ShapeId id = m.instructions[0].shape;
  CHECK(m.shapes.dimensions(id)[0] == unbounded_dimension);
  CHECK(m.shapes.dimensions(id)[1] == 3);
  CHECK(m.shapes[id].dynamic == 1);
  CHECK(m.shapes.byte_size(id) == -1);
}

TEST_CASE("proto_reader: a backend_config_payload names a payload of the module (R.12)") {
  const auto with = [](const std::function<void(WireWriter&)>& payload,
                       std::string_view plain = "") {
    return one({p,
                {2,
                 "n",
                 "negate",
                 {1},
                 r1_shape,
                 [=](WireWriter& w) {
                   w.text(43, plain);
                   if (payload != nullptr) w.message(99, wire(payload));
                 }}},
               [](WireWriter& m) { m.message(22, "a"sv), m.message(22, "b"sv); });
  };
  CHECK(attribute(good(with([](WireWriter& w) { w.number(2, 1); }, "old")), 1, "backend_config") ==
        "\"b\"");
  CHECK(attribute(good(with([](WireWriter& w) { w.text(1, "{\"k\":1}"); }, "old")), 1,
                  "backend_config") == "{\"k\":1}");
  CHECK(attribute(good(with(nullptr, "old")), 1, "backend_config") == "\"old\"");
  CHECK(error_of(with([](WireWriter& w) { w.number(2, 5); })).code == Errc::corrupt);
  CHECK(error_of(with([](WireWriter& w) { w.number(2, -1); })).code == Errc::corrupt);
}

TEST_CASE(
    "proto_reader: HloProto, HloModuleProto and HloSnapshot are told apart, an option overrides "
    "(R.17)") {
  const std::string module = one({p, {2, "n", "negate", {1}}});
  const std::string proto = wire([&](WireWriter& w) { w.message(1, module), w.message(3, ""sv); });
  const std::string snapshot = wire([&](WireWriter& w) { w.message(1, proto), w.text(4, "cpu"); });
  CHECK(detect_proto_kind(module) == ProtoKind::hlo_module);
  CHECK(detect_proto_kind(proto) == ProtoKind::hlo_proto);
  CHECK(detect_proto_kind(snapshot) == ProtoKind::hlo_snapshot);
  for (const std::string& file : {module, proto, snapshot})
    CHECK(difference(good(module), good(file)) == "");
  // A module whose name looks like a module: only the option says what it is.
  std::string misleading =
      wire([&](WireWriter& w) { w.message(1, module), w.raw(std::string_view(module).substr(3)); });
  CHECK(detect_proto_kind(misleading) == ProtoKind::hlo_proto);
  const Module m = good(misleading, {.kind = ProtoKind::hlo_module});
  CHECK(m.name.size() == module.size());
  CHECK(m.name.find('\x0a') == std::string_view::npos);  // and such a name is made legal
  CHECK(error_of(proto, {.kind = ProtoKind::hlo_module}).code == Errc::corrupt);
  CHECK(error_of(module, {.kind = ProtoKind::hlo_proto}).code == Errc::corrupt);
}

TEST_CASE("proto_reader: gzip is recognised and said to be unsupported (hlo-format.md K)") {
  const Error e = error_of("\x1f\x8b\x08\x00\x00"sv);
  CHECK(e.code == Errc::unsupported);
  CHECK(holdfast::testing::says(e, "gzip"));
}

TEST_CASE("proto_reader: calls, fusions and loops are linked as the text links them (M.4, G)") {
  const std::string pair =
      wire([](WireWriter& w) { w.number(2, 13), w.message(4, r1_shape), w.message(4, r1_shape); });
  const std::string flag = wire([](WireWriter& w) { w.number(2, 1), w.message(5, ""sv); });
  const auto calls = [](std::initializer_list<std::int64_t> ids,
                        std::function<void(WireWriter&)> more = nullptr) {
    return [ids = std::vector<std::int64_t>(ids), more](WireWriter& w) {
      w.numbers(38, ids);
      if (more != nullptr) more(w);
    };
  };
  const Module m = good(module_of(
      {computation("body", 1, {{1, "x", "parameter"}, {2, "y", "negate", {1}}}),
       computation("condition", 2, {{3, "z", "parameter"}, {4, "c", "constant", {}, flag}}),
       computation("fused", 3, {{5, "f", "parameter"}, {6, "g", "tuple", {5, 5}, pair}}),
       computation(
           "main", 9,
           {{7, "p", "parameter"},
            {8, "w", "while", {7}, r1_shape, calls({1, 2})},
            {9,
             "u",
             "fusion",
             {8},
             pair,
             calls({3},
                   [](WireWriter& w) {
                     w.text(11, "kInput");
                     w.message(74, wire([](WireWriter& a) {
                                 const std::int64_t one_[] = {1};
                                 a.numbers(1, one_);
                               }));
                   })},
            {10, "e", "get-tuple-element", {9}, r1_shape, [](WireWriter& w) { w.number(13, 1); }},
            {11,
             "k",
             "custom-call",
             {10},
             r1_shape,
             [](WireWriter& w) {
               const std::int64_t before[] = {8};
               w.number(65, 1), w.text(28, "f"), w.numbers(37, before);
             }},
            {12, "r", "call", {11}, r1_shape, calls({1})}})},
      9));
  CHECK(m.name == "m");
  CHECK(m[m.entry].name == "main");
  const auto named = [&](std::string_view name) -> const Instruction& {
    return *std::ranges::find(m.instructions, name, &Instruction::name);
  };
  CHECK(m[m.called(named("w"))[0]].name == "body");
  CHECK(m[m.called(named("w"))[1]].name == "condition");
  CHECK(named("u").fusion_kind == FusionKind::input);
  CHECK(m[m.called(named("u"))[0]].is_fusion);
  CHECK_FALSE(m.computations[0].is_fusion);
  REQUIRE(m.aliases(named("u")).size() == 1);
  CHECK(m.aliases(named("u"))[0].output_node == 2);
  CHECK(named("e").number == 1);
  CHECK(named("k").has_side_effect);
  CHECK(m[m.controls(named("k"))[0]].name == "w");
  CHECK(m.attribute(named("k"), "custom_call_target") == "\"f\"");
}

TEST_CASE(
    "proto_reader: an async computation of parameters and one operation is a wrapper, another is "
    "not (B.5)") {
  const std::string started = wire([](WireWriter& w) {
    w.number(2, 13),
        w.message(4, wire([](WireWriter& t) { t.number(2, 13), t.message(4, r1_shape); })),
        w.message(4, r1_shape);
  });
  const auto build = [&](const std::vector<Ins>& wrapped) {
    const auto called = [](WireWriter& w) {
      const std::int64_t ids[] = {1};
      w.numbers(38, ids), w.text(79, "side");
    };
    return module_of(
        {computation("wrapped", 1, wrapped),
         computation(
             "main", 2,
             {{11, "p", "parameter"},
              {12, "s", "async-start", {11}, started, called},
              {13, "d", "async-done", {12}, r1_shape, [](WireWriter& w) { w.text(79, "side"); }}})},
        2);
  };
  const Module sugared = good(build({p, {2, "n", "sine", {1}}}));
  CHECK(sugared.computations[0].is_async_wrapper);
  CHECK_FALSE(sugared.computations[1].is_async_wrapper);
  CHECK(attribute(sugared, 3, "async_execution_thread") == "\"side\"");
  REQUIRE(sugared.called(sugared.instructions[4]).size() == 1);  // the done repeats its start's
  CHECK_FALSE(good(build({p, {2, "n", "sine", {1}}, {3, "m", "abs", {2}}}))
                  .computations[0]
                  .is_async_wrapper);
}

TEST_CASE("proto_reader: alias and donor tables are read and checked (N, case 23)") {
  const auto with_kind = [](std::int64_t kind, std::int64_t parameter = 0,
                            std::int64_t index = -1) {
    return one({p, {2, "n", "negate", {1}}}, [=](WireWriter& m) {
      m.message(8, wire([=](WireWriter& t) {
                  t.message(1, wire([=](WireWriter& e) {
                              const std::int64_t path[] = {index};
                              if (index >= 0) e.numbers(1, path);
                              e.number(2, parameter), e.number(4, kind);
                            }));
                }));
    });
  };
  const Module m = good(with_kind(2));
  REQUIRE(m.parameter_aliases.size() == 1);
  CHECK(m.parameter_aliases[0].must);
  CHECK_FALSE(good(with_kind(1)).parameter_aliases[0].must);
  CHECK(error_of(with_kind(0)).code == Errc::corrupt);
  CHECK(error_of(with_kind(1, 3)).code == Errc::corrupt);
  CHECK(error_of(with_kind(1, -1)).code == Errc::corrupt);
  CHECK(error_of(with_kind(1, 0, 4)).code == Errc::corrupt);
  const auto twice = [](std::uint32_t table) {
    return one({p, {2, "n", "negate", {1}}}, [=](WireWriter& w) {
      const std::string alias = wire([](WireWriter& e) { e.number(4, 1); });
      w.message(8, wire([&](WireWriter& t) {
                  t.message(1, alias);
                  if (table == 8) t.message(1, alias);
                }));
      if (table == 18) w.message(18, wire([](WireWriter& t) { t.message(1, ""sv); }));
    });
  };
  CHECK(error_of(twice(8)).code == Errc::corrupt);
  CHECK(error_of(twice(18)).code == Errc::corrupt);
  const Module donor = good(one({p, {2, "n", "negate", {1}}}, [](WireWriter& w) {
    w.message(18, wire([](WireWriter& t) { t.message(1, ""sv); }));
  }));
  REQUIRE(donor.donors.size() == 1);
}

TEST_CASE("proto_reader: what no program may hold is an error with a place (H.1-H.7)") {
  const std::string huge = wire([](WireWriter& w) {
    const std::int64_t dims[] = {std::int64_t{1} << 40, std::int64_t{1} << 40}, order[] = {1, 0};
    w.number(2, 11), w.numbers(3, dims),
        w.message(5, wire([&](WireWriter& l) { l.numbers(1, order); }));
  });
  const auto shape = [](std::int64_t type, std::vector<std::int64_t> dims,
                        std::vector<std::int64_t> order) {
    return wire([&](WireWriter& w) {
      w.number(2, type), w.numbers(3, dims),
          w.message(5, wire([&](WireWriter& l) { l.numbers(1, order); }));
    });
  };
  const auto fuse = [](WireWriter& w) {
    const std::int64_t called[] = {1};
    w.text(11, "kLoop"), w.numbers(38, called);
  };
  const auto may_alias = [](WireWriter& m) {
    m.message(8, wire([](WireWriter& t) { t.message(1, "\x20\x01"sv); }));
  };
  const std::string scalar = shape(11, {}, {});
  WireWriter no_shape;
  no_shape.text(1, "main"), no_shape.message(2, "\x0a\x01p\x12\x09parameter\x98\x02\x01"sv),
      no_shape.number(5, 1), no_shape.number(6, 1);
  const std::pair<std::string_view, std::string> bad[] = {
      {"no such operand", one({p, {2, "n", "negate", {5}}})},
      {"operand after its user", one({{2, "n", "negate", {1}}, p})},
      {"own operand", one({p, {2, "n", "negate", {2}}})},
      {"root that is not there", module_of({computation("main", 1, {p}, 4)}, 1)},
      {"entry that is not there", module_of({computation("main", 1, {p})}, 2)},
      {"id twice", one({p, {1, "n", "negate", {1}}})},
      {"name twice", one({p, {2, "p", "negate", {1}}})},
      {"computation id twice", module_of({computation("a", 1, {p}), computation("b", 1, {p})}, 1)},
      {"computation name twice",
       module_of({computation("a", 1, {p}), computation("a", 2, {p})}, 1)},
      {"parameter numbers with a gap",
       one({{1, "p", "parameter", {}, r1_shape, [](WireWriter& w) { w.number(9, 2); }}})},
      {"negative parameter number",
       one({{1, "p", "parameter", {}, r1_shape, [](WireWriter& w) { w.number(9, -1); }}})},
      {"empty computation", module_of({WireWriter{}}, 1)},
      {"callee after its caller", one({p,
                                       {2,
                                        "c",
                                        "call",
                                        {1},
                                        r1_shape,
                                        [](WireWriter& w) {
                                          const std::int64_t self[] = {1};
                                          w.numbers(38, self);
                                        }}})},
      {"tuple index out of range", one({p, {2, "g", "get-tuple-element", {1}}})},
      {"negative dimension", one({{1, "p", "parameter", {}, shape(11, {-4}, {0})}})},
      {"too many elements", one({{1, "p", "parameter", {}, huge}})},
      {"layout of another rank", one({{1, "p", "parameter", {}, shape(11, {4, 4}, {0})}})},
      {"layout with a dimension twice",
       one({{1, "p", "parameter", {}, shape(11, {4, 4}, {1, 1})}})},
      {"65 dimensions",
       one({{1, "p", "parameter", {}, shape(11, std::vector<std::int64_t>(65, 1), {})}})},
      {"unknown element type", one({{1, "p", "parameter", {}, shape(99, {}, {})}})},
      {"no shape", module_of({no_shape}, 1)},
      {"opcode that is no word", one({p, {2, "n", "neg ate", {1}}})},
      {"async-done of no start", one({p, {2, "d", "async-done", {1}}})},
      {"fusion computation with two callers",
       module_of({computation("f", 1, {p}), computation("main", 2,
                                                        {{2, "a", "parameter"},
                                                         {3, "b", "fusion", {2}, r1_shape, fuse},
                                                         {4, "c", "fusion", {3}, r1_shape, fuse}})},
                 2)},
      {"alias of 16 with 4 bytes",
       module_of({computation("main", 1, {p, {2, "k", "constant", {}, scalar}})}, 1, may_alias)},
      {"reshape to another count", one({p, {2, "r", "reshape", {1}, shape(11, {5}, {0})}})},
  };
  for (const auto& [name, bytes] : bad) {
    const std::string_view what = name;
    CAPTURE(what);
    const Error e = error_of(bytes);
    CHECK(status_kind(e) != StatusKind::ok);
    CHECK((e.code == Errc::corrupt || e.code == Errc::over_budget));
    CHECK(e.at_kind == AtKind::byte_offset);
    CHECK(e.at <= bytes.size());
    CHECK(e.stage == Stage::parse);
  }
  CHECK(holdfast::testing::says(error_of(bad[std::size(bad) - 2].second),
                                "(requested 4, available 16)"));  // both sizes (case 23, m20)
}

TEST_CASE("proto_reader: an unknown opcode is carried as an opaque operation (F.1)") {
  const Module m = good(one({p, {2, "n", "frobnicate", {1}}, {3, "o", "frobnicate", {2}}}));
  CHECK(static_cast<std::size_t>(m.instructions[1].opcode) == opcode_count);
  CHECK(m.opcode_word_of(m.instructions[2]) == "frobnicate");
  CHECK(m.opcode_words.size() == 1);
}

TEST_CASE("proto_reader: limits on bytes, instructions and depth are kept (K, I.3)") {
  const std::string file = one({p, {2, "n", "negate", {1}}});
  ProtoOptions options;
  options.limits.bytes = file.size() - 1;
  CHECK(error_of(file, options).code == Errc::over_budget);
  options = {};
  options.limits.instructions = 1;
  CHECK(error_of(file, options).code == Errc::over_budget);
  const auto nested = [](int depth) {
    std::string shape(r1_shape);
    for (int i = 0; i < depth; ++i)
      shape = wire([&](WireWriter& w) { w.number(2, 13), w.message(4, shape); });
    return one({{1, "p", "parameter", {}, shape}}, nullptr, shape);
  };
  options = {};
  options.limits.depth = 10;
  CHECK(error_of(nested(9), options).ok());
  CHECK(error_of(nested(10), options).code == Errc::corrupt);
  CHECK(error_of(nested(100)).ok());
  CHECK(holdfast::testing::says(error_of(nested(250)), "depth limit"));
}

TEST_CASE("proto_reader: the proto's own instruction ids are given to who asks") {
  std::vector<std::int64_t> ids;
  good(one({{10, "p", "parameter"}, {25, "n", "negate", {10}}}), {.instruction_ids = &ids});
  CHECK(ids == std::vector<std::int64_t>{10, 25});
}

TEST_CASE("proto_reader: every attribute of HLO gets the text that XLA prints (E, G)") {
  const std::string pb = read_file(holdfast::testing::data_path("hlo/attributes.pb"));
  const std::string text = read_file(holdfast::testing::data_path("hlo/attributes.hlo"));
  const Module from_proto = good(pb);
  const Result<Module> from_text = parse_hlo_text(text);
  REQUIRE(from_text.ok());
  CHECK(difference(from_proto, *from_text) == "");
  for (const Attribute& a : from_text->header_attributes)
    CHECK(std::ranges::any_of(from_proto.header_attributes, [&](const Attribute& b) {
      return a.key == b.key && a.value == b.value;
    }));
}

TEST_CASE(
    "proto_reader: the protos of the corpus equal the texts beside them, frames and constants "
    "included (R.9)") {
  if (shared_path("data/hlo/index.json").empty()) return;
  for (const std::string_view name :
       {"decode_kv_cache", "fft_navier_stokes", "gpu_host_offload_optimizer", "gpu_mlp_train_sgd",
        "gpu_spmd_mlp_dp", "linalg_customcalls", "mlp_fwd_nodonate", "mlp_train_sgd",
        "quant_int4_fp8", "spmd_mlp_dp", "switch_experts"}) {
    CAPTURE(name);
    const Pair files = corpus(name);
    const Module from_proto = good(files.pb);
    const Result<Module> from_text = parse_hlo_text(files.text);
    REQUIRE(from_text.ok());
    CHECK(difference(from_proto, *from_text) == "");
    CHECK(from_proto.num_partitions == from_text->num_partitions);
    CHECK(from_proto.replica_count == from_text->replica_count);
    CHECK(from_proto.header_attributes[0].value ==
          from_text->header_attributes[0].value);  // entry_computation_layout
  }
}

TEST_CASE("proto_reader: proto to module to text to module is the identity (R.9)") {
  std::vector<std::pair<std::string, std::string>> files{
      {"attributes", read_file(holdfast::testing::data_path("hlo/attributes.pb"))}};
  if (!shared_path("data/hlo/index.json").empty())
    for (const std::string name : {"decode_kv_cache", "gpu_host_offload_optimizer",
                                   "gpu_spmd_mlp_dp", "linalg_customcalls", "switch_experts"})
      files.emplace_back(name, corpus(name).pb);
  for (const auto& [name, bytes] : files) {
    const std::string& which = name;
    CAPTURE(which);
    const Module m = good(bytes);
    holdfast::testing::StringSink out;
    REQUIRE(print_hlo_text(m, out).ok());
    const Result<Module> again = parse_hlo_text(out.text);
    REQUIRE_MESSAGE(again.ok(), (again.ok() ? "" : again.error().what));
    CHECK(difference(m, *again) == "");
  }
}

TEST_CASE("proto_reader: case 16, each file gets its verdict") {
  const std::string folder = shared_path("cases/16-hlo-proto-reader");
  if (folder.empty()) return;
  const std::string text = read_file(folder + "/good.hlo");
  const Result<Module> expected = parse_hlo_text(text);
  REQUIRE(expected.ok());
  for (const std::string_view name : {"good.pb", "unknown_field_ok.pb"}) {
    const std::string pb = read_file(folder + "/" + std::string(name));
    CHECK(difference(good(pb), *expected) == "");
  }
  for (const std::string_view name : {"cut_half.pb", "cut_last_byte.pb", "empty.pb", "len_bomb.pb",
                                      "varint_11_bytes.pb", "deep_shape.pb", "big_id.pb"}) {
    CAPTURE(name);
    const std::string pb = read_file(folder + "/" + std::string(name));
    holdfast::testing::AllocationPeak peak;
    const auto start = std::chrono::steady_clock::now();
    const Error e = error_of(pb);
    CHECK(status_kind(e) == StatusKind::invalid_argument);
    CHECK(e.at_kind == AtKind::byte_offset);
    CHECK(peak.largest() < 1 << 20);
    CHECK(peak.live() < 1 << 20);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::milliseconds(100));
  }
  CHECK(holdfast::testing::says(error_of(""), "no entry computation"));
  const std::string deep = read_file(folder + "/deep_shape.pb");
  CHECK(holdfast::testing::says(error_of(deep), "depth limit"));
}

TEST_CASE(
    "proto_reader: case 16, five prefixes of good.pb are modules, all others are refused (R.8)") {
  const std::string path = shared_path("cases/16-hlo-proto-reader/good.pb");
  if (path.empty()) return;
  const std::string pb = read_file(path);
  const Module whole = good(pb);
  std::vector<std::size_t> accepted;
  for (std::size_t n = 0; n < pb.size(); ++n) {
    const std::string cut =
        pb.substr(0, n);  // a copy, so that a read past the end is one past the allocation
    const Result<Module> m = parse_hlo_proto(cut);
    if (!m.ok()) {
      CHECK(status_kind(m.error()) == StatusKind::invalid_argument);
      continue;
    }
    accepted.push_back(n);
    CAPTURE(n);
    CHECK(inconsistency(*m) == nullptr);
    if (n == 464 || n == 467) CHECK(difference(*m, whole) == "");
  }
  std::string list;
  for (const std::size_t n : accepted) list += std::to_string(n) + " ";
  CHECK(list == "421 423 458 464 467 ");
}

TEST_CASE(
    "proto_reader: case 16, every flipped bit gives an error or a consistent module within 1 MiB") {
  const std::string path = shared_path("cases/16-hlo-proto-reader/good.pb");
  if (path.empty()) return;
  std::string pb = read_file(path);
  int accepted = 0;
  for (std::size_t bit = 0; bit < pb.size() * 8; ++bit) {
    const char keep = pb[bit / 8];
    pb[bit / 8] = static_cast<char>(static_cast<unsigned char>(keep) ^ (1u << (bit % 8)));
    {
      holdfast::testing::AllocationPeak peak;
      const Result<Module> m = parse_hlo_proto(pb);
      const bool small = peak.largest() < 1 << 20 && peak.highest() < 1 << 20;
      if (!small) FAIL_CHECK("bit " << bit << " takes " << peak.highest() << " bytes");
      if (m.ok()) {
        ++accepted;
        if (const char* wrong = inconsistency(*m)) FAIL_CHECK("bit " << bit << ": " << wrong);
      } else if (status_kind(m.error()) != StatusKind::invalid_argument) {
        FAIL_CHECK("bit " << bit << ": " << m.error().what);
      }
    }
    pb[bit / 8] = keep;
  }
  MESSAGE(accepted << " of " << pb.size() * 8 << " variants accepted");
  CHECK(accepted > 500);
  CHECK(accepted < 2000);
}

TEST_CASE("proto_reader: names that are no HLO names are made so, as XLA does") {
  const Module m = good(one({{1, "p q", "parameter"}, {2, "1\xc3\xa9", "negate", {1}}}));
  CHECK(m.instructions[0].name == "p_q");
  CHECK(m.instructions[1].name == "___");
}

TEST_CASE("proto_reader: files of nothing but tiny parts take at most 64 times their size (I.5)") {
  const auto repeated = [](std::uint32_t field, std::string_view part, int count) {
    return wire([&](WireWriter& w) {
      for (int i = 0; i < count; ++i) w.message(field, part);
    });
  };
  const auto module_with = [&](std::uint32_t field, const std::string& message) {
    return one({p, {2, "n", "negate", {1}}}, [&](WireWriter& m) { m.message(field, message); });
  };
  const auto instruction_with = [&](std::string_view opcode, const std::string& raw) {
    return one({p, {2, "n", opcode, {1}, r1_shape, [&](WireWriter& w) { w.raw(raw); }}});
  };
  constexpr int many = 100'000;
  const std::pair<std::string_view, std::string> files[] = {
      {"instructions", module_of({WireWriter{}}, 1) + repeated(3, repeated(2, "", many), 1)},
      {"computations", repeated(3, "", many)},
      {"small instructions", module_of({}, 1) + repeated(3,
                                                         repeated(2,
                                                                  "\x0a\x01z\x12\x03"sv
                                                                  "abs\x1a\x00"sv,
                                                                  many),
                                                         1)},
      {"file locations", module_with(17, repeated(3, "", many))},
      {"stack frames", module_with(17, repeated(4, "", many))},
      {"operands", instruction_with("tuple", wire([](WireWriter& w) {
                                      w.numbers(36, std::vector<std::int64_t>(many, 1));
                                    }))},
      {"controls", instruction_with("abs", wire([](WireWriter& w) {
                                      w.numbers(37, std::vector<std::int64_t>(many, 1));
                                    }))},
      {"window", instruction_with("convolution", repeated(15, repeated(1, "", many), 1))},
      {"slices", instruction_with("slice", repeated(17, "", many))},
      {"sharding", instruction_with("abs", repeated(40, "\x08\x02"s + repeated(5, "", many), 1))},
      {"metadata",
       instruction_with("abs", repeated(7, repeated(2, std::string(many, '\1'), 1), 1))},
      {"tuple shape",
       one({{1, "p", "parameter", {}, "\x10\x0d"s + repeated(4, "\x10\x0b", many)}})},
      {"schedule", module_with(7, repeated(1, repeated(2, "", 1), many))},
      {"payloads", repeated(22, "", many)},
      {"aliases", module_with(8, repeated(1, "\x20\x01", many))},
  };
  for (const auto& [name, bytes] : files) {
    const std::string_view what = name;
    CAPTURE(what);
    const holdfast::testing::AllocationPeak peak;
    const Result<Module> m = parse_hlo_proto(bytes);
    const double factor = static_cast<double>(peak.highest()) / static_cast<double>(bytes.size());
    CAPTURE(factor);
    CHECK(factor < 64);
    if (m.ok()) CHECK(inconsistency(*m) == nullptr);
  }
}

TEST_CASE(
    "proto_reader: a hundred thousand instructions take linear time and less than three times the "
    "file (R.18)") {
  const auto read = [](std::int64_t count, double& factor) {
    std::vector<Ins> list{p};
    std::vector<std::string> names(static_cast<std::size_t>(count) + 1);
    const std::string metadata = wire([](WireWriter& w) {
      w.text(1, "add"),
          w.text(2,
                 "jit(train_step)/transpose(jvp(Transformer))/layer_12/attention/query_key_value/"
                 "add_any"),
          w.text(3, "/home/user/project/models/transformer.py"), w.number(4, 117);
    });
    for (std::int64_t i = 2; i <= count; ++i) {
      std::string& name = names[static_cast<std::size_t>(i)];
      name = "add." + std::to_string(i);
      list.push_back({i, name, "add", {i - 1, i - 1}, r1_shape, [&](WireWriter& w) {
                        w.message(7, metadata);
                      }});
    }
    const std::string bytes = one(list);
    double best = 1e9;
    for (int k = 0; k < 3; ++k) {
      holdfast::testing::AllocationPeak peak;
      const auto start = std::chrono::steady_clock::now();
      const Result<Module> m = parse_hlo_proto(bytes);
      best = std::min(
          best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      REQUIRE(m.ok());
      factor = static_cast<double>(peak.highest()) / static_cast<double>(bytes.size());
    }
    return best;
  };
  double small_factor = 0, large_factor = 0;
  const double small = read(10'000, small_factor);
  const double large = read(100'000, large_factor);
  MESSAGE("10k: " << small << " s, 100k: " << large << " s, peak " << large_factor
                  << " times the file");
  CHECK(large < 30 * small + 0.05);  // quadratic would be 100
  CHECK(large_factor < 3);
}
