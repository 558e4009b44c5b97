// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/plan_summary.hpp"

#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "support/planned.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using holdfast::testing::Planned;

namespace {

PlanSummary summary_of(const Planned& p) {
  return summarize_plan(p.module, p.values, p.live, *p.buffers, p.assignment);
}
PlanSummary summary_of(std::string_view text, Bytes alignment = 64) {
  return summary_of(Planned(text, alignment));
}

/// What holds of every plan (case 14).
void check_invariants(const PlanSummary& s) {
  const CompiledMemoryStats& m = s.stats;
  const Bytes least = m.argument_size_in_bytes + m.output_size_in_bytes - m.alias_size_in_bytes;
  CHECK(s.peak_bytes >= least);
  CHECK(s.peak_bytes <= least + m.temp_size_in_bytes);
  CHECK(m.alias_size_in_bytes <= std::min(m.argument_size_in_bytes, m.output_size_in_bytes));
  CHECK(s.live_peak_bytes <= s.peak_bytes);
  CHECK(s.lower_bound_bytes <= s.heap_bytes);
}

}  // namespace

TEST_CASE(
    "plan_summary: case 14 A, the peak holds the temporaries, and the live peak is below it by "
    "what comes later") {
  const std::string path =
      holdfast::testing::shared_path("cases/14-compiled-memory-stats/temp_chain.hlo");
  if (path.empty()) return;
  const PlanSummary s = summary_of(holdfast::testing::read_file(path));
  CHECK(s.stats.argument_size_in_bytes == 16384);
  CHECK(s.stats.output_size_in_bytes == 4);
  CHECK(s.stats.alias_size_in_bytes == 0);
  CHECK(s.stats.temp_size_in_bytes == 32768);
  CHECK(s.stats.generated_code_size_in_bytes == 0);
  CHECK(s.stats.host_argument_size_in_bytes + s.stats.host_output_size_in_bytes +
            s.stats.host_alias_size_in_bytes + s.stats.host_temp_size_in_bytes ==
        0);
  CHECK(s.peak_bytes == 49156);
  CHECK(s.live_peak_bytes == 49152);
  CHECK(s.heap_bytes == 32768);
  CHECK(s.proven_optimal);
  CHECK(s.at_peak.size() == 3);
  check_invariants(s);
}

TEST_CASE(
    "plan_summary: case 14 B, a donated argument counts in argument, output and alias; the tuple's "
    "table in output") {
  const std::string path =
      holdfast::testing::shared_path("cases/14-compiled-memory-stats/donate_one.hlo");
  if (path.empty()) return;
  const PlanSummary s = summary_of(holdfast::testing::read_file(path));
  CHECK(s.stats.argument_size_in_bytes == 73728);
  CHECK(s.stats.alias_size_in_bytes == 65536);
  CHECK(s.stats.output_size_in_bytes == 98320);
  CHECK(s.stats.temp_size_in_bytes == 0);
  CHECK(s.peak_bytes == 106512);
  check_invariants(s);
}

TEST_CASE(
    "plan_summary: case 23 loop_between, nothing of array size is temporary but the broadcast") {
  const std::string path =
      holdfast::testing::shared_path("cases/23-io-alias-config/loop_between.hlo");
  if (path.empty()) return;
  const PlanSummary s = summary_of(holdfast::testing::read_file(path));
  CHECK(s.stats.argument_size_in_bytes == 4096);
  CHECK(s.stats.output_size_in_bytes == 4096 + 8);
  CHECK(s.stats.alias_size_in_bytes == 4096);
  CHECK(s.stats.temp_size_in_bytes < 4096 + 4 * 64);
  check_invariants(s);
}

TEST_CASE(
    "plan_summary: T9.2 estimate of an aliased result is below nothing; T9.4 a returned parameter "
    "is argument and output") {
  const PlanSummary aliased = summary_of(R"(
HloModule m, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY e {
  x = f32[64] parameter(0)
  ROOT r = f32[64] negate(x)
})");
  CHECK(aliased.stats.argument_size_in_bytes == 256);
  CHECK(aliased.stats.output_size_in_bytes == 256);
  CHECK(aliased.stats.alias_size_in_bytes == 256);
  CHECK(aliased.peak_bytes == 256);
  CHECK(aliased.live_peak_bytes == 256);
  const PlanSummary same =
      summary_of("HloModule m, is_scheduled=true\nENTRY e { ROOT x = f32[64] parameter(0) }");
  CHECK(same.stats.argument_size_in_bytes == 256);
  CHECK(same.stats.output_size_in_bytes == 256);
  CHECK(same.stats.alias_size_in_bytes == 0);
  CHECK(same.heap_bytes == 0);
}

