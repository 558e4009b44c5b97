// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "holdfast/hlo/detail/proto_attribute_list.hpp"
#include "holdfast/hlo/detail/proto_literal.hpp"
#include "holdfast/hlo/detail/proto_sharding.hpp"

namespace holdfast::detail {

/// Turns the fields of HloInstructionProto that memory work leaves unread into the attributes that
/// HLO text writes.
///
/// Source: hlo-format.md E, M.4, M.5.
class ProtoAttributeReader : ProtoAttributeList {
 public:
  constexpr ProtoAttributeReader(ProtoContext& context, ProtoShapeReader& shapes) noexcept
      : ProtoAttributeList(context), shapes_(shapes), literals_(context, shapes) {}
  // Spelled out: nvcc 13.0 takes a class with a span and a vector for no literal type.
  constexpr ~ProtoAttributeReader() = default;

  std::span<const WireField> payloads;  ///< of the module; each the bytes of a backend_config

  /// Appends the attributes of one instruction, whose operands and shape are known. False on
  /// failure.
  constexpr bool read(const ProtoFields& f, Instruction& i, std::uint64_t offset) {
    i.attributes.begin = static_cast<std::uint32_t>(c_.module.attributes.size());
    const bool ok = read_operation(f, i, offset) && read_common(f, i);
    i.attributes.count =
        static_cast<std::uint32_t>(c_.module.attributes.size()) - i.attributes.begin;
    return ok;
  }

 private:
  ProtoShapeReader& shapes_;
  ProtoLiteralReader literals_;

  constexpr bool read_common(const ProtoFields& f, const Instruction& i) {
    if (f.has(61)) {
      list_.clear();
      if (!scratch(f, 61) || !c_.check(scratch_.numbers(1, list_))) return false;
      c_.out.put('{');
      for (std::size_t k = 0; k < list_.size(); ++k)
        c_.out.put(k != 0 ? "," : ""), c_.out.put(list_[k] != 0 ? "true" : "false");
      c_.out.put('}');
      if (!list_.empty()) add("parameter_replication");
      c_.out.clear();
    }
    return add_message(f, 40, "sharding",
                       [&](const WireField& m) { return put_sharding(c_, m); }) &&
           add_message(f, 88, "origin",
                       [&](const WireField& m) { return put_origin(c_, m, i.shape); }) &&
           add_message(f, 68, "frontend_attributes",
                       [&](const WireField& m) { return put_frontend_attributes(c_, m); }) &&
           add_message(f, 82, "statistics",
                       [&](const WireField& m) { return put_statistics(c_, m); }) &&
           add_message(f, 91, "result_accuracy",
                       [&](const WireField& m) { return put_accuracy(c_, m); }) &&
           add_message(f, 7, "metadata",
                       [&](const WireField& m) {
                         c_.out.put('{');
                         if (!put_metadata(c_, scratch_, m)) return false;
                         if (c_.out.text.size() == 1)
                           c_.out.clear();
                         else
                           c_.out.put('}');
                         return true;
                       }) &&
           add_backend_config(f);
  }

  constexpr bool add_backend_config(const ProtoFields& f) {
    std::string_view config = f.text(43);
    if (f.has(99)) {
      if (!scratch(f, 99)) return false;
      if (scratch_.has(2)) {
        const auto id = static_cast<std::uint64_t>(scratch_.number(2));
        if (id >= payloads.size())
          return c_.fail("backend_config names a payload that the module has not",
                         f.message(99, c_.module).offset);
        config = payloads[static_cast<std::size_t>(id)].bytes;
      } else {
        config = scratch_.text(1);
      }
    }
    if (config.empty()) return true;
    if (is_raw_dictionary(config)) return add("backend_config", config);
    c_.out.quoted(config);
    return add("backend_config");
  }

  constexpr bool add_shape(const WireField& message) {
    ShapeId shape{};
    if (!shapes_.read(message, shape)) return false;
    put_shape(c_.out, c_.module.shapes, shape);
    return true;
  }

