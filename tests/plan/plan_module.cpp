// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/plan_module.hpp"

#include <cstdint>
#include <string_view>
#include <utility>

#include <doctest/doctest.h>

#include "holdfast/hlo/parser.hpp"
#include "holdfast/plan/plan_offsets.hpp"
#include "holdfast/plan/schedule_search.hpp"
#include "support/module_generator.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

// Two chains: their tops are large, their ends small; going through one after the other is best.
constexpr std::string_view two_chains = R"(
HloModule m
ENTRY main {
  p = f32[] parameter(0)
  a = f32[1024] broadcast(p), dimensions={}
  b = f32[1024] broadcast(p), dimensions={}
  c = f32[1024] custom-call(a), custom_call_target="x"
  d = f32[1024] custom-call(b), custom_call_target="x"
  e = f32[16] custom-call(c), custom_call_target="x"
  f = f32[16] custom-call(d), custom_call_target="x"
  ROOT g = f32[16] add(e, f)
})";

constexpr Bytes heap_of(std::string_view text, bool lowest) {
  Result<Module> m = parse_hlo_text(text);
  if (!m.ok()) return -1;
  ModulePlan plan(std::move(*m));
  Error e = plan.analyze();
  if (e.ok()) e = lowest ? plan_lowest(plan, PlanOffsets{}) : plan.plan(PlanOffsets{});
  return e.ok() ? plan.summary.heap_bytes : -1;
}
// As it stands, three large values are alive at a time.
static_assert(heap_of(two_chains, false) == 3 * 4096);
static_assert(heap_of(two_chains, true) == 2 * 4096);

/// Plans generated module `seed` in the order that `schedule` leaves it with.
template <class F>
std::pair<Bytes, Bytes> planned(std::uint64_t seed, F&& schedule) {
  ModulePlan p{ModuleGenerator(seed)()};
  REQUIRE(p.analyze().ok());
  REQUIRE(schedule(p).ok());
  return {p.summary.peak_bytes, p.summary.heap_bytes};
}
template <class Scheduler>
std::pair<Bytes, Bytes> planned_by(std::uint64_t seed, const Scheduler& scheduler) {
  return planned(seed, [&](ModulePlan& p) {
    Result<ModuleSchedule> s =
        schedule_module(p.module, p.values, scheduler, {.outputs_held = false});
    if (!s.ok()) return s.error();
    apply_schedule(p.module, std::move(*s));
    return p.plan(PlanOffsets{});
  });
}

}  // namespace

TEST_CASE("plan_module: the lowest plan is not above that of any classic order, nor of the own") {
  for (std::uint64_t seed = 1; seed <= (quick() ? 40 : 400); ++seed) {
    CAPTURE(seed);
    const auto lowest = planned(seed, [](ModulePlan& p) { return plan_lowest(p, PlanOffsets{}); });
    CHECK(lowest <= planned_by(seed, ScheduleBest{}));
    CHECK(lowest <= planned_by(seed, ScheduleList{}));
    CHECK(lowest <= planned_by(seed, ScheduleDfs{}));
    CHECK(lowest <= planned_by(seed, ScheduleBfs{}));
    CHECK(lowest <= planned_by(seed, SchedulePostOrder{}));
    if (ModuleGenerator(seed)().is_scheduled)
      CHECK(lowest <= planned(seed, [](ModulePlan& p) { return p.plan(PlanOffsets{}); }));
    const auto searched = planned(seed, [](ModulePlan& p) {
      return plan_lowest(p, PlanOffsets{}, {}, ScheduleSearch<>{.effort = 200});
    });
    CHECK(searched <= lowest);
    CHECK(searched <= planned_by(seed, ScheduleSearch<>{.effort = 200}));
  }
}

TEST_CASE("plan_module: the order that is kept is the one that was planned") {
  Result<Module> m = parse_hlo_text(two_chains);
  REQUIRE(m.ok());
  ModulePlan p(std::move(*m));
  REQUIRE(p.analyze().ok());
  REQUIRE(plan_lowest(p, PlanOffsets{}).ok());
  CHECK(p.module.is_scheduled);
  const Bytes heap = p.summary.heap_bytes;
  REQUIRE(p.plan(PlanOffsets{}).ok());
  CHECK(p.summary.heap_bytes == heap);
}

TEST_CASE("plan_module: what a scheduler or a stage cannot do is its error") {
  struct Refuses {
    Result<Schedule> operator()(const Graph&) const {
      return make_error(Errc::unsupported, "not today");
    }
  };
  Result<Module> m = parse_hlo_text(two_chains);
  REQUIRE(m.ok());
  ModulePlan p(std::move(*m));
  REQUIRE(p.analyze().ok());
  const Error e = plan_lowest(p, PlanOffsets{}, {}, Refuses{});
  CHECK(e.code == Errc::unsupported);
}
