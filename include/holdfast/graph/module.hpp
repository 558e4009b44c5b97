// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "holdfast/core/types.hpp"
#include "holdfast/graph/opcode.hpp"
#include "holdfast/graph/shape_table.hpp"

namespace holdfast {

/// `key=value` of an instruction or of the module's header, its value as written (a string with its quotes).
struct Attribute {
  std::string_view key;
  std::string_view value;
};

/// Says that an output of the module lives in the memory of a parameter. Nodes are numbers of `ShapeTable::node`.
struct ParameterAlias {
  std::uint32_t output_node = 0;
  std::uint32_t parameter = 0;
  std::uint32_t parameter_node = 0;
  bool must = false;
};

/// A parameter whose memory the caller gives away without saying to which output.
struct BufferDonor {
  std::uint32_t parameter = 0;
  std::uint32_t parameter_node = 0;
};

/// Says that an output of one instruction lives in the memory of one of its operands.
struct OperandAlias {
  std::uint32_t output_node = 0;
  std::uint32_t operand = 0;
  std::uint32_t operand_node = 0;
};

/// The kind of a fusion.
enum class FusionKind : std::uint8_t { none, loop, input, output, custom };

/// One instruction: what memory work needs; the rest is carried along as attributes.
struct Instruction {
  std::string_view name;
  ShapeId shape{};
  ComputationId computation{};
  Opcode opcode = Opcode::parameter;
  FusionKind fusion_kind = FusionKind::none;
  bool has_side_effect = false;  ///< custom-call's own word
  IndexRange operands;           ///< in `Module::operand_ids`
  IndexRange controls;           ///< control predecessors, in `Module::control_ids`
  IndexRange called;             ///< in `Module::called_ids`: while has body, condition; conditional its branches in order
  IndexRange attributes;         ///< in `Module::attributes`
  IndexRange aliases;            ///< output_to_operand_aliasing, in `Module::operand_aliases`
  std::uint32_t number = 0;      ///< parameter: its number; get-tuple-element: its index
  std::uint32_t where = 0;       ///< byte offset in the source
};

/// One computation. Its instructions stand in schedule order when the module is scheduled.
struct Computation {
  std::string_view name;
  std::string_view thread;  ///< execution thread; empty: main
  IndexRange instructions;  ///< in `Module::instruction_ids`
  IndexRange parameters;    ///< by number, in `Module::parameter_ids`
  InstructionId root{};
  bool is_fusion = false;        ///< called by a fusion
  bool is_async_wrapper = false; ///< made for a sugared `x-start`; printed inside it
};

/// An HLO module: pooled tables of plain data.
///
/// Strings are views into the source text or bytes, which must outlive the module, or into `own`ed text.
/// Move-only, because of those views. Threads: as a vector.
struct Module {
  std::string_view name;
  bool is_scheduled = false;
  ComputationId entry{};
  std::uint32_t replica_count = 1;
  std::uint32_t num_partitions = 1;
  std::vector<Computation> computations;  ///< callees before callers
  std::vector<Instruction> instructions;
  std::vector<InstructionId> instruction_ids;
  std::vector<InstructionId> parameter_ids;
  std::vector<InstructionId> operand_ids;
  std::vector<InstructionId> control_ids;
  std::vector<ComputationId> called_ids;
  std::vector<OperandAlias> operand_aliases;
  std::vector<Attribute> attributes;
  std::vector<Attribute> header_attributes;  ///< those of the header that are no field here, in source order
  std::vector<ParameterAlias> parameter_aliases;
  std::vector<BufferDonor> donors;
  std::vector<std::string_view> opcode_words;  ///< unknown opcodes
  std::string_view frame_index;                ///< the FileNames ... StackFrames tables, as written
  ShapeTable shapes;
  std::vector<std::vector<char>> owned_text;

  constexpr Module() = default;
  constexpr Module(Module&&) noexcept = default;
  constexpr Module& operator=(Module&&) noexcept = default;

  [[nodiscard]] constexpr const Instruction& operator[](InstructionId id) const noexcept { return instructions[index_of(id)]; }
  [[nodiscard]] constexpr Instruction& operator[](InstructionId id) noexcept { return instructions[index_of(id)]; }
  [[nodiscard]] constexpr const Computation& operator[](ComputationId id) const noexcept { return computations[index_of(id)]; }
  [[nodiscard]] constexpr Computation& operator[](ComputationId id) noexcept { return computations[index_of(id)]; }

  [[nodiscard]] constexpr std::span<const InstructionId> operands(const Instruction& i) const noexcept {
    return {operand_ids.data() + i.operands.begin, i.operands.count};
  }
  [[nodiscard]] constexpr std::span<const InstructionId> controls(const Instruction& i) const noexcept {
    return {control_ids.data() + i.controls.begin, i.controls.count};
  }
  [[nodiscard]] constexpr std::span<const ComputationId> called(const Instruction& i) const noexcept {
    return {called_ids.data() + i.called.begin, i.called.count};
  }
  [[nodiscard]] constexpr std::span<const OperandAlias> aliases(const Instruction& i) const noexcept {
    return {operand_aliases.data() + i.aliases.begin, i.aliases.count};
  }
  [[nodiscard]] constexpr std::span<const Attribute> attributes_of(const Instruction& i) const noexcept {
    return {attributes.data() + i.attributes.begin, i.attributes.count};
  }
  [[nodiscard]] constexpr std::span<const InstructionId> instructions_of(ComputationId c) const noexcept {
    const IndexRange r = (*this)[c].instructions;
    return {instruction_ids.data() + r.begin, r.count};
  }
  [[nodiscard]] constexpr std::span<const InstructionId> parameters_of(ComputationId c) const noexcept {
    const IndexRange r = (*this)[c].parameters;
    return {parameter_ids.data() + r.begin, r.count};
  }

  /// The value of an attribute as written; empty when there is none.
  [[nodiscard]] constexpr std::string_view attribute(const Instruction& i, std::string_view key) const noexcept {
    for (const Attribute& a : attributes_of(i))
      if (a.key == key) return a.value;
    return {};
  }
  /// The word of an instruction's opcode, known or not.
  [[nodiscard]] constexpr std::string_view opcode_word_of(const Instruction& i) const noexcept {
    const auto n = static_cast<std::size_t>(i.opcode);
    return n < opcode_count ? opcode_word(i.opcode) : opcode_words[n - opcode_count];
  }
  /// Keeps a copy of a text as long as the module lives. Cost: an allocation a few thousand characters.
  constexpr std::string_view own(std::string_view text) {
    constexpr std::size_t block = 4096;
    if (owned_text.empty() || owned_text.back().capacity() - owned_text.back().size() < text.size()) {
      owned_text.emplace_back();
      owned_text.back().reserve(std::max(block, text.size()));
    }
    std::vector<char>& to = owned_text.back();
    const std::size_t at = to.size();
    to.insert(to.end(), text.begin(), text.end());
    return {to.data() + at, text.size()};
  }
};

/// Limits on what a reader of untrusted input may build.
struct ReaderLimits {
  std::size_t bytes = std::size_t{1} << 32;          ///< of the input; the next byte is too many
  std::size_t instructions = std::size_t{1} << 27;   ///< in the whole module
  std::uint32_t depth = 500;                         ///< of nested shapes, operands and braces
};

}  // namespace holdfast
