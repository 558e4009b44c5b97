// SPDX-License-Identifier: Apache-2.0
// A small model with its memory plan in the binary: offsets are constants in read-only data, all
// values lie in one static arena, and nothing is allocated while it runs.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>
#include <utility>

#include "holdfast/hlo/parser.hpp"
#include "holdfast/plan/plan_module.hpp"
#include "holdfast/plan/plan_offsets.hpp"

using namespace holdfast;

constexpr std::string_view text = R"(
HloModule perceptron, is_scheduled=true
ENTRY perceptron {
  x = f32[16] parameter(0)
  w = f32[16,16] parameter(1)
  a = f32[16] dot(w, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[16] multiply(a, a)
  c = f32[16] dot(w, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d = f32[16] add(c, a)
  ROOT y = f32[16] dot(w, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})";
constexpr std::size_t instructions = 7;

/// What runs, in order: where operands are read and the result is written, in bytes of the arena.
struct Operation {
  Opcode opcode = Opcode::parameter;
  std::array<Bytes, 2> operands = {};
  Bytes result = 0;
};
struct Program {
  std::array<Operation, instructions> operations = {};
  Bytes x = 0, w = 0, y = 0, arena = 0;
};

// Parameters and the result get their places above the temporaries.
constexpr Program compile() {
  ModulePlan p(*parse_hlo_text(text));
  if (!p.analyze().ok() || !plan_lowest(p, PlanOffsets{}).ok()) return {};
  std::array<Bytes, instructions> place = {};
  Program out{.arena = p.summary.heap_bytes};
  std::size_t k = 0;
  for (const InstructionId id : p.module.instructions_of(p.module.entry)) {
    const Location l = p.assignment.locations[index_of(p.values.value(id))];
    Bytes& at = place[index_of(id)];
    at = l.offset;
    if (l.base != Location::Base::arena)
      at = std::exchange(out.arena, out.arena + p.module.shapes.byte_size(p.module[id].shape));
    Operation& s = out.operations[k++];
    s.opcode = p.module[id].opcode;
    s.result = at;
    std::size_t o = 0;
    for (const InstructionId in : p.module.operands(p.module[id]))
      s.operands[o++] = place[index_of(in)];
  }
  out.x = place[index_of(p.module.parameters_of(p.module.entry)[0])];
  out.w = place[index_of(p.module.parameters_of(p.module.entry)[1])];
  out.y = place[index_of(p.module[p.module.entry].root)];
  return out;
}
constexpr Program program = compile();
static_assert(program.arena == 1024 + 2 * 64 + 3 * 64);  // w, x and y, three temporaries at a time

alignas(64) std::byte arena[program.arena];
bool running = false;
void* operator new(std::size_t size) { return running ? std::abort(), nullptr : std::malloc(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

float* at(Bytes offset) { return reinterpret_cast<float*>(arena + offset); }

int main() {
  running = true;
  std::fill_n(at(program.x), 16, 0.5f);
  std::fill_n(at(program.w), 256, 0.0625f);  // each row gives the mean
  for (const Operation& s : program.operations) {
    const float* a = at(s.operands[0]);
    const float* b = at(s.operands[1]);
    float* r = at(s.result);
    for (std::size_t i = 0; i < 16 && s.opcode != Opcode::parameter; ++i) {
      float sum = 0;
      for (std::size_t j = 0; j < 16 && s.opcode == Opcode::dot; ++j) sum += a[16 * i + j] * b[j];
      r[i] = s.opcode == Opcode::dot ? sum : s.opcode == Opcode::add ? a[i] + b[i] : a[i] * b[i];
    }
  }
  const float y = *at(program.y);
  std::printf("y = %g from an arena of %zu bytes, planned by the compiler\n", y, sizeof arena);
  return y == 0.75f ? EXIT_SUCCESS : EXIT_FAILURE;  // mean(0.25 + 0.5)
}
