// SPDX-License-Identifier: Apache-2.0
#include "holdfast/passes/memory_space_propagation.hpp"

#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "support/module_generator.hpp"
#include "support/passes.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using testing::changed_by;
using testing::find_computation;
using testing::parse;
using testing::refused_by;
using testing::shape_of;
using Pass = MemorySpacePropagation<testing::StringSink>;

namespace {

/// A text with every `A` as f32[12]{0}, `A1` as f32[12]{0:S(1)}.
std::string filled(std::string_view text) {
  std::string out;
  for (std::size_t k = 0; k < text.size(); ++k) {
    if (text[k] != '@') {
      out += text[k];
    } else if (k + 1 < text.size() && text[k + 1] >= '0' && text[k + 1] <= '9') {
      out += std::string("f32[12]{0:S(") + text[++k] + ")}";
    } else {
      out += "f32[12]{0}";
    }
  }
  return out;
}

constexpr std::string_view plain = "f32[12]{0}";
constexpr std::string_view fast = "f32[12]{0:S(1)}";

}  // namespace

TEST_CASE("memory_space_propagation: T4.1 all in the default space changes nothing") {
  const std::string text = filled(R"(HloModule m
f { p0 = @ parameter(0)
  p1 = @ parameter(1)
  ROOT r = @ add(p0, p1) }
ENTRY e { a = @ parameter(0)
  b = @ parameter(1)
  ROOT F = @ fusion(a, b), kind=kLoop, calls=f })");
  Module m = parse(text);
  CHECK(!changed_by(m, Pass{}));
}

TEST_CASE(
    "memory_space_propagation: T4.2 operand and result give their spaces to parameter and root") {
  const std::string text = filled(R"(HloModule m
f { p0 = @ parameter(0)
  p1 = @ parameter(1)
  n = @ negate(p0)
  ROOT r = @ add(n, p1) }
ENTRY e { a = @1 parameter(0)
  b = @ parameter(1)
  ROOT F = @1 fusion(a, b), kind=kLoop, calls=f })");
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  CHECK(shape_of(m, "p0") == fast);
  CHECK(shape_of(m, "p1") == plain);
  CHECK(shape_of(m, "n") == plain);
  CHECK(shape_of(m, "r") == fast);
  CHECK(shape_of(m, "F") == fast);
}

TEST_CASE(
    "memory_space_propagation: T4.3 a split config goes along, and one that is not asked for "
    "goes") {
  const std::string text = filled(R"(HloModule m
f { p0 = @ parameter(0)
  p1 = f32[12]{0:SC(0:4)} parameter(1)
  ROOT r = @ add(p0, p1) }
ENTRY e { a = f32[12]{0:S(1)SC(0:6)} parameter(0)
  b = @ parameter(1)
  ROOT F = @1 fusion(a, b), kind=kLoop, calls=f })");
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  CHECK(shape_of(m, "p0") == "f32[12]{0:S(1)SC(0:6)}");
  CHECK(shape_of(m, "p1") == plain);
  CHECK(shape_of(m, "r") == fast);
}

TEST_CASE("memory_space_propagation: T4.4 each element of a result goes to what makes it") {
  const std::string text = filled(R"(HloModule m
f { p0 = @ parameter(0)
  n0 = @ negate(p0)
  n1 = @ abs(p0)
  ROOT r = (@, @) tuple(n0, n1) }
ENTRY e { a = @ parameter(0)
  ROOT F = (@1, @) fusion(a), kind=kLoop, calls=f })");
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  CHECK(shape_of(m, "n0") == fast);
  CHECK(shape_of(m, "n1") == plain);
  CHECK(shape_of(m, "r") == "(f32[12]{0:S(1)}, f32[12]{0})");
}

TEST_CASE(
    "memory_space_propagation: T4.5 a nested fusion's parameter follows, a bitcast stops it") {
  const std::string text = filled(R"(HloModule m
inner { q = @ parameter(0)
  ROOT b = @ bitcast(q) }
outer { p = @ parameter(0)
  G = @ fusion(p), kind=kLoop, calls=inner
  ROOT r = @ negate(G) }
ENTRY e { a = @1 parameter(0)
  ROOT F = @ fusion(a), kind=kLoop, calls=outer })");
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  CHECK(shape_of(m, "p") == fast);
  CHECK(shape_of(m, "q") == fast);
  CHECK(shape_of(m, "b") == plain);
  CHECK(shape_of(m, "G") == plain);
  CHECK(shape_of(m, "r") == plain);
}

