// SPDX-License-Identifier: Apache-2.0
#include "holdfast/hlo/proto_reader.hpp"

#include <cstdint>
#include <string>

#include <benchmark/benchmark.h>
#include <malloc.h>

namespace {

using namespace holdfast;

/// One chain of additions with the metadata that JAX writes: about 300 bytes an instruction
/// (hlo-format.md R.18).
WireWriter make_module(std::int64_t instructions) {
  WireWriter shape, layout;
  shape.number(2, static_cast<std::int64_t>(ElementType::f32));
  const std::int64_t dims[] = {128, 1024};
  const std::int64_t order[] = {1, 0};
  shape.numbers(3, dims);
  layout.numbers(1, order);
  shape.message(5, layout);
  WireWriter computation, instruction, metadata;
  computation.text(1, "main");
  for (std::int64_t i = 1; i <= instructions; ++i) {
    instruction.clear();
    metadata.clear();
    instruction.text(1, (i == 1 ? "parameter." : "add_multiply_fusion.") + std::to_string(i));
    instruction.text(2, i == 1 ? "parameter" : "add");
    instruction.message(3, shape);
    metadata.text(1, "add");
    metadata.text(2, "jit(train_step)/jit(main)/transpose(jvp(Transformer))/layer_" +
                         std::to_string(i % 96) + "/attention/query_key_value/add_any");
    metadata.text(3, "/home/user/project/models/transformer/attention_blocks.py");
    metadata.number(4, 100 + i % 900);
    metadata.number(15, i % 5000 + 1);
    instruction.message(7, metadata);
    instruction.number(35, i);
    const std::int64_t operands[] = {i - 1, i > 2 ? i - 2 : 1};
    if (i > 1) instruction.numbers(36, operands);
    instruction.message(68, std::string_view{});
    instruction.message(82, std::string_view{});
    computation.message(2, instruction);
  }
  computation.number(5, 1);
  computation.number(6, instructions);
  WireWriter module, file, program;
  program.message(1, shape), program.message(2, shape);
  module.text(1, "generated");
  module.text(2, "main");
  module.message(3, computation);
  module.message(4, program);
  module.number(6, 1);
  file.message(1, module);
  return file;
}

std::size_t heap_bytes() {
  const struct mallinfo2 m = mallinfo2();
  return m.uordblks + m.hblkhd;
}

/// Reads modules of n instructions; `bytes/file` is what the module takes beside the file, in units
/// of its size.
void parse_proto(benchmark::State& state) {
  const WireWriter file = make_module(state.range(0));
  double factor = 0;
  for (auto _ : state) {
    const std::size_t before = heap_bytes();
    const Result<Module> m = parse_hlo_proto(file.bytes());
    if (!m.ok() || m->instructions.size() != static_cast<std::size_t>(state.range(0)))
      state.SkipWithError("not read");
    factor = static_cast<double>(heap_bytes() - before) / static_cast<double>(file.bytes().size());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(file.bytes().size()));
  state.counters["file_bytes"] = static_cast<double>(file.bytes().size());
  state.counters["bytes/file"] = factor;
  state.counters["ns/instruction"] =
      benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)) / 1e9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(parse_proto)
    ->Name("ProtoReader/parse/chain")
    ->RangeMultiplier(10)
    ->Range(1000, 1'000'000)
    ->Unit(benchmark::kMillisecond);

/// The floor: walking the same bytes field by field without keeping anything.
std::uint64_t walk(std::string_view message, int depth) {
  std::uint64_t sum = 0;
  WireReader reader(message);
  for (WireField f; reader.next(f);)
    sum += f.kind == WireKind::bytes && depth > 0 ? walk(f.bytes, depth - 1)
                                                  : f.value + f.bytes.size();
  return sum;
}
void walk_proto(benchmark::State& state) {
  const WireWriter file = make_module(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(walk(file.bytes(), 3));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(file.bytes().size()));
}
BENCHMARK(walk_proto)
    ->Name("ProtoReader/floor/walk")
    ->Arg(1'000'000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
