// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "holdfast/hlo/detail/decimal.hpp"
#include "holdfast/hlo/detail/proto_sharding.hpp"

namespace holdfast::detail {

/// The words of `algorithm=`, by their number in the proto.
inline constexpr std::string_view dot_algorithms[] = {
    "",
    "dot_any_f8_any_f8_f32",
    "dot_any_f8_any_f8_f32_fast_accum",
    "dot_f16_f16_f16",
    "dot_f16_f16_f32",
    "dot_bf16_bf16_bf16",
    "dot_bf16_bf16_f32",
    "dot_bf16_bf16_f32_x3",
    "dot_bf16_bf16_f32_x6",
    "dot_tf32_tf32_f32",
    "dot_tf32_tf32_f32_x3",
    "dot_f32_f32_f32",
    "dot_f64_f64_f64",
    "dot_bf16_bf16_f32_x9",
};

/// Calls `each` on the sub-messages of a repeated field, read into fields; stops at the first
/// false.
template <class Each>
constexpr bool for_each_message(ProtoContext& c, const ProtoFields& owner, std::uint32_t number,
                                Each each) {
  if (!owner.has(number)) return true;
  ProtoFields fields;
  bool first = true;
  for (const WireField& f : owner.all()) {
    if (f.number != number || f.kind != WireKind::bytes) continue;
    if (!c.check(fields.read(f)) || !each(fields, first)) return false;
    first = false;
  }
  return true;
}

/// Appends `{size=3x3 stride=2x2 pad=0_1x1_1 ...}`; nothing for a window without dimensions.
constexpr bool put_window(ProtoContext& c, const WireField& message) {
  struct Dimension {
    std::int64_t v[8] = {};  // by field number
  };
  ProtoFields fields;
  std::vector<Dimension> dimensions;
  if (!c.check(fields.read(message))) return false;
  const bool ok = for_each_message(c, fields, 1, [&](const ProtoFields& f, bool) {
    if (dimensions.size() == ShapeTable::max_rank)
      return c.fail("window has more than 64 dimensions", message.offset, Errc::over_budget);
    Dimension d;
    for (std::uint32_t n = 1; n < 8; ++n) d.v[n] = f.number(n);
    dimensions.push_back(d);
    return true;
  });
  if (!ok || dimensions.empty()) return ok;
  const auto put_each = [&](std::string_view word, std::uint32_t n) {
    c.out.put(word);
    for (std::size_t i = 0; i < dimensions.size(); ++i) {
      if (i != 0) c.out.put('x');
      c.out.number(n == 7 ? static_cast<std::int64_t>(dimensions[i].v[7] != 0)
                          : dimensions[i].v[n]);
      if (n == 3) c.out.put('_'), c.out.number(dimensions[i].v[4]);
    }
  };
  const auto any = [&](std::uint32_t n, std::int64_t usual) {
    for (const Dimension& d : dimensions)
      if (d.v[n] != usual) return true;
    return false;
  };
  put_each("{size=", 1);
  if (any(2, 1)) put_each(" stride=", 2);
  if (any(3, 0) || any(4, 0)) put_each(" pad=", 3);
  if (any(6, 1)) put_each(" lhs_dilate=", 6);
  if (any(5, 1)) put_each(" rhs_dilate=", 5);
  if (any(7, 0)) put_each(" rhs_reversal=", 7);
  c.out.put('}');
  return true;
}

/// Appends `{high,default}`; false, and nothing, when all are the default.
constexpr bool put_precision(ProtoContext& c, std::span<const std::int64_t> precisions) {
  bool any = false;
  for (const std::int64_t p : precisions) any = any || p == 1 || p == 2;
  if (!any) return false;
  c.out.put('{');
  for (std::size_t i = 0; i < precisions.size(); ++i)
    c.out.put(i != 0 ? "," : ""), c.out.put(precisions[i] == 1   ? "high"
                                            : precisions[i] == 2 ? "highest"
                                                                 : "default");
  c.out.put('}');
  return true;
}

/// Appends `0_1x1_2_1`: low, high and, if there is any, interior padding of each dimension.
constexpr bool put_padding(ProtoContext& c, const WireField& message) {
  ProtoFields fields;
  if (!c.check(fields.read(message))) return false;
  bool interior = false;
  return for_each_message(c, fields, 1,
                          [&](const ProtoFields& f, bool) {
                            return interior = interior || f.number(3) != 0, true;
                          }) &&
         for_each_message(c, fields, 1, [&](const ProtoFields& f, bool first) {
           if (!first) c.out.put('x');
           c.out.number(f.number(1)), c.out.put('_'), c.out.number(f.number(2));
           if (interior) c.out.put('_'), c.out.number(f.number(3));
           return true;
         });
}

/// Appends `{[0:4:2], [0:8:1]}`; the strides are left out when all are 1.
constexpr bool put_slices(ProtoContext& c, const ProtoFields& instruction) {
  bool strides = false;
  c.out.put('{');
  if (!for_each_message(c, instruction, 17,
                        [&](const ProtoFields& f, bool) {
                          return strides = strides || f.number(3) != 1, true;
                        }) ||
      !for_each_message(c, instruction, 17, [&](const ProtoFields& f, bool first) {
        c.out.put(first ? "[" : ", ["), c.out.number(f.number(1)), c.out.put(':'),
            c.out.number(f.number(2));
        if (strides) c.out.put(':'), c.out.number(f.number(3));
        c.out.put(']');
        return true;
      }))
    return false;
  c.out.put('}');
  return true;
}

/// Appends `{{0,1},{1,0}}` of a collective-permute.
constexpr bool put_pairs(ProtoContext& c, const ProtoFields& instruction) {
  c.out.put('{');
  if (!for_each_message(c, instruction, 52, [&](const ProtoFields& f, bool first) {
        c.out.put(first ? "{" : ",{"), c.out.number(f.number(1)), c.out.put(','),
            c.out.number(f.number(2)), c.out.put('}');
        return true;
      }))
    return false;
  c.out.put('}');
  return true;
}

/// Appends the replica groups in the form that the file has: listed, counted, or by axes of a mesh.
constexpr bool put_replica_groups(ProtoContext& c, const ProtoFields& instruction) {
  if (instruction.has(93)) {
    ProtoFields fields;
    ProtoMesh mesh;
    bool first = true;
    if (!c.check(fields.read(instruction.message(93, c.module))) ||
        !put_mesh(c, fields.message(1, c.module), mesh))
      return false;
    c.out.put(" {");
    if (!put_axes(c, fields, 2, mesh, ",", first)) return false;
    c.out.put('}');
    return true;
  }
  if (instruction.has(92)) {
    ProtoFields fields;
    std::vector<std::int64_t> reshape, transpose;
    if (!c.check(fields.read(instruction.message(92, c.module))) ||
        !c.check(fields.numbers(3, reshape)) || !c.check(fields.numbers(4, transpose)))
      return false;
    const std::int64_t tiles[] = {fields.number(1), fields.number(2)};
    put_iota_tiles(c.out, tiles, reshape, transpose);
    return true;
  }
  ProtoFields list;
  const bool in_list = instruction.has(87);
  if (in_list && !c.check(list.read(instruction.message(87, c.module)))) return false;
  std::vector<std::int64_t> ids;
  c.out.put('{');
  if (!for_each_message(c, in_list ? list : instruction, in_list ? 1 : 49,
                        [&](const ProtoFields& f, bool first) {
                          ids.clear();
                          if (!c.check(f.numbers(1, ids))) return false;
                          c.out.put(first ? "" : ","), c.out.braced(ids);
                          return true;
                        }))
    return false;
  c.out.put('}');
  return true;
}

/// Appends `b01f_01io->b01f` of ConvolutionDimensionNumbers.
constexpr bool put_dimension_labels(ProtoContext& c, const WireField& message) {
  struct Side {
    std::uint32_t first, second, spatial;
    char first_label, second_label;
  };
  constexpr Side sides[] = {{7, 8, 11, 'b', 'f'}, {3, 4, 6, 'i', 'o'}, {9, 10, 12, 'b', 'f'}};
  constexpr std::string_view separators[] = {"", "_", "->"};
  ProtoFields fields;
  if (!c.check(fields.read(message))) return false;
  std::vector<std::int64_t> spatial, labels;
  for (std::size_t s = 0; s < 3; ++s) {
    const Side& side = sides[s];
    spatial.clear();
    if (!c.check(fields.numbers(side.spatial, spatial))) return false;
    const auto rank = static_cast<std::int64_t>(spatial.size()) + 2;
    labels.assign(spatial.size() + 2, -3);
    bool ok = true;
    const auto label = [&](std::int64_t at, std::int64_t what) {
      ok = ok && at >= 0 && at < rank && labels[static_cast<std::size_t>(at)] == -3;
      if (ok) labels[static_cast<std::size_t>(at)] = what;
    };
    label(fields.number(side.first), -1);
    label(fields.number(side.second), -2);
    for (std::size_t i = 0; i < spatial.size(); ++i)
      label(spatial[i], static_cast<std::int64_t>(i));
    if (!ok) return c.fail("dimension numbers of a convolution are no permutation", message.offset);
    c.out.put(separators[s]);
    for (const std::int64_t l : labels) {
      if (l >= 0)
        c.out.number(l);
      else
        c.out.put(l == -1 ? side.first_label : side.second_label);
    }
  }
  return true;
}

/// Appends `{visualizing_index=0,name=1.5}`.
constexpr bool put_statistics(ProtoContext& c, const WireField& message) {
  ProtoFields fields;
  if (!c.check(fields.read(message))) return false;
  if (!fields.has(2)) return true;
  c.out.put("{visualizing_index="), c.out.number(fields.number(1));
  const bool ok = for_each_message(c, fields, 2, [&](const ProtoFields& f, bool) {
    c.out.put(','), c.out.put(f.text(1)), c.out.put('='), put_double(c.out, f.fixed(2));
    return true;
  });
  c.out.put('}');
  return ok;
}

/// Appends `{mode=highest}` or `{tolerance={...}}`; nothing for the default.
constexpr bool put_accuracy(ProtoContext& c, const WireField& message) {
  ProtoFields fields, tolerance;
  if (!c.check(fields.read(message))) return false;
  if (fields.has(2)) {
    if (!c.check(tolerance.read(fields.message(2, c.module)))) return false;
    c.out.put("{tolerance={atol="), put_double(c.out, tolerance.fixed(1));
    c.out.put(",rtol="), put_double(c.out, tolerance.fixed(2));
    c.out.put(",ulps="), c.out.number(tolerance.number(3)), c.out.put("}}");
  } else if (fields.number(1) == 1) {
    c.out.put("{mode=highest}");
  }
  return true;
}

/// Appends `{({"v"}, {"w" {1}})}`: which array of the original program each leaf of the shape was.
constexpr bool put_origin(ProtoContext& c, const WireField& message, ShapeId shape) {
  ProtoFields fields, array;
  if (!c.check(fields.read(message))) return false;
  if (fields.flag(2)) return c.out.put("{[synthetic_call]}"), true;
  const ShapeTable& shapes = c.module.shapes;
  std::vector<WireField> of_node(shapes.node_count(shape), WireField{});
  std::vector<std::int64_t> index;
  for (const WireField& f : fields.all()) {
    if (f.number != 1 || f.kind != WireKind::bytes) continue;
    index.clear();
    if (!c.check(array.read(f)) || !c.check(array.numbers(1, index))) return false;
    const std::uint32_t node = shapes.node_of_path(shape, index);
    if (node == shapes.node_count(shape))
      return c.fail("origin of a part that the shape has not", f.offset);
    of_node[node] = array.message(2, c.module);
  }
  const auto put_leaf = [&](const WireField& original) {
    c.out.put('{');
    if (!original.bytes.empty()) {
      index.clear();
      if (!c.check(array.read(original)) || !c.check(array.numbers(2, index))) return false;
      c.out.put('"'), c.out.put(array.text(1)), c.out.put('"');
      if (!index.empty()) c.out.put(' '), c.out.braced(index);
    }
    c.out.put('}');
    return true;
  };
  // Nodes stand in pre-order: `open` says how many are left of each tuple that is being written.
  std::vector<std::uint32_t> open;
  c.out.put('{');
  for (std::uint32_t n = 0; n < of_node.size(); ++n) {
    const ShapeId id = shapes.node(shape, n);
    if (shapes.is_tuple(id) && !shapes.children_of(id).empty()) {
      c.out.put('('), open.push_back(static_cast<std::uint32_t>(shapes.children_of(id).size()));
      continue;
    }
    if (shapes.is_tuple(id))
      c.out.put("()");
    else if (!put_leaf(of_node[n]))
      return false;
    while (!open.empty() && --open.back() == 0) c.out.put(')'), open.pop_back();
    if (!open.empty()) c.out.put(", ");
  }
  c.out.put('}');
  return true;
}

}  // namespace holdfast::detail
