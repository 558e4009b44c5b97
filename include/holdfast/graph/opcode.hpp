// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "holdfast/core/word_table.hpp"

namespace holdfast {

/// What an instruction does. Values from `opcode_count` on are words this library does not know, kept in
/// `Module::opcode_words`: they are treated as opaque operations that define their whole result.
enum class Opcode : std::uint16_t {
  abs, acos, acosh, add, add_dependency, after_all, all_gather, all_gather_done, all_gather_start,
  all_reduce, all_reduce_done, all_reduce_start, all_to_all, and_, asin, asinh, async_done,
  async_start, async_update, atan2, atanh, batch_norm_grad, batch_norm_inference,
  batch_norm_training, bitcast, bitcast_convert, broadcast, call, cbrt, ceil, cholesky, clamp,
  collective_broadcast, collective_permute, collective_permute_done, collective_permute_start,
  compare, complex, concatenate, conditional, constant, convert, convolution, copy, copy_done,
  copy_start, cosh, cosine, count_leading_zeros, custom_call, divide, domain, dot, dynamic_reshape,
  dynamic_slice, dynamic_update_slice, erf, exponential, exponential_minus_one, fft, floor, fusion,
  gather, get_dimension_size, get_tuple_element, imag, infeed, iota, is_finite, log, log_plus_one,
  logistic, map, maximum, minimum, multiply, negate, not_, opt_barrier, or_, outfeed, pad,
  parameter, partition_id, popcnt, power, ragged_all_to_all, ragged_dot, real, recv, recv_done,
  reduce, reduce_precision, reduce_scatter, reduce_window, remainder, replica_id, reshape, reverse,
  rng, rng_bit_generator, rng_get_and_update_state, round_nearest_afz, round_nearest_even, rsqrt,
  scaled_dot, scan, scatter, select, select_and_scatter, send, send_done, set_dimension_size,
  shift_left, shift_right_arithmetic, shift_right_logical, sign, sine, sinh, slice, sort, sqrt,
  stochastic_convert, subtract, tan, tanh, topk, transpose, triangular_solve, tuple, while_, xor_,
};

/// How many opcodes have a meaning here.
inline constexpr std::size_t opcode_count = 132;

namespace detail {

inline constexpr std::string_view opcode_words[opcode_count] = {
    "abs", "acos", "acosh", "add", "add-dependency", "after-all", "all-gather", "all-gather-done",
    "all-gather-start", "all-reduce", "all-reduce-done", "all-reduce-start", "all-to-all", "and",
    "asin", "asinh", "async-done", "async-start", "async-update", "atan2", "atanh",
    "batch-norm-grad", "batch-norm-inference", "batch-norm-training", "bitcast", "bitcast-convert",
    "broadcast", "call", "cbrt", "ceil", "cholesky", "clamp", "collective-broadcast",
    "collective-permute", "collective-permute-done", "collective-permute-start", "compare",
    "complex", "concatenate", "conditional", "constant", "convert", "convolution", "copy",
    "copy-done", "copy-start", "cosh", "cosine", "count-leading-zeros", "custom-call", "divide",
    "domain", "dot", "dynamic-reshape", "dynamic-slice", "dynamic-update-slice", "erf",
    "exponential", "exponential-minus-one", "fft", "floor", "fusion", "gather",
    "get-dimension-size", "get-tuple-element", "imag", "infeed", "iota", "is-finite", "log",
    "log-plus-one", "logistic", "map", "maximum", "minimum", "multiply", "negate", "not",
    "opt-barrier", "or", "outfeed", "pad", "parameter", "partition-id", "popcnt", "power",
    "ragged-all-to-all", "ragged-dot", "real", "recv", "recv-done", "reduce", "reduce-precision",
    "reduce-scatter", "reduce-window", "remainder", "replica-id", "reshape", "reverse", "rng",
    "rng-bit-generator", "rng-get-and-update-state", "round-nearest-afz", "round-nearest-even",
    "rsqrt", "scaled-dot", "scan", "scatter", "select", "select-and-scatter", "send", "send-done",
    "set-dimension-size", "shift-left", "shift-right-arithmetic", "shift-right-logical", "sign",
    "sine", "sinh", "slice", "sort", "sqrt", "stochastic-convert", "subtract", "tan", "tanh",
    "topk", "transpose", "triangular-solve", "tuple", "while", "xor",
};
static_assert(std::is_sorted(std::begin(opcode_words), std::end(opcode_words)));
inline constexpr WordTable<512> opcode_table{opcode_words};

}  // namespace detail

/// Gives the word of a known opcode.
[[nodiscard]] constexpr std::string_view opcode_word(Opcode opcode) noexcept {
  return detail::opcode_words[static_cast<std::size_t>(opcode)];
}

/// Finds the opcode of a word; `opcode_count` for none. Cost: about one comparison.
[[nodiscard]] constexpr Opcode find_opcode(std::string_view word) noexcept {
  const std::size_t at = detail::opcode_table.find(word);
  return static_cast<Opcode>(at != detail::opcode_table.none ? at : opcode_count);
}

/// Tells whether the operation computes each element from the elements at the same place of its operands.
///
/// `map` and `dynamic-update-slice` (operand 0 only) are decided by their users. Source: passes.md F.3.
[[nodiscard]] constexpr bool is_elementwise(Opcode opcode) noexcept {
  switch (opcode) {
    case Opcode::abs: case Opcode::acos: case Opcode::acosh: case Opcode::asin: case Opcode::asinh:
    case Opcode::atanh: case Opcode::cbrt: case Opcode::ceil: case Opcode::cosh:
    case Opcode::cosine: case Opcode::erf: case Opcode::exponential:
    case Opcode::exponential_minus_one: case Opcode::floor: case Opcode::log:
    case Opcode::log_plus_one: case Opcode::logistic: case Opcode::negate: case Opcode::not_:
    case Opcode::rsqrt: case Opcode::sine: case Opcode::sinh: case Opcode::sqrt: case Opcode::tan:
    case Opcode::tanh: case Opcode::convert: case Opcode::bitcast_convert:
    case Opcode::reduce_precision: case Opcode::copy: case Opcode::real: case Opcode::imag:
    case Opcode::is_finite: case Opcode::popcnt: case Opcode::count_leading_zeros:
    case Opcode::round_nearest_afz: case Opcode::round_nearest_even: case Opcode::sign:
    case Opcode::stochastic_convert: case Opcode::add: case Opcode::subtract:
    case Opcode::multiply: case Opcode::divide: case Opcode::remainder: case Opcode::maximum:
    case Opcode::minimum: case Opcode::power: case Opcode::atan2: case Opcode::and_:
    case Opcode::or_: case Opcode::xor_: case Opcode::shift_left:
    case Opcode::shift_right_arithmetic: case Opcode::shift_right_logical: case Opcode::compare:
    case Opcode::complex: case Opcode::select: case Opcode::clamp:
      return true;
    default:
      return false;
  }
}

}  // namespace holdfast
