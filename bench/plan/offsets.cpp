// SPDX-License-Identifier: Apache-2.0
// Offset planners on data/dsa and on generated problems of 1k to 1M blocks: quality and time in one row.
//
// Counters: ratio (peak / lower bound), blocks, us_block; sorts: the time in units of a sort of 2^20 random numbers, the unit of
// data/dsa/reference.json, measured in the same process; bytes_block: heap used at most beyond input and result, a block.
// Where reference.json is at hand (../shared or HOLDFAST_SHARED) also ref_ratio and ref_sorts, of the system that is named behind
// "vs", and ours in parts of those: ratio_part, sorts_part.
#include <benchmark/benchmark.h>

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <new>
#include <string>
#include <vector>

#include "holdfast/plan/offsets_exact.hpp"
#include "holdfast/plan/offsets_fast.hpp"
#include "holdfast/plan/offsets_greedy.hpp"
#include "holdfast/plan/plan_offsets.hpp"
#include "holdfast/plan/validate.hpp"
#include "support/intervals.hpp"

namespace {

// What the planners hold at most: every allocation of this program passes here.
std::size_t held = 0;
std::size_t most_held = 0;

void* take(std::size_t size) {
  void* p = std::malloc(size);
  if (p == nullptr) std::abort();
  held += malloc_usable_size(p);
  most_held = std::max(most_held, held);
  return p;
}
void give(void* p) {
  if (p != nullptr) held -= malloc_usable_size(p);
  std::free(p);
}

}  // namespace

void* operator new(std::size_t size) { return take(size); }
void operator delete(void* p) noexcept { give(p); }
void operator delete(void* p, std::size_t) noexcept { give(p); }

namespace {

using namespace holdfast;

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Seconds of the calibrating sort of data/dsa/calib.cpp, least of 7.
double sort_seconds() {
  static const double seconds = [] {
    double least = 1e9;
    for (int run = 0; run < 7; ++run) {
      std::vector<std::uint64_t> v(1 << 20, 0);
      std::uint64_t s = 88172645463325252ull;
      for (std::uint64_t& x : v) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        x = s;
      }
      const double start = thread_seconds();
      std::sort(v.begin(), v.end());
      least = std::min(least, thread_seconds() - start);
      benchmark::DoNotOptimize(v.data());
    }
    return least;
  }();
  return seconds;
}

std::string read(const std::string& path, const char* command = nullptr) {
  std::FILE* f = command != nullptr ? popen(command, "r") : std::fopen(path.c_str(), "rb");
  if (f == nullptr) return {};
  std::string text;
  char chunk[1 << 16];
  for (std::size_t n = 0; (n = std::fread(chunk, 1, sizeof chunk, f)) > 0;) text.append(chunk, n);
  command != nullptr ? pclose(f) : std::fclose(f);
  return text;
}

std::string dsa(const std::string& relative) {
  const char* shared = std::getenv("HOLDFAST_SHARED");
  return std::string(shared != nullptr ? shared : "../shared") + "/data/dsa/" + relative;
}

std::vector<LiveRange> load(const std::string& relative) {
  const std::string path = dsa(relative);
  const std::string unpack = "gzip -dc '" + path + "' 2>/dev/null";
  return testing::parse_intervals(read(path, path.ends_with(".gz") ? unpack.c_str() : nullptr));
}

/// What `gen.py KIND N SEED ALIGN` makes.
std::vector<LiveRange> generate(const std::string& arguments) {
  const std::string command = "python3 '" + dsa("gen.py") + "' " + arguments + " 2>/dev/null";
  return testing::parse_intervals(read({}, command.c_str()));
}

/// What another system made of an instance, by reference.json.
struct Reference {
  std::string system;
  double ratio = 0;
  double sorts = 0;
};

/// The best of the systems whose name begins with `prefix`: the least ratio, then the least time; without a name if there is none.
Reference reference(const std::string& instance, const std::string& prefix) {
  static const std::string all = read(dsa("reference.json"));
  Reference best;
  std::size_t at = all.find("\n  \"" + instance + "\": {");
  if (at == std::string::npos) return best;
  Reference now;
  for (++at; (at = all.find('\n', at)) != std::string::npos && all.compare(at, 4, "\n  }") != 0; ++at) {
    const auto value = [&](const char* key) -> double {
      const std::string text = std::string("\n     \"") + key + "\": ";
      return all.compare(at, text.size(), text) == 0 ? std::strtod(all.c_str() + at + text.size(), nullptr) : 0;
    };
    if (all.compare(at, 6, "\n    \"") == 0) now = {all.substr(at + 6, all.find('"', at + 6) - at - 6), 0, 0};
    if (const double ratio = value("ratio"); ratio > 0) now.ratio = ratio;
    if (const double sorts = value("cpu_in_sorts"); sorts > 0) now.sorts = sorts;
    if (!now.system.starts_with(prefix) || now.ratio == 0 || now.sorts == 0) continue;
    if (best.system.empty() || now.ratio < best.ratio || (now.ratio == best.ratio && now.sorts < best.sorts)) best = now;
  }
  return best;
}

