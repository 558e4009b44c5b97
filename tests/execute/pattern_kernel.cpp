// SPDX-License-Identifier: Apache-2.0
#include "holdfast/execute/pattern_kernel.hpp"

#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "execute/planned_text.hpp"
#include "holdfast/event/host_event.hpp"

using namespace holdfast;
using holdfast::testing::CheckedRun;
using holdfast::testing::PlannedText;

namespace {

// Custom calls share nothing, so every value has bytes of its own.
constexpr std::string_view chain = R"(
HloModule chain, is_scheduled=true
ENTRY e {
  p = f32[64] parameter(0)
  a = f32[64] custom-call(p), custom_call_target="C"
  b = f32[64] custom-call(a), custom_call_target="C"
  c = f32[64] custom-call(a, b), custom_call_target="C"
  d = f32[64] custom-call(b, c), custom_call_target="C"
  ROOT r = f32[64] custom-call(c, d), custom_call_target="C"
})";

// The body swaps what it carries: copies through a spare place.
constexpr std::string_view swap = R"(
HloModule swap, is_scheduled=true
cond {
  s = (f32[32], f32[32], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=2
  ROOT more = pred[] custom-call(n), custom_call_target="C"
}
body {
  s = (f32[32], f32[32], s32[]) parameter(0)
  x = f32[32] get-tuple-element(s), index=0
  y = f32[32] get-tuple-element(s), index=1
  n = s32[] get-tuple-element(s), index=2
  m = s32[] custom-call(n, x, y), custom_call_target="C"
  ROOT t = (f32[32], f32[32], s32[]) tuple(y, x, m)
}
ENTRY e {
  p = f32[32] parameter(0)
  q = f32[32] parameter(1)
  zero = s32[] constant(0)
  i = (f32[32], f32[32], s32[]) tuple(p, q, zero)
  w = (f32[32], f32[32], s32[]) while(i), condition=cond, body=body
  x = f32[32] get-tuple-element(w), index=0
  y = f32[32] get-tuple-element(w), index=1
  ROOT r = (f32[32], f32[32]) tuple(x, y)
})";

constexpr std::string_view branches = R"(
HloModule branches, is_scheduled=true
one {
  p = f32[16] parameter(0)
  ROOT a = f32[16] custom-call(p), custom_call_target="C"
}
two {
  p = f32[16] parameter(0)
  c = f32[16] custom-call(p), custom_call_target="C"
  ROOT d = f32[16] custom-call(c), custom_call_target="C"
}
three {
  ROOT p = f32[16] parameter(0)
}
ENTRY e {
  i = s32[] parameter(0)
  p = f32[16] parameter(1)
  q = f32[16] custom-call(p), custom_call_target="C"
  k = f32[16] conditional(i, p, q, q), branch_computations={one, two, three}
  ROOT r = f32[16] custom-call(k, q), custom_call_target="C"
})";

constexpr std::string_view calls = R"(
HloModule calls, is_scheduled=true
f {
  x = f32[48] parameter(0)
  y = f32[48] custom-call(x), custom_call_target="C"
  z = f32[48] custom-call(y), custom_call_target="C"
  ROOT t = (f32[48], f32[48]) tuple(z, x)
}
ENTRY e {
  p = f32[48] parameter(0)
  a = (f32[48], f32[48]) call(p), to_apply=f
  a0 = f32[48] get-tuple-element(a), index=0
  b = (f32[48], f32[48]) call(a0), to_apply=f
  b0 = f32[48] get-tuple-element(b), index=0
  b1 = f32[48] get-tuple-element(b), index=1
  ROOT r = f32[48] custom-call(b0, b1), custom_call_target="C"
})";

std::string name_of(const PlannedText& p, InstructionId i) {
  return i == no_id<InstructionId> ? "" : std::string(p.module[i].name);
}

}  // namespace

