// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "holdfast/graph/opcode.hpp"

namespace holdfast {

/// How many operands an operation takes.
struct Arity {
  std::uint8_t least = 0;
  std::uint8_t most = 255;  ///< 255: any number
};

/// What XLA gives each operation; any number for one that is not known.
[[nodiscard]] constexpr Arity arity_of(Opcode opcode) noexcept {
  // clang-format off
  switch (opcode) {
    case Opcode::parameter: case Opcode::constant: case Opcode::iota: case Opcode::partition_id:
    case Opcode::replica_id: case Opcode::rng_get_and_update_state:
      return {0, 0};
    case Opcode::infeed:
      return {0, 1};
    case Opcode::abs: case Opcode::acos: case Opcode::acosh: case Opcode::asin:
    case Opcode::asinh: case Opcode::atanh: case Opcode::cbrt: case Opcode::ceil:
    case Opcode::cosh: case Opcode::cosine: case Opcode::erf: case Opcode::exponential:
    case Opcode::exponential_minus_one: case Opcode::floor: case Opcode::log:
    case Opcode::log_plus_one: case Opcode::logistic: case Opcode::negate: case Opcode::not_:
    case Opcode::rsqrt: case Opcode::sine: case Opcode::sinh: case Opcode::sqrt: case Opcode::tan:
    case Opcode::tanh: case Opcode::convert: case Opcode::bitcast_convert:
    case Opcode::reduce_precision: case Opcode::copy: case Opcode::real: case Opcode::imag:
    case Opcode::is_finite: case Opcode::popcnt: case Opcode::count_leading_zeros:
    case Opcode::round_nearest_afz: case Opcode::round_nearest_even: case Opcode::sign:
    case Opcode::bitcast: case Opcode::broadcast: case Opcode::reshape: case Opcode::transpose:
    case Opcode::reverse: case Opcode::slice: case Opcode::get_tuple_element:
    case Opcode::copy_start: case Opcode::copy_done: case Opcode::cholesky: case Opcode::domain:
    case Opcode::fft: case Opcode::get_dimension_size: case Opcode::all_gather_done:
    case Opcode::all_reduce_done: case Opcode::collective_permute_done: case Opcode::async_done:
    case Opcode::async_update: case Opcode::send_done: case Opcode::recv: case Opcode::recv_done:
    case Opcode::while_: case Opcode::opt_barrier: case Opcode::topk:
    case Opcode::rng_bit_generator:
      return {1, 1};
    case Opcode::outfeed:
      return {1, 2};
    case Opcode::add: case Opcode::subtract: case Opcode::multiply: case Opcode::divide:
    case Opcode::remainder: case Opcode::maximum: case Opcode::minimum: case Opcode::power:
    case Opcode::atan2: case Opcode::and_: case Opcode::or_: case Opcode::xor_:
    case Opcode::shift_left: case Opcode::shift_right_arithmetic:
    case Opcode::shift_right_logical: case Opcode::compare: case Opcode::complex:
    case Opcode::stochastic_convert: case Opcode::convolution: case Opcode::pad:
    case Opcode::gather: case Opcode::triangular_solve: case Opcode::set_dimension_size:
    case Opcode::send: case Opcode::add_dependency:
      return {2, 2};
    case Opcode::dot:
      return {2, 4};
    case Opcode::select: case Opcode::clamp: case Opcode::select_and_scatter:
    case Opcode::batch_norm_training:
      return {3, 3};
    case Opcode::batch_norm_inference: case Opcode::batch_norm_grad:
      return {5, 5};
    case Opcode::dynamic_slice: case Opcode::dynamic_reshape: case Opcode::concatenate:
    case Opcode::conditional: case Opcode::sort: case Opcode::map:
      return {1, 255};
    case Opcode::dynamic_update_slice: case Opcode::reduce: case Opcode::reduce_window:
      return {2, 255};
    case Opcode::scatter:
      return {3, 255};
    default: return {};
  }
  // clang-format on
}

}  // namespace holdfast