  constexpr bool read_operation(const ProtoFields& f, const Instruction& i, std::uint64_t offset) {
    switch (i.opcode) {
      case Opcode::constant:
        if (!f.has(8)) return add({}, "{...}");
        return literals_.put(f.message(8, c_.module), i.shape) && add({});
      case Opcode::batch_norm_grad:
      case Opcode::batch_norm_inference:
      case Opcode::batch_norm_training:
        put_float(c_.out, float_parts(float_formats[2], f.fixed(24)));
        return add("epsilon") && add_number("feature_index", f.number(25));
      case Opcode::fft: {
        constexpr std::string_view types[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
        if (f.number(31) < 0 || f.number(31) > 3) return c_.fail("unknown kind of fft", offset);
        return add("fft_type", types[f.number(31)]) && add_numbers(f, 32, "fft_length", true);
      }
      case Opcode::triangular_solve: {
        constexpr std::string_view words[] = {"", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
        if (!scratch(f, 59)) return false;
        const std::int32_t transpose = scratch_.number32(4);
        return add_flag(scratch_, 1, "left_side") && add_flag(scratch_, 2, "lower") &&
               add_flag(scratch_, 3, "unit_diagonal") &&
               (transpose < 1 || transpose > 3 || add("transpose_a", words[transpose]));
      }
      case Opcode::cholesky:
        return scratch(f, 62) && add_flag(scratch_, 1, "lower");
      case Opcode::send:
      case Opcode::send_done:
      case Opcode::recv:
      case Opcode::recv_done:
        return add_channel(f) && add_flag(f, 47, "is_host_transfer");
      case Opcode::all_reduce:
      case Opcode::all_reduce_start:
      case Opcode::collective_broadcast:
      case Opcode::ragged_all_to_all:
        return add_collective(f);
      case Opcode::all_to_all:
        return add_channel(f) && add_groups(f) && add_flag(f, 56, "constrain_layout") &&
               add_numbers(f, 14, "dimensions", false);
      case Opcode::all_gather:
      case Opcode::all_gather_start:
        return add_channel(f) && add_groups(f) && add_flag(f, 56, "constrain_layout") &&
               add_numbers(f, 14, "dimensions", true) && add_flag(f, 71, "use_global_device_ids");
      case Opcode::reduce_scatter:
        return add_collective(f) && add_numbers(f, 14, "dimensions", true);
      case Opcode::collective_permute:
      case Opcode::collective_permute_start:
        return add_channel(f) && put_pairs(c_, f) && add("source_target_pairs") &&
               (!f.has(20) || (put_slice_sizes(f, i, offset) && add("slice_sizes")));
      case Opcode::broadcast:
      case Opcode::concatenate:
      case Opcode::map:
      case Opcode::reduce:
      case Opcode::reverse:
      case Opcode::transpose:
      case Opcode::get_dimension_size:
      case Opcode::set_dimension_size:
        return add_numbers(f, 14, "dimensions", true);
      case Opcode::sort:
        return add_numbers(f, 14, "dimensions", true) && add_flag(f, 60, "is_stable");
      case Opcode::iota: {
        list_.clear();
        if (!c_.check(f.numbers(14, list_))) return false;
        if (list_.size() != 1) return c_.fail("iota has to have one dimension", offset);
        return add_number("iota_dimension", list_[0]);
      }
      case Opcode::scan:
        return read_scan(f);
      case Opcode::compare:
        return read_compare(f, i, offset);
      case Opcode::topk:
        return add_number("k", f.number(81)) && add("largest", f.flag(85) ? "true" : "false");
      case Opcode::dot:
      case Opcode::scaled_dot:
        return scratch(f, 30) && add_dot() && add_precision(f);
      case Opcode::ragged_dot:
        return read_ragged_dot(f);
      case Opcode::convolution: {
        constexpr std::string_view kinds[] = {"", "fprop", "dgrad", "wgrad"};
        const std::int32_t kind = f.number32(97);
        return read_convolution(f) && add_precision(f) &&
               (kind < 1 || kind > 3 || add("convolution_kind", kinds[kind]));
      }
      case Opcode::reduce_window:
      case Opcode::select_and_scatter:
        return add_window(f);
      case Opcode::gather:
        return scratch(f, 33) && add_numbers(scratch_, 1, "offset_dims", true) &&
               add_numbers(scratch_, 2, "collapsed_slice_dims", true) &&
               add_numbers(scratch_, 3, "start_index_map", true) &&
               add_numbers(scratch_, 5, "operand_batching_dims", false) &&
               add_numbers(scratch_, 6, "start_indices_batching_dims", false) &&
               add_number("index_vector_dim", scratch_.number(4)) &&
               add_numbers(f, 34, "slice_sizes", true) && add_flag(f, 67, "indices_are_sorted");
      case Opcode::scatter:
        return scratch(f, 48) && add_numbers(scratch_, 1, "update_window_dims", true) &&
               add_numbers(scratch_, 2, "inserted_window_dims", true) &&
               add_numbers(scratch_, 3, "scatter_dims_to_operand_dims", true) &&
               add_numbers(scratch_, 5, "input_batching_dims", false) &&
               add_numbers(scratch_, 6, "scatter_indices_batching_dims", false) &&
               add_number("index_vector_dim", scratch_.number(4)) &&
               add_flag(f, 67, "indices_are_sorted") && add_flag(f, 69, "unique_indices");
      case Opcode::slice:
        return put_slices(c_, f) && add("slice");
      case Opcode::dynamic_slice:
        return add_numbers(f, 20, "dynamic_slice_sizes", true);
      case Opcode::pad:
        return add_message(f, 21, "padding",
                           [&](const WireField& m) { return put_padding(c_, m); });
      case Opcode::reduce_precision:
        return add_number("exponent_bits", f.number32(18)) &&
               add_number("mantissa_bits", f.number32(19));
      case Opcode::rng: {
        constexpr std::string_view words[] = {"rng_invalid", "rng_uniform", "rng_normal"};
        if (f.number(23) < 0 || f.number(23) > 2)
          return c_.fail("unknown random distribution", offset);
        return add("distribution", words[f.number(23)]);
      }
      case Opcode::rng_bit_generator: {
        constexpr std::string_view words[] = {"rng_default", "rng_three_fry", "rng_philox"};
        if (f.number(70) < 0 || f.number(70) > 2)
          return c_.fail("unknown random algorithm", offset);
        return add("algorithm", words[f.number(70)]);
      }
      case Opcode::rng_get_and_update_state:
        return add_number("delta", f.number(66));
      case Opcode::infeed:
        return add_quoted(f, 27, "infeed_config");
      case Opcode::outfeed:
        return add_message(f, 29, "outfeed_shape",
                           [&](const WireField& m) { return add_shape(m); }) &&
               add_quoted(f, 22, "outfeed_config");
      case Opcode::call:
        return add_flag(f, 89, "is_composite");
      case Opcode::async_start:
      case Opcode::async_update:
      case Opcode::async_done:
        return add_quoted(f, 79, "async_execution_thread");
      case Opcode::copy_start:
        return !f.has(80) || add_number("cross_program_prefetch_index", f.number32(80));
      case Opcode::custom_call:
        return read_custom_call(f, offset);
      case Opcode::domain:
        return read_domain(f);
      default:
        return true;
    }
  }

  constexpr bool add_dot() {
    return add_numbers(scratch_, 3, "lhs_batch_dims", false) &&
           add_numbers(scratch_, 1, "lhs_contracting_dims", true) &&
           add_numbers(scratch_, 4, "rhs_batch_dims", false) &&
           add_numbers(scratch_, 2, "rhs_contracting_dims", true);
  }
  constexpr bool read_ragged_dot(const ProtoFields& f) {
    ProtoFields outer;
    if (!f.has(90)) return true;
    return c_.check(outer.read(f.message(90, c_.module))) && scratch(outer, 1) && add_dot() &&
           add_numbers(outer, 2, "lhs_ragged_dims", false) &&
           add_numbers(outer, 3, "rhs_group_dims", false) && add_precision(f);
  }
  constexpr bool read_convolution(const ProtoFields& f) {
    if (!add_window(f)) return false;
    if (!add_message(f, 16, "dim_labels",
                     [&](const WireField& m) { return put_dimension_labels(c_, m); }))
      return false;
    return (f.number(50) <= 1 || add_number("feature_group_count", f.number(50))) &&
           (f.number(58) <= 1 || add_number("batch_group_count", f.number(58)));
  }
  constexpr bool read_scan(const ProtoFields& f) {
    const std::int32_t associative = f.number32(96);
    return add_numbers(f, 14, "dimensions", true) && add_number("num_carries", f.number(95)) &&
           add_flag(f, 94, "is_reverse") &&
           (associative < 1 || associative > 2 ||
            add("is_associative", associative == 1 ? "true" : "false"));
  }
  constexpr bool read_compare(const ProtoFields& f, const Instruction& i, std::uint64_t offset) {
    constexpr std::string_view directions[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
    bool known = false;
    for (const std::string_view d : directions)
      known = known || (f.text(63) == d && add("direction", d));
    if (!known) return c_.fail("unknown direction of a comparison", offset);
    if (f.text(72).empty() || i.operands.count == 0) return true;
    const ElementType type = c_.module.shapes[c_.module[c_.module.operands(i)[0]].shape].type;
    const std::string_view usual = is_signed_integer(type)     ? "SIGNED"
                                   : is_unsigned_integer(type) ? "UNSIGNED"
                                                               : "FLOAT";
    for (const std::string_view t : {std::string_view("FLOAT"), std::string_view("TOTALORDER"),
                                     std::string_view("SIGNED"), std::string_view("UNSIGNED")})
      if (f.text(72) == t) return t == usual || add("type", t);
    return c_.fail("unknown type of a comparison", offset);
  }
  // The proto has all sizes in one row: each piece has as many as the array it is cut from has
  // dimensions.
  constexpr bool put_slice_sizes(const ProtoFields& f, const Instruction& i, std::uint64_t offset) {
    list_.clear();
    if (!c_.check(f.numbers(20, list_))) return false;
    if (i.operands.count == 0) return c_.fail("slice sizes without an operand", offset);
    const ShapeId from = c_.module[c_.module.operands(i)[0]].shape;
    const std::uint32_t nodes = c_.module.shapes.node_count(from);
    std::size_t at = 0;
    c_.out.put('{');
    while (at < list_.size()) {
      const std::size_t before = at;
      for (std::uint32_t n = 0; n < nodes && at < list_.size(); ++n) {
        const std::size_t rank = std::min(
            list_.size() - at, c_.module.shapes.dimensions(c_.module.shapes.node(from, n)).size());
        if (rank == 0) continue;
        if (at != 0) c_.out.put(',');
        c_.out.braced(std::span(list_).subspan(at, rank));
        at += rank;
      }
      if (at == before) return c_.fail("slice sizes of an operand without dimensions", offset);
    }
    c_.out.put('}');
    return true;
  }

  constexpr bool read_custom_call(const ProtoFields& f, std::uint64_t offset) {
    constexpr std::string_view paddings[] = {"", "PADDING_VALID", "PADDING_SAME"};
    constexpr std::string_view schedules[] = {"", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST"};
    constexpr std::string_view versions[] = {"API_VERSION_STATUS_RETURNING",
                                             "API_VERSION_STATUS_RETURNING_UNIFIED",
                                             "API_VERSION_TYPED_FFI"};
    if (!read_convolution(f)) return false;
    const std::int32_t padding = f.number32(75), schedule = f.number32(76),
                       version = f.number32(77);
    if (padding > 0 && padding <= 2) add("padding_type", paddings[padding]);
    if (!add_precision(f)) return false;
    c_.out.quoted(f.text(28));
    add("custom_call_target");
    if (f.flag(56)) {
      c_.out.put('{');
      bool first = true;
      for (const WireField& m : f.all()) {
        if (m.number != 57 || m.kind != WireKind::bytes) continue;
        if (!first) c_.out.put(", ");
        first = false;
        if (!add_shape(m)) return false;
      }
      c_.out.put('}');
      add("operand_layout_constraints");
    }
    if (f.has(8) && !read_literal(f.message(8, c_.module), offset)) return false;
    if (schedule > 0 && schedule <= 2) add("schedule", schedules[schedule]);
    if (version >= 2 && version <= 4) add("api_version", versions[version - 2]);
    return true;
  }
  constexpr bool read_literal(const WireField& message, std::uint64_t offset) {
    if (!c_.check(scratch_.read(message))) return false;
    const WireField type = scratch_.message(1, c_.module);
    ShapeId shape{};
    if (type.bytes.empty()) return c_.fail("literal without a shape", offset);
    if (!shapes_.read(type, shape)) return false;
    if (!is_array(c_.module.shapes[shape].type)) return true;
    put_shape(c_.out, c_.module.shapes, shape, false);
    c_.out.put(' ');
    return literals_.put(message, shape) && add("literal");
  }
  // The text's entry is the side of the users, which the proto calls exit.
  constexpr bool read_domain(const ProtoFields& f) {
    if (!f.has(54) || !f.has(55)) return true;
    c_.out.put("{kind=\"sharding\", entry=");
    if (!put_sharding(c_, f.message(55, c_.module))) return false;
    c_.out.put(", exit=");
    if (!put_sharding(c_, f.message(54, c_.module))) return false;
    c_.out.put('}');
    return add("domain");
  }
};

}  // namespace holdfast::detail
