// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/buffer_assignment.hpp"

#include <doctest/doctest.h>

#include "support/planned.hpp"

using namespace holdfast;
using holdfast::testing::Planned;

namespace {

constexpr std::string_view diamond = R"(HloModule m, is_scheduled=true
ENTRY e {
  x = f32[64]{0} parameter(0)
  v = f32[64]{0} exponential(x)
  u = f32[64]{0} abs(x)
  s = f32[64]{0} add(u, v)
  t = f32[64]{0} negate(v)
  ROOT r = f32[64]{0} subtract(s, t)
})";

}  // namespace

TEST_CASE("buffer_assignment: sum and negation take their operands' places, the result one of the two (T8.9, T9.1)") {
  const Planned p(diamond);
  CHECK(p.same("s", "u"));
  CHECK(p.same("t", "v"));
  CHECK(p.same("r", "s"));
  CHECK(p.location("r").base == Location::Base::result);
  CHECK(p.location("t").base == Location::Base::arena);
  CHECK(p.heap() == 256);
}

TEST_CASE("buffer_assignment: without optional sharing every value has its own place (passes.md 8.2)") {
  const Planned p(diamond, 1, false, BufferSet::Sharing::required);
  CHECK_FALSE(p.same("s", "u"));
  CHECK(p.heap() == 3 * 256);  // u, v, s; then t in the place of u
}

TEST_CASE("buffer_assignment: an aliased result lives in its parameter (T9.2)") {
  std::string text(diamond);
  text.insert(text.find('\n'), ", input_output_alias={ {}: (0, {}, may-alias) }");
  const Planned p(text);
  CHECK(p.same("r", "x"));
  CHECK(p.heap() == 256);
}

TEST_CASE("buffer_assignment: a copy never lands on its operand, a returned parameter stays where it is (T9.3, T9.4)") {
  const Planned copied(R"(HloModule m, is_scheduled=true
ENTRY e { x = f32[4]{0} parameter(0)
 ROOT c = f32[4]{0} copy(x) })");
  CHECK_FALSE(copied.same("c", "x"));
  const Planned returned(R"(HloModule m, is_scheduled=true
ENTRY e { ROOT x = f32[4]{0} parameter(0) })");
  CHECK(returned.location("x").base == Location::Base::parameter);
  const Frame& f = returned.live.frames.back();
  CHECK(returned.buffers->root(static_cast<ValueId>(f.results.begin)) == returned.value("x"));
}

TEST_CASE("buffer_assignment: a temporary uses an output's memory before the output exists (T9.5)") {
  const Planned p(R"(HloModule m, is_scheduled=true
ENTRY e {
  x = f32[16]{0} parameter(0)
  a = f32[10]{0} custom-call(x), custom_call_target="a"
  b = f32[4]{0} custom-call(a), custom_call_target="b"
  ROOT r = f32[12]{0} custom-call(b), custom_call_target="r"
})");
  CHECK(p.location("a").base == Location::Base::result);
  CHECK(p.heap() == 16);
  const Planned live_out(R"(HloModule m, is_scheduled=true
ENTRY e {
  x = f32[16]{0} parameter(0)
  a = f32[12]{0} custom-call(x), custom_call_target="a"
  b = f32[4]{0} custom-call(a), custom_call_target="b"
  ROOT r = f32[10]{0} custom-call(b), custom_call_target="r"
})");
  CHECK(live_out.location("a").base == Location::Base::arena);
}

TEST_CASE("buffer_assignment: each memory space has an arena of its own (T9.6)") {
  const Planned p(R"(HloModule m, is_scheduled=true
ENTRY e {
  x = f32[64]{0} parameter(0)
  h = f32[64]{0:S(5)} custom-call(x), custom_call_target="h"
  d = f32[64]{0} custom-call(h), custom_call_target="d"
  ROOT r = f32[64]{0} custom-call(d), custom_call_target="r"
})");
  const auto arenas = p.assignment.entry_arenas();
  REQUIRE(arenas.size() == 2);
  CHECK(arenas[0].space == MemorySpace::device);
  CHECK(arenas[1].space == MemorySpace::host);
  CHECK(arenas[1].size == 256);
}

TEST_CASE("buffer_assignment: what a reduction computes inside is no memory of the plan (T9.8)") {
  const Planned p(R"(HloModule m, is_scheduled=true
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[64]{0} parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add
})");
  CHECK(p.heap() == 0);
  CHECK_FALSE(p.values.has(p.find("s")));
}

TEST_CASE("buffer_assignment: constants are no temporaries (T9.10)") {
  const Planned p(R"(HloModule m, is_scheduled=true
ENTRY e {
  k = f32[1024]{0} constant({...})
  x = f32[1024]{0} parameter(0)
  ROOT r = f32[1024]{0} add(k, x)
})");
  CHECK(p.location("k").base == Location::Base::constant);
  CHECK(p.heap() == 0);
}

TEST_CASE("buffer_assignment: an alias between memory spaces is an error that names the donation, or unused if it only may (T9.7)") {
  const auto text = [](std::string_view kind) {
    return "HloModule m, is_scheduled=true, input_output_alias={ {}: (0, {}, " + std::string(kind) + R"() }
ENTRY e {
  x = f32[4]{0:S(5)} parameter(0)
  ROOT r = f32[4]{0} custom-call(x), custom_call_target="r"
})";
  };
  const Planned may(text("may-alias"));
  CHECK(may.location("r").base == Location::Base::result);
  const std::string must = text("must-alias");
  const Result<Module> m = parse_hlo_text(must);
  REQUIRE(m.ok());
  const Result<ValueTable> v = analyze_values(*m);
  REQUIRE_FALSE(v.ok());
  CHECK(status_kind(v.error()) == StatusKind::invalid_argument);
  CHECK(std::string_view(v.error().what).find("donation") != std::string_view::npos);
}