TEST_CASE("memory_space_propagation: T4.6 a nested fusion's root follows the outer root") {
  const std::string text = filled(R"(HloModule m
inner { q = @ parameter(0)
  ROOT b = @ negate(q) }
outer { p = @ parameter(0)
  n = @ negate(p)
  ROOT G = @ fusion(n), kind=kLoop, calls=inner }
ENTRY e { a = @ parameter(0)
  ROOT F = @1 fusion(a), kind=kLoop, calls=outer })");
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  CHECK(shape_of(m, "G") == fast);
  CHECK(shape_of(m, "b") == fast);
  CHECK(shape_of(m, "q") == plain);
  CHECK(shape_of(m, "n") == plain);
  CHECK(shape_of(m, "p") == plain);
}

TEST_CASE("memory_space_propagation: T4.7 a bitcast of a parameter keeps the result's space") {
  const std::string text = filled(R"(HloModule m
f { p = @ parameter(0)
  ROOT b = @ bitcast(p) }
ENTRY e { a = @1 parameter(0)
  ROOT F = @ fusion(a), kind=kLoop, calls=f })");
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  CHECK(shape_of(m, "p") == fast);
  CHECK(shape_of(m, "b") == plain);
}

TEST_CASE("memory_space_propagation: T4.8 an update's base follows, not what is written") {
  const std::string text = filled(R"(HloModule m
inner { q = @ parameter(0)
  ROOT c = @ copy(q) }
outer { p = @ parameter(0)
  u = f32[2]{0} parameter(1)
  i = s32[] parameter(2)
  G = @ fusion(p), kind=kLoop, calls=inner
  ROOT d = @ dynamic-update-slice(G, u, i) }
ENTRY e { a = @ parameter(0)
  b = f32[2]{0} parameter(1)
  i = s32[] parameter(2)
  ROOT F = @1 fusion(a, b, i), kind=kLoop, calls=outer })");
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  CHECK(shape_of(m, "d") == fast);
  CHECK(shape_of(m, "G") == fast);
  CHECK(shape_of(m, "c") == fast);
  CHECK(shape_of(m, "q") == plain);
  CHECK(shape_of(m, "p") == plain);
  CHECK(shape_of(m, "u") == "f32[2]{0}");
}

TEST_CASE("memory_space_propagation: T4.9 one computation takes its own parameters as they are") {
  const std::string text = filled(R"(HloModule m
inner { q = @ parameter(0)
  ROOT s = @ negate(q) }
outer { p = @1 parameter(0)
  n = @ abs(p)
  t = (@, @) tuple(n, p)
  g = @ get-tuple-element(t), index=1
  ROOT G = @ fusion(g), kind=kLoop, calls=inner }
ENTRY e { a = @ parameter(0)
  ROOT F = @ fusion(a), kind=kLoop, calls=outer })");
  Module m = parse(text);
  Pass pass;
  Result<bool> changed = pass.run(m, find_computation(m, "outer"));
  REQUIRE(changed.ok());
  CHECK(*changed);
  CHECK(verify_module(m).ok());
  CHECK(shape_of(m, "t") == "(f32[12]{0}, f32[12]{0:S(1)})");
  CHECK(shape_of(m, "g") == fast);
  CHECK(shape_of(m, "q") == fast);
  CHECK(shape_of(m, "s") == plain);
  CHECK(shape_of(m, "n") == plain);
  CHECK(shape_of(m, "a") == plain);
  CHECK(shape_of(m, "F") == plain);
  const Result<bool> again = pass.run(m, find_computation(m, "outer"));
  CHECK((again.ok() && !*again));
  CHECK(pass.run(m, m.entry).error().code == Errc::invalid_argument);
}

TEST_CASE("memory_space_propagation: T4.10 one computation takes its own root as it is") {
  const std::string text = filled(R"(HloModule m
f { p = @ parameter(0)
  n = @ negate(p)
  s = @ abs(p)
  ROOT t = (@1, @) tuple(n, s) }
ENTRY e { a = @ parameter(0)
  ROOT F = (@, @) fusion(a), kind=kLoop, calls=f })");
  Module m = parse(text);
  const Result<bool> changed = Pass{}.run(m, find_computation(m, "f"));
  CHECK((changed.ok() && *changed));
  CHECK(shape_of(m, "n") == fast);
  CHECK(shape_of(m, "s") == plain);
  CHECK(shape_of(m, "F") == "(f32[12]{0}, f32[12]{0})");
}

