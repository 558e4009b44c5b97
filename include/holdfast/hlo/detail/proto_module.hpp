// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/hlo/detail/proto_computation.hpp"

namespace holdfast::detail {

/// Reads an HloModuleProto into the context's module.
///
/// Source: hlo-format.md M.2, N.
class ProtoModuleReader {
 public:
  constexpr explicit ProtoModuleReader(ProtoContext& context) noexcept : c_(context) {}

  std::size_t instruction_limit = 0;
  std::vector<std::int64_t>* ids = nullptr;

  constexpr bool read(const WireField& message) {
    Module& m = c_.module;
    if (!collect(message)) return false;
    map_.build(computation_ids_);
    for (std::size_t i = 0; i < computations_.size(); ++i)
      if (map_.find(computation_ids_[i]) != i)
        return c_.fail("computation id occurs twice", computations_[i].offset);
    const std::uint32_t entry = map_.find(entry_id_);
    if (entry >= computations_.size()) return c_.fail("no entry computation", message.offset);
    if (!rest_.has(4)) return c_.fail("module without a program shape", message.offset);
    if (!read_schedule()) return false;
    if (instruction_count_ > instruction_limit)
      return c_.fail("more instructions than the limit", message.offset, Errc::over_budget);
    const std::size_t room = std::min(
        instruction_count_, message.bytes.size() / ProtoComputationReader::least_instruction);
    m.instructions.reserve(room);
    m.instruction_ids.reserve(room);
    m.computations.reserve(computations_.size());
    ProtoComputationReader reader(c_, map_, payloads_, message.bytes.size());
    reader.ids = ids;
    for (std::size_t i = 0; i < computations_.size(); ++i)
      if (!reader.read(computations_[i], sequence_of(i))) return false;
    m.entry = static_cast<ComputationId>(entry);
    if (!name_.empty()) {
      m.name = name_;
      if (!reader.sanitize(m.name, message.offset)) return false;
    }
    return check_schedule() && check_names() && read_aliases(reader) && read_donors(reader) &&
           read_entry_layout(reader) && read_rest() && find_async_wrappers();
  }

 private:
  struct Sequence {
    std::int64_t computation = 0;
    std::vector<std::int64_t> ids;
  };

  // Smaller ones cannot be whole: refused before they cost more memory than they have bytes.
  static constexpr std::size_t least_computation = 12;

  ProtoContext& c_;
  std::string_view name_;
  std::int64_t entry_id_ = 0;
  std::vector<WireField> computations_, payloads_;
  std::vector<std::int64_t> computation_ids_;
  std::size_t instruction_count_ = 0;
  ProtoFields rest_;  // the fields that occur once
  std::vector<Sequence> sequences_;
  IdMap sequence_map_;
  IdMap map_;
  std::vector<std::uint64_t> taken_;  // parameters of the alias and donor tables, with their node

  constexpr bool collect(const WireField& message) {
    WireReader reader(message.bytes, message.offset);
    for (WireField f; reader.next(f);) {
      if (f.number == 1 && f.kind == WireKind::bytes) name_ = f.bytes;
      if (f.number == 6 && f.kind == WireKind::varint) entry_id_ = f.signed_value();
      if (f.number == 22 && f.kind == WireKind::bytes) payloads_.push_back(f);
      if (f.number != 3 || f.kind != WireKind::bytes) continue;
      if (f.bytes.size() < least_computation)
        return c_.fail("computation without name or instructions", f.offset);
      std::int64_t id = 0;
      WireReader computation(f.bytes, f.offset);
      for (WireField g; computation.next(g);) {
        if (g.number == 5 && g.kind == WireKind::varint) id = g.signed_value();
        instruction_count_ += g.number == 2;
      }
      if (!c_.check(computation.error())) return false;
      computations_.push_back(f);
      computation_ids_.push_back(id);
    }
    return c_.check(reader.error()) && c_.check(rest_.read(message));
  }

