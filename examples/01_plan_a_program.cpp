// SPDX-License-Identifier: Apache-2.0
// Plans the memory of a program given as HLO text: here at compile time, with the same calls at run
// time.
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "holdfast/hlo/parser.hpp"
#include "holdfast/plan/plan_module.hpp"
#include "holdfast/plan/plan_offsets.hpp"

using namespace holdfast;

// A step of gradient descent; the weights `w` are donated: the new ones live in their memory.
constexpr std::string_view text = R"(
HloModule step, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY step {
  w = f32[256,64] parameter(0)
  x = f32[32,256] parameter(1)
  y = f32[32,64] parameter(2)
  product = f32[32,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  error = f32[32,64] subtract(product, y)
  gradient = f32[256,64] dot(x, error), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  new_w = f32[256,64] subtract(w, gradient)
  ROOT out = (f32[256,64], f32[32,64]) tuple(new_w, error)
})";

struct Figures {
  Bytes peak = 0, temporaries = 0, lower_bound = 0;
};

constexpr Result<Figures> plan(std::string_view program) {
  Result<Module> module = parse_hlo_text(program);
  if (!module.ok()) return module.error();  // has line and column
  ModulePlan p(std::move(*module));
  Error e = p.analyze();
  if (e.ok()) e = p.plan(PlanOffsets{});
  if (!e.ok()) return e;
  return Figures{p.summary.peak_bytes, p.summary.heap_bytes, p.summary.lower_bound_bytes};
}

// 65536 (w, updated in place) + 32768 (x) + 8192 (y) + 8192 (error, in which the product was) + 16
// (the tuple's table)
// + 65536 (the gradient).
static_assert(plan(text)->peak == 180240 && plan(text)->temporaries == 65536);

int main() {
  const Result<Figures> figures = plan(text);
  if (!figures.ok()) return EXIT_FAILURE;
  std::printf("peak %lld bytes, of these %lld temporary (at least %lld)\n",
              static_cast<long long>(figures->peak), static_cast<long long>(figures->temporaries),
              static_cast<long long>(figures->lower_bound));
}
