// SPDX-License-Identifier: Apache-2.0
#include "holdfast/graph/background_update.hpp"

#include <string_view>

#include <doctest/doctest.h>

#include "support/planned.hpp"

using namespace holdfast;
using holdfast::testing::Planned;

TEST_CASE(
    "background_update: what an asynchronous operation updates is known at its start and its end") {
  const Planned p(R"(HloModule m, is_scheduled=true
ENTRY e {
  b = f32[64]{0} parameter(0)
  u = f32[2]{0} parameter(1)
  i = s32[] parameter(2)
  s = ((f32[64]{0}, f32[2]{0}, s32[]), f32[64]{0}, u32[]) dynamic-update-slice-start(b, u, i)
  v = ((f32[64]{0}, f32[2]{0}, s32[]), f32[64]{0}, u32[]) dynamic-update-slice-update(s)
  d = f32[64]{0} dynamic-update-slice-done(v)
  t = ((f32[64]{0}, s32[]), f32[2]{0}, u32[]) dynamic-slice-start(d, i), dynamic_slice_sizes={2}
  ROOT w = f32[2]{0} dynamic-slice-done(t)
})");
  for (const std::string_view name : {"s", "v", "d"}) {
    const BackgroundUpdate update = background_update(p.module, p.values, p.find(name));
    CHECK(update.base == p.value("b"));
    CHECK(update.result == p.value("d"));
    CHECK(update.alone);
  }
  for (const std::string_view name : {"t", "w", "b"})
    CHECK(background_update(p.module, p.values, p.find(name)).base == no_id<ValueId>);
}
