// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/any_order_bound.hpp"

#include <cstdint>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/hlo/parser.hpp"
#include "holdfast/plan/plan_module.hpp"
#include "holdfast/plan/plan_offsets.hpp"
#include "holdfast/plan/schedule_search.hpp"
#include "support/module_generator.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

constexpr Bytes bound_of(std::string_view text) {
  const Result<Module> m = parse_hlo_text(text);
  if (!m.ok()) return -1;
  const Result<ValueTable> values = analyze_values(*m);
  if (!values.ok()) return -1;
  const Result<Bytes> bound = any_order_bound(*m, *values, ScheduleSearch<>{});
  return bound.ok() ? *bound : -1;
}

// Both operands of `c` are alive with it; the result has memory of its own.
constexpr std::string_view joined = R"(
HloModule m
ENTRY main {
  p = f32[4] parameter(0)
  a = f32[100] custom-call(p), custom_call_target="x"
  b = f32[300] custom-call(p), custom_call_target="x"
  ROOT c = f32[4] custom-call(a, b), custom_call_target="x"
})";
static_assert(bound_of(joined) == 1600);

// In the body 2000 bytes are alive beside the carried value, whatever the order.
constexpr std::string_view loop = R"(
HloModule m
body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  a = f32[200] custom-call(x), custom_call_target="x"
  b = f32[300] custom-call(x), custom_call_target="x"
  y = f32[4] custom-call(a, b), custom_call_target="x"
  ROOT r = (s32[], f32[4]) tuple(i, y)
}
condition {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY main {
  p = f32[4] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[4]) tuple(z, p)
  w = (s32[], f32[4]) while(t), condition=condition, body=body
  ROOT o = f32[4] get-tuple-element(w), index=1
})";
static_assert(bound_of(loop) == 2000);

// The loop hands `a` through and nobody reads it: it is dead at once, and need not lie beside `b`.
constexpr std::string_view handed_through = R"(
HloModule m
body {
  s = (s32[], f32[100], f32[100], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[100] get-tuple-element(s), index=1
  b = f32[100] get-tuple-element(s), index=2
  y = f32[4] custom-call(b), custom_call_target="x"
  ROOT r = (s32[], f32[100], f32[100], f32[4]) tuple(i, a, b, y)
}
condition {
  s = (s32[], f32[100], f32[100], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY main {
  p = f32[4] parameter(0)
  z = s32[] constant(0)
  a = f32[100] custom-call(p), custom_call_target="x"
  b = f32[100] custom-call(p), custom_call_target="x"
  t = (s32[], f32[100], f32[100], f32[4]) tuple(z, a, b, p)
  w = (s32[], f32[100], f32[100], f32[4]) while(t), condition=condition, body=body
  ROOT o = f32[4] get-tuple-element(w), index=3
})";

/// Puts a computation's instructions into an order that chance chooses.
void shuffle(Module& m, ComputationId c, std::mt19937_64& random) {
  const IndexRange run = m[c].instructions;
  std::vector<char> done(m.instructions.size(), 1);
  std::vector<InstructionId> left(m.instruction_ids.begin() + run.begin,
                                  m.instruction_ids.begin() + run.end());
  for (const InstructionId i : left) done[index_of(i)] = 0;
  for (std::uint32_t k = run.begin; k < run.end(); ++k) {
    std::vector<std::size_t> ready;
    for (std::size_t j = 0; j < left.size(); ++j) {
      bool now = true;
      for (const InstructionId o : m.operands(m[left[j]])) now = now && done[index_of(o)] != 0;
      for (const InstructionId o : m.controls(m[left[j]])) now = now && done[index_of(o)] != 0;
      if (now) ready.push_back(j);
    }
    REQUIRE(!ready.empty());
    const std::size_t j = ready[random() % ready.size()];
    m.instruction_ids[k] = left[j];
    done[index_of(left[j])] = 1;
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(j));
  }
}

}  // namespace

TEST_CASE("any_order_bound: what a loop only hands through bounds nothing") {
  Result<Module> m = parse_hlo_text(handed_through);
  REQUIRE(m.ok());
  ModulePlan p(std::move(*m));
  REQUIRE(p.analyze().ok());
  REQUIRE(plan_lowest(p, PlanOffsets{}, {.assign = {.alignment = 1}}).ok());
  CHECK(p.summary.heap_bytes < 800 - 16);  // of `a`, `b` and the result's own memory
  const Bytes bound = bound_of(handed_through);
  CHECK(bound > 0);
  CHECK(bound <= p.summary.heap_bytes);
}

TEST_CASE("any_order_bound: no order of a random module plans below it") {
  std::size_t bounded = 0, met = 0;
  for (std::uint64_t seed = 1; seed <= (quick() ? 100 : 1000); ++seed) {
    CAPTURE(seed);
    ModulePlan p{ModuleGenerator(seed)()};
    REQUIRE(p.analyze().ok());
    const Result<Bytes> bound =
        any_order_bound(p.module, p.values, ScheduleSearch<>{.effort = 200});
    REQUIRE(bound.ok());
    bounded += *bound > 0 ? 1u : 0u;
    std::mt19937_64 random(seed);
    Bytes lowest = max_bytes;
    for (int round = 0; round < 8; ++round) {
      for (std::uint32_t c = 0; c < p.module.computations.size(); ++c)
        shuffle(p.module, static_cast<ComputationId>(c), random);
      PlanOptions tight;
      tight.assign.alignment = 1;
      REQUIRE(p.plan(PlanOffsets{}, tight).ok());
      lowest = std::min(lowest, p.summary.heap_bytes);
    }
    REQUIRE(
        plan_lowest(p, PlanOffsets{}, {.assign = {.alignment = 1}}, ScheduleSearch<>{.effort = 200})
            .ok());
    lowest = std::min(lowest, p.summary.heap_bytes);
    CHECK(lowest >= *bound);
    met += lowest == *bound ? 1u : 0u;
  }
  CHECK(bounded > 10);
  CHECK(met > 1);
  MESSAGE(bounded << " modules have a bound above 0, " << met << " meet theirs");
}