TEST_CASE(
    "pattern_kernel: a sound plan passes, and the run reaches exactly the heights of the arenas") {
  for (const std::string_view text : {chain, swap, branches, calls})
    for (const PatternCheck check : {PatternCheck::full, PatternCheck::page}) {
      const PlannedText p(text);
      const CheckedRun run(p, 1, check);
      INFO(run.sentence(p));
      CHECK(run.clean());
      CHECK(run.kernel->values_checked() > 0);
      Bytes heap = 0;
      for (const Arena& a : p.plan.entry_arenas()) heap += a.size;
      CHECK(run.kernel->measured_peak() == heap);
    }
}

TEST_CASE("pattern_kernel: a value shifted onto another is noticed, and both are named") {
  const auto apart = [](PlannedText& p) {
    p.plan.arenas[0].size = 8192;
    for (const auto& [name, offset] : {std::pair{"a", 0}, {"b", 1024}, {"c", 2048}, {"d", 3072}})
      p.plan.locations[index_of(p.values.value(p.find(name)))] = {Location::Base::arena, 0, offset};
  };
  PlannedText sound(chain);
  REQUIRE(sound.plan.arenas.size() == 1);
  apart(sound);
  CHECK(CheckedRun(sound).clean());
  for (const auto& [victim, other] :
       {std::pair{"a", "b"}, {"b", "c"}, {"c", "d"}, {"b", "a"}, {"c", "b"}, {"d", "c"}}) {
    PlannedText p(chain);
    apart(p);
    const auto offset = [&](const char* name) -> Bytes& {
      return p.plan.locations[index_of(p.values.value(p.find(name)))].offset;
    };
    offset(victim) = offset(other) + 128;  // half of it
    const CheckedRun run(p);
    CHECK_FALSE(run.clean());
    const PatternFault& f = run.kernel->fault();
    const std::string both = name_of(p, f.value) + name_of(p, f.other);
    INFO(run.sentence(p));
    CHECK(both.find(victim) != std::string::npos);
    CHECK(both.find(other) != std::string::npos);
  }
}

TEST_CASE(
    "pattern_kernel: a live range that is too short is noticed where the value is read, with who "
    "took its place") {
  PlannedText p(chain);
  const ValueId a = p.values.value(p.find("a"));
  const ValueId c = p.values.value(p.find("c"));
  // `a` is read by c: pretend that it is not, then c may get its place.
  for (LivePiece& piece : p.live.pieces)
    if (piece.value == a) --piece.end;
  p.place();
  p.plan.locations[index_of(c)] = p.plan.locations[index_of(a)];
  const CheckedRun run(p);
  CHECK_FALSE(run.clean());
  CHECK(run.kernel->fault().kind == PatternFault::Kind::overlap);
  CHECK(run.sentence(p) == "`c` reads `a` (256 bytes) where it writes `c`");
}

TEST_CASE("pattern_kernel: every shortened range that lets a plan shrink is caught by name") {
  const PlannedText sound(chain);
  int caught = 0;
  for (std::size_t k = 0; k < sound.live.pieces.size(); ++k) {
    PlannedText p(chain);
    LivePiece& piece = p.live.pieces[k];
    if (piece.end - piece.begin < 2) continue;
    --piece.end;
    p.place(BufferSet::Sharing::required);
    const CheckedRun run(p);
    if (run.clean()) continue;  // nobody took the place
    ++caught;
    const PatternFault& f = run.kernel->fault();
    const Place& place = p.live.places[index_of(piece.value)];
    INFO(run.sentence(p));
    CHECK((f.value == place.instruction || f.other == place.instruction));
  }
  CHECK(caught > 0);
}

TEST_CASE("pattern_kernel: each copy that is left out is noticed") {
  const PlannedText sound(swap);
  CHECK(CheckedRun(sound).clean());
  REQUIRE(sound.live.moves.size() >= 3);
  int needed = 0;
  for (std::size_t k = 0; k < sound.live.moves.size(); ++k) {
    PlannedText p(swap);
    const Move move = p.live.moves[k];
    const Location& from = p.plan.locations[index_of(move.from)];
    const Location& to = p.plan.locations[index_of(move.to)];
    const bool same = from.base == to.base && from.index == to.index && from.offset == to.offset;
    p.live.moves[k].from = move.to;  // copies nothing
    const CheckedRun run(p);
    INFO("move ", k, ": ", run.sentence(p));
    CHECK(run.clean() == same);
    if (!same) ++needed;
    if (!same) CHECK(run.kernel->fault().kind != PatternFault::Kind::none);
  }
  CHECK(needed >= 3);
}

