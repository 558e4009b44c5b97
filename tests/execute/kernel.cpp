// SPDX-License-Identifier: Apache-2.0
#include "holdfast/execute/kernel.hpp"

#include <doctest/doctest.h>

#include "execute/planned_text.hpp"

using namespace holdfast;
using holdfast::testing::PlannedText;

namespace {

struct Nothing : ProgramControl {
  static Error run(const KernelCall&) noexcept { return {}; }
  static Error fill_constant(const KernelArray&) noexcept { return {}; }
};
static_assert(plan_kernel<Nothing> && !watching_kernel<Nothing>);
struct Throws : Nothing {
  static Error run(const KernelCall&) { return {}; }  // not noexcept
};
static_assert(!plan_kernel<Throws>);
struct NoConstants : ProgramControl {
  static Error run(const KernelCall&) noexcept { return {}; }
};
static_assert(!plan_kernel<NoConstants>);
struct NoControl {
  static Error run(const KernelCall&) noexcept { return {}; }
  static Error fill_constant(const KernelArray&) noexcept { return {}; }
};
static_assert(!plan_kernel<NoControl>);

}  // namespace

TEST_CASE("kernel: a program's own index chooses the branch, one out of range the last") {
  const PlannedText p(R"(
HloModule m, is_scheduled=true
one { ROOT p = s32[] parameter(0) }
two { ROOT p = s32[] parameter(0) }
three { ROOT p = s32[] parameter(0) }
ENTRY e {
  i = s32[] parameter(0)
  ROOT c = s32[] conditional(i, i, i, i), branch_computations={one, two, three}
})");
  std::int32_t index = 0;
  const KernelArray array{
      p.find("i"), 0, 0, p.module[p.find("i")].shape, {reinterpret_cast<std::byte*>(&index), 4}};
  const KernelCall call{&p.module, p.find("c"), {&array, 1}, {}};
  for (const auto& [value, branch] :
       {std::pair{0, 0u}, {1, 1u}, {2, 2u}, {3, 2u}, {-1, 2u}, {-2147483647, 2u}}) {
    index = value;
    CHECK(*ProgramControl::choose_branch(call) == branch);
  }
}

TEST_CASE("kernel: a predicate chooses branch 0 when it is true, and lets a loop go on") {
  const PlannedText p(R"(
HloModule m, is_scheduled=true
yes { ROOT p = s32[] parameter(0) }
no { ROOT p = s32[] parameter(0) }
ENTRY e {
  b = pred[] parameter(0)
  v = s32[] parameter(1)
  ROOT c = s32[] conditional(b, v, v), true_computation=yes, false_computation=no
})");
  std::byte predicate{1};
  const KernelArray array{p.find("b"), 0, 0, p.module[p.find("b")].shape, {&predicate, 1}};
  const KernelCall call{&p.module, p.find("c"), {&array, 1}, {}};
  CHECK(*ProgramControl::choose_branch(call) == 0);
  CHECK(*ProgramControl::test_loop(call));
  predicate = std::byte{0};
  CHECK(*ProgramControl::choose_branch(call) == 1);
  CHECK_FALSE(*ProgramControl::test_loop(call));
}