TEST_CASE("plan_summary: T9.6 host space counts in the host's figures only, but in the heap") {
  const PlanSummary s = summary_of(R"(
HloModule m, is_scheduled=true
ENTRY e {
  x = f32[64]{0} parameter(0)
  h = f32[64]{0:S(5)} parameter(1)
  t = f32[64]{0:S(5)} custom-call(x), custom_call_target="C"
  u = f32[64]{0} custom-call(t, h), custom_call_target="C"
  ROOT r = f32[64]{0} custom-call(u), custom_call_target="C"
})");
  CHECK(s.stats.argument_size_in_bytes == 256);
  CHECK(s.stats.host_argument_size_in_bytes == 256);
  CHECK(s.stats.temp_size_in_bytes == 256);
  CHECK(s.stats.host_temp_size_in_bytes == 256);
  CHECK(s.heap_bytes == 512);
  CHECK(s.peak_bytes == 768);
  for (const PeakHolder& h : s.at_peak) CHECK(h.bytes == 256);
  check_invariants(s);
}

TEST_CASE("plan_summary: T9.8 T9.10 combiners and constants are in none of the figures") {
  const PlanSummary s = summary_of(R"(
HloModule m, is_scheduled=true
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT ab = f32[] add(a, b) }
ENTRY e {
  x = f32[64] parameter(0)
  big = f32[1024] constant({...})
  zero = f32[] constant(0)
  ROOT r = f32[] reduce(x, zero), dimensions={0}, to_apply=sum
})");
  CHECK(s.stats.argument_size_in_bytes == 256);
  CHECK(s.stats.output_size_in_bytes == 4);
  CHECK(s.stats.temp_size_in_bytes == 0);
  CHECK(s.peak_bytes == 260);
}

TEST_CASE(
    "plan_summary: a called computation's peak counts where it is called, and its values are "
    "named") {
  const Planned p(R"(
HloModule m, is_scheduled=true
f {
  x = f32[16] parameter(0)
  a = f32[256] custom-call(x), custom_call_target="C"
  b = f32[256] custom-call(a), custom_call_target="C"
  ROOT r = f32[16] custom-call(b), custom_call_target="C"
}
ENTRY e {
  x = f32[16] parameter(0)
  c = f32[16] call(x), to_apply=f
  k = f32[128] custom-call(c), custom_call_target="C"
  d = f32[16] call(c), to_apply=f
  ROOT r = f32[16] custom-call(k, d), custom_call_target="C"
})",
                  64);
  const PlanSummary s = summary_of(p);
  check_invariants(s);
  // At the second call: x, c, k, d and both arrays of the callee.
  CHECK(s.live_peak_bytes == 64 + 64 + 512 + 64 + 2048);
  bool names_callee = false;
  for (const PeakHolder& h : s.at_peak)
    names_callee = names_callee || p.live.places[index_of(h.place)].instruction == p.find("b");
  CHECK(names_callee);
  Bytes sum = 0;
  for (const PeakHolder& h : s.at_peak) sum += h.bytes;
  CHECK(sum == s.live_peak_bytes);
}

TEST_CASE(
    "plan_summary: those who hold the peak add up to it, and each buffer is named once by its "
    "newest value") {
  const Planned p(R"(
HloModule m, is_scheduled=true
ENTRY e {
  x = f32[64] parameter(0)
  a = f32[64] custom-call(x), custom_call_target="C"
  b = f32[64] negate(a)
  c = f32[64] exponential(b)
  d = f32[64] custom-call(c, x), custom_call_target="C"
  ROOT r = f32[64] custom-call(c, d), custom_call_target="C"
})",
                  64);
  const PlanSummary s = summary_of(p);
  Bytes sum = 0;
  for (const PeakHolder& h : s.at_peak) sum += h.bytes;
  CHECK(sum == s.live_peak_bytes);
  CHECK(s.live_peak_bytes == 1024);
  CHECK(s.at_peak.size() == 4);
  for (const PeakHolder& h : s.at_peak)
    CHECK(p.live.places[index_of(h.place)].instruction != p.find("a"));
}

TEST_CASE("plan_summary: a pointer of 4 bytes makes smaller tables") {
  const Planned p(R"(
HloModule m, is_scheduled=true
ENTRY e {
  x = (f32[2], f32[2], f32[2]) parameter(0)
  x0 = f32[2] get-tuple-element(x), index=0
  n = f32[2] negate(x0)
  ROOT t = (f32[2], f32[2]) tuple(n, x0)
})");
  CHECK(summary_of(p).stats.argument_size_in_bytes == 24 + 24);
  CHECK(summary_of(p).stats.output_size_in_bytes == 16 + 16);
  const PlanSummary small = summarize_plan(p.module, p.values, p.live, *p.buffers, p.assignment, 4);
  CHECK(small.stats.argument_size_in_bytes == 24 + 12);
  CHECK(small.stats.output_size_in_bytes == 16 + 8);
}
