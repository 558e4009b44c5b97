// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/rematerialize.hpp"

#include <algorithm>
#include <deque>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/plan/schedule_as_given.hpp"
#include "holdfast/plan/schedule_best.hpp"
#include "holdfast/plan/schedule_module.hpp"
#include "support/check_module.hpp"
#include "support/hlo.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using testing::find_computation;
using testing::find_instruction;
using testing::parse;

namespace {

const RematerializeOptions bytewise{.assign = {.alignment = 1}};

/// Keeps a text as long as the tests run: modules refer to it.
std::string_view keep(std::string text) {
  static std::deque<std::string> all;
  return all.emplace_back(std::move(text));
}
/// What a fresh plan of the module says.
PlanSummary plan(const Module& m, Bytes alignment = 1) {
  const ValueTable values = *analyze_values(m);
  const Liveness live = *analyze_liveness(m, values);
  BufferSet buffers(m, values, live);
  const BufferAssignment p = *assign_buffers(m, live, buffers, PlanOffsets{}, {alignment});
  return summarize_plan(m, values, live, buffers, p);
}
/// The names of a computation's instructions, those that were added without their numbers.
std::string order(const Module& m, std::string_view computation) {
  std::string out;
  for (const InstructionId i : m.instructions_of(find_computation(m, computation))) {
    std::string_view name = m[i].name;
    for (const std::string_view part : {".remat.", ".to_host.", ".from_host."})
      if (const std::size_t at = name.rfind(part); at != std::string_view::npos)
        name = name.substr(0, at + part.size() - 1);
    out += (out.empty() ? "" : " ") + std::string(name);
  }
  return out;
}
/// Runs it, checks what it says against a plan and an order of our own, and gives it.
Rematerialized limited(Module& m, RematerializeOptions options) {
  const PlanSummary before = plan(m, options.assign.alignment);
  const Result<Rematerialized> done = rematerialize(m, options);
  REQUIRE(done.ok());
  CHECK(testing::inconsistency(m) == nullptr);
  CHECK(done->first_peak == before.peak_bytes);
  CHECK(done->peak == plan(m, options.assign.alignment).peak_bytes);
  CHECK(done->fits == (done->peak <= options.limit));
  CHECK(done->floor <= done->peak);
  CHECK((done->changed() || done->recomputed + done->offloaded == 0));
  const ValueTable values = *analyze_values(m);
  CHECK(schedule_module(m, values, ScheduleAsGiven{}).ok());  // every operand comes first
  return *done;
}
Rematerialized limited(Module& m, Bytes limit, RematerializeOptions options = bytewise) {
  options.limit = limit;
  return limited(m, options);
}

std::string chain(std::string_view a) {
  return "HloModule m, is_scheduled=true\nENTRY e {\n p = f32[1024] parameter(0)\n a = f32[1024] " +
         std::string(a) +
         "\n b = f32[16] slice(a), slice={[0:16]}\n x = f32[1024] custom-call(p, b), "
         "custom_call_target=\"C\"\n"
         " y = f32[16] slice(x), slice={[0:16]}\n w = f32[16] add(b, y)\n"
         " ROOT z = f32[16] custom-call(a, w), custom_call_target=\"C\"\n}\n";
}
/// Arguments, result, the big x and the small b: what has to be beside a, or without it.
constexpr Bytes without_a = 4096 + 64 + 4096 + 64;

}  // namespace

TEST_CASE("rematerialize: T11.1 an elementwise value is computed again behind the peak") {
  const std::string text = chain("negate(p)");
  Module m = parse(text);
  const Rematerialized r = limited(m, without_a + 64);
  CHECK(r.first_peak > without_a + 64);
  CHECK(r.fits);
  CHECK(r.recomputed == 1);
  CHECK(r.offloaded == 0);
  CHECK(r.added_seconds > 0);
  CHECK(order(m, "e") == "p a b x y w a.remat z");
  const InstructionId z = find_instruction(m, "z");
  CHECK(m[m.operands(m[z])[0]].name.starts_with("a.remat."));
  const Module again = parse(keep(testing::print(m)));
  CHECK(plan(again).peak_bytes == r.peak);
}

TEST_CASE("rematerialize: T11.2 a custom call runs once: nothing is done, and the figures say so") {
  const std::string text = chain("custom-call(p), custom_call_target=\"C\"");
  Module m = parse(text);
  RematerializeOptions options = bytewise;
  options.offload = false;
  const std::string before = testing::print(m);
  const Rematerialized r = limited(m, without_a + 64, options);
  CHECK_FALSE(r.fits);
  CHECK_FALSE(r.changed());
  CHECK(r.peak == r.first_peak);
  CHECK(testing::print(m) == before);
  for (const std::string_view never :
       {"copy(p)", "rng(p, p), distribution=rng_uniform", "negate(p), control-predecessors={p}"}) {
    Module other = parse(keep(chain(never)));
    CHECK_FALSE(limited(other, without_a + 64, options).changed());
  }
}

