// SPDX-License-Identifier: Apache-2.0
#include "holdfast/plan/schedule_module.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "holdfast/hlo/parser.hpp"
#include "holdfast/plan/schedule_as_given.hpp"
#include "holdfast/plan/schedule_bfs.hpp"
#include "holdfast/plan/schedule_search.hpp"
#include "support/shared.hpp"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

/// XLA's own way to count: no rounding, results from their definition on, tuples with bytes.
constexpr ModuleGraphOptions xla{.alignment = 1, .outputs_held = false, .compat = true};

struct Case {
  std::string text;
  Module module;
  ValueTable values;

  explicit Case(std::string source) : text(std::move(source)) {
    Result<Module> m = parse_hlo_text(text);
    REQUIRE_MESSAGE(m.ok(), text.substr(0, 200));
    module = std::move(*m);
    Result<ValueTable> v = analyze_values(module);
    REQUIRE(v.ok());
    values = std::move(*v);
  }
  [[nodiscard]] std::string order(const ModuleSchedule& s) const {
    std::string out;
    const IndexRange r = module[module.entry].instructions;
    for (std::uint32_t k = r.begin; k < r.end(); ++k)
      out += std::string(module[s.instruction_ids[k]].name) + (k + 1 < r.end() ? " " : "");
    return out;
  }
};
Bytes total(const ModuleSchedule& s) { return s.peak + s.held_bytes; }

std::string entry(std::string_view body) {
  return "HloModule m\nENTRY main {\n" + std::string(body) + "}\n";
}
std::string call(std::string_view name, int bytes, std::string_view operands, bool root = false) {
  return std::string(root ? "ROOT " : "") + std::string(name) + " = u8[" + std::to_string(bytes) +
         "] custom-call(" + std::string(operands) + "), custom_call_target=\"C\"\n";
}
const std::string p = "p = u8[256] parameter(0)\n";

const std::string t7_1 = entry(
    "x = f32[64] parameter(0)\n u = f32[64] abs(x)\n v = f32[64] exponential(x)\n s = f32[64] "
    "add(u, v)\n t = f32[64] negate(v)\n"
    " ROOT r = f32[64] subtract(s, t)\n");
const std::string t7_2 = entry(
    "q = f32[1024] parameter(0)\n m0 = f32[1024] copy(q)\n m1 = f32[1024] copy(q)\n tp = "
    "(f32[1024], f32[1024]) tuple(m0, m1)\n"
    "g0 = f32[1024] get-tuple-element(tp), index=0\n g1 = f32[1024] get-tuple-element(tp), "
    "index=1\n w = f32[1024] add(g0, g1)\n"
    "y1 = f32[1024] add(w, g1)\n y2 = f32[1024] add(w, w)\n y3 = f32[1024] add(y2, y2)\n"
    "ROOT root = (f32[1024], f32[1024], f32[1024]) tuple(y1, y2, y3)\n");
const std::string t7_3 =
    entry(p + call("a", 512, "p") + call("b", 1536, "a") + call("c", 1536, "b") +
          call("d", 256, "a") + call("z", 256, "c, d", true));
const std::string t7_4 = entry(p + call("a", 1536, "p") + call("b", 1536, "p, a") +
                               call("c", 1024, "p") + call("d", 1024, "c, b", true));
const std::string t7_5 =
    entry(p + call("a", 1024, "p") + call("b", 512, "p") + call("c", 256, "a") +
          call("d", 1536, "b") + call("z", 256, "c, d", true));
const std::string t7_6 =
    entry(p + call("a", 256, "p") + call("b", 512, "p") + call("c", 512, "p, a") +
          call("d", 256, "b") + call("z", 256, "c, d", true));

