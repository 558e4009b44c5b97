// SPDX-License-Identifier: Apache-2.0
// Offset planners on data/dsa and on generated problems of 1k to 1M blocks: quality and time in one row.
//
// Counters: ratio (peak / lower bound), blocks, us_block; sorts: the time in units of a sort of 2^20 random numbers, the unit of
// data/dsa/reference.json, measured in the same process; bytes_block: heap used at most beyond input and result, a block.
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

template <class Planner>
void plan(benchmark::State& state, const std::vector<LiveRange>& ranges, const Planner& planner, Bytes capacity = max_bytes) {
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
}

std::vector<LiveRange> load(const std::string& relative) {
  const char* shared = std::getenv("HOLDFAST_SHARED");
  const std::string path = std::string(shared != nullptr ? shared : "../shared") + "/data/dsa/" + relative;
  std::FILE* f = path.ends_with(".gz") ? popen(("gzip -dc '" + path + "' 2>/dev/null").c_str(), "r") : std::fopen(path.c_str(), "rb");
  if (f == nullptr) return {};
  std::string text;
  char chunk[1 << 16];
  for (std::size_t n = 0; (n = std::fread(chunk, 1, sizeof chunk, f)) > 0;) text.append(chunk, n);
  path.ends_with(".gz") ? pclose(f) : std::fclose(f);
  return testing::parse_intervals(text);
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

const bool registered = [] {
  const auto add = [](const std::string& name, auto body) {
    benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime()->Iterations(3)->Unit(benchmark::kMillisecond);
  };
  for (const char name : std::string("ABCDEFGHIJK")) {
    const std::string file = std::string("minimalloc/") + name + ".1048576.csv";
    add(std::string("PlanOffsets/capacity_1048576/") + name,
        [file](benchmark::State& s) { plan(s, load(file), PlanOffsets<>{}, 1048576); });
    add(std::string("FastPlanner/plan/") + name, [file](benchmark::State& s) { plan(s, load(file), FastPlanner{}); });
  }
  for (const char* file : real_files) {
    add(std::string("FastPlanner/plan/") + file, [file](benchmark::State& s) { plan(s, load(file), FastPlanner{}); });
    add(std::string("PlanOffsets/plan/") + file, [file](benchmark::State& s) { plan(s, load(file), PlanOffsets<>{}); });
    add(std::string("GreedyPlanner/size_lowest/") + file, [file](benchmark::State& s) {
      plan(s, load(file), GreedyPlanner{PlacementOrder::size, Fit::lowest});
    });
  }
  for (const std::int64_t count : {1'000, 10'000, 100'000, 1'000'000}) {
    const std::string n = "/" + std::to_string(count);
    add("FastPlanner/scattered" + n, [count](benchmark::State& s) { plan(s, scattered(count), FastPlanner{}); });
    add("FastPlanner/training" + n, [count](benchmark::State& s) { plan(s, training(count), FastPlanner{}); });
    add("GreedyPlanner/scattered" + n,
        [count](benchmark::State& s) { plan(s, scattered(count), GreedyPlanner{PlacementOrder::size, Fit::lowest}); });
    add("GreedyPlanner/training" + n,
        [count](benchmark::State& s) { plan(s, training(count), GreedyPlanner{PlacementOrder::size, Fit::lowest}); });
  }
  return true;
}();

}  // namespace