TEST_CASE("rematerialize: T11.3 a plan within its limit stays as it is") {
  const std::string text = chain("negate(p)");
  Module m = parse(text);
  const std::string before = testing::print(m);
  const Rematerialized r = limited(m, plan(m).peak_bytes);
  CHECK(r.fits);
  CHECK_FALSE(r.changed());
  CHECK(testing::print(m) == before);
}

TEST_CASE("rematerialize: T11.4 what would keep a larger operand alive is not computed again") {
  const auto text = [](std::string_view big) {
    return "HloModule m, is_scheduled=true\nENTRY e {\n p = f32[4096] parameter(0)\n big = "
           "f32[2048] " +
           std::string(big) +
           "\n a = f32[1024] slice(big), slice={[0:1024]}\n b = f32[16] slice(a), slice={[0:16]}\n"
           " x = f32[4096] custom-call(p, b), custom_call_target=\"C\"\n y = f32[16] slice(x), "
           "slice={[0:16]}\n"
           " w = f32[16] add(b, y)\n ROOT z = f32[16] custom-call(a, w), "
           "custom_call_target=\"C\"\n}\n";
  };
  RematerializeOptions options = bytewise;
  options.offload = false;
  const std::string called = text("custom-call(p), custom_call_target=\"C\"");
  Module m = parse(called);
  const Bytes peak = plan(m).peak_bytes;
  CHECK_FALSE(limited(m, peak - 4096, options).changed());
  // From the argument both can be computed again.
  const std::string sliced = text("slice(p), slice={[0:2048]}");
  Module both = parse(sliced);
  const Rematerialized r = limited(both, peak - 4096, options);
  CHECK(r.fits);
  CHECK(r.recomputed == 2);
  CHECK(order(both, "e") == "p big a b x y w big.remat a.remat z");
}

TEST_CASE("rematerialize: T11.5 a loop's body gets what its caller leaves") {
  // Beside the loop lies `kept`, 4000 bytes; within, `a` spans the peak of the round.
  const std::string text = R"(HloModule m, is_scheduled=true
more { s = (s32[], f32[1024]) parameter(0)  n = s32[] get-tuple-element(s), index=0  l = s32[] constant(5)  ROOT go = pred[] compare(n, l), direction=LT }
round {
  s = (s32[], f32[1024]) parameter(0)  n = s32[] get-tuple-element(s), index=0  v = f32[1024] get-tuple-element(s), index=1
  a = f32[1024] negate(v)  b = f32[16] slice(a), slice={[0:16]}
  x = f32[1024] custom-call(v, b), custom_call_target="C"  y = f32[16] slice(x), slice={[0:16]}  w = f32[16] add(b, y)
  next = f32[1024] custom-call(a, w), custom_call_target="C"
  one = s32[] constant(1)  up = s32[] add(n, one)  ROOT t = (s32[], f32[1024]) tuple(up, next)
}
ENTRY e {
  p = f32[1024] parameter(0)  zero = s32[] constant(0)  kept = f32[1000] custom-call(p), custom_call_target="C"
  init = (s32[], f32[1024]) tuple(zero, p)  loop = (s32[], f32[1024]) while(init), condition=more, body=round
  last = f32[1024] get-tuple-element(loop), index=1
  ROOT z = f32[16] custom-call(last, kept), custom_call_target="C"
}
)";
  Module m = parse(text);
  RematerializeOptions options = bytewise;
  options.offload = false;
  const Bytes peak = plan(m).peak_bytes;
  const Rematerialized r = limited(m, peak - 3900, options);
  CHECK(r.fits);
  CHECK(r.recomputed == 1);
  CHECK(order(m, "round") == "s n v a b x y w a.remat next one up t");
  // With copies allowed, what the caller keeps may go away for the time of the loop instead.
  Module both = parse(text);
  options.offload = true;
  options.recompute = false;
  CHECK(limited(both, peak - 3900, options).fits);
}

