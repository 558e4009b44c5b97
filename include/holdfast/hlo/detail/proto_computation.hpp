// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/core/hash.hpp"
#include "holdfast/graph/instruction_checker.hpp"
#include "holdfast/hlo/detail/proto_attributes.hpp"
#include "holdfast/hlo/detail/proto_ids.hpp"

namespace holdfast::detail {

/// Reads HloComputationProto messages, callees first, into the module.
///
/// Source: hlo-format.md M.3, M.4, M.6.
class ProtoComputationReader {
 public:
  /// `size` is that of the file: what comparing shapes may cost is in proportion to it.
  constexpr ProtoComputationReader(ProtoContext& context, const IdMap& computations,
                                   std::span<const WireField> payloads, std::size_t size)
      : c_(context),
        computations_(computations),
        effort_(size * 64 + 4096),
        shapes_(context),
        attributes_(context, shapes_) {
    attributes_.payloads = payloads;
  }
  constexpr ~ProtoComputationReader() =
      default;  // spelled: nvcc 13.0 takes a class with a span and a vector for no literal type

  /// Bytes of the smallest instruction. What is smaller cannot be whole, and is refused before it
  /// costs memory.
  static constexpr std::size_t least_instruction = 10;

  std::vector<std::int64_t>* ids =
      nullptr;  ///< receives the proto's id of each instruction, if anybody asks

  /// Reads one shape that stands elsewhere in the module.
  constexpr bool read_shape(const WireField& message, ShapeId& out) {
    return shapes_.read(message, out);
  }

  /// Reads one computation. `schedule` is its order by id, null when it has none.
  constexpr bool read(const WireField& message, const std::vector<std::int64_t>* schedule) {
    if (!collect(message)) return false;
    Module& m = c_.module;
    if (ids_.empty()) return c_.fail("computation without instructions", message.offset);
    if (!map_.build(ids_))
      return c_.fail("instruction id occurs twice in its computation", message.offset);
    if (!put_in_order(message, schedule)) return false;
    first_ = static_cast<std::uint32_t>(m.instructions.size());
    computation_.instructions = {static_cast<std::uint32_t>(m.instruction_ids.size()),
                                 static_cast<std::uint32_t>(ids_.size())};
    const auto self = static_cast<ComputationId>(m.computations.size());
    for (std::uint32_t k = 0; k < order_.size(); ++k) {
      m.instruction_ids.push_back(static_cast<InstructionId>(first_ + k));
      if (ids != nullptr) ids->push_back(ids_[order_[k]]);
      if (!read_instruction(messages_[order_[k]], self, k)) return false;
    }
    const std::uint32_t root = map_.find(root_);
    if (root >= IdMap::many)
      return c_.fail("root is no instruction of its computation", message.offset);
    computation_.root = static_cast<InstructionId>(first_ + place_[root]);
    if (!number_parameters() || !check_names()) return false;
    m.computations.push_back(computation_);
    callers_.push_back(0);
    return true;
  }

 private:
  ProtoContext& c_;
  const IdMap& computations_;
  std::uint64_t effort_;               // left for comparing shapes
  std::vector<std::uint8_t> callers_;  // by computation: 0 none, 1 some, 2 a fusion
  ProtoShapeReader shapes_;
  ProtoAttributeReader attributes_;
  ProtoFields fields_, alias_;
  Computation computation_;
  std::int64_t root_ = 0;
  std::uint32_t first_ = 0;           // the first instruction of the computation
  std::vector<WireField> messages_;   // of the instructions, in the order of the file
  std::vector<std::int64_t> ids_;     // theirs
  std::vector<std::uint32_t> order_;  // file position of the k-th instruction
  std::vector<std::uint32_t> place_;  // the inverse
  std::vector<std::int64_t> list_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> names_;
  InstructionIdMap map_;