  constexpr bool read_schedule() {
    Module& m = c_.module;
    m.is_scheduled = rest_.has(7);
    if (!m.is_scheduled) return true;
    const WireField schedule = rest_.message(7, m);
    WireReader entries(schedule.bytes, schedule.offset);
    std::vector<std::int64_t> keys;
    for (WireField entry; entries.next(entry);) {
      if (entry.number != 1 || entry.kind != WireKind::bytes) continue;
      Sequence s;
      WireReader pair(entry.bytes, entry.offset);
      for (WireField f; pair.next(f);) {
        if (f.number == 1 && f.kind == WireKind::varint) s.computation = f.signed_value();
        if (f.number != 2 || f.kind != WireKind::bytes) continue;
        WireReader sequence(f.bytes, f.offset);
        for (WireField g; sequence.next(g);)
          if (g.number == 1 && !c_.check(append_numbers(g, s.ids))) return false;
        if (!c_.check(sequence.error())) return false;
      }
      if (!c_.check(pair.error())) return false;
      keys.push_back(s.computation);
      sequences_.push_back(std::move(s));
    }
    if (!c_.check(entries.error())) return false;
    sequence_map_.build(keys);
    for (const std::int64_t key : keys)
      if (sequence_map_.find(key) == IdMap::many)
        return c_.fail("computation is scheduled twice", schedule.offset);
    return true;
  }
  constexpr const std::vector<std::int64_t>* sequence_of(std::size_t computation) const noexcept {
    const std::uint32_t at = sequence_map_.find(computation_ids_[computation]);
    return at < sequences_.size() ? &sequences_[at].ids : nullptr;
  }
  constexpr bool check_schedule() {
    if (!c_.module.is_scheduled) return true;
    for (std::size_t i = 0; i < computations_.size(); ++i)
      if (sequence_of(i) == nullptr && !c_.module.computations[i].is_fusion)
        return c_.fail("scheduled module has a computation without a schedule",
                       computations_[i].offset);
    return true;
  }

  constexpr bool check_names() {
    std::vector<std::pair<std::string_view, std::size_t>> names;
    for (std::size_t i = 0; i < computations_.size(); ++i)
      names.emplace_back(c_.module.computations[i].name, i);
    std::sort(names.begin(), names.end());
    for (std::size_t i = 1; i < names.size(); ++i)
      if (names[i].first == names[i - 1].first)
        return c_.fail("two computations have one name", computations_[names[i].second].offset);
    return true;
  }