TEST_CASE(
    "memory_space_propagation: T4.11 of two wishes for one value the last wins, and it says so") {
  const std::string text = filled(R"(HloModule m
f { p = @ parameter(0)
  ROOT t = (@, @) tuple(p, p) }
ENTRY e { a = @ parameter(0)
  ROOT F = (@1, @) fusion(a), kind=kLoop, calls=f })");
  Module m = parse(text);
  Pass pass;
  CHECK(!changed_by(m, pass));
  CHECK(shape_of(m, "p") == plain);
  CHECK(pass.diagnostics.text.starts_with("fusion F: F is in memory space 1, t inside in 0\n"));

  std::string other = text;
  const std::size_t at = other.find("({0:S(1)}, {0})");
  CHECK(at == std::string::npos);
  other.replace(other.find("(f32[12]{0:S(1)}, f32[12]{0})"), 29, "(f32[12]{0}, f32[12]{0:S(1)})");
  Module n = parse(other);
  Pass second;
  CHECK(changed_by(n, second));
  CHECK(shape_of(n, "p") == fast);
  CHECK(shape_of(n, "t") == "(f32[12]{0:S(1)}, f32[12]{0:S(1)})");
  CHECK(
      second.diagnostics.text.starts_with("fusion F: a is in memory space 0, p inside in 1\n"
                                          "fusion F: F is in memory space 0, t inside in 1\n"));
}

TEST_CASE(
    "memory_space_propagation: T4.12 only chosen threads, and a call's root but not its "
    "parameter") {
  const std::string text = filled(R"(HloModule m
called { x = @ parameter(0)
  ROOT y = @ negate(x) }
f { p = @ parameter(0)
  n = @ abs(p)
  ROOT c = @ call(n), to_apply=called }
side { a = @ parameter(0)
  ROOT F = @1 fusion(a), kind=kLoop, calls=f }, execution_thread="other"
ENTRY e { o = @ parameter(0)
  s = ((@), @1, u32[]) async-start(o), async_execution_thread="other", calls=side
  ROOT d = @1 async-done(s) })");
  Module m = parse(text);
  constexpr std::string_view main_thread[] = {"main"};
  CHECK(!changed_by(m, Pass{main_thread}));
  constexpr std::string_view both[] = {"main", "other"};
  CHECK(changed_by(m, Pass{both}));
  CHECK(shape_of(m, "c") == fast);
  CHECK(shape_of(m, "y") == fast);
  CHECK(shape_of(m, "x") == plain);
  CHECK(shape_of(m, "n") == plain);
  Module all = parse(text);
  CHECK(changed_by(all, Pass{}));
  CHECK(testing::print(all) == testing::print(m));
}

TEST_CASE("memory_space_propagation: tokens, nested tuples and loops inside a fusion") {
  const std::string text = filled(R"(HloModule m
cond { s = (s32[], (@, @)) parameter(0)
  ROOT c = pred[] constant(false) }
body { s = (s32[], (@, @)) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = (@, @) get-tuple-element(s), index=1
  v0 = @ get-tuple-element(v), index=0
  v1 = @ get-tuple-element(v), index=1
  n0 = @ negate(v0)
  w = (@, @) tuple(n0, v1)
  ROOT r = (s32[], (@, @)) tuple(i, w) }
f { p = (s32[], (@, @)) parameter(0)
  ROOT l = (s32[], (@, @)) while(p), condition=cond, body=body }
ENTRY e { a = (s32[], (@1, @)) parameter(0)
  ROOT F = (s32[], (@1, @)) fusion(a), kind=kLoop, calls=f })");
  Module m = parse(text);
  CHECK(changed_by(m, Pass{}));
  for (const std::string_view name : {"p", "l", "r"})
    CHECK(shape_of(m, name) == "(s32[], (f32[12]{0:S(1)}, f32[12]{0}))");
  CHECK(shape_of(m, "n0") == fast);
  CHECK(shape_of(m, "v0") == fast);
  CHECK(shape_of(m, "v1") == plain);
  CHECK(shape_of(m, "w") == "(f32[12]{0:S(1)}, f32[12]{0})");
}