TEST_CASE("rematerialize: T11.6 a value waits on the host where there is time for two copies") {
  const std::string text = R"(HloModule m, is_scheduled=true
ENTRY e {
  p = f32[1024] parameter(0)  a = f32[1024] custom-call(p), custom_call_target="C"  b = f32[16] slice(a), slice={[0:16]}
  c = f32[16] negate(b)  x = f32[1024] custom-call(p, c), custom_call_target="C"  y = f32[16] slice(x), slice={[0:16]}
  w = f32[16] add(c, y)  v = f32[16] negate(w)  ROOT z = f32[16] custom-call(a, v), custom_call_target="C"
})";
  RematerializeOptions options = bytewise;
  options.recompute = options.wait_for_copies = false;
  options.machine.host_link = 1e6;  // two copies take longer than all the rest
  Module near = parse(text);
  CHECK_FALSE(limited(near, without_a + 128, options).changed());
  options.machine.host_link = 1e12;
  Module far = parse(text);
  const Rematerialized r = limited(far, without_a + 128, options);
  CHECK(r.fits);
  CHECK(r.offloaded == 1);
  REQUIRE(r.decisions.size() == 1);
  CHECK(r.decisions[0].bytes == 4096);
  CHECK(r.first_peak - r.peak == 4096);
  CHECK(plan(far).stats.host_temp_size_in_bytes == 4096);
  CHECK(order(far, "e") == "p a b a.to_host c a.to_host x y w a.from_host v a.from_host z");
  const InstructionId z = find_instruction(far, "z");
  CHECK(far[far.operands(far[z])[0]].opcode == Opcode::copy_done);
  // A copy that has to be waited for is the last resort, and its time is in the figures.
  Module slow = parse(text);
  options.wait_for_copies = true;
  options.machine.host_link = 1e6;
  const Rematerialized waited = limited(slow, without_a + 128, options);
  CHECK(waited.fits);
  CHECK(waited.added_seconds >= 2 * 4096 / 1e6 - waited.seconds);
}

TEST_CASE(
    "rematerialize: what nobody needs before the peak only runs later, which is no recomputation") {
  const std::string text = R"(HloModule m, is_scheduled=true
ENTRY e {
  p = f32[1024] parameter(0)  a = f32[1024] negate(p)  x = f32[1024] custom-call(p), custom_call_target="C"
  y = f32[16] slice(x), slice={[0:16]}  ROOT z = f32[16] custom-call(a, y), custom_call_target="C"
})";
  Module m = parse(text);
  const Rematerialized r = limited(m, without_a);
  CHECK(r.fits);
  CHECK(r.changed());
  CHECK(r.recomputed == 0);
  CHECK(r.added_seconds == 0);
  CHECK(order(m, "e") == "p x y a.remat z");
}

TEST_CASE("rematerialize: a limit below what one operation needs ends with a floor above it") {
  const std::string text = chain("negate(p)");
  Module m = parse(text);
  const Rematerialized r = limited(m, 4096 + 4096 + 32);
  CHECK_FALSE(r.fits);
  CHECK_FALSE(r.changed());
  CHECK(r.floor == 4096 + 4096 + 2 * 64);  // p beside what z reads and writes
}

TEST_CASE("rematerialize: elements of a tuple, a loop's operands and fusions are made anew") {
  const std::string text = R"(HloModule m, is_scheduled=true
two { q = f32[1024] parameter(0)  n = f32[1024] negate(q)  e = f32[1024] exponential(q)  ROOT t = (f32[1024], f32[1024]) tuple(n, e) }
more { s = (s32[], f32[1024]) parameter(0)  n = s32[] get-tuple-element(s), index=0  l = s32[] constant(5)  ROOT go = pred[] compare(n, l), direction=LT }
round { s = (s32[], f32[1024]) parameter(0)  n = s32[] get-tuple-element(s), index=0  v = f32[1024] get-tuple-element(s), index=1
  one = s32[] constant(1)  up = s32[] add(n, one)  g = f32[1024] negate(v)  ROOT t = (s32[], f32[1024]) tuple(up, g) }
ENTRY e {
  p = f32[1024] parameter(0)  zero = s32[] constant(0)
  f = (f32[1024], f32[1024]) fusion(p), kind=kLoop, calls=two
  g0 = f32[1024] get-tuple-element(f), index=0  g1 = f32[1024] get-tuple-element(f), index=1
  early = f32[16] slice(g0), slice={[0:16]}  both = f32[16] slice(g1), slice={[0:16]}
  init = (s32[], f32[1024]) tuple(zero, g0)  flat = f32[32,32] bitcast(g1)
  x = f32[1024] custom-call(p), custom_call_target="C"  y = f32[16] slice(x), slice={[0:16]}
  loop = (s32[], f32[1024]) while(init), condition=more, body=round
  last = f32[1024] get-tuple-element(loop), index=1
  ROOT z = f32[16] custom-call(last, flat, early, both, y), custom_call_target="C"
}
)";
  for (const bool recompute : {true, false}) {
    Module m = parse(text);
    RematerializeOptions options = bytewise;
    options.recompute = recompute, options.offload = !recompute;
    const Rematerialized r = limited(m, plan(m).peak_bytes - 4096, options);
    CHECK(r.fits);
    const Module again = parse(keep(testing::print(m)));  // one caller a fusion, no name twice
    CHECK(plan(again).peak_bytes == r.peak);
    if (recompute) CHECK(m.computations.size() == 5);
  }
}

