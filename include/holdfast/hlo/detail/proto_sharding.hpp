// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/hlo/detail/proto_metadata.hpp"

namespace holdfast::detail {

/// Appends `[4,2]<=[2,4]T(1,0)`: devices in counting order, reshaped and transposed.
constexpr void put_iota_tiles(TextBuilder& out, std::span<const std::int64_t> tiles,
                              std::span<const std::int64_t> reshape,
                              std::span<const std::int64_t> transpose) {
  out.put('['), out.numbers(tiles), out.put("]<=[");
  out.numbers(reshape), out.put(']');
  bool identity = true;
  for (std::size_t i = 0; i < transpose.size(); ++i)
    identity = identity && transpose[i] == static_cast<std::int64_t>(i);
  if (!identity) out.put("T("), out.numbers(transpose), out.put(')');
}

/// The names and sizes of a mesh's axes, to which axis references point.
struct ProtoMesh {
  std::vector<std::string_view> names;
};

/// Appends `mesh['a'=2,'b'=4]` with the device list, if it has one, of a MeshProto.
constexpr bool put_mesh(ProtoContext& c, const WireField& message, ProtoMesh& mesh) {
  std::vector<std::int64_t> devices;
  ProtoFields iota;
  bool has_iota = false;
  c.out.put("mesh[");
  ProtoFields fields, axis;
  if (!c.check(fields.read(message))) return false;
  for (const WireField& f : fields.all()) {
    if (f.number != 1 || f.kind != WireKind::bytes) continue;
    if (!c.check(axis.read(f))) return false;
    if (!mesh.names.empty()) c.out.put(',');
    if (mesh.names.size() == 64)
      return c.fail("mesh has more than 64 axes", message.offset, Errc::over_budget);
    mesh.names.push_back(axis.text(1));
    c.out.put('\''), c.out.put(axis.text(1)), c.out.put("'="), c.out.number(axis.number(2));
  }
  c.out.put(']');
  if (!c.check(fields.numbers(2, devices))) return false;
  if (fields.has(3)) {
    has_iota = true;
    if (!c.check(iota.read(fields.message(3, c.module)))) return false;
  }
  if (!devices.empty()) {
    c.out.put(", device_ids=("), c.out.numbers(devices), c.out.put(')');
  } else if (has_iota) {
    std::vector<std::int64_t> reshape, transpose;
    if (!c.check(iota.numbers(1, reshape)) || !c.check(iota.numbers(2, transpose))) return false;
    c.out.put(", device_ids=(["), c.out.numbers(reshape), c.out.put("]T("),
        c.out.numbers(transpose), c.out.put("))");
  }
  return true;
}

/// Appends `'b'` or `'b':(1)2` of an AxisRefProto.
constexpr bool put_axis(ProtoContext& c, const WireField& message, const ProtoMesh& mesh) {
  ProtoFields fields, part;
  if (!c.check(fields.read(message))) return false;
  const auto index = static_cast<std::uint64_t>(fields.number(1));
  if (index >= mesh.names.size())
    return c.fail("axis that the mesh does not declare", message.offset);
  c.out.put('\''), c.out.put(mesh.names[static_cast<std::size_t>(index)]), c.out.put('\'');
  if (!fields.has(2)) return true;
  if (!c.check(part.read(fields.message(2, c.module)))) return false;
  c.out.put(":("), c.out.number(part.number(1)), c.out.put(')'), c.out.number(part.number(2));
  return true;
}

/// Appends the axes of a repeated AxisRefProto field with a separator between them.
constexpr bool put_axes(ProtoContext& c, const ProtoFields& owner, std::uint32_t number,
                        const ProtoMesh& mesh, std::string_view separator, bool& first) {
  for (const WireField& f : owner.all()) {
    if (f.number != number || f.kind != WireKind::bytes) continue;
    if (!first) c.out.put(separator);
    first = false;
    if (!put_axis(c, f, mesh)) return false;
  }
  return true;
}

/// Appends the mesh form of a sharding, without its outer braces.
constexpr bool put_named_sharding(ProtoContext& c, const WireField& message) {
  ProtoFields fields, dimension;
  ProtoMesh mesh;
  if (!c.check(fields.read(message)) || !put_mesh(c, fields.message(2, c.module), mesh))
    return false;
  bool any = false;
  for (const WireField& f : fields.all()) {
    if (f.number != 3 || f.kind != WireKind::bytes) continue;
    c.out.put(any ? ", {" : ", [{");
    any = true;
    bool first = true;
    if (!c.check(dimension.read(f)) || !put_axes(c, dimension, 1, mesh, ", ", first)) return false;
    if (!dimension.flag(2)) c.out.put(first ? "?" : ", ?");
    c.out.put('}');
  }
  bool other = false;
  if (any) c.out.put(']');
  constexpr std::pair<std::uint32_t, std::string_view> lists[] = {
      {4, "replicated"}, {5, "unreduced"}, {7, "manual"}};
  for (const auto& [number, word] : lists) {
    bool first = true;
    for (const WireField& f : fields.all()) {
      if (f.number != number || f.kind != WireKind::bytes) continue;
      if (first)
        c.out.put(", "), c.out.put(word), c.out.put("={");
      else
        c.out.put(", ");
      first = false;
      if (!put_axis(c, f, mesh)) return false;
    }
    if (!first) c.out.put('}'), other = true;
  }
  if (!any && !other) c.out.put(", replicated");
  return put_metadata_list(c, fields, 6, ", ", true);
}

/// Appends the text of an OpSharding message, braces included.
///
/// Source: hlo-format.md E.4.
constexpr bool put_sharding(ProtoContext& c, const WireField& message, std::uint32_t depth = 0) {
  if (depth >= c.depth_limit)
    return c.fail("shardings nest deeper than the depth limit", message.offset);
  ProtoFields fields;
  if (!c.check(fields.read(message))) return false;
  c.out.put('{');
  if (fields.has(14)) {
    if (!put_named_sharding(c, fields.message(14, c.module))) return false;
    c.out.put('}');
    return true;
  }
  constexpr std::string_view words[] = {"replicated", "maximal", "tuple",    "devices",
                                        "manual",     "unknown", "unreduced"};
  const std::int32_t type = fields.number32(1);
  if (type < 0 || type > 6) return c.fail("unknown kind of sharding", message.offset);
  std::vector<std::int64_t> tiles, devices, reshape, transpose, types;
  if (!c.check(fields.numbers(3, tiles)) || !c.check(fields.numbers(4, devices)) ||
      !c.check(fields.numbers(9, reshape)) || !c.check(fields.numbers(10, transpose)) ||
      !c.check(fields.numbers(8, types)))
    return false;
  if (type == 2) {
    bool first = true;
    for (const WireField& f : fields.all()) {
      if (f.number != 5 || f.kind != WireKind::bytes) continue;
      if (!first) c.out.put(", ");
      first = false;
      if (!put_sharding(c, f, depth + 1)) return false;
    }
    c.out.put('}');
    return true;
  }
  if (type == 1) {
    if (devices.empty()) return c.fail("maximal sharding without a device", message.offset);
    c.out.put("maximal device="), c.out.number(devices[0]);
  } else if (type == 3) {
    c.out.put("devices=");
    if (!reshape.empty())
      put_iota_tiles(c.out, tiles, reshape, transpose);
    else
      c.out.put('['), c.out.numbers(tiles), c.out.put(']'), c.out.numbers(devices);
    if (fields.flag(6)) c.out.put(" last_tile_dim_replicate");
    if (!types.empty()) {
      c.out.put(" last_tile_dims={");
      for (std::size_t i = 0; i < types.size(); ++i) {
        if (types[i] < 0 || types[i] > 6) return c.fail("unknown kind of sharding", message.offset);
        if (i != 0) c.out.put(", ");
        c.out.put(words[types[i]]);
      }
      c.out.put('}');
    }
  } else {
    c.out.put(words[type]);
  }
  if (fields.flag(11))
    c.out.put(fields.number(13) == 0 ? " shard_as " : " shard_like "),
        c.out.number(fields.number(12));
  if (!put_metadata_list(c, fields, 7, " ", false)) return false;
  c.out.put('}');
  return true;
}

}  // namespace holdfast::detail
