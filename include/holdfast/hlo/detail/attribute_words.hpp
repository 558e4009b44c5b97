// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "holdfast/core/word_table.hpp"

namespace holdfast::detail {

// clang-format off

/// The attributes that become fields of `Instruction`, or are written in a way of their own.
enum class AttributeKey : std::uint8_t {
  condition, body, true_computation, false_computation, select, scatter, to_apply, calls,
  branch_computations, called_computations, control_predecessors, kind, index,
  output_to_operand_aliasing, custom_call_has_side_effect, replica_groups, backend_config,
  other,  ///< from here on: carried along as written
};

/// All attributes that XLA's parser knows; the first ones in the order of `AttributeKey`.
inline constexpr std::string_view attribute_words[] = {
  "condition", "body", "true_computation", "false_computation", "select", "scatter", "to_apply",
  "calls", "branch_computations", "called_computations", "control-predecessors", "kind", "index",
  "output_to_operand_aliasing", "custom_call_has_side_effect", "replica_groups", "backend_config",
  "metadata", "sharding", "frontend_attributes", "statistics", "parameter_replication", "origin",
  "result_accuracy", "is_composite", "custom_call_target", "operand_layout_constraints",
  "api_version", "schedule", "window", "dim_labels", "feature_group_count", "batch_group_count",
  "padding_type", "literal", "operand_precision", "async_execution_thread", "async_group_id",
  "cross_program_prefetch_index", "is_cross_program_prefetch", "channel_id", "is_host_transfer",
  "infeed_config", "outfeed_config", "outfeed_shape", "dynamic_slice_sizes", "slice",
  "dimensions", "is_stable", "iota_dimension", "direction", "type", "padding", "lhs_batch_dims",
  "lhs_contracting_dims", "rhs_batch_dims", "rhs_contracting_dims", "lhs_ragged_dims",
  "rhs_group_dims", "algorithm", "sparsity", "use_global_device_ids", "constrain_layout", "mode",
  "source_target_pairs", "slice_sizes", "domain", "fft_type", "fft_length", "distribution",
  "offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim",
  "operand_batching_dims", "start_indices_batching_dims", "indices_are_sorted", "unique_indices",
  "update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims",
  "input_batching_dims", "scatter_indices_batching_dims", "exponent_bits", "mantissa_bits",
  "delta", "epsilon", "feature_index", "left_side", "lower", "unit_diagonal", "transpose_a", "k",
  "largest", "split_dimension", "is_reverse", "num_carries", "is_associative", "comparison_type",
  "conv_kind", "barrier", "is_async", "original_value",
};
inline constexpr WordTable<256> attribute_table{attribute_words};

/// The attributes of a module's header; the first six become fields of `Module` or are checked.
enum class HeaderKey : std::uint8_t {
  is_scheduled, replica_count, num_partitions, input_output_alias, buffer_donor,
  entry_computation_layout,
  alias_passthrough_params, frontend_attributes, propagation_to_parameters, propagation_to_output,
  origin_recovery_table,
  unknown,
};

inline constexpr std::string_view header_words[] = {
  "is_scheduled", "replica_count", "num_partitions", "input_output_alias", "buffer_donor",
  "entry_computation_layout", "alias_passthrough_params", "frontend_attributes",
  "allow_spmd_sharding_propagation_to_parameters", "allow_spmd_sharding_propagation_to_output",
  "origin_recovery_table",
};

/// Words that are no names unless written with `%`, beside the element types.
[[nodiscard]] constexpr bool is_keyword(std::string_view word) noexcept {
  constexpr std::string_view keywords[] = {
    "true", "false", "inf", "nan", "HloModule", "ENTRY", "ROOT", "maximal", "replicated",
    "manual", "unknown", "unreduced", "last_tile_dim_replicate", "shard_as", "shard_like",
    "FileNames", "FunctionNames", "FileLocations", "StackFrames", "pred", "s8", "s16", "s32",
    "s64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "opaque", "c64", "bf16", "token",
    "c128", "f8e5m2", "f8e4m3fn", "s4", "u4", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "s2",
    "u2", "f8e4m3", "f8e3m4", "s1", "u1", "f4e2m1fn", "f8e8m0fnu",
  };
  constexpr WordTable<128> table{keywords};
  return table.find(word) != table.none;
}

// clang-format on

}  // namespace holdfast::detail