/// Work in two callees: depth-first is best in the first, list in the second.
const std::string two_callees =
    "HloModule m\nfirst {\n" + p + call("a", 1536, "p") + call("b", 1536, "p, a") +
    call("c", 1024, "p") + call("d", 512, "c, b", true) +
    "}\nsecond {\nq = u8[512] parameter(0)\n" + call("e", 512, "q") + call("f", 1536, "e") +
    call("g", 1536, "f") + call("h", 256, "e") + call("z", 256, "g, h", true) +
    "}\nENTRY main {\n x = u8[256] parameter(0)\n k = u8[512] call(x), to_apply=first\n ROOT l = "
    "u8[256] call(k), to_apply=second\n}\n";

}  // namespace

TEST_CASE("schedule_module: T7.1 T7.2 T7.3 T7.4 T7.5 T7.6 read as HLO give XLA's choice, order and peak") {
  const struct {
    const std::string& text;
    std::size_t chosen;
    Bytes peak;
    std::string_view order;
  } table[] = {{t7_1, 1, 768, "x v u s t r"},  {t7_2, 0, 16408, "q m1 m0 tp g1 g0 w y1 y2 y3 root"},
               {t7_3, 0, 3584, "p a d b c z"}, {t7_4, 1, 3840, "p a b c d"},
               {t7_5, 2, 2560, "p a c b d z"}, {t7_6, 0, 1536, ""}};
  for (const auto& row : table) {
    const Case c(row.text);
    const Result<ModuleComparison> all = compare_schedules(c.module, c.values, xla);
    REQUIRE(all.ok());
    CHECK(all->chosen == row.chosen);
    CHECK(total(all->schedule) == row.peak);
    if (!row.order.empty()) CHECK(c.order(all->schedule) == row.order);
  }
  const Case c(t7_6);
  CHECK(total(*schedule_module(c.module, c.values, ScheduleSearch<>{}, xla)) == 1280);
}

TEST_CASE("schedule_module: T7.9 the send-done comes before the negates") {
  const Case c(
      entry("x = f32[64] parameter(0)\n t = token[] after-all()\n n1 = f32[64] negate(x)\n n2 = "
            "f32[64] negate(n1)\n n3 = f32[64] negate(n2)\n"
            "s = (f32[64], u32[], token[]) send(x, t), channel_id=1, is_host_transfer=true\n"
            "d = token[] send-done(s), channel_id=1, is_host_transfer=true\n ROOT r = f32[64] "
            "negate(n3)\n"));
  const std::string order = c.order(*schedule_module(c.module, c.values, ScheduleList{true}, xla));
  CHECK(order.find(" d ") < order.find(" n1 "));
}

TEST_CASE(
    "schedule_module: T7.12 descheduling says whether there was a schedule; a schedule that is "
    "applied counts as one") {
  Case c(t7_1);
  CHECK_FALSE(deschedule(c.module));
  ModuleSchedule s = *schedule_module(c.module, c.values, ScheduleDfs{});
  apply_schedule(c.module, std::move(s));
  CHECK(c.module.is_scheduled);
  CHECK(c.module[c.module.instructions_of(c.module.entry)[1]].name == "v");
  CHECK(deschedule(c.module));
  CHECK_FALSE(deschedule(c.module));
}

TEST_CASE("schedule_module: T7.13 a post-processor is applied before the peak is taken") {
  struct SwapAfterDfs {
    Result<Schedule> operator()(const Graph& graph) const {
      Schedule s = *ScheduleDfs{}(graph);
      std::swap(s.order[2], s.order[4]);  // x v u s t r becomes x v t s u r, and then
      std::swap(s.order[3],
                s.order[4]);  // x v t u s r; the peak it tells is still that of the order before
      return s;
    }
  };
  const Case c(t7_1);
  const Result<ModuleSchedule> s = schedule_module(c.module, c.values, SwapAfterDfs{}, xla);
  REQUIRE(s.ok());
  CHECK(total(*s) == 1024);
  CHECK(c.order(*s) == "x v t u s r");
}