TEST_CASE(
    "pattern_kernel: steps in another order are noticed: a value is read before it is written") {
  for (const auto& [first, second] : {std::pair{"a", "b"}, {"b", "c"}, {"c", "d"}, {"d", "r"}}) {
    PlannedText p(chain);
    std::swap(p.step(first), p.step(second));
    const CheckedRun run(p);
    CHECK_FALSE(run.clean());
    const PatternFault& f = run.kernel->fault();
    CHECK(name_of(p, f.reader) == second);
    CHECK(name_of(p, f.value) == first);
    CHECK(f.kind == PatternFault::Kind::never_written);
    CHECK(run.sentence(p) == "`" + std::string(second) + "` finds no `" + first +
                                 "` (256 bytes): nothing has written it yet");
  }
}

TEST_CASE(
    "pattern_kernel: an alias analysis that takes one element for another is noticed, since it is "
    "not asked") {
  PlannedText p(swap);
  const InstructionId x = p.find("x");
  const InstructionId y = p.find("y");
  REQUIRE(p.values.has(x));
  std::swap(p.values.at[p.values.base[index_of(x)]], p.values.at[p.values.base[index_of(y)]]);
  const CheckedRun run(p);
  CHECK_FALSE(run.clean());
}

TEST_CASE("pattern_kernel: an operand of an operation in two halves must last until it is done") {
  constexpr std::string_view text = R"(
HloModule copies, is_scheduled=true
ENTRY e {
  p = f32[64] parameter(0)
  a = f32[64] custom-call(p), custom_call_target="C"
  s = (f32[64], f32[64], u32[]) copy-start(a)
  b = f32[64] custom-call(p), custom_call_target="C"
  d = f32[64] copy-done(s)
  ROOT r = f32[64] custom-call(b, d), custom_call_target="C"
})";
  PlannedText p(text);
  CHECK(CheckedRun(p).clean());
  p.plan.locations[index_of(p.values.value(p.find("b")))] =
      p.plan.locations[index_of(p.values.value(p.find("a")))];
  const CheckedRun run(p);
  CHECK(run.sentence(p) == "`d` finds no `s{1}` (256 bytes): byte 0 was overwritten by `b`");
}

TEST_CASE("pattern_kernel: so must one that the start does not pass on, as that of an all-reduce") {
  PlannedText p(R"(
HloModule sums, is_scheduled=true
sum { m = f32[] parameter(0)  n = f32[] parameter(1)  ROOT mn = f32[] add(m, n) }
ENTRY e {
  q = f32[64] parameter(0)
  p = f32[64] custom-call(q), custom_call_target="C"
  s = (f32[64], f32[64]) all-reduce-start(p, p), to_apply=sum
  b = f32[64] custom-call(q), custom_call_target="C"
  d = (f32[64], f32[64]) all-reduce-done(s)
  d0 = f32[64] get-tuple-element(d), index=0
  d1 = f32[64] get-tuple-element(d), index=1
  ROOT r = f32[64] custom-call(b, d0, d1), custom_call_target="C"
})");
  CHECK(CheckedRun(p).clean());
  p.plan.locations[index_of(p.values.value(p.find("b")))] =
      p.plan.locations[index_of(p.values.value(p.find("p")))];
  CHECK(CheckedRun(p).sentence(p) == "`d` finds no `p` (256 bytes): byte 0 was overwritten by `b`");
}

