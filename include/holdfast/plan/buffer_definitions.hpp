// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/graph/module.hpp"
#include "holdfast/plan/allocation_table.hpp"

namespace holdfast {

/// Finds the instruction that defines each logical buffer: by its id, in older files by computation
/// and name.
///
/// `instruction_ids` are the file's own, one for each instruction of the module
/// (`ProtoOptions::instruction_ids`). `no_id` where nothing fits, or several do: the buffer is then
/// only a size. Cost: O(n log n). Source: hlo-format.md P.2, R.19.
[[nodiscard]] constexpr std::vector<InstructionId> find_definitions(
    const AllocationTable& table, const Module& module,
    std::span<const std::int64_t> instruction_ids) {
  struct Named {
    std::string_view instruction, computation;
    InstructionId id{};
  };
  constexpr InstructionId none = no_id<InstructionId>;
  const auto before = [](const Named& a, const Named& b) {
    return a.instruction != b.instruction ? a.instruction < b.instruction
                                          : a.computation < b.computation;
  };
  std::vector<std::pair<std::int64_t, InstructionId>> by_id;
  for (std::size_t i = 0; i < instruction_ids.size() && i < module.instructions.size(); ++i)
    by_id.emplace_back(instruction_ids[i], static_cast<InstructionId>(i));
  std::sort(by_id.begin(), by_id.end());
  std::vector<Named> by_name;
  if (std::ranges::any_of(table.buffers, [](const LogicalBuffer& b) {
        return b.instruction_id == 0 && !b.instruction_name.empty();
      })) {
    for (std::uint32_t i = 0; i < module.instructions.size(); ++i)
      by_name.push_back({module.instructions[i].name,
                         module[module.instructions[i].computation].name,
                         static_cast<InstructionId>(i)});
    std::sort(by_name.begin(), by_name.end(), before);
  }
  std::vector<InstructionId> out;
  out.reserve(table.buffers.size());
  for (const LogicalBuffer& b : table.buffers) {
    InstructionId found = none;
    const auto at =
        std::lower_bound(by_id.begin(), by_id.end(), std::pair{b.instruction_id, InstructionId{}});
    if (at != by_id.end() && at->first == b.instruction_id) {
      found = at + 1 != by_id.end() && at[1].first == b.instruction_id ? none : at->second;
    } else if (b.instruction_id == 0 && !by_name.empty()) {
      const auto first =
          std::lower_bound(by_name.begin(), by_name.end(),
                           Named{b.instruction_name, b.computation_name, none}, before);
      const bool fits = first != by_name.end() && first->instruction == b.instruction_name;
      if (fits && b.computation_name.empty()) {
        found = first + 1 != by_name.end() && first[1].instruction == b.instruction_name
                    ? none
                    : first->id;
      } else if (fits && first->computation == b.computation_name) {
        found = first->id;
      }
    }
    out.push_back(found);
  }
  return out;
}

}  // namespace holdfast