  constexpr bool read_aliases(ProtoComputationReader& reader) {
    Module& m = c_.module;
    const WireField table = rest_.message(8, m);
    const ShapeId output = m[m[m.entry].root].shape;
    ProtoFields f;
    std::vector<std::uint64_t> outputs;
    std::vector<std::uint64_t>& inputs = taken_;
    WireReader entries(table.bytes, table.offset);
    for (WireField entry; entries.next(entry);) {
      if (entry.number != 1 || entry.kind != WireKind::bytes) continue;
      ParameterAlias a;
      if (!c_.check(f.read(entry))) return false;
      if (!read_parameter(f, 2, 3, a.parameter, a.parameter_node, reader, entry)) return false;
      if (!reader.read_node(f, 1, output, a.output_node, entry.offset)) return false;
      const Bytes out = m.shapes.byte_size(m.shapes.node(output, a.output_node));
      const Bytes in = m.shapes.byte_size(
          m.shapes.node(m[m.parameters_of(m.entry)[a.parameter]].shape, a.parameter_node));
      if (out != in) {
        Error e = make_error_at(Errc::corrupt, "aliased output and parameter have different sizes",
                                entry.offset);
        e.requested = out;
        e.available = in;
        return c_.check(e);
      }
      const std::int64_t kind = f.number(4);
      if (kind != 1 && kind != 2)
        return c_.fail("input_output_alias of an undefined kind", entry.offset);
      a.must = kind == 2;
      m.parameter_aliases.push_back(a);
      outputs.push_back(a.output_node);
      inputs.push_back((static_cast<std::uint64_t>(a.parameter) << 32) | a.parameter_node);
    }
    return c_.check(entries.error()) &&
           ((unique(outputs) && unique(inputs)) ||
            c_.fail("input_output_alias names one place twice", table.offset));
  }
  static constexpr bool unique(std::vector<std::uint64_t>& places) {
    std::sort(places.begin(), places.end());
    return std::adjacent_find(places.begin(), places.end()) == places.end();
  }
  constexpr bool read_parameter(const ProtoFields& f, std::uint32_t number, std::uint32_t index,
                                std::uint32_t& parameter, std::uint32_t& node,
                                ProtoComputationReader& reader, const WireField& entry) {
    const auto parameters = c_.module.parameters_of(c_.module.entry);
    const auto n = static_cast<std::uint64_t>(f.number(number));
    if (n >= parameters.size())
      return c_.fail("alias or donor table names a parameter that the entry has not", entry.offset);
    parameter = static_cast<std::uint32_t>(n);
    return reader.read_node(f, index, c_.module[parameters[n]].shape, node, entry.offset);
  }
  constexpr bool read_donors(ProtoComputationReader& reader) {
    Module& m = c_.module;
    const WireField table = rest_.message(18, m);
    ProtoFields f;
    WireReader entries(table.bytes, table.offset);
    for (WireField entry; entries.next(entry);) {
      if (entry.number != 1 || entry.kind != WireKind::bytes) continue;
      BufferDonor d;
      if (!c_.check(f.read(entry)) ||
          !read_parameter(f, 1, 2, d.parameter, d.parameter_node, reader, entry))
        return false;
      m.donors.push_back(d);
      taken_.push_back((static_cast<std::uint64_t>(d.parameter) << 32) | d.parameter_node);
    }
    return c_.check(entries.error()) &&
           (unique(taken_) ||
            c_.fail("parameter is a donor twice, or a donor and aliased", table.offset));
  }

  /// The entry's program shape, checked against the entry computation, as the header attribute of
  /// the text.
  constexpr bool read_entry_layout(ProtoComputationReader& reader) {
    Module& m = c_.module;
    const WireField program = rest_.message(4, m);
    ProtoFields f;
    if (!c_.check(f.read(program))) return false;
    const auto parameters = m.parameters_of(m.entry);
    std::size_t count = 0;
    TextBuilder text;
    text.put("{(");
    for (const WireField& p : f.all()) {
      if (p.number != 1 || p.kind != WireKind::bytes) continue;
      ShapeId shape{};
      if (!reader.read_shape(p, shape)) return false;
      if (count >= parameters.size() || !m.shapes.compatible(shape, m[parameters[count]].shape))
        return c_.fail("program shape disagrees with the entry's parameters", program.offset);
      if (count != 0) text.put(", ");
      if (count != 0 && count % 5 == 0)
        text.put("/*index="), text.number(static_cast<std::int64_t>(count)), text.put("*/");
      put_shape(text, m.shapes, shape);
      ++count;
    }
    if (count != parameters.size())
      return c_.fail("program shape disagrees with the entry's parameters", program.offset);
    ShapeId result{};
    if (!reader.read_shape(f.message(2, m), result)) return false;
    if (!m.shapes.compatible(result, m[m[m.entry].root].shape))
      return c_.fail("program shape disagrees with the entry's result", program.offset);
    text.put(")->");
    put_shape(text, m.shapes, result);
    text.put('}');
    m.header_attributes.push_back({"entry_computation_layout", m.own(text.view())});
    return true;
  }