template <class Planner>
void plan(benchmark::State& state, const std::vector<LiveRange>& ranges, const Planner& planner, const Reference& other = {},
          Bytes capacity = max_bytes) {
  if (ranges.empty()) {
    state.SkipWithError("no data");
    return;
  }
  const OffsetProblem problem{ranges, static_cast<std::uint32_t>(ranges.size()), {}, capacity};
  std::vector<Bytes> offsets(ranges.size(), 0);
  OffsetPlan best;
  double least = 1e9;
  sort_seconds();
  const std::size_t before = held;
  most_held = held;
  for ([[maybe_unused]] auto _ : state) {
    const double start = thread_seconds();
    const auto result = planner(problem, offsets);
    const double seconds = thread_seconds() - start;
    state.SetIterationTime(seconds);
    least = std::min(least, seconds);
    if (!result.ok()) {
      state.SkipWithError(result.error().what);
      return;
    }
    best = *result;
  }
  const std::size_t used = most_held - before;
  if (!validate_offsets(problem, offsets).ok()) state.SkipWithError("the checker refuses the plan");
  const double blocks = static_cast<double>(ranges.size());
  state.counters["blocks"] = blocks;
  state.counters["peak"] = static_cast<double>(best.peak);
  state.counters["bound"] = static_cast<double>(best.lower_bound);
  state.counters["ratio"] = static_cast<double>(best.peak) / static_cast<double>(best.lower_bound);
  state.counters["proven"] = best.proven_optimal;
  state.counters["sorts"] = least / sort_seconds();
  state.counters["us_block"] = least * 1e6 / blocks;
  state.counters["bytes_block"] = static_cast<double>(used) / blocks;
  if (other.system.empty()) return;
  state.SetLabel("vs " + other.system);
  state.counters["ref_ratio"] = other.ratio;
  state.counters["ref_sorts"] = other.sorts;
  state.counters["ratio_part"] = state.counters["ratio"] / other.ratio;
  state.counters["sorts_part"] = state.counters["sorts"] / other.sorts;
}

/// Uniform begins, lifetimes and sizes of many scales: the shape of `gen.py random`.
std::vector<LiveRange> scattered(std::int64_t count) {
  testing::Random random(static_cast<std::uint64_t>(count));
  std::vector<LiveRange> ranges;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = static_cast<std::int64_t>(random(static_cast<std::uint64_t>(count)));
    const std::int64_t width = 1 + static_cast<std::int64_t>(random(1ull << (1 + random(9))));
    ranges.push_back({begin, std::min(begin + width, count + 1), 64 + static_cast<Bytes>(random(1ull << (6 + random(14)))), 1,
                      static_cast<std::uint32_t>(i)});
  }
  return ranges;
}

/// A training step: what the forward pass keeps lives until its turn in the backward pass, temporaries for a step or two.
std::vector<LiveRange> training(std::int64_t count) {
  testing::Random random(7);
  std::vector<LiveRange> ranges;
  const std::int64_t kept = count / 2;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = i < kept ? i : kept + (i - kept);
    const std::int64_t end = i % 2 == 0 && i < kept ? 2 * kept - i + 1 : begin + 1 + static_cast<std::int64_t>(random(3));
    ranges.push_back({begin, end, 256 * (1 + static_cast<Bytes>(random(64))), 256, static_cast<std::uint32_t>(i)});
  }
  return ranges;
}

/// The ratio of the better online rule, the time of best fit.
Reference online(const std::string& instance) {
  Reference r = reference(instance, "online");
  r.sorts = reference(instance, "online_bestfit").sorts;
  return r;
}

