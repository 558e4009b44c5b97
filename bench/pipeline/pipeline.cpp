// SPDX-License-Identifier: Apache-2.0
// From text to liveness and offsets on generated modules of 1k to 1M instructions: time and memory an instruction.
// Growth is at most n log n when instructions a second (`items_per_second`) fall no faster than the logarithm grows.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "holdfast/hlo/parser.hpp"
#include "holdfast/plan/buffer_assignment.hpp"
#include "holdfast/plan/plan_offsets.hpp"

namespace {

std::atomic<std::size_t> live_bytes{0};
std::atomic<std::size_t> peak_bytes{0};

}  // namespace

void* operator new(std::size_t size) {
  void* const p = std::malloc(size);
  if (p == nullptr) std::abort();
  const std::size_t live = live_bytes += malloc_usable_size(p);
  if (live > peak_bytes) peak_bytes = live;
  return p;
}
void operator delete(void* p) noexcept {
  live_bytes -= malloc_usable_size(p);
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }

namespace {

using namespace holdfast;

/// Each instruction reads the one before it.
std::string chain(int n) {
  std::string text = "HloModule chain, is_scheduled=true\nENTRY e {\n  v0 = f32[256]{0} parameter(0)\n";
  for (int k = 1; k < n; ++k)
    text += "  " + std::string(k + 1 == n ? "ROOT " : "") + "v" + std::to_string(k) + " = f32[256]{0} dot(v" + std::to_string(k - 1) + ", v0)\n";
  return text + "}\n";
}

/// All read one value, and one tuple returns them all.
std::string fan_out(int n) {
  std::string text = "HloModule fan, is_scheduled=true\nENTRY e {\n  p = f32[256]{0} parameter(0)\n  v = f32[256]{0} exponential(p)\n";
  std::string names;
  std::string shape;
  for (int k = 0; k < n - 3; ++k) {
    const std::string name = "w" + std::to_string(k);
    text += "  " + name + " = f32[64]{0} slice(v), slice={[0:64]}\n";
    names += (k ? ", " : "") + name;
    shape += k ? ", f32[64]{0}" : "f32[64]{0}";
  }
  return text + "  ROOT t = (" + shape + ") tuple(" + names + ")\n}\n";
}

/// Computations of four instructions, each calling the one before twice.
std::string deep_calls(int n) {
  std::string text = "HloModule deep, is_scheduled=true\nfn0 {\n  p0 = f32[256]{0} parameter(0)\n  ROOT r0 = f32[256]{0} exponential(p0)\n}\n";
  const int depth = n / 4;
  for (int k = 1; k <= depth; ++k) {
    const std::string s = std::to_string(k);
    const std::string callee = "fn" + std::to_string(k - 1);
    text += (k == depth ? "ENTRY fn" : "fn") + s + " {\n  p" + s + " = f32[256]{0} parameter(0)\n  a" + s + " = f32[256]{0} call(p" + s + "), to_apply=" + callee +
            "\n  b" + s + " = f32[256]{0} dot(a" + s + ", p" + s + ")\n  ROOT r" + s + " = f32[256]{0} call(b" + s + "), to_apply=" + callee + "\n}\n";
  }
  return text;
}

void run(benchmark::State& state, std::string (*make)(int), bool with_offsets) {
  const std::string text = make(static_cast<int>(state.range(0)));
  std::size_t peak = 0;
  Bytes heap = 0;
  for (auto _ : state) {
    const std::size_t before = live_bytes;
    peak_bytes = before;
    Result<Module> module = parse_hlo_text(text);
    if (!module.ok()) return state.SkipWithError(module.error().what);
    const Result<ValueTable> values = analyze_values(*module);
    if (!values.ok()) return state.SkipWithError(values.error().what);
    const Result<Liveness> live = analyze_liveness(*module, *values);
    if (!live.ok()) return state.SkipWithError(live.error().what);
    if (with_offsets) {
      BufferSet buffers(*module, *values, *live);
      const Result<BufferAssignment> plan = assign_buffers(*module, *live, buffers, PlanOffsets{});
      if (!plan.ok()) return state.SkipWithError(plan.error().what);
      heap = plan->entry_arenas().empty() ? 0 : plan->entry_arenas()[0].size;
    }
    benchmark::DoNotOptimize(live->pieces.data());
    peak = peak_bytes - before;
  }
  const double n = static_cast<double>(state.range(0));
  state.SetItemsProcessed(state.iterations() * state.range(0));  // items_per_second: instructions a second
  state.counters["bytes_per_instruction"] = static_cast<double>(peak) / n;
  state.counters["text_bytes_per_instruction"] = static_cast<double>(text.size()) / n;
  if (with_offsets) state.counters["heap_bytes"] = static_cast<double>(heap);
}

#define SIZES RangeMultiplier(10)->Range(1000, 1000000)->Unit(benchmark::kMillisecond)
BENCHMARK_CAPTURE(run, Liveness/from_text/chain, chain, false)->SIZES;
BENCHMARK_CAPTURE(run, Liveness/from_text/fan_out, fan_out, false)->SIZES;
BENCHMARK_CAPTURE(run, Liveness/from_text/deep_calls, deep_calls, false)->SIZES;
BENCHMARK_CAPTURE(run, BufferAssignment/from_text/chain, chain, true)->SIZES;
BENCHMARK_CAPTURE(run, BufferAssignment/from_text/fan_out, fan_out, true)->SIZES;
BENCHMARK_CAPTURE(run, BufferAssignment/from_text/deep_calls, deep_calls, true)->SIZES;

}  // namespace


