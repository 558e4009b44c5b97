// SPDX-License-Identifier: Apache-2.0
// A program, arguments for it and what XLA's CPU backend (jaxlib 0.10.2) computes of them.
#pragma once

#include <string_view>
#include <vector>

/// Linear regression: five steps of gradient descent in a loop, then the loss. `w` is donated.
inline constexpr std::string_view fit_text = R"(
HloModule fit, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT ab = f32[] add(a, b) }
more {
  s = (f32[3], s32[], f32[4,3], f32[4]) parameter(0)  n = s32[] get-tuple-element(s), index=1
  limit = s32[] constant(5)  ROOT go = pred[] compare(n, limit), direction=LT
}
round {
  s = (f32[3], s32[], f32[4,3], f32[4]) parameter(0)
  w = f32[3] get-tuple-element(s), index=0  n = s32[] get-tuple-element(s), index=1
  x = f32[4,3] get-tuple-element(s), index=2  y = f32[4] get-tuple-element(s), index=3
  guess = f32[4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  error = f32[4] subtract(guess, y)
  slope = f32[3] dot(x, error), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  rate = f32[] constant(0.125)  rates = f32[3] broadcast(rate), dimensions={}
  change = f32[3] multiply(slope, rates)  new = f32[3] subtract(w, change)
  one = s32[] constant(1)  next = s32[] add(n, one)
  ROOT t = (f32[3], s32[], f32[4,3], f32[4]) tuple(new, next, x, y)
}
ENTRY fit {
  w = f32[3] parameter(0)  x = f32[4,3] parameter(1)  y = f32[4] parameter(2)  zero = s32[] constant(0)
  init = (f32[3], s32[], f32[4,3], f32[4]) tuple(w, zero, x, y)
  loop = (f32[3], s32[], f32[4,3], f32[4]) while(init), condition=more, body=round
  fitted = f32[3] get-tuple-element(loop), index=0
  guess = f32[4] dot(x, fitted), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  error = f32[4] subtract(guess, y)  square = f32[4] multiply(error, error)
  none = f32[] constant(0)  loss = f32[] reduce(square, none), dimensions={0}, to_apply=sum
  ROOT out = (f32[3], f32[]) tuple(fitted, loss)
})";

/// Arguments w, x, y; results w and the loss.
inline const std::vector<float> inputs[] = {{0.5f, -1, 2}, {1, 0, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1}, {2, 1, 0, 3}};
inline const std::vector<float> outputs[] = {{0.7142792f, -0.5421753f, 1.9707336f}, {1.4172521f}};