  constexpr bool read_rest() {
    Module& m = c_.module;
    if (rest_.has(15)) {
      ProtoFields f;
      if (!c_.check(f.read(rest_.message(15, m)))) return false;
      if (f.number32(1) > 0) m.replica_count = static_cast<std::uint32_t>(f.number32(1));
      if (f.number32(2) > 0) m.num_partitions = static_cast<std::uint32_t>(f.number32(2));
    }
    if (rest_.has(19)) {
      c_.out.clear();
      if (!put_frontend_attributes(c_, rest_.message(19, m))) return false;
      if (!c_.out.text.empty()) m.header_attributes.push_back({"frontend_attributes", c_.keep()});
    }
    return !rest_.has(17) || read_frames(rest_.message(17, m));
  }

  /// The tables of source places. The text counts parents from one more than the proto does
  /// (hlo-format.md B.2).
  constexpr bool read_frames(const WireField& message) {
    constexpr std::string_view titles[] = {"FileNames", "FunctionNames", "FileLocations",
                                           "StackFrames"};
    ProtoFields entry;
    TextBuilder text;
    for (std::uint32_t table = 1; table <= 4; ++table) {
      std::int64_t number = 0;
      WireReader reader(message.bytes, message.offset);
      for (WireField f; reader.next(f);) {
        if (f.number != table || f.kind != WireKind::bytes) continue;
        if (number == 0)
          text.put(text.text.empty() ? "" : "\n"), text.put(titles[table - 1]), text.put('\n');
        text.number(++number), text.put(' ');
        if (table <= 2)
          text.quoted(f.bytes);
        else if (!c_.check(entry.read(f)))
          return false;
        else if (table == 3)
          put_place(text, entry);
        else
          put_frame(text, entry);
        text.put('\n');
        // Empty entries would make forty times their size of text: no compiler writes them.
        if (text.text.size() > message.bytes.size() * 16 + 4096)
          return c_.fail("tables of source places are out of proportion", message.offset,
                         Errc::over_budget);
      }
      if (!c_.check(reader.error())) return false;
    }
    if (text.text.empty()) return true;
    text.text.pop_back();
    c_.module.owned_text.push_back(std::move(text.text));
    c_.module.frame_index = {c_.module.owned_text.back().data(),
                             c_.module.owned_text.back().size()};
    return true;
  }
  static constexpr void put_place(TextBuilder& text, const ProtoFields& f) {
    text.put("{file_name_id="), text.number(f.number32(1)), text.put(" function_name_id="),
        text.number(f.number32(2));
    text.put(" line="), text.number(f.number32(3)), text.put(" end_line="),
        text.number(f.number32(5));
    text.put(" column="), text.number(f.number32(4)), text.put(" end_column="),
        text.number(f.number32(6)), text.put('}');
  }
  static constexpr void put_frame(TextBuilder& text, const ProtoFields& f) {
    text.put("{file_location_id="), text.number(f.number32(1));
    text.put(" parent_frame_id="), text.number(std::int64_t{f.number32(2)} + 1), text.put('}');
  }

  /// A computation that holds one operation on its parameters, in their order, and that only
  /// async-starts call, is printed inside them.
  constexpr bool find_async_wrappers() {
    Module& m = c_.module;
    for (const Instruction& i : m.instructions)
      for (const ComputationId called : m.called(i))
        if (i.opcode == Opcode::async_start) m[called].is_async_wrapper = is_wrapper(called);
    for (const Instruction& i : m.instructions)
      for (const ComputationId called : m.called(i))
        if (i.opcode != Opcode::async_start && i.opcode != Opcode::async_update &&
            i.opcode != Opcode::async_done)
          m[called].is_async_wrapper = false;
    m[m.entry].is_async_wrapper = false;
    return true;
  }
  constexpr bool is_wrapper(ComputationId computation) const noexcept {
    const Module& m = c_.module;
    const Computation& c = m[computation];
    const Instruction& root = m[c.root];
    if (c.instructions.count != c.parameters.count + 1 || root.opcode == Opcode::parameter)
      return false;
    const auto operands = m.operands(root);
    const auto parameters = m.parameters_of(computation);
    return std::equal(operands.begin(), operands.end(), parameters.begin(), parameters.end());
  }
};

}  // namespace holdfast::detail