const char* const real_files[] = {
    "mindspore/resnet50.csv",       "mindspore/pangu_2.6B.csv.gz",      "iopddl/G_1.csv",
    "iopddl/B_max.csv",             "iopddl/S_1.csv.gz",                "iopddl/Y_1.csv.gz",
    "xla/xla_train_4.csv",          "xla/xla_train_12.csv",             "xla/xla_trinf_16.csv",
    "xla/xla_conv_12.csv",          "xla/xla_conv_24.csv",              "synth/transformer_1000_a256.csv",
    "synth/convnet_1000_a256.csv",  "synth/infer_1000_a64.csv",         "synth/moe_1000_a64.csv",
    "synth/pipeline_1000_a256.csv", "synth/random_1000_a1.csv",         "synth/cut_200_a1.csv",
    "synth/cut_400_a1.csv",         "synth/cut_1000_a1.csv",            "synth/transformer_10000_a256.csv.gz",
    "synth/infer_10000_a64.csv.gz", "synth/pipeline_10000_a256.csv.gz", "synth/random_10000_a1.csv.gz",
    "synth/transformer_100000_a256.csv.gz"};

const char* const generated[][2] = {{"random_100000_a1", "random 100000 36 1"}, {"random_1000000_a1", "random 1000000 46 1"}};

/// Lives that begin and end anywhere: a third of all blocks is alive at once.
std::vector<LiveRange> lasting(std::int64_t count) {
  testing::Random random(static_cast<std::uint64_t>(count) + 1);
  std::vector<LiveRange> ranges;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t a = static_cast<std::int64_t>(random(static_cast<std::uint64_t>(count)));
    const std::int64_t b = static_cast<std::int64_t>(random(static_cast<std::uint64_t>(count)));
    ranges.push_back({std::min(a, b), std::max(a, b) + 1, 64 + static_cast<Bytes>(random(1ull << (6 + random(14)))), 1,
                      static_cast<std::uint32_t>(i)});
  }
  return ranges;
}

const bool registered = [] {
  const auto add = [](const std::string& name, auto body) {
    // As often as for reference.json: fast ones 25 times.
    const int times = name.starts_with("FastPlanner/") && !name.ends_with("000000") ? 25 : 3;
    benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime()->Iterations(times)->Unit(benchmark::kMillisecond);
  };
  constexpr GreedyPlanner greedy{PlacementOrder::size, Fit::lowest};
  for (const char name : std::string("ABCDEFGHIJK")) {
    const std::string file = std::string("minimalloc/") + name + ".1048576.csv";
    add(std::string("PlanOffsets/capacity_1048576/") + name, [=](benchmark::State& s) {
      plan(s, load(file), PlanOffsets<>{}, reference(file, "minimalloc_fit"), 1048576);
    });
    add("FastPlanner/plan/" + file, [=](benchmark::State& s) { plan(s, load(file), FastPlanner{}, online(file)); });
  }
  for (const std::string file : real_files) {
    add("FastPlanner/plan/" + file, [=](benchmark::State& s) { plan(s, load(file), FastPlanner{}, online(file)); });
    add("PlanOffsets/plan/" + file, [=](benchmark::State& s) { plan(s, load(file), PlanOffsets<>{}, reference(file, "")); });
    add("GreedyPlanner/size_lowest/" + file,
        [=](benchmark::State& s) { plan(s, load(file), greedy, reference(file, "size_firstfit")); });
  }
  for (const auto& [name, arguments] : generated) {
    const std::string instance = std::string("(generated, not kept) ") + name + ".csv";
    const std::string how = arguments;
    add(std::string("FastPlanner/plan/") + name,
        [=](benchmark::State& s) { plan(s, generate(how), FastPlanner{}, online(instance)); });
    add(std::string("PlanOffsets/plan/") + name,
        [=](benchmark::State& s) { plan(s, generate(how), PlanOffsets<>{}, reference(instance, "")); });
    add(std::string("GreedyPlanner/size_lowest/") + name,
        [=](benchmark::State& s) { plan(s, generate(how), greedy, reference(instance, "size_firstfit")); });
  }
  for (const std::int64_t count : {1'000, 10'000, 100'000, 1'000'000}) {
    const std::string n = "/" + std::to_string(count);
    const auto all = [&](const std::string& shape, auto make) {
      add("FastPlanner/" + shape + n, [=](benchmark::State& s) { plan(s, make(count), FastPlanner{}); });
      add("PlanOffsets/" + shape + n, [=](benchmark::State& s) { plan(s, make(count), PlanOffsets<>{}); });
      add("GreedyPlanner/" + shape + n, [=](benchmark::State& s) { plan(s, make(count), greedy); });
    };
    all("scattered", scattered);
    all("training", training);
    if (count <= 100'000) all("lasting", lasting);
  }
  return true;
}();

}  // namespace