TEST_CASE("memory_space_propagation: cases/17 into nested fusions and through updates in place") {
  const std::string folder = testing::shared_path("cases/17-memory-space-propagation");
  if (folder.empty()) return;
  const std::string in = testing::read_file(folder + "/in.hlo");
  const std::string expected = testing::read_file(folder + "/expected.hlo");
  Module wanted = parse(expected);
  CHECK(!changed_by(wanted, Pass{}));
  Module m = parse(in);
  Pass pass;
  CHECK(changed_by(m, pass));
  CHECK(pass.diagnostics.text == "");
  CHECK(testing::print(m) == testing::print(wanted));

  SUBCASE("row in S(1) changes op1 in addition, and nothing else") {
    std::string text = in;
    text.replace(text.find("%row = f32[1,16]{1,0}"), 21, "%row = f32[1,16]{1,0:S(1)}");
    Module other = parse(text);
    CHECK(changed_by(other, Pass{}));
    CHECK(shape_of(other, "op1") == "f32[1,16]{1,0:S(1)}");
    for (const std::string_view name : {"oneg", "ip1"})
      CHECK(shape_of(other, name) == "f32[1,16]{1,0}");
    for (const std::string_view name : {"op0", "onest", "ip0", "idus"})
      CHECK(shape_of(other, name) == "f32[8,16]{1,0:S(5)}");
  }
  SUBCASE("without S(5) on acc the base is elsewhere than the result: an error, nothing changes") {
    std::string text = in;
    text.replace(text.find("%acc = f32[8,16]{1,0:S(5)}"), 26, "%acc = f32[8,16]{1,0}");
    Module other = parse(text);
    Pass failing;
    const Error e = refused_by(other, failing);
    CHECK(status_kind(e) == StatusKind::invalid_argument);
    CHECK(text.substr(e.at, 6) == "%f = f");
    CHECK(failing.diagnostics.text == "fusion f: acc is in memory space 0, op0 inside in 5\n");
  }
}

TEST_CASE("memory_space_propagation: many wishes for one value cost little or are refused") {
  std::string body = "HloModule m\nf { p = f32[]{:S(1)} parameter(0)\n ROOT t = (";
  std::string shape = "(", uses;
  constexpr int count = 20000;
  for (int k = 0; k < count; ++k) {
    shape += k % 2 == 0 ? "f32[]" : "f32[]{:S(1)}";
    shape += k + 1 < count ? ", " : ")";
    uses += k + 1 < count ? "p, " : "p";
  }
  body = "HloModule m\nf { p = f32[] parameter(0)\n ROOT t = " + shape + " tuple(" + uses +
         ") }\nENTRY e { a = f32[] parameter(0)\n ROOT F = " + shape +
         " fusion(a), kind=kLoop, calls=f }";
  Module m = parse(body);
  const Result<bool> changed = Pass{}.run(m);
  CHECK((changed.ok() && *changed));
  CHECK(shape_of(m, "p") == "f32[]{:S(1)}");
}

namespace {

/// Nested fusions of what moves values about, all in space 0; only the entry has spaces.
class FusionGenerator {
 public:
  explicit FusionGenerator(std::uint64_t seed) : random_(seed) {}

  Module operator()() {
    Module& m = b_.module;
    m.name = "fusions";
    const ComputationId f = fused(0);
    b_.open("main");
    std::vector<InstructionId> operands;
    for (const InstructionId p : m.parameters_of(f)) {
      ShapeId shape = m[p].shape;
      if (m.shapes[shape].type == ElementType::f32) shape = spaced(shape);
      operands.push_back(b_.parameter(shape));
    }
    ShapeId result = m[m[f].root].shape;
    result = *map_leaves(m.shapes, result, [&](std::uint32_t, ShapeId leaf) -> Result<ShapeId> {
      return spaced(leaf);
    });
    m.entry = b_.close(fusion(result, operands, f));
    return std::move(m);
  }