  constexpr bool collect(const WireField& message) {
    computation_ = {};
    messages_.clear();
    ids_.clear();
    root_ = 0;
    WireReader reader(message.bytes, message.offset);
    for (WireField f; reader.next(f);) {
      if (f.number == 1 && f.kind == WireKind::bytes) computation_.name = f.bytes;
      if (f.number == 6 && f.kind == WireKind::varint) root_ = f.signed_value();
      if (f.number == 8 && f.kind == WireKind::bytes)
        computation_.thread = f.bytes == "main" ? std::string_view{} : f.bytes;
      if (f.number != 2 || f.kind != WireKind::bytes) continue;
      if (f.bytes.size() < least_instruction)
        return c_.fail("instruction without name, opcode or shape", f.offset);
      std::int64_t id = 0;
      WireReader instruction(f.bytes, f.offset);
      for (WireField g; instruction.next(g);)
        if (g.number == 35 && g.kind == WireKind::varint) id = g.signed_value();
      if (!c_.check(instruction.error())) return false;
      messages_.push_back(f);
      ids_.push_back(id);
    }
    return c_.check(reader.error()) && make_name(computation_.name, message.offset);
  }

  /// Fills `order_` and `place_`: the schedule if there is one, else the order of the file.
  constexpr bool put_in_order(const WireField& message, const std::vector<std::int64_t>* schedule) {
    const auto count = static_cast<std::uint32_t>(ids_.size());
    order_.clear();
    place_.assign(count, IdMap::none);
    if (schedule != nullptr && schedule->size() != count)
      return c_.fail("schedule has not as many instructions as its computation", message.offset);
    for (std::uint32_t k = 0; k < count; ++k) {
      const std::uint32_t at = schedule != nullptr ? map_.find((*schedule)[k]) : k;
      if (at >= IdMap::many || place_[at] != IdMap::none)
        return c_.fail("schedule names an instruction twice, or one that its computation has not",
                       message.offset);
      place_[at] = k;
      order_.push_back(at);
    }
    return true;
  }