TEST_CASE("schedule_module: an order that is none is refused") {
  struct Reverse {
    Result<Schedule> operator()(const Graph& graph) const {
      Schedule s = *ScheduleAsGiven{}(graph);
      std::swap(s.order.front(), s.order.back());
      return s;
    }
  };
  const Case c(t7_1);
  CHECK(schedule_module(c.module, c.values, Reverse{}).error().code == Errc::invalid_argument);
}

TEST_CASE(
    "schedule_module: a callee's peak counts where it is called, and each computation gets its own "
    "best order") {
  const Case c(two_callees);
  const Result<ModuleComparison> one = compare_schedules(c.module, c.values, xla);
  const Result<ModuleSchedule> each = schedule_module(c.module, c.values, ScheduleBest{true}, xla);
  REQUIRE(one.ok());
  REQUIRE(each.ok());
  CHECK(each->needs[0].peak == 3072);
  CHECK(each->needs[1].peak == 3328);
  CHECK(each->peak == 512 + 3328);
  CHECK(one->peaks[0] == 4096);        // of the first callee
  CHECK(one->peaks[1] == 512 + 3584);  // of the second, beside the result of the first
  CHECK(one->schedule.peak == 4096);
  const Result<ModuleSchedule> given = schedule_module(c.module, c.values, ScheduleAsGiven{}, xla);
  CHECK(given->instruction_ids == c.module.instruction_ids);
}

TEST_CASE("schedule_module: case 19 as HLO, with parameters and root as the case counts them") {
  const std::pair<const char*, Bytes> files[] = {
      {"ten_nodes", 31000}, {"weight_gradients", 55000}, {"concat_underflow", 18432}};
  for (const auto& [name, best] : files) {
    const std::string path = shared_path(std::string("cases/19-scheduler-peak/") + name + ".hlo");
    if (path.empty()) return;
    const Case c(read_file(path));
    const ModuleGraphOptions options{.alignment = 1, .outputs_held = false};
    const ModuleSchedule s = *schedule_module(c.module, c.values, ScheduleSearch<>{}, options);
    CHECK(s.peak == best);
    CHECK(s.proven_optimal);
    CHECK(schedule_module(c.module, c.values, ScheduleBest{}, options)->peak <=
          schedule_module(c.module, c.values, ScheduleAsGiven{}, options)->peak);
  }
}

TEST_CASE(
    "schedule_module: on real modules best beats each classic scheduler and search beats best") {
  const char* files[] = {"mlp_train_sgd/after.hlo",       "stencil3d_wave/after.hlo",
                         "gpu_mlp_train_sgd/after.hlo",   "gpu_moe_train/after.hlo",
                         "lstm_scan_train/after.hlo.xz",  "moe_train/after.hlo",
                         "newton_cg_nested/after.hlo.xz", "spmd_pipeline/after.hlo",
                         "dlrm_train/after.hlo.xz",       "gpu_host_offload_activations/after.hlo"};
  for (const char* file : files) {
    const std::string path = shared_path(std::string("data/hlo/") + file);
    if (path.empty()) return;
    const Case c(read_file(path));
    const Bytes best = schedule_module(c.module, c.values, ScheduleBest{})->peak;
    CHECK(best <= schedule_module(c.module, c.values, ScheduleList{true})->peak);
    CHECK(best <= schedule_module(c.module, c.values, ScheduleDfs{})->peak);
    CHECK(best <= schedule_module(c.module, c.values, SchedulePostOrder{})->peak);
    CHECK(best <= schedule_module(c.module, c.values, ScheduleBfs{})->peak);
    CHECK(best <= schedule_module(c.module, c.values, ScheduleAsGiven{})->peak);
    const ModuleSchedule s = *schedule_module(c.module, c.values, ScheduleSearch<>{1000});
    CHECK(s.peak <= best);
    CHECK(s.lower_bound <= s.peak);
    if (quick()) return;
  }
}