 private:
  std::size_t pick(std::size_t below) { return static_cast<std::size_t>(random_() % below); }
  ShapeId spaced(ShapeId shape) {
    constexpr MemorySpace spaces[] = {MemorySpace::device, MemorySpace::fast, MemorySpace::host};
    return *with_space(b_.module.shapes, shape, spaces[pick(3)]);
  }
  InstructionId fusion(ShapeId shape, const std::vector<InstructionId>& operands, ComputationId f) {
    b_.module[f].is_fusion = true;
    const InstructionId id = b_.add(Opcode::fusion, shape, operands, {}, {f});
    b_.module[id].fusion_kind = FusionKind::loop;
    return id;
  }
  ComputationId fused(int depth) {
    Module& m = b_.module;
    b_.open("fused." + std::to_string(count_++));
    const ShapeId array = b_.array(ElementType::f32, {12}), slice = b_.array(ElementType::f32, {2}),
                  index = b_.scalar(ElementType::s32);
    std::vector<InstructionId> arrays, slices;
    for (std::size_t k = 1 + pick(2); k-- > 0;) arrays.push_back(b_.parameter(array));
    slices.push_back(b_.parameter(slice));
    const InstructionId at = b_.parameter(index);
    const auto any = [&] { return arrays[pick(arrays.size())]; };
    for (std::size_t step = 2 + pick(5); step-- > 0;) switch (pick(8)) {
        case 0:
          arrays.push_back(b_.add(Opcode::negate, array, {any()}));
          break;
        case 1:
          arrays.push_back(b_.add(Opcode::bitcast, array, {any()}));
          break;
        case 2:
          arrays.push_back(b_.add(Opcode::copy, array, {any()}));
          break;
        case 3:
          arrays.push_back(b_.add(Opcode::opt_barrier, array, {any()}));
          break;
        case 4:
        case 5:
          arrays.push_back(b_.add(Opcode::dynamic_update_slice, array, {any(), slices[0], at}));
          break;
        case 6: {
          const InstructionId t = b_.make_tuple({any(), any()});
          arrays.push_back(b_.element(t, static_cast<std::uint32_t>(pick(2))));
          break;
        }
        default: {
          if (depth == 3) break;
          const ComputationId f = fused(depth + 1);
          std::vector<InstructionId> operands;
          for (const InstructionId p : m.parameters_of(f)) {
            const ShapeId s = m[p].shape;
            operands.push_back(s == array ? any() : s == slice ? slices[0] : at);
          }
          const InstructionId r = fusion(m[m[f].root].shape, operands, f);
          if (m.shapes.is_tuple(m[r].shape))
            arrays.push_back(b_.element(r, 0));
          else
            arrays.push_back(r);
        }
      }
    return b_.close(pick(2) == 0             ? b_.make_tuple({any(), any()})
                    : b_.list().back() == at ? any()
                                             : arrays.back());
  }

  std::mt19937_64 random_;
  testing::ModuleBuilder b_;
  int count_ = 0;
};

/// passes.md 4.1 word by word, slow: spaces only, of fusions, tuples, barriers and updates.
class SlowPropagation {
 public:
  explicit SlowPropagation(const Module& m) : m_(m) {
    for (const Instruction& i : m.instructions) {
      auto& mine = spaces.emplace_back();
      for (std::uint32_t n = 0; n < m.shapes.node_count(i.shape); ++n)
        mine.push_back(m.shapes.space(m.shapes.node(i.shape, n)));
    }
  }
  std::vector<std::vector<MemorySpace>> spaces;  // by instruction and node

  void run() {
    for (const InstructionId id : m_.instructions_of(m_.entry)) {
      const Instruction& f = m_[id];
      if (f.opcode != Opcode::fusion) continue;
      const ComputationId inside = m_.called(f)[0];
      for (std::size_t k = 0; k < f.operands.count; ++k)
        start(m_.parameters_of(inside)[k], 0, spaces[index_of(m_.operands(f)[k])][0]);
      for (std::uint32_t n = 0; n < m_.shapes.node_count(f.shape); ++n)
        if (!m_.shapes.is_tuple(m_.shapes.node(f.shape, n)))
          start(m_[inside].root, n, spaces[index_of(id)][n]);
    }
  }