  /// Makes a text a legal name, as XLA does: other characters become `_`.
  constexpr bool make_name(std::string_view& name, std::uint64_t offset) {
    if (name.empty()) return c_.fail("empty name", offset);
    const auto letter = [](char x) {
      return (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z') || x == '_';
    };
    const auto legal = [&](char x) {
      return letter(x) || (x >= '0' && x <= '9') || x == '.' || x == '-';
    };
    if (letter(name.front()) && std::ranges::all_of(name, legal)) return true;
    c_.out.clear();
    for (const char x : name) c_.out.put(legal(x) ? x : '_');
    if (!letter(c_.out.text[0])) c_.out.text[0] = '_';
    name = c_.keep();
    return true;
  }

  constexpr bool read_instruction(const WireField& message, ComputationId self,
                                  std::uint32_t position) {
    Module& m = c_.module;
    if (!c_.check(fields_.read(message))) return false;
    Instruction i;
    i.name = fields_.text(1);
    i.computation = self;
    i.where = static_cast<std::uint32_t>(message.offset);
    if (!make_name(i.name, message.offset)) return false;
    if (!read_opcode(fields_.text(2), i, message.offset)) return false;
    if (!fields_.has(3)) return c_.fail("instruction without a shape", message.offset);
    if (!shapes_.read(fields_.message(3, m), i.shape)) return false;
    if (!read_references(36, m.operand_ids, i.operands, position, message)) return false;
    if (!read_references(37, m.control_ids, i.controls, position, message)) return false;
    if (!read_called(i, message) || !read_aliases(i, message)) return false;
    if (i.opcode == Opcode::parameter && !read_number(9, i, message)) return false;
    if (i.opcode == Opcode::get_tuple_element && !read_number(13, i, message)) return false;
    if (i.opcode == Opcode::fusion && !read_kind(i, message)) return false;
    i.has_side_effect = i.opcode == Opcode::custom_call && fields_.flag(65);
    if (!attributes_.read(fields_, i, message.offset) || !check(i)) return false;
    m.instructions.push_back(i);
    return true;
  }

  constexpr bool check(const Instruction& i) {
    const Module& m = c_.module;
    Error e = InstructionChecker(m, i, effort_).check();
    if (!e.ok()) {
      e.at_kind = AtKind::byte_offset;
      e.at = i.where;
      return c_.check(e);
    }
    if (i.opcode == Opcode::async_update || i.opcode == Opcode::async_done)
      return true;  // they repeat their start's
    for (const ComputationId id : m.called(i)) {
      const bool fusion = i.opcode == Opcode::fusion;
      std::uint8_t& by = callers_[index_of(id)];
      if (by == 2 || (fusion && by != 0))
        return c_.fail("the computation of a fusion has another caller", i.where);
      by = fusion ? 2 : 1;
      if (fusion) c_.module[id].is_fusion = true;
    }
    return true;
  }

  constexpr bool read_opcode(std::string_view word, Instruction& i, std::uint64_t offset) {
    constexpr std::size_t most_unknown = 256;  // words; more are no program but an attack
    i.opcode = find_opcode(word);
    if (static_cast<std::size_t>(i.opcode) < opcode_count) return true;
    const auto legal = [](char x) {
      return (x >= 'a' && x <= 'z') || (x >= '0' && x <= '9') || x == '-' || x == '_';
    };
    if (word.empty() || word.front() < 'a' || !std::ranges::all_of(word, legal))
      return c_.fail("opcode is no word", offset);
    std::vector<std::string_view>& words = c_.module.opcode_words;
    std::size_t at = 0;
    while (at < words.size() && words[at] != word) ++at;
    if (at == words.size()) {
      if (at == most_unknown) return c_.fail("too many unknown opcodes", offset, Errc::over_budget);
      words.push_back(word);
    }
    i.opcode = static_cast<Opcode>(opcode_count + at);
    return true;
  }

  /// Reads operands or control predecessors: they have to come earlier in the order.
  constexpr bool read_references(std::uint32_t number, std::vector<InstructionId>& to,
                                 IndexRange& range, std::uint32_t position,
                                 const WireField& message) {
    range.begin = static_cast<std::uint32_t>(to.size());
    if (!fields_.has(number)) return true;
    list_.clear();
    if (!c_.check(fields_.numbers(number, list_))) return false;
    for (const std::int64_t id : list_) {
      const std::uint32_t at = map_.find(id);
      if (at == IdMap::many)
        return c_.fail("id means several instructions of the computation", message.offset);
      if (at == IdMap::none)
        return c_.fail("operand or control predecessor is no instruction of the computation",
                       message.offset);
      if (place_[at] >= position)
        return c_.fail("operand or control predecessor does not come before its user",
                       message.offset);
      to.push_back(static_cast<InstructionId>(first_ + place_[at]));
    }
    range.count = static_cast<std::uint32_t>(list_.size());
    return true;
  }

  constexpr bool read_called(Instruction& i, const WireField& message) {
    Module& m = c_.module;
    i.called.begin = static_cast<std::uint32_t>(m.called_ids.size());
    if (i.opcode == Opcode::async_update || i.opcode == Opcode::async_done) return repeat_start(i);
    if (!fields_.has(38)) return true;
    list_.clear();
    if (!c_.check(fields_.numbers(38, list_))) return false;
    for (const std::int64_t id : list_) {
      const std::uint32_t at = computations_.find(id);
      if (at >= m.computations.size())
        return c_.fail("called computation does not come before its caller", message.offset);
      m.called_ids.push_back(static_cast<ComputationId>(at));
    }
    i.called.count = static_cast<std::uint32_t>(list_.size());
    return true;
  }

  /// An async-update or -done calls what its start calls; newer files do not repeat it.
  constexpr bool repeat_start(Instruction& i) {
    Module& m = c_.module;
    const Instruction* start = i.operands.count == 1 ? &m[m.operands(i)[0]] : nullptr;
    if (start == nullptr ||
        (start->opcode != Opcode::async_start && start->opcode != Opcode::async_update))
      return c_.fail("async-update and async-done have to take an async-start or async-update",
                     i.where);
    list_.clear();
    if (!c_.check(fields_.numbers(38, list_))) return false;
    const ComputationId callee = m.called(*start)[0];
    if (list_.size() > 1 || (list_.size() == 1 && computations_.find(list_[0]) != index_of(callee)))
      return c_.fail("the start calls another computation", i.where);
    m.called_ids.push_back(callee);
    i.called.count = 1;
    return true;
  }

  constexpr bool read_aliases(Instruction& i, const WireField& message) {
    Module& m = c_.module;
    i.aliases.begin = static_cast<std::uint32_t>(m.operand_aliases.size());
    if (!fields_.has(74)) return true;
    for (const WireField& f : fields_.all()) {
      if (f.number != 74 || f.kind != WireKind::bytes) continue;
      OperandAlias a;
      if (!c_.check(alias_.read(f))) return false;
      const auto operand = static_cast<std::uint64_t>(alias_.number(2));
      if (operand >= i.operands.count)
        return c_.fail("output alias of an operand that is not there", message.offset);
      a.operand = static_cast<std::uint32_t>(operand);
      if (!read_node(alias_, 1, i.shape, a.output_node, f.offset)) return false;
      if (!read_node(alias_, 3, m[m.operands(i)[a.operand]].shape, a.operand_node, f.offset))
        return false;
      m.operand_aliases.push_back(a);
      ++i.aliases.count;
    }
    return true;
  }

  constexpr bool read_number(std::uint32_t field, Instruction& i, const WireField& message) {
    const std::int64_t n = fields_.number(field);
    if (n < 0 || n >= 0xFFFFFFFF)
      return c_.fail("parameter number or tuple index out of range", message.offset);
    i.number = static_cast<std::uint32_t>(n);
    return true;
  }

  constexpr bool read_kind(Instruction& i, const WireField& message) {
    constexpr std::string_view words[] = {"kLoop", "kInput", "kOutput", "kCustom"};
    for (std::size_t k = 0; k < 4; ++k)
      if (fields_.text(11) == words[k]) i.fusion_kind = static_cast<FusionKind>(k + 1);
    return i.fusion_kind != FusionKind::none || c_.fail("unknown kind of fusion", message.offset);
  }

  constexpr bool number_parameters() {
    Module& m = c_.module;
    std::uint32_t count = 0;
    for (std::uint32_t k = 0; k < order_.size(); ++k)
      count += m.instructions[first_ + k].opcode == Opcode::parameter;
    const auto begin = static_cast<std::uint32_t>(m.parameter_ids.size());
    computation_.parameters = {begin, count};
    m.parameter_ids.resize(begin + count, no_id<InstructionId>);
    for (std::uint32_t k = 0; k < order_.size(); ++k) {
      const Instruction& i = m.instructions[first_ + k];
      if (i.opcode != Opcode::parameter) continue;
      if (i.number >= count || m.parameter_ids[begin + i.number] != no_id<InstructionId>)
        return c_.fail("parameter numbers of a computation are not 0 to n-1", i.where);
      m.parameter_ids[begin + i.number] = static_cast<InstructionId>(first_ + k);
    }
    return true;
  }

  constexpr bool check_names() {
    const Module& m = c_.module;
    names_.clear();
    for (std::uint32_t k = 0; k < order_.size(); ++k)
      names_.emplace_back(hash_text(m.instructions[first_ + k].name), first_ + k);
    // Equal hashes of different names are told apart by the names, so that hostile ones cost no
    // more than sorting.
    std::sort(names_.begin(), names_.end(), [&m](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first
                                : m.instructions[a.second].name < m.instructions[b.second].name;
    });
    for (std::size_t k = 1; k < names_.size(); ++k)
      if (names_[k].first == names_[k - 1].first &&
          m.instructions[names_[k].second].name == m.instructions[names_[k - 1].second].name)
        return c_.fail("two instructions of a computation have one name",
                       m.instructions[names_[k].second].where);
    return true;
  }

 public:
  /// Reads a shape index, as its node number, from a field of a message.
  constexpr bool read_node(const ProtoFields& f, std::uint32_t number, ShapeId shape,
                           std::uint32_t& out, std::uint64_t offset) {
    list_.clear();
    if (!c_.check(f.numbers(number, list_))) return false;
    out = c_.module.shapes.node_of_path(shape, list_);
    return out < c_.module.shapes.node_count(shape) ||
           c_.fail("shape index of an element that is not there", offset);
  }
  constexpr bool sanitize(std::string_view& name, std::uint64_t offset) {
    return make_name(name, offset);
  }
};

}  // namespace holdfast::detail
