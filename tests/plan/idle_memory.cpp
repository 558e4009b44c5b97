// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/idle_memory.hpp"

#include <doctest/doctest.h>

#include "support/planned.hpp"

using namespace holdfast;
using holdfast::testing::Planned;

namespace {

constexpr std::string_view two_in_one = R"(HloModule m, is_scheduled=true
ENTRY e {
  x = f32[16]{0} parameter(0)
  a = f32[16]{0} custom-call(x), custom_call_target="a"
  b = f32[16]{0} custom-call(x), custom_call_target="b"
  s = f32[2]{0} custom-call(a, b), custom_call_target="s"
  ROOT r = f32[32]{0} custom-call(s), custom_call_target="r"
})";

}  // namespace

TEST_CASE("idle_memory: two temporaries lie side by side in an output that does not exist yet") {
  const Planned p(two_in_one);
  const Location a = p.location("a");
  const Location b = p.location("b");
  CHECK(a.base == Location::Base::result);
  CHECK(b.base == Location::Base::result);
  CHECK(a.index == b.index);
  CHECK(a.offset != b.offset);
  CHECK(p.heap() == 8);
}

TEST_CASE("idle_memory: nothing moves when it is turned off") {
  const Planned p(two_in_one, 1, false);
  CHECK(p.location("a").base == Location::Base::arena);
  CHECK(p.heap() == 128 + 8);
}

TEST_CASE("idle_memory: a donated parameter's memory is used after its last use, until its output") {
  const Planned p(R"(HloModule m, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY e {
  x = f32[16]{0} parameter(0)
  s = f32[1]{0} custom-call(x), custom_call_target="s"
  a = f32[16]{0} custom-call(s), custom_call_target="a"
  t = f32[1]{0} custom-call(a), custom_call_target="t"
  ROOT r = f32[16]{0} custom-call(t), custom_call_target="r"
})");
  CHECK(p.location("a").base == Location::Base::parameter);
  CHECK(p.location("r").base == Location::Base::parameter);
  CHECK(p.heap() == 4);
}

TEST_CASE("idle_memory: an output's owner and its tenants never overlap in time and place") {
  const Planned p(two_in_one);
  for (std::uint32_t x = 0; x < p.live.pieces.size(); ++x)
    for (std::uint32_t y = x + 1; y < p.live.pieces.size(); ++y) {
      const LivePiece& m = p.live.pieces[x];
      const LivePiece& n = p.live.pieces[y];
      const Location l = p.assignment.locations[index_of(m.value)];
      const Location k = p.assignment.locations[index_of(n.value)];
      if (p.buffers->root(m.value) == p.buffers->root(n.value) || l.base != k.base || l.index != k.index) continue;
      const bool together = m.begin < n.end && n.begin < m.end;
      const bool overlap = l.offset < k.offset + p.buffers->size(n.value) && k.offset < l.offset + p.buffers->size(m.value);
      CHECK_FALSE((together && overlap));
    }
}