 private:
  using Position = std::pair<InstructionId, std::uint32_t>;
  Position definer(InstructionId q, std::uint32_t n) const {
    const Instruction& i = m_[q];
    const auto o = m_.operands(i);
    if (i.opcode == Opcode::opt_barrier) return definer(o[0], n);
    if (i.opcode == Opcode::tuple && n > 0) return definer(o[n - 1], 0);  // of arrays
    if (i.opcode == Opcode::get_tuple_element) return definer(o[0], i.number + 1);
    return {q, n};
  }
  void start(InstructionId q, std::uint32_t n, MemorySpace space) {
    visited_.clear();
    push(q, n, space);
  }
  void push(InstructionId from, std::uint32_t node, MemorySpace space) {
    const Position v = definer(from, node);
    if (!visited_.insert(v).second) return;
    const ComputationId c = m_[from].computation;
    const InstructionId caller = caller_of(c);
    for (const InstructionId q : m_.instructions_of(c)) {
      const Instruction& i = m_[q];
      for (std::uint32_t n = 0; n < m_.shapes.node_count(i.shape); ++n) {
        if (definer(q, n) != v) continue;
        spaces[index_of(q)][n] = space;
        if (i.opcode == Opcode::dynamic_update_slice) push(m_.operands(i)[0], n, space);
        if (i.opcode == Opcode::fusion) push(m_[m_.called(i)[0]].root, n, space);
        if (!m_[m_[caller].computation].is_fusion) continue;
        if (q == m_[c].root) push(caller, n, space);
        if (i.opcode == Opcode::parameter) push(m_.operands(m_[caller])[i.number], n, space);
      }
      if (i.opcode == Opcode::fusion)
        for (std::size_t k = 0; k < i.operands.count; ++k)
          if (definer(m_.operands(i)[k], 0) == v)
            push(m_.parameters_of(m_.called(i)[0])[k], 0, space);
    }
  }
  InstructionId caller_of(ComputationId c) const {
    for (std::size_t k = 0; k < m_.instructions.size(); ++k)
      if (m_.instructions[k].opcode == Opcode::fusion && m_.called(m_.instructions[k])[0] == c)
        return static_cast<InstructionId>(k);
    return {};
  }
  const Module& m_;
  std::set<Position> visited_;
};

}  // namespace

TEST_CASE(
    "memory_space_propagation: random nested fusions get what the specification says word by "
    "word") {
  int changed = 0, refused = 0, conflicts = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    Module m = FusionGenerator(seed)();
    const Error before = verify_module(m);
    REQUIRE_MESSAGE(before.ok(), testing::sentence(before));
    SlowPropagation slow(m);
    slow.run();
    Pass pass;
    const std::string text = testing::print(m);
    const Result<bool> r = run_verified(m, pass);
    if (!r.ok()) {
      ++refused;
      CHECK(r.error().code == Errc::invalid_argument);
      CHECK(!pass.diagnostics.text.empty());
      CHECK(testing::print(m) == text);
      continue;
    }
    changed += *r;
    conflicts += !pass.diagnostics.text.empty();
    CHECK(*r == (testing::print(m) != text));
    for (std::size_t k = 0; k < m.instructions.size(); ++k)
      for (std::uint32_t n = 0; n < slow.spaces[k].size(); ++n)
        CHECK(m.shapes.space(m.shapes.node(m.instructions[k].shape, n)) == slow.spaces[k][n]);
    if (!pass.diagnostics.text.empty()) continue;
    // Outside and inside agree everywhere.
    for (const Instruction& f : m.instructions) {
      if (f.opcode != Opcode::fusion) continue;
      const ComputationId inside = m.called(f)[0];
      CHECK(f.shape == m[m[inside].root].shape);
      for (std::size_t k = 0; k < f.operands.count; ++k)
        CHECK(m[m.operands(f)[k]].shape == m[m.parameters_of(inside)[k]].shape);
    }
  }
  CHECK(changed > 1000);
  CHECK(refused > 100);
  CHECK(conflicts > 100);
}

TEST_CASE("memory_space_propagation: generated modules, whose fusions agree, stay as they are") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Module m = testing::ModuleGenerator(seed)();
    CHECK(!changed_by(m, Pass{}));
  }
}

namespace {

constexpr std::string_view small = R"(HloModule m
f { p0 = f32[12]{0} parameter(0)
  ROOT r = f32[12]{0} negate(p0) }
ENTRY e { a = f32[12]{0:S(1)} parameter(0)
  ROOT F = f32[12]{0:S(5)} fusion(a), kind=kLoop, calls=f })";

constexpr bool spreads_in_a_constant_expression() {
  Result<Module> m = parse_hlo_text(small);
  MemorySpacePropagation<> pass;
  const Result<bool> changed = run_verified(*m, pass);
  return changed.ok() && *changed &&
         m->shapes.space(m->instructions[0].shape) == MemorySpace::fast &&
         m->shapes.space(m->instructions[1].shape) == MemorySpace::host;
}
static_assert(spreads_in_a_constant_expression());

}  // namespace
