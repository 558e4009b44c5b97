// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/hlo/detail/text_state.hpp"

namespace holdfast::detail {

/// What the attributes of one instruction said, beside what went to the pools of `TextState`.
struct AttributeParts {
  ComputationId condition = no_id<ComputationId>;
  ComputationId body = no_id<ComputationId>;
  ComputationId on_true = no_id<ComputationId>;
  ComputationId on_false = no_id<ComputationId>;
  ComputationId select = no_id<ComputationId>;
  ComputationId scatter = no_id<ComputationId>;
  bool any = false;  // of those above
  bool has_number = false;
};

/// Reads a callee: the name of a computation that was defined before, or a computation in braces.
constexpr bool read_callee(TextState& st, ComputationId& out) {
  st.in.skip_space();
  if (st.in.peek() == '{') return st.read_inline(st, out);
  const std::size_t from = st.in.offset();
  std::string_view name;
  if (!st.name(name, "expected the name of a computation")) return false;
  const std::uint32_t number = st.computations.find(name);
  if (number == NameTable::none)
    return st.in.fail_at(from, "computation is not defined before its use");
  out = static_cast<ComputationId>(number);
  return true;
}

/// Reads `{item, item}`, each by `read`.
template <class Read>
constexpr bool read_list(Lexer& in, Read read) {
  if (!in.expect('{', "expected a list in braces")) return false;
  in.skip_space();
  if (in.take('}')) return true;
  for (;;) {
    if (!read()) return false;
    in.skip_space();
    if (in.take('}')) return true;
    if (!in.take(',')) return in.fail("expected , or } in a list");
    in.skip_space();
    if (in.take('}')) return true;
  }
}

/// Reads `{ {1}: (0, {}) }`: output index, operand number, operand index, kept as node numbers once
/// shapes are known.
///
/// The three parts go to `path` runs: how they become node numbers is `resolve_aliases`' business.
constexpr bool read_operand_aliases(TextState& st, std::vector<std::int64_t>& raw) {
  return read_list(st.in, [&] {
    std::uint32_t operand = 0;
    const std::size_t from = st.in.offset();
    if (!st.shape_index()) return false;
    raw.push_back(static_cast<std::int64_t>(from));
    raw.push_back(static_cast<std::int64_t>(st.path.size()));
    raw.insert(raw.end(), st.path.begin(), st.path.end());
    if (!st.in.expect(':', "expected : after an output index") ||
        !st.in.expect('(', "expected ( after :"))
      return false;
    st.in.skip_space();
    if (!st.in.index(operand) || !st.in.expect(',', "expected , after an operand's number"))
      return false;
    if (!st.shape_index()) return false;
    raw.push_back(operand);
    raw.push_back(static_cast<std::int64_t>(st.path.size()));
    raw.insert(raw.end(), st.path.begin(), st.path.end());
    return st.in.expect(')', "expected ) after an alias");
  });
}

/// Reads `replica_groups=`: nested braces, `[2,4]<=[8]T(1,0)`, or a mesh whose axes have to be
/// declared.
constexpr bool read_replica_groups(TextState& st) {
  Lexer& in = st.in;
  if (in.peek_word() != "mesh") return in.value();
  in.word();
  in.skip_space();
  if (in.peek() != '[') return in.fail("expected [ after mesh");
  const std::size_t mesh_from = in.offset();
  if (!in.group()) return false;
  Lexer axes(in.since(mesh_from), st.options.limits.depth);
  in.skip_space();
  {
    Lexer ahead = in;
    if (ahead.take(',')) {
      ahead.skip_space();
      if (ahead.take("device_ids=")) {
        in.seek(ahead.offset());
        if (!in.value()) return false;
        in.skip_space();
      }
    }
  }
  if (in.peek() != '{') return in.fail("expected the axes of a mesh in braces");
  const std::size_t used_from = in.offset();
  if (!in.group()) return false;
  // Every quoted word after the mesh names an axis; a mesh has few of them.
  constexpr std::size_t most_axes = 64;
  std::string_view declared[most_axes] = {};
  std::size_t count = 0;
  for (axes.skip(1); !axes.at_end(); axes.skip(1)) {
    if (axes.peek() != '\'' && axes.peek() != '"') continue;
    if (count == most_axes) return in.fail_at(mesh_from, "mesh has more than 64 axes");
    const std::size_t from = axes.offset();
    if (!axes.quoted()) return in.fail_at(mesh_from, "string is not closed");
    declared[count++] = axes.since(from);
    if (axes.at_end()) break;
  }
  Lexer used(in.since(used_from), st.options.limits.depth);
  while (!used.at_end()) {
    if (used.peek() != '\'' && used.peek() != '"') {
      used.skip(1);
      continue;
    }
    const std::size_t from = used.offset();
    if (!used.quoted()) return in.fail_at(used_from, "string is not closed");
    const std::string_view axis = used.since(from);
    bool known = false;
    for (std::size_t k = 0; k < count; ++k) known = known || declared[k] == axis;
    if (!known) return in.fail_at(used_from + from, "mesh has no such axis");
  }
  return true;
}

/// Reads all attributes after an operand list: `, key=value` again and again. `opcode` is what they
/// belong to.
constexpr bool read_attributes(TextState& st, Instruction& ins, Opcode opcode,
                               AttributeParts& parts, std::vector<std::int64_t>& raw_aliases) {
  Lexer& in = st.in;
  std::uint64_t seen[4] = {};
  const std::size_t first = st.attributes.size();
  constexpr std::size_t most_unknown = 64;
  std::size_t unknown = 0;
  for (;;) {
    in.skip_space();
    if (!in.take(',')) return true;
    in.skip_space();
    const std::size_t key_from = in.offset();
    const std::string_view key = in.word();
    if (key.empty()) return in.fail("expected an attribute");
    if (!in.take('=')) return in.fail("= has to follow the attribute's name at once");
    in.skip_space();
    const std::size_t number = attribute_table.find(key);
    if (number != attribute_table.none) {
      std::uint64_t& word = seen[number / 64];
      if ((word >> (number % 64) & 1) != 0)
        return in.fail_at(key_from, "attribute is given twice (duplicate)");
      word |= std::uint64_t{1} << (number % 64);
    } else {
      if (st.options.strict) return in.fail_at(key_from, "unknown attribute");
      for (std::size_t k = first; k < st.attributes.size(); ++k)
        if (st.attributes[k].key == key)
          return in.fail_at(key_from, "attribute is given twice (duplicate)");
      if (++unknown > most_unknown)
        return in.fail_at(key_from, "more than 64 unknown attributes", Errc::over_budget);
      st.warnings.add(key_from, "unknown attribute", key);
    }
    const std::size_t from = in.offset();
    auto which = static_cast<AttributeKey>(std::min<std::size_t>(number, 255));
    if ((which == AttributeKey::kind && opcode != Opcode::fusion) ||
        (which == AttributeKey::index && opcode != Opcode::get_tuple_element))
      which = AttributeKey::other;
    const auto one = [&](ComputationId& to) { return parts.any = true, read_callee(st, to); };
    const auto append = [&] {
      ComputationId id{};
      if (!read_callee(st, id)) return false;
      st.called.push_back(id);
      return true;
    };
    bool good = false;
    switch (which) {
      case AttributeKey::condition:
        good = one(parts.condition);
        break;
      case AttributeKey::body:
        good = one(parts.body);
        break;
      case AttributeKey::true_computation:
        good = one(parts.on_true);
        break;
      case AttributeKey::false_computation:
        good = one(parts.on_false);
        break;
      case AttributeKey::select:
        good = one(parts.select);
        break;
      case AttributeKey::scatter:
        good = one(parts.scatter);
        break;
      case AttributeKey::to_apply:
      case AttributeKey::calls:
        good = append();
        break;
      case AttributeKey::branch_computations:
      case AttributeKey::called_computations:
        good = read_list(in, append);
        break;
      case AttributeKey::control_predecessors:
        good = read_list(in, [&] {
          const std::size_t at = in.offset();
          std::string_view name;
          if (!st.name(name, "expected the name of an instruction")) return false;
          const std::uint32_t id = st.scope().names.find(name);
          if (id == NameTable::none)
            return in.fail_at(at, "control predecessor is not defined before its use");
          st.controls.push_back(static_cast<InstructionId>(id));
          return true;
        });
        break;
      case AttributeKey::kind: {
        const std::string_view word = in.word();
        ins.fusion_kind = word == "kLoop"     ? FusionKind::loop
                          : word == "kInput"  ? FusionKind::input
                          : word == "kOutput" ? FusionKind::output
                          : word == "kCustom" ? FusionKind::custom
                                              : FusionKind::none;
        good = ins.fusion_kind != FusionKind::none ||
               in.fail_at(from, "fusion kind has to be kLoop, kInput, kOutput or kCustom");
        break;
      }
      case AttributeKey::index:
        good = parts.has_number = in.index(ins.number);
        break;
      case AttributeKey::output_to_operand_aliasing:
        good = read_operand_aliases(st, raw_aliases);
        break;
      case AttributeKey::custom_call_has_side_effect:
        good = in.boolean(ins.has_side_effect);
        break;
      case AttributeKey::replica_groups:
        good = read_replica_groups(st);
        if (good) st.attributes.push_back({key, in.since(from)});
        break;
      case AttributeKey::backend_config:
        good = in.peek() == '{' ? in.raw_json() : in.quoted();
        if (good) st.attributes.push_back({key, in.since(from)});
        break;
      default:
        good = in.value();
        if (good) st.attributes.push_back({key, in.since(from)});
    }
    if (!good) return false;
  }
}

}  // namespace holdfast::detail