TEST_CASE("rematerialize: the load tree adds and finds as a plain array does") {
  std::mt19937 random(7);
  for (const std::uint32_t size : {1u, 5u, 64u, 100u}) {
    detail::LoadTree tree(size);
    std::vector<Bytes> plain(size, 0);
    for (int n = 0; n < 300; ++n) {
      std::uint32_t begin = static_cast<std::uint32_t>(random() % size),
                    end = static_cast<std::uint32_t>(random() % (size + 1));
      if (begin > end) std::swap(begin, end);
      const Bytes bytes = static_cast<Bytes>(random() % 100);
      tree.add(begin, end, bytes);
      for (std::uint32_t k = begin; k < end; ++k) plain[k] += bytes;
      const auto most = std::max_element(plain.begin(), plain.end());
      CHECK(tree.most() == *most);
      CHECK(tree.peak() == static_cast<std::uint32_t>(most - plain.begin()));
      CHECK(tree.most(begin, end) ==
            (begin < end ? *std::max_element(plain.begin() + begin, plain.begin() + end) : 0));
    }
  }
}

TEST_CASE(
    "rematerialize: training modules come within 0.8 and 0.6 of their peak, or as near as they "
    "can") {
  const struct {
    const char* file;
    double part;
    bool fits;
  } table[] = {
      {"gpt2_train_adam/after.hlo.xz", 0.6, true},
      {"gnn_train/after.hlo.xz", 0.6, true},
      {"moe_train/after.hlo", 0.8, true},
      {"gpu_moe_train/after.hlo", 0.8, true},
      {"gpu_lstm_scan_train/after.hlo.xz", 0.8, true},
      {"adam_many_tensors/after.hlo.xz", 0.8, false},
      {"mlp_train_sgd/after.hlo", 0.6, false},
      // A round that leads nowhere is taken back; two results of one clone, one of them dead.
      {"gpu_spmd_moe_all_to_all/after.hlo", 0.7, false}};
  for (const auto& row : table) {
    const std::string path = testing::shared_path(std::string("data/hlo/") + row.file);
    if (path.empty()) return;
    const std::string text = testing::read_file(path);
    Module m = parse(text);
    const Bytes given = plan(m, 64).peak_bytes;
    const std::vector<InstructionId> as_given = m.instruction_ids;
    apply_schedule(m, *schedule_module(m, *analyze_values(m), ScheduleBest{},
                                       ModuleGraphOptions{.outputs_held = false}));
    if (plan(m, 64).peak_bytes > given) m.instruction_ids = as_given;
    RematerializeOptions options;
    options.limit = static_cast<Bytes>(static_cast<double>(given) * row.part);
    const Rematerialized r = limited(m, options);
    CAPTURE(row.file);
    CHECK(r.fits == row.fits);
    CHECK((r.fits || r.floor > options.limit || r.peak < given));
    const Module again = parse(keep(testing::print(m)));
    CHECK(plan(again, 64).peak_bytes == r.peak);
    if (testing::quick()) return;
  }
}

namespace {

/// A chain of layers with a loss: what training looks like, in a constant expression.
constexpr std::string_view small = R"(HloModule m, is_scheduled=true
ENTRY e {
  p = f32[64] parameter(0)
  a = f32[64] negate(p)
  b = f32[4] slice(a), slice={[0:4]}
  x = f32[64] custom-call(p, b), custom_call_target="C"
  y = f32[4] slice(x), slice={[0:4]}
  w = f32[4] add(b, y)
  ROOT z = f32[4] custom-call(a, w), custom_call_target="C"
})";
constexpr bool fits_in_constexpr() {
  Module m = *parse_hlo_text(small);
  RematerializeOptions options;
  options.limit = 256 + 16 + 256 + 3 * 64;
  options.assign.alignment = 16;
  const Result<Rematerialized> r = rematerialize(m, options);
  return r.ok() && r->fits && r->recomputed == 1;
}
static_assert(fits_in_constexpr());

}  // namespace