TEST_CASE("pattern_kernel: two results of one instruction must not share memory") {
  PlannedText p(R"(
HloModule two, is_scheduled=true
ENTRY e {
  p = f32[64] parameter(0)
  ROOT t = (f32[64], f32[64]) custom-call(p), custom_call_target="C"
})");
  CHECK(CheckedRun(p).clean());
  const InstructionId t = p.find("t");
  for (Move& m : p.live.moves)
    if (m.from == p.values.value(t, 2)) m.from = p.values.value(t, 1);
  p.plan.locations[index_of(p.values.value(t, 2))] =
      p.plan.locations[index_of(p.values.value(t, 1))];
  const CheckedRun run(p);
  CHECK_FALSE(run.clean());
  CHECK(run.sentence(p) == "`t` finds no `t{0}` (256 bytes): byte 0 was overwritten by `t{1}`");
}

TEST_CASE(
    "pattern_kernel: a result over an operand that the operation reads elsewhere is refused, an "
    "elementwise one is not") {
  PlannedText p(R"(
HloModule products, is_scheduled=true
ENTRY e {
  p = f32[8,8] parameter(0)
  a = f32[8,8] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[8,8] negate(a)
  c = f32[8,8] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[8,8] dot(c, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})");
  const auto where = [&](const char* name) -> Location& {
    return p.plan.locations[index_of(p.values.value(p.find(name)))];
  };
  CHECK(where("a").offset == where("b").offset);  // negate writes over its operand
  CHECK(CheckedRun(p).clean());
  where("c") = where("b");
  CHECK(CheckedRun(p).sentence(p) == "`c` reads `b` (256 bytes) where it writes `c`");
}

TEST_CASE("pattern_kernel: several streams check the same and give the same answer") {
  for (const std::string_view text : {chain, swap, branches, calls})
    for (const std::uint32_t streams : {2u, 4u}) {
      const PlannedText p(text);
      const CheckedRun run(p, streams);
      INFO(run.sentence(p));
      CHECK(run.clean());
    }
  PlannedText p(chain);
  std::swap(p.step("a"), p.step("b"));
  CHECK_FALSE(CheckedRun(p, 3).clean());
}

namespace {

constexpr std::string_view updates = R"(
HloModule updates, is_scheduled=true
cond {
  s = (f32[64], f32[4]) parameter(0)
  ROOT more = pred[] custom-call(s), custom_call_target="C"
}
body {
  s = (f32[64], f32[4]) parameter(0)
  h = f32[64] get-tuple-element(s), index=0
  u = f32[4] get-tuple-element(s), index=1
  i = s32[] constant(8)
  b = ((f32[64], f32[4], s32[]), f32[64], u32[]) dynamic-update-slice-start(h, u, i)
  k = f32[4] custom-call(u), custom_call_target="C"
  d = f32[64] dynamic-update-slice-done(b)
  ROOT t = (f32[64], f32[4]) tuple(d, k)
}
ENTRY e {
  p = f32[64] parameter(0)
  h = f32[64] custom-call(p), custom_call_target="C"
  u = f32[4] custom-call(p), custom_call_target="C"
  s = (f32[64], f32[4]) tuple(h, u)
  w = (f32[64], f32[4]) while(s), condition=cond, body=body
  x = f32[64] get-tuple-element(w), index=0
  ROOT r = f32[64] custom-call(x), custom_call_target="C"
})";

}  // namespace

TEST_CASE(
    "pattern_kernel: an update in the background lies on its base; what else it reads stays") {
  for (const std::uint32_t streams : {1u, 3u}) {
    const PlannedText p(updates);
    Bytes heap = 0;
    for (const Arena& a : p.plan.entry_arenas()) heap += a.size;
    CHECK(heap < 2 * 256);  // one f32[64], whatever the rounds
    const CheckedRun run(p, streams);
    INFO(run.sentence(p));
    CHECK(run.clean());
  }
  // Another value on what the update gives is noticed.
  PlannedText p(updates);
  const ValueId d = p.values.value(p.find("d"));
  const ValueId k = p.values.value(p.find("k"));
  CHECK(CheckedRun(p).clean());
  p.plan.locations[index_of(k)] = p.plan.locations[index_of(d)];
  CHECK_FALSE(CheckedRun(p).clean());
}
