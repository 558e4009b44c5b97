// SPDX-License-Identifier: Apache-2.0
#include "holdfast/hlo/parser.hpp"

#include <cstdint>
#include <string>

#include <benchmark/benchmark.h>
#include <malloc.h>

#include "holdfast/hlo/printer.hpp"

namespace {

using namespace holdfast;

/// One computation of additions with the metadata that JAX writes: about 130 bytes an instruction.
std::string chain(std::int64_t instructions) {
  std::string text =
      "HloModule chain, is_scheduled=true\n\nENTRY %main {\n  %add.0 = f32[128,1024]{1,0} "
      "parameter(0)\n";
  for (std::int64_t i = 1; i < instructions; ++i)
    text += "  %add." + std::to_string(i) + " = f32[128,1024]{1,0} add(%add." +
            std::to_string(i - 1) + ", %add." + std::to_string(i * 7 / 8) +
            "), metadata={op_name=\"jit(train_step)/transpose(jvp())/add_any\" stack_frame_id=" +
            std::to_string(i % 5000 + 1) + "}\n";
  return text + "}\n";
}

/// Small fused computations, each called once, as optimised modules have them.
std::string fusions(std::int64_t instructions) {
  std::string text = "HloModule fusions, is_scheduled=true\n\n";
  std::string main = "ENTRY %main {\n  %f.0 = f32[32,128]{1,0} parameter(0)\n";
  for (std::int64_t i = 1; i * 4 < instructions; ++i) {
    const std::string n = std::to_string(i);
    text += "%fused." + n + " (p." + n + ": f32[32,128]) -> f32[32,128] {\n  %p." + n +
            " = f32[32,128]{1,0} parameter(0)\n  %t." + n + " = f32[32,128]{1,0} tanh(%p." + n +
            ")\n  ROOT %a." + n + " = f32[32,128]{1,0} add(%p." + n + ", %t." + n +
            "), metadata={op_name=\"jit(f)/add\" stack_frame_id=7}\n}\n\n";
    main += "  %f." + n + " = f32[32,128]{1,0} fusion(%f." + std::to_string(i - 1) +
            "), kind=kLoop, calls=%fused." + n + "\n";
  }
  return text + main + "}\n";
}

/// Constants of many numbers: text that nobody looks at.
std::string constants(std::int64_t numbers) {
  std::string text = "HloModule constants\n\nENTRY %main {\n  ROOT %c = f32[" +
                     std::to_string(numbers) + "]{0} constant({0";
  for (std::int64_t i = 1; i < numbers; ++i) text += ", -1.5e-0" + std::to_string(i % 10);
  return text + "})\n}\n";
}

std::size_t heap_bytes() {
  const struct mallinfo2 m = mallinfo2();
  return m.uordblks + m.hblkhd;
}

template <std::string (*Make)(std::int64_t)>
void parse(benchmark::State& state) {
  const std::string text = Make(state.range(0));
  std::size_t bytes = 0, instructions = 0;
  for (auto _ : state) {
    const std::size_t before = heap_bytes();
    const Result<Module> m = parse_hlo_text(text);
    if (!m.ok()) return state.SkipWithError(m.error().what);
    bytes = heap_bytes() - before;
    instructions = m->instructions.size();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(text.size()) *
                          static_cast<std::int64_t>(state.iterations()));
  state.counters["instructions/s"] = benchmark::Counter(
      static_cast<double>(instructions), benchmark::Counter::kIsIterationInvariantRate);
  state.counters["bytes/instruction"] =
      static_cast<double>(bytes) / static_cast<double>(instructions);
}
BENCHMARK(parse<chain>)
    ->Name("Module/parse_hlo_text/chain")
    ->RangeMultiplier(10)
    ->Range(1000, 1000000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(parse<fusions>)
    ->Name("Module/parse_hlo_text/fusions")
    ->RangeMultiplier(10)
    ->Range(1000, 1000000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(parse<constants>)
    ->Name("Module/parse_hlo_text/constant")
    ->Arg(1000000)
    ->Unit(benchmark::kMillisecond);

struct CountSink {
  std::size_t bytes = 0;
  Error write(std::string_view part) noexcept {
    bytes += part.size();
    return {};
  }
};

void print(benchmark::State& state) {
  const std::string text = chain(state.range(0));
  const Result<Module> m = parse_hlo_text(text);
  CountSink out;
  for (auto _ : state) benchmark::DoNotOptimize(print_hlo_text(*m, out).ok());
  state.SetBytesProcessed(static_cast<std::int64_t>(out.bytes));
}
BENCHMARK(print)->Name("Module/print_hlo_text/chain")->Arg(100000)->Unit(benchmark::kMillisecond);

}  // namespace
